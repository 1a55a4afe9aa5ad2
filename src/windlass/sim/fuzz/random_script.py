"""This module makes a random script from a seed: settings, work, and a random subset of all faults."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random

from windlass.control.settings import GroupSettings, Interval, Policy, Settings
from windlass.core.model.constraints import Apart, Spread, Together
from windlass.core.model.snapshot import (
    Amounts,
    Bundle,
    Choose,
    Cluster,
    Demand,
    Family,
    Gang,
    Group,
    LowUtilization,
    ScaleDown,
    UtilizationTarget,
    amounts,
)
from windlass.providers.protocol import Offering
from windlass.sim.cloud.machines import MachineKind
from windlass.sim.faults.catalogue import HOURLY, Fault
from windlass.sim.faults.presets import FAULT_SETS, JOURNAL, OVERTAKEN
from windlass.sim.run.script import Script
from windlass.sim.workload.jobs import Job

DOLLAR = 10**9
SHAPES: tuple[dict[str, int], ...] = (
    {"cpu": 4000},
    {"cpu": 16_000, "memory": 64 * 2**30},
    {"cpu": 8000, "gpu": 1000},
    {"cpu": 32_000, "gpu": 4000, "memory": 128 * 2**30},
    {"cpu": 8000, "tpu": 4000},
)


def arbitrary_script(seed: int, hours: float = 2.0) -> Script:
    """Return the script of a seed."""
    rng = Random(f"windlass-{seed}")
    settings = _settings(rng)
    # A separate random source, so that older parts of a seed's script stay the same.
    apart = Random(f"apart-{seed}").choice((None, Fraction(0), Fraction(1, 2)))
    settings = replace(settings, cluster=replace(settings.cluster, apart=apart))
    settings = _in_families(Random(f"families-{seed}"), settings)
    groups = [one.group for one in settings.groups]
    jobs = tuple(_job(rng, number, groups, hours) for number in range(rng.choice((3, 8, 15, 30))))
    return Script(
        settings=settings,
        jobs=_constrained(Random(f"constraints-{seed}"), jobs),
        requests=_requests(rng, groups),
        faults=_faults(rng, Random(f"windlass-{seed}-journal"), Random(f"windlass-{seed}-overtaken"), hours),
        kinds=tuple(_kind(rng, group) for group in groups),
        seed=seed,
        hours=hours,
        confirms_ends=Random(f"ends-{seed}").random() < 0.5,
        reports_times=Random(f"times-{seed}").random() < 0.5,
    )


def _settings(rng: Random) -> Settings:
    priced = rng.random() < 0.8
    groups = [
        GroupSettings(_group(rng, f"g{number}", priced=priced), rng.choice(("east", "east", "west")))
        for number in range(rng.choice((1, 1, 2, 3)))
    ]
    choose: list[Choose | None] = [None, "best-fit", "rank", *(["cheapest"] if priced else [])]  # type: ignore[list-item]
    cluster = Cluster(
        max_nodes=rng.choice((None, None, 6, 12)),
        max_hourly_cost=rng.choice((None, 20 * DOLLAR, 60 * DOLLAR)) if priced else None,
        max_launching=rng.choice((None, None, 3)),
        choose=rng.choice(choose),
    )
    policy = Policy(
        evaluation_interval=Interval(0.2, rng.choice((30, 60, 60))),
        drain_timeout=rng.choice((300, 3600)),
        boot_timeout=rng.choice((300, 900)),
        allow_eviction=rng.random() < 0.1,
        launch_concurrency=rng.choice((1, 20)),
        launch_rate=rng.choice((6, 600)),
    )
    return Settings(tuple(groups), cluster, policy)


def _in_families(rng: Random, settings: Settings) -> Settings:
    """Put the groups of some scripts into one family, with limits over all of them."""
    if rng.random() >= 0.2:
        return settings
    most = rng.choice((2, 4, 8))
    family = Family("all", most, rng.choice((0, 0, 1)), rng.choice((0, 0, 1)))
    groups = tuple(replace(one, group=replace(one.group, family=family.name)) for one in settings.groups)
    return replace(settings, groups=groups, cluster=replace(settings.cluster, families=(family,)))


CLASSES = ("web", "db")
DOMAINS = ("node", "slice", "pool")


def _constrained(rng: Random, jobs: tuple[Job, ...]) -> tuple[Job, ...]:
    """Give the jobs of some scripts classes and constraints between their tasks."""
    if rng.random() >= 0.3:
        return jobs
    return tuple(replace(job, demand=_with_rules(rng, job.demand)) if rng.random() < 0.6 else job for job in jobs)


def _with_rules(rng: Random, demand: Demand) -> Demand:
    name, by, rule = rng.choice(CLASSES), rng.choice(DOMAINS), rng.choice(("", "apart", "spread", "together"))
    demand = replace(demand, classes=(name,))
    if rule == "apart":
        return replace(demand, apart=(Apart(rng.choice(CLASSES), by, rng.choice((1, 1, 3))),))
    if rule == "spread":
        return replace(demand, spread=(Spread(name, by, rng.choice((1, 2)), rng.choice((1, 1, 2))),))
    if rule == "together":
        return replace(demand, together=(Together(rng.choice(CLASSES), by),))
    return demand


def _group(rng: Random, name: str, *, priced: bool) -> Group:
    shape = rng.choice(SHAPES)
    return Group(
        name,
        amounts(shape),
        max=rng.choice((1, 2, 4, 8)),
        labels={"pool": rng.choice(("a", "b"))},
        hosts=rng.choice((1, 1, 1, 2, 4)),
        min=rng.choice((0, 0, 0, 1)),
        spare=rng.choice((0, 0, 0, 1)),
        rank=rng.choice((1, 2, 100)),
        price=rng.choice((1, 2, 5, 12)) * DOLLAR if priced else None,
        preemptible=rng.random() < 0.4,
        max_launching=rng.choice((None, None, 1, 2)),
        scale_down=_scale_down(rng, shape),
    )


def _scale_down(rng: Random, shape: dict[str, int]) -> ScaleDown | None:
    utilization = UtilizationTarget(80, 300, rng.choice((0, 1)), rng.choice((None, *shape)))
    return ScaleDown(
        idle_timeout=rng.choice((60, 300, 600)) if rng.random() < 0.7 else None,
        low_utilization=LowUtilization(Fraction(3, 10), rng.choice((0, 1))) if rng.random() < 0.2 else None,
        utilization=utilization if rng.random() < 0.3 else None,
        consolidate=rng.random() < 0.3,
    )


def _kind(rng: Random, group: Group) -> MachineKind:
    zones = rng.choice(((), ("z1",), ("z1", "z2")))
    offering = Offering(group.name, group.resources, group.hosts, group.price, zones, group.preemptible)
    return MachineKind(offering, rng.choice((20.0, 60.0, 200.0)), 20.0, rng.choice((0.0, 0.3)))


def _needs(rng: Random, group: Group) -> Amounts:
    """Return a part of a node's resources."""
    shape = dict(group.resources)
    part = rng.choice((1, 2, 4))
    if "gpu" in shape:
        whole = max(1000, shape["gpu"] // part)
        return amounts({"gpu": rng.choice((whole, 500)), "cpu": shape["cpu"] // 8})
    if "tpu" in shape:
        return amounts({"tpu": shape["tpu"]})
    return amounts({"cpu": max(1000, shape["cpu"] // part)})


def _job(rng: Random, number: int, groups: list[Group], hours: float) -> Job:
    group = rng.choice(groups)
    arrives = rng.choice((0.0, rng.uniform(0, hours * 3600), rng.uniform(0, hours * 3600)))
    demand = Demand(f"job-{number:02}", (Bundle(_needs(rng, group), rng.choice((1, 1, 2, 5, 20))),))
    if rng.random() < 0.2:
        gang = rng.choice(tuple(Gang))
        members = group.hosts * rng.choice((1, 1, 2)) if gang == Gang.SAME_SLICE else rng.choice((2, 4))
        late = arrives + rng.uniform(300, 7200) if rng.random() < 0.3 else None
        demand = replace(demand, bundles=(Bundle(demand.bundles[0].needs, members),), gang=gang, deadline=late)
    demand = replace(demand, priority=rng.choice((0, 0, 0, 5)))
    duration = rng.choice((20.0, 300.0, 1200.0, 3000.0)) if demand.count <= 5 else rng.choice((20.0, 120.0))
    return Job(demand, arrives, duration, rng.choice((0.0, 0.5)))


def _requests(rng: Random, groups: list[Group]) -> tuple[Demand, ...]:
    if rng.random() > 0.15:
        return ()
    return (Demand("room", (Bundle(_needs(rng, rng.choice(groups)), rng.choice((1, 3))),)),)


def _faults(first: Random, second: Random, third: Random, hours: float) -> tuple[Fault, ...]:
    """Return a random subset of all faults, each with a random strength, most of them for the whole run. Later
    additions have separate random sources, so that older parts of a seed's script stay the same.
    """
    share = first.choice((0.0, 0.1, 0.1, 0.3, 0.6))
    found = []
    for fault in FAULT_SETS["all"]:
        rng = second if fault in JOURNAL else third if fault in OVERTAKEN else first
        if rng.random() >= share:
            continue
        strength = rng.choice((0.5, 1.0, 2.0))
        rate = fault.rate * strength if fault.kind in HOURLY else min(0.9, fault.rate * strength)
        one = replace(fault, rate=rate)
        if rng.random() < 0.3:
            start = rng.uniform(0, hours * 3600)
            one = replace(one, start=start, end=start + rng.uniform(60, 3600))
        found.append(one)
    return tuple(found)
