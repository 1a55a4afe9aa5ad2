"""This module keeps spare machines with accelerators for work that needs them, while another group can serve the
other work.
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
    devices = list(draft.kinds.devices)
    groups &= (draft.totals[:, devices] > 0).any(axis=1)
    if not groups.any():
        return np.zeros(0, np.bool_), groups
    offers = draft.offers
    free = groups[offers.group] & offers.open & (offers.tier < NEW_TIER)
    free &= (offers.room.free == offers.room.total).all(axis=1)
    kept, found = np.zeros(len(offers), np.bool_), np.zeros(len(groups), np.bool_)
    for scope in holding:
        mine = np.flatnonzero(free & np.isin(offers.group, scope.groups))
        positions, first, hosts = np.unique(offers.position[mine], return_index=True, return_counts=True)
        whole = positions[hosts == draft.hosts[offers.group[mine[first]]]].tolist()
        tier = {int(p): int(offers.tier[row]) for p, row in zip(offers.position[mine], mine, strict=True)}
        spares = sorted(whole, key=lambda p: (tier[p], p))[: scope.spare]
        rows = np.isin(offers.position, spares)
        kept |= rows
        found[offers.group[rows]] = True
    return kept, found


@contextmanager
def closed(draft: PlanDraft, rows: Bools) -> Iterator[None]:
    """Offers nothing on these rows inside this context."""
    offers, count = draft.offers, len(rows)
    before = offers.open[:count].copy()
    offers.open[:count] &= ~rows
    try:
        yield
    finally:
        offers.open[:count] = before
