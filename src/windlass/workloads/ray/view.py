"""This module makes the controller's view of a Ray cluster from its nodes and from what waits. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from windlass.core.model.reasons import seconds
from windlass.core.model.snapshot import Demand
from windlass.workloads.protocol import WorkNode

from . import wire_pb2 as wire
from .demand import PendingShape, groups_of, request_of, take
from .nodes import RayNodes
from .shapes import IMPLICIT, NODE, amount, needs_of
from .waiting import PendingWork, Stuck

OLD_SELECTORS = (2, 49)
"""Versions before this one do not report label selectors."""


@dataclass(frozen=True, slots=True)
class RayView:
    """Demand, requests and nodes in the types of the workload contract."""

    demands: tuple[Demand, ...] = ()
    requests: tuple[Demand, ...] = ()
    nodes: tuple[WorkNode, ...] = ()
    messages: Mapping[str, wire.ResourceRequest | wire.GangResourceRequest] = field(default_factory=dict)
    """The messages of Ray, by the id of the demand."""
    preferring: frozenset[str] = frozenset()
    """Placement groups that are requested with their preferred placement, which is not mandatory."""


def shown(
    state: wire.ClusterResourceState,
    nodes: RayNodes,
    waiting: PendingWork,
    since: Mapping[str, float],
    version: str,
    now: float,
    loose: Collection[str] = (),
) -> RayView:
    """Return the view for the controller. ``since``: when a placement group was first seen. ``loose``: groups whose
    preferred placement is impossible."""
    groups = groups_of(state)
    others = nodes.others()
    request = request_of(state, [(node.total, node.labels) for node in others])
    free = [(dict(node.free), node.labels) for node in others if not node.draining]
    demands = [one for shape in waiting.shapes.values() for one in _demands(shape, nodes, waiting, free, version, now)]
    demands += [one.demand(since.get(one.id, now), as_preferred=one.id not in loose) for one in groups.values()]
    shares = {
        name: amount(name, value)
        for shape in waiting.shapes.values()
        for name, value in shape.resources.items()
        if name.startswith(IMPLICIT)
    }
    messages: dict[str, wire.ResourceRequest | wire.GangResourceRequest] = {}
    messages |= {name: shape.message for name, shape in waiting.shapes.items()}
    messages |= {name: group.message for name, group in groups.items()}
    return RayView(
        tuple(sorted(demands, key=lambda one: one.id)),
        () if request is None else (request,),
        tuple(sorted((node.work_node(shares) for node in nodes.bought()), key=lambda node: node.id)),
        messages,
        frozenset(name for name, one in groups.items() if one.preferred is not None and name not in loose),
    )


def _demands(
    shape: PendingShape,
    nodes: RayNodes,
    waiting: PendingWork,
    free: list[tuple[dict[str, int], Mapping[str, str]]],
    version: str,
    now: float,
) -> Iterator[Demand]:
    """Yield the waiting tasks of one shape that need a machine, and apart from them those that Ray does not place.
    Tasks that fit on free nodes of others are left out."""
    count, since = waiting.counts[shape.id], waiting.since[shape.id]
    named = [name for name in shape.resources if name.startswith(NODE)]
    if named and (there := _node_with(nodes, named)):
        why = f"it may run on {there} only, which Ray has not given it: no other machine can help"
        yield replace(shape.demand(count, since), held=why)
        return
    stuck = waiting.stuck.get(shape.id)
    live = count - (stuck.count if stuck is not None else 0)
    needs, own = needs_of(shape.resources)
    while live and needs and take(free, needs, own, shape.selectors):
        live -= 1
    if live:
        yield shape.demand(live, since)
    if stuck is not None and stuck.count:
        held = replace(shape.demand(stuck.count, since), held=_not_taken(stuck, version, now))
        yield replace(held, id=f"{shape.id} (not taken)") if live else held


def _node_with(nodes: RayNodes, names: list[str]) -> str:
    for node in nodes.alive.values():
        if all(name in node.names for name in names):
            return node.slice_id or node.instance or node.id.hex()[:8]
    return ""


def _not_taken(stuck: Stuck, version: str, now: float) -> str:
    text = f"{stuck.node} has had room for it for {seconds(round(now - stuck.since))} and Ray does not place it"
    if _number(version) < OLD_SELECTORS:
        return f"{text}: a label selector, which Ray {'.'.join(version.split('.')[:2])} does not tell?"
    return f"{text}: an affinity to another node?"


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
