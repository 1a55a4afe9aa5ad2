"""This module copies the decisions of one draft into another draft with other slices."""

from __future__ import annotations

import numpy as np

from windlass.core.capacity.room import Ints

from .plan_draft import PlanDraft


def copy_decisions(other: PlanDraft, draft: PlanDraft, place: Ints, hidden: set[int]) -> None:
    """Copies the decisions of ``other`` into ``draft``.

    ``place``: for each slice of ``other`` its position in ``draft``, or -1 if ``draft`` does not have it. ``hidden``:
    slices of ``draft`` that offer nothing in ``other``.
    """
    draft.decisions = other.decisions.moved(place)
    draft.requested = {int(place[p]) for p in other.requested}
    draft.recalled = {int(place[p]): code for p, code in other.recalled.items()}
    offers, source = draft.offers, other.offers
    kept = ~np.isin(offers.position, np.array(sorted(hidden), np.int64))
    count = int(kept.sum())
    offers.tier[kept] = source.tier[:count]
    offers.room.put(np.flatnonzero(kept), source.room.rows(np.arange(count)))
    if offers.classes is not None and source.classes is not None:
        offers.classes.put(np.flatnonzero(kept), source.classes, np.arange(count))
    new = np.arange(count, len(source))
    new = new[place[source.position[new]] >= 0]
    target = place[source.position[new]]
    in_stock = target < len(draft.slices)
    rows_of: dict[int, list[int]] = {}
    for row in np.flatnonzero(~kept).tolist():
        rows_of.setdefault(int(offers.position[row]), []).append(row)
    loaded = [rows_of[int(position)].pop(0) for position in target[in_stock]]
    if loaded:
        offers.room.put(np.array(loaded), source.room.rows(new[in_stock]))
        if offers.classes is not None and source.classes is not None:
            offers.classes.put(np.array(loaded), source.classes, new[in_stock])
    rest = new[~in_stock]
    offers.adopt(source, rest, target[~in_stock])
