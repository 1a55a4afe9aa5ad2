"""WaitingTasks holds tasks by kind, and gangs one by one, in the order of their arrival."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from windlass.core.model.conditions import Condition
from windlass.core.model.constraints import Rules
from windlass.core.model.snapshot import Amounts, Bundle, Demand
from windlass.core.model.snapshot import Gang as GangShape
from windlass.pool.transport.serialization import LONGEST, length_of

from .class_limits import named_classes, turned_around
from .gangs import TaskGang
from .tasks import Kind, ScheduledTask


class WaitingTasks:
    """The queue of tasks that have not been placed."""

    def __init__(self) -> None:
        self._kinds: dict[Kind, deque[ScheduledTask]] = {}
        self.gangs: list[TaskGang] = []
        self._names: dict[tuple[str, Amounts, tuple[Condition, ...], Rules], str] = {}

    def add(self, task: ScheduledTask, *, first: bool = False) -> None:
        """Add a task at the end of its queue; with ``first`` at the front, for a task that runs again."""
        line = self._kinds.setdefault(task.kind, deque())
        self.name_of(task.kind)
        if first:
            line.appendleft(task)
        else:
            line.append(task)

    def extend(self, tasks: Iterable[ScheduledTask]) -> None:
        """Add many tasks, each at the end of its queue."""
        kind: Kind | None = None
        line: deque[ScheduledTask] = deque()
        for task in tasks:
            if task.kind is not kind:
                kind = task.kind
                line = self._kinds.setdefault(kind, deque())
                self.name_of(kind)
            line.append(task)

    def add_gang(self, gang: TaskGang, *, first: bool = False) -> None:
        self.gangs.insert(0 if first else len(self.gangs), gang)

    def remove(self, tasks: Iterable[ScheduledTask]) -> None:
        """Remove tasks from their queues."""
        by_kind: dict[Kind, set[ScheduledTask]] = {}
        for task in tasks:
            by_kind.setdefault(task.kind, set()).add(task)
        for kind, some in by_kind.items():
            left = deque(task for task in self._kinds.get(kind, ()) if task not in some)
            if left:
                self._kinds[kind] = left
            else:
                self._kinds.pop(kind, None)

    def remove_gang(self, gang: TaskGang) -> bool:
        if gang not in self.gangs:
            return False
        self.gangs.remove(gang)
        return True

    def lines(self) -> list[tuple[Kind, deque[ScheduledTask]]]:
        """Return every queue that is not empty, the oldest first."""
        return list(self._kinds.items())

    def take_batch(self, kind: Kind, most: int, bytes_: int) -> list[ScheduledTask]:
        """Take the first tasks of a queue, as many as one batch may have. A task that must run alone is taken alone."""
        line = self._kinds[kind]
        taken = [line.popleft()]
        left = bytes_ - length_of(taken[0].arguments)
        most = min(most, 1 + len(line)) if not taken[0].alone else 1
        while len(taken) < most:
            first = line[0]
            arguments = first.arguments
            left -= len(arguments) if type(arguments) is bytes else LONGEST
            if left < 0 or first.alone:
                break
            taken.append(line.popleft())
        if not line:
            del self._kinds[kind]
        return taken

    def count(self, kind: Kind) -> int:
        return len(self._kinds.get(kind, ()))

    def __len__(self) -> int:
        return sum(map(len, self._kinds.values())) + sum(len(gang.members) for gang in self.gangs)

    def tasks(self) -> Iterator[ScheduledTask]:
        for line in self._kinds.values():
            yield from line
        for gang in self.gangs:
            yield from gang.members

    def name_of(self, kind: Kind) -> str:
        """Return the demand name of a kind: the function's name, with a number if one function is used with different
        needs.
        """
        key = kind.name, kind.needs, kind.where, kind.rules
        if key not in self._names:
            alike = sum(one[0] == kind.name for one in self._names)
            self._names[key] = f"{kind.name}/{alike + 1}" if alike else kind.name
        return self._names[key]

    def names(self) -> list[str]:
        """Return the names of all demands so far."""
        return sorted(self._names.values())

    def kinds(self) -> list[Kind]:
        """Return the kinds of all waiting tasks."""
        return [*self._kinds, *(gang.kind for gang in self.gangs)]

    def demands(self, behind: Iterable[tuple[Kind, int, float]], running: Collection[Kind] = ()) -> tuple[Demand, ...]:
        """Return the waiting tasks as demands and gangs of the planner. ``behind``: tasks that wait behind others on a
        slot, as kind, count and since when. ``running``: the kinds of running tasks.
        """
        found: dict[str, tuple[Kind, int, float]] = {}
        lines = ((kind, len(line), line[0].since) for kind, line in self._kinds.items())
        for kind, count, since in (*lines, *behind):
            name = self.name_of(kind)
            _, before, earliest = found.get(name, (kind, 0, since))
            found[name] = kind, before + count, min(earliest, since)
        singles = [
            Demand(name, (Bundle(kind.needs, count),), where=kind.where, since=since)
            for name, (kind, count, since) in found.items()
        ]
        kinds = [kind for kind, _, _ in found.values()] + [gang.kind for gang in self.gangs]
        demands = (*singles, *map(_gang_demand, self.gangs))
        everything = (*kinds, *running)
        if not any(kind.rules.binding for kind in everything):
            return demands
        return tuple(_with_rules(*one, everything) for one in zip(demands, kinds, strict=True))


def _gang_demand(gang: TaskGang) -> Demand:
    shape = GangShape.SPREAD if gang.spread else GangShape.ANY
    bundle = Bundle(gang.kind.needs, len(gang.members))
    return Demand(gang.name, (bundle,), gang=shape, where=gang.kind.where, since=gang.since)


def _with_rules(demand: Demand, kind: Kind, kinds: Collection[Kind]) -> Demand:
    """Return a demand with its rules, and with its class if a rule of any task counts that class."""
    return replace(
        demand,
        classes=(kind.name,) if kind.name in named_classes(kinds) else (),
        apart=(*kind.rules.apart, *turned_around(kind, kinds)),
        spread=kind.rules.spread,
    )
