"""Bundles that the GCS has placed while their node does not show it yet. Pure.

When the GCS places a group, the group waits no longer, and its nodes carry its label at once. What a node uses follows
from its raylet a moment later. In between its room looks free: a plan that counts with it cancels a machine which it
orders again a second later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from windlass.core.model.snapshot import Amounts, Gang

from . import wire_pb2 as wire
from .demand import GROUP, PlacementGroup
from .nodes import PULL, RayNode, RayNodes

LABEL = "_PG_"
"""Begins the label of a node on which bundles of a placement group lie."""


@dataclass(frozen=True, slots=True)
class LastWaited:
    """A placement group, and when it was last seen waiting."""

    group: PlacementGroup
    at: float


def fold_groups(
    before: Mapping[str, LastWaited], groups: Mapping[str, PlacementGroup], now: float
) -> Mapping[str, LastWaited]:
    """Return the groups that wait, and those that waited until a moment ago."""
    kept = {name: one for name, one in before.items() if now - one.at <= PULL}
    return {**kept, **{name: LastWaited(group, now) for name, group in groups.items()}}


def with_placed_bundles(nodes: RayNodes, waited: Mapping[str, LastWaited], now: float) -> RayNodes:
    """Return the nodes with the bundles that they are about to show."""
    alive = dict(nodes.alive)
    for name, one in waited.items():
        if one.at == now:
            continue
        pg_id = name.removeprefix(GROUP)
        there = [node for node in alive.values() if f"{LABEL}{pg_id}" in node.labels]
        shown = {node.id: _shown(node, pg_id) for node in there}
        late = [node.id for node in there if not shown[node.id]]
        missing = _missing(one.group, sum(shown.values()))
        for number, needs in enumerate(missing if late else ()):
            place = late[number % len(late)] if one.group.gang is Gang.SPREAD else _with_room(alive, late, needs)
            alive[place] = _using(alive[place], needs)
    return replace(nodes, alive=alive)


def _shown(node: RayNode, pg_id: str) -> int:
    """Return how many bundles of a group a node shows among its resources, as ``CPU_group_INDEX_ID``."""
    found = (re.search(rf"_group_(\d+)_{pg_id}$", name) for name in node.names)
    return len({match[1] for match in found if match})


def _missing(group: PlacementGroup, shown: int) -> list[Amounts]:
    return [needs for needs, _, _, count in group.bundles for _ in range(count)][shown:]


def _with_room(alive: Mapping[bytes, RayNode], late: list[bytes], needs: Amounts) -> bytes:
    fitting = (name for name in late if all(alive[name].free.get(kind, 0) >= amount for kind, amount in needs))
    return next(fitting, late[0])


def _using(node: RayNode, needs: Amounts) -> RayNode:
    free = {**node.free, **{kind: max(0, node.free.get(kind, 0) - amount) for kind, amount in needs}}
    return replace(node, free=free, status=wire.NODE_RUNNING, idle_since=None)
