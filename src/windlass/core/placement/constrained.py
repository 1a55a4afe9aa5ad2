"""This module places tasks that have constraints between them, and buys for the rest.

The steps for the items of one priority, or for the members of one gang:

1. Each item, in order, is divided over the values of the labels that its constraints name (``domain_shares``), and
   placed on rows of the offers table within its bounds (``class_counts``).
2. What is left of all items is bought for together. A constraint on nodes becomes a resource of its own in the market:
   an empty node has as much of it as the constraint allows, and every task that counts takes one. Items whose
   constraints cannot be combined in one market are bought for one after the other.
3. If a limit leaves one label value short, the others may be above their skew. Then everything is rolled back and
   divided again: a gang with what that value could really get; other items in two halves, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from windlass.core.buying.market import Batch, host_fills
from windlass.core.capacity.class_counts import NO_VALUE, Bounds, ClassCounts, without_start
from windlass.core.capacity.offers import Offers, TakenRows
from windlass.core.capacity.room import UNBOUNDED, Bools, Ints
from windlass.core.model.constraints import NODE, SLICE, Rules
from windlass.core.model.reasons import Code
from windlass.core.placement.joint_purchases import (
    Cell,
    Item,
    JointMarkets,
    JointPurchase,
    MarketRow,
    Want,
    deal_out,
    joint_purchases,
)
from windlass.core.plan_draft import PlanDraft, Purchase, Served

from .domain_shares import LabelShares, share_out
from .fit_cache import FitCache

ROUNDS: Final = 6
"""How often a gang is divided again when limits leave a label value short."""
PASSES: Final = 8
"""How often what is left of the items is tried again: a task that is placed may allow others to follow."""


class ConstrainedPlacement:
    """One attempt to serve some items: where they go and what is bought."""

    def __init__(
        self,
        draft: PlanDraft,
        table: Offers,
        items: Sequence[Item],
        code: Code,
        *,
        gang: bool = False,
        whole: bool = False,
    ) -> None:
        """``gang``: the items may exceed the launch rate. ``whole``: the caller rolls back unless all items are served
        completely."""
        assert table.classes is not None
        self._whole, self._most = whole, UNBOUNDED
        self.draft, self.table, self.items, self.code, self.gang = draft, table, items, code, gang
        self.short: dict[tuple[int, Cell], int] = {}
        """How many tasks of an item could be bought for in a cell in the rounds before."""
        self._headroom: Ints = np.zeros(0, np.int64)
        self._fits = FitCache(draft, table)
        self._markets = JointMarkets(draft, items, gang=gang)
        self._asked: dict[str, set[str]] = {}
        """For each label the classes that a constraint of some item counts by it."""
        self._kept_away: dict[str, set[str]] = {}
        """For each label the classes that an ``apart`` constraint of some item keeps away by it."""
        self._coming = {name for item in items for name in item.rules.classes}
        """The classes of all items."""
        for item in items:
            for apart in item.rules.apart:
                self._asked.setdefault(apart.by, set()).add(apart.class_)
                self._kept_away.setdefault(apart.by, set()).add(apart.class_)
            for spread in item.rules.spread:
                self._asked.setdefault(spread.over, set()).add(spread.of)

    @property
    def classes(self) -> ClassCounts:
        assert self.table.classes is not None
        return self.table.classes

    def tables(self) -> tuple[Offers, ...]:
        return (self.table,) if self.table is self.draft.offers else (self.table, self.draft.offers)

    def serve(self) -> list[Served]:
        """Places and buys as far as constraints and limits allow; returns where the tasks of each item went."""
        served, some = [Served() for _ in self.items], list(range(len(self.items)))
        for _ in range(ROUNDS if self._whole else 0):
            if self._tried(some, served):
                return served
        for _ in range(0 if self._whole else PASSES):
            before = sum(served[index].count for index in some)
            self._serve(some, served)
            left = [index for index in some if served[index].count < self.items[index].count]
            if not left or sum(served[index].count for index in some) == before:
                break
            some = left
        return served

    def _serve(self, some: Sequence[int], served: list[Served]) -> None:
        """Serves what is left of some items: together if their spreads then hold, else one half after the other.

        Of a single item as many tasks are served as the limits allow in equal shares.
        """
        if self._tried(some, served):
            return
        if len(some) > 1:
            self._serve(some[: len(some) // 2], served)
            self._serve(some[len(some) // 2 :], served)
            return
        item, mine = self.items[some[0]], served[some[0]]
        step = (item.count - mine.count) // 2
        while step:
            before = mine.count
            if not self._tried(some, served, step):
                step //= 2
            elif mine.count == before:
                break

    def _tried(self, some: Sequence[int], served: list[Served], most: int = UNBOUNDED) -> bool:
        """Serves some items, at most ``most`` tasks of each. If a spread does not hold then, rolls back and returns
        False."""
        limits, runs = self.draft.limits, [len(served[index].runs) for index in some]
        checkpoint = self.draft.checkpoint(*self.tables())
        self._headroom = np.array(
            [limits.headroom(group, self.gang) for group in range(len(self.draft.groups))], np.int64
        )
        self._most = most
        missing = self._buy(self._place(some, served), served)
        if not missing or self._holds(some, served):
            return True
        self.draft.rollback(checkpoint)
        for index, kept in zip(some, runs, strict=True):
            served[index].cut(kept)
        if self._whole:
            self.short.update(missing)
        return False

    # -- on existing nodes ------------------------------------------------------------------------------------------

    def _place(self, some: Sequence[int], served: list[Served]) -> list[Want]:
        """Places some items on rows; returns what must be bought for."""
        wants: list[Want] = []
        tentative: list[tuple[Rules, str, int, int]] = []
        for index in some:
            item = self.items[index]
            started, forced = self._started(index, item, served[index])
            for want in self._divide(index, started, forced, served[index]):
                wants.append(want)
                for key, value in want.cell:
                    self.classes.add_to_value(item.rules, key, value, want.count)
                    tentative.append((item.rules, key, value, -want.count))
        for entry in tentative:  # counted again, on their rows, when they are bought
            self.classes.add_to_value(*entry)
        return wants

    @property
    def _keys(self) -> list[str]:
        return sorted(self.classes.values)

    def _eligible(self, item: Item) -> tuple[Bools, Bools]:
        """Returns rows and groups where a task could run by conditions, taints and size."""
        return self._fits.eligible(item.need, item.selector)

    def _bounds(self, item: Item) -> Bounds:
        return self.classes.bounds(item.rules, *self._eligible(item))

    def _per_slice(self, item: Item, bounds: Bounds) -> Ints:
        """Returns how many of the tasks one new slice of each group would take."""
        return self._fits.per_slice(item.need, item.selector, bounds)[0]

    def _new_capacity(self, item: Item, bounds: Bounds) -> Ints:
        """Returns how many tasks new slices of each group could take under the limits of that group alone."""
        room = self._headroom
        each = np.minimum(self._per_slice(item, bounds), item.count)
        return np.asarray(np.minimum(np.minimum(room, item.count) * each, item.count))

    def _masked(self, bounds: Bounds, rows: Bools, groups: Bools) -> tuple[Ints, Bools]:
        """Returns what each row may take and which groups may be bought, given the bounds of the label values."""
        classes = self.classes
        in_rows, in_groups = np.where(rows, bounds.rows, 0), groups.copy()
        for key, label in bounds.labels.items():
            in_rows = np.where(_allowed(classes.value[key], label.room, label.needs_label), in_rows, 0)
            in_groups &= _allowed(classes.group_value[key], label.room, label.needs_label)
        return in_rows, in_groups

    def _divide(self, index: int, item: Item, forced: dict[str, int], served: Served) -> Iterator[Want]:
        """Places the item on rows, and yields what is left by label value."""
        table, classes, bounds = self.table, self.classes, self._bounds(item)
        left = min(item.count - served.count, self._most)
        if left <= 0:
            return
        in_rows, in_groups = self._masked(bounds, *self._eligible(item))
        in_groups &= self._fits.per_slice(item.need, item.selector, bounds)[1]
        for key, value in forced.items():
            in_rows = np.where(classes.value[key] == value, in_rows, 0)
            in_groups &= classes.group_value[key] == value
        divided = [key for key in self._keys if self._divides(item, bounds, key)]
        if not divided:
            taken = table.place_within(item.need, item.selector, left, in_rows, bounds.slices)
            self._record(index, served, taken)
            left -= taken.total
            cell = tuple(sorted(forced.items()))
            cap = self.short.get((index, cell), left)
            if min(left, cap) > 0 and in_groups.any():
                yield Want(index, cell, in_groups, min(left, cap))
            return
        cells, row_cell, group_cell = self._fits.cells(tuple(divided))
        here = table.fitting(item.need, item.selector, in_rows, bounds.slices, left)
        new = np.zeros(len(cells), np.int64)
        np.add.at(new, group_cell, np.where(in_groups, self._new_capacity(item, bounds), 0))
        full_cell = [
            tuple(sorted({**forced, **{k: v for k, v in zip(divided, row, strict=True) if v != NO_VALUE}}.items()))
            for row in cells.tolist()
        ]
        for at, cell in enumerate(full_cell):
            new[at] = min(int(new[at]), self.short.get((index, cell), UNBOUNDED))
        labels = [self._shares(bounds, key, cells[:, at]) for at, key in enumerate(divided)]
        if here.any():
            existing = np.zeros(len(cells), np.int64)
            np.add.at(existing, row_cell, here)
            quota = share_out(left, existing, labels, [0.0] * len(cells))
            taken = table.place_within(item.need, item.selector, left, in_rows, bounds.slices, row_cell, quota)
            self._record(index, served, taken)
            left -= taken.total
            bounds = self._bounds(item)
            labels = [self._shares(bounds, key, cells[:, at]) for at, key in enumerate(divided)]
        shares = share_out(left, new, labels, self._preferences(item, bounds, in_groups, group_cell, cells))
        for at, count in enumerate(shares.tolist()):
            if count:
                yield Want(index, full_cell[at], in_groups & (group_cell == at), count)

    def _divides(self, item: Item, bounds: Bounds, key: str) -> bool:
        """Whether the item is divided over the values of a label.

        It is if its constraints name the label and concern some item, if ``apart`` of others binds it there, or if
        others count it there while it has constraints by labels itself: some order of starting must exist for all.
        """
        if key in bounds.labels and bounds.labels[key].shared:
            return True
        if any(rule.by == key and rule.class_ in self._coming for rule in item.rules.apart):
            return True
        if not self._kept_away.get(key, set()).isdisjoint(item.rules.classes):
            return True
        by_label = item.rules.domains() - {NODE, SLICE}
        return bool(by_label) and not self._asked.get(key, set()).isdisjoint(item.rules.classes)

    def _shares(self, bounds: Bounds, key: str, value: Ints) -> LabelShares:
        label = bounds.labels.get(key)
        if label is None:
            return LabelShares(value, np.full(len(self.classes.values[key]), UNBOUNDED), ())
        return LabelShares(value, label.room, label.spreads)

    def _preferences(self, item: Item, bounds: Bounds, groups: Bools, group_cell: Ints, cells: Ints) -> list[float]:
        """Returns the cost of buying in each cell: the lowest price for one task there, or the lowest rank."""
        draft, each = self.draft, self._per_slice(item, bounds)
        some = np.flatnonzero(groups & (each > 0) & (self._headroom > 0))
        if draft.strategy == "cheapest":
            cost = draft.price[some] / np.minimum(each[some], max(item.count, 1))
        elif draft.strategy == "rank":
            cost = draft.rank[some].astype(np.float64)
        else:
            _, unmet = draft.eligibility.answers(item.selector)
            cost = unmet[draft.profile_index[some]].astype(np.float64)
        result = np.full(len(cells), np.inf)
        known = group_cell[some] >= 0
        np.minimum.at(result, group_cell[some][known], cost[known])
        found: list[float] = result.tolist()
        return found

    def _record(self, index: int, served: Served, taken: TakenRows) -> None:
        """Records where tasks went, and counts them."""
        if len(taken.rows):
            served.add(self.table.position[taken.rows], taken.counts, taken.rows)
            self.classes.add(self.items[index].rules, taken.rows, taken.counts)

    # -- the first of its class -------------------------------------------------------------------------------------

    def _started(self, index: int, item: Item, served: Served) -> tuple[Item, dict[str, int]]:
        """Returns the item with the domain in which the first task of its class starts, where no domain has one yet."""
        kinds = self.classes.starts(item.rules)
        if not kinds:
            return item, {}
        free = replace(item, rules=without_start(item.rules, kinds))
        if NODE in kinds or SLICE in kinds:
            self._start_on_one(index, free, served, whole_slice=NODE not in kinds)
            return item, {}
        return free, self._best_values(index, free, kinds)

    def _best_values(self, index: int, item: Item, keys: list[str]) -> dict[str, int]:
        """Returns for each label the value where most of the tasks fit, then the cheapest."""
        classes, bounds, forced = self.classes, self._bounds(item), dict[str, int]()
        here = self.table.fitting(item.need, item.selector, bounds.rows, bounds.slices, item.count)
        new = np.where(self._eligible(item)[1], self._new_capacity(item, bounds), 0)
        for key in keys:
            values = len(classes.values[key])
            held, bought = np.zeros(values, np.int64), np.zeros(values, np.int64)
            for value, amounts, into in ((classes.value[key], here, held), (classes.group_value[key], new, bought)):
                known = value != NO_VALUE
                np.add.at(into, value[known], amounts[known])
            cells = np.arange(values)[:, None]
            costs = self._preferences(item, bounds, new > 0, classes.group_value[key], cells)
            short = [self.short.get((index, ((key, value),)), UNBOUNDED) for value in range(values)]
            total = np.minimum(held + np.minimum(bought, short), item.count)
            if total.any():
                held = np.minimum(held, item.count)
                forced[key] = min(range(values), key=lambda v: (-int(total[v]), -int(held[v]), costs[v], v))
        return forced

    def _start_on_one(self, index: int, item: Item, served: Served, *, whole_slice: bool) -> None:
        """Places as many of the tasks as possible on one node or slice; on a new one only if it takes more of them."""
        draft, table, bounds = self.draft, self.table, self._bounds(item)
        in_rows, in_groups = self._masked(bounds, *self._eligible(item))
        here = table.fitting(item.need, item.selector, in_rows, bounds.slices, item.count)
        domain = table.position if whole_slice else np.arange(len(table))
        held = np.zeros(int(domain.max(initial=-1)) + 1, np.int64)
        np.add.at(held, domain, here)
        held[domain] = np.minimum(held[domain], _room_by_label(bounds, self.classes.value, len(table)))
        best_here = int(np.minimum(held, item.count).max(initial=0))
        each = (
            self._per_slice(item, bounds)
            if whole_slice
            else np.minimum(
                self._per_slice(item, bounds),
                np.minimum(draft.group_table.fresh.capacity(item.need), bounds.fresh_node),
            )
        )
        can_buy = np.array([draft.limits.headroom(g, self.gang) > 0 for g in range(len(draft.groups))], np.bool_)
        each = np.minimum(each, _room_by_label(bounds, self.classes.group_value, len(each)))
        each = np.minimum(np.where(in_groups & can_buy, each, 0), item.count)
        if int(each.max(initial=0)) > best_here:
            groups = np.flatnonzero(each == each.max()).tolist()
            best = min(groups, key=lambda g: (int(draft.price[g]), int(draft.rank[g]), g))
            count = int(each[best])
            purchase = draft.buy(best, 1, self.code, item.owner, None, ((item.owner, count),))
            draft.offer(purchase, *self.tables())
            rows = np.zeros(len(table), np.int64)
            rows[table.position == purchase.position] = UNBOUNDED
            taken = table.place_within(item.need, item.selector, count, np.minimum(rows, self._bounds(item).rows), None)
        elif best_here:
            rows = np.where(here > 0)[0]
            order = table.in_order(rows, item.need, item.selector)
            first = next(row for row in order.tolist() if min(int(held[domain[row]]), item.count) == best_here)
            only = np.where(domain == domain[first], in_rows, 0)
            taken = table.place_within(item.need, item.selector, best_here, only, bounds.slices)
        else:
            return
        self._record(index, served, taken)

    # -- buying -----------------------------------------------------------------------------------------------------

    def _buy(self, wants: list[Want], served: list[Served]) -> dict[tuple[int, Cell], int]:
        """Buys for all wants; returns how many tasks could be bought for, for wants that were not served completely."""
        missing: dict[tuple[int, Cell], int] = {}
        for call in joint_purchases(wants, self.items):
            left = [want.count for want in call.wants]
            stages = range(max((len(self._markets.alternatives(want)) for want in call.wants), default=0))
            for stage in (*stages, *stages) if self.draft.snapshot_tables.has_fallbacks else stages:
                self._buy_stage(call, left, stage, served)
            for want, rest in zip(call.wants, left, strict=True):
                if rest:
                    key = (want.item, want.cell)
                    missing[key] = missing.get(key, 0) + want.count - rest
        return missing

    def _buy_stage(self, call: JointPurchase, left: list[int], stage: int, served: list[Served]) -> None:
        """Buys for what is left of the wants in the groups of their alternative of this stage."""
        draft, table = self.draft, self.table
        rows = self._markets.rows(call, left, stage)
        if not rows:
            return
        market = self._markets.market(call, rows, left)
        bought: list[tuple[Batch, Purchase]] = []
        for choice in draft.choose(market):
            batch = choice.batch
            slices = min(batch.slices, draft.limits.headroom(batch.group, self.gang))
            if not slices:
                continue
            filled = np.flatnonzero(batch.fill).tolist()
            names = tuple((self._owner(call, rows[row]), int(batch.fill[row])) for row in filled)
            owner = self._owner(call, rows[choice.shape])
            bought.append((batch, draft.buy(batch.group, slices, self.code, owner, choice, names)))
        first = len(table)
        draft.offer_empty([purchase for _, purchase in bought], *self.tables())
        dealt: dict[int, list[tuple[Ints, Ints, Bools]]] = {}
        for batch, purchase in bought:
            hosts, slices = int(draft.hosts[batch.group]), purchase.slices
            filled = np.flatnonzero(batch.fill).tolist()
            tasks = [(market.needs[row], int(batch.fill[row])) for row in filled]
            fills = host_fills(market.kinds, market.total[batch.group], int(market.hosts[batch.group]), tasks)
            for row, (_, each), on_hosts in zip(filled, tasks, fills or [NO_HOSTS] * len(filled), strict=True):
                per_host = np.zeros(hosts, np.int64)
                if not len(on_hosts):
                    per_host[0] = each
                else:
                    per_host[: len(on_hosts)] = on_hosts
                used = np.tile(per_host, slices).nonzero()[0]
                packed = np.full(len(used), fills is not None)
                dealt.setdefault(row, []).append((first + used, per_host[used % hosts], packed))
            if fills is None:
                table.open[first : first + hosts * slices] = False
            first += hosts * slices
        # Market row by market row, in the order of filling, which decides the device of a share.
        for row, parts in sorted(dealt.items(), key=lambda item: item[0]):
            on_rows, counts, packed = (np.concatenate(some) for some in zip(*parts, strict=True))
            for index, places, mine in deal_out(rows[row], left, counts):
                want, known = call.wants[index], packed[places]
                self.table.room.take(self.items[want.item].need, on_rows[places][known], mine[known])
                self._record(want.item, served[want.item], TakenRows(on_rows[places], mine))
                left[index] -= int(mine.sum())

    def _owner(self, call: JointPurchase, row: MarketRow) -> str:
        return self.items[call.wants[row.wants[0]].item].owner

    # -- whether it holds -------------------------------------------------------------------------------------------

    def _holds(self, some: Sequence[int], served: list[Served]) -> bool:
        """Whether every spread over a label holds for some items as they were served."""
        for index in some:
            rules, runs = self.items[index].rules, served[index].runs
            spreads = [one for one in rules.spread if one.over not in (NODE, SLICE) and one.of in rules.classes]
            rows = [run.rows for run in runs if run.rows is not None] if spreads else []
            if not rows:
                continue
            where, on = self._eligible(self.items[index]), np.concatenate(rows)
            if not all(self.classes.within_skew(spread, *where, on) for spread in spreads):
                return False
        return True


NO_HOSTS: Final[Ints] = np.zeros(0, np.int64)
"""Marks that the host of each task on a slice is not known."""


def _room_by_label(bounds: Bounds, values: Mapping[str, Ints], size: int) -> Ints:
    """Returns how many tasks each row or group may take, with no task on the others, before the value of one of its
    labels is full."""
    room = np.full(size, UNBOUNDED)
    for key, label in bounds.labels.items():
        of_values = label.room
        for spread in label.spreads:
            of_values = np.minimum(of_values, spread.room_alone())
        room = np.minimum(room, np.append(of_values, 0 if label.needs_label else UNBOUNDED)[values[key]])
    return room


def _allowed(value: Ints, room: Ints, needs_label: bool) -> Bools:
    return np.append(room > 0, not needs_label)[value]  # NO_VALUE is the last one
