"""This module folds messages about the nodes of a Ray cluster onto the nodes of the last observation. Pure.

A raylet reports whether its node is idle, with one gap: while the worker process of an actor starts, it reports idle.
So a node is also busy while the actor table binds an actor to it that is not dead. The idle time never starts before
the node was first seen: the raylet counts from its own start, which is seconds before it joins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from windlass.core.model.reasons import plural
from windlass.core.model.snapshot import amounts
from windlass.workloads.protocol import WorkNode

from . import wire_pb2 as wire
from .shapes import HEAD, IMPLICIT, amount, counted

DEAD_ACTOR: Final = 4
STEADY: Final = 0.4
"""Seconds by which two readings of the same idle clock may differ."""
PULL: Final = 1.2
"""Seconds within which the GCS has pulled what waits from every raylet: its period of 1 s and the time of the calls."""
_OURS: Final = re.compile(r"(?P<slice>.+)/(?P<host>\d+)")
_NAMED: Final = re.compile(r"(?P<group>.+)-[0-9a-z]{8,}-\d+")
"""The id of a slice: ``GROUP-STAMP-NUMBER``."""
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
"""Characters of a group's name that are ``-`` in the id of a slice."""

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RayNode:
    """One node of the cluster."""

    id: bytes
    slice_id: str
    """Empty: not bought by Windlass."""
    status: int
    total: Mapping[str, int] = field(default_factory=dict)
    free: Mapping[str, int] = field(default_factory=dict)
    labels: Labels = field(default_factory=dict)
    activity: tuple[str, ...] = ()
    """What keeps the node busy, in Ray's words."""
    actors: int = 0
    """How many actors that are not dead are bound to it."""
    raylet: str = ""
    """``HOST:PORT``"""
    is_head: bool = False
    implicit: Mapping[str, int] = field(default_factory=dict)
    """The used part of implicit resources, of which every node has 1."""
    names: frozenset[str] = frozenset()
    """The names of all its resources, as Ray spells them."""
    instance: str = ""
    joined_at: float = 0.0
    found: bool = False
    """Whether the first observation found it: then it joined at an unknown time before ``joined_at``."""
    idle_since: float | None = None
    idle_mark: float | None = None
    """``idle_since`` according to the raylet alone: the earliest reading of this idle time. None: the raylet does not
    report idle."""
    history: tuple[tuple[float, Mapping[str, int]], ...] = ()
    """What it used within the last ``PULL`` seconds: (time, amounts)."""

    @property
    def alive(self) -> bool:
        return self.status != wire.NODE_DEAD

    @property
    def draining(self) -> bool:
        return self.status == wire.NODE_DRAINING

    @property
    def busy(self) -> bool:
        """Whether it must not be drained as idle. A node that has just joined is RUNNING for the GCS, but not busy."""
        running = self.status == wire.NODE_RUNNING and bool(self.used or self.activity)
        return running or self.status == wire.NODE_DRAINING or self.actors > 0

    @property
    def used(self) -> dict[str, int]:
        return {name: has - self.free.get(name, 0) for name, has in self.total.items() if has > self.free.get(name, 0)}

    @property
    def holds(self) -> str:
        """What keeps the node busy, as a sentence; empty: nothing."""
        if self.actors and self.status == wire.NODE_IDLE:
            return f"{plural(self.actors, 'actor')} starting on it"
        if self.status != wire.NODE_RUNNING or not self.activity:
            return ""
        return "; ".join(one.rstrip(".") for one in self.activity) + "."

    def started(self, now: float, pulled: float) -> dict[str, int]:
        """Return how much its usage has grown since the last pull of the GCS: the tasks behind it may still be counted
        as waiting. ``pulled``: the last known pull; the latest one is at most ``PULL`` seconds ago."""
        since = max(pulled, now - PULL)
        seen = [used for at, used in self.history if at > since]
        if self.joined_at > since:
            seen.append({})
        if not seen:
            return {}
        used = self.used
        grown = {name: amount - min(before.get(name, 0) for before in seen) for name, amount in used.items()}
        return {name: amount for name, amount in grown.items() if amount > 0}

    def work_node(self, shares: Mapping[str, int] = MappingProxyType({})) -> WorkNode:
        """Return the node in the type of the workload contract. Ray does not report how many tasks run, so ``tasks`` is
        1 while the node is busy. ``shares``: the part of an implicit resource that one task takes."""
        classes = {name: round(used / shares[name]) for name, used in self.implicit.items() if shares.get(name)}
        return WorkNode(
            classes=tuple(sorted(classes.items())),
            id=self.instance,
            slice_id=self.slice_id,
            used=amounts(self.used),
            tasks=1 if self.busy else 0,
            idle_since=None if self.busy else self.idle_since,
            labels=self.labels,
            present=amounts(dict(self.total)),
            activity="" if self.used else self.holds,
        )


@dataclass(frozen=True, slots=True)
class DeadNode:
    """A node that has ended, with the reason and the message of its end."""

    id: bytes
    slice_id: str
    reason: int
    message: str


@dataclass(frozen=True, slots=True)
class RayNodes:
    """All nodes of the cluster at the last observation."""

    alive: Mapping[bytes, RayNode] = field(default_factory=dict)
    dead: Mapping[bytes, DeadNode] = field(default_factory=dict)

    @property
    def head(self) -> RayNode | None:
        return next((node for node in self.alive.values() if node.is_head), None)

    def of(self, slice_id: str) -> list[RayNode]:
        return [node for node in self.alive.values() if node.slice_id == slice_id]

    def bought(self) -> list[RayNode]:
        return [node for node in self.alive.values() if node.slice_id]

    def others(self) -> list[RayNode]:
        """Return the nodes that Windlass has not bought."""
        return [node for node in self.alive.values() if not node.slice_id]


def fold_nodes(
    before: RayNodes,
    state: wire.ClusterResourceState,
    infos: Iterable[wire.GcsNodeInfo],
    actors: Iterable[wire.ActorTableData],
    groups: Iterable[str],
    now: float,
    refused: Mapping[str, float] = MappingProxyType({}),
    ready: Mapping[str, float] = MappingProxyType({}),
) -> RayNodes:
    """Return the nodes as these messages show them. ``groups``: the node types of Windlass. ``refused``: when the drain
    of a slice was last refused; its idle time starts no earlier. ``ready``: since when slices are READY according to
    the journal, which tells a controller that has just started when they joined."""
    known, bound = {info.node_id: info for info in infos}, bound_actors(actors)
    names = frozenset(groups)
    alive: dict[bytes, RayNode] = {}
    for shown in state.node_states:
        if shown.status == wire.NODE_DEAD:
            continue
        info = known.get(shown.node_id, wire.GcsNodeInfo())
        node = _shown(shown, info, bound, names)
        node = _timed(node, before.alive.get(shown.node_id), shown, now)
        if node.found and node.slice_id in ready:
            node = _since_ready(node, ready[node.slice_id])
        elif not before.alive:
            node = replace(node, found=True)
        floor = refused.get(node.slice_id, 0.0)
        if node.idle_since is not None and node.idle_since < floor:
            node = replace(node, idle_since=floor)
        alive[node.id] = node
    dead = {}
    for info in known.values():
        slice_id = slice_of(info.instance_id, info.node_type_name, names)
        if info.state and slice_id and info.node_id not in alive:
            dead[info.node_id] = DeadNode(
                info.node_id, slice_id, info.death_info.reason, info.death_info.reason_message
            )
    return RayNodes(alive, dead)


def bound_actors(actors: Iterable[wire.ActorTableData]) -> dict[bytes, int]:
    """Return how many actors that are not dead are bound to each node."""
    found: dict[bytes, int] = {}
    for actor in actors:
        if actor.state != DEAD_ACTOR and actor.address.node_id.strip(b"\xff"):
            found[actor.address.node_id] = found.get(actor.address.node_id, 0) + 1
    return found


def slice_of(instance_id: str, node_type: str, groups: frozenset[str]) -> str:
    """Return the slice of a node; empty: it is not ours. The group may have been removed from the configuration while
    its nodes still work; then the id of the slice shows that it was made for a group named like the node type."""
    found = _OURS.fullmatch(instance_id)
    if found is None:
        return ""
    ours = not groups or not node_type or node_type in groups or _is_named_after(found["slice"], node_type)
    return found["slice"] if ours else ""


def _is_named_after(slice_id: str, group: str) -> bool:
    """Return whether an id is one that Windlass gives to slices of this group."""
    found = _NAMED.fullmatch(slice_id)
    return found is not None and found["group"] == _UNSAFE.sub("-", group).strip("-")


def _shown(
    shown: wire.NodeState, info: wire.GcsNodeInfo, bound: Mapping[bytes, int], groups: frozenset[str]
) -> RayNode:
    labels = {**info.labels, **shown.labels, **shown.dynamic_labels}
    is_head = HEAD in shown.total_resources or info.is_head_node
    where = f"{info.node_manager_address}:{info.node_manager_port}" if info.node_manager_port else ""
    return RayNode(
        id=shown.node_id,
        slice_id="" if is_head else slice_of(shown.instance_id, shown.ray_node_type_name, groups),
        status=shown.status,
        total=counted(shown.total_resources),
        free=counted(shown.available_resources),
        labels=labels,
        activity=tuple(shown.node_activity),
        actors=bound.get(shown.node_id, 0),
        raylet=where,
        is_head=is_head,
        implicit={
            name: 1000 - amount(name, free)
            for name, free in shown.available_resources.items()
            if name.startswith(IMPLICIT) and free < 1
        },
        names=frozenset(shown.total_resources),
        instance=shown.instance_id,
    )


def _timed(node: RayNode, before: RayNode | None, shown: wire.NodeState, now: float) -> RayNode:
    """Return the node with the times that depend on the last observation."""
    if before is None:
        node = replace(node, joined_at=now)
    else:
        node = replace(node, joined_at=before.joined_at, found=before.found)
    history = () if before is None else (*before.history, (now, before.used))
    kept = tuple((at, used) for at, used in history if now - at <= PULL)
    mark = now - shown.idle_duration_ms / 1000 if node.status == wire.NODE_IDLE else None
    node = replace(node, history=kept, idle_mark=mark)
    node = replace(node, idle_since=_idle_since(node, before, now))
    earlier = None if before is None else before.idle_mark
    if mark is not None and earlier is not None and _agree(mark, earlier):
        # The earliest reading is kept: otherwise a stream of short tasks would never restart the idle time.
        node = replace(node, idle_mark=min(mark, earlier))
    return node


def _agree(mark: float, earlier: float) -> bool:
    """Return whether two readings of a raylet's idle clock agree: nothing has run between them."""
    return mark <= earlier + STEADY


def _idle_since(node: RayNode, before: RayNode | None, now: float) -> float | None:
    if node.busy:
        return None
    since = max(node.joined_at, now if node.idle_mark is None else node.idle_mark)
    if before is None:
        return node.joined_at
    if before.idle_since is None:
        # If the raylet reported idle before, only an actor kept the node busy, and the raylet did not count its time.
        return now if before.status == wire.NODE_IDLE else since
    if before.idle_mark is None or node.idle_mark is None or _agree(node.idle_mark, before.idle_mark):
        return before.idle_since
    return since


def _since_ready(node: RayNode, ready: float) -> RayNode:
    """Return a node of the first observation with the time at which its slice became READY. If it has been idle since
    that observation, its idle time is the raylet's, but not from before it was READY."""
    joined, idle = min(ready, node.joined_at), node.idle_since
    if idle is not None and node.idle_mark is not None and idle <= node.joined_at:
        idle = min(idle, max(joined, node.idle_mark))
    return replace(node, joined_at=joined, found=False, idle_since=idle)
