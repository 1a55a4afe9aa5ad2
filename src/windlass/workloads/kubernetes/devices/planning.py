"""This module computes the planner's device resources: the offers of groups, the use of nodes, the needs of pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from windlass.core.model.conditions import Condition
from windlass.kubernetes_api.device_objects import DeviceClass, ResourceClaim, ResourceClaimTemplate
from windlass.kubernetes_api.names import PROVISIONER
from windlass.kubernetes_api.objects import NodeProvisioner
from windlass.workloads.kubernetes.translate.nodes import MirroredNode
from windlass.workloads.kubernetes.translate.pods import MirroredPod
from windlass.workloads.kubernetes.translate.provisioners import DEVICES
from windlass.workloads.kubernetes.translate.quantities import core_name, parsed

from .columns import DeviceColumns, fits, stand_ins
from .expressions import DeviceFacts, Expressions, NotUnderstood
from .inventory import Inventory, SliceFacts, device_count, template_counters, template_devices
from .pooled_amounts import UNKNOWN, Pools, capacity_by_pool, counters_by_pool
from .queries import ALL, AlikeDevices, ClaimReader, DeviceCounts, DeviceKind, PodDevices, kinds_in

LACKING: Final = "has {has} of {count} devices of {driver} in its ResourceSlices"


class DeviceObjects(Protocol):
    """The mirrored objects that describe devices."""

    @property
    def device_version(self) -> int:
        """A version that changes when one of the objects does."""
        ...

    @property
    def slice_store(self) -> Mapping[str, SliceFacts]: ...

    @property
    def resource_claim_store(self) -> Mapping[str, ResourceClaim]: ...

    @property
    def claim_template_store(self) -> Mapping[str, ResourceClaimTemplate]: ...

    @property
    def device_class_store(self) -> Mapping[str, DeviceClass]: ...


class DevicePlanning:
    """Holds the device resources of the last observation."""

    def __init__(self, objects: DeviceObjects, counts: Callable[[str], bool | None]) -> None:
        """``counts``: whether the pod of that key makes its node used; None: it is not known."""
        self._objects, self._counts = objects, counts
        self._expressions = Expressions()
        self._seen: Any = None
        self.inventory = Inventory({}, ())
        self.reader = ClaimReader({}, {}, {})
        self.columns = DeviceColumns(self._expressions)
        self._rooms: dict[str, dict[str, int]] = {}
        self._devices: dict[str, list[DeviceFacts]] = {}
        self._option: dict[str, int] = {}
        """Which alternative of its claims each demand is planned with."""
        self._options: dict[str, int] = {}
        self._weights: dict[str, int] = {}
        self._unknown_nodes: set[str] = set()
        """Nodes with ResourceSlices that were not in the mirror yet."""

    def observe(
        self,
        waiting: Iterable[MirroredPod],
        provisioners: Mapping[str, NodeProvisioner],
        nodes: Mapping[str, MirroredNode],
    ) -> None:
        """Read the devices of the cluster again."""
        objects = self._objects
        kept = {name: one for name, one in provisioners.items() if one.spec.template.devices}
        asking = [pod for pod in waiting if pod.shape.claims or any("/" in name for name, _ in pod.shape.needs)]
        if not kept and not objects.slice_store and not objects.device_class_store and not asking:
            return
        key = (
            objects.device_version,
            tuple((name, one.metadata.uid, one.metadata.generation) for name, one in sorted(provisioners.items())),
            frozenset((id(pod.shape), pod.namespace) for pod in asking),
        )
        if key == self._seen and self._unknown_nodes.isdisjoint(nodes):
            return
        self._seen = key
        self.inventory = Inventory(objects.slice_store, objects.resource_claim_store.values())
        self.reader = ClaimReader(
            objects.device_class_store, objects.resource_claim_store, objects.claim_template_store
        )
        self._devices = {name: self._promised(one) for name, one in sorted(provisioners.items())}
        self._weights = {name: one.spec.weight for name, one in provisioners.items()}
        kinds, alike = self._kinds(asking, provisioners.values())
        promised = [one for here in self._devices.values() for one in here]
        plugins = [one for resource in self.reader.extended for one in stand_ins(resource, 1)]
        self.columns = DeviceColumns.of(
            kinds,
            [*promised, *plugins, *(one for here in self.inventory.nodes.values() for one in here.devices.values())],
            self.inventory.elsewhere.values(),
            self._expressions,
            alike,
        )
        self._unknown_nodes = {name for name in self.inventory.nodes if name and name not in nodes}
        counters = self._whole_counters(nodes) if self.columns.pooled.names else {}
        self._rooms = {name: self._room(one, counters.get(name, {})) for name, one in provisioners.items()}

    def _whole_counters(self, nodes: Mapping[str, MirroredNode]) -> dict[str, Pools]:
        """Return the counters of the nodes of each provisioner: of every amount the largest that one node has."""
        found: dict[str, Pools] = {}
        for name, here in self.inventory.nodes.items():
            node = nodes.get(name)
            if node is None or not here.whole_counters:
                continue
            known = found.setdefault(node.provisioner, {})
            for key, amount in counters_by_pool(here.whole_counters.items()).items():
                known[key] = max(amount, known.get(key, amount))
        return found

    def _promised(self, provisioner: NodeProvisioner) -> list[DeviceFacts]:
        template = provisioner.spec.template
        found = template_devices(template.devices)
        offered = parsed(template.resources)
        for resource in self.reader.extended:
            found += stand_ins(resource, offered.get(core_name(resource), 0) // 1000)
        return found

    def _kinds(
        self, asking: Sequence[MirroredPod], provisioners: Iterable[NodeProvisioner]
    ) -> tuple[set[DeviceKind], set[AlikeDevices]]:
        """Return the kinds of devices that pods request, and the sets of devices with constraints between them."""
        found: set[DeviceKind] = set()
        alike: set[AlikeDevices] = set()
        for pod in asking:
            try:
                asked = self.reader.devices(pod)
            except NotUnderstood:
                continue  # the error is reported when the pod's demand is made
            for option in asked.options if asked is not None else ():
                found |= set(kinds_in(option))
                alike |= {one for one, _ in option if isinstance(one, AlikeDevices)}
        for one in provisioners:
            if one.spec.gpu_resource in self.reader.extended and one.spec.template.devices:
                try:
                    found.add(self.reader.extended_kind(one.spec.gpu_resource))
                except NotUnderstood:
                    continue
        return found, alike

    def _room(self, provisioner: NodeProvisioner, counters: Pools) -> dict[str, int]:
        """Return what one node of a provisioner offers besides the resources of its template. ``counters``: what its
        nodes have.
        """
        name, template = provisioner.metadata.name, provisioner.spec.template
        promised = template_counters(template.devices)
        room = self.columns.room(self._devices[name], promised)
        if room:
            known = {**counters, **counters_by_pool(promised.items())}
            known |= capacity_by_pool(self._devices[name], "total")
            pooled = self.columns.pooled
            room |= dict.fromkeys(pooled.names.values(), UNKNOWN) | pooled.amounts(known)
        if own := sum(device_count(one) for one in template.devices or ()):
            room[DEVICES] = 1000 * own
        offered = parsed(template.resources)
        for resource in self.reader.extended:
            if core_name(resource) not in offered and (count := self._backed(resource, self._devices[name])):
                room[core_name(resource)] = 1000 * count
        return room

    def _backed(self, resource: str, devices: Iterable[DeviceFacts]) -> int:
        try:
            return self.columns.count(self.reader.extended_kind(resource), devices)
        except NotUnderstood:
            return 0

    # -- groups and nodes ----------------------------------------------------------------------------------------------

    def room(self, provisioner: str) -> dict[str, int]:
        """Return the device resources that one node of a provisioner offers."""
        return self._rooms.get(provisioner, {})

    def used(self, node: MirroredNode, pods: Mapping[str, int]) -> dict[str, int]:
        """Return the device resources of a node that are in use. ``pods``: the other resources that its pods use."""
        room = self.room(node.provisioner)
        here = self.inventory.of(node.name)
        if not room and not here.devices:
            return {}
        free = here.free
        for resource in self.reader.extended:
            offered = node.allocatable.get(core_name(resource), 0) - pods.get(core_name(resource), 0)
            free += stand_ins(resource, offered // 1000)
        left = self.columns.room(free, here.counters)
        found = {name: max(0, total - left.get(name, 0)) for name, total in room.items() if name in self.columns.names}
        whole = {**counters_by_pool(here.whole_counters.items()), **capacity_by_pool(here.devices.values(), "total")}
        unused = {**counters_by_pool(here.counters.items()), **capacity_by_pool(free, "left")}
        found |= self.columns.pooled.amounts({key: amount - unused.get(key, 0) for key, amount in whole.items()})
        if here.allocated:
            found[DEVICES] = 1000 * len(here.allocated)
        for resource in self.reader.extended:
            name = core_name(resource)
            if name in room:
                left_over = 1000 * self._backed(resource, here.free)
                found[name] = max(pods.get(name, 0), room[name] - left_over)
        return {name: amount for name, amount in found.items() if amount}

    def reserved(self, node: str, pods: Iterable[MirroredPod] = ()) -> list[str]:
        """Return claims on a node's devices that are reserved for other consumers than ``pods``: the node is in use."""
        return reserved(self.inventory.claims.get(node, ()), {pod.uid for pod in pods}, self._counts)

    def lacks(self, node: MirroredNode, provisioner: NodeProvisioner | None) -> str:
        """Return the devices of its provisioner's template that a node's ResourceSlices lack, as text; empty if
        none.
        """
        promised = (provisioner.spec.template.devices or ()) if provisioner is not None else ()
        if not promised:
            return ""
        here = self.inventory.of(node.name)
        wanted: dict[str, int] = {}
        for one in promised:
            wanted[one.driver] = wanted.get(one.driver, 0) + device_count(one)
        for driver, count in wanted.items():
            if (has := here.count(driver)) < count:
                return LACKING.format(has=has, count=count, driver=driver)
        return here.incomplete

    # -- pods ----------------------------------------------------------------------------------------------------------

    def of(self, pod: MirroredPod) -> PodDevices | None:
        """Return the devices that a waiting pod asks for; ``NotUnderstood`` if they are not planned for."""
        return self.reader.devices(pod)

    def needs(self, demand: str, asked: PodDevices) -> tuple[dict[str, int], tuple[Condition, ...]]:
        """Return what one of a demand's pods needs of devices, and where: by the first alternative that some node or
        some provisioner has the devices for. An alternative that found no place in the last plan passes to the next.
        """
        if len(asked.options) > 1:
            self._options[demand] = len(asked.options)
        start = self._option.get(demand, 0) % len(asked.options)
        order = [*range(start, len(asked.options)), *range(start)]
        first_error: NotUnderstood | None = None
        fallback: tuple[dict[str, int], tuple[Condition, ...]] | None = None
        for number in order:
            try:
                found = self._counted(asked.options[number])
                needs = self.columns.needs(found[0])
                where = (*found[1], *self._seen_by_admins(found[0]))
            except NotUnderstood as error:
                first_error = first_error or error
                continue
            made = (needs, (*asked.where, *where))
            if any(fits(needs, room) for room in self._rooms.values()):
                self._option[demand] = number
                return made
            fallback = fallback or made
        if fallback is None:
            raise first_error or NotUnderstood("its claims have no requests")
        return fallback

    def _counted(self, option: DeviceCounts) -> tuple[DeviceCounts, tuple[Condition, ...]]:
        """Return an alternative with "all devices" as numbers: those of the first provisioner that has any."""
        kinds = [kind for kind, count in option if count == ALL and isinstance(kind, DeviceKind)]
        if not kinds:
            return option, ()
        for kind in kinds:
            if kind in self.columns.partitioned.values():
                raise NotUnderstood(f"all of {kind.name}, some of them partitions, which is not planned for")
        numbers = {
            name: tuple(self.columns.count(kind, devices) for kind in kinds) for name, devices in self._devices.items()
        }
        having = sorted((-self._weights.get(name, 0), name) for name, counts in numbers.items() if all(counts))
        chosen = numbers[having[0][1]] if having else (1,) * len(kinds)
        counts = iter(chosen)
        filled = tuple((kind, next(counts) if count == ALL else count) for kind, count in option)
        same = tuple(sorted(name for name, one in numbers.items() if one == chosen))
        return filled, (Condition(PROVISIONER, "in", same),) if same else ()

    def _seen_by_admins(self, counts: DeviceCounts) -> tuple[Condition, ...]:
        """Return conditions on the node of a pod with admin access: the node must have the devices, and none is
        taken.
        """
        found = []
        for kind, count in counts:
            if isinstance(kind, DeviceKind) and kind.is_admin:
                having = [name for name, here in self._devices.items() if self.columns.count(kind, here) >= count]
                if not having:
                    raise NotUnderstood(f"admin access to {count} {kind.name}: no provisioner has such devices")
                found.append(Condition(PROVISIONER, "in", tuple(sorted(having))))
        return tuple(found)

    def on_plan(self, waiting: Iterable[str]) -> None:
        """Plan a waiting demand with its next alternative in the next pass."""
        ids = set(waiting)
        for demand in [one for one in self._options if one in ids]:
            self._option[demand] = (self._option.get(demand, 0) + 1) % self._options[demand]

    def forget(self, demands: Iterable[str]) -> None:
        """Forget the alternatives of all demands except these."""
        kept = set(demands)
        self._option = {one: number for one, number in self._option.items() if one in kept}
        self._options = {one: number for one, number in self._options.items() if one in kept}


def reserved(claims: Iterable[ResourceClaim], pods: set[str], counts: Callable[[str], bool | None]) -> list[str]:
    """Return the claims with a consumer that is not among ``pods``; pods that do not count as use are ignored."""
    found = []
    for claim in claims:
        for one in claim.status.reserved_for or ():
            is_pod = one.resource == "pods"
            if one.uid in pods or (is_pod and counts(f"{claim.metadata.namespace}/{one.name}") is False):
                continue
            found.append(f"{claim.metadata.namespace}/{claim.metadata.name}")
            break
    return found
