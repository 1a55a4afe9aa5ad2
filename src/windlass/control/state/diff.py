"""``diff`` compares two tables that share most of their entries.

Entries are compared by identity: a writer passes unchanged objects on and never mutates a table. A table that is made
with ``updated`` needs no full comparison later: its difference is registered.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple, TypeVar

T = TypeVar("T")
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


_RECENT: Final = _RecentDiffs()


def updated(before: Mapping[str, T], changed: Mapping[str, T], gone: Collection[str] = ()) -> dict[str, T]:
    """Return the table with some subjects changed or added and others removed, and register the difference."""
    after = {**before, **changed}
    for subject in gone:
        after.pop(subject, None)
    _RECENT.links.append((before, after, TableDiff(changed, gone)))
    return after


def diff(before: Table, after: Table) -> TableDiff:
    """Return the changes from the first table to the second."""
    if before is after:
        return NONE
    touched = _touched(before, after)
    if touched is None:
        found = full_diff(before, after)
        _RECENT.links.append((before, after, found))
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
    for old, new, difference in reversed(_RECENT.links):
        if new is after:
            found.update(difference.changed, difference.gone)
            if old is before:
                return found
            after = old
    return None
