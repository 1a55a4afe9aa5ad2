"""A TaskGang is a set of tasks that start all at once or not at all, know their rank and their head, and end
together.

Members are placed together on free slots, with ranks in the order of the nodes, so that consecutive ranks share a node.
A gang that loses a member starts again as a whole, and that costs one retry: its members wait for each other, so the
remaining ones would hang. A gang whose member raises ends as a whole, for the same reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from windlass._free_port import free_port
from windlass.core.capacity.node_room import TakenRoom
from windlass.pool.errors import NodeLost, TaskError
from windlass.pool.transport.serialization import ItemResult

from .class_limits import ClassLimits
from .nodes import PoolNode, Slot
from .tasks import Kind, OnFinished, ScheduledTask, TaskPlacement

FIRST_PORT: Final = 29500
"""The default port of torch's rendezvous. A gang whose head is on another machine uses one of the thousand ports from
it.
"""


class GangFailed(TaskError):
    """Another member of the gang failed, and so this one was ended."""


@dataclass(eq=False, slots=True)
class TaskGang:
    """A gang. Member number 0 runs on the head."""

    name: str
    spread: bool
    """Whether each member must be on a different node."""
    since: float
    members: list[ScheduledTask] = field(default_factory=list)
    used: int = 0
    """Retries that have been used."""
    calls: dict[str, TaskPlacement] = field(default_factory=dict)
    """The calls of members that have not ended."""
    results: dict[int, ItemResult] = field(default_factory=dict)
    """The outcomes of members that have ended, by rank."""
    failure: str = ""
    """The first failure."""

    @property
    def kind(self) -> Kind:
        return self.members[0].kind

    @property
    def number(self) -> int:
        return self.members[0].number

    def forget_run(self) -> None:
        """Reset the gang for another start."""
        self.results, self.failure = {}, ""


Place = tuple[PoolNode, Slot, TakenRoom]


def places_for(gang: TaskGang, nodes: Iterable[PoolNode], limits: ClassLimits | None = None) -> list[Place] | None:
    """Find and reserve a free slot for each member, in rank order. Return None, and reserve nothing, if that is not
    possible.
    """
    free = {
        node: list(node.free_slots())
        for node in nodes
        if node.accepts(gang.kind) and not any(node.id in member.lost_on for member in gang.members)
    }
    found: list[Place] = []

    def take(node: PoolNode) -> bool:
        taken = node.room.take(gang.kind.needs)
        if taken is not None:
            found.append((node, free[node].pop(0), taken))
        return taken is not None

    if _share_out(gang, {node: len(slots) for node, slots in free.items()}, limits and limits.copy(), take):
        if limits is not None:
            for node, _, _ in found:
                limits.add(node, gang.kind)
        return found
    for node, _, taken in found:
        node.room.give(taken)
    return None


def fits_when_empty(gang: TaskGang, nodes: Iterable[PoolNode], limits: ClassLimits | None = None) -> bool:
    """Return whether the existing nodes could hold the gang if nothing ran on them: then it waits for them."""
    places = {}
    for node in nodes:
        if node.accepts(gang.kind):
            total = dict(node.group.resources)
            by_room = min(total[name] // amount for name, amount in gang.kind.needs if amount)
            places[node] = min(by_room, len(node.slots))
    return _share_out(gang, places, limits and limits.empty(), lambda _: True)


def _share_out(
    gang: TaskGang, places: dict[PoolNode, int], limits: ClassLimits | None, take: Callable[[PoolNode], bool]
) -> bool:
    """Assign a node to every member; return whether all have one. ``take`` reserves room for one member, and returns
    whether the node had it. Rules between tasks may need several rounds: one member in each zone, then another.
    """
    left, missing, moved = dict(places), len(gang.members), True
    while missing and moved:
        moved = False
        for node in places:
            while missing and left[node] and (limits is None or limits.allow(node, gang.kind)):
                if not take(node):
                    left[node] = 0
                    break
                missing, moved = missing - 1, True
                left[node] = 0 if gang.spread else left[node] - 1
                if limits is not None:
                    limits.add(node, gang.kind)
    return not missing


def environments(gang: TaskGang, places: list[Place]) -> list[dict[str, str]]:
    """Return the environment variables of each member, under the names that torch reads and under those of Windlass."""
    found = rank_environments([node for node, _, _ in places], gang.number)
    return [{**one, "WINDLASS_GANG": gang.name} for one in found]


def rank_environments(nodes: Sequence[PoolNode], number: int) -> list[dict[str, str]]:
    """Return the environment variables of processes that work together, by rank, one for each node. ``number`` selects
    a port.
    """
    head = nodes[0].facts.address
    size, port = str(len(nodes)), str(head_port(head, number))
    on_node: dict[str, int] = {}
    for node in nodes:
        on_node[node.id] = on_node.get(node.id, 0) + 1
    order = list(on_node)
    local: dict[str, int] = {}
    found = []
    for rank, node in enumerate(nodes):
        local_rank = local.get(node.id, 0)
        local[node.id] = local_rank + 1
        found.append(
            {
                "RANK": str(rank),
                "WORLD_SIZE": size,
                "LOCAL_RANK": str(local_rank),
                "LOCAL_WORLD_SIZE": str(on_node[node.id]),
                "NODE_RANK": str(order.index(node.id)),
                "MASTER_ADDR": head,
                "MASTER_PORT": port,
                "WINDLASS_RANK": str(rank),
                "WINDLASS_WORLD_SIZE": size,
                "WINDLASS_HEAD": head,
            }
        )
    return found


def head_port(address: str, number: int) -> int:
    """Return a port on the head; a free one if the head is this machine."""
    with suppress(OSError):
        return free_port(address)
    return FIRST_PORT + number % 1000


def ended(gang: TaskGang, on_finished: OnFinished) -> list[ScheduledTask]:
    """Handle the end of all members: complete their tickets, or return the members that start again."""
    kind, results = gang.kind, gang.results
    doomed = next((member.doomed for member in gang.members if member.doomed is not None), None)
    if doomed is None and gang.failure:
        raised = any(not result.good for result in results.values())
        budget = (kind.retries or 0) if raised else kind.budget
        if gang.used < budget:
            gang.used += 1
            gang.forget_run()
            return gang.members
        if not raised:
            tries = f"after {gang.used + 1} starts" if gang.used else "and may not be started again"
            doomed = NodeLost(f"gang {gang.name} lost a member {tries}: {gang.failure}")
    for member in gang.members:
        member.state = "over"
    on_finished(gang.members)
    for member in gang.members:
        result = results.get(member.rank)
        if doomed is not None:
            member.ticket.on_failed(doomed)
        elif result is not None:
            member.ticket.on_ended(result)
        else:
            member.ticket.on_failed(GangFailed(f"rank {member.rank} of {gang.name} was ended: {gang.failure}"))
    return []
