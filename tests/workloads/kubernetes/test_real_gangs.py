"""Gangs and the command line on a real control plane: an indexed Job, a PodGroup label, freeze, drain, events."""

from __future__ import annotations

import pytest

from .cluster import Cluster

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
