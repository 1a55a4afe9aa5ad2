"""The contract of a journal says what is written, what is read, who may write, and which errors there are.

One test suite runs over all implementations. Only ``JournalError`` leaves a journal, and ``ValueError`` for a bad
argument. Unless its class says otherwise, an error means that nothing was written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable


class JournalError(Exception):
    """What a journal may raise; nothing else escapes it. Its text says what is wrong and what helps."""


class BadEntry(JournalError, ValueError):
    """Data that cannot be kept, such as NaN; the text names the place in it. Nothing of the call was written."""


class Fenced(JournalError):
    """Another controller has taken over; this one must stop. Nothing was written."""


class LeaseLost(JournalError):
    """The lease is another's by now, or was released; this controller must stop."""


class JournalFull(JournalError):
    """There is no room to write. Nothing was written; the same call works when there is room again."""


class JournalBusy(JournalError):
    """Another process kept the journal locked for too long. Nothing was written; try again."""


class JournalUnavailable(JournalError):
    """The database went away, or did not say whether it committed: all of the call was written, or nothing of it.

    ``read(after=...)`` from the last number that the caller knows shows which. The journal reconnects on its own.
    """


class JournalCorrupt(JournalError):
    """What was written cannot be read back."""


class JournalVersion(JournalError):
    """The journal was written by a version of Windlass whose tables this one does not know."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Something to write: an observation or a decision.

    ``kind`` and ``subject`` are text to search by: what sort of thing it is, and the one slice, demand or group that it
    is about. ``data`` is JSON: text, whole and finite numbers, true, false, null, lists, and mappings with text as
    keys. Tuples are read back as lists.
    """

    kind: str
    subject: str
    at: float
    """When it happened, in seconds since 1970 by the clock of the one who writes."""
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Record:
    """An entry as it was kept."""

    seq: int
    """Its number: 1, 2, 3 and so on, in the order of commits, without a gap."""
    epoch: int
    """The epoch of the controller that wrote it; for an operator's order, the one that stood at that moment."""
    kind: str
    subject: str
    at: float
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write, until it expires or another takes it over."""

    holder: str
    epoch: int
    """The fence: goes with every append, and with every changing call to a provider."""
    ttl: float
    expires_at: float
    """By the clock that judges the lease: the caller's, or the database's own."""


@dataclass(frozen=True, slots=True)
class JournalHealth:
    """What a check of a journal shows."""

    location: str
    """Where it is, without a password."""
    size: int
    """Bytes on disk."""
    records: int
    last_seq: int
    oldest_seq: int | None
    oldest_at: float | None
    """When the record with the smallest number happened."""
    schema_version: int
    epoch: int
    holder: str | None
    """Who has the lease; it may have expired."""
    states: int
    """How many saved states can be read."""
    problems: tuple[str, ...]
    """What is wrong, one sentence each; empty when all is well."""

    @property
    def ok(self) -> bool:
        """Whether everything in it can be read and adds up."""
        return not self.problems


@runtime_checkable
class Journal(Protocol):
    """An append-only record in which one controller at a time decides. Every method may be called from any thread."""

    @property
    def own_clock(self) -> bool:
        """Whether the database has a clock that all controllers share: then ``now`` of a lease may be None.

        All controllers of one journal judge its lease by the same kind of clock.
        """
        ...

    @property
    def cluster_id(self) -> str:
        """The random id of the cluster: made with the journal, and the same for as long as the journal lives."""
        ...

    def append(self, entries: Sequence[Entry], *, epoch: int | None) -> int:
        """Write all entries in one transaction and return the number of the last one.

        When it returns, they survive ``kill -9`` and a power cut. Numbers increase by one, also over restarts and a
        change of leader. No entries: the epoch is checked, and the last number returned.

        ``Fenced``: the epoch is not the one that was granted last. A lower one has been overtaken. A higher one was
        never granted here: the journal is an older copy of the one that granted it, and going on would grant it a
        second time. An expired or released lease that was not taken over does not fence: no other can have acted.

        ``epoch`` None is for one who does not lead and only wishes: an operator who freezes a group or drains a slice.
        It is never fenced, and the records carry the epoch that stands. All else is the same: one transaction, the next
        numbers, durable when it returns, beside a leader that appends at the same time. It has no default, for a leader
        that forgot its epoch would write past the fence.
        """
        ...

    def read(
        self,
        after: int = 0,
        *,
        upto: int | None = None,
        kinds: Collection[str] | None = None,
        subject: str | None = None,
        since: float | None = None,
        until: float | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[Record]:
        """Records with ``after < seq <= upto`` and ``since <= at < until``, of these kinds, about this subject.

        By number, upwards or downwards; the first ``limit`` of them. What is committed after the call is not in it.
        Records are fetched as they are asked for, a page at a time, and nothing is locked between pages: a long reading
        does not hold up the writer, and what is compacted meanwhile may be missing from it.

        One subject, one kind or a span of numbers is found by an index, however long the journal is.

        ``JournalCorrupt``: a record is not what was written; the text has its number.
        """
        ...

    def last_seq(self) -> int:
        """The number of the newest record, 0 when there was never one. One row is read: made for polling."""
        ...

    def save_state(self, seq: int, state: Mapping[str, Any], *, epoch: int | None = None) -> None:
        """Keep what follows from all records up to ``seq``, so that a restart need not read them.

        A second state for the same number replaces the first. ``ValueError``: ``seq`` is above ``last_seq()``, or so
        low that records after it are compacted. With an epoch, ``Fenced`` as for ``append``.
        """
        ...

    def latest_state(self, before: float | None = None) -> tuple[int, Mapping[str, Any]] | None:
        """The newest saved state that can be read, and the number that it goes up to; records after it are all there.

        A state that is damaged is passed over for the one before it. None: there is none, and the records are all there
        from the first. ``JournalCorrupt``: there is none that can be read, and not all records are there.

        ``before``: the newest in which nothing is of that instant or later. None then says no more than that there is
        no such state; ``oldest_state`` shows whether any record is missing.
        """
        ...

    def oldest_state(self) -> tuple[int, Mapping[str, Any]] | None:
        """Where the part of the history begins that has no gap: the oldest saved state that can be read and
        after which no record is missing. None: no record is missing at all. ``JournalCorrupt`` as for ``latest_state``.
        """
        ...

    def compact(
        self,
        before: float,
        *,
        keep_kinds: Collection[str] = (),
        keep_subjects: Collection[str] | Callable[[str], bool] = (),
        epoch: int | None = None,
    ) -> int:
        """Delete records with ``at < before`` that neither a restart nor a query for ``before`` or later needs; return
        how many.

        Only what a readable state covers in which nothing is of ``before`` or later: from there on the history is
        complete, and every instant of it can be shown. It must not be the newest state: if that one is found damaged
        later, the one before it still has every record after it. Without such a state, nothing is deleted. Older states
        go as well; the last record that the state covers stays, because it has the time of the state. Records of
        ``keep_kinds`` stay, and those about ``keep_subjects`` (names, or a function that says yes), so that ``why`` can
        show the whole history of what still exists.

        Done in small transactions: a kill in between leaves less to do. With an epoch, ``Fenced`` as for ``append``.
        """
        ...

    def acquire(self, holder: str, ttl: float, now: float | None) -> Lease | None:
        """Take the lease for ``ttl`` seconds; None while another holder's is alive.

        One that has expired, was released, or is the holder's own is taken, and its epoch is one higher than any
        before: a controller that restarts under its old name fences its own past. ``holder`` must be unique to the
        process, or two processes take the lease from each other.

        ``now`` None: the database's clock (``own_clock``). A clock that was set back does not keep a dead holder's
        lease alive: from the time of any call on, it lives for its ``ttl`` at most.
        """
        ...

    def renew(self, lease: Lease, now: float | None) -> Lease:
        """The same lease for another ``ttl`` seconds from ``now``, also when it has expired and was not taken over.

        ``LeaseLost``: it was taken over or released.
        """
        ...

    def release(self, lease: Lease) -> None:
        """Give it back, so that another need not wait for it to expire. Quiet when it is another's by now."""
        ...

    def lease(self) -> Lease | None:
        """The current lease, alive or expired; None if there is no holder."""
        ...

    def health(self) -> JournalHealth:
        """Read and check everything, and report. The time grows with the journal."""
        ...

    def close(self) -> None:
        """Let go of the database. The lease stays as it is; a second call does nothing."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
