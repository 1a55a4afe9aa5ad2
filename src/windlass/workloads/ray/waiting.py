"""This module computes what really waits: the counts of the GCS, corrected by newer information. Pure.

The GCS pulls what waits from the raylets once a second, so its counts can be a second old while what a node uses is
not. Three corrections follow. The head's raylet shows at once what its drivers submit. What a node has just
started is taken off what other raylets had queued. And tasks for which a node has had room for a long time, but which
Ray does not place there, wait for something that no machine can give.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from .demand import PendingShape, matches
from .nodes import PULL, RayNode, RayNodes
from .shapes import needs_of

NOT_TAKEN_AFTER: Final = 10.0
"""Seconds for which a node must have had room before a task that Ray does not place there buys nothing more."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """One shape, as the two sources last showed it."""

    gcs: int
    head: int | None
    """None: the head's raylet has not answered yet."""
    basis: int
    """How many of the head's the GCS had when it last pulled. It stays when they leave the head: tasks that come back
    to it, because their node has died, are the same ones."""
    head_changed: float
    gcs_changed: float


@dataclass(frozen=True, slots=True)
class Stuck:
    """Tasks of a shape that Ray does not place although a node has room."""

    count: int
    node: str
    since: float
    """Since when that node has had room."""


@dataclass(frozen=True, slots=True)
class PendingWork:
    """What waits, and what must be kept to work it out next time."""

    counts: Mapping[str, int] = field(default_factory=dict)
    stuck: Mapping[str, Stuck] = field(default_factory=dict)
    since: Mapping[str, float] = field(default_factory=dict)
    shapes: Mapping[str, PendingShape] = field(default_factory=dict)
    _seen: Mapping[str, _Seen] = field(default_factory=dict)
    _room: Mapping[str, Mapping[bytes, float]] = field(default_factory=dict)


def fold_waiting(
    before: PendingWork,
    gcs: Mapping[str, PendingShape],
    head: Mapping[str, PendingShape] | None,
    nodes: RayNodes,
    now: float,
) -> PendingWork:
    """Return what waits now. ``head``: what the head's raylet shows; None: it could not be asked."""
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
    _take_off_started(counts, stale, shapes, nodes, now)
    counts = {name: count for name, count in counts.items() if count}
    shapes = {name: shapes[name] for name in counts}
    since = {name: before.since.get(name, now) for name in counts}
    room = {name: _rooms(shape, nodes, before._room.get(name, {}), now) for name, shape in shapes.items()}
    stuck = {
        name: found
        for name, count in counts.items()
        if (found := _stuck(before.stuck.get(name), count, room[name], nodes, now)) is not None
    }
    return PendingWork(counts, stuck, since, shapes, seen, room)


def _compared(before: _Seen | None, gcs: int, head: int | None, now: float) -> _Seen:
    """Return one shape by both sources. What is new at the head counts at once, until the GCS has had the time to pull
    it. What is no longer there may have started, or wait at another raylet now: the GCS will show it.

    When the head's raylet answers for the first time, the GCS has what waits there already, as far as its count goes:
    a controller that has just started must not count the same tasks twice.
    """
    if head is None and before is not None:
        head = before.head
    if before is None or before.head is None or head is None:
        return _Seen(gcs, head, min(gcs, head or 0), now, now - PULL if before is None else before.gcs_changed)
    basis, changed = before.basis, before.head_changed if head == before.head else now
    pulled = before.gcs_changed if gcs == before.gcs else now
    if pulled == now or now - changed > PULL:
        basis = head
    return _Seen(gcs, head, basis, changed, pulled)


def _take_off_started(
    counts: dict[str, int], stale: Mapping[str, float], shapes: Mapping[str, PendingShape], nodes: RayNodes, now: float
) -> None:
    """Take off what nodes have started since the GCS was last seen to have pulled."""
    taken: dict[bytes, dict[str, int]] = {}
    for name, pulled in stale.items():
        needs, _ = needs_of(shapes[name].resources)
        for node in nodes.alive.values():
            if not needs or not counts[name]:
                break
            grown, gone = node.started(now, pulled), taken.setdefault(node.id, {})
            room = [(grown.get(kind, 0) - gone.get(kind, 0)) // amount for kind, amount in needs]
            times = max(0, min(counts[name], *room))
            counts[name] -= times
            for kind, amount in needs:
                gone[kind] = gone.get(kind, 0) + times * amount


def _rooms(shape: PendingShape, nodes: RayNodes, before: Mapping[bytes, float], now: float) -> dict[bytes, float]:
    """Return since when each node has had room for one more of a shape."""
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
    """The head without processors takes actors that need nothing only if they may lie there; it is never the proof."""
    return not node.is_head or any(name in node.total for name in ("cpu", "gpu"))


def _stuck(before: Stuck | None, count: int, room: Mapping[bytes, float], nodes: RayNodes, now: float) -> Stuck | None:
    """Return what is stuck. It stays so until Ray takes some of it, also when the node that had room is gone."""
    if before is not None:
        return Stuck(min(before.count, count), before.node, before.since)
    node_id = min(room, key=lambda one: room[one], default=None)
    if node_id is None or now - room[node_id] < NOT_TAKEN_AFTER:
        return None
    node = nodes.alive[node_id]
    return Stuck(count, node.slice_id or node.instance or node_id.hex()[:8], room[node_id])
