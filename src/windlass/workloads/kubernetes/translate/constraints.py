"""This module translates constraints between pods into the planner's classes: anti-affinity, affinity, topology
spread and host ports.

A class is what a label selector selects, in some namespaces; one is made for every selector that a waiting pod names,
and for every selector by which a running pod keeps waiting ones away. A waiting pod counts as each class whose selector
selects it, a node holds as many of a class as pods that run there are selected. Pods on nodes that no provisioner owns
count too: they forbid or allow whole domains, such as zones, by conditions on the node's labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from windlass.core.model.conditions import Condition
from windlass.core.model.constraints import Apart, Spread, Together
from windlass.kubernetes_api.names import HOSTNAME
from windlass.kubernetes_api.objects import LabelSelector, PodAffinityTerm, Requirement, SpreadConstraint

from .pods import MirroredPod, PodPort, matches

NODE: Final = "node"


@dataclass(frozen=True)
class PodClass:
    """The pods that a selector selects in some namespaces; None: in all of them."""

    name: str
    selector: LabelSelector | None
    namespaces: frozenset[str] | None
    port: PodPort | None = None
    repels: bytes = b""
    """Instead: the pods that have this anti-affinity, as JSON."""

    def has(self, pod: MirroredPod) -> bool:
        if self.port is not None:
            return any((one.protocol, one.port) == (self.port.protocol, self.port.port) for one in pod.shape.ports)
        if self.repels:
            ours = self.namespaces is None or pod.namespace in self.namespaces
            return ours and any(msgspec.json.encode(one) == self.repels for one in pod.shape.repelled)
        if self.namespaces is not None and pod.namespace not in self.namespaces:
            return False
        return matches(self.selector, pod.labels)


@dataclass(frozen=True, slots=True)
class PodRules:
    """What keeps a waiting pod to or from other pods."""

    classes: tuple[str, ...] = ()
    apart: tuple[Apart, ...] = ()
    spread: tuple[Spread, ...] = ()
    together: tuple[Together, ...] = ()
    where: tuple[Condition, ...] = ()


NO_RULES: Final = PodRules()


def _by(topology: str) -> str:
    return NODE if topology == HOSTNAME else topology


def _with_keys(
    selector: LabelSelector | None, keys: Iterable[str] | None, pod: MirroredPod, *, differ: bool = False
) -> LabelSelector | None:
    """A selector with the pod's own values of some labels added to it."""
    if selector is None or not keys:
        return selector
    more = [
        Requirement(key, "NotIn" if differ else "In", (pod.labels[key],)) for key in sorted(keys) if key in pod.labels
    ]
    return LabelSelector(selector.match_labels, (*(selector.match_expressions or ()), *more))


@dataclass
class ConstraintTable:
    """The classes of one observation, and the rules of its waiting pods."""

    classes: dict[str, PodClass] = field(default_factory=dict)
    _matches: dict[tuple[str, str, int, int], bool] = field(default_factory=dict)
    _outside: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """(class, topology key): domains on nodes that no provisioner owns which hold a pod of the class."""
    _repellers: list[tuple[MirroredPod, PodAffinityTerm]] = field(default_factory=list)

    @staticmethod
    def of(
        waiting: Iterable[MirroredPod],
        running: Iterable[MirroredPod],
        labels_of: Callable[[str], Mapping[str, str] | None],
        is_ours: Callable[[str], bool],
    ) -> ConstraintTable:
        """The table of one observation. ``labels_of`` a node; ``is_ours``: whether a provisioner owns a node."""
        table = ConstraintTable()
        keys: set[tuple[str, str]] = set()
        waiting = list(waiting)
        for pod in waiting:
            for term in (*pod.shape.repelled, *pod.shape.attracted):
                keys.add((table._of_term(pod, term).name, term.topology_key))
            for one in pod.shape.spread:
                table._of_spread(pod, one)
            for port in pod.shape.ports:
                table._of_port(port)
        if not waiting:
            return table
        seen: set[tuple[str, int]] = set()
        running = list(running)
        for pod in running:
            for term in pod.shape.repelled:
                if (pod.namespace, id(term)) not in seen:
                    seen.add((pod.namespace, id(term)))
                    table._repellers.append((pod, term))
                    keys.add((table._of_repeller(pod, term).name, term.topology_key))
        for pod in running if keys else ():
            labels = None if is_ours(pod.node) else labels_of(pod.node)
            for name, topology in keys if labels is not None else ():
                if labels is not None and topology in labels and table._is(name, pod):
                    table._outside.setdefault((name, topology), set()).add(labels[topology])
        return table

    def rules(self, pod: MirroredPod) -> PodRules:
        """The rules of a waiting pod."""
        shape = pod.shape
        if not self.classes:
            return NO_RULES
        apart: list[Apart] = []
        together: list[Together] = []
        where: list[Condition] = []
        for term in shape.repelled:
            one = self._of_term(pod, term)
            apart.append(Apart(one.name, _by(term.topology_key), 1 if self._is(one.name, pod) else 0))
            where += self._not_in(one.name, term.topology_key)
        for holder, term in self._repellers:
            if self._term_class(holder, term).has(pod):
                name = self._of_repeller(holder, term).name
                apart.append(Apart(name, _by(term.topology_key), 1 if self._is(name, pod) else 0))
                where += self._not_in(name, term.topology_key)
        for term in shape.attracted:
            one = self._of_term(pod, term)
            domains = self._outside.get((one.name, term.topology_key))
            if domains and term.topology_key != HOSTNAME:
                where.append(Condition(term.topology_key, "in", tuple(sorted(domains))))
            else:
                together.append(Together(one.name, _by(term.topology_key)))
        spread = [
            Spread(self._of_spread(pod, one).name, _by(one.topology_key), one.max_skew, one.min_domains or 1)
            for one in shape.spread
        ]
        apart += [Apart(self._of_port(port).name, NODE, 1) for port in shape.ports]
        return PodRules(
            classes=tuple(sorted(name for name in self.classes if self._is(name, pod))),
            apart=tuple(dict.fromkeys(apart)),
            spread=tuple(dict.fromkeys(spread)),
            together=tuple(dict.fromkeys(together)),
            where=tuple(dict.fromkeys(where)),
        )

    def held(self, pods: Iterable[MirroredPod]) -> tuple[tuple[str, int], ...]:
        """How many pods of each class run on a node."""
        if not self.classes:
            return ()
        counts: dict[str, int] = {}
        for pod in pods:
            for name in self.classes:
                if self._is(name, pod):
                    counts[name] = counts.get(name, 0) + 1
        return tuple(sorted(counts.items()))

    # -- classes -------------------------------------------------------------------------------------------------------

    def _is(self, name: str, pod: MirroredPod) -> bool:
        key = (name, pod.namespace, id(pod.labels), id(pod.shape))
        found = self._matches.get(key)
        if found is None:
            found = self._matches[key] = self.classes[name].has(pod)
        return found

    def _not_in(self, name: str, topology: str) -> list[Condition]:
        domains = self._outside.get((name, topology))
        return [Condition(topology, "not in", tuple(sorted(domains)))] if domains and topology != HOSTNAME else []

    def _kept(self, made: PodClass) -> PodClass:
        return self.classes.setdefault(made.name, made)

    def _of_term(self, pod: MirroredPod, term: PodAffinityTerm) -> PodClass:
        return self._kept(self._term_class(pod, term))

    def _term_class(self, pod: MirroredPod, term: PodAffinityTerm) -> PodClass:
        selector = _with_keys(term.label_selector, term.match_label_keys, pod)
        selector = _with_keys(selector, term.mismatch_label_keys, pod, differ=True)
        namespaces: frozenset[str] | None = frozenset(term.namespaces or (pod.namespace,))
        if term.namespace_selector is not None:
            namespaces = None
        return _selected(selector, namespaces)

    def _of_spread(self, pod: MirroredPod, one: SpreadConstraint) -> PodClass:
        selector = _with_keys(one.label_selector, one.match_label_keys, pod)
        return self._kept(_selected(selector, frozenset({pod.namespace})))

    def _of_port(self, port: PodPort) -> PodClass:
        return self._kept(PodClass(f"port {port.protocol} {port.port}", None, None, port=port))

    def _of_repeller(self, pod: MirroredPod, term: PodAffinityTerm) -> PodClass:
        text = msgspec.json.encode(term)
        name = f"pods of {pod.namespace} that keep away from {self._term_class(pod, term).name}"
        return self._kept(PodClass(name, None, frozenset({pod.namespace}), repels=text))


def _selected(selector: LabelSelector | None, namespaces: frozenset[str] | None) -> PodClass:
    parts = []
    if selector is None:
        parts.append("nothing")
    else:
        parts += [f"{key}={value}" for key, value in sorted((selector.match_labels or {}).items())]
        parts += [f"{one.key} {one.operator} {','.join(one.values or ())}" for one in selector.match_expressions or ()]
    where = "all namespaces" if namespaces is None else ",".join(sorted(namespaces))
    return PodClass(f"{' '.join(parts) or 'every pod'} in {where}", selector, namespaces)
