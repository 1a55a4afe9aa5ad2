"""This journal is an SQLite file: nothing to install, no server to run.

It uses a write-ahead log with ``synchronous=FULL``: a commit is on disk when it returns, and readers do not block the
writer. After a kill or a power cut the checksums of the log show where the last complete commit ended.

Two traps of SQLite are handled. Closing any file descriptor of the file drops the locks of the process, so only SQLite
itself opens the file once it exists. And SQLite goes on writing to a file that was moved away, so every write checks
that the path still leads to the file.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from windlass.journal.sql.schema import CLOSE_WITHIN, DatabaseSession, Migration

from .protocol import JournalBusy, JournalCorrupt, JournalError, JournalFull, JournalUnavailable
from .sql import SqlJournal

MEMORY: Final = ":memory:"
PATIENCE: Final = 10.0
"""Seconds to wait for another process that writes; a commit takes some milliseconds, a checkpoint at most seconds."""
OLDEST: Final = (3, 37, 0)
"""The first SQLite with STRICT tables."""
VACUUMED: Final = 500
"""Pages that are freed at a time: 2 MB, some milliseconds."""
LOG_KEPT: Final = 16 * 2**20
"""Bytes of log that stay on disk after a burst."""

MIGRATIONS: Final[tuple[Migration, ...]] = (
    (
        """CREATE TABLE windlass_journal (
            id INTEGER PRIMARY KEY CHECK (id = 1),
            schema_version INTEGER NOT NULL,
            last_seq INTEGER NOT NULL,
            compacted_to INTEGER NOT NULL,
            epoch INTEGER NOT NULL,
            holder TEXT,
            ttl REAL NOT NULL,
            expires_at REAL NOT NULL
        ) STRICT""",
        "INSERT INTO windlass_journal VALUES (1, 1, 0, 0, 0, NULL, 0, 0)",
        """CREATE TABLE windlass_records (
            seq INTEGER PRIMARY KEY,
            epoch INTEGER NOT NULL,
            kind TEXT NOT NULL,
            subject TEXT NOT NULL,
            at REAL NOT NULL,
            data TEXT NOT NULL,
            checksum INTEGER NOT NULL
        ) STRICT""",
        "CREATE INDEX windlass_records_subject ON windlass_records (subject, seq)",
        "CREATE INDEX windlass_records_kind ON windlass_records (kind, seq)",
        "CREATE INDEX windlass_records_at ON windlass_records (at, seq)",
        "CREATE TABLE windlass_states (seq INTEGER PRIMARY KEY, digest TEXT NOT NULL, state TEXT NOT NULL) STRICT",
    ),
    (
        "ALTER TABLE windlass_journal ADD COLUMN cluster_id TEXT NOT NULL DEFAULT ''",
        "UPDATE windlass_journal SET cluster_id = lower(hex(randomblob(5)))",
    ),
)

# Grouped by what the caller should do. A quota and a file-size limit give the codes next to SQLITE_FULL.
NO_ROOM: Final = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE}
UNKNOWN: Final = {sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC}
"""The data may be on the disk although the disk reported an error."""
BUSY: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
CORRUPT: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
CLOSED_TO_US: Final = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}


class SqliteSession:
    """A transaction of a connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        return self._connection.execute(statement, values).fetchall()

    def each(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        self._connection.executemany(statement, rows)


class SqliteJournal(SqlJournal):
    """A journal in one file with one connection, used by one thread at a time."""

    def __init__(
        self,
        path: Path | str,
        *,
        create: bool = True,
        migrations: tuple[Migration, ...] = MIGRATIONS,
        patience: float = PATIENCE,
        durable: bool = True,
    ) -> None:
        super().__init__(str(path), migrations)
        self._durable = durable
        self.path = None if path == MEMORY else Path(path).absolute()
        if sqlite3.sqlite_version_info < OLDEST:
            raise JournalError(
                f"SQLite {sqlite3.sqlite_version} is too old for the journal: it needs "
                f"{'.'.join(map(str, OLDEST[:2]))} or newer. Use a newer Python, or a journal in PostgreSQL."
            )
        if self.path:
            self._make_file(self.path, create=create)
        with self._translated():
            # Autocommit mode of the module: BEGIN and COMMIT are explicit below.
            self._connection = sqlite3.connect(
                self.path or MEMORY, timeout=patience, isolation_level=None, check_same_thread=False
            )
        try:
            self._identity = self._file_identity()
            self._configure()
            self._bring_up_to_date(create=create)
        except BaseException:
            self._connection.close()
            raise

    def _make_file(self, path: Path, *, create: bool) -> None:
        try:
            if path.exists():
                if not path.is_file():
                    raise JournalError(
                        f"the journal {path} is not a file. Give the path of a file, such as {path}/journal.db"
                    )
                return
            if not create:
                raise JournalError(f"there is no journal at {path}. Check the path, or start a controller with it.")
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):  # another process was faster
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                # The name must survive a power cut as well as what is written into the file.
                directory = os.open(path.parent, os.O_RDONLY)
                try:
                    os.fsync(directory)
                finally:
                    os.close(directory)
        except OSError as error:
            raise JournalError(
                f"the journal {path} cannot be made: {error.strerror}. "
                "Give a path in a directory that this user may write to."
            ) from error

    def _configure(self) -> None:
        with self._translated():
            run = self._connection.execute
            # Takes effect only while the file is empty: space of deleted records can be given back bit by bit.
            run("PRAGMA auto_vacuum = INCREMENTAL")
            mode = self._with_log()
            run(f"PRAGMA synchronous = {'FULL' if self._durable else 'OFF'}")
            run("PRAGMA fullfsync = ON")
            run(f"PRAGMA journal_size_limit = {LOG_KEPT}")
            if mode != ("wal" if self.path else "memory"):
                raise JournalError(
                    f"the journal {self.location} cannot have a write-ahead log here (SQLite says {mode!r}): "
                    "put it on a local disk, not on a network file system."
                )
            # SQLite opens a read-only file without an error; this checks that it can be written.
            run("BEGIN IMMEDIATE")
            run("ROLLBACK")

    def _with_log(self) -> str:
        """Switch the file to a write-ahead log and return its mode. If several processes open a new file at once,
        SQLite does not wait in this statement, so it is retried here.
        """
        until = time.monotonic() + PATIENCE
        while True:
            try:
                [mode] = self._connection.execute("PRAGMA journal_mode = WAL").fetchone()
                return str(mode)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                    raise
                time.sleep(0.005)

    def _file_identity(self) -> tuple[int, int] | None:
        if self.path is None:
            return None
        with suppress(OSError):
            status = self.path.stat()
            return status.st_dev, status.st_ino
        return None

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[DatabaseSession]:
        with self._lock, self._translated():
            connection = self._connection
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                if write and self._file_identity() != self._identity:
                    raise JournalError(
                        f"the journal {self.location} was moved, deleted or replaced while it was open: what is "
                        "written now would be lost. Put it back and start again."
                    )
                yield SqliteSession(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # SQLite rolls back on its own after some errors
                    with suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._explained(error) from error

    def _explained(self, error: sqlite3.Error) -> JournalError:
        code = getattr(error, "sqlite_errorcode", 0)
        journal = f"the journal {self.location}"
        if code in NO_ROOM:
            return JournalFull(
                f"{journal} cannot be written to ({error}): the disk is full, over quota, or failing. Nothing was "
                "written and nothing is lost; free some space and it goes on."
            )
        if code in UNKNOWN:
            return JournalUnavailable(
                f"{journal}: the disk did not confirm what was written ({error}). Check the disk."
            )
        if code & 0xFF in BUSY:
            return JournalBusy(
                f"{journal} is locked by another process ({error}). Only one controller may write; "
                "look for a second one, or for a program that has the file open."
            )
        if code & 0xFF in CORRUPT:
            return JournalCorrupt(
                f"{journal} is damaged or not a journal ({error}). Restore it from a backup; or move it away, with its "
                "-wal and -shm files, and start with a new one, which adopts what the provider shows."
            )
        if code & 0xFF in CLOSED_TO_US:
            return JournalError(
                f"{journal} cannot be written to ({error}). This user needs the right to write to the file and to its "
                "directory, on a file system that is not mounted read-only."
            )
        if isinstance(error, sqlite3.ProgrammingError):
            return JournalError(f"{journal} was used after it was closed, or wrongly ({error})")
        return JournalError(f"{journal}: {error}. If it goes on, its health() says what is wrong")

    def _found_version(self, session: DatabaseSession) -> int | None:
        tables = {name for (name,) in session.rows("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "windlass_journal" in tables:
            [(version,)] = session.rows("SELECT schema_version FROM windlass_journal")
            return int(version)
        if tables:
            raise JournalError(
                f"{self.location} is an SQLite database, but not a journal: it has the table {min(tables)!r}. "
                "Give the journal a file of its own."
            )
        return None

    def _give_back_space(self) -> None:
        # The compaction itself is done; a file that is not smaller yet is no error.
        with suppress(sqlite3.Error):
            before, free = None, self._free_pages()
            while free and free != before:
                with self._lock:
                    # execute() would stop after the first page, because the statement returns rows without columns.
                    self._connection.executescript(f"PRAGMA incremental_vacuum({VACUUMED})")
                before, free = free, self._free_pages()

    def _free_pages(self) -> int:
        with self._lock:
            return int(self._connection.execute("PRAGMA freelist_count").fetchone()[0])

    def _size(self) -> int:
        if self.path is None:
            with self._transaction(write=False) as session:
                return int(session.rows("PRAGMA page_count")[0][0] * session.rows("PRAGMA page_size")[0][0])
        total = 0
        for suffix in ("", "-wal"):
            with suppress(OSError):
                total += Path(f"{self.path}{suffix}").stat().st_size
        return total

    def _integrity(self) -> tuple[str, ...]:
        with self._transaction(write=False) as session:
            found = [text for (text,) in session.rows("PRAGMA integrity_check(20)")]
        return () if found == ["ok"] else tuple(f"SQLite finds: {text}" for text in found)

    def close(self) -> None:
        # A write to a slow disk in another thread holds the lock; the end of the program must not wait for it.
        if self._lock.acquire(timeout=CLOSE_WITHIN):
            try:
                with suppress(sqlite3.Error):
                    self._connection.close()
            finally:
                self._lock.release()
