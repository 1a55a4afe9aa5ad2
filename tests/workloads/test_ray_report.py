"""What Windlass reports to users of Ray, on recorded messages of both versions: the message for ``ray status`` and the
lines that drivers print."""

import re
from dataclasses import replace

import pytest

import windlass as wl
from tests.workloads.ray_messages import VERSIONS, recorded
from windlass.core.model.lifecycle import State
from windlass.core.model.reasons import Code, Reason
from windlass.core.model.snapshot import Group, Snapshot
from windlass.core.planner import plan
from windlass.workloads.protocol import DecidedSlice, DecisionReport
from windlass.workloads.ray.demand import shapes_of
from windlass.workloads.ray.nodes import RayNodes, fold_nodes
from windlass.workloads.ray.report import ReportState, autoscaling_state, driver_lines
from windlass.workloads.ray.view import shown
from windlass.workloads.ray.waiting import PendingWork, fold_waiting

WORKER = Group("worker", (("cpu", 2000),), 2, {"zone": "z1"})


def planned(version, worker=WORKER):
    """Plan for the recorded demand; return the plan and a function that makes the report."""
    state = recorded(version, "demand_state")
    infos, actors = recorded(version, "demand_nodes").node_info_list, recorded(version, "demand_actors")
    nodes = fold_nodes(RayNodes(), state, infos, actors.actor_table_data, ("worker",), 1000.0)
    waiting = fold_waiting(PendingWork(), shapes_of(state), None, nodes, 1000.0)
    every = {name.id for name in shown(state, nodes, waiting, {}, version, 1000.0).demands}
    view = shown(state, nodes, waiting, {}, version, 1000.0, loose=every)
    made = plan(Snapshot((worker,), demands=view.demands, requests=view.requests))

    def report(reported=None):
        constraints = list(state.cluster_resource_constraints)
        return autoscaling_state(made, reported or ReportState(), view.messages, constraints, nodes, 7, 8)

    return made, report


def _labels(gang):
    requests = gang.bundle_selectors[0].resource_requests if gang.bundle_selectors else gang.requests
    selectors = [selector for one in requests for selector in one.label_selectors]
    return {value for one in selectors for term in one.label_constraints for value in term.label_values}


def decided(name, state, code=Code.DEMAND, why="for CPU=1"):
    return DecidedSlice(name, "worker", state, 990.0, Reason(code, why), Reason(code, why), None, 0, must_go=False)


def decision(*slices, now=1000.0, refused=()):
    return DecisionReport(now, (WORKER,), {one.id: one for one in slices}, None, refused)


@pytest.mark.parametrize("version", VERSIONS)
def test_only_what_no_group_can_hold_is_infeasible_and_what_waits_for_a_limit_is_not(version):
    _, report = planned(version)
    found = report()
    shapes = [dict(one.resources_bundle) for one in found.infeasible_resource_requests]
    assert shapes == [{"CPU": 1, "GPU": 0.5, "accelerator_type:A100": 0.001}, {"CPU": 1, "widget": 2}]
    gangs = [sorted(_labels(one)) for one in found.infeasible_gang_resource_requests]
    # Three CPUs on one node; and a bundle in zone z2, of which the old version says nothing.
    assert sorted(gangs) == ([[]] if version == "2.48" else [[], ["z1", "z2"]])
    assert len(found.infeasible_cluster_resource_constraints) == 1, "it contains a GPU"
    assert (found.last_seen_cluster_resource_state_version, found.autoscaler_state_version) == (7, 8)


@pytest.mark.parametrize("version", VERSIONS)
def test_with_a_group_that_holds_everything_nothing_is_infeasible(version):
    resources = (("cpu", 8000), ("gpu", 1000), ("widget", 2000))
    labels = {"zone": "z1", "ray.io/accelerator-type": "A100"}
    made, report = planned(version, replace(WORKER, resources=resources, labels=labels, max=1))
    at_max = [item for item in made.waiting if item.reason.code is Code.AT_MAX]
    assert at_max, "the limit is reached"
    assert not report().infeasible_resource_requests


@pytest.mark.parametrize("version", VERSIONS)
def test_drivers_print_what_waits_and_what_would_help_once_until_it_changes(version):
    made, _ = planned(version)
    reported, lines = driver_lines(made, ReportState())
    (plain,) = [line for line in lines if re.match(r"windlass: \d+ tasks wait for CPU=1: ", line)]
    assert "worker is at its max of 2" in plain
    assert "; would help: max of worker 2 -> " in plain
    assert any("1 task waits for CPU=1,GPU=0.5" in line for line in lines)
    assert any(line.startswith("windlass: placement group ") for line in lines)
    assert any(line.startswith("windlass: request_resources waits: ") for line in lines)
    assert driver_lines(made, reported)[1] == ()
    assert driver_lines(replace(made, waiting=()), reported)[0].lines == {}


def test_a_driver_reads_who_waits_for_what_why_and_what_would_help():
    made = wl.plan(
        wl.snapshot(
            groups=[wl.group("worker", cpu=2, max=6, price=0.10)],
            slices=[wl.slice_(f"worker-{number}", "worker", used={"cpu": 2}) for number in range(6)],
            demands=[wl.demand("CPU=1", {"cpu": 1}, count=4)],
        )
    )
    assert driver_lines(made, ReportState())[1] == (
        "windlass: 4 tasks wait for CPU=1: worker is at its max of 6; would help: max of worker 6 -> 8",
    )


def test_slices_that_come_are_reported_one_by_one_and_failures_with_their_reason():
    asked, boots = decided("worker-1", State.REQUESTING), decided("worker-2", State.BOOTING)
    state = ReportState().after(decision(asked, boots, decided("worker-3", State.QUEUED)))
    found = planned("2.60")[1](state)
    assert [(one.ray_node_type_name, one.count) for one in found.pending_instance_requests] == [("worker", 1)] * 2
    assert [(one.instance_id, one.details) for one in found.pending_instances] == [("worker-2", "for CPU=1")]
    lost = decided("worker-2", State.LOST, Code.LOST, "a host of it died")
    later = state.after(decision(lost, refused=(("worker-1", "none left"),)))
    failed = planned("2.60")[1](later).failed_instance_requests
    assert sorted(one.reason for one in failed) == ["it ended before it joined: a host of it died", "none left"]
    assert later.after(decision(now=1700.0)).failures == (), "they are shown for ten minutes"
