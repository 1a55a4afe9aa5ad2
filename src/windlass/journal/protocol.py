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
    """The base of every error of a journal. The message says what is wrong and how to fix it."""


class BadEntry(JournalError, ValueError):
    """Data cannot be stored, such as NaN; the message has its path. Nothing was written."""


class Fenced(JournalError):
    """Another controller has taken over; this one must stop. Nothing was written."""


class LeaseLost(JournalError):
    """Another controller has the lease, or it was released; this controller must stop."""


class JournalFull(JournalError):
    """The disk is full. Nothing was written; the same call works when there is space again."""


class JournalBusy(JournalError):
    """Another process kept the journal locked for too long. Nothing was written; try again."""


class JournalUnavailable(JournalError):
    """The connection was lost, or the commit was not confirmed: all of the call was written, or nothing.

    ``read(after=...)`` from the last number that the caller knows shows which. The journal reconnects on its own.
    """


class JournalCorrupt(JournalError):
    """A record or checkpoint cannot be read back."""


class JournalVersion(JournalError):
    """The journal was written by a version of Windlass whose tables this one does not know."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An observation or a decision to write.

    ``kind`` and ``subject`` are text to search by: what sort of thing it is, and the one slice, demand or group that it
    is about. ``data`` is JSON: text, whole and finite numbers, true, false, null, lists, and mappings with text as
    keys. Tuples are read back as lists.
    """

    kind: str
    subject: str
    at: float
    """When it happened, in seconds since 1970 by the writer's clock."""
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Record:
    """An entry as it was stored."""

    seq: int
    """Its number: 1, 2, 3 and so on, in the order of commits, without a gap."""
    epoch: int
    """The epoch of the controller that wrote it; for an operator's order, the current one."""
    kind: str
    subject: str
    at: float
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write, until it expires or another controller takes it over."""

    holder: str
    epoch: int
    """The fencing epoch. Every append and every changing call to a provider carries it."""
    ttl: float
    expires_at: float
    """Expiry by the clock of the lease: the caller's, or the database's own."""


@dataclass(frozen=True, slots=True)
class JournalHealth:
    """The result of a health check."""

    location: str
    """Where it is, without a password."""
    size: int
    """Bytes on disk."""
    records: int
    last_seq: int
    oldest_seq: int | None
    oldest_at: float | None
    """Time of the record with the smallest number."""
    schema_version: int
    epoch: int
    holder: str | None
    """The holder of the lease; it may have expired."""
    states: int
    """Number of readable checkpoints."""
    problems: tuple[str, ...]
    """Problems, one sentence each; empty when there are none."""

    @property
    def ok(self) -> bool:
        """Whether the whole journal is readable and consistent."""
        return not self.problems


@runtime_checkable
class Journal(Protocol):
    """An append-only record that one controller at a time may write. Every method may be called from any thread."""

    @property
    def own_clock(self) -> bool:
        """Whether the database has a clock that all controllers share: then ``now`` of a lease may be None. All
        controllers of one journal must use the same kind of clock for its lease.
        """
        ...

    @property
    def cluster_id(self) -> str:
        """The random id of the cluster, created with the journal and never changed."""
        ...

    def append(self, entries: Sequence[Entry], *, epoch: int | None) -> int:
        """Write all entries in one transaction and return the number of the last one.

        When it returns, they survive ``kill -9`` and a power cut. Numbers increase by one, also over restarts and a
        change of leader. No entries: the epoch is checked, and the last number returned.

        ``Fenced``: the epoch is not the one that was granted last. A lower one is outdated. A higher one was never
        granted here: this journal is an older copy of the one that granted it, and would grant it a second time. An
        expired or released lease that was not taken over does not fence: no other controller can have acted.

        ``epoch`` None is for orders of operators, who freeze a group or drain a slice and do not lead. They are never
        fenced, and their records carry the current epoch. All else is the same: one transaction, the next numbers,
        durable when it returns, also while a leader appends. It has no default, because a leader that forgot its epoch
        would bypass the fence.
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

        Ordered by number, upwards or downwards; the first ``limit`` of them. Records committed after the call are not
        included. Records are fetched lazily, a page at a time, and nothing is locked between pages: a long read does
        not block the writer, and records that are compacted meanwhile may be missing.

        One subject, one kind or a span of numbers is found by an index, however long the journal is.

        ``JournalCorrupt``: a record is not what was written; the text has its number.
        """
        ...

    def last_seq(self) -> int:
        """Return the number of the newest record, 0 when there was never one. Reads one row: cheap to poll."""
        ...

    def save_state(self, seq: int, state: Mapping[str, Any], *, epoch: int | None = None) -> None:
        """Save a checkpoint: the state after all records up to ``seq``, so that a restart need not read them.

        A second state for the same number replaces the first. ``ValueError``: ``seq`` is above ``last_seq()``, or so
        low that records after it are compacted. With an epoch, ``Fenced`` as for ``append``.
        """
        ...

    def latest_state(self, before: float | None = None) -> tuple[int, Mapping[str, Any]] | None:
        """Return the newest readable checkpoint and its number; all records after it exist.

        A damaged checkpoint is skipped for the one before it. None: there is none, and all records exist from the
        first. ``JournalCorrupt``: none can be read, and records are missing.

        ``before``: the newest one with only records from before that time. None then only means that there is no such
        checkpoint; ``oldest_state`` shows whether records are missing.
        """
        ...

    def oldest_state(self) -> tuple[int, Mapping[str, Any]] | None:
        """Return the start of the history without gaps: the oldest readable checkpoint after which no record is
        missing. None: no record is missing at all. ``JournalCorrupt`` as for ``latest_state``.
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

        Only records covered by a readable checkpoint from before ``before`` are deleted: from there on the history is
        complete. It must not be the newest state: if that one is found damaged later, the one before it still has every
        record after it. Without such a state, nothing is deleted. Older states go as well; the last record that the
        state covers stays, because it has the time of the state. Records of ``keep_kinds`` stay, and those about
        ``keep_subjects`` (names, or a predicate), so that ``why`` can show the whole history of existing slices. Runs
        in small transactions: after a kill the next call continues. With an epoch, ``Fenced`` as for ``append``.
        """
        ...

    def acquire(self, holder: str, ttl: float, now: float | None) -> Lease | None:
        """Take the lease for ``ttl`` seconds; None while another holder's is alive.

        A lease that has expired, was released, or is the holder's own is taken, with an epoch one higher than any
        before: a controller that restarts under its old name fences its former self. ``holder`` must be unique to the
        process, or two processes take the lease from each other.

        ``now`` None: the database's clock (``own_clock``). A clock that was set back does not extend a dead holder's
        lease: after any call it lasts for at most its ``ttl``.
        """
        ...

    def renew(self, lease: Lease, now: float | None) -> Lease:
        """Renew the lease for another ``ttl`` seconds from ``now``, also when it has expired and was not taken over.

        ``LeaseLost``: it was taken over or released.
        """
        ...

    def release(self, lease: Lease) -> None:
        """Release the lease, so that another controller need not wait for it to expire. Does nothing if another
        controller has it.
        """
        ...

    def lease(self) -> Lease | None:
        """Return the current lease, valid or expired; None if there is no holder."""
        ...

    def health(self) -> JournalHealth:
        """Read and check the whole journal. The time grows with its size."""
        ...

    def close(self) -> None:
        """Close the database. The lease stays as it is; a second call does nothing."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
