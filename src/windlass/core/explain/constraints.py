"""This module finds the constraint between tasks that keeps a task off the new machines of a group."""

from __future__ import annotations

import numpy as np

from windlass.core.capacity.class_counts import NO_VALUE, ClassCounts
from windlass.core.capacity.room import UNBOUNDED, Bools, Ints
from windlass.core.model.constraints import NODE, SLICE, Apart, Rules, Spread, Together
from windlass.core.model.reasons import Code, Reason, plural
from windlass.core.model.snapshot import Group

MACHINES = (NODE, SLICE)


class RuleBlocker:
    """Finds the constraint that does not hold for one more task on a new slice of a group."""

    def __init__(self, classes: ClassCounts, rules: Rules, in_rows: Bools, in_groups: Bools) -> None:
        """``in_rows`` and ``in_groups``: where the task could run by its conditions, taints and size."""
        self._classes, self._rules = classes, rules
        self._starts = classes.starts(rules)
        self._domains: dict[Spread, tuple[Ints, Ints]] = {}
        """Counts of all domains of a spread constraint, and those that count for it."""
        for rule in rules.spread:
            if rule.over not in MACHINES:
                counts, eligible = classes.spread_domains(rule, in_rows, in_groups)
                self._domains[rule] = (counts, np.flatnonzero(eligible))
        self._free: set[tuple[int, ...]] = set()
        """Label values where every constraint holds."""

    def first(self, index: int, group: Group) -> Reason | None:
        """Returns the first constraint that does not hold in the group; None: all hold."""
        values = tuple([int(of_groups[index]) for of_groups in self._classes.group_value.values()])
        if values in self._free:
            return None
        reason = self._find(index, group)
        if reason is None:
            self._free.add(values)
        return reason

    def _find(self, index: int, group: Group) -> Reason | None:
        classes, rules = self._classes, self._rules
        for apart in rules.apart:
            if reason := _apart(classes, apart, rules, index, group):
                return reason
        for name in rules.classes:
            if name in classes.columns and (reason := _kept_away(classes, name, index, group)):
                return reason
        for spread in rules.spread:
            if spread.over in MACHINES:
                continue  # an empty machine holds no task of any class
            if reason := _spread(classes, spread, rules, index, group, *self._domains[spread]):
                return reason
        for together in rules.together:
            if self._may_start(together, index):
                continue
            if reason := _together(classes, together, index, group):
                return reason
        return None

    def _may_start(self, rule: Together, index: int) -> bool:
        """Whether the task would be the first of its class, in a domain of the group."""
        if rule.by not in self._starts:
            return False
        return rule.by in MACHINES or int(self._classes.group_value[rule.by][index]) != NO_VALUE


def _domain(classes: ClassCounts, key: str, index: int) -> tuple[int, str]:
    value = int(classes.group_value[key][index])
    return value, "" if value == NO_VALUE else classes.values[key][value]


def _apart(classes: ClassCounts, rule: Apart, rules: Rules, index: int, group: Group) -> Reason | None:
    mine = int(rule.class_ in rules.classes)
    if rule.by in MACHINES:
        if mine <= rule.at_most:
            return None
        return Reason(Code.APART, f"it is of class {rule.class_} itself, of which no {rule.by} may hold any")
    value, name = _domain(classes, rule.by, index)
    here = 0 if value == NO_VALUE else int(classes.label[rule.by][value, classes.columns[rule.class_]])
    if value == NO_VALUE or here + mine <= rule.at_most:
        return None
    holds = f"{rule.by} {name} holds {plural(here, 'task')} of {rule.class_}"
    return Reason(Code.APART, f"{group.name}: {holds}, at most {rule.at_most} may be there")


def _kept_away(classes: ClassCounts, class_: str, index: int, group: Group) -> Reason | None:
    """Says that a task placed in this plan keeps others of its class out of its domain."""
    column = classes.columns[class_]
    for key in classes.values:
        value, name = _domain(classes, key, index)
        if value == NO_VALUE:
            continue
        cap, here = int(classes.label_cap[key][value, column]), int(classes.label[key][value, column])
        if cap < UNBOUNDED and here >= cap:
            why = f"{key} {name} holds {plural(here, 'task')} of {class_}, and one there allows {cap} at most"
            return Reason(Code.APART, f"{group.name}: {why}")
    return None


def _spread(
    classes: ClassCounts, rule: Spread, rules: Rules, index: int, group: Group, counts: Ints, eligible: Ints
) -> Reason | None:
    value, name = _domain(classes, rule.over, index)
    if value == NO_VALUE:
        return Reason(Code.SPREAD, f"{group.name} has no label {rule.over} to spread over")
    few = len(eligible) < rule.min_domains
    lowest = int(eligible[counts[eligible].argmin()]) if len(eligible) else value
    smallest = 0 if few else int(counts[lowest])
    here = int(counts[value])
    if here + int(rule.of in rules.classes) - smallest <= rule.max_skew:
        return None
    least = (
        f"{plural(len(eligible), 'domain')} can be used, min_domains is {rule.min_domains}: so the least counts as 0"
        if few
        else f"{classes.values[rule.over][lowest]} holds {smallest}"
    )
    holds = f"{rule.over} {name} holds {plural(here, 'task')} of {rule.of}, {least}"
    return Reason(Code.SPREAD, f"{group.name}: {holds}; the skew may be at most {rule.max_skew}")


def _together(classes: ClassCounts, rule: Together, index: int, group: Group) -> Reason | None:
    column = classes.columns[rule.class_]
    if rule.by in MACHINES:
        why = f"a new {rule.by} of {group.name} holds no task of {rule.class_}"
        return Reason(Code.TOGETHER, f"{why}, and it must be on the same {rule.by}")
    value, name = _domain(classes, rule.by, index)
    if value == NO_VALUE:
        return Reason(Code.TOGETHER, f"{group.name} has no label {rule.by}, by which it must be with {rule.class_}")
    if classes.label[rule.by][value, column] > 0:
        return None
    somewhere = [classes.values[rule.by][v] for v in np.flatnonzero(classes.label[rule.by][:, column] > 0).tolist()]
    where = f"only {', '.join(somewhere[:3])} does" if somewhere else f"no {rule.by} does"
    return Reason(Code.TOGETHER, f"{group.name}: {rule.by} {name} holds no task of {rule.class_}, {where}")
