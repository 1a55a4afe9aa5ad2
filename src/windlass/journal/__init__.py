"""The journal is the append-only record of every observation and decision, and holds the leader lease.

``append`` writes all entries of a call in one transaction, durable when it returns. ``read`` returns them as numbered
records in commit order. Checkpoints keep restarts short: a restart reads the newest checkpoint and the records after
it. The leader lease is in the same database: acquiring it gives a new, higher epoch, and an append with another epoch
is refused. So of two controllers that both believe they lead, only one can write, and no call is made before its entry
is written. Operator orders are appended without an epoch and take effect when the leader reads them.

``protocol`` is the contract, with types and errors. ``encoding`` makes canonical JSON. ``sql`` has everything that all
databases share; ``sqlite`` and ``postgres`` say how one database connects, commits and fails; ``memory`` is for
simulations. ``open`` chooses by the address.

The journal makes no decisions and reads no clock: the time is passed in. The exception is PostgreSQL, whose server
clock may judge the lease of several machines. A record that cannot be read is an error with its number, never a gap.
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
