"""This adapter offers a pool as a ``concurrent.futures.Executor``, for libraries that take one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windlass.pool.pool import ComputePool


class PoolExecutor(Executor):
    """Runs calls on a pool. Shutting it down waits for its own calls, and leaves the pool as it is."""

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
        """Like the built-in ``map``, with all calls started at once. Short calls travel together without being asked
        to, so ``chunksize`` is not needed; with ``timeout`` each call is a future of its own."""
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if timeout is not None:
            return super().map(fn, *iterables, timeout=timeout)
        if self._shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        return self._pool.map(fn, *iterables)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._shut = True
        futures = list(self._futures)
        if cancel_futures:
            for future in futures:
                if not future.running():
                    future.cancel()
        if wait:
            for future in futures:
                if not future.cancelled():
                    future.exception()

    def __repr__(self) -> str:
        return f"<executor of {self._pool.name}>"
