"""A script is the whole input of a simulated run. The same script and the same code give the same run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from windlass.control.settings import Settings
from windlass.core.model.snapshot import Demand
from windlass.providers.protocol import Offering
from windlass.sim.cloud.machines import MachineKind
from windlass.sim.cloud.stock import StockRecording
from windlass.sim.faults.catalogue import Fault
from windlass.sim.workload.jobs import Job


@dataclass(frozen=True)
class Script:
    """What is configured, what comes, and what goes wrong. Times are seconds from the start of the run."""

    settings: Settings
    jobs: tuple[Job, ...] = ()
    requests: tuple[Demand, ...] = ()
    faults: tuple[Fault, ...] = ()
    kinds: tuple[MachineKind, ...] = ()
    """What the cloud sells; one for every group that has none here."""
    seed: int | str = 0
    hours: float = 1.0
    """After so long the faults stop; the run goes on until all is quiet."""
    quota: int | None = None
    """Slices that each provider's account may have."""
    recordings: tuple[StockRecording, ...] = ()
    """What the stock of kinds that can be preempted follows, in the zones in which they are sold."""
    confirms_ends: bool = False
    """Whether the clouds report which slices have ended. If not, a slice is gone when it was missing for long
    enough."""
    reports_times: bool = False
    """Whether the clouds tell when machines were made and when they ended."""

    def all_kinds(self) -> tuple[MachineKind, ...]:
        named = {kind.offering.name for kind in self.kinds}
        groups = [sold.group for sold in self.settings.groups if sold.group.name not in named]
        made = [Offering(one.name, one.resources, one.hosts, one.price, (), one.preemptible) for one in groups]
        return (*self.kinds, *(MachineKind(offering) for offering in made))


def shifted_jobs(jobs: Iterable[Job], start: float) -> list[Job]:
    """Jobs of a script by the clock of a run."""
    return [
        replace(
            job,
            arrives=job.arrives + start,
            demand=job.demand
            if job.demand.deadline is None
            else replace(job.demand, deadline=job.demand.deadline + start),
        )
        for job in jobs
    ]


def shifted_faults(faults: Iterable[Fault], start: float) -> list[Fault]:
    """Faults of a script by the clock of a run."""
    return [replace(fault, start=fault.start + start, end=fault.end + start) for fault in faults]
