"""VirtualLoop is an asyncio event loop on virtual time, on which nothing waits.

Everything due runs at once; then the clock jumps to the next timer. The production loop runs on it unchanged: time
limits (``asyncio.timeout``) and pauses fire in virtual time, and a call that hangs for hours costs no real time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

EPOCH = 1_000_000.0
"""Start of virtual time, in seconds since 1970. Small enough that a float still resolves a microsecond."""


class _VirtualSelector(selectors.SelectSelector):
    """A selector that advances the virtual time instead of waiting."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.time = start

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("nothing is due and nothing can happen any more")
        if timeout > 0:
            self.time += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time. Calls for a thread run in place."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, start: float = EPOCH) -> None:
        self._leaping = _VirtualSelector(start)
        super().__init__(self._leaping)
        # Timers within a microsecond are due now: a float resolves no finer.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._leaping.time

    def is_at_rest(self, seconds: float = 0.0) -> bool:
        """Whether nothing is ready to run and no timer fires within the given seconds. Then yielding to other tasks
        would change nothing.
        """
        if self._ready:
            return False
        timers = self._scheduled
        return not timers or timers[0].when() > self._leaping.time + seconds + self._clock_resolution

    def leap(self, seconds: float) -> None:
        """Advance the time at once, for a caller that runs alone."""
        self._leaping.time += seconds

    def run_in_executor(  # type: ignore[override]
        self,
        executor: Any,  # noqa: ARG002
        func: Callable[..., Any],
        *args: Any,
    ) -> Any:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  # passed on to the waiting caller
            future.set_exception(error)
        return future


def run_virtually(coroutine: Coroutine[Any, Any, T], start: float = EPOCH) -> T:
    """Run a coroutine on virtual time from ``start`` on, and return its result."""
    loop = VirtualLoop(start)
    try:
        return loop.run_until_complete(coroutine)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(_ended(left))
        loop.close()


async def _ended(tasks: Iterable[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)
