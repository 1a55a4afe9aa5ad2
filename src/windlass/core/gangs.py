"""Gangs: all of it or none of it.

A gang is tried on what is free, then what can be called back, then what is on its way, then on new slices. If it does
not fit whole, everything that was tried for it is taken back. The four ways of lying to each other are four functions;
each returns where the gang went, or None, in which case the caller rolls back. Standing requests go the same way, on a
table of total instead of free room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .choosing import Choice, Key, fit_score
from .draft import Draft, Purchase, Served, record
from .market import Market
from .offers import Offers
from .reasons import Code
from .room import Ints, Need, Room
from .shapes import Selector, bundles_in_order, selector_of
from .snapshot import Demand, Gang

Tasks = Sequence[tuple[Need, int]]


@dataclass(frozen=True, slots=True)
class Try:
    """One attempt to serve a demand whole: the table it goes on and why slices are bought for it."""

    draft: Draft
    table: Offers
    demand: Demand
    selector: Selector
    tasks: Tasks
    code: Code

    def tables(self) -> tuple[Offers, ...]:
        """The table it goes on, and, for a request, the free room beside it."""
        return (self.table,) if self.table is self.draft.offers else (self.table, self.draft.offers)

    def buy(self, group: int, slices: int, tasks: Tasks = (), choice: Choice | None = None) -> Purchase:
        """Buy slices with these tasks on each. Requested room is free room: demand finds it empty."""
        purchase = self.draft.buy(group, slices, self.code, self.demand.id, choice)
        self.draft.offer(purchase, self.table, tasks=tasks)
        if self.table is not self.draft.offers:
            self.draft.offer(purchase, self.draft.offers)
        return purchase

    @property
    def size(self) -> int:
        return sum(count for _, count in self.tasks)


def tasks_of(draft: Draft, demand: Demand) -> Tasks:
    """Its tasks as needs with counts, the hardest first."""
    return [(Need.of(dict(b.needs), draft.kinds), b.count) for b in bundles_in_order(demand, draft.largest)]


def try_of(draft: Draft, table: Offers, demand: Demand, code: Code) -> Try:
    return Try(draft, table, demand, selector_of(demand), tasks_of(draft, demand), code)


def serve_whole(draft: Draft, table: Offers, demand: Demand, code: Code) -> Served | None:
    """Place and buy for the whole demand, or change nothing and return None."""
    attempt = try_of(draft, table, demand, code)
    checkpoint = draft.checkpoint(*attempt.tables())
    match demand.gang:
        case None | Gang.ANY:
            served = _anywhere(attempt)
        case Gang.SAME_NODE:
            served = _on_one_node(attempt)
        case Gang.SAME_SLICE:
            served = _on_whole_slices(attempt)
        case Gang.SPREAD:
            served = _apart(attempt)
    if served is None:
        draft.rollback(checkpoint)
    return served


# -- any -----------------------------------------------------------------------------------------------------------


def _anywhere(attempt: Try) -> Served | None:
    return place_and_buy([(attempt, need, count) for need, count in attempt.tasks])


def place_and_buy(tasks: Sequence[tuple[Try, Need, int]]) -> Served | None:
    """Place all tasks, of one demand or of several, and buy for the rest; None when not all of them can be served."""
    attempt = tasks[0][0]
    draft, served, left = attempt.draft, Served(), []
    for one, need, count in tasks:
        taken = one.table.place(need, one.selector, count)
        record(served, one.table, taken)
        left.append(count - taken.total)
    if not any(left):
        return served
    needs = [need for _, need, _ in tasks]
    market = draft.market(needs, left, [one.selector for one, _, _ in tasks], gang=True)
    choices = draft.choose(market)
    if _bought(choices) < sum(left):
        alone = _from_one_group(draft, market)
        if alone is None:
            return None
        choices = alone
    for choice in choices:
        batch = choice.batch
        fill = [(needs[index], int(batch.fill[index])) for index in np.flatnonzero(batch.fill)]
        purchase = tasks[choice.shape][0].buy(batch.group, batch.slices, fill, choice)
        positions = purchase.position + np.arange(batch.slices)
        served.add(positions, np.full(batch.slices, int(batch.fill.sum())))
    return served


def _bought(choices: list[Choice]) -> int:
    return sum(int(choice.batch.fill.sum()) * choice.batch.slices for choice in choices)


def _from_one_group(draft: Draft, market: Market) -> list[Choice] | None:
    """A mix of groups that runs into a ceiling may hide that one group alone could hold the gang."""
    found = []
    for group in range(len(draft.groups)):
        alone = np.where(np.arange(len(draft.groups)) == group, market.headroom, 0)
        choices = draft.choose(replace(market, headroom=alone))
        if _bought(choices) == int(market.counts.sum()):
            slices = sum(choice.batch.slices for choice in choices)
            cost = slices * int(market.price[group]) if draft.strategy == "cheapest" else 0
            nodes = slices * int(market.hosts[group])
            found.append(((cost, int(market.rank[group]), nodes, group), choices))
    return min(found, key=lambda item: item[0])[1] if found else None


# -- same-node -----------------------------------------------------------------------------------------------------


def together(tasks: Tasks) -> Need:
    """What a node must have at the least to hold all tasks: sums, with shares left to ``holds_all``."""
    plain: dict[int, int] = {}
    whole: dict[tuple[int, int], int] = {}
    unknown: list[str] = []
    for need, count in tasks:
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
    """Whole devices before shares, larger shares before smaller ones: the order that wastes the fewest devices."""
    return sorted(tasks, key=lambda item: (bool(item[0].shares), -sum(amount for _, _, amount in item[0].shares)))


def holds_all(room: Room, row: int, tasks: Tasks) -> bool:
    """Whether one node takes all tasks at once."""
    node, first = room.rows(np.array([row])), np.zeros(1, np.int64)
    for need, count in _whole_first(tasks):
        if int(node.capacity(need)[0]) < count:
            return False
        node.take(need, first, np.array([count]))
    return True


def _take_all(table: Offers, row: int, tasks: Tasks) -> None:
    for need, count in _whole_first(tasks):
        table.room.take(need, np.array([row]), np.array([count]))


def _on_one_node(attempt: Try) -> Served | None:
    draft, table, selector = attempt.draft, attempt.table, attempt.selector
    floor = together(attempt.tasks)
    rows = np.flatnonzero(table.capacity(floor, selector))
    if len(rows):
        for row in table.in_order(rows, floor, selector):
            if holds_all(table.room, int(row), attempt.tasks):
                _take_all(table, int(row), attempt.tasks)
                served = Served()
                served.add(table.position[[row]], np.array([attempt.size]))
                return served
    fresh = Room.fresh(draft.kinds, draft.totals)
    allowed, _ = draft.eligibility.answers(selector)
    candidates = {}
    for group in np.flatnonzero(fresh.capacity(floor)):
        fits = allowed[draft.profiles[group]] and draft.ledger.headroom(int(group), gang=True) > 0
        if fits and holds_all(fresh, int(group), attempt.tasks):
            candidates[int(group)] = (1, attempt.tasks)
    best = _best_group(attempt, candidates)
    if best is None:
        return None
    attempt.buy(best, 1)
    row = len(table) - draft.groups[best].hosts
    _take_all(table, row, attempt.tasks)
    served = Served()
    served.add(table.position[[row]], np.array([attempt.size]))
    return served


def _best_group(attempt: Try, candidates: dict[int, tuple[int, Tasks]]) -> int | None:
    """Of groups with (slices needed, tasks on one slice), the one that the strategy takes."""
    if not candidates:
        return None
    draft = attempt.draft
    market = draft.market((), (), ())
    _, unmet_by_profile = draft.eligibility.answers(attempt.selector)
    sticky = draft.sticky()

    def key(group: int) -> Key:
        slices, tasks = candidates[group]
        unmet, rank = float(unmet_by_profile[draft.profiles[group]]), float(draft.rank[group])
        if draft.strategy == "cheapest":
            return float(slices * int(draft.price[group])), unmet, float(slices), rank
        if draft.strategy == "rank":
            return rank, unmet, float(not sticky[group])
        used = np.zeros(len(draft.kinds.names), np.int64)
        for need, count in tasks:
            for column, amount in need.amounts():
                used[column] += amount * count
        return unmet, *fit_score(market, group, used)

    return min(candidates, key=lambda group: (key(group), group))


# -- same-slice ----------------------------------------------------------------------------------------------------


def slices_for(size: int, hosts: int) -> int | None:
    """Whole slices that a gang of this size takes; None when it cannot be cut into whole slices."""
    if size <= hosts:
        return 1
    return size // hosts if size % hosts == 0 else None


def _on_whole_slices(attempt: Try) -> Served | None:
    draft, table = attempt.draft, attempt.table
    instances = [need for need, count in attempt.tasks for _ in range(count)]
    fresh = Room.fresh(draft.kinds, draft.totals)
    fits = np.minimum.reduce([fresh.capacity(need) for need, _ in attempt.tasks])
    allowed, _ = draft.eligibility.answers(attempt.selector)
    options: dict[int, tuple[int, Tasks]] = {}
    running: dict[int, list[tuple[int, list[int]]]] = {}
    for group, kind in enumerate(draft.groups):
        slices = slices_for(len(instances), kind.hosts)
        if slices is None:
            continue
        per_slice = min(len(instances), kind.hosts)
        chunks = [instances[start : start + per_slice] for start in range(0, len(instances), per_slice)]
        running[group] = _usable_slices(attempt, group, chunks)
        new = slices - len(running[group])
        if new == 0 or (
            fits[group] and allowed[draft.profiles[group]] and draft.ledger.headroom(group, gang=True) >= new
        ):
            options[group] = (new, [(need, 1) for need in chunks[0]])
    if not options:
        return None
    fewest = min(new for new, _ in options.values())
    near = {group: option for group, option in options.items() if option[0] == fewest}
    tier = {group: max((int(table.tier[rows[0]]) for _, rows in running[group]), default=0) for group in near}
    nearest = min(tier.values())
    best = _best_group(attempt, {group: near[group] for group in near if tier[group] == nearest})
    assert best is not None
    return _take_whole_slices(attempt, best, running[best], near[best][0], instances)


def _take_whole_slices(
    attempt: Try, group: int, running: list[tuple[int, list[int]]], new: int, instances: list[Need]
) -> Served:
    draft, served, rest = attempt.draft, Served(), instances
    per_slice = min(len(instances), draft.groups[group].hosts)
    for position, rows in running:
        for need, row in zip(rest, rows, strict=False):
            attempt.table.take_one(need, row)
        served.add(np.array([position]), np.array([min(per_slice, len(rest))]))
        rest = rest[per_slice:]
    if new:
        purchase = attempt.buy(group, new)
        first = len(attempt.table) - new * draft.groups[group].hosts
        for index, need in enumerate(rest):
            attempt.table.take_one(need, first + index)
        served.add(purchase.position + np.arange(new), np.full(new, per_slice))
    return served


def _usable_slices(attempt: Try, group: int, chunks: list[list[Need]]) -> list[tuple[int, list[int]]]:
    """Slices of the group that can take the next chunk whole, one task a host: (position, a row for each task)."""
    table = attempt.table
    found: list[tuple[int, list[int]]] = []
    capacity = {need: table.capacity(need, attempt.selector) for need, _ in attempt.tasks}
    rows = np.flatnonzero((table.group == group) & np.logical_or.reduce([c > 0 for c in capacity.values()]))
    if not len(rows):
        return []
    _, unmet = table.eligibility.answers(attempt.selector)
    left = table.room.left_share(attempt.tasks[0][0], rows)
    by_slice: dict[int, list[int]] = {}
    for index, row in enumerate(rows):
        by_slice.setdefault(int(table.position[row]), []).append(index)
    order = sorted(
        by_slice,
        key=lambda p: (
            int(table.tier[rows[by_slice[p][0]]]),
            int(unmet[table.profile[rows[by_slice[p]]]].max()),
            float(left[by_slice[p]].mean()),
            p,
        ),
    )
    for position in order:
        if len(found) == len(chunks):
            break
        hosts = [int(rows[index]) for index in by_slice[position]]
        matched = match(chunks[len(found)], hosts, capacity)
        if matched is not None:
            found.append((position, matched))
    return found


def match(needs: Sequence[Need], rows: Sequence[int], capacity: dict[Need, Ints]) -> list[int] | None:
    """A different row for each need, by augmenting paths; None when there is no such assignment."""
    if len(rows) < len(needs):
        return None
    holder: dict[int, int] = {}

    def assign(index: int, seen: set[int]) -> bool:
        for row in rows:
            if row not in seen and capacity[needs[index]][row] > 0:
                seen.add(row)
                if row not in holder or assign(holder[row], seen):
                    holder[row] = index
                    return True
        return False

    if not all(assign(index, set()) for index in range(len(needs))):
        return None
    by_need = {index: row for row, index in holder.items()}
    return [by_need[index] for index in range(len(needs))]


# -- spread --------------------------------------------------------------------------------------------------------


def _apart(attempt: Try) -> Served | None:
    draft, table, served = attempt.draft, attempt.table, Served()
    apart = np.zeros(len(table), np.bool_)
    rest: list[tuple[Need, int]] = []
    for need, count in attempt.tasks:
        taken = table.place_apart(need, attempt.selector, count, apart)
        apart[taken.rows] = True
        record(served, table, taken)
        if taken.total < count:
            rest.append((need, count - taken.total))
    allowed, _ = draft.eligibility.answers(attempt.selector)
    fresh = Room.fresh(draft.kinds, draft.totals)
    while rest:
        candidates = {}
        for group, kind in enumerate(draft.groups):
            load = _one_each(rest, kind.hosts, fresh, group)
            if load and load[0][0] == rest[0][0] and allowed[draft.profiles[group]]:
                candidates[group] = load
        open_to = {g: (1, load) for g, load in candidates.items() if draft.ledger.headroom(g, gang=True) > 0}
        best = _best_group(attempt, open_to)
        if best is None:
            return None
        load = open_to[best][1]
        left = dict(rest)
        times = min(draft.ledger.headroom(best, gang=True), *(left[need] // count for need, count in load))
        purchase = attempt.buy(best, times)
        _take_apart(table, len(table) - times * draft.groups[best].hosts, load, times)
        size = sum(count for _, count in load)
        served.add(purchase.position + np.arange(times), np.full(times, size))
        used = dict(load)
        rest = [(need, count - used.get(need, 0) * times) for need, count in rest]
        rest = [(need, count) for need, count in rest if count]
    return served


def _one_each(rest: Tasks, hosts: int, fresh: Room, group: int) -> Tasks:
    """What one new slice takes when every task needs a host of its own."""
    load: list[tuple[Need, int]] = []
    for need, count in rest:
        if hosts and fresh.capacity(need)[group] > 0:
            load.append((need, min(count, hosts)))
            hosts -= load[-1][1]
    return load


def _take_apart(table: Offers, first: int, load: Tasks, times: int) -> None:
    """Put the load on each of ``times`` slices whose rows start at ``first``, one task a host."""
    hosts = (len(table) - first) // times
    host = 0
    for need, count in load:
        offsets = np.arange(host, host + count)
        rows = (first + np.arange(times)[:, None] * hosts + offsets[None, :]).ravel()
        table.room.take(need, rows, np.ones(len(rows), np.int64))
        host += count


# -- forming -------------------------------------------------------------------------------------------------------


def serve_partly(draft: Draft, demand: Demand) -> set[int]:
    """Slices of the snapshot that members of a gang would use now, although it cannot start whole."""
    attempt = try_of(draft, draft.offers, demand, Code.DEMAND)
    table, positions = draft.offers, set()
    checkpoint = draft.checkpoint(table)
    if demand.gang == Gang.SAME_SLICE:
        instances = [need for need, count in attempt.tasks for _ in range(count)]
        for group, kind in enumerate(draft.groups):
            if slices_for(len(instances), kind.hosts):
                per_slice = min(len(instances), kind.hosts)
                chunks = [instances[start : start + per_slice] for start in range(0, len(instances), per_slice)]
                positions |= {position for position, _ in _usable_slices(attempt, group, chunks)}
    elif demand.gang != Gang.SAME_NODE:
        apart = np.zeros(len(table), np.bool_)
        for need, count in attempt.tasks:
            if demand.gang == Gang.SPREAD:
                taken = table.place_apart(need, attempt.selector, count, apart)
                apart[taken.rows] = True
            else:
                taken = table.place(need, attempt.selector, count)
            positions |= set(table.position[taken.rows].tolist())
    draft.rollback(checkpoint)
    return {position for position in positions if position < len(draft.slices)}
