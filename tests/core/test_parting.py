"""Tasks get slices of their own if that costs little more, because these can be released one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given

import windlass as wl
from tests.snapshots import snapshots
from windlass.core.model.plan import Plan
from windlass.core.model.snapshot import Snapshot
from windlass.core.plan_laws import broken_laws
from windlass.scenario import ScenarioError, read_plain, write_scenario

ONE = wl.group("one", cpu=8, gpu=1, max=9, price=1)
TWO = wl.group("two", cpu=16, gpu=2, max=9, price=2)
FOUR = wl.group("four", cpu=32, gpu=4, max=9, price=3)
GROUPS = [ONE, TWO, FOUR]


def planned(snapshot: Snapshot) -> Plan:
    plan = wl.plan(snapshot)
    assert list(broken_laws(snapshot, plan)) == []
    return plan


def bought(*demands: dict, groups: Sequence[Any] = GROUPS, **cluster: Any) -> dict[str, int]:
    plan = planned(wl.snapshot(groups, demands=list(demands), **cluster))
    assert not plan.waiting
    return dict(plan.launch)


# -- how much it may cost ------------------------------------------------------------------------------------------


def test_without_it_tasks_share_a_slice_that_costs_the_same():
    assert bought(wl.demand("a", {"gpu": 1}, count=2)) == {"two": 1}


def test_at_equal_cost_each_task_gets_a_slice_of_its_own():
    assert bought(wl.demand("a", {"gpu": 1}, count=2), apart=0) == {"one": 2}


@pytest.mark.parametrize(("apart", "launch"), [(0, {"four": 1}), (0.3, {"four": 1}), (0.34, {"one": 4})])
def test_all_of_them_together_cost_at_most_that_share_more(apart, launch):
    assert bought(wl.demand("a", {"gpu": 1}, count=4), apart=apart) == launch


def test_a_small_task_leaves_an_expensive_slice_that_stays_to_the_large_one():
    tasks = [wl.demand("large", {"gpu": 4, "cpu": 24}), wl.demand("small", {"cpu": 6})]
    cpu = wl.group("cpu", cpu=8, max=9, price=0.5)
    assert bought(*tasks, groups=[*GROUPS, cpu]) == {"four": 1}
    assert bought(*tasks, groups=[*GROUPS, cpu], apart=0.1) == {"four": 1}
    assert bought(*tasks, groups=[*GROUPS, cpu], apart=0.2) == {"four": 1, "cpu": 1}


def test_what_is_left_moves_to_a_cheaper_group():
    tasks = [wl.demand("pair", {"gpu": 2}), wl.demand("single", {"gpu": 1})]
    assert bought(*tasks) == {"four": 1}
    assert bought(*tasks, apart=0) == {"one": 1, "two": 1}


# -- what keeps them together --------------------------------------------------------------------------------------


def test_a_gang_stays_together_next_to_tasks_on_their_own_machines():
    gang = {"id": "gang", "gang": "any", "bundles": [{"needs": {"gpu": 1}, "count": 2}]}
    assert bought(gang, apart=0) == {"two": 1}
    assert bought(gang, wl.demand("a", {"gpu": 1, "cpu": 2}, count=2), apart=0.34) == {"two": 1, "one": 2}


@pytest.mark.parametrize("limit", [{"max_nodes": 1}, {"max_launching": 1}, {"max_hourly_cost": 3.5}])
def test_where_a_limit_leaves_no_room_for_more_slices_they_share_one(limit):
    assert bought(wl.demand("a", {"gpu": 1}, count=4), apart=0.5, **limit) == {"four": 1}


def test_where_the_group_is_full_they_share_a_slice():
    few = wl.group("one", cpu=8, gpu=1, max=1, price=1)
    assert bought(wl.demand("a", {"gpu": 1}, count=2), groups=[few, TWO], apart=0) == {"two": 1}


def test_no_task_loses_a_preference_by_it():
    near = wl.group("two", cpu=16, gpu=2, max=9, price=2, labels={"zone": "near"})
    wish = wl.demand("a", {"gpu": 1}, count=2, prefer=["zone == near"])
    assert bought(wish, groups=[ONE, near], apart=0.5) == {"two": 1}


def test_room_that_is_there_is_used_first():
    there = wl.slice_("s-1", "two", "ready", since=0)
    plan = planned(wl.snapshot(GROUPS, slices=[there], demands=[wl.demand("a", {"gpu": 1}, count=2)], apart=0.5))
    assert not plan.launch


def test_what_was_bought_apart_is_not_bought_again():
    first = planned(wl.snapshot(GROUPS, demands=[wl.demand("a", {"gpu": 1}, count=3)], apart=0.5))
    coming = [wl.slice_(f"s-{n}", "one", "booting", since=0) for n in range(first.launch["one"])]
    again = wl.snapshot(GROUPS, slices=coming, demands=[wl.demand("a", {"gpu": 1}, count=3)], apart=0.5)
    assert dict(first.launch) == {"one": 3}
    assert not planned(again).launch


# -- why -----------------------------------------------------------------------------------------------------------


def test_a_group_that_would_be_shared_says_that_a_task_alone_costs_more_there():
    (launch,) = planned(wl.snapshot(GROUPS, demands=[wl.demand("a", {"gpu": 1}, count=4)], apart=0.5)).launches
    assert launch.passed_over["four"].why == "a task alone would cost more with it ($3.00/h a machine, $1.00/h for one)"


# -- the key -------------------------------------------------------------------------------------------------------


def test_it_is_read_and_written():
    snapshot = wl.snapshot(GROUPS, apart=0.25)
    assert snapshot.cluster.apart == Fraction(1, 4)
    assert read_plain(write_scenario(snapshot)).cluster == snapshot.cluster


@pytest.mark.parametrize("wrong", [-0.1, 11, True, "much"])
def test_it_is_a_share(wrong):
    with pytest.raises(ScenarioError, match=r"cluster\.apart: must be a share from 0 to 10, such as 0.4"):
        wl.snapshot(GROUPS, apart=wrong)


# -- laws ----------------------------------------------------------------------------------------------------------


@given(snapshots(choose=("cheapest",), gangs=False, most_slices=0))
def test_the_same_is_served_for_at_most_that_share_more(drawn):
    drawn = replace(drawn, requests=())
    share = drawn.cluster.apart or Fraction(0)
    plain, apart = (wl.plan(replace(drawn, cluster=replace(drawn.cluster, apart=how))) for how in (None, share))
    served = [Counter({item.demand: item.count for item in plan.waiting}) for plan in (plain, apart)]
    assert served[0] == served[1]
    costs = [sum(one.hourly_cost for one in plan.launches) for plan in (plain, apart)]
    assert costs[1] <= costs[0] * (1 + share)
    assert sum(apart.launch.values()) >= sum(plain.launch.values())
