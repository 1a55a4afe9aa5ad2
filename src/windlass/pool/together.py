"""One future for many tasks."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import cached_property
from typing import Any

from windlass.workloads.pool.tasks import Task as BookTask

from .errors import BadPool
from .tickets import Started, TaskFuture


class AllFuture(Future[Any]):
    """The values of many tasks at once. It is done when all are, or when the first of them has failed; the others are
    cancelled then."""

    def __init__(self, make: Callable[[list[Any]], Any]) -> None:
        """``make``: what the list of values becomes."""
        super().__init__()
        self._make, self._left = make, 0
        self._failed: int | None = None
        """The first that failed: those that were cancelled for it have exceptions of their own by and by."""
        self.started: Started
        self.set_running_or_notify_cancel()

    def begin(self, started: Started, count: int) -> None:
        """These are the tasks."""
        self.started, self._left = started, count
        if not count:
            self._end(whole=True)

    def arrived(self, position: int) -> None:
        """One of them has an answer. On the pool's thread."""
        self._left -= 1
        if self.done():
            return
        if self.started.collection.failed(position):
            self._failed = position
        if not self._left or self._failed is not None:
            self._end(whole=not self._left)

    def _end(self, *, whole: bool) -> None:
        self.started.ended(whole)
        self.set_result(None)

    def cancel(self) -> bool:
        """End all of them; True unless they are over already."""
        if self.done():
            return False
        self.started.ended(False)
        return True

    @cached_property
    def _outcome(self) -> tuple[Any, BaseException | None]:
        try:
            if self._failed is not None:
                self.started.value(self._failed, return_exceptions=False)
            return self._make(self.started.values(return_exceptions=False)), None
        except BaseException as error:  # noqa: BLE001  # raised by ``result``, each time that it is asked for
            return None, error

    def result(self, timeout: float | None = None) -> Any:
        super().result(timeout)
        value, error = self._outcome
        if error is not None:
            raise error
        return value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        super().exception(timeout)
        return self._outcome[1]


def tasks_of(future: Future[Any]) -> list[BookTask]:
    """What a future of a pool stands for."""
    if isinstance(future, AllFuture):
        return list(future.started.tasks)
    if isinstance(future, TaskFuture):
        return future.tasks
    raise BadPool(f"{future!r} is no future of a pool; give what task > pool gave")
