"""This adapter offers a pool to asyncio programs: its methods are awaited where the pool's own methods block."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from windlass.pool.client.api import AnyTask, Gathered, Sendable, TaskSequence, compute_of

if TYPE_CHECKING:
    from windlass.pool.pool import ComputePool


class AsyncPool:
    """A pool with awaitable methods. A context manager: ``async with ComputePool(...).as_asyncio() as pool``."""

    def __init__(self, pool: ComputePool) -> None:
        self.pool = pool

    async def __aenter__(self) -> AsyncPool:
        await asyncio.to_thread(self.pool.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.pool.close, wait=error is None)

    async def run(self, task: Sendable[Any]) -> Any:
        """Run a task and return its value: ``await pool.run(trial(0.1))``. Cancelling the await cancels the task."""
        if isinstance(task, Gathered):
            return await self.gather(*task.tasks, return_exceptions=task.return_exceptions)
        if isinstance(task, TaskSequence):
            return tuple(await self.gather(*task.tasks))
        return await asyncio.wrap_future(task > self.pool)

    async def gather(self, *tasks: AnyTask, return_exceptions: bool = False) -> list[Any]:
        """Return the values of many tasks, in their order."""
        values: list[Any] = [None] * len(tasks)
        async for position, value in self._arrivals(tasks, return_exceptions=return_exceptions):
            values[position] = value
        return values

    async def map(self, function: Callable[..., Any], *iterables: Iterable[Any]) -> list[Any]:
        """Return the values of a function over iterables."""
        made = compute_of(function)
        return await self.gather(*[made(*args) for args in zip(*iterables, strict=False)])

    async def stream(self, *tasks: AnyTask, ordered: bool = True) -> AsyncIterator[Any]:
        """Iterate over values as they arrive: ``async for value in pool.stream(*tasks)``."""
        early: dict[int, Any] = {}
        due = 0
        async for position, value in self._arrivals(tasks, return_exceptions=False):
            if not ordered:
                yield value
                continue
            early[position] = value
            while due in early:
                yield early.pop(due)
                due += 1

    async def _arrivals(self, tasks: Sequence[AnyTask], *, return_exceptions: bool) -> AsyncIterator[tuple[int, Any]]:
        loop = asyncio.get_running_loop()
        arrived: asyncio.Queue[int] = asyncio.Queue()

        def on_result(position: int) -> None:
            loop.call_soon_threadsafe(arrived.put_nowait, position)

        started = await asyncio.to_thread(self.pool.start_all, tasks, on_result)
        whole = False
        try:
            for _ in tasks:
                position = await arrived.get()
                yield position, started.value(position, return_exceptions)
            whole = True
        finally:
            started.ended(whole)
