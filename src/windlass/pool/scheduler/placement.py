"""Placing: which waiting task goes to which slot, and which tasks travel together.

In the order in which they came: tasks that name their node, gangs, then all others, each on the first node that accepts
it and has room. A gang that the nodes which are there could hold, if they were empty, holds them against tasks that
came later. Where every slot is taken, one short batch may wait behind another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol
from weakref import WeakKeyDictionary

from windlass.core.capacity.node_room import TakenRoom

from .batching import BYTES, Pace
from .gangs import environments, fits_when_empty, places_for
from .nodes import PoolNode, Slot
from .tasks import Kind, ScheduledTask, TaskPlacement
from .waiting import WaitingTasks


class Send(Protocol):
    """Gives tasks to the engine as one call."""

    def __call__(
        self,
        tasks: tuple[ScheduledTask, ...],
        node: PoolNode,
        slot: Slot,
        taken: TakenRoom | None,
        environment: Mapping[str, str] | None = None,
    ) -> TaskPlacement: ...


def _has_for(line: Sequence[ScheduledTask], node: PoolNode) -> bool:
    """Whether the first of a line may travel with others to a node."""
    return len(line) > 0 and not line[0].alone and node.id not in line[0].lost_on


class Placer:
    """Places what waits, and knows how long tasks of a kind take."""

    def __init__(self, waiting: WaitingTasks, send: Send, revoke: Callable[[TaskPlacement], None]) -> None:
        self.waiting, self._send, self._revoke = waiting, send, revoke
        self._paces: WeakKeyDictionary[Kind, Pace] = WeakKeyDictionary()

    def place(self, nodes: list[PoolNode]) -> None:
        """Place what can be placed on these nodes, the first of them first."""
        for node in nodes:
            self._place_pinned(node)
        held = self._place_gangs(nodes)
        self._place_singles(nodes, held)
        self._fill_behind(nodes, held)

    def _place_pinned(self, node: PoolNode) -> None:
        for slot in node.free_slots():
            if not node.pinned or (taken := node.room.take(node.pinned[0].kind.needs)) is None:
                return
            self._send((node.pinned.pop(0),), node, slot, taken)

    def _place_gangs(self, nodes: list[PoolNode]) -> Mapping[str, int]:
        """Nodes that are held for a gang, with its number: what came later does not go there."""
        held: dict[str, int] = {}
        for gang in list(self.waiting.gangs):
            able = [node for node in nodes if node.id not in held]
            places = places_for(gang, able)
            if places is not None:
                self.waiting.remove_gang(gang)
                told = environments(gang, places)
                for member, (node, slot, taken), environment in zip(gang.members, places, told, strict=True):
                    call = self._send((member,), node, slot, taken, environment)
                    gang.calls[call.id] = call
            elif fits_when_empty(gang, able):
                held.update({node.id: gang.number for node in able if node.accepts(gang.kind)})
        return held

    def _place_singles(self, nodes: list[PoolNode], held: Mapping[str, int]) -> None:
        free = [node for node in nodes if any(node.free_slots())]
        slots = sum(len(node.slots) for node in nodes)
        left = sum(1 for node in free for _ in node.free_slots())
        for kind, line in self.waiting.lines():
            if not free:
                return
            for node in list(free):
                if not node.accepts(kind) or (node.id in held and held[node.id] < line[0].number):
                    continue
                for slot in list(node.free_slots()):
                    if not line or node.id in line[0].lost_on or (taken := node.room.take(kind.needs)) is None:
                        break
                    self._send(self._batch(kind, slots, left), node, slot, taken)
                    left -= 1
                if not any(node.free_slots()):
                    free.remove(node)
                if not line:
                    break

    def _fill_behind(self, nodes: list[PoolNode], held: Mapping[str, int]) -> None:
        """One short batch behind each short call, so that no slot waits for its next; where a slot is free and nothing
        else waits, what is behind another is fetched back for it."""
        slots = sum(len(node.slots) for node in nodes)
        if any(any(node.free_slots()) for node in nodes):
            if not len(self.waiting):
                self._fetch_back(nodes)
            return
        left = sum(len(slot.calls) == 1 for node in nodes for slot in node.slots)
        for kind, line in self.waiting.lines():
            pace = self.pace(kind)
            if not kind.batched or line[0].alone or not pace.is_short(pace.size(len(line), slots, slots)):
                continue
            for node in nodes:
                if node.id in held:
                    continue
                for slot in node.slots:
                    if not _has_for(line, node):
                        break
                    first = slot.calls[0]
                    if len(slot.calls) == 1 and first.kind.needs == kind.needs and self._is_short(first):
                        self._send(self._batch(kind, slots, left), node, slot, None)
                        left -= 1

    def _is_short(self, call: TaskPlacement) -> bool:
        kind = call.kind
        alone = not kind.batched or call.tasks[0].gang is not None or call.ending
        return not alone and self.pace(kind).is_short(len(call.tasks))

    def _fetch_back(self, nodes: list[PoolNode]) -> None:
        free = sum(1 for node in nodes for _ in node.free_slots())
        late = [call for node in nodes for call in node.behind() if not call.ending]
        for call in late[:free]:
            self._revoke(call)

    def _batch(self, kind: Kind, slots: int, free: int) -> tuple[ScheduledTask, ...]:
        waiting = self.waiting.count(kind)
        size = self.pace(kind).size(waiting, slots, free) if kind.batched else 1
        return tuple(self.waiting.take_batch(kind, size, BYTES))

    def pace(self, kind: Kind) -> Pace:
        pace = self._paces.get(kind)
        if pace is None:
            pace = self._paces[kind] = Pace()
        return pace
