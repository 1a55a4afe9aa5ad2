"""This module kills a controller before, during or after a journal write, or before or after an outside
call. A controller gets the journal, the providers and the workload in wrappers that share a ``Lifeline``. Once it is
cut, that call and every later one raises: a dead process does nothing. Programs and journals have versions too: an
older program may read newer tables, but not write them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, overload

from windlass.journal import Entry, Journal, JournalFull, JournalUnavailable, JournalVersion, Lease

from .catalogue import FaultSet

OUTSIDE: Final = ("launch", "terminate", "list", "observe", "cordon", "uncordon", "drain", "forget")
WRITES: Final = ("save_state", "acquire", "renew")
CALLS: Final = frozenset({*OUTSIDE, *WRITES})
MORTAL: Final = frozenset({"killed", "torn-record", "older-version"})
"""Faults that kill a controller."""
WRAPPED: Final = MORTAL | {"overtaken"}
"""Faults for which the calls of a controller are wrapped."""
CHANGES: Final = ("launch", "terminate")
"""Calls that a provider refuses to a controller that another one has overtaken."""


class Killed(BaseException):
    """The controller was killed here, as with ``kill -9``."""


class Lifeline:
    """Whether a controller lives, and the points at which it may be killed."""

    def __init__(self, fault_set: Callable[[], FaultSet], now: Callable[[], float], number: int) -> None:
        self._fault_set, self._now, self._number = fault_set, now, number
        self._points = 0
        self.dead = False
        self._resumed: asyncio.Event | None = None
        self.held_up = False
        """Whether a call waits for ``resume``."""

    def hold_up(self) -> None:
        """Hold up calls that change machines, before they arrive at their provider, until ``resume``."""
        self._resumed = asyncio.Event()

    def resume(self) -> None:
        if self._resumed is not None:
            self._resumed.set()
        self._resumed, self.held_up = None, False

    async def passage(self) -> None:
        """Wait while calls are held up."""
        if self._resumed is not None:
            self.held_up = True
            await self._resumed.wait()

    def point(self, name: str) -> None:
        if not self.dead:
            self._points += 1
            fault_set = self._fault_set()
            if "killed" in fault_set.by_kind:
                self.dead = fault_set.occurs("killed", self._now(), self._number, self._points) is not None
        if self.dead:
            raise Killed(name)


class CrashingCalls:
    """A wrapper of a provider, a workload or a journal with crash points."""

    def __init__(self, inner: Any, lifeline: Lifeline) -> None:
        self._inner, self._lifeline = inner, lifeline

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in CALLS:
            return method
        lifeline = self._lifeline
        if name in OUTSIDE:

            async def call(*args: Any, **more: Any) -> Any:
                if name in CHANGES:
                    await lifeline.passage()
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


@dataclass
class CallLog:
    """The true state of the journal that the controllers share."""

    version: int = 1
    """Version of its tables: that of the newest program that has opened it."""
    whole: int = 0
    """The number of the last record that must exist."""
    lease_ends: dict[int, float] = field(default_factory=dict)
    """When the lease of each epoch expires, by the true time of its last grant or renewal."""
    late: list[str] = field(default_factory=list)
    """Writes and calls after the end of their lease, and after a provider has refused its epoch."""

    def check_lease(self, what: str, epoch: int | None, now: float) -> None:
        """Record a write or a provider call that comes after the end of its lease."""
        if epoch is not None and now > (end := self.lease_ends.get(epoch, inf)):
            self.late.append(f"{what} under epoch {epoch}, {now - end:.0f} s after the end of its lease")


class Torn(Sequence[Entry]):
    """Kills the controller during a write, after the first few entries."""

    def __init__(self, entries: Sequence[Entry], whole: int) -> None:
        self.all, self._whole = entries, whole

    def __iter__(self) -> Iterator[Entry]:
        yield from self.all[: self._whole]
        raise Killed("in the middle of append")

    def __len__(self) -> int:
        return len(self.all)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | Sequence[Entry]:
        return self.all[index]


class CrashingJournal(CrashingCalls):
    """A journal that may also be full, lose its answer, or have a newer version than the program that uses it."""

    def __init__(
        self,
        inner: Journal,
        lifeline: Lifeline,
        fault_set: Callable[[], FaultSet],
        now: Callable[[], float],
        log: CallLog,
        version: int,
    ) -> None:
        super().__init__(inner, lifeline)
        self._fault_set, self._now, self._log = fault_set, now, log
        self._writes = 0
        self.full_until = 0.0
        self.refused_by = ""
        """The provider that refused a call of an earlier pass, because it knows a newer controller."""
        self.version = version
        self.cluster_id = ""  # never the random id of a file: a run depends on its seed alone

    def __getattr__(self, name: str) -> Any:
        if name in WRITES:
            self._check_version()
        return super().__getattr__(name)

    def _check_version(self) -> None:
        if self._log.version > self.version:
            raise JournalVersion(f"the tables have version {self._log.version}, this program knows {self.version}")

    def append(self, entries: Sequence[Entry], *, epoch: int | None) -> int:
        self._lifeline.point("before append")
        self._check_version()
        now = self._now()
        if now < self.full_until:
            raise JournalFull("there is no room on the disk")
        self._log.check_lease("a write to the journal", epoch, now)
        if self.refused_by and entries:
            self._log.late.append(f"a write to the journal under epoch {epoch}, which {self.refused_by} has refused")
        self._writes += 1
        fault_set, lost = self._fault_set(), None
        if fault_set.faults:
            if entries and fault_set.occurs("torn-record", now, epoch, self._writes):
                self._lifeline.dead = True
                entries = Torn(entries, fault_set.chance.pick(len(entries), "torn-record", epoch, self._writes))
            lost = fault_set.occurs("journal-lost", now, epoch, self._writes)
        if lost and fault_set.chance.happens(0.5, "journal-lost", "before", epoch, self._writes):
            raise JournalUnavailable("the database went away before it was written")
        last: int = self._inner.append(entries, epoch=epoch)
        self._log.whole = last
        if lost:
            raise JournalUnavailable("the database went away after it was written")
        self._lifeline.point("after append")
        return last

    def acquire(self, holder: str, ttl: float, now: float | None) -> Lease | None:
        lease: Lease | None = self.__getattr__("acquire")(holder, ttl, now)
        return None if lease is None else self._granted(lease)

    def renew(self, lease: Lease, now: float | None) -> Lease:
        return self._granted(self.__getattr__("renew")(lease, now))

    def _granted(self, lease: Lease) -> Lease:
        self._log.lease_ends[lease.epoch] = self._now() + lease.ttl
        return lease

    def release(self, lease: Any) -> None:
        self._lifeline.point("before release")
        self._check_version()
        self._inner.release(lease)
