"""Constraints between tasks, on random snapshots and against every possibility."""

from __future__ import annotations

import itertools
import json
import random
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import windlass as wl
from tests.snapshots import constrained_snapshots
from windlass.core.capacity.class_counts import SpreadState
from windlass.core.model.snapshot import Snapshot
from windlass.core.placement.domain_shares import LabelShares, share_out
from windlass.core.plan_laws import broken_laws
from windlass.core.planner import plan


@given(constrained_snapshots())
@settings(max_examples=120, phases=(Phase.explicit, Phase.generate))
def test_every_plan_keeps_the_constraints(snapshot: Snapshot) -> None:
    made = plan(snapshot)
    assert list(broken_laws(snapshot, made)) == []
    assert made.to_dict()["schema"] == "windlass.plan/v1"


@pytest.mark.parametrize("by", ["node", "slice"])
@pytest.mark.parametrize("on", [(), ("g-1",)])
def test_the_first_node_of_a_class_takes_no_more_than_its_label_value_allows(by: str, on: tuple[str, ...]) -> None:
    """Seed 2000127 of the swarm: the tasks that started together on one node were one more than pool a allows."""
    snapshot = wl.snapshot(
        groups=[wl.group("g", cpu=8, tpu=4, labels={"pool": "a"}, max=8)],
        slices=[wl.slice_(name, "g") for name in on],
        demands=[
            wl.demand("db", {"cpu": 2}, count=20, classes=["db"], together=[{"with": "db", "by": by}]),
            wl.demand("web", {"tpu": 4}, classes=["web"], apart=[{"from": "db", "by": "pool", "at_most": 3}]),
        ],
    )
    made = plan(snapshot)
    assert list(broken_laws(snapshot, made)) == []
    assert {placed.demand: placed.count for placed in made.placements} == {"web": 1, "db": 3}


@pytest.mark.parametrize("skew", [1, 2])
def test_too_few_domains_keep_their_skew_beside_another_constraint_by_label(skew: int) -> None:
    snapshot = wl.snapshot(
        groups=[wl.group("g", cpu=8, labels={"rack": "r1"}, max=4)],
        demands=[
            wl.demand(
                "job",
                {"cpu": 1},
                count=5,
                classes=["job"],
                apart=[{"from": "job", "by": "zone"}],
                spread=[{"of": "job", "over": "rack", "max_skew": skew, "min_domains": 2}],
            )
        ],
    )
    made = plan(snapshot)
    assert list(broken_laws(snapshot, made)) == []
    assert sum(placed.count for placed in made.placements) == skew


@given(constrained_snapshots(), st.randoms(use_true_random=False))
@settings(max_examples=40, phases=(Phase.explicit, Phase.generate))
def test_the_order_of_the_input_changes_nothing(snapshot: Snapshot, rng: random.Random) -> None:
    def mixed(items: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(rng.sample(items, len(items)))

    other = replace(
        snapshot,
        groups=mixed(snapshot.groups),
        slices=tuple(replace(s, nodes=mixed(s.nodes)) for s in mixed(snapshot.slices)),
        demands=mixed(snapshot.demands),
    )
    assert json.dumps(plan(other).to_dict()) == json.dumps(plan(snapshot).to_dict())


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=3),
    st.integers(1, 2),
    st.integers(0, 8),
)
def test_as_many_tasks_are_spread_as_any_order_could(domains: list[tuple[int, int]], skew: int, tasks: int) -> None:
    """``domains``: (tasks there, tasks that it can take). Tasks are placed one by one, in every possible order."""

    def most(counts: tuple[int, ...], left: tuple[int, ...], tasks: int) -> int:
        best = 0
        for at in range(len(counts)):
            if tasks and left[at] and counts[at] + 1 - min(counts) <= skew:
                more = tuple(count + (at == index) for index, count in enumerate(counts))
                less = tuple(count - (at == index) for index, count in enumerate(left))
                best = max(best, 1 + most(more, less, tasks - 1))
        return best

    counts, room = (np.array(column) for column in zip(*domains, strict=True))
    state = SpreadState(counts, np.ones(len(counts), np.bool_), skew, False)
    unlimited = np.full(len(counts), 10**6)
    values = np.arange(len(counts))
    shares = share_out(tasks, room, [LabelShares(values, unlimited, (state,))], [0.0] * len(counts))
    after = counts + shares
    assert (shares <= room).all()
    assert all(after[at] - after.min() <= skew for at in range(len(counts)) if shares[at])
    assert int(shares.sum()) == most(tuple(counts.tolist()), tuple(room.tolist()), tasks)
    twice = share_out(tasks, room, [LabelShares(values, unlimited, (state, state))], [0.0] * len(counts))
    assert int(twice.sum()) == int(shares.sum())


@given(st.integers(1, 5), st.integers(1, 3), st.lists(st.integers(0, 3), min_size=0, max_size=3))
def test_apart_uses_the_least_number_of_nodes(tasks: int, at_most: int, running: list[int]) -> None:
    rule = {"from": "web", "by": "node", "at_most": at_most}
    made = plan(
        wl.snapshot(
            [wl.group("a", cpu=8, max=20)],
            [
                wl.slice_(f"s-{index}", "a", used={"cpu": max(count, 1)}, classes={"web": count})
                for index, count in enumerate(running)
            ],
            [
                wl.demand(
                    "web",
                    {"cpu": 1},
                    count=tasks,
                    classes=["web"],
                    apart=[rule],
                )
            ],
        )
    )
    free = sum(max(at_most - count, 0) for count in running)
    assert made.launch.get("a", 0) == max(0, -(-(tasks - free) // at_most))
    for index, count in enumerate(running):
        mine = sum(one.count for one in made.placements if one.on == f"s-{index}")
        assert not mine or count + mine <= at_most


@pytest.mark.parametrize("by", ["node", "slice"])
@pytest.mark.parametrize("on", [(), ("g-a-1",)])
@pytest.mark.parametrize("zones", [("a",), ("a", "b")])
def test_the_first_node_of_a_class_takes_no_more_than_the_spread_of_its_zone_allows(
    by: str, on: tuple[str, ...], zones: tuple[str, ...]
) -> None:
    """All tasks follow the first one onto its node or slice, so no other zone gets one, and its own is full at once."""
    snapshot = wl.snapshot(
        groups=[wl.group(f"g-{zone}", cpu=8, labels={"zone": zone}, max=8) for zone in zones],
        slices=[wl.slice_(name, "g-a") for name in on],
        demands=[
            wl.demand(
                "web",
                {"cpu": 1},
                count=4,
                classes=["web"],
                spread=[{"of": "web", "over": "zone", "max_skew": 2, "min_domains": 2}],
                together=[{"with": "web", "by": by}],
            )
        ],
    )
    made = plan(snapshot)
    assert list(broken_laws(snapshot, made)) == []
    assert sum(placed.count for placed in made.placements) == 2
    assert [(one.demand, one.count, one.reason.code) for one in made.waiting] == [("web", 2, "SPREAD")]


def test_a_gang_on_nodes_of_its_own_is_bought_with_constrained_tasks_beside_machines_in_flight() -> None:
    snapshot = wl.snapshot(
        groups=[
            wl.group("small", cpu=2, price=0.7, max=1),
            wl.group("large", cpu=8, labels={"zone": "b"}, price=1.0, max=9),
        ],
        slices=[wl.slice_("small-1", "small", state="queued")],
        demands=[
            wl.demand("web", {"cpu": 1}, spread=[{"of": "job", "over": "zone"}]),
            wl.gang("train", [({"cpu": 1}, 1)], kind="spread"),
        ],
    )
    made = plan(snapshot)
    assert list(broken_laws(snapshot, made)) == []
    assert not made.waiting


def test_a_constraint_binds_both_ways() -> None:
    made = plan(
        wl.snapshot(
            [wl.group("a", cpu=8, max=9)],
            demands=[
                wl.demand("alone", {"cpu": 2}, classes=["web"], apart=[{"from": "web", "by": "node"}]),
                wl.demand("others", {"cpu": 1}, count=3, classes=["web"]),
            ],
        )
    )
    targets = {one.demand: one.on for one in made.placements}
    assert made.launch == {"a": 2}
    assert targets["alone"] != targets["others"]


def test_a_constraint_by_zone_binds_tasks_that_were_decided_on_before_it() -> None:
    snapshot = wl.snapshot(
        [wl.group(f"in-{zone}", cpu=8, max=9, price=1, labels={"zone": zone}) for zone in ("a", "b")],
        demands=[
            wl.demand("noisy", {"cpu": 4}, count=6, classes=["noisy"]),
            wl.demand("quiet", {"cpu": 1}, classes=["quiet"], apart=[{"from": "noisy", "by": "zone", "at_most": 0}]),
        ],
    )
    made = plan(snapshot)
    zones = {(one.demand, one.on.split(":")[1]) for one in made.placements}
    assert {where for name, where in zones if name == "noisy"}.isdisjoint(w for name, w in zones if name == "quiet")
    assert not list(broken_laws(snapshot, made))


def test_the_first_of_its_class_chooses_where_the_rest_follows() -> None:
    zones = [wl.group(f"z{index}", cpu=4, max=2, price=index, labels={"zone": f"z{index}"}) for index in (3, 2, 1)]
    made = plan(
        wl.snapshot(
            zones,
            demands=[
                wl.demand("cache", {"cpu": 1}, count=8, classes=["cache"], together=[{"with": "cache", "by": "zone"}])
            ],
        )
    )
    assert made.launch == {"z1": 2}
    assert not made.waiting


@pytest.mark.parametrize("kind", [None, "any"])
def test_the_first_of_its_class_starts_only_where_there_is_a_domain(kind: str | None) -> None:
    rule: dict[str, Any] = {"classes": ["cache"], "together": [{"with": "cache", "by": "zone"}]}
    groups = [wl.group("bare", cpu=4, max=9, price=1)]
    work = (
        wl.demand("cache", {"cpu": 1}, count=3, **rule)
        if kind is None
        else wl.gang("cache", [({"cpu": 1}, 3)], kind=kind, **rule)
    )
    made = plan(wl.snapshot(groups, [wl.slice_("bare-1", "bare")], [work]))
    assert made.launch == {}
    assert made.placements == ()
    assert [(one.demand, one.count, one.reason.code) for one in made.waiting] == [("cache", 3, "TOGETHER")]
    assert "no label zone" in made.waiting[0].why or kind is not None
    zoned = wl.group("zoned", cpu=4, max=9, price=2, labels={"zone": "a"})
    made = plan(wl.snapshot([*groups, zoned], [wl.slice_("bare-1", "bare")], [work]))
    assert made.launch == {"zoned": 1}
    assert not made.waiting


def test_work_follows_a_class_that_the_same_plan_places() -> None:
    groups = [wl.group(name, cpu=4, max=3, labels={"zone": name}) for name in ("a", "b")]
    demands = [
        wl.demand("cache", {"cpu": 2}, count=2, together=[{"with": "db", "by": "zone"}], priority=5),
        wl.demand("db", {"cpu": 4}, classes=["db"], where=["zone == b"]),
    ]
    made = plan(wl.snapshot(groups, demands=demands))
    assert made.launch == {"b": 2}
    assert not made.waiting


@pytest.mark.parametrize("kind", ["any", "spread", "same-slice"])
@pytest.mark.parametrize("priority", [0, 5])
def test_a_gang_follows_a_class_that_the_same_plan_places_later(kind: str, priority: int) -> None:
    """The gang follows another one, which follows single tasks; both are served before these."""
    groups = [wl.group(f"g-{zone}", cpu=4, labels={"zone": zone}, max=9, price=price) for zone, price in ZONE_PRICES]
    first: dict[str, Any] = {"classes": ["a"], "together": [{"with": "b", "by": "zone"}], "priority": priority}
    second: dict[str, Any] = {"classes": ["b"], "together": [{"with": "c", "by": "zone"}]}
    made = plan(
        wl.snapshot(
            groups,
            demands=[
                wl.gang("first", [({"cpu": 3}, 2)], kind=kind, **first),
                wl.gang("second", [({"cpu": 2}, 1)], **second),
                wl.demand("third", {"cpu": 1}, classes=["c"], where=["zone == z2"]),
            ],
        )
    )
    assert made.waiting == ()
    assert {placed.on.split(":")[1] for placed in made.placements} == {"g-z2"}


ZONE_PRICES = (("z1", 1), ("z2", 2))


def test_bundles_have_conditions_of_their_own_and_placements_name_them() -> None:
    groups = [wl.group("cpu", cpu=8, max=4, labels={"kind": "cpu"}), wl.group("gpu", cpu=8, gpu=4, max=4)]
    bundles: list[Any] = [
        {"needs": {"cpu": 1}, "count": 2, "where": ["kind == cpu"], "classes": ["driver"]},
        {"needs": {"gpu": 1}, "count": 3, "apart": [{"from": "driver", "by": "node", "at_most": 0}]},
    ]
    made = plan(wl.snapshot(groups, demands=[wl.gang("train", bundles)]))
    on = {(one.bundle, one.on.split(":")[1]): one.count for one in made.placements}
    assert on == {(0, "cpu"): 2, (1, "gpu"): 3}
    assert all(entry["bundle"] in (0, 1) for entry in made.to_dict()["placements"])


def zoned_work(count: int) -> Snapshot:
    """100 shapes of ``count`` tasks each, 20 classes that are spread over 3 zones."""
    groups = [
        wl.group(f"{zone}-{cpus}", cpu=cpus, memory=f"{4 * cpus}Gi", max=10**6, price=cpus, labels={"zone": zone})
        for zone, cpus in itertools.product("abc", (8, 32, 96))
    ]
    demands = [
        wl.demand(
            f"d-{index:03}",
            {"cpu": f"{100 + 10 * index}m", "memory": f"{200 + 7 * index}Mi"},
            count=count,
            classes=[f"c-{index % 20}"],
            spread=[{"of": f"c-{index % 20}", "over": "zone"}],
        )
        for index in range(100)
    ]
    return wl.snapshot(groups, demands=demands)


def seconds(snapshot: Snapshot) -> float:
    begun = time.process_time()
    plan(snapshot)
    return time.process_time() - begun


@pytest.mark.alone
def test_a_million_tasks_with_classes_cost_as_much_as_a_few() -> None:
    """A thousand times as many tasks of the same shapes take 1.7 times as long; 5 times is a fault on any machine."""
    few, million = zoned_work(10), zoned_work(10_000)
    seconds(few)
    spent = [(seconds(few), seconds(million)) for _ in range(3)]
    assert min(of_million for _, of_million in spent) < 5 * min(of_few for of_few, _ in spent), spent
    made = plan(million)
    assert sum(one.count for one in made.placements) == 1_000_000
    assert made.hourly_cost.planned < 1.001 * 595_000 * 10**9  # 595,000 CPU at $1/h each
    assert list(broken_laws(million, made)) == []


def test_equal_zones_get_equal_machines() -> None:
    """Each zone is a separate part of the purchase, and equal parts are solved once."""
    made = plan(zoned_work(3_000))
    bought = {zone: {at[2:]: n for at, n in made.launch.items() if at.startswith(zone)} for zone in "abc"}
    assert bought["a"]
    assert bought["a"] == bought["b"] == bought["c"]


def different_work(demands: int) -> Snapshot:
    """Demands of one task each, all with different needs; every class is spread over the zones, or apart by node."""
    draw = random.Random(4)
    groups = [
        wl.group(f"{zone}-{cpus}", cpu=cpus, memory=f"{4 * cpus}Gi", max=10**6, price=cpus, labels={"zone": zone})
        for zone, cpus in itertools.product("abc", (4, 8, 16, 32))
    ]
    rules: list[dict[str, Any]] = [
        {"classes": [f"c-{at}"], "spread": [{"of": f"c-{at}", "over": "zone"}]}
        if at % 2
        else {"classes": [f"c-{at}"], "apart": [{"from": f"c-{at}", "by": "node"}]}
        for at in range(20)
    ]
    waiting = [
        wl.demand(
            f"d-{at:04}",
            {"cpu": f"{draw.randint(100, 4000)}m", "memory": f"{draw.randint(100, 9000)}Mi"},
            **rules[at % 20],
        )
        for at in range(demands)
    ]
    return wl.snapshot(groups, demands=waiting)


@pytest.mark.alone
def test_the_time_grows_no_faster_than_the_square_of_the_number_of_different_needs() -> None:
    some, many = different_work(250), different_work(1_000)
    seconds(different_work(20))
    spent = [(seconds(some), seconds(many)) for _ in range(2)]
    assert min(of_many for _, of_many in spent) < 16 * min(of_some for of_some, _ in spent), spent
    assert list(broken_laws(many, plan(many))) == []


def test_a_waiting_task_gets_the_smallest_skew_that_helps() -> None:
    groups = [
        wl.group("a", cpu=1, max=9, labels={"zone": "z1"}, price=1),
        wl.group("b", cpu=1, max=1, labels={"zone": "z2"}, price=1),
    ]
    spread = [{"of": "api", "over": "zone"}]
    made = plan(wl.snapshot(groups, demands=[wl.demand("api", {"cpu": 1}, count=6, classes=["api"], spread=spread)]))
    (waits,) = made.waiting
    assert {name: str(reason.code) for name, reason in waits.groups.items()} == {"a": "SPREAD", "b": "AT_MAX"}
    changes = [one.change for one in made.unblocks["api"]]
    assert changes == ["max of b 1 -> 3", "max_skew of api over zone 1 -> 4"]


def test_work_with_classes_is_not_consolidated_onto_work_with_classes() -> None:
    group = wl.group("a", cpu=4, max=9, price=1, scale_down={"consolidate": True})
    slices = [wl.slice_(f"s-{index}", "a", used={"cpu": 1}, classes={"web": 1}) for index in range(2)]
    assert not plan(wl.snapshot([group], slices)).drain
    plain = [wl.slice_(f"s-{index}", "a", used={"cpu": 1}) for index in range(2)]
    assert len(plan(wl.snapshot([group], plain)).drain) == 1
