"""What is the same in every database, put together: a journal but for how its database connects, commits and fails.

``tables`` has the tables, the fence and what a database must provide; ``records`` appending and reading; ``states``
saved states and compaction; ``leasing`` the leader's lease; ``checking`` the health of it all.
"""

from __future__ import annotations

from .health import Health
from .leases import Leases
from .records import Records


class SqlJournal(Records, Leases, Health):
    """A journal in plain SQL; ``Health`` brings the saved states along, which it looks into."""
