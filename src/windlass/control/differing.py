"""What is different between two tables that share most of their entries. Nothing is compared but identity: who makes a
table hands on the very objects that have not changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Difference(NamedTuple):
    """Subjects, in no order."""

    changed: list[str]
    """New, or with another value."""
    gone: list[str]


NONE = Difference([], [])


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> Difference:
    """What was done to the first table to make the second."""
    if before is after:
        return NONE
    was = before.get
    changed = [subject for subject, value in after.items() if was(subject) is not value]
    stayed = len(after) - sum([subject not in before for subject in changed])
    gone = [subject for subject in before if subject not in after] if stayed < len(before) else []
    return Difference(changed, gone)
