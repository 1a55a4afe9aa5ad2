"""ClassCounts counts the tasks of each class on every node, slice and label value, and derives how many more may be
placed.

One row for each row of the offers table. Constraints of a task become bounds: how many more of such tasks one domain
may take. A bound on a label value and the skew between label values bind several rows and groups at once; the caller
(``placement.constrained``) divides the tasks over the values first, and each row then has a bound of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from windlass.core.model.constraints import NODE, SLICE, Rules

from .room import UNBOUNDED, Bools, Ints

NO_VALUE: Final = -1
"""The domain of a node that does not have the label."""


@dataclass(frozen=True, slots=True)
class SpreadState:
    """One spread constraint over the values of a label, for tasks that count in it."""

    counts: Ints
    """Tasks of the class in each domain."""
    eligible: Bools
    max_skew: int
    from_zero: bool
    """Too few domains are eligible: the smallest count is taken as 0."""


@dataclass(frozen=True, slots=True)
class LabelBounds:
    """What the values of one label allow."""

    room: Ints
    """How many more such tasks each value takes; 0: none."""
    spreads: tuple[SpreadState, ...]
    needs_label: bool
    """Whether a node without the label is excluded."""
    shared: bool
    """Whether tasks of this kind use up the room that they find, so that it must be divided between them."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What all constraints of a task allow, given the tasks that are there."""

    rows: Ints
    """How many more each row takes, from the constraints on nodes, and from what its slice allows alone."""
    slices: Ints | None
    """How many more each slice takes (by position); None: unlimited."""
    fresh_node: int
    fresh_slice: int
    """How many an empty node and an empty slice take."""
    labels: dict[str, LabelBounds]


@dataclass(slots=True)
class ClassCounts:
    """The counts, and the caps that tasks placed in this plan set for others."""

    columns: dict[str, int]
    """The classes that some constraint asks about."""
    values: dict[str, list[str]]
    """The values of each label that some constraint asks about."""
    position: Ints
    """The slice of each row."""
    node: Ints
    """[row, class]"""
    node_cap: Ints
    slice_counts: Ints
    """[position, class]: also of nodes that offer nothing."""
    slice_cap: Ints
    value: dict[str, Ints]
    """For each label key the value of each row, or ``NO_VALUE``."""
    group_value: dict[str, Ints]
    label: dict[str, Ints]
    """For each label key [value, class]."""
    label_cap: dict[str, Ints]

    def copy(self) -> ClassCounts:
        return ClassCounts(
            self.columns,
            self.values,
            self.position,
            self.node.copy(),
            self.node_cap.copy(),
            self.slice_counts.copy(),
            self.slice_cap.copy(),
            dict(self.value),
            self.group_value,
            {key: table.copy() for key, table in self.label.items()},
            {key: table.copy() for key, table in self.label_cap.items()},
        )

    def emptied(self) -> ClassCounts:
        """The same rows with no task on them."""
        for table in (self.node, self.slice_counts, *self.label.values()):
            table[:] = 0
        return self

    def own(self, rules: Rules) -> list[int]:
        """The columns of the classes that the task counts as."""
        return [self.columns[name] for name in rules.classes if name in self.columns]

    # -- changes ----------------------------------------------------------------------------------------------------

    def append(self, group: int, hosts: int, first_position: int, slices: int) -> None:
        """Rows for new slices, without tasks."""
        rows = hosts * slices
        self.append_rows(np.full(rows, group), first_position + np.arange(rows) // hosts)

    def append_rows(self, groups: Ints, positions: Ints) -> None:
        """Rows for the hosts of new slices, of one group and slice each, without tasks."""
        rows, width = len(groups), len(self.columns)
        self.position = np.concatenate((self.position, positions))
        self.node = np.concatenate((self.node, np.zeros((rows, width), np.int64)))
        self.node_cap = np.concatenate((self.node_cap, np.full((rows, width), UNBOUNDED)))
        more = int(positions.max(initial=-1)) + 1 - len(self.slice_counts)
        if more > 0:
            self.slice_counts = np.concatenate((self.slice_counts, np.zeros((more, width), np.int64)))
            self.slice_cap = np.concatenate((self.slice_cap, np.full((more, width), UNBOUNDED)))
        for key, value in self.value.items():
            self.value[key] = np.concatenate((value, self.group_value[key][groups]))

    def adopt(self, other: ClassCounts, rows: Ints, positions: Ints) -> None:
        """Rows of another table at the end, under other positions, with the tasks on them."""
        self.position = np.concatenate((self.position, positions))
        self.node = np.concatenate((self.node, np.zeros((len(rows), len(self.columns)), np.int64)))
        self.node_cap = np.concatenate((self.node_cap, np.full((len(rows), len(self.columns)), UNBOUNDED)))
        more = int(positions.max(initial=-1)) + 1 - len(self.slice_counts)
        if more > 0:
            width = len(self.columns)
            self.slice_counts = np.concatenate((self.slice_counts, np.zeros((more, width), np.int64)))
            self.slice_cap = np.concatenate((self.slice_cap, np.full((more, width), UNBOUNDED)))
        for key in self.value:
            self.value[key] = np.concatenate((self.value[key], other.value[key][rows]))
        self.put(np.arange(len(self.node) - len(rows), len(self.node)), other, rows)

    def put(self, rows: Ints, other: ClassCounts, source: Ints) -> None:
        """Count on ``rows`` what the rows ``source`` of another table hold. Label counts and caps follow."""
        added = other.node[source] - self.node[rows]
        self.node[rows] = other.node[source]
        self.node_cap[rows] = np.minimum(self.node_cap[rows], other.node_cap[source])
        np.add.at(self.slice_counts, self.position[rows], added)
        np.minimum.at(self.slice_cap, self.position[rows], other.slice_cap[other.position[source]])
        for key, value in self.value.items():
            known = value[rows] != NO_VALUE
            np.add.at(self.label[key], value[rows][known], added[known])
            self.label_cap[key] = np.minimum(self.label_cap[key], other.label_cap[key])

    def add(self, rules: Rules, rows: Ints, counts: Ints) -> None:
        """Count tasks that this plan places on rows, and the caps that their constraints set for others."""
        if not len(rows):
            return
        for column in self.own(rules):
            np.add.at(self.node[:, column], rows, counts)
            np.add.at(self.slice_counts[:, column], self.position[rows], counts)
            for key, value in self.value.items():
                here = value[rows]
                known = here != NO_VALUE
                np.add.at(self.label[key][:, column], here[known], counts[known])
        for rule in rules.apart:
            column = self.columns[rule.class_]
            if rule.by == NODE:
                np.minimum.at(self.node_cap[:, column], rows, rule.at_most)
            elif rule.by == SLICE:
                np.minimum.at(self.slice_cap[:, column], self.position[rows], rule.at_most)
            else:
                here = self.value[rule.by][rows]
                np.minimum.at(self.label_cap[rule.by][:, column], here[here != NO_VALUE], rule.at_most)

    def add_to_value(self, rules: Rules, key: str, value: int, count: int) -> None:
        """Count tasks whose label value is decided, before their rows are."""
        for column in self.own(rules):
            self.label[key][value, column] += count
        for rule in rules.apart:
            if rule.by == key:
                column = self.columns[rule.class_]
                self.label_cap[key][value, column] = min(int(self.label_cap[key][value, column]), rule.at_most)

    def forget(self, class_: str) -> None:
        """Count nothing of a class any more."""
        column = self.columns[class_]
        self.node[:, column] = self.slice_counts[:, column] = 0
        self.node_cap[:, column] = self.slice_cap[:, column] = UNBOUNDED
        for key in self.values:
            self.label[key][:, column] = 0
            self.label_cap[key][:, column] = UNBOUNDED

    # -- bounds -----------------------------------------------------------------------------------------------------

    def bounds(self, rules: Rules, eligible_rows: Bools, eligible_groups: Bools) -> Bounds:
        """What the constraints allow now.

        ``eligible_rows`` and ``eligible_groups``: where a task could be by its conditions, taints and size, whatever
        is free there; they decide which domains count for a spread.
        """
        own = set(self.own(rules))
        rows = np.full(len(self.node), UNBOUNDED)
        slices = np.full(len(self.slice_counts), UNBOUNDED)
        fresh_node = fresh_slice = UNBOUNDED
        labels = {key: np.full(len(names), UNBOUNDED) for key, names in self.values.items()}
        shared, needed, spreads = set[str](), set[str](), dict[str, list[SpreadState]]()
        for column in own:
            rows = np.minimum(rows, np.maximum(self.node_cap[:, column] - self.node[:, column], 0))
            left = np.maximum(self.slice_cap[:, column] - self.slice_counts[:, column], 0)
            slices = np.minimum(slices, left)
            for key, room in labels.items():
                cap = self.label_cap[key][:, column]
                labels[key] = np.minimum(room, np.maximum(cap - self.label[key][:, column], 0))
                if (cap < UNBOUNDED).any():
                    shared.add(key)
        for rule in rules.apart:
            column = self.columns[rule.class_]
            counts_in = column in own
            if rule.by == NODE:
                rows = np.minimum(rows, _apart(self.node[:, column], rule.at_most, counts_in))
                fresh_node = min(fresh_node, rule.at_most if counts_in else UNBOUNDED)
            elif rule.by == SLICE:
                slices = np.minimum(slices, _apart(self.slice_counts[:, column], rule.at_most, counts_in))
                fresh_slice = min(fresh_slice, rule.at_most if counts_in else UNBOUNDED)
            else:
                allowed = _apart(self.label[rule.by][:, column], rule.at_most, counts_in)
                labels[rule.by] = np.minimum(labels[rule.by], allowed)
                if counts_in:
                    shared.add(rule.by)
        for spread in rules.spread:
            column = self.columns[spread.of]
            counts_in = column in own
            if spread.over in (NODE, SLICE):
                counts = self.node[:, column] if spread.over == NODE else self.slice_counts[:, column]
                if spread.over == NODE:
                    mine = eligible_rows
                else:
                    mine = np.zeros(len(counts), np.bool_)
                    mine[self.position[eligible_rows]] = True
                # An empty machine that could be bought is a domain with none.
                new = bool(eligible_groups.any())
                few = int(mine.sum()) + (UNBOUNDED if new else 0) < spread.min_domains
                smallest = 0 if new or few else int(counts[mine].min(initial=UNBOUNDED))
                allowed = _apart(counts, smallest + spread.max_skew, counts_in)
                fresh = spread.max_skew if counts_in else UNBOUNDED
                if spread.over == NODE:
                    rows, fresh_node = np.minimum(rows, allowed), min(fresh_node, fresh)
                else:
                    slices, fresh_slice = np.minimum(slices, allowed), min(fresh_slice, fresh)
                continue
            key = spread.over
            needed.add(key)
            counts = self.label[key][:, column]
            eligible = np.zeros(len(counts), np.bool_)
            for where, value in ((eligible_rows, self.value[key]), (eligible_groups, self.group_value[key])):
                here = value[where]
                eligible[here[here != NO_VALUE]] = True
            from_zero = int(eligible.sum()) < spread.min_domains
            if counts_in:
                shared.add(key)
                spreads.setdefault(key, []).append(SpreadState(counts, eligible, spread.max_skew, from_zero))
            else:
                smallest = 0 if from_zero else int(counts[eligible].min(initial=UNBOUNDED))
                labels[key] = np.where(counts - smallest <= spread.max_skew, labels[key], 0)
        for together in rules.together:
            column = self.columns[together.class_]
            if together.by == NODE:
                rows = np.where(self.node[:, column] > 0, rows, 0)
                fresh_node = 0
            elif together.by == SLICE:
                slices = np.where(self.slice_counts[:, column] > 0, slices, 0)
                fresh_slice = 0
            else:
                needed.add(together.by)
                labels[together.by] = np.where(self.label[together.by][:, column] > 0, labels[together.by], 0)
        rows = np.minimum(rows, slices[self.position]) if len(rows) else rows
        of_labels = {
            key: LabelBounds(room, tuple(spreads.get(key, ())), key in needed, key in shared)
            for key, room in labels.items()
            if key in needed or key in shared or (room < UNBOUNDED).any()
        }
        return Bounds(rows, slices if (slices < UNBOUNDED).any() else None, fresh_node, fresh_slice, of_labels)

    def starts(self, rules: Rules) -> list[str]:
        """The kinds of domains of ``together`` constraints that the task may start itself: no domain has one yet."""
        found = []
        for rule in rules.together:
            column = self.columns[rule.class_]
            counts = self.slice_counts if rule.by in (NODE, SLICE) else self.label[rule.by]
            if rule.class_ in rules.classes and not counts[:, column].any():
                found.append(rule.by)
        return found


def _apart(counts: Ints, at_most: int, counts_in: bool) -> Ints:
    """How many more tasks a domain takes that may hold ``at_most`` of a class; ``counts_in``: they are of the class."""
    if counts_in:
        return np.maximum(at_most - counts, 0)
    return np.where(counts <= at_most, UNBOUNDED, 0)


def without_start(rules: Rules, kinds: Sequence[str]) -> Rules:
    """The constraints of the first task of its class, which may go to any domain of these kinds."""
    own = set(rules.classes)
    left = tuple(rule for rule in rules.together if not (rule.by in kinds and rule.class_ in own))
    return Rules(rules.classes, rules.apart, rules.spread, left)
