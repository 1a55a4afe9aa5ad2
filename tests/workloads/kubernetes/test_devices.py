"""Devices of Dynamic Resource Allocation: claims, classes, selectors, and what keeps a node in use."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from decimal import Decimal
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


def claiming(stage: Stage, name: str, *requests: dict[str, Any], pods: int = 1, **more: Any) -> None:
    """Pods that wait, each with a claim of its own for these requests. ``more``: of the claim."""
    named = [one if "name" in one else {"name": f"r{number or ''}", **one} for number, one in enumerate(requests)]
    stage.fake.put(TEMPLATES, template(name, *named, **more))
    for number in range(pods):
        waiting(stage, f"{name}-{number}", resourceClaimTemplateName=name)


async def settles_at(stage: Stage, nodes: int) -> None:
    """So many nodes come, and no more."""
    await stage.until(lambda: len(stage.nodes) == nodes)
    await stage.tick(5)
    assert len(stage.nodes) == nodes


def on_stage(extended: str = "", **kwok: Any) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Make a test of a coroutine: it gets a stage with the device class ``gpu``."""

    def made(test: Callable[..., Any]) -> Callable[..., None]:
        def run(**given: Any) -> None:
            async def whole(stage: Stage) -> None:
                more = {"extendedResourceName": extended} if extended else {}
                stage.fake.put(CLASSES, device_class(**more))
                await test(stage, **given)

            staged(whole, **kwok)

        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        shown = inspect.signature(test)
        arguments = [one for name, one in shown.parameters.items() if name != "stage"]
        run.__signature__ = shown.replace(parameters=arguments)  # type: ignore[attr-defined]
        return run

    return made


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


@on_stage()
async def test_a_pod_with_a_claim_template_starts_from_zero_nodes_and_only_one_is_bought(stage: Stage) -> None:
    claiming(stage, "two", {"exactly": exactly(2)}, pods=2)
    devices(stage, "a100", A100)
    await settles_at(stage, 1)
    assert [len(one["spec"]["devices"]) for one in stage.fake.all("resourceslices")] == [4]


@on_stage(device_delay=100.0)
async def test_a_node_is_in_flight_until_its_resource_slices_are_there(stage: Stage) -> None:
    claiming(stage, "one", {"exactly": exactly()})
    devices(stage, "a100", A100)
    await stage.until(lambda: stage.nodes)
    await stage.tick(5)
    assert stage.status()["inFlight"] == 1
    assert len(stage.nodes) == 1
    stage.advance(120)
    await stage.until(lambda: stage.status()["inFlight"] == 0)
    assert len(stage.nodes) == 1


@on_stage()
async def test_a_selector_decides_which_provisioner_is_bought_from(stage: Stage) -> None:
    claiming(stage, "big", {"exactly": exactly(2, BIG)})
    devices(stage, "a100", A100, weight=90)
    devices(stage, "h100", H100)
    await stage.until(lambda: stage.nodes)
    assert stage.status("h100")["currentSize"] + stage.status("h100")["inFlight"] == 1
    assert not stage.status("a100").get("currentSize")


@on_stage()
async def test_the_first_alternative_that_can_be_had_is_bought_and_a_full_provisioner_passes_to_the_next(
    stage: Stage,
) -> None:
    first = {"name": "big", **exactly(1, BIG)}
    second = {"name": "any", **exactly(2)}
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


@on_stage()
async def test_all_devices_of_a_node_are_asked_for(stage: Stage) -> None:
    claiming(stage, "all", {"exactly": exactly(allocationMode="All")}, pods=2)
    devices(stage, "a100", A100)
    await settles_at(stage, 2)


@on_stage()
async def test_pods_that_share_a_claim_get_one_node(stage: Stage) -> None:
    stage.fake.put(RESOURCE_CLAIMS, claim("shared", {"name": "r", "exactly": exactly(3)}))
    devices(stage, "a100", A100)
    waiting(stage, "first", resourceClaimName="shared")
    waiting(stage, "second", resourceClaimName="shared")
    await settles_at(stage, 1)


@on_stage(extended="nvidia.com/gpu")
async def test_an_extended_resource_that_a_class_backs_is_served_by_devices(stage: Stage) -> None:
    devices(stage, "a100", A100, minGPUUtilizationPercent=100, scaleDownDelay="60s")
    for number in range(4):
        stage.pending(f"p{number}", **{"nvidia.com/gpu": "2"})
    await stage.until(lambda: len(stage.nodes) == 2 and stage.status().get("inFlight") == 0)
    await stage.tick(4)
    assert len(stage.nodes) == 2
    assert not stage.marked


@on_stage(extended="nvidia.com/gpu")
async def test_a_device_plugin_node_still_serves_a_resource_that_a_class_backs(stage: Stage) -> None:
    stage.fake.put(PROVISIONERS, provisioner())
    for number in range(3):
        stage.pending(f"p{number}", **{"nvidia.com/gpu": "4"})
    await stage.until(lambda: len(stage.nodes) == 2 and stage.status().get("inFlight") == 0)
    await stage.tick(4)
    assert len(stage.nodes) == 2


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


@on_stage()
async def test_a_node_with_a_reserved_claim_is_in_use_and_goes_when_it_is_free(stage: Stage) -> None:
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


@on_stage()
async def test_a_claim_that_is_reserved_while_the_fence_settles_keeps_the_node(stage: Stage) -> None:
    """The watch has not shown the claim yet; the live list of the fence does."""
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


# -- devices that are alike, shared, or only looked at -----------------------------------------------------------------


def numa(number: int) -> dict[str, Any]:
    return {"driver": DRIVER, "count": 2, "attributes": {"numa": number}}


ALIKE = [{"requests": ["r"], "matchAttribute": f"{DRIVER}/numa"}]


@on_stage()
async def test_devices_that_must_be_alike_are_counted_by_whole_sets(stage: Stage) -> None:
    """A node has two GPUs in each of two NUMA nodes: two sets of two, and no set of three."""
    claiming(stage, "three", {"exactly": exactly(3)}, constraints=ALIKE)
    devices(stage, "a100", numa(0), numa(1))
    await stage.until(lambda: "NO_SHAPE_FITS" in why(stage))
    assert "with the same gpu.example.com/numa" in why(stage)
    assert not stage.nodes
    claiming(stage, "two", {"exactly": exactly(2)}, pods=3, constraints=ALIKE)
    await settles_at(stage, 2)


@on_stage()
async def test_one_device_taken_of_each_numa_node_leaves_no_set_of_two(stage: Stage) -> None:
    devices(stage, "a100", numa(0), numa(1), minNodes=1)
    await settles_at(stage, 1)
    for device in ("device-0", "device-2"):
        stage.fake.put(RESOURCE_CLAIMS, allocated(f"on-{device}", stage.nodes[0], device, "another"))
    await stage.tick(2)
    claiming(stage, "two", {"exactly": exactly(2)}, constraints=ALIKE)
    await settles_at(stage, 2)


@on_stage()
async def test_devices_that_must_differ_are_counted_by_whole_sets(stage: Stage) -> None:
    """A node has three GPUs in one NUMA node and one in another: one set of two different ones, and no set of three."""
    differ = [{"distinctAttribute": f"{DRIVER}/numa"}]
    claiming(stage, "three", {"exactly": exactly(3)}, constraints=differ)
    devices(stage, "a100", {**numa(0), "count": 3}, {**numa(1), "count": 1})
    await stage.until(lambda: "NO_SHAPE_FITS" in why(stage))
    assert "with different gpu.example.com/numa" in why(stage)
    assert not stage.nodes
    claiming(stage, "two", {"exactly": exactly(2)}, pods=3, constraints=differ)
    await settles_at(stage, 3)


@on_stage()
async def test_a_gpu_and_a_network_card_on_the_same_root_are_bought_together(stage: Stage) -> None:
    root = "resource.kubernetes.io/pcieRoot"
    selectors = [{"cel": {"expression": 'device.driver == "nic.example.com"'}}]
    stage.fake.put(CLASSES, {"metadata": {"name": "nic"}, "spec": {"selectors": selectors}})
    card = {"name": "card", "exactly": {"deviceClassName": "nic", "count": 1}}
    near = [{"requests": ["r", "card"], "matchAttribute": root}]
    claiming(stage, "near", {"exactly": exactly(1)}, card, pods=2, constraints=near)
    gpus = {"driver": DRIVER, "count": 4, "attributes": {root: "pci0"}}
    cards = {"driver": "nic.example.com", "count": 4, "attributes": {root: "pci1"}}
    devices(stage, "apart", gpus, cards, weight=90)
    devices(stage, "near", gpus, {**cards, "attributes": {root: "pci0"}}, weight=10)
    await settles_at(stage, 1)
    assert stage.status("near")["currentSize"] == 1


@on_stage()
async def test_shares_of_a_device_are_counted_by_its_capacity(stage: Stage) -> None:
    """Two devices of 40Gi on a node: each serves two claims of 16Gi, and what is left of it no third."""
    share = {"exactly": exactly(1, capacity={"requests": {"memory": "16Gi"}})}
    shared = {"driver": DRIVER, "count": 2, "capacity": {"memory": "40Gi"}, "allowMultipleAllocations": True}
    devices(stage, "a100", shared)
    claiming(stage, "first", share, pods=5)
    await settles_at(stage, 2)
    stage.finish(*[f"first-{number}" for number in range(5)])
    for number, device in enumerate(("device-0", "device-0", "device-1")):
        taken = allocated(f"taken-{number}", stage.nodes[0], device, "another")
        taken["status"]["allocation"]["devices"]["results"][0]["consumedCapacity"] = {"memory": "16Gi"}
        stage.fake.put(RESOURCE_CLAIMS, taken)
    await stage.tick(2)
    claiming(stage, "second", share, pods=5)
    await settles_at(stage, 2)  # one more on the first node, four on the second
    claiming(stage, "third", share)
    await settles_at(stage, 3)


@pytest.mark.parametrize(
    ("policy", "served"),
    [
        (None, 2),
        ({"validRange": {"min": "1Gi", "step": "10Gi"}}, 1),
        ({"validValues": ["10Gi", "40Gi"]}, 1),
        ({"validRange": {"min": "1Gi", "max": "8Gi"}}, 0),
    ],
)
def test_a_share_is_rounded_up_as_the_device_says(policy: dict[str, Any] | None, served: int):
    device = facts(DRIVER, {}, {"memory": {"value": "40Gi", "requestPolicy": policy}}, multiple=True)
    kind = DeviceKind("share", (), capacity=(("memory", "16Gi"),))
    columns = DeviceColumns.of([kind], [device], [], Expressions())
    assert columns.room([device]).get("shares of share", 0) == 1000 * served


WHOLE = {"driver": DRIVER, "count": 1, "attributes": {"profile": "whole"}}
SMALL = {"driver": DRIVER, "count": 4, "attributes": {"profile": "small"}}


def profile(name: str) -> str:
    return f'device.attributes["{DRIVER}"].profile == "{name}"'


def partition(item: dict[str, Any]) -> None:
    """Make the devices of a ResourceSlice partitions of one GPU with 40 GB."""
    item["spec"]["sharedCounters"] = [{"name": "gpu-0", "counters": {"memory": {"value": "40Gi"}}}]
    for number, one in enumerate(item["spec"]["devices"]):
        amount = {"memory": {"value": "40Gi" if number == 0 else "10Gi"}}
        one["consumesCounters"] = [{"counterSet": "gpu-0", "counters": amount}]


@pytest.mark.parametrize(("taken", "nodes"), [("device-0", 2), ("device-1", 1)])
@on_stage()
async def test_partitions_are_free_while_the_counters_of_their_gpu_suffice(
    stage: Stage, taken: str, nodes: int
) -> None:
    """Device 0 is the whole GPU and leaves no partition; device 1 is a quarter and leaves three of them. A GPU whose
    quarters are wanted is not given as a whole: the last pod needs one more node."""
    devices(stage, "a100", WHOLE, SMALL, minNodes=1)
    await settles_at(stage, 1)
    stage.fake.change(f"{SLICES}/{stage.nodes[0]}-{DRIVER}-0", partition)
    stage.fake.put(RESOURCE_CLAIMS, allocated("one", stage.nodes[0], taken, "another"))
    await stage.tick(2)
    claiming(stage, "small", {"exactly": exactly(1, profile("small"))}, pods=3)
    await settles_at(stage, nodes)
    claiming(stage, "whole", {"exactly": exactly(1, profile("whole"))})
    await settles_at(stage, nodes + 1)


MIG = {
    "driver": DRIVER,
    "count": 2,
    "attributes": {"profile": "whole"},
    "counters": {"memory": "40Gi"},
    "partitions": [
        {"count": 2, "attributes": {"profile": "half"}, "counters": {"memory": "20Gi"}},
        {"count": 4, "attributes": {"profile": "quarter"}, "counters": {"memory": "10Gi"}},
    ],
}


@pytest.mark.parametrize(
    ("pods", "nodes"),
    [
        ({"whole": 1, "quarter": 4}, 1),
        ({"whole": 1, "half": 1, "quarter": 2}, 1),
        ({"whole": 1, "quarter": 5}, 2),
        ({"whole": 2, "half": 1}, 2),
        ({"whole": 2, "half": 4, "quarter": 8}, 3),
    ],
)
@on_stage()
async def test_whole_devices_and_their_partitions_are_counted_together_in_one_plan(
    stage: Stage, pods: dict[str, int], nodes: int
) -> None:
    """A node has two GPUs: each is one whole device, two halves or four quarters."""
    devices(stage, "mig", MIG)
    for name, count in pods.items():
        claiming(stage, name, {"exactly": exactly(1, profile(name))}, pods=count)
    await stage.tick()
    assert len(stage.claims) == nodes
    await settles_at(stage, nodes)


@on_stage()
async def test_counters_of_a_node_hold_for_the_next_ones_of_its_provisioner(stage: Stage) -> None:
    """The template names no counters, but a node shows that the whole GPU and its four parts share 40 GB."""
    devices(stage, "a100", WHOLE, SMALL, minNodes=1)
    await settles_at(stage, 1)
    stage.fake.change(f"{SLICES}/{stage.nodes[0]}-{DRIVER}-0", partition)
    await stage.tick(2)
    claiming(stage, "whole", {"exactly": exactly(1, profile("whole"))}, pods=2)
    claiming(stage, "small", {"exactly": exactly(1, profile("small"))}, pods=4)
    await stage.settle()
    await stage.tick()
    assert len(stage.claims) == 3


@on_stage()
async def test_a_node_with_unused_partitions_is_released(stage: Stage) -> None:
    devices(stage, "mig", MIG, minGPUUtilizationPercent=100, scaleDownDelay="10s")
    for name in ("whole", "quarter"):
        claiming(stage, name, {"exactly": exactly(1, profile(name))})
    await settles_at(stage, 1)
    stage.finish("whole-0")
    claiming(stage, "half", {"exactly": exactly(1, profile("half"))})
    await stage.tick(2)
    stage.finish("quarter-0", "half-0")
    await stage.until(lambda: not stage.nodes)


@on_stage()
async def test_shares_of_different_sizes_are_counted_together_in_one_plan(stage: Stage) -> None:
    devices(stage, "shared", {**A100, "count": 1, "allowMultipleAllocations": True})
    for name, size, count in (("large", "30Gi", 1), ("small", "10Gi", 2)):
        claiming(stage, name, {"exactly": exactly(1, capacity={"requests": {"memory": size}})}, pods=count)
    await stage.tick()
    assert len(stage.claims) == 2


def test_numbered_counters_are_one_amount() -> None:
    slots = [((DRIVER, "pool", "gpu", f"memory-slice-{number}"), Decimal(1)) for number in range(8)]
    whole, parts = facts(DRIVER, {"p": "w"}, {}, counters=tuple(slots)), []
    parts = [facts(DRIVER, {"p": "s"}, {}, counters=(one,)) for one in slots]
    kinds = [DeviceKind(name, (f'device.attributes["{DRIVER}"].p == "{name}"',)) for name in ("w", "s")]
    columns = DeviceColumns.of(kinds, [whole, *parts], [], Expressions())
    needs = [columns.needs(((kind, 1),))[f"counter memory-slice of {DRIVER}"] for kind in kinds]
    assert needs == [8000, 1000]


@on_stage()
async def test_admin_access_takes_no_device_and_needs_a_node_that_has_some(stage: Stage) -> None:
    devices(stage, "plain", weight=90)
    devices(stage, "a100", A100, weight=10)
    claiming(stage, "watch", {"exactly": exactly(1, adminAccess=True)}, pods=2)
    claiming(stage, "four", {"exactly": exactly(4)})
    await settles_at(stage, 1)
    assert stage.status("a100")["currentSize"] == 1


# -- not understood ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "more", "reason"),
    [
        ({"exactly": exactly(1, "device.oddFunction()")}, {}, "not understood"),
        ({"exactly": exactly(1, 'device.driver == "other"', adminAccess=True)}, {}, "no provisioner has such devices"),
        (
            {"exactly": exactly(2)},
            {"constraints": [{"distinctAttribute": f"{DRIVER}/numa"}, {"matchAttribute": f"{DRIVER}/model"}]},
            "distinctAttribute and another constraint",
        ),
        ({"exactly": {**exactly(), "deviceClassName": "absent"}}, {}, "DeviceClass absent does not exist"),
    ],
)
@on_stage()
async def test_what_is_not_understood_waits_with_its_reason_and_buys_nothing(
    stage: Stage, request_: dict[str, Any], more: dict[str, Any], reason: str
) -> None:
    claiming(stage, "odd", request_, **more)
    devices(stage, "a100", A100)
    await stage.until(lambda: "UNKNOWN_INPUT" in why(stage))
    assert reason in why(stage)
    await stage.tick(3)
    assert not stage.nodes
    decision = stage.workload.decision
    assert decision is not None
    assert decision.plan is not None
    assert [(one.demand, one.reason.code) for one in decision.plan.waiting] == [("default/odd-0", "UNKNOWN_INPUT")]
    assert stage.condition("Blocked")["status"] == "False"


@on_stage()
async def test_more_devices_than_any_node_has_are_named_in_the_reason(stage: Stage) -> None:
    claiming(stage, "many", {"exactly": exactly(9)})
    devices(stage, "a100", A100)
    await stage.until(lambda: "NO_SHAPE_FITS" in why(stage))
    assert "devices" in why(stage)
    assert not stage.nodes
