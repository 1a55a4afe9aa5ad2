"""This module reads the devices that a pod requests: by claims, claim templates, and extended resources of a class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final

from windlass.core.model.conditions import Condition
from windlass.core.model.snapshot import Amounts
from windlass.kubernetes_api.device_objects import (
    DeviceClass,
    DeviceConstraint,
    DeviceQuery,
    DeviceSelector,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
)
from windlass.kubernetes_api.names import NODE_NAME
from windlass.workloads.kubernetes.translate.pods import MirroredPod

from .expressions import DeviceFacts, Expressions, NotUnderstood
from .inventory import node_of
from .shares import CapacityRequests, claims_served

ALL: Final = 0
"""The count of a request for all devices that match on a node."""
MOST_OPTIONS: Final = 32
IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
"""The prefix of the extended resource that every class has implicitly."""


@dataclass(frozen=True)
class DeviceKind:
    """Devices that one query selects."""

    name: str
    """For people."""
    expressions: tuple[str, ...] = ()
    tolerations: tuple[tuple[str, str, str, str], ...] = ()
    """Key, operator, value, effect."""
    extended: str = ""
    """The extended resource by which it is requested; empty if by a claim."""
    capacity: CapacityRequests = ()
    """The capacity that each claim needs of a device. Other claims may use the rest if the device can be shared."""
    is_admin: bool = False
    """Whether the request is for admin access, which takes no device from others."""

    def selects(self, device: DeviceFacts, expressions: Expressions) -> bool:
        """Whether a claim for this kind may get the device; ``NotUnderstood`` if that cannot be determined."""
        if not all(expressions.holds(one, device) for one in self.expressions):
            return False
        if self.capacity and not claims_served(device.driver, device.shares, self.capacity):
            return False
        return all(
            effect not in ("NoSchedule", "NoExecute")
            or any(_covers(one, key, value, effect) for one in self.tolerations)
            for key, value, effect in device.taints
        )


def _covers(toleration: tuple[str, str, str, str], key: str, value: str, effect: str) -> bool:
    wanted, operator, wanted_value, wanted_effect = toleration
    if (wanted and wanted != key) or (wanted_effect and wanted_effect != effect):
        return False
    return operator == "Exists" or wanted_value == value


@dataclass(frozen=True)
class AlikeDevices:
    """Devices of some requests that must have the same value of each of some attributes, or different values."""

    attributes: tuple[str, ...]
    parts: tuple[tuple[DeviceKind, int], ...]
    differ: bool = False
    """Whether all values of the one attribute must be different, for devices of one kind."""

    @property
    def name(self) -> str:
        """For people."""
        devices = " and ".join(f"{count} {kind.name}" for kind, count in self.parts)
        return f"{devices} with {'different' if self.differ else 'the same'} {' and '.join(self.attributes)}"


DeviceCounts = tuple[tuple[DeviceKind | AlikeDevices, int], ...]


def kinds_in(counts: DeviceCounts) -> Iterator[DeviceKind]:
    """Yield all kinds of devices in a request."""
    for one, _ in counts:
        yield from (kind for kind, _ in one.parts) if isinstance(one, AlikeDevices) else (one,)


@dataclass(frozen=True)
class PodDevices:
    """The devices that a pod requests."""

    options: tuple[DeviceCounts, ...]
    """Alternatives, the preferred first; every one has all requests of the pod."""
    where: tuple[Condition, ...] = ()
    """The node to which an allocated claim binds the pod."""
    shared: tuple[str, ...] = ()
    """Names of unallocated claims: pods that share one must run on the same node."""


def _summed(parts: Iterable[tuple[DeviceKind, int]]) -> tuple[tuple[DeviceKind, int], ...]:
    found: dict[DeviceKind, int] = {}
    for kind, count in parts:
        found[kind] = found.get(kind, 0) + count
    return tuple(found.items())


class ClaimReader:
    """Reads the claims of pods, with the objects of one observation."""

    def __init__(
        self,
        classes: Mapping[str, DeviceClass],
        claims: Mapping[str, ResourceClaim],
        templates: Mapping[str, ResourceClaimTemplate],
    ) -> None:
        self._classes, self._claims, self._templates = classes, claims, templates
        self.extended: dict[str, str] = {}
        """Extended resources and the class that backs each; the newest one if there are several."""
        newest = sorted(classes.items(), key=lambda item: (item[1].metadata.creation_timestamp or "", item[0]))
        for name, one in newest:
            self.extended[f"{IMPLICIT}{name}"] = name
            if one.spec.extended_resource_name:
                self.extended[one.spec.extended_resource_name] = name

    def devices(self, pod: MirroredPod) -> PodDevices | None:
        """Return the devices that a pod requests, or None; ``NotUnderstood`` if they cannot be planned for."""
        extended = self.extended_counts(pod.shape.needs)
        if not pod.shape.claims and not extended:
            return None
        requests: list[list[DeviceCounts]] = [[((kind, count),)] for kind, count in extended]
        where: list[Condition] = []
        shared: list[str] = []
        for reference in pod.shape.claims:
            if reference.resource_claim_template_name:
                key = f"{pod.namespace}/{reference.resource_claim_template_name}"
                template = self._templates.get(key)
                if template is None:
                    raise NotUnderstood(f"the ResourceClaimTemplate {key} does not exist")
                requests += self._requests(template.spec.spec)
                continue
            key = f"{pod.namespace}/{reference.resource_claim_name}"
            claim = self._claims.get(key)
            if claim is None:
                raise NotUnderstood(f"the ResourceClaim {key} does not exist")
            if claim.status.allocation is None:
                shared.append(key)
                requests += self._requests(claim.spec)
            elif node := node_of(claim.status.allocation):
                where.append(Condition(NODE_NAME, "==", (node,)))
        options = list(product(*requests))[: MOST_OPTIONS + 1]
        if len(options) > MOST_OPTIONS:
            raise NotUnderstood(f"its claims have more than {MOST_OPTIONS} combinations of alternatives")
        return PodDevices(
            tuple(tuple(one for part in option for one in part) for option in options), tuple(where), tuple(shared)
        )

    def extended_counts(self, needs: Amounts) -> tuple[tuple[DeviceKind, int], ...]:
        """Return the extended resources among a pod's needs that a class backs."""
        return tuple(
            (self.extended_kind(name), amount // 1000)
            for name, amount in needs
            if "/" in name and name in self.extended
        )

    def extended_kind(self, resource: str) -> DeviceKind:
        backing = self.extended[resource]
        return DeviceKind(resource, self._expressions(self._classes[backing].spec.selectors), extended=resource)

    def _requests(self, spec: ResourceClaimSpec) -> list[list[DeviceCounts]]:
        """Return the alternatives of each request of a claim; those of requests with constraints between them as
        one.
        """
        named: list[list[tuple[str, str, tuple[DeviceKind, int]]]] = []
        for one in spec.devices.requests or ():
            queries = one.first_available or ((one.exactly,) if one.exactly is not None else ())
            if not queries:
                raise NotUnderstood(f"the request {one.name} has neither exactly nor firstAvailable")
            named.append([(one.name, f"{one.name}/{query.name}", self._counts(query)) for query in queries])
        if not spec.devices.constraints:
            return [[(counts,) for _, _, counts in alternatives] for alternatives in named]
        return [[self._alike(chosen, spec.devices.constraints) for chosen in product(*named)]]

    def _alike(
        self, chosen: Iterable[tuple[str, str, tuple[DeviceKind, int]]], constraints: Iterable[DeviceConstraint]
    ) -> DeviceCounts:
        """Return one alternative of every request, with what their devices must have in common."""
        bound: dict[str, list[tuple[str, bool]]] = {}
        parts = {full: (name, counts) for name, full, counts in chosen}
        for one in constraints:
            attribute = one.match_attribute or one.distinct_attribute
            if not attribute:
                raise NotUnderstood("its claim has an unknown kind of constraint, which is not planned for")
            for full, (name, _) in parts.items():
                if not one.requests or name in one.requests or full in one.requests:
                    bound.setdefault(full, []).append((attribute, not one.match_attribute))
        groups: dict[tuple[str, ...], list[tuple[DeviceKind, int]]] = {}
        different: dict[str, list[tuple[DeviceKind, int]]] = {}
        for full, rules in bound.items():
            distinct = [name for name, differ in rules if differ]
            if not distinct:
                groups.setdefault(tuple(sorted({name for name, _ in rules})), []).append(parts[full][1])
            elif len(rules) > 1:
                raise NotUnderstood("its claim has distinctAttribute and another constraint, which is not planned for")
            else:
                different.setdefault(distinct[0], []).append(parts[full][1])
        for name, members in different.items():
            if len(_summed(members)) > 1:
                raise NotUnderstood(
                    f"its claim has distinctAttribute {name} for unequal requests, which is not planned for"
                )
            if any(count == ALL or kind.is_admin for kind, count in members):
                raise NotUnderstood("its claim wants all devices, or admin access, different, which is not planned for")
        seen: set[str] = set()
        for attributes, members in groups.items():
            if seen & set(attributes):
                raise NotUnderstood("its claim has constraints that overlap, which is not planned for")
            seen |= set(attributes)
            if any(count == ALL or kind.is_admin for kind, count in members):
                raise NotUnderstood("its claim wants all devices, or admin access, alike, which is not planned for")
        found: list[tuple[DeviceKind | AlikeDevices, int]] = [
            (AlikeDevices(attributes, _summed(members)), 1) for attributes, members in sorted(groups.items())
        ]
        found += [(AlikeDevices((name,), _summed(members), True), 1) for name, members in sorted(different.items())]
        return (*found, *(counts for full, (_, counts) in parts.items() if full not in bound))

    def _counts(self, query: DeviceQuery) -> tuple[DeviceKind, int]:
        known = self._classes.get(query.device_class_name)
        if known is None:
            raise NotUnderstood(f"the DeviceClass {query.device_class_name} does not exist")
        own = self._expressions(query.selectors)
        requests = (query.capacity.requests or {}) if query.capacity is not None else {}
        capacity = tuple(sorted((name, str(quantity)) for name, quantity in requests.items()))
        kind = DeviceKind(
            query.device_class_name
            + "".join(f" with {' '.join(one.split())[:60]}" for one in own)
            + "".join(f" with {quantity} {name}" for name, quantity in capacity),
            tuple(dict.fromkeys((*self._expressions(known.spec.selectors), *own))),
            tuple((one.key, one.operator, one.value, one.effect) for one in query.tolerations or ()),
            capacity=capacity,
            is_admin=bool(query.admin_access),
        )
        if query.allocation_mode == "All":
            return kind, ALL
        if query.allocation_mode != "ExactCount":
            raise NotUnderstood(f"the allocation mode {query.allocation_mode!r} is not known")
        return kind, query.count or 1

    def _expressions(self, selectors: Iterable[DeviceSelector] | None) -> tuple[str, ...]:
        found = []
        for one in selectors or ():
            if one.cel is None:
                raise NotUnderstood("a device selector that is not a CEL expression is not planned for")
            found.append(one.cel.expression)
        return tuple(found)
