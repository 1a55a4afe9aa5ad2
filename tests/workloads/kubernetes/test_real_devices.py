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


def claim_template(cluster: Cluster, name: str, devices: dict[str, Any]) -> None:
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": {"devices": devices}},
    }
    cluster.plane.call("POST", f"{RESOURCE}/namespaces/default/resourceclaimtemplates", body)


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
    cluster.until(lambda: cluster.status("large")["currentSize"] == 2)
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
    differ = [{"distinctAttribute": f"{DRIVER}/numa"}]
    for name, devices in (
        ("pair", {"requests": [pair], "constraints": alike}),
        ("mixed", {"requests": [pair], "constraints": differ}),
        ("share", {"requests": [share]}),
    ):
        claim_template(cluster, name, devices)
    pairs = [{"driver": DRIVER, "count": 3, "attributes": {"numa": number}} for number in (0, 1)]
    shared = [{"driver": DRIVER, "count": 1, "capacity": {"memory": "40Gi"}, "allowMultipleAllocations": True}]
    cluster.provision("numa", template={"resources": PLAIN, "devices": pairs})
    cluster.provision("shared", template={"resources": PLAIN, "devices": shared})
    cluster.run()
    for number in range(3):
        pod(cluster, f"pair-{number}", "pair")
        pod(cluster, f"share-{number}", "share")
    cluster.until(lambda: len(cluster.bound()) == 6)
    sizes = lambda: tuple(cluster.status(name)["currentSize"] for name in ("numa", "shared"))  # noqa: E731
    cluster.until(lambda: sizes() == (2, 2))
    # One device of each NUMA node is left on one node, one and three on the other: the third mixed pair needs a node.
    for number in range(3):
        pod(cluster, f"mixed-{number}", "mixed")
    cluster.until(lambda: len(cluster.bound()) == 9)
    cluster.until(lambda: sizes() == (3, 2))


def test_partitions_are_bought_as_the_scheduler_allocates_them(cluster: Cluster):
    """The first GPU is taken whole, which leaves none of its quarters: a pod for a quarter needs another node."""
    plane, profiles = cluster.plane, {"whole": 1, "quarter": 4}
    for name in profiles:
        expression = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].profile == "{name}"'
        spec = {"selectors": [{"cel": {"expression": expression}}]}
        body = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}
        plane.call("POST", f"{RESOURCE}/deviceclasses", body)
        claim_template(cluster, name, {"requests": [{"name": "r", "exactly": {"deviceClassName": name}}]})
    devices = [{"driver": DRIVER, "count": count, "attributes": {"profile": name}} for name, count in profiles.items()]
    cluster.provision("mig", minNodes=1, template={"resources": PLAIN, "devices": devices})
    cluster.run()
    (item,) = cluster.until(lambda: cluster.items(f"{RESOURCE}/resourceslices"))
    for number, one in enumerate(item["spec"]["devices"]):
        amount = {"memory": {"value": "10Gi" if number else "40Gi"}}
        one["consumesCounters"] = [{"counterSet": "gpu-0", "counters": amount}]
    item["spec"]["pool"] |= {"generation": 2, "resourceSliceCount": 2}
    counters = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "counters", "ownerReferences": item["metadata"]["ownerReferences"]},
        "spec": {
            **{key: item["spec"][key] for key in ("driver", "nodeName", "pool")},
            "sharedCounters": [{"name": "gpu-0", "counters": {"memory": {"value": "40Gi"}}}],
        },
    }
    plane.call("PUT", f"{RESOURCE}/resourceslices/{item['metadata']['name']}", item)
    plane.call("POST", f"{RESOURCE}/resourceslices", counters)
    pod(cluster, "whole", "whole")
    cluster.until(lambda: cluster.bound().get("whole"))
    assert len(cluster.nodes) == 1
    pod(cluster, "quarter", "quarter")
    cluster.until(lambda: cluster.bound().get("quarter"))
    assert len(cluster.nodes) == 2
