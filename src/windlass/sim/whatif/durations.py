"""This module infers how long recorded work ran from the resources that nodes had in use at each observation.

A task starts when it stops waiting. Its node is the one whose use grew by that amount in the same observation; its end
is when the use of that node falls by it. Use beyond that is a task that started on arrival. Three things cannot be seen
and are assumed:

- If one task is replaced by another of its kind between two observations, the node shows no change: the one that has
  run longest is assumed to have ended. The sum of durations is right in any case.
- A task that started and ended between two observations ran on a node that was idle before and after, for less time.
- A task that disappears with neither of these signs was withdrawn, and is left out.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from windlass.core.model.quantities import ACCELERATORS, DEVICE
from windlass.core.model.snapshot import Amounts
from windlass.workloads.protocol import WorkNode

from .tasks import PassChanges, RecordedTask

STEPS = 2000
"""Most combinations that are tried to explain a change of one node; beyond that, only counts are used."""


@dataclass
class RecordedDurations:
    """Follows tasks from their start to their end."""

    tasks: list[RecordedTask] = field(default_factory=list)
    """Tasks that were never seen to wait: they ran when the journal begins, or started on arrival."""
    _running: dict[str, list[RecordedTask]] = field(default_factory=dict)
    """Running tasks by node, the one that has run longest first."""
    _last: dict[str, dict[str, WorkNode]] = field(default_factory=dict)
    """Nodes as last seen, by slice."""
    _away: dict[str, float] = field(default_factory=dict)
    """Nodes that are not visible, and since when: if their work waits again, it was lost."""
    _kinds: dict[Amounts, None] = field(default_factory=dict)
    """The needs of tasks seen so far."""

    def begin(self, nodes: Iterable[WorkNode], at: float) -> None:
        """Count tasks that run at the beginning of the journal as arriving then."""
        for node in nodes:
            self._last.setdefault(node.slice_id, {})[node.id] = node
            self._appear(node.id, _shares(dict(node.used), node.tasks), at)

    def follow(self, changes: PassChanges) -> None:
        """Follow the tasks through one pass."""
        pool = _by_needs(changes.started)
        self._kinds.update(dict.fromkeys(pool))
        unseen: list[float] = []
        self._away.update({was.id: changes.at for was, now in changes.nodes if was is not None and now is None})
        for now in [now for _, now in changes.nodes if now is not None]:
            self._away.pop(now.id, None)
            here = self._last.setdefault(now.slice_id, {})
            last = here.get(now.id) or WorkNode(now.id, now.slice_id)
            here[now.id] = now
            if (last.used, last.tasks) != (now.used, now.tasks):
                self._explain(last, now, pool, changes.at)
            elif not now.tasks and (now.idle_since or 0.0) > max(changes.before, last.idle_since or 0.0):
                unseen.append(now.idle_since or 0.0)
        self._swap(pool, changes.at)
        for task in [task for tasks in pool.values() for task in tasks]:
            if unseen:
                task.started, task.ended, task.end_seen = max(task.arrived, changes.before), max(unseen), True
                task.started = min(task.started, task.ended)
            else:
                task.withdrawn = True
        self._wait_again(changes)
        for slice_id in changes.gone:
            for name in self._last.pop(slice_id, ()):
                self._end(self._running.pop(name, []), self._away.pop(name, changes.at))

    def finish(self, at: float) -> None:
        """End the journal: running tasks have run until now."""
        for tasks in self._running.values():
            for task in tasks:
                task.ended = at
        self._running.clear()

    # -- what a change of a node means --------------------------------------------------------------------------------

    def _explain(self, last: WorkNode, now: WorkNode, pool: dict[Amounts, deque[RecordedTask]], at: float) -> None:
        here = self._running.setdefault(now.id, [])
        grown: Counter[str] = Counter(dict(now.used))
        grown.subtract(dict(last.used))
        more = now.tasks - last.tasks
        may_start = {needs: len(tasks) for needs, tasks in pool.items() if tasks}
        found = explained(dict(grown), more, may_start, Counter(task.needs for task in here), tuple(self._kinds))
        for needs, count in found.ended.items():
            self._end([task for task in here if task.needs == needs][:count], at)
        here[:] = [task for task in here if task.ended is None]
        for needs, count in found.begun.items():
            here += [pool[needs].popleft() for _ in range(count)]
        self._appear(now.id, found.appeared, at)

    def _appear(self, node: str, many: Iterable[Amounts], at: float) -> None:
        """Add tasks that were never seen waiting; if a machine disappeared in the same pass, they are its work."""
        for needs in many:
            self._kinds[needs] = None
            task = RecordedTask(f"began at {at:.3f}", needs, at, at, unseen=True)
            self._lose(task, [name for name, since in self._away.items() if since == at])
            self.tasks.append(task)
            self._running.setdefault(node, []).append(task)

    def _swap(self, pool: dict[Amounts, deque[RecordedTask]], at: float) -> None:
        """Record that a task ended and an equal one started in its place between two observations."""
        for needs, tasks in pool.items():
            same = tasks and sorted(
                (task.started or 0.0, name, index)
                for name, here in self._running.items()
                for index, task in enumerate(here)
                if task.needs == needs and (task.started or 0.0) < at
            )
            for _, name, index in list(same or ())[: len(tasks)]:
                self._end([self._running[name][index]], at)
                self._running[name][index] = tasks.popleft()

    def _wait_again(self, changes: PassChanges) -> None:
        """Record tasks that wait again because their machine was lost: the same work, from the start."""
        for task in changes.arrived:
            if changes.before <= task.arrived < changes.at:
                continue  # it has just come
            self._lose(task, self._away)

    def _lose(self, task: RecordedTask, nodes: Iterable[str]) -> None:
        """Treat a task as the second attempt of one that ran on these nodes, if one fits."""
        lost = min(
            (
                (not _same_work(one, task), one.started or 0.0, name, index)
                for name in nodes
                for index, one in enumerate(self._running.get(name, ()))
                if one.needs == task.needs
            ),
            default=None,
        )
        if lost is not None:
            task.again = self._running[lost[2]].pop(lost[3])
            task.again.lost, task.unseen = True, task.again.unseen
            task.demand = task.again.demand if task.unseen else task.demand

    @staticmethod
    def _end(tasks: Iterable[RecordedTask], at: float) -> None:
        for task in tasks:
            task.ended, task.end_seen = max(at, task.started or at), True


def _same_work(one: RecordedTask, other: RecordedTask) -> bool:
    return (one.demand, one.needs) == (other.demand, other.needs)


def _by_needs(tasks: Iterable[RecordedTask]) -> dict[Amounts, deque[RecordedTask]]:
    found: dict[Amounts, deque[RecordedTask]] = {}
    for task in tasks:
        found.setdefault(task.needs, deque()).append(task)
    return found


def _shares(used: Mapping[str, int], tasks: int) -> list[Amounts]:
    """Return the needs of each task, if all need the same; otherwise one task with all of it."""
    if tasks <= 0:
        return []
    even = all(
        amount % tasks == 0 and not (name in ACCELERATORS and amount // tasks > DEVICE and amount // tasks % DEVICE)
        for name, amount in used.items()
    )
    parts = tasks if even else 1
    needs = tuple(sorted((name, amount // parts) for name, amount in used.items() if amount > 0))
    return [needs] * parts


@dataclass(frozen=True, slots=True)
class Explained:
    """The tasks that explain a change of a node."""

    begun: Mapping[Amounts, int]
    """Tasks that waited, by what they need."""
    ended: Mapping[Amounts, int]
    appeared: Sequence[Amounts] = ()
    """Tasks that were never seen to wait."""


def explained(
    grown: Mapping[str, int],
    more: int,
    may_start: Mapping[Amounts, int],
    may_end: Mapping[Amounts, int],
    kinds: Sequence[Amounts],
) -> Explained:
    """Return the fewest tasks whose starts and ends explain the change in a node's usage and task count. Waiting tasks
    are preferred to unseen ones, which are of a known kind if possible.
    """
    waited = [(needs, limit, 1) for needs, limit in may_start.items()]
    over = [(needs, limit, -1) for needs, limit in may_end.items()]
    room = max(0, more) + sum(may_end.values())
    fresh = [(needs, room, 1) for needs in kinds]
    search = _Search()
    for events in range(abs(more), sum(may_start.values()) + sum(may_end.values()) + max(0, more) + 1, 2):
        for options in ([*over, *waited], [*over, *waited, *fresh]):
            found = search.find(options, dict(grown), more, events)
            if found is None:
                continue
            chosen = list(zip(options, found, strict=True))
            known = len(over) + len(waited)
            return Explained(
                begun={needs: n for (needs, _, sign), n in chosen[:known] if n and sign > 0},
                ended={needs: n for (needs, _, sign), n in chosen[:known] if n and sign < 0},
                appeared=[needs for (needs, _, _), n in chosen[known:] for _ in range(n)],
            )
        if search.steps > STEPS:
            break
    if more >= 0:
        return Explained({}, {}, _shares({name: max(0, amount) for name, amount in grown.items()}, more))
    ended: Counter[Amounts] = Counter()
    for needs, limit in may_end.items():
        ended[needs] = max(0, min(limit, -more - ended.total()))
    return Explained({}, ended)


class _Search:
    """Tries numbers of each option until they add up; gives up after a number of steps."""

    def __init__(self) -> None:
        self.steps = 0

    def find(
        self, options: Sequence[tuple[Amounts, int, int]], left: dict[str, int], count: int, events: int
    ) -> list[int] | None:
        self.steps += 1
        if self.steps > STEPS:
            return None
        if not options:
            return [] if not events and not count and not any(left.values()) else None
        (needs, limit, sign), rest = options[0], options[1:]
        for number in range(min(limit, events), -1, -1):
            after = dict(left)
            for name, amount in needs:
                after[name] = after.get(name, 0) - sign * number * amount
            found = self.find(rest, after, count - sign * number, events - number)
            if found is not None:
                return [number, *found]
        return None
