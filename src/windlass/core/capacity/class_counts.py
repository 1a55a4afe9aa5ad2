"""ClassCounts counts the tasks of each class on every node, slice and label value, and derives how many more may be
placed.

It has one row for each row of the offers table. Constraints of a task become bounds: how many more of such tasks one
domain may take. A bound on a label value, or a skew between label values, binds several rows and groups at once; the
caller (``placement.constrained``) divides the tasks over the values first, and each row then has a bound of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from windlass.core.model.constraints import NODE, SLICE, Apart, Rules, Spread, Together

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
    """Whether too few domains are eligible, so that the smallest count is taken as 0."""

    def room_alone(self) -> Ints:
        """Returns how many more tasks each domain takes while no other domain takes any."""
        smallest = np.zeros(len(self.counts), np.int64)
        if not self.from_zero:
            for domain in range(len(smallest)):
                others = self.eligible.copy()
                others[domain] = False
                smallest[domain] = self.counts[others].min(initial=UNBOUNDED)
        room: Ints = np.minimum(np.maximum(smallest + self.max_skew - self.counts, 0), UNBOUNDED)
        return room


@dataclass(frozen=True, slots=True)
class LabelBounds:
    """The bounds of the values of one label."""

    room: Ints
    """How many more such tasks each value takes."""
    spreads: tuple[SpreadState, ...]
    needs_label: bool
    """Whether a node without the label is excluded."""
    shared: bool
    """Whether tasks of this kind use up the room that they find, so that it must be divided between them."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of all constraints of a task, given the tasks that are placed."""

    rows: Ints
    """How many more tasks each row takes, by constraints on nodes and by the bound of its slice."""
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
    """The classes that some constraint names."""
    values: dict[str, list[str]]
    """The values of each label that some constraint names."""
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
        """Returns the same rows without tasks."""
        for table in (self.node, self.slice_counts, *self.label.values()):
            table[:] = 0
        return self

    def own(self, rules: Rules) -> list[int]:
        """Returns the columns of the classes of the task."""
        return [self.columns[name] for name in rules.classes if name in self.columns]

    # -- changes ----------------------------------------------------------------------------------------------------

    def append(self, group: int, hosts: int, first_position: int, slices: int) -> None:
        """Adds rows for new slices, without tasks."""
        rows = hosts * slices
        self.append_rows(np.full(rows, group), first_position + np.arange(rows) // hosts)

    def append_rows(self, groups: Ints, positions: Ints) -> None:
        """Adds rows for the hosts of new slices, one group and slice each, without tasks."""
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
        """Appends rows of another table under other positions, with the tasks on them."""
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
        """Copies to ``rows`` the counts of the rows ``source`` of another table, with label counts and caps."""
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
        """Counts tasks that this plan places on rows, and the caps that their constraints set for others."""
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
        """Counts tasks whose label value is decided before their rows are."""
        for column in self.own(rules):
            self.label[key][value, column] += count
        for rule in rules.apart:
            if rule.by == key:
                column = self.columns[rule.class_]
                self.label_cap[key][value, column] = min(int(self.label_cap[key][value, column]), rule.at_most)

    def forget(self, class_: str) -> None:
        """Sets all counts of a class to zero."""
        column = self.columns[class_]
        self.node[:, column] = self.slice_counts[:, column] = 0
        self.node_cap[:, column] = self.slice_cap[:, column] = UNBOUNDED
        for key in self.values:
            self.label[key][:, column] = 0
            self.label_cap[key][:, column] = UNBOUNDED

    # -- bounds -----------------------------------------------------------------------------------------------------

    def bounds(self, rules: Rules, eligible_rows: Bools, eligible_groups: Bools) -> Bounds:
        """Returns what the constraints allow now.

        ``eligible_rows`` and ``eligible_groups`` say where a task could run by its conditions, taints and size,
        whatever is free there. They decide which domains count for a spread.
        """
        made = _BoundsBuilder(self, rules)
        made.apply_caps()
        for rule in rules.apart:
            made.apply_apart(rule)
        for spread in rules.spread:
            if spread.over in (NODE, SLICE):
                made.apply_machine_spread(spread, eligible_rows, bool(eligible_groups.any()))
            else:
                made.apply_label_spread(spread, *self.spread_domains(spread, eligible_rows, eligible_groups))
        for together in rules.together:
            made.apply_together(together)
        for key in rules.labels:
            made.require_label(key)
        return made.bounds()

    def spread_domains(self, spread: Spread, eligible_rows: Bools, eligible_groups: Bools) -> tuple[Ints, Bools]:
        """Returns for each value of a label its number of tasks of the class, and whether it counts for the spread."""
        key = spread.over
        counts = self.label[key][:, self.columns[spread.of]]
        eligible = np.zeros(len(counts), np.bool_)
        for where, value in ((eligible_rows, self.value[key]), (eligible_groups, self.group_value[key])):
            here = value[where]
            eligible[here[here != NO_VALUE]] = True
        if spread.elsewhere:
            counts, number = counts.copy(), {name: index for index, name in enumerate(self.values[key])}
            for name, count in spread.elsewhere:
                counts[number[name]] += count
                eligible[number[name]] = True
        return counts, eligible

    def within_skew(self, spread: Spread, eligible_rows: Bools, eligible_groups: Bools, rows: Ints) -> bool:
        """Whether a spread over a label holds in the domains of these rows."""
        counts, eligible = self.spread_domains(spread, eligible_rows, eligible_groups)
        smallest = 0 if int(eligible.sum()) < spread.min_domains else int(counts[eligible].min())
        return int(counts[np.unique(self.value[spread.over][rows])].max()) - smallest <= spread.max_skew

    def starts(self, rules: Rules) -> list[str]:
        """Returns the domain kinds of ``together`` constraints that the task may start itself, because no domain has
        one yet."""
        found = []
        for rule in rules.together:
            column = self.columns[rule.class_]
            counts = self.slice_counts if rule.by in (NODE, SLICE) else self.label[rule.by]
            if rule.class_ in rules.classes and not counts[:, column].any():
                found.append(rule.by)
        return found


class _BoundsBuilder:
    """The bounds of one task while its constraints are applied, one after the other."""

    def __init__(self, counts: ClassCounts, rules: Rules) -> None:
        self._counts, self._own = counts, set(counts.own(rules))
        self._rows = np.full(len(counts.node), UNBOUNDED)
        self._slices = np.full(len(counts.slice_counts), UNBOUNDED)
        self._fresh_node = self._fresh_slice = UNBOUNDED
        self._labels = {key: np.full(len(names), UNBOUNDED) for key, names in counts.values.items()}
        self._shared, self._needed = set[str](), set[str]()
        self._spreads: dict[str, list[SpreadState]] = {}

    def apply_caps(self) -> None:
        """Applies the caps that tasks placed in this plan set for the classes of this task."""
        counts = self._counts
        for column in self._own:
            self._bound_rows(np.maximum(counts.node_cap[:, column] - counts.node[:, column], 0))
            self._bound_slices(np.maximum(counts.slice_cap[:, column] - counts.slice_counts[:, column], 0))
            for key in self._labels:
                cap = counts.label_cap[key][:, column]
                self._bound_label(key, np.maximum(cap - counts.label[key][:, column], 0))
                if (cap < UNBOUNDED).any():
                    self._shared.add(key)

    def apply_apart(self, rule: Apart) -> None:
        counts, column = self._counts, self._counts.columns[rule.class_]
        counts_in = column in self._own
        fresh = rule.at_most if counts_in else UNBOUNDED
        if rule.by == NODE:
            self._bound_rows(_apart(counts.node[:, column], rule.at_most, counts_in), fresh)
        elif rule.by == SLICE:
            self._bound_slices(_apart(counts.slice_counts[:, column], rule.at_most, counts_in), fresh)
        else:
            self._bound_label(rule.by, _apart(counts.label[rule.by][:, column], rule.at_most, counts_in))
            if counts_in:
                self._shared.add(rule.by)

    def apply_machine_spread(self, spread: Spread, eligible_rows: Bools, can_buy: bool) -> None:
        """Applies a spread over nodes or slices. An empty machine that could be bought is a domain without tasks."""
        counts, column = self._counts, self._counts.columns[spread.of]
        here = counts.node[:, column] if spread.over == NODE else counts.slice_counts[:, column]
        eligible = eligible_rows
        if spread.over == SLICE:
            eligible = np.zeros(len(here), np.bool_)
            eligible[counts.position[eligible_rows]] = True
        outside = [count for _, count in spread.elsewhere]
        from_zero = can_buy or int(eligible.sum()) + len(outside) < spread.min_domains
        smallest = 0 if from_zero else min(int(here[eligible].min(initial=UNBOUNDED)), *outside, UNBOUNDED)
        counts_in = column in self._own
        allowed = _apart(here, smallest + spread.max_skew, counts_in)
        fresh = spread.max_skew if counts_in else UNBOUNDED
        if spread.over == NODE:
            self._bound_rows(allowed, fresh)
        else:
            self._bound_slices(allowed, fresh)

    def apply_label_spread(self, spread: Spread, counts: Ints, eligible: Bools) -> None:
        key = spread.over
        self._needed.add(key)
        from_zero = int(eligible.sum()) < spread.min_domains
        if self._counts.columns[spread.of] in self._own:
            self._shared.add(key)
            self._spreads.setdefault(key, []).append(SpreadState(counts, eligible, spread.max_skew, from_zero))
        else:
            smallest = 0 if from_zero else int(counts[eligible].min(initial=UNBOUNDED))
            self._close_label(key, counts - smallest > spread.max_skew)

    def apply_together(self, rule: Together) -> None:
        counts, column = self._counts, self._counts.columns[rule.class_]
        if rule.by == NODE:
            self._bound_rows(np.where(counts.node[:, column] > 0, UNBOUNDED, 0), 0)
        elif rule.by == SLICE:
            self._bound_slices(np.where(counts.slice_counts[:, column] > 0, UNBOUNDED, 0), 0)
        else:
            self._needed.add(rule.by)
            self._close_label(rule.by, counts.label[rule.by][:, column] <= 0)

    def require_label(self, key: str) -> None:
        """Excludes nodes that do not have the label."""
        self._needed.add(key)

    def bounds(self) -> Bounds:
        rows, slices = self._rows, self._slices
        rows = np.minimum(rows, slices[self._counts.position]) if len(rows) else rows
        of_labels = {
            key: LabelBounds(room, tuple(self._spreads.get(key, ())), key in self._needed, key in self._shared)
            for key, room in self._labels.items()
            if key in self._needed or key in self._shared or (room < UNBOUNDED).any()
        }
        limited = slices if (slices < UNBOUNDED).any() else None
        return Bounds(rows, limited, self._fresh_node, self._fresh_slice, of_labels)

    def _bound_rows(self, most: Ints, fresh: int = UNBOUNDED) -> None:
        self._rows, self._fresh_node = np.minimum(self._rows, most), min(self._fresh_node, fresh)

    def _bound_slices(self, most: Ints, fresh: int = UNBOUNDED) -> None:
        self._slices, self._fresh_slice = np.minimum(self._slices, most), min(self._fresh_slice, fresh)

    def _bound_label(self, key: str, most: Ints) -> None:
        self._labels[key] = np.minimum(self._labels[key], most)

    def _close_label(self, key: str, closed: Bools) -> None:
        self._labels[key] = np.where(closed, 0, self._labels[key])


def _apart(counts: Ints, at_most: int, counts_in: bool) -> Ints:
    """Returns how many more tasks a domain takes that may hold ``at_most`` of a class; ``counts_in``: they have the
    class."""
    if counts_in:
        return np.maximum(at_most - counts, 0)
    return np.where(counts <= at_most, UNBOUNDED, 0)


def without_start(rules: Rules, kinds: Sequence[str]) -> Rules:
    """Returns the constraints of the first task of its class, which may go to any domain of these kinds."""
    own = set(rules.classes)
    left = tuple(rule for rule in rules.together if not (rule.by in kinds and rule.class_ in own))
    labels = tuple(sorted({kind for kind in kinds if kind not in (NODE, SLICE)}))
    return Rules(rules.classes, rules.apart, rules.spread, left, labels)
