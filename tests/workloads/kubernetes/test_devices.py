"""Devices of Dynamic Resource Allocation: claims, classes, selectors, and what keeps a node in use."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.workloads.kubernetes.devices.columns import DeviceColumns
from windlass.workloads.kubernetes.devices.expressions import Expressions, NotUnderstood, facts
from windlass.workloads.kubernetes.devices.queries import DeviceKind

from .stage import PODS, PROVISIONERS, UNSCHEDULABLE, Stage, provisioner, staged

RESOURCE = "/apis/resource.k8s.io/v1"
CLASSES = f"{RESOURCE}/deviceclasses"
TEMPLATES = f"{RESOURCE}/namespaces/default/resourceclaimtemplates"
RESOURCE_CLAIMS = f"{RESOURCE}/namespaces/default/resourceclaims"
SLICES = f"{RESOURCE}/resourceslices"
DRIVER = "gpu.example.com"
PLAIN = {"cpu": "32", "memory": "256Gi", "pods": "110"}
A100 = {"driver": DRIVER, "count": 4, "attributes": {"model": "A100"}, "capacity": {"memory": "40Gi"}}
H100 = {"driver": DRIVER, "count": 8, "attributes": {"model": "H100"}, "capacity": {"memory": "80Gi"}}
BIG = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0'


def device_class(name: str = "gpu", **spec: Any) -> dict[str, Any]:
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    return {"metadata": {"name": name}, "spec": {"selectors": selectors, **spec}}


def exactly(count: int = 1, *expressions: str, **more: Any) -> dict[str, Any]:
    selectors = [{"cel": {"expression": one}} for one in expressions]
    return {"deviceClassName": "gpu", "count": count, "selectors": selectors, **more}


def claim(name: str, *requests: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": {"requests": list(requests)}}}


def template(name: str, *requests: dict[str, Any], **devices: Any) -> dict[str, Any]:
    spec = {"devices": {"requests": list(requests), **devices}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"spec": spec}}


def waiting(stage: Stage, name: str, **claimed: str) -> None:
    """A pod with one claim that the scheduler gave up on."""
    stage.fake.put(
        PODS,
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
                "resourceClaims": [{"name": "gpus", **claimed}],
            },
            "status": {"phase": "Pending", "conditions": [UNSCHEDULABLE]},
        },
    )


def devices(stage: Stage, name: str, *promised: dict[str, Any], **spec: Any) -> None:
    stage.fake.put(PROVISIONERS, provisioner(name, template={"resources": PLAIN, "devices": list(promised)}, **spec))


def why(stage: Stage) -> str:
    return " ".join(one["message"] for one in stage.events("NotTriggerScaleUp"))


# -- expressions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        (f'device.driver == "{DRIVER}"', True),
        (f'device.attributes["{DRIVER}"].model == "H100"', False),
        (f'device.attributes["{DRIVER}"].model in ["A100", "H100"]', True),
        (f'device.attributes["{DRIVER}"].index < 4 && device.attributes["{DRIVER}"].ecc', True),
        (f'device.attributes["{DRIVER}"].driverVersion.isGreaterThan(semver("535.0.0"))', True),
        (f'device.attributes["{DRIVER}"].driverVersion.compareTo(semver("560.35.3")) == 0', True),
        (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) == 0', True),
        (f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("40959Mi"))', True),
        (f'has(device.attributes["{DRIVER}"].rack)', False),
        ('"model" in device.attributes["other.example.com"]', False),
        ('device.attributes["other.example.com"].model == "A100"', False),
        ('device.attributes["resource.kubernetes.io"].pcieRoot == "pci0"', True),
    ],
)
def test_selectors_see_attributes_and_capacity(expression: str, holds: bool):
    attributes = {
        "model": {"string": "A100"},
        "index": {"int": 3},
        "ecc": {"bool": True},
        "driverVersion": {"version": "560.35.3"},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0"},
    }
    device = facts(DRIVER, attributes, {"memory": {"value": "40Gi"}})
    assert Expressions().holds(expression, device) is holds


@pytest.mark.parametrize(
    "expression", ["device.driver ==", "device.unknownFunction()", '"a string"', "quantity('forty') == 1"]
)
def test_a_selector_that_is_not_understood_is_neither_true_nor_false(expression: str):
    with pytest.raises(NotUnderstood):
        Expressions().holds(expression, facts(DRIVER, {}, {}))


def test_overlapping_queries_never_hand_out_a_device_twice():
    """Any GPU and a big GPU: 4 small and 2 big ones serve at most 2 big requests, and 6 together."""
    kinds = [DeviceKind("any", (f'device.driver == "{DRIVER}"',)), DeviceKind("big", (BIG,))]
    small, big = facts(DRIVER, {}, {"memory": "40Gi"}), facts(DRIVER, {}, {"memory": "80Gi"})
    columns = DeviceColumns.of(kinds, [small, big], [], Expressions())
    room = columns.room([small] * 4 + [big] * 2)

    def fits(any_of: int, big_ones: int) -> bool:
        needs = columns.needs(((kinds[0], any_of), (kinds[1], big_ones)))
        return all(room.get(name, 0) >= amount for name, amount in needs.items() if name != "devices")

    assert fits(4, 2)
    assert fits(5, 1)
    assert not fits(5, 2)
    assert not fits(1, 3)


# -- from zero nodes ---------------------------------------------------------------------------------------------------


def test_a_pod_with_a_claim_template_starts_from_zero_nodes_and_only_one_is_bought():
    async def run(stage: Stage) -> None:
        stage.fake.put(CLASSES, device_class())
        stage.fake.put(TEMPLATES, template("two", {"name": "r", "exactly": exactly(2)}))
        devices(stage, "a100", A100)
        waiting(stage, "first", resourceClaimTemplateName="two")
        waiting(stage, "second", resourceClaimTemplateName="two")
        await stage.until(lambda: len(stage.nodes) == 1 and stage.status().get("currentSize") == 1)
        slices = stage.fake.all("resourceslices")
        assert [len(one["spec"]["devices"]) for one in slices] == [4]
        await stage.tick(5)
        assert len(stage.nodes) == 1

    staged(run)


def test_a_node_is_in_flight_until_its_resource_slices_are_there():
    async def run(stage: Stage) -> None:
        stage.fake.put(CLASSES, device_class())
        stage.fake.put(TEMPLATES, template("one", {"name": "r", "exactly": exactly()}))
        devices(stage, "a100", A100)
        waiting(stage, "first", resourceClaimTemplateName="one")
        await stage.until(lambda: stage.nodes)
        await stage.tick(5)
        assert stage.status()["inFlight"] == 1
        assert len(stage.nodes) == 1
        stage.advance(120)
        await stage.until(lambda: stage.status()["inFlight"] == 0)
        assert len(stage.nodes) == 1

    staged(run, device_delay=100.0)


def test_a_selector_decides_which_provisioner_is_bought_from():
    async def run(stage: Stage) -> None:
        stage.fake.put(CLASSES, device_class())
        stage.fake.put(TEMPLATES, template("big", {"name": "r", "exactly": exactly(2, BIG)}))
        devices(stage, "a100", A100, weight=90)
        devices(stage, "h100", H100)
        waiting(stage, "first", resourceClaimTemplateName="big")
        await stage.until(lambda: stage.nodes)
        assert stage.status("h100")["currentSize"] + stage.status("h100")["inFlight"] == 1
        assert not stage.status("a100").get("currentSize")

    staged(run)


def test_the_first_alternative_that_can_be_had_is_bought_and_a_full_provisioner_passes_to_the_next():
    async def run(stage: Stage) -> None:
        first = {"name": "big", **exactly(1, BIG)}
        second = {"name": "any", **exactly(2)}
        stage.fake.put(CLASSES, device_class())
        stage.fake.put(TEMPLATES, template("either", {"name": "r", "firstAvailable": [first, second]}))
        devices(stage, "h100", {**H100, "count": 1}, maxNodes=1)
        devices(stage, "a100", A100)
        waiting(stage, "first", resourceClaimTemplateName="either")
        await stage.until(lambda: stage.status("h100").get("currentSize") == 1)
        assert len(stage.nodes) == 1
        node = stage.nodes[0]
        stage.fake.put(RESOURCE_CLAIMS, allocated("first-claim", node, "device-0", "first"))
        stage.bind("first", node)
        waiting(stage, "second", resourceClaimTemplateName="either")
        await stage.until(lambda: stage.status("a100").get("currentSize") == 1)
        await stage.tick(6)
        assert len(stage.nodes) == 2

    staged(run)


def test_all_devices_of_a_node_are_asked_for():
    async def run(stage: Stage) -> None:
        stage.fake.put(CLASSES, device_class())
        stage.fake.put(TEMPLATES, template("all", {"name": "r", "exactly": exactly(allocationMode="All")}))
        devices(stage, "a100", A100)
        waiting(stage, "first", resourceClaimTemplateName="all")
        waiting(stage, "second", resourceClaimTemplateName="all")
        await stage.until(lambda: len(stage.nodes) == 2)
        await stage.tick(5)
        assert len(stage.nodes) == 2

    staged(run)


def test_pods_that_share_a_claim_get_one_node():
    async def run(stage: Stage) -> None:
        stage.fake.put(CLASSES, device_class())
        stage.fake.put(RESOURCE_CLAIMS, claim("shared", {"name": "r", "exactly": exactly(3)}))
        devices(stage, "a100", A100)
        waiting(stage, "first", resourceClaimName="shared")
        waiting(stage, "second", resourceClaimName="shared")
        await stage.until(lambda: len(stage.nodes) == 1)
        await stage.tick(5)
        assert len(stage.nodes) == 1

    staged(run)


def test_an_extended_resource_that_a_class_backs_is_served_by_devices():
    async def run(stage: Stage) -> None:
        stage.fake.put(CLASSES, device_class(extendedResourceName="nvidia.com/gpu"))
        devices(stage, "a100", A100, minGPUUtilizationPercent=100, scaleDownDelay="60s")
        for number in range(4):
            stage.pending(f"p{number}", **{"nvidia.com/gpu": "2"})
        await stage.until(lambda: len(stage.nodes) == 2 and stage.status().get("inFlight") == 0)
        await stage.tick(4)
        assert len(stage.nodes) == 2
        assert not stage.marked

    staged(run)


def test_a_device_plugin_node_still_serves_a_resource_that_a_class_backs():
    async def run(stage: Stage) -> None:
        stage.fake.put(CLASSES, device_class(extendedResourceName="nvidia.com/gpu"))
        stage.fake.put(PROVISIONERS, provisioner())
        for number in range(3):
            stage.pending(f"p{number}", **{"nvidia.com/gpu": "4"})
        await stage.until(lambda: len(stage.nodes) == 2 and stage.status().get("inFlight") == 0)
        await stage.tick(4)
        assert len(stage.nodes) == 2

    staged(run)


# -- in use ------------------------------------------------------------------------------------------------------------


def allocated(name: str, node: str, device: str, consumer: str) -> dict[str, Any]:
    """A claim with a device of a node that a pod has reserved."""
    selector = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly()}]}},
        "status": {
            "allocation": {
                "devices": {"results": [{"request": "r", "driver": DRIVER, "pool": node, "device": device}]},
                "nodeSelector": {"nodeSelectorTerms": [selector]},
            },
            "reservedFor": [{"resource": "pods", "name": consumer, "uid": f"uid-of-{consumer}"}],
        },
    }


def test_a_node_with_a_reserved_claim_is_in_use_and_goes_when_it_is_free():
    async def run(stage: Stage) -> None:
        stage.fake.put(CLASSES, device_class())
        devices(stage, "a100", A100, minNodes=2, minGPUUtilizationPercent=100, scaleDownDelay="60s")
        await stage.until(lambda: stage.status().get("currentSize") == 2)
        held = stage.nodes[0]
        stage.fake.put(RESOURCE_CLAIMS, allocated("held", held, "device-0", "a-pod-not-seen-yet"))
        stage.fake.change(f"{PROVISIONERS}/a100", lambda one: one["spec"].update(minNodes=0))
        await stage.until(lambda: stage.marked)
        assert held not in stage.marked
        assert stage.status()["utilizedNodes"] == 1
        await stage.until(lambda: len(stage.nodes) == 1, passes=100, step=2.0)
        assert stage.nodes == [held]
        stage.fake.remove(f"{RESOURCE_CLAIMS}/held")
        await stage.until(lambda: not stage.nodes, passes=100, step=2.0)
        assert not stage.fake.all("resourceslices")

    staged(run)


def test_a_claim_that_is_reserved_while_the_fence_settles_keeps_the_node():
    """The watch has not shown the claim yet; the live list of the fence does."""

    async def run(stage: Stage) -> None:
        stage.fake.put(CLASSES, device_class())
        devices(stage, "a100", A100, minNodes=1)
        await stage.until(lambda: stage.status().get("currentSize") == 1)
        node = stage.nodes[0]
        stage.fake.put(RESOURCE_CLAIMS, allocated("held", node, "device-1", "a-pod"))
        await stage.workload.fences.raise_fence(node, 1)
        for _ in range(50):
            await stage.settle()
            if stage.workload.fences.certificate(node) is not None:
                break
        certificate = stage.workload.fences.certificate(node)
        assert certificate is not None
        assert certificate.running == 1
        assert "held" in await stage.workload.still_used(node)

    staged(run)


# -- not understood ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "more", "reason"),
    [
        ({"exactly": exactly(1, "device.oddFunction()")}, {}, "not understood"),
        ({"exactly": exactly(adminAccess=True)}, {}, "admin access"),
        ({"exactly": exactly(capacity={"requests": {"memory": "1Gi"}})}, {}, "share of a device's capacity"),
        (
            {"exactly": exactly()},
            {"constraints": [{"matchAttribute": f"{DRIVER}/numa"}]},
            "constraints between devices",
        ),
        ({"exactly": {**exactly(), "deviceClassName": "absent"}}, {}, "DeviceClass absent does not exist"),
    ],
)
def test_what_is_not_understood_waits_with_its_reason_and_buys_nothing(
    request_: dict[str, Any], more: dict[str, Any], reason: str
):
    async def run(stage: Stage) -> None:
        stage.fake.put(CLASSES, device_class())
        stage.fake.put(TEMPLATES, template("odd", {"name": "r", **request_}, **more))
        devices(stage, "a100", A100)
        waiting(stage, "first", resourceClaimTemplateName="odd")
        await stage.until(lambda: "UNKNOWN_INPUT" in why(stage))
        assert reason in why(stage)
        await stage.tick(3)
        assert not stage.nodes
        decision = stage.workload.decision
        assert decision is not None
        assert decision.plan is not None
        assert [(one.demand, one.reason.code) for one in decision.plan.waiting] == [("default/first", "UNKNOWN_INPUT")]
        assert stage.condition("Blocked")["status"] == "False"

    staged(run)


def test_more_devices_than_any_node_has_are_named_in_the_reason():
    async def run(stage: Stage) -> None:
        stage.fake.put(CLASSES, device_class())
        stage.fake.put(TEMPLATES, template("many", {"name": "r", "exactly": exactly(9)}))
        devices(stage, "a100", A100)
        waiting(stage, "first", resourceClaimTemplateName="many")
        await stage.until(lambda: "NO_SHAPE_FITS" in why(stage))
        assert "devices" in why(stage)
        assert not stage.nodes

    staged(run)
