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
    """Settings, jobs and faults. Times are seconds from the start of the run."""

    settings: Settings
    jobs: tuple[Job, ...] = ()
    requests: tuple[Demand, ...] = ()
    faults: tuple[Fault, ...] = ()
    kinds: tuple[MachineKind, ...] = ()
    """The kinds of machines that the cloud offers; a group without one gets a default."""
    seed: int | str = 0
    hours: float = 1.0
    """Hours after which the faults stop; the run continues until nothing more happens."""
    quota: int | None = None
    """Quota of slices of each provider's account."""
    recordings: tuple[StockRecording, ...] = ()
    """Recorded stock of preemptible kinds, by zone."""
    confirms_ends: bool = False
    """Whether the clouds report which slices have ended. If not, a slice counts as gone when it was missing for long
    enough.
    """
    reports_times: bool = False
    """Whether the clouds report when machines were created and when they ended."""

    def all_kinds(self) -> tuple[MachineKind, ...]:
        named = {kind.offering.name for kind in self.kinds}
        groups = [one.group for one in self.settings.groups if one.group.name not in named]
        made = [Offering(one.name, one.resources, one.hosts, one.price, (), one.preemptible) for one in groups]
        return (*self.kinds, *(MachineKind(offering) for offering in made))


def shifted_jobs(jobs: Iterable[Job], start: float) -> list[Job]:
    """Return the jobs of a script with the times of a run."""
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
    """Return the faults of a script with the times of a run."""
    return [replace(fault, start=fault.start + start, end=fault.end + start) for fault in faults]


def depends_on_utilization(settings: Settings) -> bool:
    """Whether any rule depends on utilization."""
    rules = [one.group.scale_down for one in settings.groups if one.group.scale_down is not None]
    return any(rule.low_utilization or rule.utilization or rule.consolidate for rule in rules)
