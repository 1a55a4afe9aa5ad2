"""CapacityBuffers and ProvisioningRequests on a real API server, written by the account of the installation."""

from __future__ import annotations

import json

import pytest

from .autoscaling_crds import BUFFER, REQUEST
from .cluster import Cluster

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]

GROUP = "/apis/autoscaling.x-k8s.io"
BUFFERS = f"{GROUP}/v1beta1/namespaces/default/capacitybuffers"
REQUESTS = f"{GROUP}/v1/namespaces/default/provisioningrequests"


def test_a_buffer_and_a_request_bring_room_and_pods_take_it(cluster: Cluster):
    plane = cluster.plane
    for one in (BUFFER, REQUEST):
        plane.kubectl("apply", "--server-side", "-f", "-", given=json.dumps(one))
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    container = {"name": "c", "image": "x", "resources": {"limits": {"cpu": "1", "nvidia.com/gpu": "8"}}}
    template = {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": "gpus", "namespace": "default"},
        "template": {"metadata": {}, "spec": {"containers": [container]}},
    }
    plane.call("POST", "/api/v1/namespaces/default/podtemplates", template)

    def conditions(path: str) -> dict[str, str]:
        found = plane.call("GET", path).get("status") or {}
        return {one["type"]: one["status"] for one in found.get("conditions") or ()}

    try:
        cluster.provision()
        cluster.run()
        sets = [{"podTemplateRef": {"name": "gpus"}, "count": 2}]
        kind = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
        request = {
            "apiVersion": "autoscaling.x-k8s.io/v1",
            "kind": "ProvisioningRequest",
            "metadata": {"name": "train", "namespace": "default"},
            "spec": {"provisioningClassName": kind, "podSets": sets},
        }
        plane.call("POST", REQUESTS, request)
        cluster.until(lambda: conditions(f"{REQUESTS}/train").get("Provisioned") == "True")
        assert conditions(f"{REQUESTS}/train")["Accepted"] == "True"
        assert len(cluster.nodes) == 2
        note = {"annotations": {"autoscaling.x-k8s.io/consume-provisioning-request": "train"}}
        cluster.pods("a", metadata=note)
        cluster.pods("b", metadata=note)
        cluster.until(lambda: len(cluster.bound()) == 2)
        assert len(cluster.nodes) == 2
        buffer = {
            "apiVersion": "autoscaling.x-k8s.io/v1beta1",
            "kind": "CapacityBuffer",
            "metadata": {"name": "room", "namespace": "default"},
            "spec": {"podTemplateRef": {"name": "gpus"}, "replicas": 1},
        }
        plane.call("POST", BUFFERS, buffer)
        cluster.until(lambda: conditions(f"{BUFFERS}/room").get("Provisioned") == "True")
        assert len(cluster.nodes) == 3
        cluster.pods("c")
        cluster.until(lambda: len(cluster.nodes) == 4)
    finally:
        cluster.stop()
        for name in ("capacitybuffers", "provisioningrequests"):
            plane.kubectl("delete", "crd", f"{name}.autoscaling.x-k8s.io")
        plane.call("DELETE", "/api/v1/namespaces/default/podtemplates/gpus")
