"""Placer decides which waiting task goes to which slot, and which tasks are sent together.

The order is: tasks that name their node, gangs, then all others by arrival, each on the first node that accepts it and
has room. If a gang would fit on the existing nodes once they are empty, later tasks are not placed on them. When every
slot is busy, one short batch may wait behind another. When a slot is free and nothing waits for it, tasks that wait
behind others on a slot are taken back for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol
from weakref import WeakKeyDictionary

from windlass.core.capacity.node_room import TakenRoom
from windlass.core.model.snapshot import Group

from .batching import BYTES, UNSEEN, WORTH, Pace
from .class_limits import ClassLimits
from .gangs import environments, fits_when_empty, places_for
from .nodes import PoolNode, Slot
from .tasks import Kind, ScheduledTask, TaskPlacement
from .waiting import WaitingTasks


class Send(Protocol):
    """Sends tasks to the engine as one call."""

    def __call__(
        self,
        tasks: list[ScheduledTask],
        node: PoolNode,
        slot: Slot,
        taken: TakenRoom | None,
        environment: Mapping[str, str] | None = None,
    ) -> TaskPlacement: ...


def _ran(call: TaskPlacement, now: float) -> float:
    """Return for how many seconds at least the task on the slot has run."""
    if call.moved_at is None:
        return 0.0
    return max(0.0, now - call.moved_at - (UNSEEN if len(call.tasks) > 1 else 0.0))


def _has_for(line: Sequence[ScheduledTask], node: PoolNode) -> bool:
    """Return whether the first task of a queue may be sent to a node in a batch."""
    return len(line) > 0 and not line[0].alone and node.id not in line[0].lost_on


class Placer:
    """Places waiting tasks, and estimates how long tasks of a kind take."""

    def __init__(
        self,
        waiting: WaitingTasks,
        send: Send,
        revoke: Callable[[TaskPlacement], None],
        now: Callable[[], float],
        place_later: Callable[[float], None],
        groups: Callable[[], Iterable[Group]] = tuple,
    ) -> None:
        """``place_later`` is called with the seconds after which placing must run again although nothing happens.
        ``groups`` returns all groups of the pool.
        """
        self.waiting, self._send, self._revoke, self._groups = waiting, send, revoke, groups
        self._now, self._place_later = now, place_later
        self._paces: WeakKeyDictionary[Kind, Pace] = WeakKeyDictionary()

    def place(self, nodes: list[PoolNode]) -> None:
        """Place waiting tasks on these nodes, preferring the first."""
        for node in nodes:
            self._place_pinned(node)
        limits = ClassLimits.now(nodes, self._groups(), self.waiting.kinds())
        held = self._place_gangs(nodes, limits)
        running = self._longest(nodes)
        while self._place_singles(nodes, held, running, limits) and limits is not None:
            pass  # a task in one zone may make room for the next in another
        self._fill_behind(nodes, held, running, limits)
        self._fetch_back(nodes, held)

    def _longest(self, nodes: list[PoolNode]) -> dict[Kind, float]:
        """Return, for each kind, the age of its oldest running task: the next task may take as long."""
        now, found = self._now(), dict[Kind, float]()
        for node in nodes:
            for slot in node.slots:
                if slot.calls:
                    kind = slot.calls[0].kind
                    found[kind] = max(found.get(kind, 0.0), _ran(slot.calls[0], now))
        return found

    def _place_pinned(self, node: PoolNode) -> None:
        for slot in node.free_slots():
            if not node.pinned or (taken := node.room.take(node.pinned[0].kind.needs)) is None:
                return
            self._send([node.pinned.pop(0)], node, slot, taken)

    def _place_gangs(self, nodes: list[PoolNode], limits: ClassLimits | None) -> Mapping[str, int]:
        """Return the nodes that are reserved for a gang, with its number: later tasks are not placed there."""
        held: dict[str, int] = {}
        for gang in list(self.waiting.gangs):
            able = [node for node in nodes if node.id not in held]
            places = places_for(gang, able, limits)
            if places is not None:
                self.waiting.remove_gang(gang)
                variables = environments(gang, places)
                for member, (node, slot, taken), environment in zip(gang.members, places, variables, strict=True):
                    call = self._send([member], node, slot, taken, environment)
                    gang.calls[call.id] = call
            elif fits_when_empty(gang, able, limits):
                held.update({node.id: gang.number for node in able if node.accepts(gang.kind)})
        return held

    def _place_singles(
        self,
        nodes: list[PoolNode],
        held: Mapping[str, int],
        running: Mapping[Kind, float],
        limits: ClassLimits | None,
    ) -> bool:
        """Send waiting tasks to free slots; return whether any were sent."""
        sent = False
        free = [node for node in nodes if any(node.free_slots())]
        slots = sum(len(node.slots) for node in nodes)
        left = sum(1 for node in free for _ in node.free_slots())
        for kind, line in self.waiting.lines():
            if not free:
                break
            for node in list(free):
                if not node.accepts(kind) or (node.id in held and held[node.id] < line[0].number):
                    continue
                for slot in list(node.free_slots()):
                    if not line or node.id in line[0].lost_on or (limits is not None and not limits.allow(node, kind)):
                        break
                    if (taken := node.room.take(kind.needs)) is None:
                        break
                    self._send(self._batch(kind, slots, left, running), node, slot, taken)
                    left, sent = left - 1, True
                    if limits is not None:
                        limits.add(node, kind)
                if not any(node.free_slots()):
                    free.remove(node)
                if not line:
                    break
        return sent

    def _fill_behind(
        self,
        nodes: list[PoolNode],
        held: Mapping[str, int],
        running: Mapping[Kind, float],
        limits: ClassLimits | None,
    ) -> None:
        """Queue one short batch behind each short call, so that no slot is idle between two calls. If tasks have rules
        about each other, the batch must be of the same function, so that no count changes when it begins.
        """
        slots = sum(len(node.slots) for node in nodes)
        if any(any(node.free_slots()) for node in nodes):
            return
        for kind, line in self.waiting.lines():
            pace, longest = self.pace(kind), running.get(kind, 0.0)
            size = pace.size(len(line), slots, 0, longest)
            if not kind.batched or line[0].alone or not pace.is_short(size, longest):
                continue
            for node in nodes:
                if node.id in held:
                    continue
                for slot in node.slots:
                    if not _has_for(line, node):
                        break
                    first = slot.calls[0]
                    alike = first.kind.needs == kind.needs and (limits is None or first.kind is kind)
                    if len(slot.calls) == 1 and alike and self._is_short(first, running):
                        self._send(self._batch(kind, slots, 0, running), node, slot, None)

    def _is_short(self, call: TaskPlacement, running: Mapping[Kind, float]) -> bool:
        kind = call.kind
        alone = not kind.batched or call.tasks[0].gang is not None or call.ending
        return not alone and self.pace(kind).is_short(len(call.left), running.get(kind, 0.0))

    def _fetch_back(self, nodes: list[PoolNode], held: Mapping[str, int]) -> None:
        """Take back tasks that wait behind others on a slot, if another slot is free and nothing else waits for it.
        Only where that saves time: tasks that will begin in a moment stay, and are checked again.
        """
        free = [node for node in nodes if node.id not in held and any(node.free_slots())]
        slots = sum(1 for node in free for _ in node.free_slots())
        if not slots:
            return
        now, worth, later = self._now(), list[tuple[float, TaskPlacement]](), False
        for node in nodes:
            for slot in node.slots:
                for call in slot.calls:
                    queued = len(call.queued)
                    if not queued or call.ending or self.waiting.count(call.kind):
                        continue
                    if not any(one.accepts(call.kind) for one in free):
                        continue
                    ran = _ran(slot.calls[0], now)
                    wait = max(ran, queued * (self.pace(call.kind).estimate(ran) or 0.0))
                    if wait >= WORTH:
                        worth.append((wait, call))
                    else:
                        later = True
        worth.sort(key=lambda one: -one[0])
        for _, call in worth[:slots]:
            self._revoke(call)
        if later:
            self._place_later(WORTH)

    def _batch(self, kind: Kind, slots: int, free: int, running: Mapping[Kind, float]) -> list[ScheduledTask]:
        waiting = self.waiting.count(kind)
        size = self.pace(kind).size(waiting, slots, free, running.get(kind, 0.0)) if kind.batched else 1
        return self.waiting.take_batch(kind, size, BYTES)

    def pace(self, kind: Kind) -> Pace:
        pace = self._paces.get(kind)
        if pace is None:
            pace = self._paces[kind] = Pace()
        return pace
