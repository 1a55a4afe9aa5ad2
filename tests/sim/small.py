"""Small simulations for tests."""

from __future__ import annotations

from windlass.control.settings import GroupSettings, Interval, Policy, Settings
from windlass.core.model.snapshot import Bundle, Cluster, Demand, Gang, Group, ScaleDown, amounts
from windlass.sim.faults.catalogue import Fault
from windlass.sim.run.script import Script
from windlass.sim.workload.jobs import Job

GPU = Group(
    "gpu",
    amounts({"cpu": 8000, "gpu": 2000}),
    max=4,
    price=2 * 10**9,
    scale_down=ScaleDown(idle_timeout=300),
)
QUICK = Policy(evaluation_interval=Interval(0.2, 30))


def settings(*groups: Group, cluster: Cluster | None = None, policy: Policy = QUICK) -> Settings:
    return Settings(tuple(GroupSettings(group, "cloud") for group in groups or (GPU,)), cluster or Cluster(), policy)


def job(name: str, count: int = 1, arrives: float = 0.0, duration: float = 600.0, gang: Gang | None = None) -> Job:
    return Job(Demand(name, (Bundle(amounts({"gpu": 1000}), count),), gang=gang), arrives, duration)


def script(*jobs: Job, faults: tuple[Fault, ...] = (), seed: int = 1, hours: float = 1.0, **more) -> Script:
    more.setdefault("settings", settings())
    return Script(
        jobs=jobs or (job("a", 4), job("b", 2, 300), job("c", 6, 900)), faults=faults, seed=seed, hours=hours, **more
    )


def broken(run) -> set[str]:
    return {breach.invariant for breach in run.breaches}
