"""What is the same in every database: numbering, fencing, the lease, saved states and compaction, in plain SQL.

Three tables. ``windlass_journal`` has one row: the version of the tables, the last number given, up to which number
records may have been deleted, and the lease. Every writing transaction starts by locking that row. So writers follow
each other, numbers have no gap and become visible in their order, and an epoch cannot be overtaken between the check
and the commit. ``windlass_records`` has the records, ``windlass_states`` the saved states.

The statements use ``?`` for values; a database that wants another sign replaces it.
"""

from __future__ import annotations

import heapq
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Any, ClassVar, Final, Protocol, Self

from .encoding import (
    check_holder,
    check_text,
    checksum,
    decode_record,
    decode_state,
    digest,
    encode,
    encode_entry,
    finite,
)
from .protocol import (
    Entry,
    Fenced,
    JournalCorrupt,
    JournalError,
    JournalHealth,
    JournalVersion,
    Lease,
    LeaseLost,
    Record,
)

PAGE: Final = 1000
"""Records fetched or deleted at a time: the lock is held for some milliseconds."""

COLUMNS: Final = "seq, epoch, kind, subject, at, data, checksum"

Migration = tuple[str, ...]
"""The statements that bring the tables from one version to the next."""


class Session(Protocol):
    """A transaction under way."""

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run a statement; its rows, none if it gives none."""
        ...

    def each(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement once for each row of values."""
        ...


@dataclass(frozen=True, slots=True)
class Head:
    """The one row."""

    schema_version: int
    last_seq: int
    compacted_to: int
    """Records up to here may have been deleted: a state below it is of no use."""
    epoch: int
    holder: str | None
    ttl: float
    expires_at: float

    @property
    def lease(self) -> Lease | None:
        return None if self.holder is None else Lease(self.holder, self.epoch, self.ttl, self.expires_at)


class SqlJournal(ABC):
    """A journal, but for how its database connects, commits and fails."""

    own_clock: bool = False
    locking: ClassVar[str] = ""
    """What a SELECT needs at its end to lock the row that it reads."""

    def __init__(self, location: str, migrations: tuple[Migration, ...]) -> None:
        self.location = location
        self._migrations = migrations
        self._lock = threading.RLock()

    # What a database must provide.

    @abstractmethod
    def _transaction(self, *, write: bool) -> AbstractContextManager[Session]:
        """All or nothing, for one thread at a time; durable when a writing one ends. Errors leave as ``JournalError``.

        A writing one has locked out other writers, or does so with ``locking``. A reading one sees one instant.
        """

    @abstractmethod
    def _found_version(self, session: Session) -> int | None:
        """The version of the tables that are there; None when there are none of ours."""

    @abstractmethod
    def _size(self) -> int:
        """Bytes on disk."""

    @abstractmethod
    def _integrity(self) -> tuple[str, ...]:
        """What the database itself finds wrong."""

    @abstractmethod
    def close(self) -> None: ...

    def _database_time(self, session: Session) -> float:  # noqa: ARG002
        raise ValueError(f"the journal {self.location} has no clock that all controllers share: pass now")

    def _alone(self) -> AbstractContextManager[None]:
        """Around the transaction that makes or migrates tables, where a writing one does not lock out all others."""
        return nullcontext()

    def _give_back_space(self) -> None:
        """Called after a compaction, outside any transaction."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Tables.

    @property
    def schema_version(self) -> int:
        return len(self._migrations)

    def _bring_up_to_date(self, *, create: bool) -> None:
        """Make or migrate the tables, all in one transaction; refuse newer ones."""
        with self._transaction(write=False) as session:
            found = self._found_version(session)
        if found == self.schema_version:
            return
        if found is None and not create:
            raise JournalError(
                f"there is no journal at {self.location}. Check the address, or start a controller with it."
            )
        with self._alone(), self._transaction(write=True) as session:
            # Another controller may have done it between the two looks.
            found = self._found_version(session) or 0
            self._refuse_newer(found)
            for statements in self._migrations[found:]:
                for statement in statements:
                    session.rows(statement)
            session.rows("UPDATE windlass_journal SET schema_version = ?", (self.schema_version,))

    def _refuse_newer(self, found: int) -> None:
        if found > self.schema_version:
            raise JournalVersion(
                f"the journal {self.location} has version {found} of the tables, and this Windlass knows version "
                f"{self.schema_version}: a newer Windlass has written it. Install that one again, "
                "or give this one a journal of its own."
            )

    # The head.

    def _read_head(self, session: Session, *, lock: bool) -> Head:
        rows = session.rows(
            "SELECT schema_version, last_seq, compacted_to, epoch, holder, ttl, expires_at FROM windlass_journal"
            + (self.locking if lock else "")
        )
        if len(rows) != 1:
            raise JournalCorrupt(f"the journal {self.location} has lost its head. Restore it from a backup.")
        return Head(*rows[0])

    @contextmanager
    def _writing(self) -> Iterator[tuple[Session, Head]]:
        """A transaction that nobody else can write beside, in tables of our version."""
        with self._transaction(write=True) as session:
            head = self._read_head(session, lock=True)
            self._refuse_newer(head.schema_version)  # migrated by another process while we had it open
            yield session, head

    def _fence(self, head: Head, epoch: int) -> None:
        if epoch < head.epoch:
            raise Fenced(
                f"epoch {epoch} was overtaken: the journal {self.location} is at epoch {head.epoch}"
                + (f", held by {head.holder}" if head.holder else "")
                + ". This controller must stop; start it again to follow the leader."
            )
        if epoch > head.epoch:
            raise Fenced(
                f"epoch {epoch} was never granted by the journal {self.location}, which is at epoch {head.epoch}: "
                "it is an older copy, or another journal, than the one that granted it. Acquire the lease again."
            )

    # Records.

    def append(self, entries: Sequence[Entry], *, epoch: int) -> int:
        encoded = [encode_entry(entry, index) for index, entry in enumerate(entries)]
        with self._writing() as (session, head):
            self._fence(head, epoch)
            if not encoded:
                return head.last_seq
            session.each(
                f"INSERT INTO windlass_records ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(seq, epoch, *row, checksum(seq, epoch, *row)) for seq, row in enumerate(encoded, head.last_seq + 1)],
            )
            last = head.last_seq + len(encoded)
            session.rows("UPDATE windlass_journal SET last_seq = ?", (last,))
        return last

    def last_seq(self) -> int:
        with self._transaction(write=False) as session:
            return self._read_head(session, lock=False).last_seq

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
        if limit is not None and limit < 0:
            raise ValueError(f"limit is {limit}: give 0 or more")
        if isinstance(kinds, str):
            raise ValueError(f"kinds is the text {kinds!r}: give a list, [{kinds!r}]")
        for text in (subject or "", *(kinds or ())):
            check_text(text, "what to look for")
        if since != since or until != until:
            raise ValueError("since and until must be numbers, and not NaN")
        with self._transaction(write=False) as session:
            low, high = max(after, 0), self._read_head(session, lock=False).last_seq
            if since is not None and subject is None:
                # The records of a span of time lie together, but for clocks that jumped: the index on time finds
                # their first and last number, and the pages go through those in order. "+ 0" keeps the database from
                # walking up the numbers instead until the time fits.
                clause, values = _conditions(since=since, until=until)
                [(first, last)] = session.rows(
                    f"SELECT MIN(seq + 0), MAX(seq + 0) FROM windlass_records WHERE {clause}", values
                )
                low, high = (max(low, first - 1), min(high, last)) if first is not None else (0, 0)
        if upto is not None:
            high = min(high, upto)

        def pages(**columns: Any) -> Iterator[Record]:
            clause, values = _conditions(since=since, until=until, **columns)
            return self._pages(low, high, clause, values, limit, newest_first)

        found: Iterator[Record]
        if kinds is None or subject is not None:
            found = pages(subject=subject, kinds=kinds)
        else:
            # Each kind by its index, and merged: one query for several would sort all that is left for every page.
            parts = [pages(kinds=(kind,)) for kind in sorted(set(kinds))]
            found = heapq.merge(*parts, key=lambda record: record.seq, reverse=newest_first)
        return islice(found, limit)

    def _pages(
        self, low: int, high: int, clause: str, values: list[Any], limit: int | None, newest_first: bool
    ) -> Iterator[Record]:
        left, order = limit, "DESC" if newest_first else "ASC"
        while low < high and left != 0:
            size = PAGE if left is None else min(PAGE, left)
            with self._transaction(write=False) as session:
                rows = session.rows(
                    f"SELECT {COLUMNS} FROM windlass_records"
                    f" WHERE seq > ? AND seq <= ? AND {clause} ORDER BY seq {order} LIMIT ?",
                    (low, high, *values, size),
                )
            for row in rows:
                yield decode_record(row, self.location)
            if len(rows) < size:
                return
            left = None if left is None else left - size
            if newest_first:
                high = rows[-1][0] - 1
            else:
                low = rows[-1][0]

    # Saved states.

    def save_state(self, seq: int, state: Mapping[str, Any], *, epoch: int | None = None) -> None:
        text = encode(state, "state")
        with self._writing() as (session, head):
            if epoch is not None:
                self._fence(head, epoch)
            if not head.compacted_to <= seq <= head.last_seq:
                raise ValueError(
                    f"a state up to record {seq} cannot be saved: the journal {self.location} has records "
                    f"{head.compacted_to + 1} to {head.last_seq}"
                )
            session.rows("DELETE FROM windlass_states WHERE seq = ?", (seq,))
            session.rows(
                "INSERT INTO windlass_states (seq, digest, state) VALUES (?, ?, ?)", (seq, digest(seq, text), text)
            )

    def latest_state(self) -> tuple[int, Mapping[str, Any]] | None:
        with self._transaction(write=False) as session:
            head = self._read_head(session, lock=False)
            newest = next(self._readable_states(session, head), None)
        if newest is None and head.compacted_to:
            raise JournalCorrupt(
                f"no saved state of the journal {self.location} can be read, and the records up to {head.compacted_to} "
                "are compacted. Restore the journal from a backup; or move it away and start with a new one, which "
                "adopts what the provider shows."
            )
        return newest

    def _readable_states(self, session: Session, head: Head) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """The newest first. One at a time, for a state can be large."""
        below = head.last_seq + 1
        while found := session.rows(
            "SELECT seq, digest, state FROM windlass_states WHERE seq < ? AND seq >= ? ORDER BY seq DESC LIMIT 1",
            (below, head.compacted_to),
        ):
            [(below, expected, text)] = found
            state = decode_state(below, text, expected)
            if state is not None:
                yield below, state

    def compact(
        self,
        before: float,
        *,
        keep_kinds: Collection[str] = (),
        keep_subjects: Collection[str] | Callable[[str], bool] = (),
        epoch: int | None = None,
    ) -> int:
        limit = finite(before, "before")
        if isinstance(keep_kinds, str) or isinstance(keep_subjects, str):
            raise ValueError("keep_kinds and keep_subjects are lists: put the one name into a list")
        kept = keep_subjects if callable(keep_subjects) else frozenset(keep_subjects).__contains__
        clause, values = "at < ?", [limit, *keep_kinds]
        if keep_kinds:
            clause += f" AND kind NOT IN ({', '.join('?' * len(keep_kinds))})"
        with self._writing() as (session, head):
            if epoch is not None:
                self._fence(head, epoch)
            covering = [seq for seq, _ in islice(self._readable_states(session, head), 2)]
            if len(covering) < 2:
                return 0
            covered = covering[1]
            # The states below are of no use from here on, even when the kill comes before the first record is deleted.
            session.rows("DELETE FROM windlass_states WHERE seq < ?", (covered,))
            session.rows("UPDATE windlass_journal SET compacted_to = ?", (covered,))
        deleted, done = 0, 0
        while True:
            with self._writing() as (session, head):
                if epoch is not None:
                    self._fence(head, epoch)
                rows = session.rows(
                    "SELECT seq, subject FROM windlass_records"
                    f" WHERE seq > ? AND seq <= ? AND {clause} ORDER BY seq LIMIT ?",
                    (done, covered, *values, PAGE),
                )
                doomed = [(seq,) for seq, subject in rows if not kept(subject)]
                if doomed:
                    session.each("DELETE FROM windlass_records WHERE seq = ?", doomed)
            deleted += len(doomed)
            if len(rows) < PAGE:
                break
            done = rows[-1][0]
        if deleted:
            self._give_back_space()
        return deleted

    # The lease.

    def acquire(self, holder: str, ttl: float, now: float | None) -> Lease | None:
        check_holder(holder)
        length = _positive(ttl)
        with self._writing() as (session, head):
            time = self._time(session, now)
            if head.holder not in (None, holder) and time < head.expires_at:
                if head.expires_at > time + head.ttl:
                    # Nobody is granted more than a ttl: the clock was set back. From now on it counts by the new one.
                    session.rows("UPDATE windlass_journal SET expires_at = ?", (time + head.ttl,))
                return None
            lease = Lease(holder, head.epoch + 1, length, time + length)
            self._store(session, lease)
        return lease

    def renew(self, lease: Lease, now: float | None) -> Lease:
        with self._writing() as (session, head):
            if (head.epoch, head.holder) != (lease.epoch, lease.holder):
                raise LeaseLost(
                    f"{lease.holder} has lost its lease (epoch {lease.epoch}) on the journal {self.location}: it is at "
                    f"epoch {head.epoch}, " + (f"held by {head.holder}" if head.holder else "and was released")
                )
            renewed = Lease(lease.holder, lease.epoch, lease.ttl, self._time(session, now) + lease.ttl)
            self._store(session, renewed)
        return renewed

    def release(self, lease: Lease) -> None:
        with self._writing() as (session, head):
            if (head.epoch, head.holder) == (lease.epoch, lease.holder):
                session.rows("UPDATE windlass_journal SET holder = NULL")

    def lease(self) -> Lease | None:
        with self._transaction(write=False) as session:
            return self._read_head(session, lock=False).lease

    def _store(self, session: Session, lease: Lease) -> None:
        session.rows(
            "UPDATE windlass_journal SET epoch = ?, holder = ?, ttl = ?, expires_at = ?",
            (lease.epoch, lease.holder, lease.ttl, lease.expires_at),
        )

    def _time(self, session: Session, now: float | None) -> float:
        """Asked for after the lock was had: the wait for it is not part of the lease."""
        return self._database_time(session) if now is None else finite(now, "now")

    # Health.

    def health(self) -> JournalHealth:
        problems: list[str] = []
        try:
            problems += self._integrity()
        except JournalCorrupt as error:
            problems.append(str(error))
        with self._transaction(write=False) as session:
            head = self._read_head(session, lock=False)
            [(stored,)] = session.rows("SELECT COUNT(*) FROM windlass_states")
            states = sum(1 for _ in self._readable_states(session, head))
        records, oldest, previous, gaps = 0, None, 0, []
        try:
            for row in self._raw_rows(head.last_seq):
                try:
                    record = decode_record(row, self.location)
                    oldest = oldest or record
                except JournalCorrupt as error:
                    problems.append(str(error))
                if row[0] > previous + 1:
                    gaps.append(row[0])
                records, previous = records + 1, row[0]
            if previous < head.last_seq:
                gaps.append(head.last_seq + 1)
        except JournalCorrupt as error:  # the table itself cannot be read any further
            problems.append(str(error))
        with self._transaction(write=False) as session:
            # A compaction may have gone on meanwhile.
            compacted_to = self._read_head(session, lock=False).compacted_to
        problems += [f"records are missing before {seq}" for seq in gaps if seq > compacted_to + 1]
        if stored > states:
            problems.append(f"{stored - states} of {stored} saved states cannot be read")
        if compacted_to and not states:
            problems.append("no saved state can be read, and old records are compacted: a restart is not possible")
        return JournalHealth(
            location=self.location,
            size=self._size(),
            records=records,
            last_seq=head.last_seq,
            oldest_seq=oldest.seq if oldest else None,
            oldest_at=oldest.at if oldest else None,
            schema_version=head.schema_version,
            epoch=head.epoch,
            holder=head.holder,
            states=states,
            problems=tuple(problems),
        )

    def _raw_rows(self, high: int) -> Iterator[Any]:
        low = 0
        while True:
            with self._transaction(write=False) as session:
                rows = session.rows(
                    f"SELECT {COLUMNS} FROM windlass_records WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
                    (low, high, PAGE),
                )
            yield from rows
            if len(rows) < PAGE:
                return
            low = rows[-1][0]


def _conditions(
    *,
    since: float | None = None,
    until: float | None = None,
    subject: str | None = None,
    kinds: Collection[str] | None = None,
) -> tuple[str, list[Any]]:
    """A clause for WHERE and its values."""
    clauses, values = ["1 = 1"], []
    for clause, value in (("at >= ?", since), ("at < ?", until), ("subject = ?", subject)):
        if value is not None:
            clauses.append(clause)
            values.append(value)
    if kinds is not None:
        clauses.append(f"kind IN ({', '.join('?' * len(kinds))})" if kinds else "1 = 0")
        values += kinds
    return " AND ".join(clauses), values


def _positive(ttl: float) -> float:
    length = finite(ttl, "ttl")
    if length <= 0:
        raise ValueError(f"ttl is {ttl}: give more than 0 seconds")
    return length
