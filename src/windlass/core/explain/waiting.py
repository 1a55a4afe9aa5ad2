"""This module explains why demand waits: the first failing check of each group, and the nearest of them for the demand.

The checks of a group are made in this order: whether a node of it can hold the demand at all (resources, conditions,
taints, the form of a gang), whether a limit allows more (its max, launches in flight, nodes, dollars), whether the
provider has capacity. Every sentence carries its numbers, and for an unknown name it suggests the one that was probably
meant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter

import numpy as np

from windlass.core.capacity.offers import Offers
from windlass.core.capacity.room import Bools, Need, Room
from windlass.core.demand import GangTasks, Shape, total_needs
from windlass.core.model.cached import cached_attribute
from windlass.core.model.conditions import Condition, untolerated
from windlass.core.model.constraints import NO_RULES, Rules
from windlass.core.model.plan import Waiting
from windlass.core.model.quantities import format_amount, format_money, format_needs, format_quantity
from windlass.core.model.reasons import CONSTRAINTS, IMPOSSIBLE, NEAREST, Code, Reason, nearest_names, plural, seconds
from windlass.core.model.snapshot import Amounts, Demand, Gang, Group, Seconds, Selector
from windlass.core.placement.gang_attempt import Tasks, tasks_of
from windlass.core.placement.gang_slices import slices_for, slices_missing
from windlass.core.placement.gangs import holds_all, serve_whole
from windlass.core.plan_draft import PlanDraft

from .constraints import RuleBlocker

SHOWN_GROUPS = 3
"""Largest number of groups that a sentence names; the table of groups has them all."""


def waiting_items(draft: PlanDraft) -> tuple[Waiting, ...]:
    """Returns everything that waits, by id."""
    explain, items = Explainer(draft), list[Waiting]()
    since = {d.id: d.since for d in draft.snapshot.demands} if draft.decisions.waiting_shapes else {}
    now = draft.now
    for shape, count in draft.decisions.waiting_shapes:
        reasons = explain.single(shape.needs, shape.need, shape.selector, shape.rules)
        reason = explain.summary(reasons)
        items += [
            Waiting(name, left, reason, reasons, _waited(since[name], now))
            for name, left in _last_members(shape, count)
        ]
    items += [
        explain.gang(gang, draft.offers) for gang in (*draft.decisions.waiting_gangs, *draft.decisions.late_gangs)
    ]
    for request in draft.decisions.waiting_requests:
        assert draft.decisions.requests_table is not None
        items.append(explain.gang(request, draft.decisions.requests_table))
    for demand, mistake in draft.decisions.invalid:
        reason = Reason(Code.INVALID_DEMAND, f"{mistake}; correct it where it is submitted")
        items.append(Waiting(demand.id, demand.count, reason, {group.name: reason for group in draft.groups}))
    for demand in draft.decisions.held:
        reason = Reason(Code.UNKNOWN_INPUT if demand.not_understood else Code.NOT_TAKEN, demand.held)
        items.append(Waiting(demand.id, demand.count, reason, {group.name: reason for group in draft.groups}))
    return tuple(sorted(items, key=attrgetter("demand")))


def _waited(since: Seconds | None, now: Seconds) -> Seconds | None:
    """Returns how long a demand has waited, where that is known."""
    return None if since is None or since >= now else now - since


def _last_members(shape: Shape, count: int) -> Iterator[tuple[str, int]]:
    """Returns the demands of a shape that wait when ``count`` of its tasks do: members are served in order."""
    for name, wanted in reversed(shape.members):
        if not count:
            return
        left = min(wanted, count)
        count -= left
        yield name, left


def waiting_counts(draft: PlanDraft) -> dict[str, int]:
    """Returns how many tasks of each demand and request wait."""
    counts: dict[str, int] = {}
    for shape, count in draft.decisions.waiting_shapes:
        counts.update(_last_members(shape, count))
    refused = (*draft.decisions.held, *(one for one, _ in draft.decisions.invalid))
    whole = (*draft.decisions.waiting_gangs, *draft.decisions.late_gangs, *draft.decisions.waiting_requests, *refused)
    return counts | {demand.id: demand.count for demand in whole}


class Explainer:
    """Explains one finished draft; what depends on a group alone is computed once."""

    def __init__(self, draft: PlanDraft) -> None:
        self.draft = draft
        self.fresh = draft.group_table.fresh
        self._refusals: dict[tuple[int, int, bool], Reason | None] = {}
        self._labels = draft.group_table.labels

    def summary(self, reasons: Mapping[str, Reason]) -> Reason:
        """Returns the nearest blocker of any group, with the sentences of the groups that have it."""
        if not reasons:
            return Reason(Code.NO_SHAPE_FITS, "there is no group at all")
        codes = {reason.code for reason in reasons.values()}
        nearest = next((code for code in NEAREST if code in codes), Code.GANG_FORMING)
        sentences = [reason.why for _, reason in sorted(reasons.items()) if reason.code == nearest]
        shown = list(dict.fromkeys(sentences))[:SHOWN_GROUPS]  # groups of a family share one sentence
        more = sum(one not in shown for one in sentences)
        rest = f"; and {plural(more, 'more group')}" if more > 0 else ""
        code = Code.NO_SHAPE_FITS if nearest == Code.TOO_SMALL else nearest
        return Reason(code, "; ".join(shown) + rest)

    def single(
        self, needs: Amounts, need: Need, selector: Selector, rules: Rules = NO_RULES, *, lost: bool = False
    ) -> dict[str, Reason]:
        """Returns the blocker of each group for one more task; with ``lost``, groups without one are left out."""
        fits = (self.fresh.capacity(need) > 0).tolist()
        allowed = self.draft.eligibility.answers(selector)[0][self.draft.profile_index].tolist()
        blocked = self._rule_blocker(need, selector, rules)
        result = {}
        for index, group in enumerate(self.draft.groups):
            if not fits[index]:
                result[group.name] = too_small(group, needs)
            elif not allowed[index]:
                result[group.name] = self._mismatch(index, selector)
            elif blocked is not None and (reason := blocked.first(index, group)):
                result[group.name] = reason
            elif refusal := self._refusal(index, 1, gang=False):
                result[group.name] = refusal
            elif not lost:
                result[group.name] = _no_way(group, rules)
        return result

    def gang(self, demand: Demand, table: Offers) -> Waiting:
        """Returns why a gang, or a request, is not served whole."""
        draft = self.draft
        tasks = tasks_of(draft, demand)
        reasons = {group.name: self._gang_in(index, demand, tasks, table) for index, group in enumerate(draft.groups)}
        rules = next((one.rules for one in tasks if one.rules.binding), NO_RULES)
        limited = [group for group in draft.groups if reasons[group.name].code not in IMPOSSIBLE | CONSTRAINTS]
        if all(reason.code in IMPOSSIBLE for reason in reasons.values()):
            if any(reason.code == Code.GANG_SHAPE for reason in reasons.values()):
                reasons |= self._limits_of_mix(demand, table)
        elif limited and rules.binding and self._without_limits(demand, table) is None:
            # Its members keep each other out, which no limit changes.
            reasons |= {group.name: _no_way(group, rules) for group in limited}
        if demand.deadline is not None and draft.now >= demand.deadline:
            late = seconds(draft.now - demand.deadline)
            reason = Reason(Code.GANG_FORMING, f"its deadline passed {late} ago: it is not served any more")
            return Waiting(demand.id, demand.count, reason, reasons)
        waited = _waited(demand.since, draft.now)
        return Waiting(demand.id, demand.count, self.summary(reasons), reasons, waited)

    def _gang_in(self, index: int, demand: Demand, tasks: Tasks, table: Offers) -> Reason:
        draft, group = self.draft, self.draft.groups[index]
        fits = [self._fits(one) for one in tasks]
        part = [one for one, (sizes, allowed) in zip(tasks, fits, strict=True) if sizes[index] and allowed[index]]
        mixed = demand.gang in (None, Gang.ANY, Gang.SPREAD) and all((a & b).any() for a, b in fits)
        if len(part) < len(tasks) and not (part and mixed):
            for bundle in demand.bundles:
                if not self.fresh.capacity(Need.of(dict(bundle.needs), draft.kinds))[index]:
                    return too_small(group, bundle.needs)
            for one, (_, allowed) in zip(tasks, fits, strict=True):
                if not allowed[index]:
                    return self._mismatch(index, one.selector)
        if demand.gang == Gang.SAME_NODE and not holds_all(self.fresh, index, tasks):
            needs = format_needs(total_needs(demand.bundles))
            why = (
                f"all {demand.count} together need {needs}, a node of {group.name} has {format_needs(group.resources)}"
            )
            return Reason(Code.GANG_SHAPE, why)
        if demand.gang == Gang.SAME_SLICE and slices_for(demand.count, group.hosts) is None:
            why = f"a gang of {demand.count} does not divide into whole machines of {plural(group.hosts, 'host')}"
            return Reason(Code.GANG_SHAPE, f"{group.name}: {why}")
        for one in part:
            blocked = self._rule_blocker(one.need, one.selector, one.rules)
            if blocked is not None and (reason := blocked.first(index, group)):
                return reason
        slices = self._slices_alone(index, demand, part, table)
        if reason := self._refusal(index, slices, gang=demand.gang is not None):
            return reason
        if demand.deadline is not None and draft.now >= demand.deadline:
            return Reason(Code.GANG_FORMING, f"{group.name} could hold it, but its deadline has passed")
        return _no_way(group, next((one.rules for one in part if one.rules.binding), NO_RULES))

    def _fits(self, one: GangTasks) -> tuple[Bools, Bools]:
        """Returns the groups whose nodes are large enough, and those that conditions and taints allow."""
        allowed, _ = self.draft.eligibility.answers(one.selector)
        return self.fresh.capacity(one.need) > 0, allowed[self.draft.profile_index]

    def _rule_blocker(self, need: Need, selector: Selector, rules: Rules) -> RuleBlocker | None:
        """Returns the finder of the constraint between tasks that keeps a task out of a group; None: the task has
        none."""
        draft = self.draft
        classes = draft.offers.classes if draft.classes else None
        if classes is None or not (rules.binding or rules.classes):
            return None
        allowed, _ = draft.eligibility.answers(selector)
        large = self.fresh.capacity(need) > 0
        in_rows = allowed[draft.offers.profile] & large[draft.offers.group]
        return RuleBlocker(classes, rules, in_rows, allowed[draft.profile_index] & large)

    @cached_attribute
    def prices(self) -> list[str]:
        """The price of a slice of each group, as text."""
        return [f"{format_money(group.price or 0)}/h" for group in self.draft.groups]

    def _without_limits(self, demand: Demand, table: Offers) -> Counter[int] | None:
        """Returns how many slices of each group would be bought if there were no limits; None if even that would not
        serve it."""
        draft = self.draft
        bought = len(draft.purchases)
        checkpoint = draft.checkpoint(*dict.fromkeys((table, draft.offers)))
        with draft.limits.lifted():
            served = serve_whole(draft, table, demand, Code.DEMAND)
        if served is None:
            return None
        mix = Counter[int]()
        for purchase in draft.purchases[bought:]:
            mix[purchase.group] += purchase.slices
        draft.rollback(checkpoint)
        return mix

    def _limits_of_mix(self, demand: Demand, table: Offers) -> dict[str, Reason]:
        """Where no limit blocks a single group: returns the limits that a mix of groups would break, by group."""
        draft, limits, gang = self.draft, self.draft.limits, demand.gang is not None
        mix = self._without_limits(demand, table)
        if mix is None:
            return {}
        alone = {group: limits.refusal(group, count, gang) for group, count in sorted(mix.items())}
        found = {draft.groups[group].name: reason for group, reason in alone.items() if reason is not None}
        if not found and (reason := limits.refusal_of_mix(mix, gang)) is not None:
            found = {draft.groups[group].name: reason for group in mix}
        return found

    def _slices_alone(self, index: int, demand: Demand, tasks: Tasks, table: Offers) -> int:
        """Returns the new slices of this group alone that the gang would need besides existing room."""
        draft, group = self.draft, self.draft.groups[index]
        if demand.gang == Gang.SAME_NODE:
            return 1
        if demand.gang == Gang.SAME_SLICE:
            return max(1, slices_missing(draft, table, demand, index))
        left = []
        checkpoint, on_them = draft.checkpoint(table), np.zeros(len(table), np.bool_)
        for one in tasks:
            if demand.gang == Gang.SPREAD:
                taken = table.place_apart(one.need, one.selector, one.count, on_them)
                on_them[taken.rows] = True
            else:
                taken = table.place(one.need, one.selector, one.count)
            left.append(one.count - taken.total)
        draft.rollback(checkpoint)
        if demand.gang == Gang.SPREAD:
            return max(1, -(-sum(left) // group.hosts))
        return max(1, self._filled(index, [one.need for one in tasks], left))

    def _filled(self, index: int, needs: Sequence[Need], counts: Sequence[int]) -> int:
        """Returns how many slices of one group hold these tasks, packed hardest first, without limits."""
        left, slices = list(counts), 0
        while any(left):
            room = Room.fresh(
                self.draft.kinds, np.repeat(self.draft.totals[[index]], self.draft.groups[index].hosts, axis=0)
            )
            filled = []
            for need, count in zip(needs, left, strict=True):
                fits = np.minimum(room.capacity(need), count)
                taken = np.clip(count - (np.cumsum(fits) - fits), 0, fits)
                rows = np.flatnonzero(taken)
                room.take(need, rows, taken[rows])
                filled.append(int(taken.sum()))
            times = min(have // used for have, used in zip(left, filled, strict=True) if used)
            left = [have - used * times for have, used in zip(left, filled, strict=True)]
            slices += times
        return slices

    def _refusal(self, group: int, slices: int, *, gang: bool) -> Reason | None:
        key = (group, slices, gang)
        if key not in self._refusals:
            self._refusals[key] = self.draft.limits.refusal(group, slices, gang)
        return self._refusals[key]

    # -- conditions and taints --------------------------------------------------------------------------------------

    def _mismatch(self, index: int, selector: Selector) -> Reason:
        where, _, tolerates, any_of = selector
        group, labels = self.draft.groups[index], self.draft.group_table.node_labels[index]
        for condition in where:
            if not condition.holds(labels):
                return Reason(Code.NO_LABEL_MATCH, f"{group.name}: {self._unmet(condition, labels)}")
        for alternatives in any_of:
            unmet = [next((c for c in one if not c.holds(labels)), None) for one in alternatives]
            if None not in unmet:
                text = " and ".join(self._unmet(condition, labels) for condition in unmet[:2] if condition is not None)
                return Reason(Code.NO_LABEL_MATCH, f"{group.name} meets none of any_of: {text}")
        taint = untolerated(group.taints, tolerates)[0]
        return Reason(Code.NOT_TOLERATED, f"{group.name} has the taint {taint}, which is not tolerated")

    def _unmet(self, condition: Condition, labels: Mapping[str, str]) -> str:
        have = labels.get(condition.key)
        text = f"{condition} does not hold: " + (
            f"it has no label {condition.key}" if have is None else f"it has {have}"
        )
        values = self._labels.get(condition.key)
        if values is None:
            return text + "; no group has it" + _did_you_mean(nearest_names(condition.key, self._labels))
        if condition.op in ("==", "in") and not values.intersection(condition.values):
            meant = dict.fromkeys(name for value in condition.values for name in nearest_names(value, values))
            wanted = f"{condition.key} {' or '.join(condition.values)}"
            return f"{text}; no group has {wanted}{_did_you_mean(list(meant))}"
        return text


def _did_you_mean(names: Sequence[str]) -> str:
    return f", did you mean {' or '.join(names[:2])}?" if names else ""


def too_small(group: Group, needs: Amounts) -> Reason:
    """Says which resource a node of the group has too little of."""
    have = dict(group.resources)
    for name, amount in needs:
        if amount > have.get(name, 0):
            has = (
                f"a node of {group.name} has {format_quantity(have[name], name)}"
                if name in have
                else f"{group.name} has none"
            )
            return Reason(Code.TOO_SMALL, f"needs {format_amount(amount, name)}, {has}")
    return Reason(Code.TOO_SMALL, f"needs {format_needs(needs)}, which a node of {group.name} cannot hold")


def _no_way(group: Group, rules: Rules = NO_RULES) -> Reason:
    for code, some in ((Code.APART, rules.apart), (Code.SPREAD, rules.spread), (Code.TOGETHER, rules.together)):
        if some:
            text = " and ".join(map(str, some))
            return Reason(code, f"{group.name} could hold it, but not within its constraint: {text}")
    return Reason(Code.GANG_SHAPE, f"{group.name} could hold a part, but no way was found to place all of it")
