"""This package has everything that the journals in SQL databases share.

``schema`` has the tables, the check of the epoch, and what a database must provide; ``records`` appends and reads;
``checkpoints`` saves states and compacts; ``leases`` has the leader lease; ``health`` checks all of it.
"""

from __future__ import annotations

from .health import Health
from .leases import Leases
from .records import Records


class SqlJournal(Records, Leases, Health):
    """A journal in plain SQL; ``Health`` includes the checkpoints, which it checks."""
