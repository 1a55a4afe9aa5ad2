"""This module keeps spare machines with accelerators for work that needs them, while another group can serve the
other work. With the option ``spares_last`` it keeps all spare machines, whatever the work needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from windlass.core.capacity.offers import NEW_TIER
from windlass.core.capacity.room import Bools
from windlass.core.plan_draft import PlanDraft


def kept_spares(draft: PlanDraft) -> tuple[Bools, Bools]:
    """Returns the rows of free slices that are kept, as many as their groups hold as spares, and these groups."""
    holding = [scope for scope in draft.snapshot_tables.scopes if scope.spare]
    groups = np.zeros(len(draft.groups), np.bool_)
    for scope in holding:
        groups[list(scope.groups)] = True
    if not draft.options.spares_last:
        groups &= (draft.totals[:, list(draft.kinds.devices)] > 0).any(axis=1)
    if not groups.any():
        return np.zeros(0, np.bool_), groups
    offers = draft.offers
    free = groups[offers.group] & offers.open & (offers.tier < NEW_TIER) & _unused(draft)
    kept, found = np.zeros(len(offers), np.bool_), np.zeros(len(groups), np.bool_)
    for scope in holding:
        mine = np.flatnonzero(free & np.isin(offers.group, scope.groups))
        positions, first, hosts = np.unique(offers.position[mine], return_index=True, return_counts=True)
        whole = positions[hosts == draft.hosts[offers.group[mine[first]]]].tolist()
        whole = [p for p in whole if not draft.busy(p)]  # a task that uses nothing known makes it busy too
        tier = {int(p): int(offers.tier[row]) for p, row in zip(offers.position[mine], mine, strict=True)}
        whole.sort(key=lambda p: (tier[p], p), reverse=draft.options.spares_last)
        spares = whole[: scope.spare]
        rows = np.isin(offers.position, spares)
        kept |= rows
        found[offers.group[rows]] = True
    return kept, found


def _unused(draft: PlanDraft) -> Bools:
    """Returns the rows on which nothing is used."""
    room = draft.offers.room
    unused: Bools = (room.free == room.total).all(axis=1)
    return unused


@contextmanager
def closed(draft: PlanDraft, rows: Bools) -> Iterator[None]:
    """Offers nothing on these rows inside this context, except where other work has been placed already."""
    offers, count = draft.offers, len(rows)
    before = offers.open[:count].copy()
    offers.open[:count] &= ~(rows & _unused(draft)[:count])
    try:
        yield
    finally:
        offers.open[:count] = before
