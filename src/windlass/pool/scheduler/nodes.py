"""PoolNode records the slots of a node, their calls and the free resources; Fence cordons the nodes of a slice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from windlass.core.capacity.node_room import NodeRoom, fits_empty
from windlass.core.model.conditions import untolerated
from windlass.core.model.snapshot import Amounts, Group
from windlass.pool.engines.protocol import NodeFacts
from windlass.workloads.protocol import WorkNode

from .tasks import Kind, ScheduledTask, TaskPlacement


@dataclass(eq=False, slots=True)
class Slot:
    """One process. ``calls[0]`` runs in it; one more call may wait."""

    number: int
    calls: list[TaskPlacement] = field(default_factory=list)


def accepts(group: Group, kind: Kind) -> bool:
    """Return whether an empty node of a group could run a task, by the same checks as the planner's."""
    labels = group.node_labels()
    return (
        fits_empty(group.resources, kind.needs)
        and all(condition.holds(labels) for condition in kind.where)
        and not any(taint.effect != "PreferNoSchedule" for taint in untolerated(group.taints, ()))
    )


class PoolNode:
    """A node that has joined the pool."""

    def __init__(self, number: int, slice_id: str, group: Group, facts: NodeFacts, now: float) -> None:
        self.number, self.slice_id, self.group, self.facts = number, slice_id, group, facts
        self.room = NodeRoom(group.resources)
        self.slots = [Slot(one) for one in range(facts.slots)]
        self._in_turn = list(self.slots)
        """The order in which free slots are taken."""
        self.idle_since: float | None = now
        self.joined_at = now
        self.leaving = False
        """Whether a call was lost on it: the node is about to leave."""
        self.silent_since: float | None = None
        """When its heartbeats stopped; None while they arrive."""
        self.done = 0
        """The number of tasks that ended here."""
        self.pinned: list[ScheduledTask] = []
        """Waiting tasks that may run only here."""
        self._accepts: dict[Kind, bool] = {}

    @property
    def id(self) -> str:
        return self.facts.node

    @property
    def accelerated(self) -> int:
        """The number of its accelerators: tasks without need of them prefer other nodes."""
        return sum(amount for name, amount in self.group.resources if name in ("gpu", "tpu"))

    def accepts(self, kind: Kind) -> bool:
        if kind not in self._accepts:
            self._accepts[kind] = accepts(self.group, kind)
        return self._accepts[kind]

    def free_slots(self) -> Iterator[Slot]:
        return (slot for slot in self._in_turn if not slot.calls)

    def take_last(self, slot: Slot) -> None:
        """Move a slot to the end of the order: its process has ended, and the next one is starting."""
        self._in_turn.remove(slot)
        self._in_turn.append(slot)

    def calls(self) -> list[TaskPlacement]:
        return [call for slot in self.slots for call in slot.calls]

    def running(self) -> list[TaskPlacement]:
        """Return the calls at the front of each slot, begun or about to begin."""
        return [slot.calls[0] for slot in self.slots if slot.calls]

    def queued(self) -> Iterator[ScheduledTask]:
        """Return the tasks that wait here behind others on a slot."""
        return (task for slot in self.slots for call in slot.calls for task in call.queued)

    def tasks(self) -> int:
        """Return the number of tasks that run here."""
        return len(self.running())

    def used(self) -> Amounts:
        return self.room.used()

    def shown(self, classes: Collection[str] = ()) -> WorkNode:
        """Return the node as the controller sees it. ``classes``: those that rules between tasks count."""
        counts = Counter(call.kind.name for call in self.running() if call.kind.name in classes) if classes else {}
        return WorkNode(
            self.id,
            self.slice_id,
            self.used(),
            self.tasks(),
            self.idle_since,
            self.group.node_labels(),
            healthy=self.silent_since is None,
            classes=tuple(sorted(counts.items())),
        )


@dataclass(slots=True)
class Fence:
    """The drain fence of one slice: the epoch of its cordon, and the epoch up to which cordons are void. A late cordon
    or an old uncordon changes nothing.
    """

    cordon: int = 0
    void: int = 0

    @property
    def up(self) -> bool:
        return self.cordon > self.void

    def raise_to(self, epoch: int) -> None:
        if epoch > self.void:
            self.cordon = max(self.cordon, epoch)

    def lift(self, epoch: int) -> None:
        if epoch >= self.cordon:
            self.void = max(self.void, epoch)
