"""``effort``: more of it lowers the price of a plan, is never ignored, and never raises it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

import windlass
from windlass.core.model.constraints import Apart
from windlass.core.model.snapshot import Bundle, Cluster, Demand, Group, Snapshot, amounts

DOLLAR = 10**9


def mixed_work(seed: int, shapes: int = 30, most: int = 40) -> Snapshot:
    """Tasks of many shapes, and machine types that fit none of them well."""
    draw = random.Random(seed)
    groups = tuple(
        Group(
            f"type-{at:02}",
            amounts({"cpu": cpus * 1000, "memory": cpus * ratio * 2**30}),
            max=10_000,
            price=int(DOLLAR * cpus * (0.04 + 0.006 * ratio) * draw.uniform(0.9, 1.1)),
        )
        for at, (cpus, ratio) in enumerate((cpus, ratio) for cpus in (4, 8, 16, 32) for ratio in (2, 4, 8))
    )
    demands = tuple(
        Demand(
            f"job-{at:02}",
            (
                Bundle(
                    amounts({"cpu": draw.randint(5, 75) * 100, "memory": draw.randint(1, 40) * 2**29}),
                    draw.randint(1, most),
                ),
            ),
        )
        for at in range(shapes)
    )
    return Snapshot(groups, demands=demands, cluster=Cluster(choose="cheapest"))


def price(snapshot: Snapshot, effort: int) -> int:
    plan = windlass.plan(replace(snapshot, cluster=replace(snapshot.cluster, effort=effort)))
    assert not plan.waiting
    return plan.hourly_cost.planned


SEEDS = range(6)


@pytest.mark.parametrize("seed", SEEDS)
def test_more_effort_costs_less_and_never_more(seed: int) -> None:
    work = mixed_work(seed)
    prices = [price(work, effort) for effort in (1, 2, 5)]
    assert prices == sorted(prices, reverse=True)
    assert prices[-1] < prices[0]


def test_more_effort_also_helps_tasks_with_constraints_between_them() -> None:
    work = mixed_work(1)
    demands = tuple(
        replace(one, classes=(f"class-{at % 4}",), apart=(Apart(f"class-{at % 4}", "node", 2),) if at % 4 else ())
        for at, one in enumerate(work.demands)
    )
    apart = replace(work, demands=demands)
    assert price(apart, 6) < price(apart, 1)


def test_more_effort_also_helps_with_hundreds_of_machine_types_where_the_first_round_is_short() -> None:
    """There the first round covers twice and leaves the linear programme to the next."""
    types = tuple(
        Group(
            f"type-{cpus:03}",
            amounts({"cpu": cpus * 500 - 100, "memory": cpus * 2**30 - 2**28}),
            max=10_000,
            price=DOLLAR * cpus // 20,
        )
        for cpus in range(1, 421)
    )
    draw = random.Random(7)
    demands = tuple(
        Demand(
            f"pod-{at:03}",
            (Bundle(amounts({"cpu": draw.randint(1, 20) * 100, "memory": draw.randint(1, 20) * 2**28})),),
            classes=(f"class-{at % 7}",),
            apart=(Apart(f"class-{at % 7}", "node"),) if at % 7 else (),
        )
        for at in range(200)
    )
    work = Snapshot(types, demands=demands, cluster=Cluster(choose="cheapest"))
    assert price(work, 2) < price(work, 1)
