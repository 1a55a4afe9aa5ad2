"""Devices on a real control plane: the scheduler allocates what the provisioner's template promised."""

from __future__ import annotations

from typing import Any

import pytest

from .cluster import Cluster

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]

RESOURCE = "/apis/resource.k8s.io/v1"
DRIVER = "gpu.example.com"
PLAIN = {"cpu": "32", "memory": "256Gi", "pods": "110"}
BIG = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0'


def promised(count: int, model: str, memory: str) -> list[dict[str, Any]]:
    return [{"driver": DRIVER, "count": count, "attributes": {"model": model}, "capacity": {"memory": memory}}]


def pod(cluster: Cluster, name: str, claim: str = "", **resources: str) -> None:
    """A pod with a claim of its own, or with extended resources."""
    container: dict[str, Any] = {"name": "c", "image": "x", "resources": {"limits": {"cpu": "1", **resources}}}
    spec: dict[str, Any] = {"containers": [container], "terminationGracePeriodSeconds": 0}
    if claim:
        container["resources"]["claims"] = [{"name": "gpus"}]
        spec["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": claim}]
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}
    cluster.plane.call("POST", "/api/v1/namespaces/default/pods", body)


def test_pods_with_claims_start_from_zero_nodes_and_their_nodes_go_when_they_end(cluster: Cluster):
    plane = cluster.plane
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    plane.call(
        "POST",
        f"{RESOURCE}/deviceclasses",
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "gpu"},
            "spec": {"selectors": [selector], "extendedResourceName": "example.com/gpu"},
        },
    )
    first = {"name": "huge", "deviceClassName": "gpu", "count": 64}
    second = {
        "name": "big",
        "deviceClassName": "gpu",
        "count": 2,
        "selectors": [{"cel": {"expression": BIG}}],
    }
    plane.call(
        "POST",
        f"{RESOURCE}/namespaces/default/resourceclaimtemplates",
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "two-big", "namespace": "default"},
            "spec": {"spec": {"devices": {"requests": [{"name": "r", "firstAvailable": [first, second]}]}}},
        },
    )
    down = {"minGPUUtilizationPercent": 100, "scaleDownDelay": "2s"}
    cluster.provision("small", template={"resources": PLAIN, "devices": promised(4, "A100", "40Gi")}, weight=90, **down)
    cluster.provision("large", template={"resources": PLAIN, "devices": promised(4, "H100", "80Gi")}, **down)
    cluster.run()
    for name in ("a", "b", "c"):
        pod(cluster, name, "two-big")
    cluster.until(lambda: len(cluster.bound()) == 3)
    assert cluster.status("large")["currentSize"] == 2
    assert len(cluster.nodes) == 2
    # The extended resource: the scheduler makes the claim, and two of four devices of one node are free.
    pod(cluster, "d", **{"example.com/gpu": "2"})
    cluster.until(lambda: "d" in cluster.bound())
    pod(cluster, "e", **{"example.com/gpu": "3"})
    cluster.until(lambda: "e" in cluster.bound())
    assert len(cluster.nodes) == 3
    claims = cluster.items(f"{RESOURCE}/resourceclaims")
    assert sum(len(one["status"]["allocation"]["devices"]["results"]) for one in claims) == 11
    cluster.finish("a", "b", "c", "d", "e")
    cluster.until(lambda: not cluster.nodes)
    cluster.until(lambda: not cluster.items(f"{RESOURCE}/resourceslices"))


def test_alike_and_shared_devices_are_bought_as_the_scheduler_allocates_them(cluster: Cluster):
    """A node of ``numa`` has two pairs of devices; the device of ``shared`` has room for two shares, not for three."""
    plane, driver = cluster.plane, {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    for name, expression in (("pairs", "has({}.numa)"), ("shares", "!has({}.numa)")):
        selector = {"cel": {"expression": expression.format(f'device.attributes["{DRIVER}"]')}}
        spec = {"selectors": [driver, selector]}
        body = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}
        plane.call("POST", f"{RESOURCE}/deviceclasses", body)
    pair = {"name": "r", "exactly": {"deviceClassName": "pairs", "count": 2}}
    share = {"name": "r", "exactly": {"deviceClassName": "shares", "capacity": {"requests": {"memory": "16Gi"}}}}
    alike = [{"requests": ["r"], "matchAttribute": f"{DRIVER}/numa"}]
    for name, devices in (("pair", {"requests": [pair], "constraints": alike}), ("share", {"requests": [share]})):
        plane.call(
            "POST",
            f"{RESOURCE}/namespaces/default/resourceclaimtemplates",
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaimTemplate",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"spec": {"devices": devices}},
            },
        )
    pairs = [{"driver": DRIVER, "count": 3, "attributes": {"numa": number}} for number in (0, 1)]
    shared = [{"driver": DRIVER, "count": 1, "capacity": {"memory": "40Gi"}, "allowMultipleAllocations": True}]
    cluster.provision("numa", template={"resources": PLAIN, "devices": pairs})
    cluster.provision("shared", template={"resources": PLAIN, "devices": shared})
    cluster.run()
    for number in range(3):
        pod(cluster, f"pair-{number}", "pair")
        pod(cluster, f"share-{number}", "share")
    cluster.until(lambda: len(cluster.bound()) == 6)
    assert (cluster.status("numa")["currentSize"], cluster.status("shared")["currentSize"]) == (2, 2)
