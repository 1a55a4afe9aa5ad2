"""Messages of a Ray cluster become demands: recorded messages of both versions, and small ones."""

import pytest

from tests.workloads.ray_messages import VERSIONS, node, recorded, request
from windlass.core.model.snapshot import Group, Snapshot
from windlass.core.planner import plan
from windlass.workloads.ray import wire_pb2 as wire
from windlass.workloads.ray.demand import groups_of, load_of, request_of, shapes_of
from windlass.workloads.ray.report import loosened
from windlass.workloads.ray.shapes import needs_of, per_node


def counts(state):
    return {name: shape.count for name, shape in shapes_of(state).items()}


def test_the_new_version_keeps_selectors_apart():
    assert counts(recorded("2.60", "demand_state")) == {
        "CPU=1": 6,
        "CPU=1,widget=2": 2,
        "CPU=1@zone in (z1)": 4,
        "CPU=1@zone in (z1) or zone not in (z2) or anywhere": 2,
        "CPU=1,GPU=0.5,accelerator_type:A100=0.001": 1,
    }


def test_the_old_version_reports_no_selectors():
    assert counts(recorded("2.48", "demand_state")) == {
        "CPU=1": 10,
        "CPU=1,widget=2": 2,
        "CPU=1,GPU=0.5,accelerator_type:A100=0.001": 1,
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_the_raylet_of_the_head_says_the_same_as_the_gcs(version):
    output = {name: shape.count for name, shape in load_of(recorded(version, "demand_load")).items()}
    assert output == counts(recorded(version, "demand_state"))


@pytest.mark.parametrize("version", VERSIONS)
def test_placement_groups_are_gangs_by_their_strategy(version):
    found = groups_of(recorded(version, "demand_state"))
    plain = [one for one in found.values() if sum(count for *_, count in one.bundles) == 3]
    assert sorted(str(one.demand(0).gang) for one in plain) == ["any", "any", "same-node", "spread"]
    assert all(name.startswith("pg:") for name in found)


@pytest.mark.parametrize(("strategy", "launch"), [("PACK", {"large": 1}), ("SPREAD", {"small": 2})])
def test_pack_prefers_one_node_and_spread_many_and_both_take_what_there_is(strategy, launch):
    bundle = wire.ResourceRequest(resources_bundle={"CPU": 1})
    asked = wire.GangResourceRequest(requests=[bundle, bundle], details=f"ab:{strategy}|PENDING")
    (group,) = groups_of(wire.ClusterResourceState(pending_gang_resource_requests=[asked])).values()
    small, large = (
        Group("small", (("cpu", 1000),), 4, price=10**8),
        Group("large", (("cpu", 2000),), 1, price=2 * 10**8),
    )
    preferred = group.demand(0, as_preferred=True)
    assert plan(Snapshot((small, large), demands=(preferred,))).launch == launch
    # If the preferred placement is impossible, the plan says so, and the group is requested without it.
    other = small if strategy == "PACK" else large
    refused = plan(Snapshot((other,), demands=(preferred,)))
    assert loosened(refused, {group.id}) == {group.id}
    assert loosened(refused, ()) == frozenset()
    assert sum(plan(Snapshot((other,), demands=(group.demand(0),))).launch.values()) == (2 if strategy == "PACK" else 1)


def test_a_placement_group_with_selectors_says_them_bundle_by_bundle():
    found = groups_of(recorded("2.60", "demand_state"))
    (one,) = [group.demand(0) for group in found.values() if len(group.bundles) == 2]
    assert [[str(condition) for condition in bundle.where] for bundle in one.bundles] == [
        ["zone in (z1)"],
        ["zone in (z2)"],
    ]


def test_a_strict_pack_group_whose_bundles_have_different_selectors_gets_one_node_for_all_of_them():
    """Ray's own autoscaler buys a node for each selector, and the group waits for ever."""
    bundles = [
        wire.ResourceRequest(
            resources_bundle={"CPU": 1},
            label_selectors=[
                wire.LabelSelector(
                    label_constraints=[wire.LabelConstraint(label_key=key, operator=1, label_values=[value])]
                )
            ],
        )
        for key, value in (("zone", "z1"), ("disk", "ssd"))
    ]
    gang = wire.GangResourceRequest(
        details="ab:STRICT_PACK|PENDING", bundle_selectors=[wire.BundleSelector(resource_requests=bundles)]
    )
    (group,) = groups_of(wire.ClusterResourceState(pending_gang_resource_requests=[gang])).values()
    zone, disk, both = (
        Group(name, (("cpu", 2000),), 4, labels)
        for name, labels in (
            ("zone", {"zone": "z1"}),
            ("disk", {"disk": "ssd"}),
            ("both", {"zone": "z1", "disk": "ssd"}),
        )
    )
    assert plan(Snapshot((zone, disk, both), demands=(group.demand(0),))).launch == {"both": 1}
    assert plan(Snapshot((zone, disk), demands=(group.demand(0),))).launch == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_request_resources_is_one_standing_request(version):
    found = request_of(recorded(version, "demand_state"))
    assert found is not None
    assert found.id == "request_resources"
    assert sorted((bundle.needs, bundle.count) for bundle in found.bundles) == [
        ((("cpu", 1000),), 8),
        ((("gpu", 1000),), 1),
    ]


def test_the_room_of_nodes_that_were_not_bought_counts_for_the_standing_request():
    state = recorded("2.60", "demand_state")
    found = request_of(state, [({"cpu": 5000}, {}), ({"gpu": 1000}, {})])
    assert found is not None
    assert [(bundle.needs, bundle.count) for bundle in found.bundles] == [((("cpu", 1000),), 3)]
    assert request_of(state, [({"cpu": 8000, "gpu": 1000}, {})]) is None


def test_an_accelerator_is_asked_for_by_the_label_of_the_node():
    shape = shapes_of(recorded("2.60", "demand_state"))["CPU=1,GPU=0.5,accelerator_type:A100=0.001"]
    found = shape.demand(1, 0)
    assert found.bundles[0].needs == (("cpu", 1000), ("gpu", 500))
    assert [str(condition) for condition in found.where] == ["ray.io/accelerator-type in (A100)"]


def test_needs_are_rounded_down_so_that_three_thirds_fit_and_never_to_nothing():
    assert needs_of({"CPU": 0.3333})[0] == (("cpu", 333),)
    assert needs_of({"CPU": 0.29})[0] == (("cpu", 290),)
    assert needs_of({"tiny": 0.0001})[0] == (("tiny", 1),)
    assert needs_of({"memory": 10.9})[0] == (("memory", 10),)


def test_an_implicit_resource_is_no_need_but_a_limit_of_each_node():
    name = "__internal_implicit_resource_deployment"
    assert needs_of({"CPU": 1, name: 0.3333})[0] == (("cpu", 1000),)
    assert per_node({"CPU": 1, name: 0.3333}) == {name: 3}
    state = wire.ClusterResourceState(pending_resource_requests=[request({"CPU": 1, name: 0.3333}, 5)])
    (shape,) = shapes_of(state).values()
    groups = (Group("worker", (("cpu", 8000),), 9),)
    made = plan(Snapshot(groups, demands=(shape.demand(5, 0),)))
    assert made.launch == {"worker": 2}, "three fit one node by its CPUs and no more by the limit"


def test_of_several_selectors_any_may_hold_and_the_first_is_preferred():
    shape = shapes_of(recorded("2.60", "demand_state"))["CPU=1@zone in (z1) or zone not in (z2) or anywhere"]
    groups = tuple(Group(zone, (("cpu", 2000),), 1, {"zone": zone}) for zone in ("z1", "z2", "z3"))
    for there, chosen in ((groups, "z1"), (groups[1:], "z3"), (groups[1:2], "z2")):
        assert plan(Snapshot(there, demands=(shape.demand(2, 0),))).launch == {chosen: 1}


def test_a_task_that_waits_inside_its_placement_group_is_no_demand():
    inside = {"CPU_group_0_9088a6ecefa095725e60b01023c901000000": 1.0}
    state = wire.ClusterResourceState(pending_resource_requests=[request(inside, 3), request({"CPU": 1}, 2)])
    assert counts(state) == {"CPU=1": 2}


def test_bundles_of_a_spread_group_that_lost_their_node_shun_the_nodes_of_the_others():
    group = "9088a6ecefa095725e60b01023c901000000"
    constraint = wire.PlacementConstraint(anti_affinity=wire.PlacementConstraint.Label(label_name=f"_PG_{group}"))
    missing = wire.ResourceRequest(resources_bundle={"CPU": 1}, placement_constraints=[constraint])
    state = wire.ClusterResourceState(
        node_states=[node(1, dynamic={f"_PG_{group}": ""}), node(2)],
        pending_gang_resource_requests=[
            wire.GangResourceRequest(requests=[missing], details=f"{group}:STRICT_SPREAD|RESCHEDULING")
        ],
    )
    (found,) = groups_of(state).values()
    (condition,) = found.demand(0).where
    assert condition.holds({})
    assert not condition.holds({f"_PG_{group}": ""})
