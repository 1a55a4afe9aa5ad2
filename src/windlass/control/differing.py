"""What is different between two tables that share most of their entries. Nothing is compared but identity: who makes a
table hands on the very objects that have not changed, and never changes it afterwards."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple


class Difference(NamedTuple):
    """Subjects, in no order."""

    changed: list[str]
    """New, or with another value."""
    gone: list[str]


NONE: Final = Difference([], [])
_LATELY: Final[deque[tuple[Mapping[str, Any], Mapping[str, Any], Difference]]] = deque(maxlen=4)
"""In one pass several steps ask the same: what is new of the nodes, of the instances, of the slices."""


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> Difference:
    """What was done to the first table to make the second."""
    if before is after:
        return NONE
    for old, new, known in _LATELY:
        if old is before and new is after:
            return known
    was = before.get
    changed = [subject for subject, value in after.items() if was(subject) is not value]
    stayed = len(after) - sum([subject not in before for subject in changed])
    gone = [subject for subject in before if subject not in after] if stayed < len(before) else []
    found = Difference(changed, gone)
    if len(after) > 30:  # else it is looked up no faster than it is found
        _LATELY.append((before, after, found))
    return found
