"""This module defines the tables of a journal, the check of the epoch, and what a database must provide, in plain SQL.

There are three tables. ``windlass_journal`` has one row: the schema version, the last number given, up to which number
records may have been deleted, and the lease. Every writing transaction starts by locking that row, so writers are
serialised, numbers have no gaps and become visible in order, and an epoch cannot be overtaken between check and commit.
``windlass_records`` has the records, ``windlass_states`` the checkpoints.

Statements use ``?`` for values; a database with another placeholder replaces it.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, Final, Protocol, Self

from windlass.journal.protocol import Fenced, JournalCorrupt, JournalError, JournalVersion, Lease

PAGE: Final = 1000
"""Records fetched or deleted at a time: the lock is held for some milliseconds."""

CLOSE_WITHIN: Final = 0.5
"""Seconds that closing waits for a call in another thread."""

COLUMNS: Final = "seq, epoch, kind, subject, at, data, checksum"

Migration = tuple[str, ...]
"""The statements that bring the tables from one version to the next."""


class DatabaseSession(Protocol):
    """A transaction under way."""

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run a statement and return its rows."""
        ...

    def each(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement once for each row of values."""
        ...


@dataclass(frozen=True, slots=True)
class Head:
    """The single row of ``windlass_journal``."""

    schema_version: int
    last_seq: int
    compacted_to: int
    """Records up to here may have been deleted, so a checkpoint below it is useless."""
    epoch: int
    holder: str | None
    ttl: float
    expires_at: float

    @property
    def lease(self) -> Lease | None:
        return None if self.holder is None else Lease(self.holder, self.epoch, self.ttl, self.expires_at)


class SqlTables(ABC):
    """The tables of a journal, without the connection, commit and error handling of a database."""

    own_clock: bool = False
    locking: ClassVar[str] = ""
    """The suffix of a SELECT that locks the row it reads."""

    def __init__(self, location: str, migrations: tuple[Migration, ...]) -> None:
        self.location = location
        self._migrations = migrations
        self._lock = threading.RLock()
        self._cluster_id: str | None = None

    # What a database must provide.

    @abstractmethod
    def _transaction(self, *, write: bool) -> AbstractContextManager[DatabaseSession]:
        """A context for one atomic transaction, for one thread at a time; a write is durable when it ends. Errors are
        raised as ``JournalError``. A write excludes other writers, at the start or with ``locking``. A read sees one
        instant.
        """

    @abstractmethod
    def _found_version(self, session: DatabaseSession) -> int | None:
        """Return the version of the existing tables; None when there are none."""

    @abstractmethod
    def _size(self) -> int:
        """Return the size on disk, in bytes."""

    @abstractmethod
    def _integrity(self) -> tuple[str, ...]:
        """Return problems that the database itself finds."""

    @abstractmethod
    def close(self) -> None: ...

    def _database_time(self, session: DatabaseSession) -> float:  # noqa: ARG002
        raise ValueError(f"the journal {self.location} has no clock that all controllers share: pass now")

    def _alone(self) -> AbstractContextManager[None]:
        """A context around the migration of tables, for databases where a write does not exclude all others."""
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
        """Create or migrate the tables in one transaction; refuse newer ones."""
        with self._transaction(write=False) as session:
            found = self._found_version(session)
        if found == self.schema_version:
            return
        if found is None and not create:
            raise JournalError(
                f"there is no journal at {self.location}. Check the address, or start a controller with it."
            )
        with self._alone(), self._transaction(write=True) as session:
            # Another controller may have done it since the check.
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

    @property
    def cluster_id(self) -> str:
        if self._cluster_id is None:
            with self._transaction(write=False) as session:
                rows = session.rows("SELECT cluster_id FROM windlass_journal")
            if len(rows) != 1:
                raise JournalCorrupt(f"the journal {self.location} has lost its head. Restore it from a backup.")
            self._cluster_id = str(rows[0][0])
        return self._cluster_id

    # The head.

    def _read_head(self, session: DatabaseSession, *, lock: bool) -> Head:
        rows = session.rows(
            "SELECT schema_version, last_seq, compacted_to, epoch, holder, ttl, expires_at FROM windlass_journal"
            + (self.locking if lock else "")
        )
        if len(rows) != 1:
            raise JournalCorrupt(f"the journal {self.location} has lost its head. Restore it from a backup.")
        return Head(*rows[0])

    @contextmanager
    def _writing(self) -> Iterator[tuple[DatabaseSession, Head]]:
        """A transaction that excludes other writers, in tables of our version."""
        with self._transaction(write=True) as session:
            head = self._read_head(session, lock=True)
            self._refuse_newer(head.schema_version)  # migrated by another process while we had it open
            yield session, head

    def _fence(self, head: Head, epoch: int) -> None:
        if epoch < head.epoch:
            raise Fenced(
                f"another controller has taken over the journal {self.location}"
                + (f": {head.holder} leads now" if head.holder else "")
                + ". This controller must stop; start it again to stand by."
            )
        if epoch > head.epoch:
            raise Fenced(
                f"the journal {self.location} has not granted this lease: it is an older copy, or another journal, "
                "than the one that granted it. Acquire the lease again."
            )
