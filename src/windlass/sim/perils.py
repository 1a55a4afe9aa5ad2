"""Where a controller may die: before and after every journal write and every outside call.

A controller gets the journal, the providers and the workload in a wrapper that knows its lifeline. When the lifeline is
cut, that call raises, and so does every later one: a dead process does nothing any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import iscoroutinefunction
from typing import Any, Final

from windlass.journal import Entry, Journal, JournalFull, JournalUnavailable

from .faults import Storm

OUTSIDE: Final = ("launch", "terminate", "list", "observe", "cordon", "uncordon", "drain", "forget")
WRITES: Final = ("save_state", "acquire", "renew")
CALLS: Final = frozenset({*OUTSIDE, *WRITES})


class Killed(BaseException):
    """The controller dies here, as with ``kill -9``."""


class Lifeline:
    """Whether a controller lives, and the points at which it may not any more."""

    def __init__(self, storm: Callable[[], Storm], now: Callable[[], float], number: int) -> None:
        self._storm, self._now, self._number = storm, now, number
        self._points = 0
        self.dead = False

    def point(self, name: str) -> None:
        if not self.dead:
            self._points += 1
            self.dead = self._storm().strikes("killed", self._now(), self._number, self._points) is not None
        if self.dead:
            raise Killed(name)


class Perilous:
    """A provider, a workload or a journal as a mortal controller sees it."""

    def __init__(self, inner: Any, lifeline: Lifeline) -> None:
        self._inner, self._lifeline = inner, lifeline

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in CALLS:
            return method
        lifeline = self._lifeline
        if iscoroutinefunction(method):

            async def call(*args: Any, **more: Any) -> Any:
                lifeline.point(f"before {name}")
                result = await method(*args, **more)
                lifeline.point(f"after {name}")
                return result

            return call

        def write(*args: Any, **more: Any) -> Any:
            lifeline.point(f"before {name}")
            result = method(*args, **more)
            lifeline.point(f"after {name}")
            return result

        return write


class PerilousJournal(Perilous):
    """A journal that may also be full, or lose its answer."""

    def __init__(
        self, inner: Journal, lifeline: Lifeline, storm: Callable[[], Storm], now: Callable[[], float]
    ) -> None:
        super().__init__(inner, lifeline)
        self._storm, self._now = storm, now
        self._writes = 0
        self.full_until = 0.0

    def append(self, entries: Sequence[Entry], *, epoch: int | None) -> int:
        self._lifeline.point("before append")
        now = self._now()
        if now < self.full_until:
            raise JournalFull("there is no room on the disk")
        self._writes += 1
        lost = self._storm().strikes("journal-lost", now, epoch, self._writes)
        if lost and self._storm().chance.happens(0.5, "journal-lost", "before", epoch, self._writes):
            raise JournalUnavailable("the database went away before it was written")
        last: int = self._inner.append(entries, epoch=epoch)
        if lost:
            raise JournalUnavailable("the database went away after it was written")
        self._lifeline.point("after append")
        return last

    def release(self, lease: Any) -> None:
        self._lifeline.point("before release")
        self._inner.release(lease)
