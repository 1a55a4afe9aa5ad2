"""Measures pods per second on a mix of pods like that of Karpenter's scheduling benchmark.

Its benchmark has five kinds of pods, a fifth each: plain; spread over zones; spread over hosts; in the same zone as
each other; never two on one host. Each pod asks for 0.1 to 1.5 cpus and 100 to 4096 MiB. There are 400 machine types.
Here:

- Pods come in deployments of 10 to 50 equal ones, as in real clusters. (Karpenter draws each pod at random, and all
  pods with anti-affinity have one label.)
- 400 groups are 100 machine types in 4 zones, 1 to 100 cpus with 2 GiB each.
- Spread over zones: equal shares, each with ``where zone == z``. Karpenter counts what runs in each zone; so does the
  layer above the planner, and the planner gets the shares.
- The same zone: ``where zone == z``, one zone for each deployment.
- Spread over hosts and one per host: gangs ``spread``. A skew of one over hosts that can always be added means one per
  host, so both are the same to us.

What is measured is ``plan(snapshot)``, CPU seconds. Karpenter's rate is that of its own pods on this kind of machine;
the pods here are like them, not the same. ``karpenter_pods`` has its own pods, one by one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import windlass
from windlass.core.model.conditions import parse_condition
from windlass.core.model.quantities import NANO
from windlass.core.model.snapshot import Bundle, Choose, Cluster, Demand, Gang, Group, Snapshot, amounts

from .table import Table, number, seconds
from .targets import Check, at_least, at_most
from .timing import cpu_time

NAME = "karpenter_mix"
TITLE = "Karpenter's mix"
MEASURED = 132
"""Pods per CPU second of Karpenter 1.15 in its own benchmark: 5,000 pods in 37.8 s on this kind of machine, idle."""

STRATEGIES: tuple[Choose, ...] = ("best-fit", "cheapest")
KINDS = ("plain", "spread over zones", "spread over hosts", "same zone", "one per host")
ZONES = ("zone-a", "zone-b", "zone-c", "zone-d")
CPU = (100, 250, 500, 1000, 1500)
MEMORY = (100, 256, 512, 1024, 2048, 4096)
MIB = 2**20
PODS = {"quick": (2_000,), "default": (2_000, 20_000)}


def measure(which: str = "default", say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    rows = []
    for pods in PODS.get(which, PODS["default"]):
        for choose in STRATEGIES:
            rows.append(row(pods, choose))
            say(f"{pods:,} pods, {choose}: {rows[-1]['pods_per_second']:,.0f} pods/s")
    return {"name": NAME, "rows": rows, "checks": checks(rows)}


def row(pods: int, choose: Choose, types: int = 100) -> dict[str, Any]:
    snapshot = mix(pods, choose, types)
    timed = cpu_time(lambda: windlass.plan(snapshot), repeats=3, enough=5)
    return {
        "choose": choose,
        "pods": sum(demand.count for demand in snapshot.demands),
        "groups": len(snapshot.groups),
        "demands": len(snapshot.demands),
        "gangs": sum(demand.gang is not None for demand in snapshot.demands),
        "seconds": timed.seconds,
        "pods_per_second": pods / timed.seconds,
        "launched": sum(timed.result.launch.values()),
        "dollars": timed.result.hourly_cost.planned / NANO,
        "waiting": sum(item.count for item in timed.result.waiting),
    }


def mix(pods: int, choose: Choose, types: int = 100, seed: int = 1) -> Snapshot:
    chance = random.Random(seed)
    demands = tuple(
        demand
        for kind in KINDS
        for index, size in enumerate(deployment_sizes(pods // len(KINDS), chance))
        for demand in deployment(kind, index, size, chance)
    )
    groups = tuple(
        Group(
            f"c{cpus:03}-{zone}",
            amounts({"cpu": cpus * 1000, "memory": cpus * 2 * 1024 * MIB}),
            max=100_000,
            labels={"zone": zone},
            price=cpus * NANO // 20,
        )
        for cpus in range(1, types + 1)
        for zone in ZONES
    )
    return Snapshot(groups, demands=demands, cluster=Cluster(choose=choose))


def deployment_sizes(pods: int, chance: random.Random) -> Iterator[int]:
    while pods:
        size = min(pods, chance.randint(10, 50))
        pods -= size
        yield size


def deployment(kind: str, index: int, size: int, chance: random.Random) -> Iterator[Demand]:
    """Return a deployment of equal pods as demands."""
    name = f"{kind.replace(' ', '-')}-{index:04}"
    needs = amounts({"cpu": chance.choice(CPU), "memory": chance.choice(MEMORY) * MIB})
    match kind:
        case "plain":
            yield Demand(name, (Bundle(needs, size),))
        case "spread over zones":
            for place, zone in enumerate(ZONES):
                share = size // len(ZONES) + (place < size % len(ZONES))
                if share:
                    yield Demand(f"{name}-{zone}", (Bundle(needs, share),), where=_in_zone(zone))
        case "same zone":
            yield Demand(name, (Bundle(needs, size),), where=_in_zone(ZONES[index % len(ZONES)]))
        case _:
            yield Demand(name, (Bundle(needs, size),), gang=Gang.SPREAD)


def _in_zone(zone: str) -> tuple[Any, ...]:
    return (parse_condition(f"zone == {zone}"),)


def checks(rows: list[dict[str, Any]]) -> list[Check]:
    found = []
    for one in rows:
        what = f"{one['choose']}: {one['pods']:,} pods, {one['groups']} groups: pods per second"
        found.append(at_least(what, one["pods_per_second"], MEASURED, digits=0))
    found.append(at_most("pods left waiting, all rows together", sum(one["waiting"] for one in rows), 0))
    return found


def tables(result: dict[str, Any]) -> list[Table]:
    cells = tuple(
        (
            f"Windlass, {one['choose']}",
            number(one["pods"]),
            number(one["groups"]),
            number(one["gangs"]),
            seconds(one["seconds"]),
            number(one["pods_per_second"]),
            number(one["launched"]),
            f"{one['dollars']:,.2f}",
        )
        for one in result["rows"]
    )
    measured = ("Karpenter 1.15, its own pods", *[""] * 4, number(MEASURED), "", "")
    columns = ("who", "pods", "groups", "gangs", "plan", "pods/s", "nodes", "$/h")
    return [Table("A fifth each of five kinds of pods", columns, (*cells, measured))]
