"""The devices that a pod asks for: by claims, by claim templates, and by extended resources that a class backs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final

from windlass.core.model.conditions import Condition
from windlass.core.model.snapshot import Amounts
from windlass.kubernetes_api.device_objects import (
    DeviceClass,
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

    def selects(self, device: DeviceFacts, expressions: Expressions) -> bool:
        """Whether a claim for this kind may get the device; ``NotUnderstood`` if that cannot be said."""
        if not all(expressions.holds(one, device) for one in self.expressions):
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


DeviceCounts = tuple[tuple[DeviceKind, int], ...]


@dataclass(frozen=True)
class PodDevices:
    """What a pod asks for."""

    options: tuple[DeviceCounts, ...]
    """Alternatives, the preferred first; every one has all requests of the pod."""
    where: tuple[Condition, ...] = ()
    """Nodes to which an allocated claim binds it."""
    shared: tuple[str, ...] = ()
    """Claims by name that have no devices yet: pods that share one must run on one node."""


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

    def extended_counts(self, needs: Amounts) -> DeviceCounts:
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
        """The alternatives of each request of a claim."""
        if spec.devices.constraints:
            raise NotUnderstood("its claim has constraints between devices, which are not planned for")
        found = []
        for one in spec.devices.requests or ():
            queries = one.first_available or ((one.exactly,) if one.exactly is not None else ())
            if not queries:
                raise NotUnderstood(f"the request {one.name} has neither exactly nor firstAvailable")
            found.append([self._counts(query) for query in queries])
        return found

    def _counts(self, query: DeviceQuery) -> DeviceCounts:
        if query.admin_access:
            raise NotUnderstood("its claim asks for admin access, which is not planned for")
        if query.capacity:
            raise NotUnderstood("its claim asks for a share of a device's capacity, which is not planned for")
        known = self._classes.get(query.device_class_name)
        if known is None:
            raise NotUnderstood(f"the DeviceClass {query.device_class_name} does not exist")
        own = self._expressions(query.selectors)
        kind = DeviceKind(
            query.device_class_name + "".join(f" with {' '.join(one.split())[:60]}" for one in own),
            tuple(dict.fromkeys((*self._expressions(known.spec.selectors), *own))),
            tuple((one.key, one.operator, one.value, one.effect) for one in query.tolerations or ()),
        )
        if query.allocation_mode == "All":
            return ((kind, ALL),)
        if query.allocation_mode != "ExactCount":
            raise NotUnderstood(f"the allocation mode {query.allocation_mode!r} is not known")
        return ((kind, query.count or 1),)

    def _expressions(self, selectors: Iterable[DeviceSelector] | None) -> tuple[str, ...]:
        found = []
        for one in selectors or ():
            if one.cel is None:
                raise NotUnderstood("a device selector that is no CEL expression is not known")
            found.append(one.cel.expression)
        return tuple(found)
