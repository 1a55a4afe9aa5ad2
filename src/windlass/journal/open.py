"""``open_journal`` opens the journal that an address names."""

from __future__ import annotations

from pathlib import Path

from windlass._extras import install_command

from .protocol import Journal, JournalError
from .sqlite import MEMORY, SqliteJournal

SQLITE = "sqlite:///"
POSTGRES = ("postgresql://", "postgres://")


def open_journal(url: str | Path, *, create: bool = True, durable: bool = True) -> Journal:
    """Open a journal; create it if it does not exist, and migrate its tables.

    - ``path/to/journal.db`` or ``sqlite:///path/to/journal.db`` (``sqlite:////`` for a path from the root): a file,
      created with its directory, readable by its owner alone. For one controller, and any number of readers, on one
      machine.
    - ``:memory:``: in memory, gone when closed. For simulations.
    - ``postgresql://user@host/database``: for controllers on several machines; the extra ``postgres``.

    With ``create=False``, a missing journal is a ``JournalError``: a command that only reads must not create an empty
    journal at a mistyped address.

    With ``durable=False``, a commit does not wait for the disk. It survives a crash of the program, but not of the
    computer: for a cluster that does not survive that either, such as a pool.
    """
    address = str(url)
    if address.startswith(POSTGRES):
        try:
            from .postgres import PostgresJournal
        except ImportError as error:
            raise JournalError(
                f"a journal in PostgreSQL needs the package psycopg: {install_command('postgres')}"
            ) from error
        return PostgresJournal(address, create=create)
    path = address.removeprefix(SQLITE)
    if "://" in path or (path == address and address.startswith("sqlite:")):
        scheme = address.partition(":")[0]
        hint = "an absolute path has four slashes" if scheme == "sqlite" else "there is no journal of this kind"
        raise JournalError(f"{scheme}: {hint}. Give a path, sqlite:///path, or postgresql://user@host/database")
    if path != address and "?" in path:
        raise JournalError(f"{SQLITE} takes a path and no options: leave out what follows the question mark")
    if not path:
        raise JournalError("the address of the journal is empty. Give a path, such as journal.db")
    return SqliteJournal(path if path == MEMORY else Path(path).expanduser(), create=create, durable=durable)
