"""Gangs and the command line on a real control plane: an indexed Job, a PodGroup label, freeze, drain, events."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .cluster import Cluster
from .conftest import installed, operated

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]


def test_an_indexed_job_is_bought_whole_or_not_at_all_and_operators_orders_hold(cluster: Cluster):
    cluster.provision(maxNodes=3, minGPUUtilizationPercent=100, scaleDownDelay="2s")
    cluster.run()
    job(cluster, "large", 4)
    output = cluster.until(
        lambda: [one for one in cluster.events("NotTriggerScaleUp") if "AT_MAX" in one["message"]], limit=60
    )
    assert output[0]["involvedObject"]["name"].startswith("large-")
    assert cluster.nodes == {}
    remove(cluster, "large")
    job(cluster, "small", 2)
    cluster.until(lambda: len(cluster.bound()) == 2)
    assert len(cluster.nodes) == 2
    assert len(set(cluster.bound().values())) == 2

    assert "demand" in cluster.windlass("events").lower()
    assert "a100" in cluster.windlass("freeze", "a100")
    cluster.pods("late")
    cluster.until(lambda: [one for one in cluster.events("NotTriggerScaleUp") if "FROZEN" in one["message"]])
    assert len(cluster.nodes) == 2
    cluster.windlass("resume", "a100")
    cluster.until(lambda: "late" in cluster.bound())
    node = cluster.bound()["late"]
    cluster.windlass("drain", f"node/{node}")
    cluster.until(lambda: node not in cluster.nodes)
    assert "late" not in cluster.bound()
    remove(cluster, "small")


POD_GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"


@pytest.fixture
def with_pod_groups(tmp_path: Path) -> Iterator[Cluster]:
    """A control plane whose scheduler knows PodGroups: in 1.36 that is an alpha feature, off by default."""
    gates = "GenericWorkload=true,GangScheduling=true"
    on = "scheduling.k8s.io/v1alpha2=true"
    with installed(feature_gates=gates, runtime_config=on) as plane, operated(plane, tmp_path) as found:
        yield found


def test_a_pod_group_is_bought_whole_and_the_scheduler_starts_it_whole(with_pod_groups: Cluster):
    cluster = with_pod_groups
    cluster.provision(maxNodes=3)
    cluster.run()
    pod_group(cluster, "large", 4)
    cluster.until(lambda: [one for one in cluster.events("NotTriggerScaleUp") if "AT_MAX" in one["message"]])
    assert cluster.nodes == {}
    cluster.finish(*[f"large-{number}" for number in range(4)])
    pod_group(cluster, "train", 3)
    cluster.until(lambda: len(cluster.bound()) == 3)
    assert set(cluster.bound()) == {"train-0", "train-1", "train-2"}
    assert len(cluster.nodes) == 3
    (condition,) = cluster.plane.call("GET", f"{POD_GROUPS}/train")["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodGroupScheduled", "True")
    assert "PodGroup/train" in cluster.windlass("why", "pod/default/train-0")


def pod_group(cluster: Cluster, name: str, size: int) -> None:
    body = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": size}}},
    }
    cluster.plane.call("POST", POD_GROUPS, body)
    for number in range(size):
        cluster.pods(f"{name}-{number}", schedulingGroup={"podGroupName": name})


def job(cluster: Cluster, name: str, pods: int) -> None:
    container = {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8", "cpu": "1"}}}
    template = {
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]},
    }
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"completionMode": "Indexed", "parallelism": pods, "completions": pods, "template": template},
    }
    cluster.plane.call("POST", "/apis/batch/v1/namespaces/default/jobs", body)


def remove(cluster: Cluster, name: str) -> None:
    cluster.plane.kubectl("delete", "job", name, "--cascade=foreground", "--timeout=60s")
