"""This module checks the constraints between tasks in a finished plan, by counting tasks per class and domain.

A plan names slices, not nodes. So a constraint on nodes is checked only where a slice is one node;
``placement.constrained`` obeys it on slices with several hosts too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from windlass.core.model.conditions import untolerated
from windlass.core.model.constraints import NO_RULES, NODE, SLICE, Rules
from windlass.core.model.lifecycle import ENDING, IN_FLIGHT
from windlass.core.model.plan import Placement, Plan
from windlass.core.model.snapshot import Amounts, Group, Selector, Slice, Snapshot, rules_of, selector_of

Domain = tuple[str, str]
"""(kind, name): ``("zone", "a")``, ``("node", "s-1")``."""


@dataclass(slots=True)
class _Count:
    """Tasks of each class in each domain, before and after the plan."""

    after: dict[tuple[Domain, str], int] = field(default_factory=dict)

    def add(self, domains: list[Domain], class_: str, count: int) -> None:
        for domain in domains:
            self.after[domain, class_] = self.after.get((domain, class_), 0) + count

    def of(self, domain: Domain, class_: str) -> int:
        return self.after.get((domain, class_), 0)


def constraints_hold(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Returns every constraint between tasks that the placements of a plan break."""
    parts = [(demand, bundle) for demand in snapshot.demands for bundle in demand.bundles]
    if all(demand.rules is NO_RULES and bundle.rules is NO_RULES for demand, bundle in parts):
        return
    rules = {
        (demand.id, index): rules_of(demand, one)
        for demand in snapshot.demands
        for index, one in enumerate(demand.bundles)
    }
    if not any(one.binding for one in rules.values()):
        return
    keys = {kind for one in rules.values() for kind in one.domains()} - {NODE, SLICE}
    groups = {group.name: group for group in snapshot.groups}
    slices = {item.id: item for item in snapshot.slices}
    count = _Count()
    for item in snapshot.slices:
        if item.final or item.state in ENDING or item.state in IN_FLIGHT:
            continue
        for node in item.nodes:
            labels = {**(groups[item.group].node_labels() if item.group in groups else {}), **node.labels}
            where = [(SLICE, item.id), (NODE, item.id if len(item.nodes) == 1 else node.id)]
            where += [(key, labels[key]) for key in keys if key in labels]
            for name, many in node.classes:
                count.add(where, name, many)
    placed: list[tuple[Placement, Rules, dict[str, str]]] = []
    for placement in plan.placements:
        mine = rules.get((placement.demand, placement.bundle or 0), NO_RULES)
        target = slices.get(placement.on)
        name_of_group = target.group if target is not None else plan.group_of_new.get(placement.on)
        if name_of_group is None:
            continue  # another law reports a target that the plan does not launch
        domains = _domains(placement.on, target, groups[name_of_group], keys)
        placed.append((placement, mine, domains))
        for name in mine.classes:
            count.add(list(domains.items()), name, placement.count)
    for placement, mine, domains in placed:
        what = f"{placement.demand} on {placement.on}"
        yield from _broken(what, mine, domains, count)
    yield from _skewed(snapshot, rules, count, groups, placed)


def _domains(on: str, item: Slice | None, group: Group, keys: set[str]) -> dict[str, str]:
    """Returns the domain of each kind that a target is in, where it is the same for all its nodes."""
    found = {SLICE: on}
    if group.hosts == 1:
        found[NODE] = on
    labels = [{**group.node_labels(), **node.labels} for node in item.nodes] if item is not None and item.nodes else []
    for key in keys:
        values = {one.get(key) for one in labels or [group.node_labels()]}
        if len(values) == 1 and (value := values.pop()) is not None:
            found[key] = value
    return found


def _broken(what: str, rules: Rules, domains: dict[str, str], count: _Count) -> Iterator[str]:
    for rule in rules.apart:
        if rule.by in domains:
            here = count.of((rule.by, domains[rule.by]), rule.class_)
            if here > rule.at_most:
                yield f"{what}: {rule.by} {domains[rule.by]} holds {here} of {rule.class_}, {rule.at_most} allowed"
    for together in rules.together:
        if together.by in domains and not count.of((together.by, domains[together.by]), together.class_):
            yield f"{what}: {together.by} {domains[together.by]} holds no {together.class_}"


def _skewed(
    snapshot: Snapshot,
    rules: dict[tuple[str, int], Rules],
    count: _Count,
    groups: dict[str, Group],
    placed: list[tuple[Placement, Rules, dict[str, str]]],
) -> Iterator[str]:
    """Checks spreads over labels, where all tasks of the class that the plan places have the constraint themselves."""
    demands = {demand.id: demand for demand in snapshot.demands}
    for (name, index), mine in rules.items():
        demand = demands[name]
        for spread in mine.spread:
            others = [one for one in rules.values() if spread.of in one.classes]
            if spread.over in (NODE, SLICE) or spread.of not in mine.classes:
                continue
            if any(spread not in one.spread for one in others):
                continue
            bundle = demand.bundles[index]
            eligible = set(_eligible(snapshot, groups, selector_of(demand, bundle), bundle.needs, spread.over))
            elsewhere = dict(spread.elsewhere)
            eligible |= elsewhere.keys()
            counts = {value: count.of((spread.over, value), spread.of) + elsewhere.get(value, 0) for value in eligible}
            smallest = 0 if len(eligible) < spread.min_domains else min(counts.values(), default=0)
            used = {
                d[spread.over]
                for p, _, d in placed
                if p.demand == name and (p.bundle or 0) == index and spread.over in d
            }
            for value in sorted(used):
                if counts.get(value, 0) - smallest > spread.max_skew:
                    yield f"{name}: {spread.over} {value} holds {counts[value]} of {spread.of}, the least is {smallest}"


def _eligible(
    snapshot: Snapshot, groups: dict[str, Group], selector: Selector, needs: Amounts, key: str
) -> Iterator[str]:
    """Returns the values of a label where a task could run, by its conditions, taints and size."""
    where, _, tolerates, any_of = selector

    def may(group: Group, labels: dict[str, str]) -> bool:
        hard = [taint for taint in untolerated(group.taints, tolerates) if taint.effect != "PreferNoSchedule"]
        fits = all(dict(group.resources).get(name, 0) >= amount for name, amount in needs)
        holds = all(one.holds(labels) for one in where)
        return fits and holds and not hard and all(any(all(c.holds(labels) for c in o) for o in a) for a in any_of)

    for group in snapshot.groups:
        labels = group.node_labels()
        if key in labels and may(group, labels):
            yield labels[key]
    for item in snapshot.slices:
        if item.group not in groups or item.final or item.state in ENDING:
            continue
        for node in item.nodes:
            labels = {**groups[item.group].node_labels(), **node.labels}
            if node.healthy and key in labels and may(groups[item.group], labels):
                yield labels[key]
