"""This module defines the jobs of the simulated workload: when they arrive, how long they run, and how they ended."""

from __future__ import annotations

from dataclasses import dataclass, replace

from windlass.core.model.snapshot import Amounts, Bundle, Demand
from windlass.sim.faults.catalogue import FaultSet

SLOW = 5
"""How many times longer work takes on a slow node."""


@dataclass(frozen=True, slots=True)
class Job:
    """Work that arrives at an instant and, once started, runs for a while. Its demand says what it needs."""

    demand: Demand
    arrives: float = 0.0
    duration: float = 60.0
    """Median seconds of one task."""
    spread: float = 0.0
    """Sigma of a log-normal around it; the members of a gang end together."""

    @property
    def id(self) -> str:
        return self.demand.id


@dataclass(frozen=True, slots=True)
class TaskRun:
    """Equal tasks of a job on one node."""

    job: str
    node: str
    slice_id: str
    needs: Amounts
    count: int
    started: float
    ends: float
    kind: Bundle | None = None
    """One of the tasks as a bundle, if it has conditions of its own."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Work that was ended early, and why: its node was lost, or it was evicted."""

    run: TaskRun
    at: float
    how: str


def one_of(bundle: Bundle) -> Bundle:
    """Return one of the tasks of a bundle, as a bundle."""
    if bundle.count == 1:
        return bundle
    return Bundle(bundle.needs) if bundle.plain else replace(bundle, count=1)


def recounted(job: Job, waiting: Demand | None, kind: Bundle, more: int) -> Demand | None:
    """Return the waiting demand of a job with ``more`` tasks of a kind; None: no task waits."""
    known = waiting.bundles if waiting is not None else ()
    if len(known) == 1 and kind.plain and known[0].plain and known[0].needs == kind.needs:
        # By far the most frequent case, and much quicker than a table of the kinds.
        count = known[0].count + more
        bundles: tuple[Bundle, ...] = (Bundle(kind.needs, count),) if count else ()
    else:
        counts = {kind: more}
        for bundle in known:
            one = one_of(bundle)
            counts[one] = counts.get(one, 0) + bundle.count
        bundles = tuple([replace(one, count=count) for one, count in counts.items() if count])
    return job.demand.like(job.demand.id, bundles, job.arrives) if bundles else None


def task_seconds(job: Job, fault_set: FaultSet, now: float, occasion: tuple[object, ...]) -> float:
    """Return the duration of a task. ``occasion``: the node and the number of the run; empty for a gang."""
    length = fault_set.chance.around(job.duration, job.spread, "task", job.id, now, *occasion)
    if fault_set.faults:
        if fault_set.occurs("slow-node", now, *(occasion[:1] or (job.id, now))):
            length *= SLOW
        if never := fault_set.occurs("work-never-ends", now, job.id, now, *occasion):
            length += never.seconds
    return length
