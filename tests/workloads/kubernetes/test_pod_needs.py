"""What a pod needs of a node, as the scheduler computes it, and which pods count."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from windlass.core.model.quantities import BadQuantity
from windlass.kubernetes_api.objects import Pod
from windlass.workloads.kubernetes.translate.pods import PodMirror, needs_of
from windlass.workloads.kubernetes.translate.quantities import amount, number
from windlass.workloads.kubernetes.translate.schedules import cron, duration, is_open


def read(spec: dict[str, Any], status: dict[str, Any] | None = None, **metadata: Any) -> Pod:
    whole = {"metadata": {"name": "p", "namespace": "default", **metadata}, "spec": spec, "status": status or {}}
    return msgspec.convert(whole, Pod)


def container(name: str = "c", *, always: bool = False, **requests: str) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests}, **({"restartPolicy": "Always"} if always else {})}


def needs(spec: dict[str, Any], status: dict[str, Any] | None = None) -> dict[str, int]:
    pod = read(spec, status)
    return needs_of(pod.spec, pod.status)


@pytest.mark.parametrize(
    ("resource", "text", "units"),
    [
        ("cpu", "1", 1000),
        ("cpu", "100m", 100),
        ("cpu", "0.5", 500),
        ("cpu", "1u", 1),
        ("memory", "1Gi", 2**30),
        ("memory", "1G", 10**9),
        ("memory", "1e3", 1000),
        ("memory", "100m", 1),
        ("memory", "12E", 12 * 10**18),
        ("nvidia.com/gpu", "8", 8000),
        ("ephemeral-storage", "10Gi", 10 * 2**30),
        ("hugepages-2Mi", "4Mi", 4000),
    ],
)
def test_quantities_are_rounded_up_to_what_the_scheduler_counts(resource: str, text: str, units: int):
    assert amount(resource, text) == units


@pytest.mark.parametrize("text", ["", "x", "1x", "1 Gi", "--1", "1KiB"])
def test_what_is_no_quantity_is_refused(text: str):
    with pytest.raises(BadQuantity):
        number(text)


def test_containers_add_up():
    assert needs({"containers": [container(cpu="1", memory="1Gi"), container(cpu="500m")]}) == {
        "cpu": 1500,
        "memory": 2**30,
        "pods": 1000,
    }


def test_of_init_containers_only_the_largest_counts():
    spec = {"containers": [container(cpu="1")], "initContainers": [container(cpu="3"), container(cpu="2")]}
    assert needs(spec)["cpu"] == 3000


def test_a_restartable_init_container_runs_next_to_all_that_start_after_it():
    sidecar = container("s", always=True, cpu="1")
    before = {"containers": [container(cpu="1")], "initContainers": [sidecar, container(cpu="3")]}
    after = {"containers": [container(cpu="1")], "initContainers": [container(cpu="3"), sidecar]}
    assert needs(before)["cpu"] == 4000
    assert needs(after)["cpu"] == 3000


def test_overhead_is_added_and_requests_of_the_whole_pod_replace_the_sum():
    spec = {
        "containers": [container(cpu="1", memory="1Gi")],
        "resources": {"requests": {"cpu": "4"}},
        "overhead": {"cpu": "250m"},
    }
    assert needs(spec) == {"cpu": 4250, "memory": 2**30, "pods": 1000}


def test_a_resize_under_way_counts_with_the_larger_of_both():
    spec = {"containers": [container(cpu="1", memory="2Gi")]}
    status = {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "3", "memory": "1Gi"}}]}
    assert needs(spec, status) == {"cpu": 3000, "memory": 2 * 2**30, "pods": 1000}


def test_an_infeasible_resize_counts_with_what_the_pod_has():
    status = {
        "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "1"}}],
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
    }
    assert needs({"containers": [container(cpu="64")]}, status)["cpu"] == 1000


UNSCHEDULABLE = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
GATED = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}
SPEC = {"containers": [container(cpu="1")]}
DAEMON = [{"kind": "DaemonSet", "name": "d", "controller": True}]


@pytest.mark.parametrize(
    ("waits", "pod"),
    [
        (True, read(SPEC, UNSCHEDULABLE)),
        (False, read(SPEC)),
        (False, read(SPEC, GATED)),
        (False, read({**SPEC, "schedulingGates": [{"name": "g"}]}, UNSCHEDULABLE)),
        (False, read({**SPEC, "nodeName": "n"}, UNSCHEDULABLE)),
        (False, read(SPEC, {**UNSCHEDULABLE, "nominatedNodeName": "n"})),
        (False, read(SPEC, {**UNSCHEDULABLE, "phase": "Failed"})),
        (False, read(SPEC, UNSCHEDULABLE, ownerReferences=DAEMON)),
        (False, read(SPEC, UNSCHEDULABLE, annotations={"kubernetes.io/config.mirror": "x"})),
        (False, read(SPEC, UNSCHEDULABLE, deletionTimestamp="2026-01-01T00:00:00Z")),
    ],
)
def test_only_a_pod_that_the_scheduler_gave_up_on_waits_for_a_machine(waits: bool, pod: Pod):
    assert PodMirror()(pod).waits is waits


@pytest.mark.parametrize(
    ("counts", "pod"),
    [
        (True, read(SPEC, {"phase": "Running"})),
        (True, read(SPEC, {"phase": "Running"}, deletionTimestamp="2026-01-01T00:00:00Z")),
        (False, read(SPEC, {"phase": "Succeeded"})),
        (False, read(SPEC, {"phase": "Failed"})),
        (False, read(SPEC, {"phase": "Running"}, ownerReferences=DAEMON)),
        (False, read(SPEC, {"phase": "Running"}, annotations={"kubernetes.io/config.mirror": "x"})),
    ],
)
def test_daemons_mirror_pods_and_finished_pods_do_not_make_a_node_used(counts: bool, pod: Pod):
    assert PodMirror()(pod).counts is counts


def test_equal_pods_share_one_shape():
    mirror = PodMirror()
    first, second = mirror(read(SPEC)), mirror(read({**SPEC, "nodeName": "n"}))
    assert first.shape is second.shape
    assert mirror(read({"containers": [container(cpu="2")]})).shape is not first.shape


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("1h30m", 5400), ("500ms", 0.5), ("5m1h", 3900)]
)
def test_durations_are_read_as_go_writes_them(text: str, seconds: float):
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["* * * *", "61 * * * *", "* * * * someday"])
def test_a_wrong_schedule_is_refused(text: str):
    with pytest.raises(ValueError, match="field"):
        cron(text)


def test_a_window_is_open_for_its_duration():
    nine_on_a_monday = 1768813200.0  # 2026-01-19 09:00 UTC
    schedule = "0 9 * * mon-fri"
    assert is_open(schedule, 3600, nine_on_a_monday)
    assert is_open(schedule, 3600, nine_on_a_monday + 3599)
    assert not is_open(schedule, 3600, nine_on_a_monday + 3601)
    assert not is_open(schedule, 3600, nine_on_a_monday - 1)
    assert not is_open(schedule, 3600, nine_on_a_monday - 86400)
    assert is_open("@monthly", 20 * 86400, nine_on_a_monday)
    assert not is_open("@monthly", 10 * 86400, nine_on_a_monday)


def test_limits_of_a_template_count_as_requests_where_it_has_none():
    resources = {"limits": {"cpu": "2", "nvidia.com/gpu": "8"}, "requests": {"cpu": "1"}}
    assert needs({"containers": [{"name": "c", "resources": resources}]}) == {
        "cpu": 1000,
        "nvidia.com/gpu": 8000,
        "pods": 1000,
    }
