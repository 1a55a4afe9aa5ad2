"""This module computes what waits now: it corrects the counts of the GCS by newer information. Pure.

The GCS pulls what waits from the raylets once a second, so its counts can be a second older than what it shows of the
nodes. There are four corrections:

- The head's raylet shows at once what its drivers submit.
- Tasks that a node has just started are subtracted from what other raylets had queued.
- Tasks for which a node has had room for 10 s, but which Ray does not place there, are stuck: no machine can help.
- When the GCS places a placement group, the group no longer waits and its nodes carry its label, but what the nodes use
  shows up to a second later. Until then the bundles are counted as used. If their room looked free, a plan would cancel
  a machine and order it again a second later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from windlass.core.model.snapshot import Amounts, Gang

from . import wire_pb2 as wire
from .demand import GROUP, PendingShape, PlacementGroup, matches
from .nodes import PULL, RayNode, RayNodes
from .shapes import needs_of

NOT_TAKEN_AFTER: Final = 10.0
"""Seconds for which a node must have had room before a task that Ray does not place there buys nothing more."""
COMING_BACK: Final = 5.0
"""Seconds within which stuck tasks that Ray has stopped to count may be counted again."""
GROUP_LABEL: Final = "_PG_"
"""Prefix of the label of a node that has bundles of a placement group."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """The counts of one shape, as the GCS and the head's raylet last showed them."""

    gcs: int
    head: int | None
    """None: the head's raylet has not answered yet."""
    basis: int
    """How many of the head's tasks the GCS counted at its last pull. It does not fall when tasks leave the head: tasks
    that come back because their node has died are the same ones."""
    head_changed: float
    gcs_changed: float
    fell: tuple[int, float] = (0, 0.0)
    """The head's count before it last fell, and when it fell: a pull that is shown later may still contain it."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """Tasks of a shape that Ray does not place although a node has room."""

    count: int
    node: str
    since: float
    """Since when that node has had room."""
    others: int = 0
    """How many more of the shape wait; they are not stuck yet."""
    others_since: float = 0.0
    """Since when there are so many others."""
    fell: tuple[int, float] = (0, 0.0)
    """The count before it last fell, and when it fell."""


@dataclass(frozen=True, slots=True)
class PendingWork:
    """What waits, and the state that the next fold needs."""

    counts: Mapping[str, int] = field(default_factory=dict)
    stuck: Mapping[str, Stuck] = field(default_factory=dict)
    since: Mapping[str, float] = field(default_factory=dict)
    shapes: Mapping[str, PendingShape] = field(default_factory=dict)
    _seen: Mapping[str, _Seen] = field(default_factory=dict)
    _room: Mapping[str, Mapping[bytes, float]] = field(default_factory=dict)
    uncertain: bool = False
    """Whether tasks may be counted that already run: they run on a node that the first observation found, and nothing
    shows yet whether the GCS has pulled since they started. This lasts for at most ``PULL`` seconds."""


def fold_waiting(
    before: PendingWork,
    gcs: Mapping[str, PendingShape],
    head: Mapping[str, PendingShape] | None,
    nodes: RayNodes,
    now: float,
) -> PendingWork:
    """Return what waits now. ``head``: what the head's raylet shows; None: it did not answer."""
    seen, counts, stale = dict[str, _Seen](), dict[str, int](), dict[str, float]()
    for name in sorted({*gcs, *(head or {}), *before._seen}):
        at_gcs = gcs[name].count if name in gcs else 0
        at_head = None if head is None else head[name].count if name in head else 0
        one = _compared(before._seen.get(name), at_gcs, at_head, now)
        counts[name] = one.gcs + (one.head or 0) - min(one.basis, one.head or 0)
        if one.gcs or one.head:
            seen[name] = one
        if one.gcs != one.head:
            stale[name] = one.gcs_changed
    shapes = {**before.shapes, **(head or {}), **gcs}
    uncertain = _subtract_started(counts, stale, shapes, nodes, now)
    counts = {name: count for name, count in counts.items() if count}
    shapes = {name: shapes[name] for name in counts}
    since = {name: before.since.get(name, now) for name in counts}
    room = {name: _rooms(shape, nodes, before._room.get(name, {}), now) for name, shape in shapes.items()}
    stuck = {
        name: found
        for name, count in counts.items()
        if (found := _stuck(before.stuck.get(name), count, room[name], nodes, now)) is not None
    }
    return PendingWork(counts, stuck, since, shapes, seen, room, uncertain)


def _compared(before: _Seen | None, gcs: int, head: int | None, now: float) -> _Seen:
    """Return the counts of one shape. New tasks at the head count at once, until the GCS has had time to pull them.
    Tasks that have left the head run, or wait at another raylet: the GCS will show them.

    When the head's raylet answers for the first time, its tasks are taken to be among those that the GCS counts: a
    controller that has just started must not count the same tasks twice.
    """
    if head is None and before is not None:
        head = before.head
    if before is None or before.head is None or head is None:
        return _Seen(gcs, head, min(gcs, head or 0), now, now - PULL if before is None else before.gcs_changed)
    basis, changed = before.basis, before.head_changed if head == before.head else now
    pulled = before.gcs_changed if gcs == before.gcs else now
    fell = (before.head, now) if head < before.head else before.fell
    if now - changed > PULL:
        basis = head
    elif pulled == now:
        basis = max(head, fell[0] if now - fell[1] <= PULL else 0)
    return _Seen(gcs, head, basis, changed, pulled, fell)


def _subtract_started(
    counts: dict[str, int], stale: Mapping[str, float], shapes: Mapping[str, PendingShape], nodes: RayNodes, now: float
) -> bool:
    """Subtract the tasks that nodes have started since the last known pull of the GCS. Return whether a task may have
    been subtracted that has run for longer."""
    taken: dict[bytes, dict[str, int]] = {}
    uncertain = False
    for name, pulled in stale.items():
        needs, _ = needs_of(shapes[name].resources)
        for node in nodes.alive.values():
            if not needs or not counts[name]:
                break
            grown, gone = node.started(now, pulled), taken.setdefault(node.id, {})
            room = [(grown.get(kind, 0) - gone.get(kind, 0)) // amount for kind, amount in needs]
            times = max(0, min(counts[name], *room))
            counts[name] -= times
            uncertain = uncertain or (times > 0 and node.found and node.joined_at > now - PULL)
            for kind, amount in needs:
                gone[kind] = gone.get(kind, 0) + times * amount
    return uncertain


def _rooms(shape: PendingShape, nodes: RayNodes, before: Mapping[bytes, float], now: float) -> dict[bytes, float]:
    """Return since when each node has had room for one more task of a shape."""
    needs, own = needs_of(shape.resources)
    return {
        node.id: before.get(node.id, now)
        for node in nodes.alive.values()
        if not node.draining
        and all(node.free.get(name, 0) >= amount for name, amount in needs)
        and matches(own, shape.selectors, node.labels)
        and _is_place(node)
    }


def _is_place(node: RayNode) -> bool:
    """Return whether free room on a node shows that Ray refuses to place a task there. Room on a head without
    processors does not: it takes only actors that need nothing."""
    return not node.is_head or any(name in node.total for name in ("cpu", "gpu"))


def _stuck(before: Stuck | None, count: int, room: Mapping[bytes, float], nodes: RayNodes, now: float) -> Stuck | None:
    """Return the tasks of a shape that are stuck. They stay stuck until Ray places some, even when the node that had
    room is gone. When that node ends, Ray counts fewer for a moment: the same ones come back. Others of the shape are
    stuck, too, when a node has had room for them for as long: in Ray 2.48 one task with a selector that no node matches
    stops all tasks of its shape that wait at the same raylet."""
    held = 0 if before is None else _still_stuck(before, count, now)
    others = count - held
    since = before.others_since if before is not None and before.others == others else now
    node_id = min(room, key=lambda one: room[one], default=None)
    if node_id is not None and others:
        begun = room[node_id] if before is None else max(room[node_id], since)
        if now - begun >= NOT_TAKEN_AFTER:
            node = nodes.alive[node_id]
            return Stuck(count, node.slice_id or node.instance or node_id.hex()[:8], begun)
    if before is None:
        return None
    fell = (before.count, now) if held < before.count else before.fell
    return Stuck(held, before.node, before.since, others, since, fell)


def _still_stuck(before: Stuck, count: int, now: float) -> int:
    """Return how many tasks are still stuck, of so many that wait."""
    most, at = before.fell
    held = max(before.count, most) if now - at <= COMING_BACK else before.count
    return min(held, count)


@dataclass(frozen=True, slots=True)
class LastWaited:
    """A placement group, and when it was last seen waiting."""

    group: PlacementGroup
    at: float


def fold_groups(
    before: Mapping[str, LastWaited], groups: Mapping[str, PlacementGroup], now: float
) -> Mapping[str, LastWaited]:
    """Return the placement groups that wait, and those that waited within the last ``PULL`` seconds."""
    kept = {name: one for name, one in before.items() if now - one.at <= PULL}
    return {**kept, **{name: LastWaited(group, now) for name, group in groups.items()}}


def with_placed_bundles(nodes: RayNodes, waited: Mapping[str, LastWaited], now: float) -> RayNodes:
    """Return the nodes with bundles that the GCS has placed and the nodes do not show yet."""
    alive = dict(nodes.alive)
    for name, one in waited.items():
        if one.at == now:
            continue
        pg_id = name.removeprefix(GROUP)
        there = [node for node in alive.values() if f"{GROUP_LABEL}{pg_id}" in node.labels]
        shown = {node.id: _shown_bundles(node, pg_id) for node in there}
        late = [node.id for node in there if not shown[node.id]]
        missing = _missing(one.group, sum(shown.values()))
        for number, needs in enumerate(missing if late else ()):
            place = late[number % len(late)] if one.group.gang is Gang.SPREAD else _with_room(alive, late, needs)
            alive[place] = _using(alive[place], needs)
    return replace(nodes, alive=alive)


def _shown_bundles(node: RayNode, pg_id: str) -> int:
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
