"""This module translates waiting pods into demand: equal pods of one owner are one demand with a count, a gang is
one demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2s
from typing import Any, Final, Protocol

from windlass.core.model.conditions import Condition
from windlass.core.model.snapshot import Amounts, Bundle, Demand, Gang, amounts

from .conditions import NeverMatches, alternatives_of, preferences_of, tolerations_of
from .constraints import NO_RULES, PodRules
from .pods import MirroredPod, PodShape


class AskedDevices(Protocol):
    """The device requests of a pod."""

    @property
    def shared(self) -> tuple[str, ...]:
        """Names of claims that are not allocated yet."""
        ...


class DeviceNeeds(Protocol):
    """Translates the claims of pods into needs."""

    def of(self, pod: MirroredPod) -> AskedDevices | None:
        """Return the device requests of a pod, if it has any; ``NeverMatches`` if they cannot be planned for."""
        ...

    def needs(self, demand: str, asked: Any) -> tuple[dict[str, int], tuple[Condition, ...]]:
        """Return what one pod of a demand needs of devices, and where."""
        ...


@dataclass(frozen=True, slots=True)
class Extra:
    """The needs of one demand's pods besides their resources."""

    demand: str = ""
    devices: DeviceNeeds | None = None

    def of(self, pod: MirroredPod) -> tuple[Amounts, tuple[Condition, ...]]:
        asked = self.devices.of(pod) if self.devices is not None else None
        if asked is None or self.devices is None:
            return pod.shape.needs, ()
        more, where = self.devices.needs(self.demand, asked)
        return amounts({**dict(pod.shape.needs), **more}), where


NO_EXTRA: Final = Extra()


@dataclass(frozen=True, slots=True)
class WaitingPods:
    """The demands, and the pods of each."""

    demands: tuple[Demand, ...]
    pods: Mapping[str, tuple[MirroredPod, ...]]
    """Pods by the demand's id."""
    not_understood: Mapping[str, str]
    """Pods that no plan can be made for, by key, and why."""


def demand_id(pod: MirroredPod) -> str:
    """Return the id of the demand that a pod belongs to; it depends on the pod alone."""
    if pod.gang:
        return f"{pod.namespace}/PodGroup/{pod.gang}"
    if not pod.owner:
        return f"{pod.namespace}/{pod.name}"
    if pod.owner.startswith("ProvisioningRequest/"):
        return f"{pod.namespace}/{pod.owner}"
    return f"{pod.namespace}/{pod.owner}#{_mark(pod.shape)}"


def _mark(shape: PodShape) -> str:
    """Return a short hash of a shape."""
    text = repr(
        (
            shape.needs,
            shape.selector,
            shape.affinity,
            shape.tolerations,
            shape.attracted,
            shape.repelled,
            shape.spread,
            shape.ports,
            shape.priority,
            shape.claims,
        )
    )
    return blake2s(text.encode(), digest_size=3).hexdigest()


class DemandMaker:
    """Makes demands from waiting pods, and caches the translation of each shape."""

    def __init__(self) -> None:
        self._marks: dict[int, tuple[PodShape, str]] = {}
        self._waits: frozenset[str] = frozenset()
        """Demands that found no place in the last plan."""
        self._split: set[str] = set()
        """Gangs that found no place as a whole, and have more pods than must start together."""

    def waiting(
        self,
        pods: Iterable[MirroredPod],
        gang_size: Callable[[MirroredPod], int | None],
        members_running: Callable[[MirroredPod], int] = lambda _: 0,
        rules: Callable[[MirroredPod], PodRules] = lambda _: NO_RULES,
        devices: DeviceNeeds | None = None,
    ) -> WaitingPods:
        """Return all waiting pods as demand. ``gang_size``: how many pods of its gang must start together, if any.
        ``members_running``: how many of its gang run already. ``devices``: what pods need of devices.
        """
        kinds: dict[str, list[MirroredPod]] = {}
        demands: list[Demand] = []
        behind: dict[str, tuple[MirroredPod, ...]] = {}
        wrong: dict[str, str] = {}
        shared: dict[str, tuple[str, ...]] = {}
        held: dict[str, list[MirroredPod]] = {}
        for pod in pods:
            name = self._id(pod)
            if devices is not None:
                try:
                    asked = devices.of(pod)
                except NeverMatches as error:
                    wrong[pod.key] = str(error)
                    held.setdefault(name, []).append(pod)
                    continue
                if asked is not None and asked.shared:
                    name = f"{pod.namespace}/ResourceClaim/{asked.shared[0].partition('/')[2]}"
                    shared[name] = asked.shared
            kinds.setdefault(name, []).append(pod)
        for name, members in sorted(kinds.items()):
            members.sort(key=lambda one: one.key)
            size = gang_size(members[0])
            left = None if size is None else size - members_running(members[0])
            for part, some, is_gang in self._parts(name, members, left):
                try:
                    if is_gang and len(some) < (left or 0):
                        raise NeverMatches(f"gang of {size}: only {len(some)} of its pods exist")
                    demands.append(self._demand(part, some, is_gang, rules, devices, name in shared))
                    behind[part] = tuple(some)
                except NeverMatches as error:
                    wrong |= {pod.key: str(error) for pod in some}
                    held.setdefault(part, []).extend(some)
        self._split &= kinds.keys()
        taken = {one.id for one in demands}
        demands += [self._held(name, pods, wrong) for name, pods in sorted(held.items()) if name not in taken]
        return WaitingPods(tuple(demands), behind, wrong)

    def _held(self, name: str, members: Sequence[MirroredPod], wrong: Mapping[str, str]) -> Demand:
        """Return the demand of pods that cannot be planned for: they wait with the reason, and are not placed."""
        return Demand(
            id=name,
            bundles=(Bundle(members[0].shape.needs, len(members)),),
            priority=members[0].shape.priority,
            since=min(one.since_waiting or one.since for one in members),
            held=wrong[members[0].key],
            not_understood=True,
        )

    def on_plan(self, waiting: Iterable[str]) -> None:
        """Learn which demands found no place in the last plan."""
        self._waits = frozenset(waiting)

    def _parts(
        self, name: str, members: Sequence[MirroredPod], left: int | None
    ) -> list[tuple[str, Sequence[MirroredPod], bool]]:
        """The demands of one owner's pods, each with its id and whether it is a gang. ``left``: how many pods of a gang
        still have to start together; None: they are no gang.

        A gang with more pods is first planned for as a whole. If there is no place for the whole, only as many as must
        start together are a gang from then on, and the others are single pods, once the gang has its place.
        """
        if left is None:
            return [(name, members, False)]
        if name in self._waits and 0 < left < len(members):
            self._split.add(name)
        if left > 0 and name not in self._split:
            return [(name, members, True)]
        found: list[tuple[str, Sequence[MirroredPod], bool]] = [(name, members[:left], True)] if left > 0 else []
        if found and name in self._waits:
            return found
        kinds: dict[int, list[MirroredPod]] = {}
        for one in members[max(0, left) :]:
            kinds.setdefault(id(one.shape), []).append(one)
        for some in kinds.values():
            found.append((f"{name}#{self._mark_of(some[0].shape)}" if found else name, some, False))
        return found

    def _demand(
        self,
        name: str,
        members: Sequence[MirroredPod],
        is_gang: bool,
        rules: Callable[[MirroredPod], PodRules],
        devices: DeviceNeeds | None,
        shares_claim: bool,
    ) -> Demand:
        extra = Extra(name, devices)
        if shares_claim and len(members) > 1:
            if is_gang:
                raise NeverMatches("pods of a gang share a ResourceClaim, which is not planned for")
            return self._sharing(name, members, rules, extra)
        if is_gang:
            return self._gang(name, members, rules, extra)
        return self._single(name, members, rules(members[0]), extra)

    def _sharing(
        self, name: str, members: Sequence[MirroredPod], rules: Callable[[MirroredPod], PodRules], extra: Extra
    ) -> Demand:
        """Return the demand of pods that share an unallocated claim: they run on one node, and need its devices
        once.
        """
        if len({one.shape.claims for one in members}) > 1:
            raise NeverMatches("pods share some of several ResourceClaims, which is not planned for")
        first, others = members[0], members[1:]
        kinds: dict[int, list[MirroredPod]] = {}
        for one in others:
            kinds.setdefault(id(one.shape), []).append(one)
        bundles = [self._bundle([first], rules(first), extra)]
        bundles += [self._bundle(group, rules(group[0]), NO_EXTRA) for group in kinds.values()]
        return Demand(
            id=name,
            bundles=tuple(bundles),
            gang=Gang.SAME_NODE,
            priority=max(one.shape.priority for one in members),
            since=min(one.since_waiting or one.since for one in members),
        )

    def _id(self, pod: MirroredPod) -> str:
        if pod.gang or not pod.owner or pod.owner.startswith("ProvisioningRequest/"):
            return demand_id(pod)
        return f"{pod.namespace}/{pod.owner}#{self._mark_of(pod.shape)}"

    def _mark_of(self, shape: PodShape) -> str:
        known = self._marks.get(id(shape))
        if known is None or known[0] is not shape:
            if len(self._marks) > 10_000:
                self._marks.clear()
            known = self._marks[id(shape)] = (shape, _mark(shape))
        return known[1]

    def _single(self, name: str, members: Sequence[MirroredPod], rules: PodRules, extra: Extra) -> Demand:
        shape = members[0].shape
        where, any_of = self._where(shape)
        needs, nodes = extra.of(members[0])
        return Demand(
            id=name,
            bundles=(Bundle(needs, len(members)),),
            where=(*where, *rules.where, *nodes),
            any_of=any_of,
            prefer=preferences_of(shape.preferred),
            tolerates=tolerations_of(shape.tolerations),
            priority=shape.priority,
            since=min(one.since_waiting or one.since for one in members),
            classes=rules.classes,
            apart=rules.apart,
            spread=rules.spread,
            together=rules.together,
        )

    def _gang(
        self,
        name: str,
        members: Sequence[MirroredPod],
        rules: Callable[[MirroredPod], PodRules],
        extra: Extra,
    ) -> Demand:
        """Return the demand of the pods of a gang that must start together."""
        kinds: dict[int, list[MirroredPod]] = {}
        for one in members:
            kinds.setdefault(id(one.shape), []).append(one)
        bundles = [self._bundle(group, rules(group[0]), extra) for group in kinds.values()]
        return Demand(
            id=name,
            bundles=tuple(bundles),
            gang=Gang.ANY,
            priority=max(one.shape.priority for one in members),
            since=min(one.since_waiting or one.since for one in members),
        )

    def _bundle(self, members: Sequence[MirroredPod], rules: PodRules, extra: Extra) -> Bundle:
        """Return a bundle of equal members of a gang, with their own conditions."""
        shape = members[0].shape
        where, any_of = self._where(shape)
        needs, nodes = extra.of(members[0])
        return Bundle(
            needs,
            len(members),
            where=(*where, *rules.where, *nodes),
            any_of=any_of,
            prefer=preferences_of(shape.preferred),
            tolerates=tolerations_of(shape.tolerations),
            classes=rules.classes,
            apart=rules.apart,
            spread=rules.spread,
            together=rules.together,
        )

    def _where(self, shape: PodShape) -> tuple[tuple[Condition, ...], tuple[tuple[Condition, ...], ...]]:
        """Return the conditions that a node must meet, and the alternatives of which it must meet one."""
        found = [Condition(key, "==", (value,)) for key, value in shape.selector]
        terms = alternatives_of(shape.affinity)
        if len(terms) == 1:
            found += terms[0]
        return tuple(dict.fromkeys(found)), terms if len(terms) > 1 else ()
