"""This module serves a gang completely or not at all.

A gang is tried on free room, then on slices that can be called back, then on slices in flight, then on new slices. If
it does not fit whole, everything is rolled back. The four kinds are four functions; each returns where the gang went,
or None, in which case the caller rolls back. Standing requests use the same functions, on a table of total instead of
free room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from windlass.core.buying.market import Market
from windlass.core.buying.strategies import Choice
from windlass.core.capacity.offers import Offers
from windlass.core.capacity.room import Bools, Need, Room
from windlass.core.demand import MEMBER
from windlass.core.model.constraints import NODE, Apart, Rules
from windlass.core.model.reasons import Code
from windlass.core.model.snapshot import Demand, Gang
from windlass.core.placement.joint_purchases import Item
from windlass.core.plan_draft import PlanDraft, Served, record

from .constrained import ConstrainedPlacement
from .gang_attempt import Load, Tasks, Try, best_group, try_of
from .gang_slices import on_whole_slices, take_on_own_hosts


def serve_whole(draft: PlanDraft, table: Offers, demand: Demand, code: Code) -> Served | None:
    """Serves the whole demand and returns where it went, or changes nothing and returns None."""
    attempt = try_of(draft, table, demand, code)
    checkpoint = draft.checkpoint(*attempt.tables())
    match demand.gang:
        case None | Gang.ANY:
            served = _anywhere(attempt)
        case Gang.SAME_NODE:
            served = _on_one_node(attempt)
        case Gang.SAME_SLICE:
            served = on_whole_slices(attempt)
        case Gang.SPREAD:
            served = _on_own_nodes(attempt)
    if served is None:
        draft.rollback(checkpoint)
    return served


def holds_gang(draft: PlanDraft, demand: Demand, rows: Bools) -> bool:
    """Whether the gang would fit on these rows alone, without anything new."""
    offers, limits = draft.offers, draft.limits
    checkpoint, was_closed, was_open = draft.checkpoint(offers), limits.closed, offers.open.copy()
    offers.open[:] &= rows
    limits.closed = True
    served = serve_whole(draft, offers, demand, Code.DEMAND)
    limits.closed = was_closed
    draft.rollback(checkpoint)
    offers.open[:] = was_open
    return served is not None


# -- any -----------------------------------------------------------------------------------------------------------


def _anywhere(attempt: Try) -> Served | None:
    return _within_rules(attempt) if attempt.has_rules else place_and_buy([attempt])


def _within_rules(attempt: Try, more: Rules | None = None) -> Served | None:
    """Serves every member within its constraints, and within additional ones that hold for all of them."""
    items = [
        Item(one.need, one.selector, one.rules.plus(more) if more else one.rules, one.count, attempt.demand.id)
        for one in attempt.tasks
    ]
    is_gang = attempt.demand.gang is not None
    parts = ConstrainedPlacement(attempt.draft, attempt.table, items, attempt.code, gang=is_gang, whole=True).serve()
    served = Served()
    for index, (item, part) in enumerate(zip(items, parts, strict=True)):
        if part.count < item.count:
            return None
        served.include(part, index)
    return served


def place_and_buy(attempts: Sequence[Try]) -> Served | None:
    """Places all tasks, of one demand or of several, and buys for the rest; None when not all of them can be served."""
    draft, served, left = attempts[0].draft, Served(), []
    tasks = [(attempt, index, one) for attempt in attempts for index, one in enumerate(attempt.tasks)]
    for attempt, index, one in tasks:
        taken = attempt.table.place(one.need, one.selector, one.count)
        record(served, attempt.table, taken, index)
        left.append(one.count - taken.total)
    if not any(left):
        return served
    # A plain request obeys the launch rate, a gang may exceed it.
    is_gang = all(attempt.demand.gang for attempt in attempts)
    needs, selectors = [one.need for _, _, one in tasks], [one.selector for _, _, one in tasks]
    stages = draft.stages(selectors)
    for stage in range(stages):
        market = draft.market(needs, left, selectors, gang=is_gang, stage=stage)
        choices = draft.choose(market)
        if _bought(choices) < sum(left) and stage == stages - 1:
            alone = _from_one_group(draft, market)
            if alone is None:
                return None
            choices = alone
        for choice in choices:
            batch = choice.batch
            filled = np.flatnonzero(batch.fill).tolist()
            fill = [(market.needs[row], int(batch.fill[row])) for row in filled]
            attempt = tasks[choice.shape][0]
            purchase = attempt.buy(batch.group, batch.slices, int(batch.fill.sum()), fill, choice)
            positions = purchase.position + np.arange(batch.slices)
            for row in filled:
                served.add(positions, np.full(batch.slices, int(batch.fill[row])), None, tasks[row][1])
                left[row] -= int(batch.fill[row]) * batch.slices
    return None if any(left) else served


def _bought(choices: list[Choice]) -> int:
    return sum(int(choice.batch.fill.sum()) * choice.batch.slices for choice in choices)


def _from_one_group(draft: PlanDraft, market: Market) -> list[Choice] | None:
    """Tries single groups: a mix of groups that reaches a limit may hide that one group alone could hold the gang."""
    options = []
    for group in range(len(draft.groups)):
        alone = np.where(np.arange(len(draft.groups)) == group, market.headroom, 0)
        choices = draft.choose(replace(market, headroom=alone))
        if _bought(choices) == int(market.counts.sum()):
            slices = sum(choice.batch.slices for choice in choices)
            cost = slices * int(market.price[group]) if draft.strategy == "cheapest" else 0
            nodes = slices * int(market.hosts[group])
            options.append(((cost, int(market.rank[group]), nodes, group), choices))
    return min(options, key=lambda item: item[0])[1] if options else None


# -- same-node -----------------------------------------------------------------------------------------------------


def together(tasks: Tasks) -> Need:
    """Returns the least that a node must have to hold all tasks: the sums of their needs. ``holds_all`` checks shares
    of devices."""
    plain: dict[int, int] = {}
    whole: dict[tuple[int, int], int] = {}
    unknown: list[str] = []
    for one in tasks:
        need, count = one.need, one.count
        unknown += need.unknown
        for column, amount in need.plain:
            plain[column] = plain.get(column, 0) + amount * count
        for index, column, amount in need.whole:
            whole[index, column] = whole.get((index, column), 0) + amount * count
    return Need(
        tuple(sorted(plain.items())),
        tuple((index, column, amount) for (index, column), amount in sorted(whole.items())),
        (),
        tuple(unknown),
    )


def _whole_first(tasks: Tasks) -> Tasks:
    """Sorts tasks: whole devices before shares, larger shares before smaller ones. This wastes the fewest devices."""
    return sorted(tasks, key=lambda one: (bool(one.need.shares), -sum(amount for _, _, amount in one.need.shares)))


def holds_all(room: Room, row: int, tasks: Tasks) -> bool:
    """Whether one node takes all tasks at once."""
    node, first = room.rows(np.array([row])), np.zeros(1, np.int64)
    for one in _whole_first(tasks):
        if int(node.capacity(one.need)[0]) < one.count:
            return False
        node.take(one.need, first, np.array([one.count]))
    return True


def _on_one_node(attempt: Try) -> Served | None:
    """Places all members on one node, an existing one first."""
    draft, table = attempt.draft, attempt.table
    floor = together(attempt.tasks)
    fits = table.capacity(floor, attempt.tasks[0].selector) > 0
    for one in attempt.tasks[1:]:
        fits &= table.capacity(one.need, one.selector) > 0
    rows = np.flatnonzero(fits)
    if len(rows):
        for row in table.in_order(rows, floor, attempt.tasks[0].selector).tolist():
            if holds_all(table.room, row, attempt.tasks) and _allowed_on(attempt, row):
                return _take_all(attempt, row)
    fresh = draft.group_table.fresh
    allowed = np.logical_and.reduce([attempt.allowed_groups(one) for one in attempt.tasks])
    candidates: dict[int, tuple[int, Load]] = {}
    load = [(one, one.count) for one in attempt.tasks]
    for group in np.flatnonzero((fresh.capacity(floor) > 0) & allowed).tolist():
        if draft.limits.headroom(group, gang=True) > 0 and holds_all(fresh, group, attempt.tasks):
            candidates[group] = (1, load)
    while candidates:
        best = best_group(attempt, candidates)
        assert best is not None
        checkpoint = draft.checkpoint(*attempt.tables())
        attempt.buy(best, 1, attempt.size)
        row = len(table) - draft.groups[best].hosts
        if _allowed_on(attempt, row):
            return _take_all(attempt, row)
        draft.rollback(checkpoint)
        del candidates[best]
    return None


def _allowed_on(attempt: Try, row: int) -> bool:
    if not attempt.has_rules:
        return True
    return attempt.rules_hold([(one, np.array([row]), np.array([one.count])) for one in attempt.tasks])


def _take_all(attempt: Try, row: int) -> Served:
    table, served, at = attempt.table, Served(), np.array([row])
    for one in _whole_first(attempt.tasks):
        table.room.take(one.need, at, np.array([one.count]))
    for index, one in enumerate(attempt.tasks):
        attempt.count_on(one, at, np.array([one.count]))
        served.add(table.position[at], np.array([one.count]), at, index)
    return served


# -- spread --------------------------------------------------------------------------------------------------------


def _on_own_nodes(attempt: Try) -> Served | None:
    """Places each member on a node of its own."""
    draft, table = attempt.draft, attempt.table
    if attempt.has_rules or (table.classes is not None and _has_several_hosts(attempt)):
        assert table.classes is not None
        table.classes.forget(MEMBER)
        served = _within_rules(attempt, Rules((MEMBER,), (Apart(MEMBER, NODE),)))
        if served is not None:
            return served
        if attempt.has_rules:
            return None
        draft.offers.room.mark()
    return _own_nodes_one_by_one(attempt)


def _has_several_hosts(attempt: Try) -> bool:
    """Whether some group that the gang could be bought in has several hosts: then it matters how many members it
    takes."""
    draft, fresh = attempt.draft, attempt.draft.group_table.fresh
    return any(
        bool(((draft.hosts > 1) & attempt.allowed_groups(one) & (fresh.capacity(one.need) > 0)).any())
        for one in attempt.tasks
    )


def _own_nodes_one_by_one(attempt: Try) -> Served | None:
    draft, table, served = attempt.draft, attempt.table, Served()
    taken_rows = np.zeros(len(table), np.bool_)
    rest: list[tuple[int, int]] = []
    for index, one in enumerate(attempt.tasks):
        taken = table.place_apart(one.need, one.selector, one.count, taken_rows)
        taken_rows[taken.rows] = True
        record(served, table, taken, index)
        if taken.total < one.count:
            rest.append((index, one.count - taken.total))
    fresh = draft.group_table.fresh
    fits = {
        index: (fresh.capacity(attempt.tasks[index].need) > 0) & attempt.allowed_groups(attempt.tasks[index])
        for index, _ in rest
    }
    while rest:
        loads: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        load_of: dict[int, list[tuple[int, int]]] = {}
        candidates: dict[int, tuple[int, Load]] = {}
        for group in np.flatnonzero(fits[rest[0][0]]).tolist():
            if draft.limits.headroom(group, gang=True) > 0:
                form = (*(bool(fits[index][group]) for index, _ in rest), int(draft.hosts[group]))
                if form not in loads:
                    loads[form] = _one_each([task for task in rest if fits[task[0]][group]], int(draft.hosts[group]))
                load_of[group] = loads[form]
                candidates[group] = (1, [(attempt.tasks[index], count) for index, count in loads[form]])
        best = best_group(attempt, candidates, mixed=True)
        if best is None:
            return None
        load, hosts = load_of[best], int(draft.hosts[best])
        left = dict(rest)
        times = min(draft.limits.headroom(best, gang=True), *(left[index] // count for index, count in load))
        purchase = attempt.buy(best, times, sum(count for _, count in load))
        take_on_own_hosts(attempt, len(table) - times * hosts, load, times, hosts)
        for index, count in load:
            served.add(purchase.position + np.arange(times), np.full(times, count), None, index)
        used = dict(load)
        rest = [(index, count - used.get(index, 0) * times) for index, count in rest]
        rest = [(index, count) for index, count in rest if count]
    return served


def _one_each(tasks: Sequence[tuple[int, int]], hosts: int) -> list[tuple[int, int]]:
    """Returns what one new slice takes when every task needs a host of its own."""
    load: list[tuple[int, int]] = []
    for index, count in tasks:
        some = min(count, hosts)
        if some:
            load.append((index, some))
            hosts -= some
    return load
