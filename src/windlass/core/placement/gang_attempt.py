"""A ``Try`` is one attempt to serve a gang: its tasks, the offers table that they go on, and the choice of the group of
each new slice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from windlass.core.buying.fallbacks import first_choices
from windlass.core.buying.strategies import Choice, Key, fit_scores
from windlass.core.capacity.class_counts import Bounds, ClassCounts, without_start
from windlass.core.capacity.eligibility import alternative, preferences
from windlass.core.capacity.offers import Offers
from windlass.core.capacity.room import Bools, Ints, Need
from windlass.core.demand import GangTasks, gang_tasks
from windlass.core.model.constraints import NODE, SLICE
from windlass.core.model.reasons import Code
from windlass.core.model.snapshot import Demand
from windlass.core.plan_draft import PlanDraft, Purchase

Tasks = Sequence[GangTasks]

Load = Sequence[tuple[GangTasks, int]]
"""Some of the tasks of a gang, with how many of each."""


@dataclass(frozen=True, slots=True)
class Try:
    """One attempt to serve a demand whole: the table it goes on and why slices are bought for it."""

    draft: PlanDraft
    table: Offers
    demand: Demand
    tasks: Tasks
    code: Code

    def tables(self) -> tuple[Offers, ...]:
        """Returns the tables that a purchase changes: a request has its own, besides the offers of the draft."""
        return (self.table,) if self.table is self.draft.offers else (self.table, self.draft.offers)

    def buy(
        self, group: int, slices: int, size: int, fill: Sequence[tuple[Need, int]] = (), choice: Choice | None = None
    ) -> Purchase:
        """Buys slices for ``size`` tasks each. Those of ``fill`` are placed; the caller places the others.

        Slices for a request are bought empty: demand may use them.
        """
        purchase = self.draft.buy(group, slices, self.code, self.demand.id, choice, ((self.demand.id, size),))
        self.draft.offer(purchase, self.table, tasks=fill)
        if self.table is not self.draft.offers:
            self.draft.offer(purchase, self.draft.offers)
        return purchase

    @property
    def size(self) -> int:
        return sum(one.count for one in self.tasks)

    @property
    def has_rules(self) -> bool:
        """Whether constraints between tasks affect it."""
        return self.table.classes is not None and any(one.rules.binding or one.rules.classes for one in self.tasks)

    def allowed_groups(self, one: GangTasks) -> Bools:
        """Returns the groups that the conditions and tolerations of the tasks allow."""
        allowed, _ = self.draft.eligibility.answers(one.selector)
        return allowed[self.draft.profile_index]

    def penalty(self, groups: Sequence[int], tasks: Tasks) -> Ints:
        """Returns for each group the largest penalty of these tasks: see ``alternative`` and ``preferences``."""
        of_profiles = [self.draft.eligibility.answers(one.selector)[1] for one in tasks]
        return np.asarray(np.maximum.reduce(of_profiles)[self.draft.profile_index[groups]])

    def count_on(self, one: GangTasks, rows: Ints, counts: Ints) -> None:
        """Counts tasks on their rows, for the constraints of other tasks."""
        if self.table.classes is not None and (one.rules.classes or one.rules.binding):
            self.table.classes.add(one.rules, rows, counts)

    def rules_hold(self, placed: Sequence[tuple[GangTasks, Ints, Ints]]) -> bool:
        """Whether all constraints hold if the tasks go on these rows, (tasks, rows, counts) each, one after the
        other."""
        if self.table.classes is None:
            return True
        classes = self.table.classes.copy()
        for one, rows, counts in placed:
            if not (one.rules.binding or one.rules.classes):
                continue
            eligible = self._eligible(one)
            starts = classes.starts(one.rules)
            if starts and not self._in_one_domain(starts, rows):
                return False
            rules = without_start(one.rules, starts) if starts else one.rules
            if not _within(classes, classes.bounds(rules, *eligible), rows, counts):
                return False
            classes.add(one.rules, rows, counts)
        return True

    def _eligible(self, one: GangTasks) -> tuple[Bools, Bools]:
        allowed, _ = self.draft.eligibility.answers(one.selector)
        holds = self.draft.group_table.fresh.capacity(one.need) > 0
        return allowed[self.table.profile] & holds[self.table.group], self.allowed_groups(one) & holds

    def _in_one_domain(self, kinds: Sequence[str], rows: Ints) -> bool:
        """Whether the first tasks of a class, which may start a domain anywhere, start only one."""
        assert self.table.classes is not None
        for kind in kinds:
            domain = rows if kind == NODE else self.table.position[rows] if kind == SLICE else None
            if domain is None:
                domain = self.table.classes.value[kind][rows]
                if (domain < 0).any():
                    return False
            if len(np.unique(domain)) > 1:
                return False
        return True


def _within(classes: ClassCounts, bounds: Bounds, rows: Ints, counts: Ints) -> bool:
    """Whether this many tasks may go on these rows."""
    if (counts > bounds.rows[rows]).any():
        return False
    for key, label in bounds.labels.items():
        value = classes.value[key][rows]
        if (value < 0).any() and label.needs_label:
            return False
        here = np.zeros(len(label.room), np.int64)
        np.add.at(here, value[value >= 0], counts[value >= 0])
        if (here > label.room).any():
            return False
        for spread in label.spreads:
            after = spread.counts + here
            smallest = 0 if spread.from_zero else int(after[spread.eligible].min())
            if (after[here > 0] - smallest > spread.max_skew).any():
                return False
    if bounds.slices is None:
        return True
    on_slices = np.zeros(len(bounds.slices), np.int64)
    np.add.at(on_slices, classes.position[rows], counts)
    return not (on_slices > bounds.slices).any()


def tasks_of(draft: PlanDraft, demand: Demand) -> Tasks:
    """Returns the tasks of a demand, the hardest first; equal bundles are merged."""
    known = draft.snapshot_tables.tasks
    if demand not in known:
        known[demand] = gang_tasks(demand, draft.kinds, draft.largest, draft.classes)
    tasks: Tasks = known[demand]
    return tasks


def try_of(draft: PlanDraft, table: Offers, demand: Demand, code: Code) -> Try:
    return Try(draft, table, demand, tasks_of(draft, demand), code)


def best_group(attempt: Try, candidates: dict[int, tuple[int, Load]], *, mixed: bool = False) -> int | None:
    """Returns the group that the strategy takes, of groups with (slices needed, tasks on one slice).

    ``mixed``: the other tasks may go to other groups, so that only the preferences of these tasks count.
    """
    if not candidates:
        return None
    draft = attempt.draft
    groups = first_choices(draft.groups, candidates)
    penalty = attempt.penalty(groups, attempt.tasks)
    if mixed and len(attempt.tasks) > 1:
        for at, group in enumerate(groups):
            penalty[at] = attempt.penalty([group], [one for one, _ in candidates[group][1]])[0]
    unmet, rank = preferences(penalty).tolist(), draft.rank[groups].tolist()
    keys: list[Key]
    if draft.strategy == "cheapest":
        slices = [candidates[group][0] for group in groups]
        cost = [count * int(draft.price[group]) for count, group in zip(slices, groups, strict=True)]
        keys = list(zip(cost, unmet, slices, rank, strict=True))
        if draft.options.ahead:  # everything is bought: the best fit leaves the most for other demand
            scores = _fit(draft, candidates, groups)
            keys = [(*key[:2], *score) for key, score in zip(keys, scores, strict=True)]
    elif draft.strategy == "rank":
        keys = list(zip(rank, unmet, (~draft.sticky()[groups]).tolist(), strict=True))
    else:
        keys = [(misses, *score) for misses, score in zip(unmet, _fit(draft, candidates, groups), strict=True)]
    return min(zip(alternative(penalty).tolist(), keys, groups, strict=True))[2]


def _fit(draft: PlanDraft, candidates: dict[int, tuple[int, Load]], groups: Sequence[int]) -> list[Key]:
    """Returns how well the tasks on one slice of each group fill it; smaller is better."""
    used = np.zeros((len(groups), len(draft.kinds.names)), np.int64)
    for row, group in enumerate(groups):
        for one, count in candidates[group][1]:
            for column, amount in one.need.amounts():
                used[row, column] += amount * count
    return fit_scores(draft.market((), (), ()), np.array(groups), used)
