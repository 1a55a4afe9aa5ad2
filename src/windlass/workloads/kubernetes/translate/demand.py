"""Waiting pods as demand: equal pods of one owner are one demand with a count, a gang is one demand as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2s

from windlass.core.model.conditions import Condition
from windlass.core.model.snapshot import Bundle, Demand, Gang

from .conditions import NeverMatches, alternatives_of, preferences_of, tolerations_of
from .constraints import NO_RULES, PodRules
from .pods import MirroredPod, PodShape


@dataclass(frozen=True, slots=True)
class WaitingPods:
    """Demand, and the pods behind each."""

    demands: tuple[Demand, ...]
    pods: Mapping[str, tuple[MirroredPod, ...]]
    """By the demand's id."""
    not_understood: Mapping[str, str]
    """Pods that no plan can be made for, by key, and why."""


def demand_id(pod: MirroredPod) -> str:
    """The id of the demand that a pod belongs to: it follows from the pod alone."""
    if pod.gang:
        return f"{pod.namespace}/PodGroup/{pod.gang}"
    if not pod.owner:
        return f"{pod.namespace}/{pod.name}"
    return f"{pod.namespace}/{pod.owner}#{_mark(pod.shape)}"


def _mark(shape: PodShape) -> str:
    """A few letters that differ where two shapes do."""
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
        )
    )
    return blake2s(text.encode(), digest_size=3).hexdigest()


class DemandMaker:
    """Makes demand from waiting pods, and remembers what follows from each shape."""

    def __init__(self) -> None:
        self._marks: dict[int, tuple[PodShape, str]] = {}

    def waiting(
        self,
        pods: Iterable[MirroredPod],
        gang_size: Callable[[MirroredPod], int | None],
        members_running: Callable[[MirroredPod], int] = lambda _: 0,
        rules: Callable[[MirroredPod], PodRules] = lambda _: NO_RULES,
    ) -> WaitingPods:
        """All waiting pods as demand. ``gang_size``: how many pods of its gang must start together, if any.
        ``members_running``: how many of its gang run already."""
        kinds: dict[str, list[MirroredPod]] = {}
        for pod in pods:
            kinds.setdefault(self._id(pod), []).append(pod)
        demands: list[Demand] = []
        behind: dict[str, tuple[MirroredPod, ...]] = {}
        wrong: dict[str, str] = {}
        for name, members in sorted(kinds.items()):
            members.sort(key=lambda one: one.key)
            try:
                if members[0].shape.claims:
                    raise NeverMatches("it has ResourceClaims, and devices of claims are not planned for")
                size = gang_size(members[0])
                demands.append(
                    self._gang(name, members, size - members_running(members[0]), rules)
                    if size is not None
                    else self._single(name, members, rules(members[0]))
                )
                behind[name] = tuple(members)
            except NeverMatches as error:
                wrong |= {pod.key: str(error) for pod in members}
        return WaitingPods(tuple(demands), behind, wrong)

    def _id(self, pod: MirroredPod) -> str:
        if pod.gang or not pod.owner:
            return demand_id(pod)
        known = self._marks.get(id(pod.shape))
        if known is None or known[0] is not pod.shape:
            if len(self._marks) > 10_000:
                self._marks.clear()
            known = self._marks[id(pod.shape)] = (pod.shape, _mark(pod.shape))
        return f"{pod.namespace}/{pod.owner}#{known[1]}"

    def _single(self, name: str, members: Sequence[MirroredPod], rules: PodRules) -> Demand:
        shape = members[0].shape
        where, any_of = self._where(shape)
        return Demand(
            id=name,
            bundles=(Bundle(shape.needs, len(members)),),
            where=(*where, *rules.where),
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
        self, name: str, members: Sequence[MirroredPod], size: int, rules: Callable[[MirroredPod], PodRules]
    ) -> Demand:
        """A gang's members that still wait. With fewer pods than it needs it cannot start: it waits until all exist."""
        kinds: dict[int, list[MirroredPod]] = {}
        for one in members:
            kinds.setdefault(id(one.shape), []).append(one)
        bundles = [self._bundle(group, rules(group[0])) for group in kinds.values()]
        if len(members) < size:
            raise NeverMatches(f"gang of {size}: only {len(members)} of its pods exist")
        return Demand(
            id=name,
            bundles=tuple(bundles),
            gang=Gang.ANY,
            priority=max(one.shape.priority for one in members),
            since=min(one.since_waiting or one.since for one in members),
        )

    def _bundle(self, members: Sequence[MirroredPod], rules: PodRules) -> Bundle:
        """Equal members of a gang, with their own conditions."""
        shape = members[0].shape
        where, any_of = self._where(shape)
        return Bundle(
            shape.needs,
            len(members),
            where=(*where, *rules.where),
            any_of=any_of,
            prefer=preferences_of(shape.preferred),
            tolerates=tolerations_of(shape.tolerations),
            classes=rules.classes,
            apart=rules.apart,
            spread=rules.spread,
            together=rules.together,
        )

    def _where(self, shape: PodShape) -> tuple[tuple[Condition, ...], tuple[tuple[Condition, ...], ...]]:
        """What must hold of a node, and the alternatives of which one must."""
        found = [Condition(key, "==", (value,)) for key, value in shape.selector]
        terms = alternatives_of(shape.affinity)
        if len(terms) == 1:
            found += terms[0]
        return tuple(dict.fromkeys(found)), terms if len(terms) > 1 else ()
