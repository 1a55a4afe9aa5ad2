"""Properties of plans, on random snapshots."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import random
import weakref
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.applying import everything_done, launches_on_their_way
from tests.snapshots import constrained_snapshots, needs, slices, snapshots, snapshots_with_families
from windlass.core.model.conditions import Condition, Toleration
from windlass.core.model.lifecycle import State
from windlass.core.model.plan import Plan
from windlass.core.model.reasons import Code
from windlass.core.model.snapshot import (
    Availability,
    Bundle,
    Cluster,
    Demand,
    Gang,
    Group,
    Node,
    ScaleDown,
    Slice,
    Snapshot,
)
from windlass.core.plan_laws import broken_laws
from windlass.core.planner import plan
from windlass.core.tables.planner_memo import PlannerMemo
from windlass.scenario.scenario import read_plain
from windlass.scenario.writer import write_scenario

STRATEGIES = ("best-fit", "rank", "cheapest")


@given(snapshots())
@settings(max_examples=300)
def test_every_plan_obeys_the_laws(snapshot: Snapshot) -> None:
    made = plan(snapshot)
    assert list(broken_laws(snapshot, made)) == []
    moved = {one.slice for one in (*made.cancel, *made.drain, *made.uncordon, *made.mark, *made.unmark)}
    assert [one.slice for one in made.keep] == sorted(item.id for item in snapshot.slices if item.id not in moved)
    assert all(one.reason.why for one in made.keep)


@given(snapshots(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_changes_nothing(snapshot: Snapshot, rng: random.Random) -> None:
    def mixed(items: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(rng.sample(items, len(items)))

    other = replace(
        snapshot,
        groups=mixed(snapshot.groups),
        slices=tuple(replace(s, nodes=mixed(s.nodes)) for s in mixed(snapshot.slices)),
        demands=mixed(snapshot.demands),
        requests=mixed(snapshot.requests),
    )
    assert json.dumps(plan(other).to_dict()) == json.dumps(plan(snapshot).to_dict())


@given(snapshots())
def test_the_same_snapshot_gives_the_same_plan_byte_for_byte(snapshot: Snapshot) -> None:
    assert json.dumps(plan(snapshot).to_dict()) == json.dumps(plan(snapshot).to_dict())


@given(snapshots())
def test_stays_are_listed_with_and_without_busy_slices(snapshot: Snapshot) -> None:
    made = plan(snapshot)
    assert list(made.stays) == [one for one in made.keep if one.reason.code != Code.BUSY]


def test_plans_that_keep_other_slices_busy_are_different() -> None:
    def made(tasks: int) -> Plan:
        busy = Slice("s-1", "g", State.READY, 0, nodes=(Node("n-1", tasks=tasks),))
        return plan(Snapshot((Group("g", (("cpu", 4000),), 1),), (busy,)))

    assert made(1) == made(1)
    assert made(1) != made(2)
    assert made(1).stays == made(2).stays == ()


@given(snapshots(), st.integers(2, 12))
def test_groups_that_were_planned_with_before_change_nothing(snapshot: Snapshot, others: int) -> None:
    """A memo only saves time: a plan after plans with other prices is the same as one without a memo."""
    memo = PlannerMemo()
    for price in range(others):
        higher = tuple(replace(group, price=(group.price or 0) + price) for group in snapshot.groups)
        plan(replace(snapshot, groups=higher), memo)
    assert json.dumps(plan(snapshot, memo).to_dict()) == json.dumps(plan(snapshot).to_dict())


def test_labels_of_a_snapshot_cannot_be_changed_in_place() -> None:
    snapshot = Snapshot(
        (Group("g", (("cpu", 1000),), 1, labels={"zone": "a"}),),
        (Slice("s", "g", State.READY, nodes=(Node("n", labels={"rack": "r"}),)),),
    )
    for labels in (snapshot.groups[0].labels, snapshot.slices[0].nodes[0].labels):
        with pytest.raises(TypeError, match="replace"):
            labels["zone"] = "c"  # type: ignore[index]
    assert pickle.loads(pickle.dumps(snapshot)) == copy.deepcopy(snapshot) == snapshot


def test_nothing_of_a_snapshot_outlives_a_call_of_plan() -> None:
    slices = tuple(Slice(f"s-{n}", "g", State.READY, nodes=(Node(f"n-{n}"),)) for n in range(40))
    groups = (Group("g", (("cpu", 1000),), 99),)
    alive = [weakref.ref(one) for one in slices]
    made = plan(Snapshot(groups, slices, (Demand("d", (Bundle((("cpu", 1000),), 50),)),)))
    assert len(made.placements) == 50
    del slices, made
    gc.collect()
    assert [one for one in alive if one() is not None] == []


@given(snapshots(), st.data())
@settings(max_examples=60)
def test_slices_that_were_planned_with_before_change_nothing(snapshot: Snapshot, data: st.DataObject) -> None:
    """A memo only saves time: whatever changes, goes or comes between two plans, the second is the one that is made
    without a memo of the same slices as new objects, in another order."""
    kinds, memo = list(snapshot.groups), PlannerMemo()
    some = [data.draw(slices("s", kinds)) for _ in range(5)]
    crowd = [replace(some[number % 3], id=f"s-{number:02}") for number in range(40)]
    for step in range(4):
        for place in data.draw(st.lists(st.integers(0, len(crowd) - 1), max_size=3, unique=True)):
            name = data.draw(st.sampled_from((crowd[place].id, crowd[place].id, f"{'sr'[place % 2]}-{place}-{step}")))
            crowd[place] = replace(data.draw(st.sampled_from(some)), id=name)
        if data.draw(st.booleans()):
            crowd.pop(data.draw(st.integers(0, len(crowd) - 1)))
        demands = snapshot.demands if step % 2 else ()
        now = replace(snapshot, slices=tuple(crowd), demands=demands, requests=())
        anew = replace(now, slices=tuple(replace(one) for one in reversed(now.slices)))
        made, again = plan(now, memo), plan(anew)
        assert made == again
        assert made.placements == again.placements
        assert list(broken_laws(now, made)) == []


@given(st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_work_goes_to_what_is_free_now_whatever_was_free_in_the_plan_before(dice: random.Random) -> None:
    """Slices fill, empty, boot, are marked and lose nodes, a few at a time, while work waits in every plan."""
    groups = (
        Group("g", (("cpu", 4000), ("gpu", 2000)), 60, price=10),
        Group("h", (("cpu", 4000), ("gpu", 2000)), 60, hosts=2, price=10),
        Group("i", (("cpu", 6000), ("gpu", 3000)), 60, price=10),
    )

    def nodes(name: str, hosts: int) -> tuple[Node, ...]:
        used = [(("cpu", dice.randrange(0, 4001, 1000)), ("gpu", dice.randrange(0, 2001, 500))) for _ in range(hosts)]
        return tuple(Node(f"{name}-{n}", one, sum(amount for _, amount in one)) for n, one in enumerate(used))

    def some(name: str) -> Slice:
        group, state = dice.choice(groups), dice.choice([State.READY] * 5 + [State.BOOTING, State.CORDONED, State.LOST])
        marked = 500.0 if dice.random() < 0.3 and state == State.READY else None
        there = () if state == State.BOOTING else nodes(name, group.hosts)
        return Slice(name, group.name, state, 0, nodes=there, marked_until=marked)

    def changed(one: Slice) -> Slice:
        kind = dice.choice(("work", "work", "health", "all", "all"))
        if kind == "work" or not one.nodes:
            return replace(one, nodes=nodes(one.id, len(one.nodes)))
        if kind == "health":
            return replace(one, nodes=(replace(one.nodes[0], healthy=not one.nodes[0].healthy), *one.nodes[1:]))
        return some(one.id)

    crowd, memo = [some(f"s-{number:02}") for number in range(40)], PlannerMemo()
    for step in range(8):
        for place in dice.sample(range(len(crowd)), dice.randint(1, 2)):
            crowd[place] = changed(crowd[place])
        shapes = ((("cpu", 1000),), (("cpu", 2000), ("gpu", 1000)), (("gpu", 500),))
        demands = tuple(Demand(f"d-{n}", (Bundle(needs, dice.randint(1, 80)),)) for n, needs in enumerate(shapes))
        now = Snapshot(groups, tuple(crowd), demands, now=float(step))
        made = plan(now, memo)
        again = plan(replace(now, slices=tuple(replace(one) for one in reversed(crowd))))
        assert made.placements == again.placements
        assert made == again
        assert list(broken_laws(now, made)) == []


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(st.data())
def test_a_plan_that_was_carried_out_leaves_nothing_more_to_launch(strategy: str, data: st.DataObject) -> None:
    snapshot = data.draw(snapshots(limited=False, choose=(strategy,)))
    first = plan(snapshot)
    again = plan(everything_done(snapshot, first))
    assert [launch for launch in again.launches if launch.reason.code != Code.CONSOLIDATE] == []


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("limited", [False, True])
@given(st.data())
def test_what_is_in_flight_is_counted_once(strategy: str, limited: bool, data: st.DataObject) -> None:
    """With nothing but the plan's own launches on their way, the next tick buys nothing more."""
    snapshot = data.draw(snapshots(limited=limited, choose=(strategy,), most_slices=0))
    first = plan(snapshot)
    assume(first.launch)
    assert plan(launches_on_their_way(snapshot, first)).launch == {}


@given(snapshots(most_groups=2, most_slices=3, most_demands=1), st.data())
@settings(max_examples=60)
def test_a_slice_that_is_sent_ahead_of_a_gang_is_neither_given_back_nor_followed_by_another(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    """While nothing changes, the plans after it leave the launch that tries alone, and make no second one."""
    tried = tuple(
        replace(one, availability=Availability("backoff"), frozen=False, min=0, spare=0, max=one.max + 6)
        for one in snapshot.groups
    )
    group = data.draw(st.sampled_from(tried))
    bundles = [Bundle(group.resources, data.draw(st.integers(2, 4)) * group.hosts)]
    bundles += data.draw(st.lists(st.builds(Bundle, needs(), st.integers(1, 3)), max_size=1))
    kind = data.draw(st.sampled_from([one for one in Gang if one != Gang.SAME_NODE]))
    gang = Demand("d-gang", tuple(bundles), gang=kind, priority=9, tolerates=(Toleration(operator="Exists"),))
    cluster = snapshot.cluster if data.draw(st.booleans()) else Cluster(choose=snapshot.cluster.choose)
    snapshot = replace(snapshot, groups=tried, demands=(*snapshot.demands, gang), cluster=cluster, requests=())
    first = plan(snapshot)
    ahead = {one.group for one in first.launches if "ahead of the others" in one.reason.why}
    assume(ahead)
    assert all(first.launch[group] == 1 for group in ahead)
    assert list(broken_laws(snapshot, first)) == []
    following = launches_on_their_way(snapshot, first)
    state = data.draw(st.sampled_from((State.QUEUED, State.REQUESTING)))
    waiting = tuple(replace(one, state=state) if one.id.startswith("new:") else one for one in following.slices)
    again = plan(replace(following, slices=waiting))
    assert [one.slice for one in again.cancel if one.slice in {f"new:{group}:0" for group in ahead}] == []
    assert ahead & again.launch.keys() == set()


def unserved(answer: Plan) -> int:
    return sum(item.count for item in answer.waiting)


def one_shape(snapshot: Snapshot, task: tuple[tuple[str, int], ...], count: int) -> Snapshot:
    return replace(snapshot, demands=(Demand("d-0", (Bundle(task, count),)),), requests=())


@given(snapshots(), needs(), st.integers(1, 20), st.data())
def test_one_more_slice_never_makes_more_of_one_shape_wait(
    snapshot: Snapshot, task: tuple[tuple[str, int], ...], count: int, data: st.DataObject
) -> None:
    """A slice above a limit would not be more capacity, so each max has room for it, and nothing else limits."""
    groups = tuple(replace(group, min=0, spare=0) for group in snapshot.groups)
    fewer = replace(one_shape(snapshot, task, count), groups=groups, cluster=Cluster(choose=snapshot.cluster.choose))
    more = data.draw(slices("s-more", list(groups)).filter(lambda item: item.group != "removed"))
    larger = tuple(replace(group, max=group.max + (group.name == more.group)) for group in groups)
    full = replace(fewer, groups=larger, slices=(*fewer.slices, more))
    assert unserved(plan(full)) <= unserved(plan(fewer))


LIMITS = ("max", "max_launching", "availability", "frozen", "max_nodes", "max_hourly_cost", "cluster max_launching")


@pytest.mark.parametrize("limit", LIMITS)
@given(st.data())
def test_lifting_a_limit_never_places_less_of_one_shape(limit: str, data: st.DataObject) -> None:
    """With one group: with several, one more of the group that fits best may use up a limit of another kind."""
    snapshot = data.draw(snapshots(gangs=False, most_groups=1))
    snapshot = one_shape(snapshot, data.draw(needs()), data.draw(st.integers(1, 20)))
    group, cluster = replace(snapshot.groups[0], min=0, spare=0), snapshot.cluster
    snapshot = replace(snapshot, groups=(group,))
    match limit:
        case "max":
            lifted = replace(snapshot, groups=(replace(group, max=group.max + 3),))
        case "max_launching":
            lifted = replace(snapshot, groups=(replace(group, max_launching=None),))
        case "availability":
            lifted = replace(snapshot, groups=(replace(group, availability=type(group.availability)()),))
        case "frozen":
            # A frozen group is not lowered to a limit, and keeps what resuming it would release: so none is above one.
            group, cluster = replace(group, max=50), Cluster(choose=cluster.choose)
            snapshot = replace(snapshot, groups=(replace(group, frozen=True),), cluster=cluster)
            lifted = replace(snapshot, groups=(replace(group, frozen=False),))
        case "max_nodes":
            lifted = replace(snapshot, cluster=replace(cluster, max_nodes=None))
        case "max_hourly_cost":
            lifted = replace(snapshot, cluster=replace(cluster, max_hourly_cost=None))
        case _:
            lifted = replace(snapshot, cluster=replace(cluster, max_launching=None))
    assert unserved(plan(lifted)) <= unserved(plan(snapshot))


def test_a_request_that_cannot_be_met_does_not_make_the_next_plan_buy_again() -> None:
    big = (("cpu", 2000), ("gpu", 1000), ("memory", 4 << 30))
    snapshot = Snapshot(
        groups=(
            Group("small", (("cpu", 2000),), 50, rank=0),
            Group("trio", big, 50, hosts=3, rank=0),
            Group("pair", (("cpu", 2000), ("gpu", 2000), ("memory", 4 << 30)), 50, rank=0),
        ),
        demands=(
            Demand("anywhere", (Bundle((("cpu", 500), ("gpu", 2000)), 2),), Gang.ANY),
            Demand("together", (Bundle((("cpu", 500), ("gpu", 300)), 2),), Gang.SAME_SLICE),
        ),
        requests=(Demand("nowhere", (Bundle((), 1),), where=(Condition("zone", "==", ("a",)),)),),
        cluster=Cluster(choose="best-fit"),
        now=1000,
    )
    first = plan(snapshot)
    assert first.launch == {"trio": 1, "pair": 2}
    assert plan(launches_on_their_way(snapshot, first)).launch == {}


def test_which_gang_a_slice_was_held_for_does_not_depend_on_the_order_of_the_input() -> None:
    gangs = [
        Demand(name, (Bundle((("cpu", 4000),), 2),), Gang.ANY, since=0, deadline=deadline)
        for name, deadline in (("b", 800), ("a", 900), ("c", 800))
    ]
    idle = Slice("s-1", "g", State.READY, 0, nodes=(Node("n-1", idle_since=0),))
    group = Group("g", (("cpu", 4000),), 1, scale_down=ScaleDown(idle_timeout=60))
    plans = {
        json.dumps(plan(Snapshot((group,), (idle,), demands=order, now=1000)).to_dict())
        for order in (tuple(gangs), tuple(gangs[::-1]))
    }
    assert len(plans) == 1
    assert "held for gang b" in plans.pop()


@given(snapshots_with_families())
@settings(max_examples=150)
def test_plans_with_families_obey_the_laws(snapshot: Snapshot) -> None:
    assert list(broken_laws(snapshot, plan(snapshot))) == []


@given(snapshots_with_families(most_slices=2))
@settings(max_examples=40)
def test_a_way_out_of_the_max_of_a_family_is_true(snapshot: Snapshot) -> None:
    for waiting in plan(snapshot).to_dict()["waiting"]:
        for way in waiting["unblocks"]:
            raised = [one for one in way["set"] if one["path"][0] == "families"]
            if len(way["set"]) > 1 or not raised:
                continue
            written = write_scenario(snapshot)
            written["families"][raised[0]["path"][1]]["max"] = raised[0]["value"]
            for group, kind in zip(written["groups"].values(), snapshot.groups, strict=True):
                family = next((one for one in snapshot.cluster.families if one.name == kind.family), None)
                if family is not None and kind.max >= family.max:
                    group["max"] = max(kind.max, raised[0]["value"])
            later = {item["demand"] for item in plan(read_plain(written)).to_dict()["waiting"]}
            assert waiting["demand"] not in later


@given(snapshots_with_families())
def test_families_are_written_and_read_again(snapshot: Snapshot) -> None:
    again = read_plain(write_scenario(replace(snapshot, slices=(), demands=(), requests=())))
    assert again.cluster == snapshot.cluster
    assert [(one.family, one.max, one.rank) for one in again.groups] == [
        (one.family, one.max, one.rank) for one in snapshot.groups
    ]


@given(snapshots_with_families(limited=False, gangs=False, most_slices=0))
@settings(max_examples=60)
def test_the_min_and_the_spare_of_a_family_are_bought_as_far_as_its_max_allows(snapshot: Snapshot) -> None:
    made = plan(snapshot)
    used = {placement.on for placement in made.placements}
    for family in snapshot.cluster.families:
        mine = [group.name for group in snapshot.groups if group.family == family.name]
        launched = [name for one in made.launches if one.group in mine for name in one.names()]
        if mine:
            assert len(launched) >= family.min
            assert sum(name not in used for name in launched) >= min(family.spare, family.max - len(launched))


@pytest.mark.parametrize("kind", [snapshots, snapshots_with_families, constrained_snapshots])
@given(st.data())
@settings(max_examples=80)
def test_one_plan_never_launches_what_the_next_one_cancels(kind: Any, data: st.DataObject) -> None:
    snapshot = data.draw(kind())
    first = plan(snapshot)
    launched = {name for launch in first.launches for name in launch.names()}
    for state in (State.QUEUED, State.REQUESTING):
        second = plan(launches_on_their_way(snapshot, first, state))
        assert {change.slice for change in (*second.cancel, *second.drain)} & launched == set()
