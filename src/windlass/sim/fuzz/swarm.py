"""The swarm runs many seeds on all cores and reports each breach with its seed."""

from __future__ import annotations

import multiprocessing
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from windlass.sim.faults.catalogue import Fault
from windlass.sim.run.script import Script
from windlass.sim.run.simulation import SimulationResult, simulate

from .random_script import arbitrary_script
from .shrink import as_test, shrunken


@dataclass(frozen=True, slots=True)
class SwarmTask:
    """One seed to run."""

    seed: int
    hours: float
    fault_set: tuple[Fault, ...] | None = None
    """None: a random subset of all faults."""

    def script(self) -> Script:
        script = arbitrary_script(self.seed, self.hours)
        return script if self.fault_set is None else replace(script, faults=self.fault_set)


@dataclass(frozen=True, slots=True)
class SeedOutcome:
    """The result of one seed."""

    seed: int
    run: SimulationResult | None
    error: str = ""
    """The exception of the simulation itself; empty when it completed."""

    @property
    def sentences(self) -> list[str]:
        """Problems, one sentence each."""
        return [self.error] if self.run is None else [str(breach) for breach in self.run.breaches]


def outcome_of(task: SwarmTask) -> SeedOutcome:
    """Run one seed. An exception becomes part of its outcome: one bad seed does not stop the swarm."""
    try:
        return SeedOutcome(task.seed, simulate(task.script()))
    except Exception:  # noqa: BLE001  # reported with its seed
        return SeedOutcome(task.seed, None, traceback.format_exc(limit=-4))


def outcomes(tasks: Iterable[SwarmTask], processes: int) -> Iterator[SeedOutcome]:
    """Yield the outcomes of the tasks as they complete."""
    many = list(tasks)
    if processes <= 1 or len(many) <= 1:
        yield from map(outcome_of, many)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(outcome_of, many, chunksize=4)


@dataclass
class Tally:
    """Totals of a swarm."""

    seeds: int = 0
    hours: float = 0.0
    passes: int = 0
    actions: int = 0
    finished: int = 0
    interrupted: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    broken: list[SeedOutcome] = field(default_factory=list)

    def add(self, outcome: SeedOutcome) -> None:
        self.seeds += 1
        if outcome.sentences:
            self.broken.append(outcome)
        if outcome.run is not None:
            self.hours += outcome.run.seconds / 3600
            self.passes += outcome.run.passes
            self.actions += outcome.run.actions
            self.finished += outcome.run.finished
            self.interrupted += outcome.run.interrupted
            self.faults.update(outcome.run.faults)

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "windlass.swarm/v1",
            "seeds": self.seeds,
            "simulated_hours": round(self.hours, 1),
            "passes": self.passes,
            "actions": self.actions,
            "jobs_finished": self.finished,
            "work_interrupted_by_the_cloud": self.interrupted,
            "faults": dict(sorted(self.faults.items())),
            "breaches": [
                {"seed": one.seed, "told": one.sentences} for one in sorted(self.broken, key=lambda o: o.seed)
            ],
        }


def reproduction(task: SwarmTask, run: Callable[[Script], SimulationResult] = simulate) -> str:
    """Return a test with the smallest script that breaks the same invariant as a task."""
    script = task.script()
    first = run(script).breaches[0]

    def breaks(smaller: Script) -> bool:
        try:
            return any(breach.invariant == first.invariant for breach in run(smaller).breaches)
        except Exception:  # noqa: BLE001  # an error is another failure than the broken invariant
            return False

    small = shrunken(script, breaks)
    sentences = next(breach for breach in run(small).breaches if breach.invariant == first.invariant)
    return as_test(small, f"Seed {task.seed} breaks {sentences}")
