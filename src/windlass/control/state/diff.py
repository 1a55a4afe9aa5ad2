"""``diff`` compares two tables that share most of their entries.

Entries are compared by identity: a writer passes unchanged objects on and never mutates a table. A writer may also
register the keys it changed; ``diff`` then skips the full comparison. Registering too few keys loses updates.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

Table = Mapping[str, Any]


class TableDiff(NamedTuple):
    """The changed subjects, in no order."""

    changed: Collection[str]
    """Subjects that are new or have another value."""
    gone: Collection[str]


NONE: Final = TableDiff((), ())


class _RecentDiffs(threading.local):
    """Registered changes, per thread: a program may have several pools."""

    def __init__(self) -> None:
        self.links: deque[tuple[Table, Table, TableDiff]] = deque(maxlen=16)
        """Old table, new table and changed subjects, the newest last; enough entries for one pass."""


_LATELY: Final = _RecentDiffs()


def note_change(before: Table, after: Table, changed: Collection[str], gone: Collection[str]) -> None:
    """Register that the second table differs from the first in these subjects only."""
    _LATELY.links.append((before, after, TableDiff(changed, gone)))


def diff(before: Table, after: Table) -> TableDiff:
    """Return the changes from the first table to the second."""
    if before is after:
        return NONE
    touched = _touched(before, after)
    if touched is None:
        found = full_diff(before, after)
        note_change(before, after, *found)
        return found
    changed = [one for one in touched if one in after and before.get(one) is not after[one]]
    return TableDiff(changed, [one for one in touched if one not in after and one in before])


def full_diff(before: Table, after: Table) -> TableDiff:
    """Return the same by a full comparison, without registered changes."""
    was = before.get
    changed = [subject for subject, value in after.items() if was(subject) is not value]
    stayed = len(after) - sum([subject not in before for subject in changed])
    gone = [subject for subject in before if subject not in after] if stayed < len(before) else []
    return TableDiff(changed, gone)


def _touched(before: Table, after: Table) -> set[str] | None:
    """Return all subjects registered between the two tables; None: unknown."""
    found: set[str] = set()
    for old, new, news in reversed(_LATELY.links):
        if new is after:
            found.update(news.changed, news.gone)
            if old is before:
                return found
            after = old
    return None
