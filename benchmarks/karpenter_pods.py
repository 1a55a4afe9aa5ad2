"""Plans Karpenter's own pods, each as a separate task with its label and selector as constraints between tasks.

The files hold the pods that the scheduling benchmark of Karpenter 1.15 draws, and the machine that Karpenter chose for
each. Here every pod is a demand of its own, with its label as class:

- ``one-per-host``: apart from its selector by node; ``spread-host`` and ``spread-zone``: spread of its selector over
  nodes or zones; ``same-zone``: together with its selector by zone; ``plain``: nothing.
- The 400 machine types are those of Karpenter's fake provider: 1 to 400 cpus with 2 GiB and 10 pods each, less 100m cpu
  and 10 MiB for the system, 0.1 $/h per cpu and per gigabyte, in 3 zones.

What is measured is ``plan(snapshot)`` with the machine of every pod, in CPU seconds. Karpenter's numbers are from a run
of its benchmark on the same kind of machine. The answer is checked pod by pod (``wrong``).
"""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import windlass
from windlass.core.model.constraints import Apart, Spread, Together
from windlass.core.model.plan import Plan
from windlass.core.model.quantities import NANO
from windlass.core.model.snapshot import Bundle, Cluster, Demand, Group, Snapshot, amounts

from .shared_data import directory, missing
from .table import Table, number, seconds
from .targets import Check, at_least, at_most
from .timing import cpu_time

NAME = "karpenter_pods"
TITLE = "Karpenter's pods, one by one"
ZONES = ("zone-a", "zone-b", "zone-c")
MIB, GB = 2**20, 10**9
FILES = {"quick": (2_000,), "default": (2_000, 5_000)}
KARPENTER = {2_000: (14.3, 400, 713.0), 5_000: (37.8, 1_000, 1_761.0)}
"""Pods: CPU seconds, nodes, dollars per hour of Karpenter 1.15 on this kind of machine, idle."""


@dataclass(frozen=True)
class Pod:
    """A row of the file."""

    id: str
    kind: str
    cpu: int
    memory: int
    label: str
    selector: str


def read(path: Path) -> list[Pod]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [
        Pod(f"pod-{int(r['pod']):05}", r["kind"], int(r["cpu_millis"]), int(r["memory_mib"]), r["label"], r["selector"])
        for r in rows
    ]


def groups(types: int = 400) -> tuple[Group, ...]:
    found = []
    for cpus in range(1, types + 1):
        memory = cpus * 2 * 1024 * MIB
        resources = amounts({"cpu": cpus * 1000 - 100, "memory": memory - 10 * MIB, "pods": cpus * 10 * 1000})
        price = NANO * cpus // 10 + NANO * memory // (10 * GB)
        found += [
            Group(f"c{cpus:03}-{zone}", resources, max=100_000, labels={"zone": zone}, price=price) for zone in ZONES
        ]
    return tuple(found)


def demand(pod: Pod) -> Demand:
    needs = amounts({"cpu": pod.cpu, "memory": pod.memory * MIB, "pods": 1000})
    plain = Demand(pod.id, (Bundle(needs),), classes=(pod.label,))
    match pod.kind:
        case "one-per-host":
            return replace(plain, apart=(Apart(pod.selector, "node"),))
        case "spread-host":
            return replace(plain, spread=(Spread(pod.selector, "node"),))
        case "spread-zone":
            return replace(plain, spread=(Spread(pod.selector, "zone"),))
        case "same-zone":
            return replace(plain, together=(Together(pod.selector, "zone"),))
    return plain


def as_snapshot(pods: list[Pod], types: int = 400) -> Snapshot:
    return Snapshot(groups(types), demands=tuple(map(demand, pods)), cluster=Cluster(choose="cheapest"))


def wrong(pods: list[Pod], snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """What is wrong with the answer, from the answer alone: sums on each machine, and an order in which every pod may
    start where it is."""
    kinds = {group.name: group for group in snapshot.groups}
    place = {one.demand: one.on for one in plan.placements}
    yield from (f"{pod.id} is not placed" for pod in pods if pod.id not in place)
    load: dict[str, Counter[str]] = {}
    for pod in pods:
        if pod.id in place:
            load.setdefault(place[pod.id], Counter()).update({"cpu": pod.cpu, "memory": pod.memory * MIB, "pods": 1000})
    for on, used in load.items():
        has = dict(kinds[on.split(":")[1]].resources)
        yield from (f"{on} holds {used[name]} {name} of {has[name]}" for name in used if used[name] > has[name])
    zone_of = {name: kinds[on.split(":")[1]].labels["zone"] for name, on in place.items()}
    for pod in _never_started([pod for pod in pods if pod.id in place], place, zone_of):
        yield f"{pod.id} ({pod.kind} of {pod.selector}) may not be on {place[pod.id]}"
    one_per_host = Counter(place[pod.id] for pod in pods if pod.kind == "one-per-host" and pod.id in place)
    yield from (f"{on} holds {count} that go one per host" for on, count in one_per_host.items() if count > 1)


def _never_started(pods: list[Pod], place: dict[str, str], zone_of: dict[str, str]) -> list[Pod]:
    """The pods that start in no order that was found; a placement is valid if an order for all pods exists.

    Pods that are spread over zones start as soon as they may. When none may, one other pod starts that raises the
    smallest count which one of them waits for: such a pod takes nothing from the others.
    """
    hosts: dict[tuple[str, str], int] = Counter()
    zones: dict[tuple[str, str], int] = Counter()

    def start(pod: Pod) -> bool:
        on, zone = place[pod.id], zone_of[pod.id]
        if not _may_start(pod, on, zone, hosts, zones):
            return False
        hosts[on, pod.label] += 1
        zones[zone, pod.label] += 1
        return True

    by_host = ("spread-host", "one-per-host")
    alone = Counter((place[pod.id], pod.selector) for pod in pods if pod.kind in by_host and pod.label == pod.selector)
    beside_one = Counter(
        (place[pod.id], pod.selector) for pod in pods if pod.kind in by_host and pod.label != pod.selector
    )
    """Pods that have not started and allow no other pod, or one pod, of a class before them on their host."""

    def start_free(pod: Pod, patient: bool) -> bool:
        """``patient``: a pod that any order suits lets those on its host start first that count its class."""
        on, own = place[pod.id], pod.kind in by_host
        if patient and not own and (alone[on, pod.label] or beside_one[on, pod.label]):
            return False
        if alone[on, pod.label] > (own and pod.selector == pod.label) or (
            beside_one[on, pod.label] and hosts[on, pod.label]
        ):
            return False
        if not start(pod):
            return False
        if own:
            (alone if pod.label == pod.selector else beside_one)[on, pod.selector] -= 1
        return True

    spread = [pod for pod in pods if pod.kind == "spread-zone"]
    free: dict[tuple[str, str], list[Pod]] = {}
    for pod in pods:
        if pod.kind != "spread-zone":
            free.setdefault((pod.label, zone_of[pod.id]), []).append(pod)
    while spread:
        left = [pod for pod in spread if not start(pod)]
        if len(left) == len(spread) and not _start_one_below(left, free, zones, start_free):
            break
        spread = left
    rest = [*spread, *(pod for some in free.values() for pod in some)]
    tries = (lambda pod: start_free(pod, True), lambda pod: start_free(pod, False), start)
    while rest:
        for attempt in tries:
            left = [pod for pod in rest if not (start(pod) if pod.kind == "spread-zone" else attempt(pod))]
            if len(left) < len(rest):
                break
        else:
            return rest
        rest = left
    return []


def _start_one_below(
    stuck: list[Pod],
    free: dict[tuple[str, str], list[Pod]],
    zones: dict[tuple[str, str], int],
    start: Callable[[Pod, bool], bool],
) -> bool:
    """Start a pod of a class that stuck pods are spread by, in the zone that has the fewest of it."""
    for patient in (True, False):
        for name in dict.fromkeys(pod.selector for pod in stuck):
            zone = min(ZONES, key=lambda zone, name=name: zones.get((zone, name), 0))  # type: ignore[misc]
            for pod in free.get((name, zone), []):
                if start(pod, patient):
                    free[name, zone].remove(pod)
                    return True
    return False


def _may_start(
    pod: Pod, on: str, zone: str, hosts: dict[tuple[str, str], int], zones: dict[tuple[str, str], int]
) -> bool:
    mine, of = int(pod.label == pod.selector), pod.selector
    if pod.kind in ("one-per-host", "spread-host"):
        return hosts.get((on, of), 0) + mine <= 1
    counts = [zones.get((one, of), 0) for one in ZONES]
    if pod.kind == "spread-zone":
        return zones.get((zone, of), 0) + mine - min(counts) <= 1
    if pod.kind == "same-zone":
        return zones.get((zone, of), 0) > 0 or (bool(mine) and not any(counts))
    return True


def measure(which: str = "default", say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    files = {count: f"karpenter_mix_{count}.csv.gz" for count in FILES.get(which, FILES["default"])}
    reason = missing(tuple(files.values()))
    if reason:
        say(f"skipped: {reason}")
        return {"name": NAME, "rows": [], "checks": [], "skipped": reason}
    rows = []
    for count, file in files.items():
        rows.append(row(read(directory() / file)))
        say(f"{count:,} pods: {rows[-1]['seconds']:.2f} s, {rows[-1]['nodes']} nodes, ${rows[-1]['dollars']:,.0f}/h")
    return {"name": NAME, "rows": rows, "checks": checks(rows)}


def _planned(snapshot: Snapshot) -> Plan:
    """Plan, and compute the machine of every pod, which a plan does only on demand."""
    plan = windlass.plan(snapshot)
    assert len(plan.placements) <= len(snapshot.demands)
    return plan


def row(pods: list[Pod], types: int = 400) -> dict[str, Any]:
    snapshot = as_snapshot(pods, types)
    timed = cpu_time(lambda: _planned(snapshot), repeats=3, enough=4)
    return {
        "pods": len(pods),
        "groups": len(snapshot.groups),
        "seconds": timed.seconds,
        "pods_per_second": len(pods) / timed.seconds,
        "nodes": sum(timed.result.launch.values()),
        "dollars": timed.result.hourly_cost.planned / NANO,
        "wrong": len(list(wrong(pods, snapshot, timed.result))),
    }


def checks(rows: list[dict[str, Any]]) -> list[Check]:
    found = []
    for one in rows:
        if one["pods"] in KARPENTER:
            spent, _, dollars = KARPENTER[one["pods"]]
            faster = one["pods_per_second"] / (one["pods"] / spent)
            found.append(at_least(f"{one['pods']:,} pods: times Karpenter's pods per CPU second", faster, 20, "x"))
            less = 100 * (1 - one["dollars"] / dollars)
            found.append(at_least(f"{one['pods']:,} pods: fewer dollars than Karpenter", less, 25, "%"))
    found.append(at_most("pods that break a constraint or wait, all rows together", sum(o["wrong"] for o in rows), 0))
    return found


def tables(result: dict[str, Any]) -> list[Table]:
    cells = []
    for one in result["rows"]:
        rate, money = number(one["pods_per_second"]), f"{one['dollars']:,.2f}"
        cells.append(("Windlass", number(one["pods"]), seconds(one["seconds"]), rate, number(one["nodes"]), money))
        if one["pods"] in KARPENTER:
            spent, nodes, dollars = KARPENTER[one["pods"]]
            theirs = number(one["pods"] / spent)
            cells.append(
                ("Karpenter 1.15", number(one["pods"]), seconds(spent), theirs, number(nodes), f"{dollars:,.2f}")
            )
    columns = ("who", "pods", "CPU", "pods per CPU second", "nodes", "$/h")
    return [Table("Its five kinds of pods, 400 machine types in 3 zones", columns, tuple(cells))]
