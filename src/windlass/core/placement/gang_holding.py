"""This module decides which slices are held for a gang that cannot start as a whole yet."""

from __future__ import annotations

import numpy as np

from windlass.core.model.plan import Waiting
from windlass.core.model.reasons import IMPOSSIBLE, TRANSIENT, Code
from windlass.core.model.snapshot import Demand, Gang
from windlass.core.plan_draft import PlanDraft

from .gang_attempt import try_of
from .gang_slices import usable_positions
from .gangs import serve_whole


def holds_what_it_would_use(draft: PlanDraft, gang: Demand, waiting: Waiting) -> bool:
    """Whether slices are held for a gang that waits: until its deadline, or while some blocker of any group will pass
    with time.

    Not only the nearest blocker counts: a frozen group must not make the gang lose the slices that it waits with.
    """
    if waiting.reason.code in IMPOSSIBLE or waiting.reason.code == Code.NO_SHAPE_FITS:
        return False
    if gang.deadline is not None or any(reason.code in TRANSIENT for reason in waiting.groups.values()):
        return True
    return any(draft.limits.ending) and _starts_later(draft, gang)


def _starts_later(draft: PlanDraft, gang: Demand) -> bool:
    """Whether a gang could start after time has passed: ending slices count for limits until they are confirmed
    gone."""
    with draft.limits.later():
        before = draft.checkpoint(draft.offers)
        if serve_whole(draft, draft.offers, gang, Code.DEMAND) is None:
            return False
        draft.rollback(before)
    return True


def serve_partly(draft: PlanDraft, demand: Demand) -> set[int]:
    """Returns slices of the snapshot that members of a gang would use now, although it cannot start whole."""
    return {position for position in members_places(draft, demand) if position < len(draft.slices)}


def members_places(draft: PlanDraft, demand: Demand) -> set[int]:
    """Returns slices, purchases of this plan included, that members of a gang would use although it cannot start
    whole."""
    attempt = try_of(draft, draft.offers, demand, Code.DEMAND)
    table, positions = draft.offers, set[int]()
    checkpoint = draft.checkpoint(table)
    if demand.gang == Gang.SAME_SLICE:
        positions = usable_positions(attempt)
    elif demand.gang != Gang.SAME_NODE:
        on_them = np.zeros(len(table), np.bool_)
        for one in attempt.tasks:
            if demand.gang == Gang.SPREAD:
                taken = table.place_apart(one.need, one.selector, one.count, on_them)
                on_them[taken.rows] = True
            else:
                taken = table.place(one.need, one.selector, one.count)
            positions |= set(table.position[taken.rows].tolist())
    draft.rollback(checkpoint)
    return positions
