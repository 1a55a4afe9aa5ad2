"""This module opens and checks the file of the queue, changes it in transactions, and explains its errors.

SQLite with a write-ahead log: readers and the writer do not block each other. With ``synchronous=NORMAL`` a kill loses
nothing; a power cut may lose the last transactions, but it ends all running tasks as well. `store` has the rules and
describes the tables. Agents import this module, so its imports are light (dataclasses alone take 5 ms).
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

FILE: Final = "queue.db"
VERSION: Final = 4
MARK: Final = 0x57_4E_44_51
"""``WNDQ``: SQLite's application id of a queue."""
PATIENCE: Final = 5.0
"""Seconds to wait for another process that writes; a transaction takes less than a millisecond."""

Run = Callable[..., sqlite3.Cursor]
"""Executes one statement of a transaction."""

SCHEMA: Final = (
    """CREATE TABLE jobs (
        number INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        command TEXT NOT NULL,
        directory TEXT NOT NULL,
        needs TEXT NOT NULL,
        count INTEGER NOT NULL,
        retries INTEGER NOT NULL,
        submitted REAL NOT NULL,
        fresh INTEGER NOT NULL DEFAULT 0,
        waiting INTEGER NOT NULL CHECK (waiting >= 0),
        running INTEGER NOT NULL DEFAULT 0 CHECK (running >= 0),
        done INTEGER NOT NULL DEFAULT 0,
        failed INTEGER NOT NULL DEFAULT 0,
        CHECK (waiting + running + done + failed = count)
    ) STRICT""",
    "CREATE INDEX jobs_waiting ON jobs (number) WHERE waiting > 0",
    """CREATE TABLE tasks (
        job INTEGER NOT NULL,
        task INTEGER NOT NULL,
        state TEXT NOT NULL,
        claim INTEGER NOT NULL,
        node TEXT NOT NULL,
        failures INTEGER NOT NULL DEFAULT 0,
        exit_code INTEGER,
        PRIMARY KEY (job, task)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX tasks_waiting ON tasks (job, task) WHERE state = 'waiting'",
    "CREATE INDEX tasks_running ON tasks (node, claim) WHERE state = 'running'",
    """CREATE TABLE nodes (
        id TEXT PRIMARY KEY,
        slice TEXT NOT NULL,
        resources TEXT NOT NULL,
        labels TEXT NOT NULL,
        agent TEXT NOT NULL,
        joined INTEGER NOT NULL,
        idle_since REAL NOT NULL,
        heartbeat REAL NOT NULL
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX nodes_slice ON nodes (slice)",
    """CREATE TABLE runs (
        node TEXT NOT NULL,
        job INTEGER NOT NULL,
        count INTEGER NOT NULL,
        PRIMARY KEY (node, job)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE fences (
        slice TEXT PRIMARY KEY,
        highest INTEGER NOT NULL DEFAULT -1,
        cordon INTEGER,
        evict INTEGER NOT NULL DEFAULT 0,
        forgotten INTEGER NOT NULL DEFAULT 0
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX fences_raised ON fences (slice) WHERE cordon IS NOT NULL",
    "CREATE TABLE numbers (last INTEGER NOT NULL) STRICT",
    "INSERT INTO numbers VALUES (0)",
)

_NO_ROOM: Final = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE}
_BUSY: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_NO_QUEUE: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_CLOSED_TO_US: Final = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}


CANCELLING: Final = (
    # Cancelled tasks are counted in `failed` as well: the CHECK of the first version adds up four states.
    "ALTER TABLE jobs ADD COLUMN cancelled INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE jobs ADD COLUMN cancelled_at REAL",
    """CREATE TRIGGER jobs_cancelled AFTER UPDATE OF waiting, cancelled_at ON jobs
        WHEN NEW.cancelled_at IS NOT NULL AND NEW.waiting > 0
        BEGIN
            UPDATE jobs SET waiting = 0, failed = failed + NEW.waiting, cancelled = cancelled + NEW.waiting
                WHERE number = NEW.number;
            UPDATE tasks SET state = 'cancelled' WHERE job = NEW.number AND state = 'waiting';
        END""",
    """CREATE TRIGGER tasks_cancelled AFTER UPDATE OF state ON tasks
        WHEN NEW.state = 'waiting' AND (SELECT cancelled_at FROM jobs WHERE number = NEW.job) IS NOT NULL
        BEGIN
            UPDATE tasks SET state = 'cancelled' WHERE job = NEW.job AND task = NEW.task;
        END""",
)
"""Version 2: a cancelled job has no waiting tasks; triggers cancel tasks that are put back."""
GANGS: Final = (
    "ALTER TABLE jobs ADD COLUMN gang INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE jobs ADD COLUMN environment TEXT NOT NULL DEFAULT '{}'",
    "ALTER TABLE tasks ADD COLUMN given INTEGER NOT NULL DEFAULT 1",
    "ALTER TABLE tasks ADD COLUMN recalled INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE nodes ADD COLUMN trouble TEXT NOT NULL DEFAULT ''",
    """CREATE TABLE holds (
        node TEXT NOT NULL,
        job INTEGER NOT NULL,
        count INTEGER NOT NULL,
        PRIMARY KEY (node, job)
    ) STRICT, WITHOUT ROWID""",
)
"""Version 3: gangs, environments, errors of nodes, and room that nodes reserve for a job."""
SPARES: Final = ("CREATE TABLE spares (slice TEXT PRIMARY KEY) STRICT, WITHOUT ROWID",)
"""Version 4: slices that the plan keeps as spares for work that needs their accelerators."""
MIGRATIONS: Final = {1: CANCELLING, 2: GANGS, 3: SPARES}
"""By version: the statements that migrate it to the next one."""
LATER: Final = {
    "identity": (
        "CREATE TABLE identity (id TEXT NOT NULL) STRICT",
        "INSERT INTO identity VALUES (lower(hex(randomblob(8))))",
    ),
    "passed_over": ("CREATE TABLE passed_over (job TEXT PRIMARY KEY) STRICT, WITHOUT ROWID",),
}
"""Tables of version 4 that were added later; programs that do not know them work without them. ``identity``: the random
id of a queue, which a backup of it keeps. ``passed_over``: gangs that even an empty cluster could not hold.
"""


class QueueError(Exception):
    """A queue operation failed; the message says what, where and what to do."""


class QueueGone(QueueError):
    """The file is missing, is not the one that was opened, or is another queue."""


class Dismissed(QueueError):
    """The node is not registered in the queue: its slice was forgotten, or another agent has the node."""


class QueueFile:
    """One connection to the file. Several threads may use it; calls are serialised."""

    def __init__(self, directory: str | os.PathLike[str], *, create: bool = True) -> None:
        self.directory = Path(directory).absolute()
        self.path = self.directory / FILE
        self.id = ""
        """The random id of the queue: another file with the same id is a copy of it."""
        self._turn = threading.Lock()
        with self._explained():
            self._make_file(create=create)
            # One process opens it at a time: two that switch on the write-ahead log at once fail without waiting.
            with _locked(self.directory):
                self._identity = _identity(self.path)
                self._connection = sqlite3.connect(
                    self.path, timeout=PATIENCE, isolation_level=None, check_same_thread=False
                )
                try:
                    self._configure()
                except BaseException:
                    self._connection.close()
                    raise

    def close(self) -> None:
        with self._turn, suppress(sqlite3.Error):
            self._connection.close()

    def _make_file(self, *, create: bool) -> None:
        if self.path.exists():
            return
        if not create:
            raise QueueGone(
                f"there is no queue at {self.path}; check the directory, or submit a job: windlass submit -- COMMAND"
            )
        # A user who can write to the file can run commands on every node, so only its owner may.
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))

    def _configure(self) -> None:
        run = self._connection.execute
        [[mark]], [[version]] = run("PRAGMA application_id"), run("PRAGMA user_version")
        if mark != MARK and run("SELECT 1 FROM sqlite_master").fetchone():
            raise QueueError(f"{self.path} is an SQLite database, but no queue; give the queue a directory of its own")
        if mark == MARK and version > VERSION:
            raise QueueError(
                f"the queue {self.path} is of version {version}, this program knows {VERSION}; use a newer windlass"
            )
        [[mode]] = run("PRAGMA journal_mode = WAL")
        if mode != "wal":
            raise QueueError(
                f"the queue {self.path} cannot have a write-ahead log here (SQLite says {mode!r}); "
                "put it on a local disk, not on a network file system"
            )
        run("PRAGMA synchronous = NORMAL")
        if mark != MARK:
            with self._changing():
                for statement in (*SCHEMA, f"PRAGMA application_id = {MARK}"):
                    run(statement)
            version = 1
        if version < VERSION:
            with self._changing():
                for old in range(version, VERSION):
                    for statement in MIGRATIONS[old]:
                        run(statement)
                run(f"PRAGMA user_version = {VERSION}")
        there = {name for (name,) in run("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()}
        if missing := LATER.keys() - there:
            with self._changing():
                for name in sorted(missing):
                    for statement in LATER[name]:
                        run(statement)
        [self.id] = run("SELECT id FROM identity").fetchone()

    @contextmanager
    def _changing(self) -> Iterator[Run]:
        with self._transaction("BEGIN IMMEDIATE") as run:
            yield run

    @contextmanager
    def _looking(self) -> Iterator[Run]:
        with self._transaction("BEGIN") as run:
            yield run

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Run]:
        with self._explained(), self._turn:
            # Writes to a file that was moved away would succeed and never be read.
            if _identity(self.path) != self._identity:
                raise QueueGone(f"the queue {self.path} was moved, deleted or replaced; put it back, or start again")
            self._connection.execute(begin)
            try:
                yield self._connection.execute
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # SQLite rolls back on its own after some errors
                    with suppress(sqlite3.Error):
                        self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            remedy = "give a directory that this user may write to"
            raise QueueError(f"the queue {self.path} cannot be used: {error.strerror or error}; {remedy}") from error
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0)
            raise QueueError(f"the queue {self.path}: {error}; {_remedy(code)}") from error


def another(path: Path, start_again: str) -> str:
    """The message about another queue at the path of one that is in use. ``start_again``: how to use the new one."""
    return f"the queue {path} was replaced by another one; put the old one back, or {start_again} to use the new one"


def _remedy(code: int) -> str:
    if code in _NO_ROOM:
        return "the disk is full, over quota, or failing: nothing is lost, free some space and it goes on"
    if code & 0xFF in _BUSY:
        return f"another process held it for more than {PATIENCE:g} s: look for one that has the file open"
    if code & 0xFF in _NO_QUEUE:
        return "it is damaged, or no queue: restore it, or move it away and submit again"
    if code & 0xFF in _CLOSED_TO_US:
        return "this user needs the right to write to the file and to its directory"
    return "check the disk, and whether the file is a queue"


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
