"""Builds the simulations that policies are compared in: real jobs, and a reasonable list of machines for them.

The machines follow from the jobs by a rule, so that no choice of ours is in them, and are the same for every policy.
For each kind of job two types of the catalogue are listed: the cheapest that holds one of them, and the one on which it
costs least when the machine is full of them (to a tenth of a cent, the smaller machine first). So no list holds a
machine that is dear for what it does, which helps those that do not look at prices. Machines with GPUs are tainted, as
is usual, and jobs that need a GPU tolerate it. A machine with GPUs boots in 3 minutes, another one in 90 seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from windlass.config.set_option import overridden
from windlass.control.settings import Settings
from windlass.core.model.conditions import Toleration
from windlass.core.model.quantities import NANO
from windlass.core.model.snapshot import Amounts
from windlass.sim.trace.offline_bound import offline_bound
from windlass.sim.trace.reader import Trace, read_trace
from windlass.sim.workload.jobs import Job

from .shared_data import MachineType, Pods, catalogue, directory

DAY = 86400.0
GPU_BOOT, CPU_BOOT = 180, 90
TAINT = "gpu"
MIB = 2**20


@dataclass(frozen=True)
class World:
    """Jobs of a trace that some machine of the list holds, the list as a configuration, and the offline bound."""

    name: str
    trace: Trace
    config: str
    """As text: what a file would hold."""
    bound: float
    """Dollars."""
    left_out: int
    """Jobs that never ended, or that no machine of the catalogue holds."""

    def settings(self, *changes: str, policy: str | None = None) -> Settings:
        """With a policy laid over it, and with changes such as ``*.scale_down.idle_timeout=5m``."""
        return overridden(self.config, path=self.name, changes=changes, policy=policy).settings


def world(file: str, first_day: float = 0.0, days: float | None = None, jobs: int | None = None) -> World:
    """Jobs of a trace that came in so many days from a day on, at most so many; all of it, if nothing is said."""
    whole = read_trace(directory() / file)
    last = float("inf") if days is None else first_day + days
    some = [job for job in whole.jobs if first_day * DAY <= job.arrives < last * DAY][:jobs]
    name = Path(file).name.removesuffix(".gz").removesuffix(".csv").removeprefix("trace_")
    return world_of(name, some, catalogue(), whole.left_out if len(some) == len(whole.jobs) else 0)


def world_of(name: str, jobs: Iterable[Job], kinds: Iterable[MachineType], left_out: int = 0) -> World:
    """The jobs on the machines that follow from them."""
    jobs, kinds = list(jobs), list(kinds)
    groups = listed(jobs, kinds)
    config = json.dumps(
        {
            "groups": {group_name(kind): _group(kind) for kind in groups},
            "providers": {"cloud": {"type": "simulated"}},
            "workload": {"type": "simulated"},
        }
    )
    possible = [job for job in jobs if any(_pods(job).may_run_on(kind) for kind in groups)]
    start = possible[0].arrives if possible else 0.0
    shown = tuple(replace(_tolerating(job), arrives=job.arrives - start) for job in possible)
    configured = overridden(config, path=name).settings.groups
    bound = offline_bound([one.group for one in configured], shown)
    return World(name, Trace(shown, 0), config, bound, left_out + len(jobs) - len(possible))


def listed(jobs: Iterable[Job], kinds: Iterable[MachineType]) -> list[MachineType]:
    """For each kind of job the cheapest machine for one, and the cheapest for many."""
    kinds = sorted(kinds, key=lambda kind: (kind.price, kind.name))
    found: dict[str, MachineType] = {}
    for pods in dict.fromkeys(_pods(job) for job in jobs):
        fit = [kind for kind in kinds if pods.may_run_on(kind) and bool(kind.gpus) == bool(pods.gpu)]
        if fit:
            for kind in (fit[0], min(fit, key=lambda one: _dollars_each(one, pods))):
                found[kind.name] = kind
    return [found[name] for name in sorted(found)]


def _dollars_each(kind: MachineType, pods: Pods) -> float:
    """Dollars per hour for one of them on a machine that is full of them, to a tenth of a cent."""
    many = [kind.cpu // pods.cpu if pods.cpu else None, kind.memory // pods.memory if pods.memory else None]
    if pods.gpu:
        many.append(kind.gpus * (1000 // pods.gpu) if pods.gpu < 1000 else kind.gpus * 1000 // pods.gpu)
    return round(kind.price / NANO / min(one for one in many if one is not None), 3)


def _pods(job: Job) -> Pods:
    """One task of a job as the catalogue sees it."""
    needs: Amounts = job.demand.bundles[0].needs
    amounts = dict(needs)
    models = job.demand.where[0].values if job.demand.where else ()
    return Pods(amounts.get("cpu", 0), -(-amounts.get("memory", 0) // MIB), amounts.get("gpu", 0), tuple(models), 1)


def _tolerating(job: Job) -> Job:
    if not any(name == "gpu" for bundle in job.demand.bundles for name, _ in bundle.needs):
        return job
    return replace(job, demand=replace(job.demand, tolerates=(Toleration(TAINT, "Exists"),)))


def group_name(kind: MachineType) -> str:
    """Without the characters that mean something in the path of a setting."""
    return kind.name.replace("+", "-").replace(".", "-")


def _group(kind: MachineType) -> dict[str, Any]:
    resources: dict[str, Any] = {"cpu": kind.cpu / 1000, "memory": f"{kind.memory}Mi"}
    group: dict[str, Any] = {"max": 100_000, "price": f"{kind.price / NANO:.6f}"}
    if not kind.gpus:
        return {**group, "resources": resources, "boot_seconds": CPU_BOOT}
    return {
        **group,
        "resources": {**resources, "gpu": kind.gpus},
        "labels": {"gpu-model": kind.model},
        "taints": [{"key": TAINT}],
        "boot_seconds": GPU_BOOT,
    }
