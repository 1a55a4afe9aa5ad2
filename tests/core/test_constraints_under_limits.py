"""Constraints between tasks under tight limits: no task waits that could still be placed beside the others."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import windlass as wl
from windlass.core.model.plan import Plan
from windlass.core.model.snapshot import Demand, Group, Snapshot
from windlass.core.plan_laws import broken_laws
from windlass.core.planner import plan

ZONES = "abc"


def different_demands(seed: int, demands: int, max_nodes: int) -> Snapshot:
    """Many different demands with constraints by zone and node, on machines of several sizes in three zones."""
    rng = random.Random(seed)
    sizes = [(2, 4), (4, 16), (8, 16), (8, 32), (16, 64)][: rng.randint(2, 5)]
    groups = [
        wl.group(
            f"m{cpu}-{memory}-{zone}",
            cpu=cpu,
            memory=f"{memory}Gi",
            labels={"zone": zone},
            max=rng.choice([max_nodes // 3, 2 * max_nodes, 2 * max_nodes]),
            price=0.04 * cpu + 0.005 * memory,
        )
        for zone in ZONES
        for cpu, memory in sizes
    ]
    classes = max(1, demands // rng.choice([1, 4, 10]))
    return wl.snapshot(
        groups,
        demands=[
            wl.demand(
                f"d{index:03}",
                {"cpu": rng.choice([0.25, 0.5, 1, 1.5, 2]), "memory": rng.choice(["256Mi", "1Gi", "2Gi", "3Gi"])},
                count=rng.randint(1, 6),
                **_constraints(rng, f"k{index % classes}"),
            )
            for index in range(demands)
        ],
        max_nodes=max_nodes,
    )


def _constraints(rng: random.Random, name: str) -> dict[str, Any]:
    rules: dict[str, Any] = {"classes": [name]}
    kind = rng.random()
    if kind < 0.55:
        rules["spread"] = [{"of": name, "over": "zone", "max_skew": rng.choice([1, 1, 2])}]
    if 0.45 < kind < 0.8:
        rules["apart"] = [{"from": name, "by": rng.choice(["zone", "node"]), "at_most": rng.randint(1, 4)}]
    if rng.random() < 0.1:
        rules["where"] = [f"zone == {rng.choice(ZONES)}"]
    return rules


def could_still_start(snapshot: Snapshot, made: Plan) -> Iterator[str]:
    """Names each waiting demand of which one more task could start beside the plan's placements, and where."""
    groups = {group.name: group for group in snapshot.groups}
    demands = {demand.id: demand for demand in snapshot.demands}
    machines = {f"new:{name}:{index}": groups[name] for name, count in made.launch.items() for index in range(count)}
    used: dict[str, Counter[str]] = {name: Counter() for name in machines}
    counts: Counter[tuple[str, str]] = Counter()
    caps: dict[tuple[str, str], int] = {}
    for placed in made.placements:
        demand, zone = demands[placed.demand], machines[placed.on].labels["zone"]
        for resource, amount in demand.bundles[0].needs:
            used[placed.on][resource] += amount * placed.count
        for class_ in demand.classes:
            counts[placed.on, class_] += placed.count
            counts[zone, class_] += placed.count
        for rule in demand.apart:
            domain = zone if rule.by == "zone" else placed.on
            caps[domain, rule.class_] = min(rule.at_most, caps.get((domain, rule.class_), 10**9))

    def allows(demand: Demand, group: Group, name: str) -> bool:
        zone = group.labels["zone"]
        (class_,) = demand.classes
        if any(counts[domain, class_] + 1 > caps.get((domain, class_), 10**9) for domain in (zone, name)):
            return False
        for rule in demand.apart:
            if counts[zone if rule.by == "zone" else name, class_] + 1 > rule.at_most:
                return False
        eligible = {one.labels["zone"] for one in groups.values() if fits(demand, one, Counter())}
        smallest = min(counts[one, class_] for one in eligible)
        return all(counts[zone, class_] + 1 - smallest <= rule.max_skew for rule in demand.spread)

    def fits(demand: Demand, group: Group, taken: Counter[str]) -> bool:
        has, labels = dict(group.resources), group.node_labels()
        enough = all(taken[name] + amount <= has[name] for name, amount in demand.bundles[0].needs)
        return enough and all(condition.holds(labels) for condition in demand.where)

    limit = snapshot.cluster.max_nodes
    assert limit is not None
    for waiting in made.waiting:
        demand = demands[waiting.demand]
        for name, group in machines.items():
            if fits(demand, group, used[name]) and allows(demand, group, name):
                yield f"{demand.id} on {name}"
        for group in groups.values():
            more = len(machines) < limit and made.launch.get(group.name, 0) < group.max
            if more and fits(demand, group, Counter()) and allows(demand, group, "another machine"):
                yield f"{demand.id} on another machine of {group.name}"


@pytest.mark.parametrize("seed", [0, 5, 7])
def test_hundreds_of_different_demands_use_every_machine_that_a_limit_allows(seed: int) -> None:
    snapshot = different_demands(seed, 200, 60)
    made = plan(snapshot)
    assert sum(made.launch.values()) == 60
    assert list(could_still_start(snapshot, made)) == []
    assert list(broken_laws(snapshot, made)) == []


@given(st.integers(0, 10**6), st.integers(2, 30), st.integers(3, 12))
@settings(max_examples=60, deadline=None, phases=(Phase.explicit, Phase.generate))
def test_no_task_waits_that_could_still_start(seed: int, demands: int, max_nodes: int) -> None:
    snapshot = different_demands(seed, demands, max_nodes)
    made = plan(snapshot)
    assert list(could_still_start(snapshot, made)) == []
    assert list(broken_laws(snapshot, made)) == []


def test_the_machine_that_holds_all_tasks_is_bought_where_a_limit_allows_only_one() -> None:
    """The cheapest machine takes one of them only: there is a task of the class in its zone already."""
    running = wl.slice_("s", "old", used={"cpu": 2}, classes={"api": 1})
    snapshot = wl.snapshot(
        [
            wl.group("old", cpu=2, labels={"zone": "a"}, max=1, price=9),
            wl.group("cheap", cpu=3, labels={"zone": "a"}, max=3, price=1),
            wl.group("dear", cpu=2, labels={"zone": "b"}, max=1, price=2),
        ],
        slices=[running],
        demands=[
            wl.demand(
                "api", {"cpu": 1}, count=2, classes=["api"], spread=[{"of": "api", "over": "zone", "max_skew": 2}]
            )
        ],
        max_nodes=2,
    )
    made = plan(snapshot)
    assert made.launch == {"dear": 1}
    assert made.waiting == ()
