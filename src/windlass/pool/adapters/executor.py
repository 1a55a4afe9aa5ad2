"""This adapter offers a pool as a ``concurrent.futures.Executor``, for libraries that take one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from windlass.pool.client.api import compute_of
from windlass.pool.client.futures import Started, in_order
from windlass.pool.waits import wait_for_future

if TYPE_CHECKING:
    from windlass.pool.pool import ComputePool


class _MappedCalls(Future[None]):
    """The future of all calls of one ``map``: done when each has ended in any way."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._left = count
        self._cancel_waiting: Callable[[], None] = lambda: None

    def begun(self, started: Started) -> None:
        self._cancel_waiting = started.cancel_waiting

    def on_result(self, position: int) -> None:  # noqa: ARG002
        """Count a call that has ended. Called on the pool's thread."""
        self._left -= 1
        if not self._left:
            self.set_result(None)

    def cancel(self) -> bool:
        """Cancel the calls that have not been placed on a slot; the others run to their end."""
        self._cancel_waiting()
        return False


class PoolExecutor(Executor):
    """Runs calls on a pool. A shutdown waits for the executor's own calls; the pool keeps running."""

    def __init__(self, pool: ComputePool) -> None:
        self._pool = pool
        self._futures: set[Future[Any]] = set()
        self._shut = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self._shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future = self._pool.submit(fn, *args, **kwargs)
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        return future

    def map(
        self, fn: Callable[..., Any], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[Any]:
        """Like the built-in ``map``, with all calls started at once. The pool sends short calls in batches, so
        ``chunksize`` has no effect; with ``timeout`` each call has a separate future.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if timeout is not None:
            return super().map(fn, *iterables, timeout=timeout)
        if self._shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        made = compute_of(fn)
        tasks = [made(*args) for args in zip(*iterables, strict=False)]
        arrived: SimpleQueue[int] = SimpleQueue()
        if not tasks:
            return iter(())
        mapped = _MappedCalls(len(tasks))
        started = self._pool.start_all(tasks, arrived.put, mapped.on_result, begun=mapped.begun)
        self._futures.add(mapped)
        mapped.add_done_callback(self._futures.discard)
        return in_order(self._pool.arrivals(started, arrived))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._shut = True
        futures = list(self._futures)
        if cancel_futures:
            for future in futures:
                if not future.running():
                    future.cancel()
        if wait:
            for future in futures:
                wait_for_future(future)

    def __repr__(self) -> str:
        return f"<executor of {self._pool.name}>"
