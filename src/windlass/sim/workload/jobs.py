"""Jobs of the simulated workload: when they arrive, how long they run, and how they ended."""

from __future__ import annotations

from dataclasses import dataclass

from windlass.core.model.snapshot import Amounts, Bundle, Demand


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
    """One of them as a bundle, with the conditions that it has of its own."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Work that was ended before its time, and how: its node went away, or it was evicted on request."""

    run: TaskRun
    at: float
    how: str
