"""This module translates constraints between pods into the planner's classes: anti-affinity, affinity, topology
spread and host ports.

A class is the set of pods that a label selector selects in some namespaces. There is a class for every selector of a
waiting pod's constraint, and for every anti-affinity of a running pod. A waiting pod is a member of each class whose
selector selects it; a node holds as many members of a class as it has such pods.

Nodes that no provisioner owns (foreign nodes) are not part of the plan. Their pods count by domains such as zones: for
affinity and anti-affinity as conditions on the node's labels, for topology spread as ``Spread.elsewhere``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from windlass.core.model.conditions import Condition
from windlass.core.model.constraints import Apart, Spread, Together
from windlass.kubernetes_api.names import HOSTNAME, NODE_NAME
from windlass.kubernetes_api.objects import LabelSelector, PodAffinityTerm, Requirement, SpreadConstraint

from .conditions import alternatives_of, tolerated
from .nodes import MirroredNode
from .pods import MirroredPod, PodPort, PodShape, matches

NODE: Final = "node"
ANY_ADDRESS: Final = "0.0.0.0"


@dataclass(frozen=True)
class PodClass:
    """The pods that a selector selects in some namespaces; None: in all of them."""

    name: str
    selector: LabelSelector | None
    namespaces: frozenset[str] | None
    port: PodPort | None = None
    """If set, the class is the pods that take this port on the same address or on all addresses."""
    repels: bytes = b""
    """If set, the class is the pods that have this anti-affinity (JSON), and ``selector`` is not used."""

    def has(self, pod: MirroredPod) -> bool:
        if self.port is not None:
            return any(_clash(self.port, one) for one in pod.shape.ports)
        if self.repels:
            inside = self.namespaces is None or pod.namespace in self.namespaces
            return inside and any(msgspec.json.encode(one) == self.repels for one in pod.shape.repelled)
        if self.namespaces is not None and pod.namespace not in self.namespaces:
            return False
        return matches(self.selector, pod.labels)


@dataclass(frozen=True, slots=True)
class PodRules:
    """The constraints of a waiting pod with respect to other pods."""

    classes: tuple[str, ...] = ()
    apart: tuple[Apart, ...] = ()
    spread: tuple[Spread, ...] = ()
    together: tuple[Together, ...] = ()
    where: tuple[Condition, ...] = ()


NO_RULES: Final = PodRules()
NO_NAMESPACES: Final[Mapping[str, Mapping[str, str]]] = {}


def _clash(one: PodPort, other: PodPort) -> bool:
    """Whether two host ports cannot be taken on one node."""
    if (one.protocol, one.port) != (other.protocol, other.port):
        return False
    return ANY_ADDRESS in (one.address, other.address) or one.address == other.address


def _by(topology: str) -> str:
    return NODE if topology == HOSTNAME else topology


def _with_keys(
    selector: LabelSelector | None, keys: Iterable[str] | None, pod: MirroredPod, *, differ: bool = False
) -> LabelSelector | None:
    """Return a selector extended by the pod's own values of some labels."""
    if selector is None or not keys:
        return selector
    more = [
        Requirement(key, "NotIn" if differ else "In", (pod.labels[key],)) for key in sorted(keys) if key in pod.labels
    ]
    return LabelSelector(selector.match_labels, (*(selector.match_expressions or ()), *more))


@dataclass
class ConstraintTable:
    """The classes of one observation, and the rules of its waiting pods."""

    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The labels of each namespace."""
    foreign: Mapping[str, MirroredNode] = field(default_factory=dict)
    """Nodes that no provisioner owns."""
    _kinds: dict[tuple[str, int, int], tuple[MirroredPod, dict[str, int]]] = field(default_factory=dict)
    """Pods on foreign nodes by namespace, labels and shape: one of them, and how many each node has."""
    _per_node: dict[str, dict[str, int]] = field(default_factory=dict)
    """For each class how many of its pods each foreign node has."""
    classes: dict[str, PodClass] = field(default_factory=dict)
    _matches: dict[tuple[str, str, int, int], bool] = field(default_factory=dict)
    _outside: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """(class, topology key): domains on foreign nodes which hold a pod of the class."""
    _repellers: list[tuple[MirroredPod, PodAffinityTerm]] = field(default_factory=list)

    @staticmethod
    def of(
        waiting: Iterable[MirroredPod],
        running: Iterable[MirroredPod],
        nodes: Mapping[str, MirroredNode],
        namespaces: Mapping[str, Mapping[str, str]] = NO_NAMESPACES,
    ) -> ConstraintTable:
        """Return the table of one observation. ``namespaces``: their labels."""
        table, waiting = ConstraintTable(namespaces), list(waiting)
        keys = table._add_waiting(waiting)
        if not waiting:
            return table
        running = list(running)
        keys |= table._add_repellers(running)
        spreads = any(pod.shape.spread for pod in waiting)
        if keys or spreads:
            table.foreign = {name: node for name, node in nodes.items() if not node.provisioner}
            table._add_foreign(running, keys, spreads=spreads)
        return table

    def _add_waiting(self, waiting: Iterable[MirroredPod]) -> set[tuple[str, str]]:
        """Add the classes that waiting pods name; return those of affinity terms, with their topology keys."""
        keys: set[tuple[str, str]] = set()
        for pod in waiting:
            for term in (*pod.shape.repelled, *pod.shape.attracted):
                keys.add((self._of_term(pod, term).name, term.topology_key))
            for one in pod.shape.spread:
                self._of_spread(pod, one)
            for port in pod.shape.ports:
                self._of_port(port)
        return keys

    def _add_repellers(self, running: Iterable[MirroredPod]) -> set[tuple[str, str]]:
        """Add the anti-affinity terms of running pods; return their classes, with their topology keys."""
        keys: set[tuple[str, str]] = set()
        seen: set[tuple[str, int]] = set()
        for pod in running:
            for term in pod.shape.repelled:
                if (pod.namespace, id(term)) not in seen:
                    seen.add((pod.namespace, id(term)))
                    self._repellers.append((pod, term))
                    keys.add((self._of_repeller(pod, term).name, term.topology_key))
        return keys

    def _add_foreign(self, running: Iterable[MirroredPod], keys: set[tuple[str, str]], *, spreads: bool) -> None:
        """Count the pods on nodes that no provisioner owns: by kind for spreads, by domain for affinity terms."""
        for pod in running:
            node = self.foreign.get(pod.node)
            if node is None:
                continue
            if spreads and not pod.ending:
                _, here = self._kinds.setdefault((pod.namespace, id(pod.labels), id(pod.shape)), (pod, {}))
                here[pod.node] = here.get(pod.node, 0) + 1
            for name, topology in keys:
                if topology in node.labels and self._is(name, pod):
                    self._outside.setdefault((name, topology), set()).add(node.labels[topology])

    def rules(self, pod: MirroredPod) -> PodRules:
        """Return the rules of a waiting pod."""
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
            Spread(
                self._of_spread(pod, one).name,
                _by(one.topology_key),
                one.max_skew,
                one.min_domains or 1,
                self._elsewhere(pod, one),
            )
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
        """Return how many pods of each class run on a node."""
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

    def _elsewhere(self, pod: MirroredPod, constraint: SpreadConstraint) -> tuple[tuple[str, int], ...]:
        """Return the domains of foreign nodes that count for a pod's topology spread, and the pods of the class in
        each.

        Hosts are left out: a new machine is an empty host, so foreign hosts never change the smallest count.
        """
        if constraint.topology_key == HOSTNAME:
            return ()
        here = self._on_foreign(self._of_spread(pod, constraint).name)
        terms = alternatives_of(pod.shape.affinity)
        found: dict[str, int] = {}
        for node in self.foreign.values():
            if _counts_for(node, pod.shape, terms, constraint):
                domain = node.labels[constraint.topology_key]
                found[domain] = found.get(domain, 0) + here.get(node.name, 0)
        return tuple(sorted(found.items()))

    def _on_foreign(self, name: str) -> Mapping[str, int]:
        """Return how many pods of a class each foreign node has."""
        found = self._per_node.get(name)
        if found is None:
            found = self._per_node[name] = {}
            for one, nodes in self._kinds.values():
                if self._is(name, one):
                    for node, count in nodes.items():
                        found[node] = found.get(node, 0) + count
        return found

    def _kept(self, made: PodClass) -> PodClass:
        return self.classes.setdefault(made.name, made)

    def _of_term(self, pod: MirroredPod, term: PodAffinityTerm) -> PodClass:
        return self._kept(self._term_class(pod, term))

    def _term_class(self, pod: MirroredPod, term: PodAffinityTerm) -> PodClass:
        selector = _with_keys(term.label_selector, term.match_label_keys, pod)
        selector = _with_keys(selector, term.mismatch_label_keys, pod, differ=True)
        chosen = term.namespace_selector
        if chosen is None:
            return _selected(selector, frozenset(term.namespaces or (pod.namespace,)))
        if not chosen.match_labels and not chosen.match_expressions:
            return _selected(selector, None)
        named = frozenset(term.namespaces or ())
        matching = {name for name, labels in self.namespaces.items() if matches(chosen, labels)}
        where = " and ".join([*sorted(named), f"namespaces with {_text(chosen)}"])
        return _selected(selector, named | matching, where)

    def _of_spread(self, pod: MirroredPod, one: SpreadConstraint) -> PodClass:
        selector = _with_keys(one.label_selector, one.match_label_keys, pod)
        return self._kept(_selected(selector, frozenset({pod.namespace})))

    def _of_port(self, port: PodPort) -> PodClass:
        name = f"port {port.protocol} {port.port}" + (f" of {port.address}" if port.address != ANY_ADDRESS else "")
        return self._kept(PodClass(name, None, None, port=port))

    def _of_repeller(self, pod: MirroredPod, term: PodAffinityTerm) -> PodClass:
        text = msgspec.json.encode(term)
        name = f"pods of {pod.namespace} that keep away from {self._term_class(pod, term).name}"
        return self._kept(PodClass(name, None, frozenset({pod.namespace}), repels=text))


def _counts_for(
    node: MirroredNode, shape: PodShape, terms: tuple[tuple[Condition, ...], ...], constraint: SpreadConstraint
) -> bool:
    """Whether the scheduler counts a node's domain for a pod's topology spread. ``terms``: of its node affinity."""
    if any(one.topology_key not in node.labels for one in shape.spread):
        return False
    if constraint.node_affinity_policy != "Ignore":
        if any(node.labels.get(key) != value for key, value in shape.selector):
            return False
        if terms:
            labels = {**node.labels, NODE_NAME: node.name}
            if not any(all(one.holds(labels) for one in term) for term in terms):
                return False
    hard = [one for one in node.taints if one.effect in ("NoSchedule", "NoExecute")]
    return constraint.node_taints_policy != "Honor" or all(tolerated(one, shape.tolerations) for one in hard)


def _text(selector: LabelSelector) -> str:
    parts = [f"{key}={value}" for key, value in sorted((selector.match_labels or {}).items())]
    parts += [f"{one.key} {one.operator} {','.join(one.values or ())}" for one in selector.match_expressions or ()]
    return " ".join(parts)


def _selected(selector: LabelSelector | None, namespaces: frozenset[str] | None, where: str = "") -> PodClass:
    what = "nothing" if selector is None else _text(selector) or "every pod"
    where = where or ("all namespaces" if namespaces is None else ",".join(sorted(namespaces)))
    return PodClass(f"{what} in {where}", selector, namespaces)
