"""The journal: the append-only record of every observation and every decision, and the lease of the one who decides.

Entries go in with ``append``: all of a call in one transaction, durable when it returns. They come out with ``read``
as records, each under its number, in the order in which they were committed. Beside them lie saved states, so that a
restart reads the newest state and the few records after it. In the same database lies the leader's lease: whoever
acquires it gets an epoch that nobody had before, and what is appended under another epoch is refused. So of two
controllers that both believe they lead, only one can write, and nothing is done that was not written first. An operator
leads nothing: an order such as a freeze is appended without an epoch, and takes effect when the leader reads it.

``protocol`` is the contract, in the docstrings of ``Journal``, with the types and the errors. ``encoding`` brings data
into canonical JSON. ``rules`` is everything that must be the same in all databases, as plain SQL, put together of
``tables``, ``records``, ``states``, ``leasing`` and ``checking``; ``sqlite`` and ``postgres`` say how one database
connects, commits and fails. ``opening`` chooses between them by the address.

The journal never decides and never looks at a clock of its own accord: time is passed in, but for a PostgreSQL server,
which several machines share and whose clock may judge the lease. It never shortens what it gives: a record that cannot
be read is an error with its number, not a gap.
"""

from __future__ import annotations

from .open import open_journal
from .protocol import (
    BadEntry,
    Entry,
    Fenced,
    Journal,
    JournalBusy,
    JournalCorrupt,
    JournalError,
    JournalFull,
    JournalHealth,
    JournalUnavailable,
    JournalVersion,
    Lease,
    LeaseLost,
    Record,
)

__all__ = [
    "BadEntry",
    "Entry",
    "Fenced",
    "Journal",
    "JournalBusy",
    "JournalCorrupt",
    "JournalError",
    "JournalFull",
    "JournalHealth",
    "JournalUnavailable",
    "JournalVersion",
    "Lease",
    "LeaseLost",
    "Record",
    "open_journal",
]
