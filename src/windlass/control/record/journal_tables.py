"""This module maps the tables of ControllerState to journal entries and back.

A table has one value per subject: the record of each slice, each waiting demand with its reason, the last observations.
A pass writes one entry for each changed value; the newest entry of a subject is its value, and an entry without data
removes it. The state at any time is therefore the result of applying the entries up to it. ``status``, ``why``,
``events`` and ``replay`` read nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from windlass.control.state.codec import Later, to_plain
from windlass.control.state.diff import diff
from windlass.control.state.fleet import Bought, Fleet, Moved, Refused
from windlass.core.model.plan import Plan, Waiting
from windlass.core.model.reasons import Reason
from windlass.journal import Entry
from windlass.providers.protocol import Instance

from .controller_state import _TABLES, KINDS, ControllerState

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
LONGEST_ID: Final = 63
"""Characters of a slice id: Kubernetes labels and names of machines at Google may not be longer."""

IS: Final = "is"
"""The key of the value in an entry; an entry without it removes the subject."""

LAUNCH: Final = "launch"

REFUSED: Final = "refused"

ORDER: Final = "order"

MISTAKE: Final = "mistake"

PHASE: Final = "phase"
"""Written once for each boot phase of a machine, where its provider reports phases."""

PASS: Final = "pass"
"""Kinds of entries that are events and not values of a table."""

VERSION: Final = "windlass"
"""The key for the version of the leader, in the ``pass`` entry of its first pass and in every checkpoint."""


def waiting_after(before: Mapping[str, Waiting], plan: Plan) -> Mapping[str, Waiting]:
    """Return the waiting demands with their reasons. An entry is kept where only the numbers of its reason changed."""
    if not before and not plan.waiting:
        return before
    after = {
        one.demand: old if (old := before.get(one.demand)) is not None and _alike(old, one) else one
        for one in plan.waiting
    }
    return before if before == after else after


def _alike(old: Waiting, new: Waiting) -> bool:
    return old.reason.code == new.reason.code and {name: reason.code for name, reason in old.groups.items()} == {
        name: reason.code for name, reason in new.groups.items()
    }


def stays_after(before: Mapping[str, Reason], plan: Plan) -> Mapping[str, Reason]:
    """Return why each slice that is not simply busy is kept; written again when the code changes."""
    after = {
        one.slice: old if (old := before.get(one.slice)) is not None and old.code == one.reason.code else one.reason
        for one in plan.stays
    }
    return before if before == after else after


def entries_between(before: ControllerState, after: ControllerState, at: float) -> list[Entry]:
    """Return the entries that lead from one state to the next."""
    found: list[Entry] = []
    for kind, old, new in zip(KINDS, _TABLES(before), _TABLES(after), strict=True):
        if new is not old:
            found += entries_of(kind, old, new, at)
    return found


def entries_of(kind: str, before: Mapping[str, Any], after: Mapping[str, Any], at: float) -> list[Entry]:
    """Return the entries of one table."""
    changed, gone = diff(before, after)
    found = [
        Entry(kind, subject, at, _is(value))
        for subject in sorted(changed)
        if (value := after[subject]) != before.get(subject)
    ]
    return found + [Entry(kind, subject, at, {}) for subject in sorted(gone)] if gone else found


def _is(value: Any) -> Mapping[str, Any]:
    return Later(lambda: {IS: to_plain(value)})


def passed_through(moves: Iterable[Moved], fleet: Fleet) -> Iterator[Entry]:
    """Return entries for states that slices passed through within one pass: the table has only the last one."""
    last: dict[str, Moved] = {}
    for move in moves:
        earlier = last.get(move.slice_id)
        if earlier is not None and move.slice_id in fleet.slices:
            record = fleet.slices[move.slice_id].replace(state=earlier.target, since=earlier.at, reason=earlier.reason)
            yield Entry("slice", move.slice_id, earlier.at, _is(record))
        last[move.slice_id] = move


def happened_once(
    bought: Iterable[Bought], refused: Iterable[Refused], mistakes: Iterable[str], fleet: Fleet, at: float
) -> Iterator[Entry]:
    """Return the events of a pass as entries. ``fleet``: the one with the refused slices."""
    for mistake in mistakes:
        yield Entry(MISTAKE, "workload", at, {"why": mistake})
    for one in refused:
        more: dict[str, Any] = {} if one.certain else {"certain": False}
        more |= {"retry_after": one.retry_after} if one.retry_after else {}
        more |= {"group": fleet.slices[one.slice_id].group} if one.slice_id in fleet.slices else {}
        yield Entry(REFUSED, one.slice_id, at, {"code": str(one.code), "why": one.why, **more})
    for purchase in bought:
        yield Entry(LAUNCH, purchase.launch.group, at, {**purchase.launch.to_dict(), "slices": list(purchase.ids)})


def phases_between(before: Mapping[str, Instance], after: Mapping[str, Instance], at: float) -> Iterator[Entry]:
    """Return the boot phases that machines have begun, such as ``installing torch``."""
    if before is after:
        return
    for name in sorted(diff(before, after).changed):
        old, new = before.get(name), after[name]
        if new.phase and (old is None or old.phase != new.phase):
            yield Entry(PHASE, name, at, {"phase": new.phase, "group": new.group})


def new_slice_id(group: str, stamp: str, number: int) -> str:
    """Return the id of a slice, ``GROUP-STAMP-NUMBER``, in characters that every provider allows in names, tags and
    tokens. The name of the group is cut if the id would be longer than ``LONGEST_ID``.
    """
    suffix = f"-{stamp}-{number}"
    return f"{_UNSAFE.sub('-', group)[: LONGEST_ID - len(suffix)].strip('-.') or 'slice'}{suffix}"
