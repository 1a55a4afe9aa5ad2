"""The devices that a pod asks for: by claims, by claim templates, and by extended resources that a class backs."""

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
"""The extended resource that every class has without saying so."""


@dataclass(frozen=True)
class DeviceKind:
    """Devices that one query selects."""

    name: str
    """For people."""
    expressions: tuple[str, ...] = ()
    tolerations: tuple[tuple[str, str, str, str], ...] = ()
    """Key, operator, value, effect."""
    extended: str = ""
    """The extended resource by which it is asked for; empty: by a claim."""
    capacity: CapacityRequests = ()
    """What each claim needs of a device's capacity: the rest of a device that can be shared is left to others."""
    is_admin: bool = False
    """Whether it is for an administrator, who takes no device from others."""

    def selects(self, device: DeviceFacts, expressions: Expressions) -> bool:
        """Whether a claim for this kind may get the device; ``NotUnderstood`` if that cannot be said."""
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
    """Devices of some requests that must have the same value of each of some attributes."""

    attributes: tuple[str, ...]
    parts: tuple[tuple[DeviceKind, int], ...]

    @property
    def name(self) -> str:
        """For people."""
        devices = " and ".join(f"{count} {kind.name}" for kind, count in self.parts)
        return f"{devices} with the same {' and '.join(self.attributes)}"


DeviceCounts = tuple[tuple[DeviceKind | AlikeDevices, int], ...]


def kinds_in(counts: DeviceCounts) -> Iterator[DeviceKind]:
    """All kinds of devices that are asked for."""
    for one, _ in counts:
        yield from (kind for kind, _ in one.parts) if isinstance(one, AlikeDevices) else (one,)


@dataclass(frozen=True)
class PodDevices:
    """What a pod asks for."""

    options: tuple[DeviceCounts, ...]
    """Alternatives, the preferred first; every one has all requests of the pod."""
    where: tuple[Condition, ...] = ()
    """Nodes to which an allocated claim binds it."""
    shared: tuple[str, ...] = ()
    """Claims by name that have no devices yet: pods that share one must run on one node."""


def _summed(parts: Iterable[tuple[DeviceKind, int]]) -> tuple[tuple[DeviceKind, int], ...]:
    found: dict[DeviceKind, int] = {}
    for kind, count in parts:
        found[kind] = found.get(kind, 0) + count
    return tuple(found.items())


class ClaimReader:
    """Reads the claims of pods, with the objects of one look at the cluster."""

    def __init__(
        self,
        classes: Mapping[str, DeviceClass],
        claims: Mapping[str, ResourceClaim],
        templates: Mapping[str, ResourceClaimTemplate],
    ) -> None:
        self._classes, self._claims, self._templates = classes, claims, templates
        self.extended: dict[str, str] = {}
        """Extended resources and the class that backs each; of several the newest."""
        newest = sorted(classes.items(), key=lambda item: (item[1].metadata.creation_timestamp or "", item[0]))
        for name, one in newest:
            self.extended[f"{IMPLICIT}{name}"] = name
            if one.spec.extended_resource_name:
                self.extended[one.spec.extended_resource_name] = name

    def devices(self, pod: MirroredPod) -> PodDevices | None:
        """The devices that a pod asks for; None: none. ``NotUnderstood`` if it asks for what is not planned for."""
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
        """The extended resources among a pod's needs that a class backs."""
        return tuple(
            (self.extended_kind(name), amount // 1000)
            for name, amount in needs
            if "/" in name and name in self.extended
        )

    def extended_kind(self, resource: str) -> DeviceKind:
        backing = self.extended[resource]
        return DeviceKind(resource, self._expressions(self._classes[backing].spec.selectors), extended=resource)

    def _requests(self, spec: ResourceClaimSpec) -> list[list[DeviceCounts]]:
        """The alternatives of each request of a claim; those of requests with constraints between them as one."""
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
        """One alternative of every request, with what their devices must have in common."""
        bound: dict[str, list[str]] = {}
        parts = {full: (name, counts) for name, full, counts in chosen}
        for one in constraints:
            if not one.match_attribute:
                raise NotUnderstood("its claim has a constraint other than matchAttribute, which is not planned for")
            for full, (name, _) in parts.items():
                if not one.requests or name in one.requests or full in one.requests:
                    bound.setdefault(full, []).append(one.match_attribute)
        groups: dict[tuple[str, ...], list[tuple[DeviceKind, int]]] = {}
        for full, names in bound.items():
            groups.setdefault(tuple(sorted(set(names))), []).append(parts[full][1])
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
                raise NotUnderstood("a device selector that is no CEL expression is not known")
            found.append(one.cel.expression)
        return tuple(found)
