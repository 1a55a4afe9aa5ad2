"""This module defines objects of ``resource.k8s.io/v1`` as narrow msgspec structs: devices, classes, claims."""

from __future__ import annotations

from typing import Any

from .objects import Meta, NodeSelector, Struct


class CelExpression(Struct, frozen=True):
    expression: str = ""


class DeviceSelector(Struct, frozen=True):
    cel: CelExpression | None = None


class DeviceClassSpec(Struct, frozen=True):
    selectors: tuple[DeviceSelector, ...] | None = None
    extended_resource_name: str | None = None


class DeviceClass(Struct, frozen=True):
    metadata: Meta
    spec: DeviceClassSpec = DeviceClassSpec()


class DeviceToleration(Struct, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class CapacityRequirements(Struct, frozen=True):
    requests: dict[str, Any] | None = None


class DeviceQuery(Struct, frozen=True):
    """One request, or one alternative of a request."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] | None = None
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] | None = None
    capacity: CapacityRequirements | None = None


class DeviceRequest(Struct, frozen=True):
    name: str = ""
    exactly: DeviceQuery | None = None
    first_available: tuple[DeviceQuery, ...] | None = None


class DeviceConstraint(Struct, frozen=True):
    """A constraint between the devices of some requests, or of all requests if ``requests`` is empty."""

    requests: tuple[str, ...] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaim(Struct, frozen=True):
    requests: tuple[DeviceRequest, ...] | None = None
    constraints: tuple[DeviceConstraint, ...] | None = None


class ResourceClaimSpec(Struct, frozen=True):
    devices: DeviceClaim = DeviceClaim()


class AllocatedDevice(Struct, frozen=True):
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    consumed_capacity: dict[str, Any] | None = None


class AllocatedDevices(Struct, frozen=True):
    results: tuple[AllocatedDevice, ...] | None = None


class DeviceAllocation(Struct, frozen=True):
    devices: AllocatedDevices = AllocatedDevices()
    node_selector: NodeSelector | None = None


class ClaimConsumer(Struct, frozen=True):
    resource: str = ""
    name: str = ""
    uid: str = ""


class ResourceClaimStatus(Struct, frozen=True):
    allocation: DeviceAllocation | None = None
    reserved_for: tuple[ClaimConsumer, ...] | None = None


class ResourceClaim(Struct, frozen=True):
    metadata: Meta
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class ResourceClaimTemplateSpec(Struct, frozen=True):
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(Struct, frozen=True):
    metadata: Meta
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()


class DeviceTaint(Struct, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class CounterValue(Struct, frozen=True):
    value: Any = "0"


class CounterSet(Struct, frozen=True):
    """What the partitions of a device share, such as its memory slices."""

    name: str = ""
    counters: dict[str, CounterValue] | None = None


class ConsumedCounters(Struct, frozen=True):
    counter_set: str = ""
    counters: dict[str, CounterValue] | None = None


class Device(Struct, frozen=True):
    name: str = ""
    attributes: dict[str, Any] | None = None
    capacity: dict[str, Any] | None = None
    taints: tuple[DeviceTaint, ...] | None = None
    consumes_counters: tuple[ConsumedCounters, ...] | None = None
    allow_multiple_allocations: bool | None = None


class DevicePool(Struct, frozen=True):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class ResourceSliceSpec(Struct, frozen=True):
    driver: str = ""
    pool: DevicePool = DevicePool()
    node_name: str = ""
    devices: tuple[Device, ...] | None = None
    shared_counters: tuple[CounterSet, ...] | None = None


class ResourceSlice(Struct, frozen=True):
    metadata: Meta
    spec: ResourceSliceSpec = ResourceSliceSpec()
