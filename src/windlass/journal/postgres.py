"""This journal is in PostgreSQL, for controllers on several machines, one of which leads.

The tables are in the first schema of the search path; ``?options=-csearch_path%3Dname`` in the address chooses another,
so one database can hold several journals. A broken connection is replaced by the next call. Every wait is bounded: for
the server, for a lock, and on the server for a controller that was suspended in a transaction. A connection pooler must
pool sessions, not transactions.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg
from psycopg import conninfo, errors

from windlass.journal.sql.schema import CLOSE_WITHIN, DatabaseSession, Migration

from .protocol import JournalBusy, JournalCorrupt, JournalError, JournalFull, JournalUnavailable
from .sql import SqlJournal

PATIENCE: Final = 10
"""Seconds to wait for a connection, and for another controller's transaction."""
LONGER: Final = 2
"""Seconds beyond that to wait for the server's answer."""
FROZEN: Final = 60
"""Seconds after which the server ends an idle transaction of a suspended controller."""
SETUP_LOCK: Final = 0x57494E44
"""The advisory lock for creating and migrating tables: two controllers may start on an empty database at once."""

REACHING: Final = {
    "connect_timeout": PATIENCE,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "windlass",
}
"""Defaults for the connection: a server that is gone is noticed within half a minute."""

MIGRATIONS: Final[tuple[Migration, ...]] = (
    (
        """CREATE TABLE windlass_journal (
            id INTEGER PRIMARY KEY CHECK (id = 1),
            schema_version INTEGER NOT NULL,
            last_seq BIGINT NOT NULL,
            compacted_to BIGINT NOT NULL,
            epoch BIGINT NOT NULL,
            holder TEXT,
            ttl DOUBLE PRECISION NOT NULL,
            expires_at DOUBLE PRECISION NOT NULL
        )""",
        "INSERT INTO windlass_journal VALUES (1, 1, 0, 0, 0, NULL, 0, 0)",
        """CREATE TABLE windlass_records (
            seq BIGINT PRIMARY KEY,
            epoch BIGINT NOT NULL,
            kind TEXT NOT NULL,
            subject TEXT NOT NULL,
            at DOUBLE PRECISION NOT NULL,
            data TEXT NOT NULL,
            checksum BIGINT NOT NULL
        )""",
        "CREATE INDEX windlass_records_subject ON windlass_records (subject, seq)",
        "CREATE INDEX windlass_records_kind ON windlass_records (kind, seq)",
        "CREATE INDEX windlass_records_at ON windlass_records (at, seq)",
        "CREATE TABLE windlass_states (seq BIGINT PRIMARY KEY, digest TEXT NOT NULL, state TEXT NOT NULL)",
    ),
    (
        "ALTER TABLE windlass_journal ADD COLUMN cluster_id TEXT NOT NULL DEFAULT ''",
        "UPDATE windlass_journal SET cluster_id = substr(md5(random()::text || clock_timestamp()::text), 1, 10)",
    ),
)


class PostgresSession:
    """A transaction of a connection."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        cursor = self._connection.execute(_query(statement), values)
        return [] if cursor.description is None else cursor.fetchall()

    def each(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(_query(statement), rows)


def _query(statement: str) -> bytes:
    return statement.replace("?", "%s").encode()


class PostgresJournal(SqlJournal):
    """A journal with one connection, used by one thread at a time."""

    own_clock = True
    locking = " FOR UPDATE"

    def __init__(
        self,
        url: str,
        *,
        create: bool = True,
        migrations: tuple[Migration, ...] = MIGRATIONS,
        patience: float = PATIENCE,
    ) -> None:
        try:
            given = conninfo.conninfo_to_dict(url)
        except psycopg.ProgrammingError as error:
            raise JournalError(
                "the address of the journal cannot be read as one of PostgreSQL. "
                "Give postgresql://user@host/database, with signs such as @ in a password written as %40"
            ) from error
        place = f"{given.get('host') or given.get('hostaddr') or 'local'}:{given.get('port') or 5432}"
        super().__init__(f"postgresql://{place}/{given.get('dbname') or ''}", migrations)
        self._settings: dict[str, Any] = {**REACHING, **given}
        self._patience = patience
        self._closed = False
        self._connection: psycopg.Connection[Any] | None = None
        try:
            self._bring_up_to_date(create=create)
        except BaseException:
            self.close()
            raise

    def _connect(self) -> psycopg.Connection[Any]:
        """Return the connection; a new one when there is none or it broke."""
        if self._closed:
            raise JournalError(f"the journal {self.location} was used after it was closed")
        if self._connection is not None and not self._connection.closed:
            return self._connection
        connection = psycopg.connect(**self._settings, autocommit=True)
        try:
            if connection.info.parameter_status("server_encoding") != "UTF8":
                raise JournalError(
                    f"the database of the journal {self.location} does not use UTF-8. "
                    "Make one that does: createdb --encoding=UTF8 --template=template0 NAME"
                )
            connection.execute("SET client_encoding = 'UTF8'")
            for name, milliseconds in (
                ("lock_timeout", self._patience * 1000),
                ("idle_in_transaction_session_timeout", FROZEN * 1000),
            ):
                connection.execute("SELECT set_config(%s, %s, false)", (name, str(int(milliseconds))))
            # Every value but "off" waits at least for the disk; values that also wait for standbys stay.
            connection.execute(
                "SELECT set_config('synchronous_commit', 'on', false)"
                " WHERE current_setting('synchronous_commit') = 'off'"
            )
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[DatabaseSession]:
        with self._lock, self._translated():
            connection = self._connect()
            with self._limited(connection):
                yield from self._begun(connection, write=write)

    @contextmanager
    def _limited(self, connection: psycopg.Connection[Any]) -> Iterator[None]:
        """A paused server keeps the connection open and does not answer, which no connection setting notices. So the
        socket is shut down when a transaction takes too long, which ends every wait on it.
        """
        over = threading.Event()

        def cut() -> None:
            over.set()
            with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as line:
                line.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(self._patience + LONGER, cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        except psycopg.Error as error:
            if over.is_set():
                connection.close()
                raise psycopg.OperationalError(f"no answer within {self._patience + LONGER:g} s") from error
            raise
        finally:
            timer.cancel()

    def _begun(self, connection: psycopg.Connection[Any], *, write: bool) -> Iterator[DatabaseSession]:
        # A writer must see what was committed while it waited for the lock; a reader must see one instant.
        connection.execute(
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
            if write
            else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        )
        try:
            yield PostgresSession(connection)
            connection.execute("COMMIT")
        except BaseException:
            try:
                connection.execute("ROLLBACK")
            except psycopg.Error:
                connection.close()
            raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise self._explained(error) from error

    def _explained(self, error: psycopg.Error) -> JournalError:
        journal = f"the journal {self.location}"
        text = " ".join(str(error).split())
        if password := self._settings.get("password"):
            text = text.replace(str(password), "***")
        match error:
            case errors.DiskFull() | errors.OutOfMemory() | errors.ConfigurationLimitExceeded():
                return JournalFull(
                    f"{journal} cannot be written to ({text}). Nothing was written and nothing is lost; "
                    "free some space on the server and it goes on."
                )
            case (
                errors.LockNotAvailable()
                | errors.SerializationFailure()
                | errors.DeadlockDetected()
                | errors.QueryCanceled()
                | errors.TooManyConnections()
            ):
                return JournalBusy(
                    f"{journal} is busy ({text}). It is tried again; if it goes on, look for a stuck session."
                )
            case errors.DataCorrupted() | errors.IndexCorrupted():
                return JournalCorrupt(f"{journal} is damaged ({text}). Restore the database from a backup.")
            case errors.ReadOnlySqlTransaction():
                return JournalError(f"{journal} cannot be written to ({text}). Give the address of the primary server.")
            case errors.InsufficientPrivilege():
                return JournalError(
                    f"{journal} does not let this user in ({text}). "
                    "It needs CREATE on the schema the first time, and SELECT, INSERT, UPDATE and DELETE on its tables."
                )
            case psycopg.OperationalError() | psycopg.InterfaceError():
                return JournalUnavailable(f"{journal} cannot be reached ({text}). Check the server and the address.")
            case _:
                return JournalError(f"{journal}: {text}. If it goes on, its health() says what is wrong")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        # Taken before the transaction begins: inside it, the wait would hide tables that were created meanwhile,
        # because a server process reads schema changes only when a transaction begins.
        with self._lock, self._translated():
            connection = self._connect()
            connection.execute("SELECT pg_advisory_lock(%s)", (SETUP_LOCK,))
            try:
                yield
            finally:
                if not connection.closed:
                    connection.execute("SELECT pg_advisory_unlock(%s)", (SETUP_LOCK,))

    def _found_version(self, session: DatabaseSession) -> int | None:
        [(there,)] = session.rows("SELECT to_regclass('windlass_journal') IS NOT NULL")
        if not there:
            return None
        [(version,)] = session.rows("SELECT schema_version FROM windlass_journal")
        return int(version)

    def _database_time(self, session: DatabaseSession) -> float:
        [(time,)] = session.rows("SELECT extract(epoch FROM clock_timestamp())::float8")
        return float(time)

    def _size(self) -> int:
        with self._transaction(write=False) as session:
            [(size,)] = session.rows(
                "SELECT pg_total_relation_size('windlass_journal') + pg_total_relation_size('windlass_records')"
                " + pg_total_relation_size('windlass_states')"
            )
        return int(size)

    def _integrity(self) -> tuple[str, ...]:
        with self._transaction(write=False) as session:
            [(fsync, pages)] = session.rows("SELECT current_setting('fsync'), current_setting('full_page_writes')")
        return tuple(
            f"the server runs with {name} = off: a power cut may lose what was committed. Set it to on."
            for name, value in (("fsync", fsync), ("full_page_writes", pages))
            if value == "off"
        )

    def close(self) -> None:
        self._closed = True
        # A call that hangs in another thread holds the lock; the end of the program must not wait for it.
        mine = self._lock.acquire(timeout=CLOSE_WITHIN)
        try:
            if self._connection is not None and mine:
                with suppress(psycopg.Error):
                    self._connection.close()
        finally:
            if mine:
                self._lock.release()
