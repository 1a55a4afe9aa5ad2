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

from windlass.core.buying.market import Market
from windlass.core.buying.strategies import Choice, Key, fit_scores
from windlass.core.capacity.offers import Offers
from windlass.core.capacity.room import Need, Room
from windlass.core.demand import bundles_in_order
from windlass.core.model.plan import Waiting
from windlass.core.model.reasons import IMPOSSIBLE, TRANSIENT, Code
from windlass.core.model.snapshot import Demand, Gang, Selector, selector_of
from windlass.core.plan_draft import PlanDraft, Purchase, Served, record

from .host_matching import match

Tasks = Sequence[tuple[Need, int]]


@dataclass(frozen=True, slots=True)
class Try:
    """One attempt to serve a demand whole: the table it goes on and why slices are bought for it."""

    draft: PlanDraft
    table: Offers
    demand: Demand
    selector: Selector
    tasks: Tasks
    code: Code

    def tables(self) -> tuple[Offers, ...]:
        """The table it goes on, and, for a request, the free room beside it."""
        return (self.table,) if self.table is self.draft.offers else (self.table, self.draft.offers)

    def buy(self, group: int, slices: int, size: int, tasks: Tasks = (), choice: Choice | None = None) -> Purchase:
        """Buy slices for ``size`` tasks each, those of ``tasks`` put there at once, the others by the caller.

        Requested room is free room: demand finds it empty.
        """
        purchase = self.draft.buy(group, slices, self.code, self.demand.id, choice, ((self.demand.id, size),))
        self.draft.offer(purchase, self.table, tasks=tasks)
        if self.table is not self.draft.offers:
            self.draft.offer(purchase, self.draft.offers)
        return purchase

    @property
    def size(self) -> int:
        return sum(count for _, count in self.tasks)


def tasks_of(draft: PlanDraft, demand: Demand) -> Tasks:
    """Its tasks as needs with counts, the hardest first."""
    known = draft.layout.tasks
    if demand.bundles not in known:
        bundles = bundles_in_order(demand, draft.largest)
        known[demand.bundles] = tuple((Need.of(dict(one.needs), draft.kinds), one.count) for one in bundles)
    return known[demand.bundles]


def try_of(draft: PlanDraft, table: Offers, demand: Demand, code: Code) -> Try:
    return Try(draft, table, demand, selector_of(demand), tasks_of(draft, demand), code)


def serve_whole(draft: PlanDraft, table: Offers, demand: Demand, code: Code) -> Served | None:
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
    is_gang = all(one.demand.gang for one, _, _ in tasks)  # a plain request obeys the launch rate, a gang may overshoot
    market = draft.market(needs, left, [one.selector for one, _, _ in tasks], gang=is_gang)
    choices = draft.choose(market)
    if _bought(choices) < sum(left):
        alone = _from_one_group(draft, market)
        if alone is None:
            return None
        choices = alone
    for choice in choices:
        batch = choice.batch
        fill = [(needs[index], int(batch.fill[index])) for index in np.flatnonzero(batch.fill)]
        purchase = tasks[choice.shape][0].buy(batch.group, batch.slices, int(batch.fill.sum()), fill, choice)
        positions = purchase.position + np.arange(batch.slices)
        served.add(positions, np.full(batch.slices, int(batch.fill.sum())))
    return served


def _bought(choices: list[Choice]) -> int:
    return sum(int(choice.batch.fill.sum()) * choice.batch.slices for choice in choices)


def _from_one_group(draft: PlanDraft, market: Market) -> list[Choice] | None:
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
    fresh = draft.group_table.fresh
    allowed, _ = draft.eligibility.answers(selector)
    candidates = {}
    for group in np.flatnonzero(fresh.capacity(floor)):
        fits = allowed[draft.profiles[group]] and draft.ledger.headroom(int(group), gang=True) > 0
        if fits and holds_all(fresh, int(group), attempt.tasks):
            candidates[int(group)] = (1, attempt.tasks)
    best = _best_group(attempt, candidates)
    if best is None:
        return None
    attempt.buy(best, 1, attempt.size)
    row = len(table) - draft.groups[best].hosts
    _take_all(table, row, attempt.tasks)
    served = Served()
    served.add(table.position[[row]], np.array([attempt.size]))
    return served


def _best_group(attempt: Try, candidates: dict[int, tuple[int, Tasks]]) -> int | None:
    """Of groups with (slices needed, tasks on one slice), the one that the strategy takes."""
    if not candidates:
        return None
    draft, groups = attempt.draft, sorted(candidates)
    _, unmet_by_profile = draft.eligibility.answers(attempt.selector)
    unmet = unmet_by_profile[draft.profile_index[groups]].tolist()
    rank = draft.rank[groups].tolist()
    keys: list[Key]
    if draft.strategy == "cheapest":
        slices = [candidates[group][0] for group in groups]
        cost = [count * int(draft.price[group]) for count, group in zip(slices, groups, strict=True)]
        keys = list(zip(cost, unmet, slices, rank, strict=True))
    elif draft.strategy == "rank":
        keys = list(zip(rank, unmet, (~draft.sticky()[groups]).tolist(), strict=True))
    else:
        used = np.zeros((len(groups), len(draft.kinds.names)), np.int64)
        for row, group in enumerate(groups):
            for need, count in candidates[group][1]:
                for column, amount in need.amounts():
                    used[row, column] += amount * count
        scores = fit_scores(draft.market((), (), ()), np.array(groups), used)
        keys = [(misses, *score) for misses, score in zip(unmet, scores, strict=True)]
    return min(zip(keys, groups, strict=True))[1]


# -- same-slice ----------------------------------------------------------------------------------------------------


def slices_for(size: int, hosts: int) -> int | None:
    """Whole slices that a gang of this size takes; None when it cannot be cut into whole slices."""
    if size <= hosts:
        return 1
    return size // hosts if size % hosts == 0 else None


def _chunks(tasks: Tasks, per_slice: int) -> list[Tasks]:
    """The tasks of a gang, cut into parts of ``per_slice``, one for each slice."""
    result: list[Tasks] = []
    part: list[tuple[Need, int]] = []
    room = per_slice
    for need, count in tasks:
        while count:
            some = min(count, room)
            part.append((need, some))
            count, room = count - some, room - some
            if not room:
                result.append(part)
                part, room = [], per_slice
    return [*result, part] if part else result


def _on_whole_slices(attempt: Try) -> Served | None:
    draft, table = attempt.draft, attempt.table
    fresh = draft.group_table.fresh
    fits = np.minimum.reduce([fresh.capacity(need) for need, _ in attempt.tasks])
    allowed, _ = draft.eligibility.answers(attempt.selector)
    options: dict[int, tuple[int, Tasks]] = {}
    running: dict[int, list[_Loaded]] = {}
    for group, kind in enumerate(draft.groups):
        slices = slices_for(attempt.size, kind.hosts)
        if slices is None:
            continue
        chunks = _chunks(attempt.tasks, min(attempt.size, kind.hosts))
        running[group] = _usable_slices(attempt, group, chunks)
        new = slices - len(running[group])
        may_buy = fits[group] and allowed[draft.profiles[group]]
        if new == 0 or (may_buy and draft.ledger.headroom(group, gang=True) >= new):
            options[group] = (new, chunks[0])
    if not options:
        return None
    fewest = min(new for new, _ in options.values())
    near = {group: option for group, option in options.items() if option[0] == fewest}
    tier = {group: max((int(table.tier[one.rows[0][0]]) for one in running[group]), default=0) for group in near}
    nearest = min(tier.values())
    best = _best_group(attempt, {group: near[group] for group in near if tier[group] == nearest})
    assert best is not None
    return _take_whole_slices(attempt, best, running[best], near[best][0])


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A slice that takes a chunk of a gang whole: for each need of the chunk, the rows that take it."""

    position: int
    chunk: Tasks
    rows: list[list[int]]


def _take_whole_slices(attempt: Try, group: int, running: list[_Loaded], new: int) -> Served:
    draft, table, served = attempt.draft, attempt.table, Served()
    hosts = draft.groups[group].hosts
    for slice_ in running:
        for (need, _), rows in zip(slice_.chunk, slice_.rows, strict=True):
            table.room.take(need, np.array(rows), np.ones(len(rows), np.int64))
        served.add(np.array([slice_.position]), np.array([sum(count for _, count in slice_.chunk)]))
    if new:
        purchase = attempt.buy(group, new, min(attempt.size, hosts))
        first = len(table) - new * hosts
        chunks = _chunks(attempt.tasks, min(attempt.size, hosts))[len(running) :]
        for index, chunk in enumerate(chunks):
            _take_apart(table, first + index * hosts, chunk, 1, hosts)
        size = [sum(count for _, count in chunk) for chunk in chunks]
        served.add(purchase.position + np.arange(new), np.array(size))
    return served


def _usable_slices(attempt: Try, group: int, chunks: list[Tasks]) -> list[_Loaded]:
    """Slices of the group that can take the next chunk whole, one task a host, the nearest and tightest first."""
    table = attempt.table
    found: list[_Loaded] = []
    capacity = {need: table.capacity(need, attempt.selector) for need, _ in attempt.tasks}
    rows = np.flatnonzero((table.group == group) & np.logical_or.reduce([c > 0 for c in capacity.values()]))
    if not len(rows):
        return []
    _, unmet = table.eligibility.answers(attempt.selector)
    left = table.room.left_share(attempt.tasks[0][0], rows)
    by_slice: dict[int, list[int]] = {}
    for index, position in enumerate(table.position[rows].tolist()):
        by_slice.setdefault(position, []).append(index)
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
        chunk = chunks[len(found)]
        hosts = rows[by_slice[position]]
        matched = match([count for _, count in chunk], [capacity[need][hosts] > 0 for need, _ in chunk])
        if matched is not None:
            found.append(_Loaded(position, chunk, [hosts[places].tolist() for places in matched]))
    return found


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
    fresh = draft.group_table.fresh
    fits = {need: fresh.capacity(need) > 0 for need, _ in rest}
    while rest:
        takes = np.flatnonzero(fits[rest[0][0]] & allowed[draft.profile_index]).tolist()
        loads: dict[tuple[int, ...], Tasks] = {}
        candidates = {}
        for group in takes:
            if draft.ledger.headroom(group, gang=True) > 0:
                form = (*(bool(fits[need][group]) for need, _ in rest), int(draft.hosts[group]))
                if form not in loads:
                    loads[form] = _one_each([task for task in rest if fits[task[0]][group]], int(draft.hosts[group]))
                candidates[group] = (1, loads[form])
        best = _best_group(attempt, candidates)
        if best is None:
            return None
        load, hosts = candidates[best][1], int(draft.hosts[best])
        left = dict(rest)
        times = min(draft.ledger.headroom(best, gang=True), *(left[need] // count for need, count in load))
        size = sum(count for _, count in load)
        purchase = attempt.buy(best, times, size)
        _take_apart(table, len(table) - times * hosts, load, times, hosts)
        served.add(purchase.position + np.arange(times), np.full(times, size))
        used = dict(load)
        rest = [(need, count - used.get(need, 0) * times) for need, count in rest]
        rest = [(need, count) for need, count in rest if count]
    return served


def _one_each(tasks: Tasks, hosts: int) -> Tasks:
    """What one new slice takes when every task needs a host of its own."""
    load: list[tuple[Need, int]] = []
    for need, count in tasks:
        some = min(count, hosts)
        if some:
            load.append((need, some))
            hosts -= some
    return load


def _take_apart(table: Offers, first: int, load: Tasks, times: int, hosts: int) -> None:
    """Put the load on each of ``times`` slices whose rows start at ``first``, one task a host."""
    host = 0
    for need, count in load:
        offsets = np.arange(host, host + count)
        rows = (first + np.arange(times)[:, None] * hosts + offsets[None, :]).ravel()
        table.room.take(need, rows, np.ones(len(rows), np.int64))
        host += count


# -- forming -------------------------------------------------------------------------------------------------------


def holds_what_it_would_use(draft: PlanDraft, gang: Demand, waiting: Waiting) -> bool:
    """Whether slices are held for a gang that waits: until its deadline, or while some hindrance passes by itself. Of
    any group, not the nearest: a frozen group beside it must not make the gang give up what it waits with."""
    if waiting.reason.code in IMPOSSIBLE or waiting.reason.code == Code.NO_SHAPE_FITS:
        return False
    if gang.deadline is not None or any(reason.code in TRANSIENT for reason in waiting.groups.values()):
        return True
    return any(draft.ledger.ending) and _starts_later(draft, gang)


def _starts_later(draft: PlanDraft, gang: Demand) -> bool:
    """Whether a gang could start when all has passed that passes by itself, what is ending above all: a limit counts it
    until it is confirmed gone."""
    with draft.ledger.later():
        before = draft.checkpoint(draft.offers)
        if serve_whole(draft, draft.offers, gang, Code.DEMAND) is None:
            return False
        draft.rollback(before)
    return True


def slices_missing(draft: PlanDraft, table: Offers, demand: Demand, group: int) -> int:
    """New slices of one group that a gang of whole slices needs beside those of it that it could use."""
    hosts = draft.groups[group].hosts
    attempt, slices = try_of(draft, table, demand, Code.DEMAND), slices_for(demand.count, hosts)
    assert slices is not None
    return slices - len(_usable_slices(attempt, group, _chunks(attempt.tasks, min(attempt.size, hosts))))


def serve_partly(draft: PlanDraft, demand: Demand) -> set[int]:
    """Slices of the snapshot that members of a gang would use now, although it cannot start whole."""
    return {position for position in members_places(draft, demand) if position < len(draft.slices)}


def members_places(draft: PlanDraft, demand: Demand) -> set[int]:
    """Slices, those that this plan buys included, that members of a gang would use although it cannot start whole."""
    attempt = try_of(draft, draft.offers, demand, Code.DEMAND)
    table, positions = draft.offers, set()
    checkpoint = draft.checkpoint(table)
    if demand.gang == Gang.SAME_SLICE:
        for group, kind in enumerate(draft.groups):
            if slices_for(attempt.size, kind.hosts):
                chunks = _chunks(attempt.tasks, min(attempt.size, kind.hosts))
                positions |= {one.position for one in _usable_slices(attempt, group, chunks)}
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
    return positions
