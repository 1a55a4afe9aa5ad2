"""Moving: whether what runs on a node could run elsewhere. Only peers that evict ask for that."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from windlass.core.capacity.offers import READY_TIER
from windlass.core.capacity.room import Need, Room
from windlass.core.model.quantities import DEVICE
from windlass.core.model.snapshot import Group, Slice

from .peer import Sight


def utilization(group: Group, item: Slice) -> float:
    """The share that is used: of the GPUs where there are any, else the larger of cpu and memory."""
    has = dict(group.resources)
    kinds = ("gpu",) if has.get("gpu") else ("cpu", "memory")
    used = {kind: sum(dict(node.used).get(kind, 0) for node in item.nodes) for kind in kinds}
    return max((used[kind] / (has[kind] * group.hosts) for kind in kinds if has.get(kind)), default=0.0)


def moved(sight: Sight, item: Slice, gone: Collection[str]) -> str | None:
    """The running slice that takes all that runs on a node, and has less room afterwards; None: there is none.

    Which task needs what is not known any more, so all of it stays together, on a node with the same labels.
    """
    need = _work(sight, item)
    if need is None:
        return None
    draft, offers = sight.draft, sight.draft.offers
    rows = np.flatnonzero(offers.open & (offers.tier == READY_TIER) & (offers.room.capacity(need) > 0))
    old = _group(sight, item)
    names = {int(row): draft.slices[int(offers.position[row])] for row in rows}
    may = [
        row
        for row, other in names.items()
        if other.id != item.id and other.id not in gone and _looks_alike(old, _group(sight, other))
    ]
    if not may:
        return None
    left = offers.room.left_share(need, np.array(may, np.int64))
    best = min(range(len(may)), key=lambda index: (not names[may[index]].busy, float(left[index]), may[index]))
    offers.room.take(need, np.array([may[best]]), np.ones(1, np.int64))
    return names[may[best]].id


def cheaper(sight: Sight, item: Slice) -> str | None:
    """The cheapest group that holds all that runs on a node, for less than the node costs."""
    need, old = _work(sight, item), _group(sight, item)
    if need is None or old.price is None:
        return None
    fits = Room.fresh(sight.draft.kinds, sight.draft.totals).capacity(need)
    found = [
        (group.price, group.name)
        for index, group in enumerate(sight.draft.groups)
        if fits[index] and group.price is not None and group.price < old.price and _looks_alike(old, group)
    ]
    return min(found)[1] if found else None


def _work(sight: Sight, item: Slice) -> Need | None:
    if len(item.nodes) != 1 or not item.nodes[0].used:
        return None
    used = dict(item.nodes[0].used)
    if used.get("gpu", 0) > DEVICE:
        used["gpu"] = -(-used["gpu"] // DEVICE) * DEVICE
    return Need.of(used, sight.draft.kinds)


def _group(sight: Sight, item: Slice) -> Group:
    return next(group for group in sight.draft.groups if group.name == item.group)


def _looks_alike(old: Group, new: Group) -> bool:
    labels = new.node_labels()
    return all(labels.get(key) == value for key, value in old.node_labels().items()) and new.taints == old.taints
