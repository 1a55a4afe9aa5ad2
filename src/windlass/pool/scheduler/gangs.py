"""A TaskGang is a set of tasks that start all at once or not at all, know their rank and their head, and end
together.

Members are placed together on free slots, ranks in the order of the nodes, so that neighbours in rank are neighbours in
place. A gang that loses a member starts again as a whole, within one budget of retries: its members wait for each
other, so those that are left could only hang. One whose member raises is ended as a whole for the same reason.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from windlass.core.capacity.node_room import TakenRoom
from windlass.pool.errors import NodeLost, TaskError
from windlass.pool.transport.serialization import ItemResult

from .class_limits import ClassLimits
from .nodes import PoolNode, Slot
from .tasks import Kind, OnFinished, ScheduledTask, TaskPlacement

FIRST_PORT: Final = 29500
"""Where torch puts its meeting point by default; a gang on another machine takes one of the thousand from there on."""


class GangFailed(TaskError):
    """Another member of the gang failed, and so this one was ended."""


@dataclass(eq=False, slots=True)
class TaskGang:
    """One of them. Member number 0 is on the head."""

    name: str
    spread: bool
    """Whether each must be on a node of its own."""
    since: float
    members: list[ScheduledTask] = field(default_factory=list)
    used: int = 0
    """Of its retries."""
    calls: dict[str, TaskPlacement] = field(default_factory=dict)
    """Of the members, as long as they have not ended."""
    results: dict[int, ItemResult] = field(default_factory=dict)
    """Of the members that have come to an end, by rank."""
    trouble: str = ""
    """What went wrong first."""

    @property
    def kind(self) -> Kind:
        return self.members[0].kind

    @property
    def number(self) -> int:
        return self.members[0].number

    def forget_run(self) -> None:
        """As if it had never started."""
        self.results, self.trouble = {}, ""


Place = tuple[PoolNode, Slot, TakenRoom]


def places_for(gang: TaskGang, nodes: Iterable[PoolNode], limits: ClassLimits | None = None) -> list[Place] | None:
    """A free slot with room for each member, in rank order, and the room taken; None, and nothing is taken."""
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
    """Whether the nodes that are there could hold it if nothing ran on them: then it is worth waiting for them."""
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
    """Give every member a node, each node as many as it has places; whether all have one. ``take`` is called for each,
    and says whether the node had room. Rules between tasks may want several rounds: one in each zone, then another."""
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
    """The variables of each member, in the names that torch and similar libraries read, and in ours."""
    found = rank_environments([node for node, _, _ in places], gang.number)
    return [{**one, "WINDLASS_GANG": gang.name} for one in found]


def rank_environments(nodes: Sequence[PoolNode], number: int) -> list[dict[str, str]]:
    """The variables of processes that work together, one on each of these nodes, by rank. ``number``: picks a port."""
    head = nodes[0].facts.address
    size, port = str(len(nodes)), str(free_port(head, number))
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


def free_port(address: str, number: int) -> int:
    """A port on the head: one that is free, where the head is this machine."""
    with suppress(OSError), socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port
    return FIRST_PORT + number % 1000


def ended(gang: TaskGang, on_finished: OnFinished) -> list[ScheduledTask]:
    """Every member has ended: complete all tickets, or return the members that start again."""
    kind, results = gang.kind, gang.results
    doomed = next((member.doomed for member in gang.members if member.doomed is not None), None)
    if doomed is None and gang.trouble:
        raised = any(not result.good for result in results.values())
        budget = (kind.retries or 0) if raised else kind.budget
        if gang.used < budget:
            gang.used += 1
            gang.forget_run()
            return gang.members
        if not raised:
            tries = f"after {gang.used + 1} starts" if gang.used else "and may not be started again"
            doomed = NodeLost(f"gang {gang.name} lost a member {tries}: {gang.trouble}")
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
            member.ticket.on_failed(GangFailed(f"rank {member.rank} of {gang.name} was ended: {gang.trouble}"))
    return []
