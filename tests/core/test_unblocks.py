"""Suggested changes for waiting jobs: each one works."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.snapshots import constrained_snapshots, snapshots, snapshots_with_families
from windlass import Plan, builders, plan
from windlass.core.model.snapshot import Snapshot
from windlass.scenario import read_plain, write_scenario


def applied(snapshot: Snapshot, changes: Any) -> Snapshot:
    """The snapshot with the settings of one unblock made in its scenario file."""
    data = write_scenario(snapshot)
    for path, value in changes:
        section, *rest = path
        place = data.setdefault(section, {})
        if section in ("demands", "requests"):
            place = next(item for item in place if item["id"] == rest[0])
            rest = rest[1:]
        for key in rest[:-1]:
            place = place[key]
        if value is None:
            place.pop(rest[-1], None)
        else:
            place[rest[-1]] = value
    return read_plain(data)


def waits(answer: Plan, demand: str) -> bool:
    return any(item.demand == demand for item in answer.waiting)


@given(st.one_of(snapshots(), snapshots_with_families()))
def test_every_suggested_change_places_the_demand(snapshot: Snapshot) -> None:
    for demand, ways in plan(snapshot).unblocks.items():
        for way in ways:
            assert not waits(plan(applied(snapshot, way.set)), demand), way


IN_A_FAMILY: dict[str, Any] = {
    "families": {"fast": {"max": 2}},
    "groups": {"spot": {"resources": {"gpu": 8}, "family": "fast"}, "steady": {"resources": {"cpu": 8}, "max": 2}},
    "demands": [{"id": "job", "needs": {"gpu": 8}, "count": 4}],
}


def set_in(data: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The file with one setting changed."""
    key, *rest = path
    return data | {key: set_in(data[key], tuple(rest), value) if rest else value}


@pytest.mark.parametrize("most", [2, 3])
def test_a_group_with_a_max_of_its_own_keeps_it_when_the_max_of_its_family_is_raised(most: int) -> None:
    data = set_in(IN_A_FAMILY, ("groups", "spot", "max"), most)
    [way] = plan(read_plain(data)).unblocks["job"]
    assert way.change == f"max of fast 2 -> 4 and max of spot {most} -> 4"
    for path, value in way.set:
        data = set_in(data, path, value)
    assert not waits(plan(read_plain(data)), "job")


def test_a_group_without_a_max_of_its_own_has_the_raised_max_of_its_family() -> None:
    [way] = plan(read_plain(IN_A_FAMILY)).unblocks["job"]
    assert way.change == "max of fast 2 -> 4"
    assert not waits(plan(read_plain(set_in(IN_A_FAMILY, *way.set[0]))), "job")
    assert not waits(plan(applied(read_plain(IN_A_FAMILY), way.set)), "job")


def test_a_group_in_a_further_domain_is_written_with_all_that_the_plan_of_it_counts_on() -> None:
    """The rank decides which group is bought first, and spot machines are what the job asks for."""
    snapshot = read_plain(
        {
            "cluster": {"choose": "rank"},
            "families": {"fast": {"max": 8, "rank": 7}},
            "groups": {
                "a": {
                    "resources": {"cpu": 4},
                    "labels": {"zone": "z1"},
                    "family": "fast",
                    "fallback": True,
                    "preemptible": True,
                    "max_launching": 3,
                    "rank": 2,
                },
            },
            "demands": [
                {
                    "id": "web",
                    "needs": {"cpu": 1},
                    "count": 2,
                    "classes": ["web"],
                    "where": ["preemptible == true"],
                    "apart": [{"from": "web", "by": "zone"}],
                }
            ],
        }
    )
    (way,) = (one for one in plan(snapshot).unblocks["web"] if one.change == "a group like a in another zone")
    changed = applied(snapshot, way.set)
    assert not waits(plan(changed), "web")
    old, new = changed.groups
    assert replace(new, name=old.name, labels=old.labels) == old


def test_a_group_in_a_further_domain_is_not_in_a_family_of_offers() -> None:
    """The limits of such a family stand in a group with `offers`, which takes no further groups."""
    snapshot = read_plain(
        {
            "families": {"fast": {"max": 8}},
            "groups": {
                "fast/a": {"resources": {"cpu": 4}, "labels": {"zone": "z1"}, "family": "fast", "fallback": True},
            },
            "demands": [
                {
                    "id": "web",
                    "needs": {"cpu": 1},
                    "count": 2,
                    "classes": ["web"],
                    "apart": [{"from": "web", "by": "zone"}],
                }
            ],
        }
    )
    [family] = snapshot.cluster.families
    offers = replace(family, section="groups")
    snapshot = replace(snapshot, cluster=replace(snapshot.cluster, families=(offers,)))
    (way,) = (one for one in plan(snapshot).unblocks["web"] if one.change == "a group like fast/a in another zone")
    [(path, written)] = way.set
    assert path == ("groups", "fast-a-in-another-zone")
    assert (written["max"], written.get("family"), written.get("fallback")) == (8, None, None)
    assert not waits(plan(applied(snapshot, way.set)), "web")


@pytest.mark.parametrize("kind", ["any", "same-slice"])
def test_bundles_that_are_changed_keep_everything_else_that_they_have(kind: str) -> None:
    """A setting replaces the whole list of bundles."""
    taint = {"key": "team", "value": "red", "effect": "NoSchedule"}
    bundle = {
        "needs": {"cpu": 16 if kind == "any" else 8},
        "count": 3,
        "where": ["zone == z1"],
        "prefer": ["zone in (z1, z2)"],
        "tolerates": [{"key": "team", "operator": "Equal", "value": "red", "effect": "NoSchedule"}],
        "any_of": [["zone == z1"], []],
        "classes": ["web"],
        "apart": [{"from": "web", "by": "zone", "at_most": 9}],
        "spread": [{"of": "web", "over": "zone", "elsewhere": {"z1": 1}}],
        "together": [{"with": "web", "by": "zone"}],
    }
    group = {"resources": {"cpu": 8}, "hosts": 2, "max": 9, "labels": {"zone": "z1"}, "taints": [taint]}
    snapshot = read_plain({"groups": {"a": group}, "demands": [{"id": "pg", "gang": kind, "bundles": [bundle]}]})
    way = plan(snapshot).unblocks["pg"][0]
    changed = applied(snapshot, way.set)
    assert not waits(plan(changed), "pg")
    [before], [after] = snapshot.demands[0].bundles, changed.demands[0].bundles
    assert after != before
    assert replace(after, needs=before.needs, count=before.count) == before


def smaller_values(snapshot: Snapshot, path: tuple[str, ...], value: Any) -> range:
    """The values between a limit of the snapshot and the suggested one; none for what is not a raised whole number."""
    place: Any = write_scenario(snapshot)
    for key in path:
        if isinstance(place, list):
            place = next(item for item in place if item["id"] == key)
        else:
            place = place.get(key) if isinstance(place, dict) else None
    whole = isinstance(place, int) and isinstance(value, int) and path[-1] in ("max", "max_nodes", "max_launching")
    return range(place + 1, value) if whole else range(0)


@given(st.one_of(snapshots(), constrained_snapshots()))
@settings(max_examples=60)
def test_a_limit_that_is_smaller_by_one_would_not_place_the_demand(snapshot: Snapshot) -> None:
    for demand, ways in plan(snapshot).unblocks.items():
        for way in ways:
            if len(way.set) == 1:
                [(path, value)] = way.set
                for less in smaller_values(snapshot, path, value)[-1:]:
                    assert waits(plan(applied(snapshot, ((path, less),))), demand), (way.change, less)


def only_way(groups: Any, demands: Any, **more: Any) -> list[str]:
    answer = plan(builders.snapshot(groups=groups, demands=demands, **more))
    return [way.change for ways in answer.unblocks.values() for way in ways]


GPU = {"gpu": 8}


def test_a_max_is_raised_just_so_far_that_everything_is_placed() -> None:
    ways = only_way([builders.group("a100", gpu=8, max=1)], [builders.demand("job", GPU, count=4)])
    assert ways == ["max of a100 1 -> 4"]


def test_the_cheapest_way_out_names_its_price() -> None:
    answer = plan(
        builders.snapshot(
            groups=[builders.group("a100", gpu=8, max=1, price=12.0)], demands=[builders.demand("job", GPU, count=2)]
        )
    )
    [way] = answer.unblocks["job"]
    assert way.to_dict() == {
        "change": "max of a100 1 -> 2",
        "set": [{"path": ["groups", "a100", "max"], "value": 2}],
        "hourly_cost": 12.0,
    }


def test_the_node_limit_is_raised_by_hosts() -> None:
    ways = only_way(
        [builders.group("pod", tpu=4, hosts=4, max=9)],
        [builders.gang("train", [({"tpu": 4}, 8)], kind="same-slice")],
        max_nodes=7,
    )
    assert ways == ["the cluster's max_nodes 7 -> 8"]


def test_the_ceiling_is_raised_to_what_everything_costs() -> None:
    ways = only_way(
        [builders.group("a100", gpu=8, max=9, price=12.0)], [builders.demand("job", GPU, count=3)], max_hourly_cost=30.0
    )
    assert ways == ["the cost ceiling $30.00/h -> $36.00/h"]


def test_a_rate_that_holds_launches_back_can_be_raised() -> None:
    ways = only_way([builders.group("a100", gpu=8, max=9, max_launching=1)], [builders.demand("job", GPU, count=3)])
    assert ways == ["max_launching of a100 1 -> 3"]


def test_a_refused_group_that_is_available_again_is_a_way_out() -> None:
    refused = {"state": "quota_exceeded", "until": 400, "why": "quota"}
    ways = only_way([builders.group("tpu", tpu=4, max=5, availability=refused)], [builders.demand("job", {"tpu": 4})])
    assert ways == ["tpu available again (expected in 6 min)"]


def test_a_frozen_group_is_resumed() -> None:
    ways = only_way([builders.group("a100", gpu=8, max=9, frozen=True)], [builders.demand("job", GPU, count=3)])
    assert ways == ["resume a100"]


def test_a_frozen_group_is_resumed_with_a_limit_even_if_the_limit_alone_would_help() -> None:
    snapshot = builders.snapshot(
        groups=[
            builders.group("cheap", cpu=2, max=2, price=1.0),
            builders.group("ice", cpu=2, max=2, price=1.0, frozen=True),
            builders.group("large", cpu=4, max=9, price=8.0),
        ],
        slices=[builders.slice_(f"cheap-{n}", "cheap", used={"cpu": 2}) for n in range(2)],
        demands=[builders.demand("job", {"cpu": 1}, count=3)],
        max_hourly_cost=3,
    )
    answer = plan(snapshot)
    assert answer.waiting[0].groups["ice"].code == "FROZEN"
    resuming = [way for way in answer.unblocks["job"] if way.change.startswith("resume ice and ")]
    assert [(way.buys, way.hourly_cost) for way in resuming] == [((("ice", 2),), 2 * 10**9)]
    for way in answer.unblocks["job"]:
        assert not waits(plan(applied(snapshot, way.set)), "job"), way


def test_a_frozen_group_that_a_smaller_demand_does_not_use_stays_frozen() -> None:
    groups = [
        builders.group("a100", cpu=12, gpu=1, max=2, price=4.0),
        builders.group("cpu", cpu=4, max=6, price=0.2, frozen=True),
    ]
    snapshot = builders.snapshot(groups, demands=[builders.demand("job", {"cpu": 8, "gpu": 8})], max_hourly_cost=3.0)
    ways = [way.change for way in plan(snapshot).unblocks["job"]]
    assert ways == ["gpu 8 -> 1 and the cost ceiling $3.00/h -> $4.00/h"]


def test_a_frozen_group_next_to_a_limit_is_resumed_before_the_limit_is_raised() -> None:
    groups = [builders.group("a100", gpu=8, max=9, frozen=True), builders.group("h100", gpu=8, max=0)]
    assert only_way(groups, [builders.demand("job", GPU)]) == ["resume a100", "max of h100 0 -> 1"]


def test_a_typing_error_is_mended_before_the_condition_is_dropped() -> None:
    ways = only_way(
        [builders.group("eu", tpu=4, max=5, labels={"zone": "europe-west4-b"})],
        [builders.demand("job", {"tpu": 4}, where=["zone == europe-west4b"])],
    )
    assert ways == ["zone == europe-west4b -> zone == europe-west4-b", "without the condition zone == europe-west4b"]


def test_a_taint_can_be_tolerated() -> None:
    taint = {"key": "team", "value": "red", "effect": "NoSchedule"}
    ways = only_way([builders.group("gpu", gpu=8, max=5, taints=[taint])], [builders.demand("job", {"gpu": 1})])
    assert ways == ["tolerate team=red:NoSchedule"]


def test_a_need_is_lowered_to_what_the_largest_node_has() -> None:
    ways = only_way(
        [builders.group("big", cpu=8, memory="128Gi", max=5)], [builders.demand("job", {"memory": "512Gi"})]
    )
    assert ways == ["memory 512Gi -> 128Gi"]


def test_a_gang_that_does_not_divide_is_cut_to_whole_slices() -> None:
    ways = only_way(
        [builders.group("pod", tpu=4, hosts=3, max=5)], [builders.gang("train", [({"tpu": 4}, 8)], kind="same-slice")]
    )
    assert ways == ["size of the gang 8 -> 9", "size of the gang 8 -> 6", "gang same-slice -> any"]


def test_two_limits_that_bind_at_once_are_raised_together() -> None:
    ways = only_way([builders.group("a100", gpu=8, max=1)], [builders.demand("job", GPU, count=2)], max_nodes=1)
    assert ways == ["max of a100 1 -> 2 and the cluster's max_nodes 1 -> 2"]


def test_limits_that_are_raised_together_are_raised_only_as_far_as_the_demand_needs() -> None:
    answer = plan(
        builders.snapshot(
            groups=[builders.group("a100", gpu=8, max=1, price=12.0)],
            demands=[
                builders.demand("a-first", GPU, count=2, priority=1),
                builders.demand("b-later", GPU, count=9),
            ],
            max_nodes=1,
            max_hourly_cost=12.0,
        )
    )
    limits = "max of a100 1 -> {0} and the cluster's max_nodes 1 -> {0} and the cost ceiling $12.00/h -> ${1}.00/h"
    assert [way.change for way in answer.unblocks["a-first"]] == [limits.format(2, 24)]
    assert [way.change for way in answer.unblocks["b-later"]] == [limits.format(11, 132)]


@pytest.mark.parametrize("kind", ["any", "spread"])
@pytest.mark.parametrize("max_nodes", [None, 1])
def test_the_limits_of_two_groups_that_hold_a_gang_only_together_are_raised_together(
    kind: str, max_nodes: int | None
) -> None:
    groups = {
        "cpu": {"resources": {"cpu": 16}, "max": 0},
        "gpu": {"resources": {"cpu": 2, "gpu": 1}, "max": 0},
        "tiny": {"resources": {"cpu": 1}, "max": 9},
    }
    gang = {"id": "pg", "gang": kind, "bundles": [{"needs": {"cpu": 16}, "count": 2}, {"needs": {"gpu": 1}}]}
    cluster = {} if max_nodes is None else {"max_nodes": max_nodes}
    snapshot = read_plain({"cluster": cluster, "groups": groups, "demands": [gang]})
    [way] = plan(snapshot).unblocks["pg"]
    both = "max of cpu 0 -> 2 and max of gpu 0 -> 1"
    assert way.change == (both if max_nodes is None else f"{both} and the cluster's max_nodes 1 -> 3")
    assert not waits(plan(applied(snapshot, way.set)), "pg")


def test_a_gang_past_its_deadline_would_start_without_it() -> None:
    late = builders.gang("pg", [({"gpu": 8}, 2)], deadline=900)
    ways = only_way([builders.group("a100", gpu=8, max=4)], [late], now=1000)
    assert ways == ["no deadline"]


@pytest.mark.parametrize("count", [1, 50])
def test_many_demands_that_wait_are_answered_within_a_fixed_number_of_plans(count: int) -> None:
    demands = [builders.demand(f"d-{index:02}", {"gpu": 1 + index % 8}) for index in range(count)]
    answer = plan(builders.snapshot(groups=[builders.group("a100", gpu=8, max=0)], demands=demands))
    assert len(answer.waiting) == count
    assert answer.unblocks["d-00"]


def test_a_group_in_a_further_domain_is_a_way_out_of_apart() -> None:
    answer = plan(
        builders.snapshot(
            groups=[builders.group("a", cpu=4, max=4, price=1, labels={"zone": "z1"})],
            demands=[
                builders.demand("web", {"cpu": 1}, count=2, classes=["web"], apart=[{"from": "web", "by": "zone"}]),
            ],
        )
    ).to_dict()
    (waiting,) = answer["waiting"]
    assert waiting["code"] == "APART"
    ways = {way["change"]: way for way in waiting["unblocks"]}
    assert "at_most of web by zone 1 -> 2" in ways
    (setting,) = ways["a group like a in another zone"]["set"]
    assert setting["path"] == ["groups", "a-in-another-zone"]
    written: dict[str, Any] = {
        "groups": {"a": {"resources": {"cpu": 4}, "max": 4, "price": 1, "labels": {"zone": "z1"}}},
        "demands": [
            {
                "id": "web",
                "needs": {"cpu": 1},
                "count": 2,
                "classes": ["web"],
                "apart": [{"from": "web", "by": "zone"}],
            }
        ],
    }
    written["groups"][setting["path"][1]] = setting["value"]
    assert plan(read_plain(written)).waiting == ()


@pytest.mark.parametrize(("groups", "end"), [(4, "; and 1 more group"), (5, "; and 2 more groups")])
def test_a_sentence_names_three_groups_and_counts_the_others(groups: int, end: str) -> None:
    answer = plan(
        builders.snapshot(
            groups=[builders.group(f"g{at}", max=0, cpu=4) for at in range(groups)],
            demands=[builders.demand("web", {"cpu": 1})],
        )
    ).to_dict()
    assert answer["waiting"][0]["why"].endswith(end)


def test_a_label_that_no_group_has_is_suggested_as_a_label() -> None:
    answer = plan(
        builders.snapshot(
            groups=[builders.group("a", max=4, cpu=4)],
            demands=[builders.demand("web", {"cpu": 1}, classes=["web"], spread=[{"of": "web", "over": "rack"}])],
        )
    ).to_dict()
    (waiting,) = answer["waiting"]
    assert waiting["code"] == "SPREAD"
    assert [way["change"] for way in waiting["unblocks"]] == ["a group like a with the label rack"]


def test_limits_under_which_no_machine_fits_still_have_their_suggested_changes() -> None:
    """A what-if plan with tasks that need other groups under one limit begins its search without any purchase."""
    answer = plan(
        read_plain(
            {
                "cluster": {"max_launching": 4},
                "families": {"fast": {"max": 1}},
                "groups": {
                    "empty": {"resources": {}, "price": 2, "family": "fast"},
                    "cpu": {"resources": {"cpu": 2}, "price": 0, "family": "fast"},
                },
                "demands": [
                    {"id": "alone", "needs": {}, "apart": [{"from": "web", "by": "zone"}]},
                    {"id": "many", "needs": {"cpu": 2}, "count": 5},
                ],
            }
        )
    )
    assert waits(answer, "many")
    assert "many" in answer.unblocks
