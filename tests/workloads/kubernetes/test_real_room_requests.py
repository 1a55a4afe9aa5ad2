"""Kueue's jobs and CapacityBuffers on a real API server, served by the account of the installation."""

from __future__ import annotations

import json

import pytest

from .autoscaling_crds import BUFFER, REQUEST
from .cluster import Cluster
from .kueue import REQUESTS, TEMPLATES, WORKLOAD, Kueue

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]

BUFFERS = "/apis/autoscaling.x-k8s.io/v1beta1/namespaces/default/capacitybuffers"


@pytest.fixture
def with_requests(cluster: Cluster):
    """The cluster with the definitions of requests for room, and of Kueue's workloads."""
    plane, kinds = cluster.plane, (BUFFER, REQUEST, WORKLOAD)
    names = [one["metadata"]["name"] for one in kinds]
    for one in kinds:
        plane.kubectl("apply", "--server-side", "-f", "-", given=json.dumps(one))
    plane.kubectl("wait", "--for=condition=Established", *[f"crd/{name}" for name in names], "--timeout=60s")
    try:
        yield cluster
    finally:
        cluster.stop()
        plane.kubectl("delete", "crd", *names)
        plane.kubectl("delete", "podtemplates", "--all", "-n", "default")


def test_jobs_of_kueue_start_when_there_is_room_for_all_their_pods(with_requests: Cluster):
    cluster = with_requests
    cluster.provision(maxNodes=2)
    cluster.run()
    kueue = Kueue(cluster.plane, "best-effort-atomic-scale-up.autoscaling.x-k8s.io", ValidUntilSeconds="6")
    kueue.submit("train", 2)
    cluster.until(lambda: not kueue.reconcile())
    cluster.until(lambda: len(cluster.bound()) == 2)
    assert len(cluster.nodes) == 2
    # No room for all pods of the second job: its request fails, and Kueue tries again. Nothing is bought for a part.
    cluster.provision(maxNodes=3)
    kueue.submit("large", 2)
    cluster.until(lambda: kueue.reconcile() and kueue.request_name("large").endswith("-2"))
    assert len(cluster.nodes) == 2
    cluster.provision(maxNodes=4)
    cluster.until(lambda: not kueue.reconcile())
    cluster.until(lambda: len(cluster.bound()) == 4)
    assert len(cluster.nodes) == 4
    assert len(cluster.items(REQUESTS)) == 2


def test_a_buffer_is_bought_and_bought_again_when_a_pod_takes_it(with_requests: Cluster):
    cluster, plane = with_requests, with_requests.plane
    container = {"name": "c", "image": "x", "resources": {"limits": {"cpu": "1", "nvidia.com/gpu": "8"}}}
    template = {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": "gpus", "namespace": "default"},
        "template": {"metadata": {}, "spec": {"containers": [container]}},
    }
    plane.call("POST", TEMPLATES, template)
    buffer = {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": "room", "namespace": "default"},
        "spec": {"podTemplateRef": {"name": "gpus"}, "replicas": 1},
    }
    plane.call("POST", BUFFERS, buffer)
    cluster.provision()
    cluster.run()

    def is_provisioned() -> bool:
        found = (plane.call("GET", f"{BUFFERS}/room").get("status") or {}).get("conditions") or ()
        return ("Provisioned", "True") in [(one["type"], one["status"]) for one in found]

    cluster.until(is_provisioned)
    assert len(cluster.nodes) == 1
    cluster.pods("a")
    cluster.until(lambda: len(cluster.nodes) == 2)
    cluster.until(lambda: "a" in cluster.bound())
