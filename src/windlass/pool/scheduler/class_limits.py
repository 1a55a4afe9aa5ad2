"""ClassLimits decides whether a task may run on a node because of the tasks around it: ``apart`` and ``spread``.

The rules are those of the planner (`core.model.constraints`), on the tasks that run now. A task counts as one of its
class, which is the name of its function. A domain is a node, a slice, or all nodes with the same value of a label.
``apart`` binds both ways: a task is not placed where it would break the rule of a running task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from windlass.core.model.constraints import NODE, SLICE, Apart, Spread
from windlass.core.model.snapshot import Group

from .nodes import PoolNode, accepts
from .tasks import Kind

Domain = tuple[str, str]
"""(kind, name), such as ``("zone", "us-1a")``."""
MIRRORED: Final = 0
"""The ``at_most`` of a rule that two classes never share a domain; only such a rule can be reversed for the planner."""


def named_classes(kinds: Iterable[Kind]) -> frozenset[str]:
    """Return the classes that the rules of these kinds count, also in reversed rules."""
    return frozenset(name for kind in kinds if kind.rules.binding for name in (kind.name, *kind.rules.named()))


def turned_around(kind: Kind, kinds: Iterable[Kind]) -> tuple[Apart, ...]:
    """Return the reversed rules of other kinds: classes that this kind must not share a domain with."""
    return tuple(
        Apart(other.name, rule.by, MIRRORED)
        for other in dict.fromkeys(kinds)
        for rule in other.rules.apart
        if rule.class_ == kind.name != other.name and rule.at_most == MIRRORED
    )


class ClassLimits:
    """Counts the tasks of every class in every domain of a pool's nodes."""

    def __init__(self, nodes: Sequence[PoolNode], groups: Iterable[Group], keys: frozenset[str]) -> None:
        """Start with no running task. ``groups``: those of the pool. ``keys``: the kinds of domains in the rules."""
        self._nodes, self._groups, self._keys = nodes, tuple(groups), keys
        self._counts: Counter[tuple[Domain, str]] = Counter()
        self._caps: dict[tuple[Domain, str], int] = {}
        """The most tasks of a class that the running tasks of a domain allow in it."""
        self._eligible: dict[tuple[Kind, str], frozenset[Domain]] = {}

    @classmethod
    def now(cls, nodes: Sequence[PoolNode], groups: Iterable[Group], kinds: Iterable[Kind]) -> ClassLimits | None:
        """Count the running tasks on the nodes. ``kinds``: of the tasks to be placed. None: no task has a rule."""
        running = [(node, call.kind) for node in nodes for call in node.running()]
        keys = frozenset(key for kind in (*kinds, *(kind for _, kind in running)) for key in kind.rules.domains())
        if not keys:
            return None
        limits = cls(nodes, groups, keys)
        for node, kind in running:
            limits.add(node, kind)
        return limits

    def copy(self) -> ClassLimits:
        """Return a copy, to try a placement."""
        found = self.empty()
        found._counts, found._caps, found._eligible = self._counts.copy(), self._caps.copy(), self._eligible
        return found

    def empty(self) -> ClassLimits:
        """Return the counts for the same nodes without running tasks."""
        return ClassLimits(self._nodes, self._groups, self._keys)

    def add(self, node: PoolNode, kind: Kind) -> None:
        """Count a task of a kind on a node."""
        for key in self._keys:
            if (domain := _domain(node, key)) is not None:
                self._counts[domain, kind.name] += 1
        for rule in kind.rules.apart:
            if (domain := _domain(node, rule.by)) is not None:
                where = domain, rule.class_
                self._caps[where] = min(self._caps.get(where, rule.at_most), rule.at_most)

    def allow(self, node: PoolNode, kind: Kind) -> bool:
        """Return whether one more task of a kind may run on a node."""
        return (
            all(self._apart(node, kind, rule) for rule in kind.rules.apart)
            and all(self._spread(node, kind, rule) for rule in kind.rules.spread)
            and all(self._allowed_by_others(_domain(node, key), kind) for key in self._keys)
        )

    def _apart(self, node: PoolNode, kind: Kind, rule: Apart) -> bool:
        domain = _domain(node, rule.by)
        return domain is None or self._counts[domain, rule.class_] + (rule.class_ == kind.name) <= rule.at_most

    def _allowed_by_others(self, domain: Domain | None, kind: Kind) -> bool:
        most = None if domain is None else self._caps.get((domain, kind.name))
        return domain is None or most is None or self._counts[domain, kind.name] < most

    def _spread(self, node: PoolNode, kind: Kind, rule: Spread) -> bool:
        domain = _domain(node, rule.over)
        if domain is None:
            return False
        counts = [self._counts[one, rule.of] for one in self._eligible_domains(kind, rule.over)]
        fewest = min(counts, default=0) if len(counts) >= rule.min_domains else 0
        return self._counts[domain, rule.of] + (rule.of == kind.name) - fewest <= rule.max_skew

    def _eligible_domains(self, kind: Kind, over: str) -> frozenset[Domain]:
        """Return the domains in which tasks of a kind could run, on existing nodes and on nodes that may be bought."""
        found = self._eligible.get((kind, over))
        if found is None:
            here = {_domain(node, over) for node in self._nodes if node.accepts(kind)} - {None}
            groups = [group for group in self._groups if accepts(group, kind)]
            if over in (NODE, SLICE):
                new = {(over, "") for _ in groups[:1]}  # a machine that could be bought runs no task yet
            else:
                new = {(over, one[over]) for one in (group.node_labels() for group in groups) if over in one}
            found = self._eligible[kind, over] = frozenset(one for one in (*here, *new) if one is not None)
        return found


def _domain(node: PoolNode, key: str) -> Domain | None:
    """Return the domain of a node; None if it does not have the label."""
    if key == NODE:
        return key, node.id
    if key == SLICE:
        return key, node.slice_id
    value = node.group.node_labels().get(key)
    return None if value is None else (key, value)
