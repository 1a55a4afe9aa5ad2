"""RunningIndex holds the running tasks; the cost of a query grows with its result, not with the number of tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from math import inf
from typing import Final

from windlass.core.model.snapshot import Amounts, amounts

from .jobs import TaskRun

ALIKE: Final = 10_000
"""Size of the cache of amounts: more than the distinct ones of most clusters."""


class RunningIndex:
    """Every run by number, node, slice, job and end time."""

    def __init__(self) -> None:
        self._runs: dict[int, TaskRun] = {}
        self._ends: list[tuple[float, int]] = []
        self._on_node: dict[str, dict[int, None]] = {}
        self._of_job: dict[str, dict[int, None]] = {}
        self._tasks: dict[str, int] = {}
        self._slice_tasks: dict[str, int] = {}
        self._used: dict[str, dict[str, int]] = {}
        self._usage: dict[str, tuple[Amounts, int]] = {}
        """Cached usage of nodes that were queried."""
        self._alike: dict[Amounts, Amounts] = {}
        self.started = 0
        self.count = 0
        """Tasks that run."""

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[TaskRun]:
        return iter(self._runs.values())

    def __getitem__(self, key: int) -> TaskRun:
        return self._runs[key]

    def add(self, run: TaskRun) -> None:
        self.started += 1
        key = self.started
        self._runs[key] = run
        if run.ends < inf:
            heappush(self._ends, (run.ends, key))
        self._on_node.setdefault(run.node, {})[key] = None
        self._of_job.setdefault(run.job, {})[key] = None
        self._count(run, run.count)

    def pop(self, key: int) -> TaskRun:
        run = self._runs.pop(key)
        for index, name in ((self._on_node, run.node), (self._of_job, run.job)):
            keys = index[name]
            del keys[key]
            if not keys:
                del index[name]
        self._count(run, -run.count)
        return run

    def _count(self, run: TaskRun, more: int) -> None:
        self.count += more
        self._usage.pop(run.node, None)
        for tasks, name in ((self._tasks, run.node), (self._slice_tasks, run.slice_id)):
            count = tasks.get(name, 0) + more
            if count:
                tasks[name] = count
            else:
                tasks.pop(name, None)
        used = self._used.setdefault(run.node, {})
        for name, amount in run.needs:
            total = used.get(name, 0) + amount * more
            if total:
                used[name] = total
            else:
                used.pop(name, None)
        if not used:
            del self._used[run.node]

    @property
    def first_end(self) -> float:
        """Return a time before which nothing ends."""
        return self._ends[0][0] if self._ends else inf

    def over(self, now: float) -> Iterator[TaskRun]:
        """Remove and yield the runs that have ended by now."""
        while self._ends and self._ends[0][0] <= now:
            _, key = heappop(self._ends)
            if key in self._runs:
                yield self.pop(key)

    def next_end(self) -> float:
        """Return when the next run ends; infinity: never."""
        ends = self._ends
        while ends and ends[0][1] not in self._runs:
            heappop(ends)
        return ends[0][0] if ends else inf

    def on_node(self, node: str) -> Iterable[int]:
        return tuple(self._on_node.get(node, ()))

    def of_job(self, job: str) -> Iterable[int]:
        return tuple(self._of_job.get(job, ()))

    def on_slice(self, slice_id: str) -> Iterable[int]:
        return tuple(key for key, run in self._runs.items() if run.slice_id == slice_id)

    def tasks_on_slice(self, slice_id: str) -> int:
        return self._slice_tasks.get(slice_id, 0)

    def tasks(self, node: str) -> int:
        return self._tasks.get(node, 0)

    def usage(self, node: str) -> tuple[Amounts, int]:
        """Return what is used on a node and by how many tasks. Equal amounts are usually the same object."""
        usage = self._usage.get(node)
        if usage is None:
            used = amounts(self._used.get(node, {}))
            if len(self._alike) >= ALIKE:
                self._alike.clear()
            usage = self._alike.setdefault(used, used), self._tasks.get(node, 0)
            if usage[1]:
                self._usage[node] = usage
        return usage
