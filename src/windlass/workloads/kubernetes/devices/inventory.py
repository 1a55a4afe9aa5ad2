"""This module reads the devices of each node from its ResourceSlices, and which of them are allocated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Final

from windlass.kubernetes_api.device_objects import AllocatedDevice, DeviceAllocation, ResourceClaim, ResourceSlice
from windlass.kubernetes_api.names import NODE_NAME
from windlass.kubernetes_api.objects import DeviceTemplate
from windlass.workloads.kubernetes.translate.quantities import number

from .expressions import DeviceFacts, facts
from .partitions import Counter, consumed, suffice
from .shares import qualified, shares_without

DeviceId = tuple[str, str, str]
"""Driver, pool and name."""


@dataclass(frozen=True)
class NodeDevices:
    """The devices of one node."""

    devices: Mapping[DeviceId, DeviceFacts] = field(default_factory=dict)
    allocated: frozenset[DeviceId] = frozenset()
    taken: Mapping[DeviceId, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """The capacity of shared devices that claims have taken."""
    counters: Mapping[Counter, Decimal] = field(default_factory=dict)
    """What is left of the counters that partitions consume."""
    whole_counters: Mapping[Counter, Decimal] = field(default_factory=dict)
    """The counters without any allocation."""
    incomplete: str = ""
    """A pool that lacks ResourceSlices, as text; empty if all pools are complete."""

    @property
    def free(self) -> list[DeviceFacts]:
        """The unallocated devices, and those that can be shared, with the capacity that is left."""
        return [
            replace(one, shares=shares_without(one.shares, self.taken.get(key, ()))) if one.multiple else one
            for key, one in self.devices.items()
            if (one.multiple or key not in self.allocated) and suffice(self.counters, one.counters)
        ]

    def count(self, driver: str) -> int:
        return sum(key[0] == driver for key in self.devices)


NO_DEVICES: Final = NodeDevices()


def template_devices(templates: Iterable[DeviceTemplate] | None) -> list[DeviceFacts]:
    """Return the devices that a new node of a provisioner will have, partitions included."""
    found = []
    for place, one in enumerate(templates or ()):
        multiple = bool(one.allow_multiple_allocations)
        for number_ in range(max(0, one.count)):
            whole = tuple(_template_counters(place, number_, one.driver, one.counters))
            found.append(facts(one.driver, one.attributes, one.capacity, multiple=multiple, counters=whole))
            for part in one.partitions or ():
                consumed_ = tuple(_template_counters(place, number_, one.driver, part.counters))
                device = facts(one.driver, part.attributes, part.capacity, counters=consumed_)
                found += [device] * max(0, part.count)
    return found


def device_count(template: DeviceTemplate) -> int:
    """Return how many devices an entry of a template stands for, partitions included."""
    return template.count * (1 + sum(one.count for one in template.partitions or ()))


def template_counters(templates: Iterable[DeviceTemplate] | None) -> dict[Counter, Decimal]:
    """Return the counters of a new node's devices."""
    return {
        counter: amount
        for place, one in enumerate(templates or ())
        for number_ in range(max(0, one.count))
        for counter, amount in _template_counters(place, number_, one.driver, one.counters)
    }


def _template_counters(
    place: int, device: int, driver: str, counters: Mapping[str, object] | None
) -> Iterable[tuple[Counter, Decimal]]:
    for name, amount in sorted((counters or {}).items()):
        yield (driver, "", f"{place}-{device}", name), number(str(amount))


def node_of(allocation: DeviceAllocation) -> str:
    """Return the node that an allocation is bound to; empty if its devices are not of one node."""
    selector = allocation.node_selector
    for term in (selector.node_selector_terms or ()) if selector is not None else ():
        for one in term.match_fields or ():
            if one.key == NODE_NAME and one.operator == "In" and len(one.values or ()) == 1:
                return (one.values or ("",))[0]
    return ""


def _consumed(result: AllocatedDevice) -> Iterable[tuple[str, object]]:
    return (result.consumed_capacity or {}).items()


def facts_of(item: ResourceSlice) -> dict[DeviceId, DeviceFacts]:
    """Return the devices of one ResourceSlice."""
    spec = item.spec
    pool = (spec.driver, spec.pool.name)
    return {
        (spec.driver, spec.pool.name, one.name): facts(
            spec.driver,
            one.attributes,
            one.capacity,
            [(taint.key, taint.value, taint.effect) for taint in one.taints or ()],
            multiple=bool(one.allow_multiple_allocations),
            counters=tuple(
                ((*pool, given.counter_set, name), number(str(amount.value)))
                for given in one.consumes_counters or ()
                for name, amount in (given.counters or {}).items()
            ),
        )
        for one in spec.devices or ()
    }


class Inventory:
    """All devices of one observation."""

    def __init__(self, slices: Mapping[str, SliceFacts], claims: Iterable[ResourceClaim]) -> None:
        newest: dict[tuple[str, str], int] = {}
        for one in slices.values():
            pool = (one.driver, one.pool)
            newest[pool] = max(newest.get(pool, 0), one.generation)
        seen: dict[tuple[str, str], int] = {}
        wanted: dict[tuple[str, str], tuple[int, str]] = {}
        devices: dict[str, dict[DeviceId, DeviceFacts]] = {}
        counters: dict[str, dict[Counter, Decimal]] = {}
        self.elsewhere: dict[DeviceId, DeviceFacts] = {}
        """Devices that do not belong to one node."""
        for one in slices.values():
            pool = (one.driver, one.pool)
            if one.generation < newest[pool]:
                continue
            seen[pool] = seen.get(pool, 0) + 1
            wanted[pool] = (one.slices, one.node)
            (devices.setdefault(one.node, {}) if one.node else self.elsewhere).update(one.devices)
            counters.setdefault(one.node, {}).update(one.counters)
        missing = {
            node: f"has {seen[pool]} of {count} ResourceSlices of the pool {pool[1]}"
            for pool, (count, node) in wanted.items()
            if node and seen[pool] < count
        }
        allocated: dict[str, set[DeviceId]] = {}
        taken: dict[str, dict[DeviceId, list[tuple[str, str]]]] = {}
        self.claims: dict[str, list[ResourceClaim]] = {}
        """Allocated claims by the node of their devices; those with admin access take nothing."""
        home = {key: node for node, here in devices.items() for key in here}
        for claim in claims:
            if (allocation := claim.status.allocation) is None:
                continue
            bound = node_of(allocation)
            for result in allocation.devices.results or ():
                key = (result.driver, result.pool, result.device)
                node = home.get(key) or bound
                if not node or result.admin_access:
                    continue
                allocated.setdefault(node, set()).add(key)
                parts = [(qualified(result.driver, name), str(one)) for name, one in _consumed(result)]
                taken.setdefault(node, {}).setdefault(key, []).extend(parts)
                here = self.claims.setdefault(node, [])
                if not here or here[-1] is not claim:
                    here.append(claim)
        self.nodes: dict[str, NodeDevices] = {
            node: NodeDevices(
                devices.get(node, {}),
                frozenset(allocated.get(node, ())),
                {key: tuple(parts) for key, parts in taken.get(node, {}).items()},
                consumed(
                    counters.get(node, {}),
                    (one for key, one in devices.get(node, {}).items() if key in allocated.get(node, ())),
                ),
                counters.get(node, {}),
                missing.get(node, ""),
            )
            for node in {*devices, *allocated}
        }

    def of(self, node: str) -> NodeDevices:
        return self.nodes.get(node, NO_DEVICES)


@dataclass(frozen=True)
class SliceFacts:
    """The mirrored fields of a ResourceSlice."""

    driver: str
    pool: str
    generation: int
    slices: int
    node: str
    devices: Mapping[DeviceId, DeviceFacts]
    counters: Mapping[Counter, Decimal] = field(default_factory=dict)


def slice_facts(item: ResourceSlice) -> SliceFacts:
    spec = item.spec
    return SliceFacts(
        spec.driver,
        spec.pool.name,
        spec.pool.generation,
        spec.pool.resource_slice_count,
        spec.node_name,
        facts_of(item),
        {
            (spec.driver, spec.pool.name, one.name, name): number(str(amount.value))
            for one in spec.shared_counters or ()
            for name, amount in (one.counters or {}).items()
        },
    )
