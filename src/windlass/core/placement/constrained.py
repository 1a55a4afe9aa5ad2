"""This module places tasks that have constraints between them, and buys for the rest.

The steps for the items of one priority, or for the members of one gang:

1. Each item, in order, is divided over the values of the labels that its constraints name (``domain_shares``), and
   placed on rows of the offers table within its bounds (``class_counts``).
2. What is left of all items is bought for together. A constraint on nodes becomes a resource of its own in the market:
   an empty node has as much of it as the constraint allows, and every task that counts takes one. Items whose
   constraints cannot be written that way side by side are bought for one after the other.
3. If a limit leaves one label value short, the others may be above their skew. Then everything is taken back and
   divided again with what that value could really get.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from windlass.core.buying.fallbacks import without_fallbacks
from windlass.core.buying.market import Batch, Market, host_fills
from windlass.core.capacity.class_counts import NO_VALUE, Bounds, ClassCounts, without_start
from windlass.core.capacity.eligibility import alternative, preferences
from windlass.core.capacity.offers import Offers, TakenRows
from windlass.core.capacity.room import UNBOUNDED, Bools, Ints, Kinds, Need
from windlass.core.model.constraints import NODE, SLICE, Rules
from windlass.core.model.reasons import Code
from windlass.core.model.snapshot import Selector
from windlass.core.placement.joint_purchases import (
    NODE_COLUMN,
    Cell,
    Item,
    JointPurchase,
    Want,
    counts_in,
    joint_purchases,
)
from windlass.core.plan_draft import PlanDraft, Purchase, Served

from .domain_shares import LabelShares, share_out
from .fit_cache import FitCache

ROUNDS: Final = 6
"""How often items are divided again when limits leave a label value short; then the short ones are not bought for."""


class ConstrainedPlacement:
    """One attempt to serve some items: where they go and what is bought."""

    def __init__(
        self, draft: PlanDraft, table: Offers, items: Sequence[Item], code: Code, *, gang: bool = False
    ) -> None:
        assert table.classes is not None
        self.draft, self.table, self.items, self.code, self.gang = draft, table, items, code, gang
        self.short: dict[tuple[int, Cell], int] = {}
        """What could really be bought for an item in a cell, from the rounds before."""
        self._headroom: Ints = np.zeros(0, np.int64)
        self._fits = FitCache(draft, table)
        self._learned: dict[tuple[tuple[str, str, str], ...], dict[Need, float]] = {}
        """What tasks cost in the markets of this attempt, for each set of columns that stand for constraints."""
        self._asked: dict[str, set[str]] = {}
        """For each label the classes that a constraint of some item counts by it."""
        self._kept_away: dict[str, set[str]] = {}
        """For each label the classes that an ``apart`` constraint of some item keeps away by it."""
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
        """Place and buy as far as constraints and limits allow; where the tasks of each item went."""
        for left in reversed(range(ROUNDS)):
            checkpoint = self.draft.checkpoint(*self.tables())
            served = [Served() for _ in self.items]
            wants = self._place(served)
            missing = self._buy(wants, served)
            if not missing or self._holds(served):
                return served
            self.draft.rollback(checkpoint)
            for (item, cell), got in missing.items():
                self.short[item, cell] = got if left > 1 else 0
                if left <= 1:
                    self.short[item, ()] = 0
        return [Served() for _ in self.items]

    # -- on what is there -------------------------------------------------------------------------------------------

    def _place(self, served: list[Served]) -> list[Want]:
        wants: list[Want] = []
        ledger = self.draft.ledger
        self._headroom = np.array(
            [ledger.headroom(group, self.gang) for group in range(len(self.draft.groups))], np.int64
        )
        tentative: list[tuple[Rules, str, int, int]] = []
        for index, item in enumerate(self.items):
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
        """Rows and groups where a task could be by conditions, taints and size."""
        return self._fits.eligible(item.need, item.selector)

    def _bounds(self, item: Item) -> Bounds:
        return self.classes.bounds(item.rules, *self._eligible(item))

    def _per_slice(self, item: Item, bounds: Bounds) -> Ints:
        """How many of the tasks one new slice of each group would take."""
        return self._fits.per_slice(item.need, item.selector, bounds)[0]

    def _new_capacity(self, item: Item, bounds: Bounds) -> Ints:
        """How many tasks new slices of each group could take under the limits of that group alone."""
        room = self._headroom
        each = np.minimum(self._per_slice(item, bounds), item.count)
        return np.asarray(np.minimum(np.minimum(room, item.count) * each, item.count))

    def _masked(self, bounds: Bounds, rows: Bools, groups: Bools) -> tuple[Ints, Bools]:
        """What each row may take and which groups may be bought, given what the label values allow."""
        classes = self.classes
        in_rows, in_groups = np.where(rows, bounds.rows, 0), groups.copy()
        for key, label in bounds.labels.items():
            in_rows = np.where(_allowed(classes.value[key], label.room, label.needs_label), in_rows, 0)
            in_groups &= _allowed(classes.group_value[key], label.room, label.needs_label)
        return in_rows, in_groups

    def _divide(self, index: int, item: Item, forced: dict[str, int], served: Served) -> Iterator[Want]:
        """Place the item on rows, and yield what is left by label value."""
        table, classes, bounds = self.table, self.classes, self._bounds(item)
        left = item.count - served.count
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
            new[at] = min(int(new[at]), self.short.get((index, cell), self.short.get((index, ()), UNBOUNDED)))
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
        """Whether the item is divided over the values of a label: its constraints ask for it, or ``apart`` of others
        binds it there, or others count it there while it has constraints by labels itself, so that some order of
        starting must exist for all."""
        if key in bounds.labels and bounds.labels[key].shared:
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
        """How good it is to buy in each cell: the lowest price for one task there, or the lowest rank."""
        draft, each = self.draft, self._per_slice(item, bounds)
        some = np.flatnonzero(groups & (each > 0) & (self._headroom > 0))
        if draft.strategy == "cheapest":
            liking = draft.price[some] / np.minimum(each[some], max(item.count, 1))
        elif draft.strategy == "rank":
            liking = draft.rank[some].astype(np.float64)
        else:
            _, unmet = draft.eligibility.answers(item.selector)
            liking = unmet[draft.profile_index[some]].astype(np.float64)
        result = np.full(len(cells), np.inf)
        known = group_cell[some] >= 0
        np.minimum.at(result, group_cell[some][known], liking[known])
        found: list[float] = result.tolist()
        return found

    def _record(self, index: int, served: Served, taken: TakenRows) -> None:
        """Note where tasks went, and count them."""
        if len(taken.rows):
            served.add(self.table.position[taken.rows], taken.counts, taken.rows)
            self.classes.add(self.items[index].rules, taken.rows, taken.counts)

    # -- the first of its class -------------------------------------------------------------------------------------

    def _started(self, index: int, item: Item, served: Served) -> tuple[Item, dict[str, int]]:
        """The item with the domain that the first task of its class starts, where no domain has one yet."""
        kinds = self.classes.starts(item.rules)
        if not kinds:
            return item, {}
        free = replace(item, rules=without_start(item.rules, kinds))
        if NODE in kinds or SLICE in kinds:
            self._start_on_one(index, free, served, whole_slice=NODE not in kinds)
            return item, {}
        return free, self._best_values(index, free, kinds)

    def _best_values(self, index: int, item: Item, keys: list[str]) -> dict[str, int]:
        """For each label the value where the most of the tasks can be, then the cheapest."""
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
        """Put as many of the tasks as possible on one node or slice; a new one only if it takes more of them."""
        draft, table, bounds = self.draft, self.table, self._bounds(item)
        in_rows, in_groups = self._masked(bounds, *self._eligible(item))
        here = table.fitting(item.need, item.selector, in_rows, bounds.slices, item.count)
        domain = table.position if whole_slice else np.arange(len(table))
        held = np.zeros(int(domain.max(initial=-1)) + 1, np.int64)
        np.add.at(held, domain, here)
        best_here = int(np.minimum(held, item.count).max(initial=0))
        each = (
            self._per_slice(item, bounds)
            if whole_slice
            else np.minimum(
                self._per_slice(item, bounds),
                np.minimum(draft.group_table.fresh.capacity(item.need), bounds.fresh_node),
            )
        )
        can_buy = np.array([draft.ledger.headroom(g, self.gang) > 0 for g in range(len(draft.groups))], np.bool_)
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
        """Buy for all wants; what those got that did not get everything."""
        missing: dict[tuple[int, Cell], int] = {}
        for call in joint_purchases(wants, self.items):
            left = [want.count for want in call.wants]
            stages = range(max((len(self._alternatives(want)) for want in call.wants), default=0))
            for stage in (*stages, *stages) if self.draft.layout.has_fallbacks else stages:
                self._buy_stage(call, left, stage, served)
            for want, rest in zip(call.wants, left, strict=True):
                if rest:
                    key = (want.item, want.cell)
                    missing[key] = missing.get(key, 0) + want.count - rest
        return missing

    def _alternatives(self, want: Want) -> list[int]:
        """The alternatives of ``any_of`` that some group of the want meets, the preferred first."""
        item, draft = self.items[want.item], self.draft
        if not item.selector[3]:
            return [0]
        _, unmet = draft.eligibility.answers(item.selector)
        return sorted({int(rank) for rank in alternative(unmet[draft.profile_index[want.groups]]).tolist()})

    def _buy_stage(self, call: JointPurchase, left: list[int], stage: int, served: list[Served]) -> None:
        """Buy for what is left of the wants in the groups of their alternative of this stage."""
        draft, table = self.draft, self.table
        columns = [*((NODE_COLUMN, *key) for key in sorted(call.apart)), *(("", *key) for key in sorted(call.spread))]
        rows, places = self._market_rows(call, columns, left, stage)
        if not rows:
            return
        market = self._market(call, columns, rows, [sum(left[index] for index in group) for group in places])
        bought: list[tuple[Batch, Purchase]] = []
        for choice in draft.choose(market):
            batch = choice.batch
            slices = min(batch.slices, draft.ledger.headroom(batch.group, self.gang))
            if not slices:
                continue
            filled = np.flatnonzero(batch.fill).tolist()
            names = tuple((self.items[call.wants[places[row][0]].item].owner, int(batch.fill[row])) for row in filled)
            owner = self.items[call.wants[places[choice.shape][0]].item].owner
            bought.append((batch, draft.buy(batch.group, slices, self.code, owner, choice, names)))
        first = len(table)
        draft.offer_empty([purchase for _, purchase in bought], *self.tables())
        dealt: dict[tuple[int, bool], list[tuple[Ints, Ints]]] = {}
        for batch, purchase in bought:
            hosts, slices = int(draft.hosts[batch.group]), purchase.slices
            filled = np.flatnonzero(batch.fill).tolist()
            tasks = [(rows[row][0], int(batch.fill[row])) for row in filled]
            fills = host_fills(market.kinds, market.total[batch.group], int(market.hosts[batch.group]), tasks)
            for row, (_, each), on_hosts in zip(filled, tasks, fills or [NO_HOSTS] * len(filled), strict=True):
                per_host = np.zeros(hosts, np.int64)
                if not len(on_hosts):
                    per_host[0] = each
                else:
                    per_host[: len(on_hosts)] = on_hosts
                used = np.tile(per_host, slices).nonzero()[0]
                dealt.setdefault((row, fills is not None), []).append((first + used, per_host[used % hosts]))
            if fills is None:
                table.open[first : first + hosts * slices] = False
            first += hosts * slices
        # Market row by market row, as the slices were filled: the order decides which device a share goes to.
        for (row, packed), parts in sorted(dealt.items(), key=lambda item: item[0]):
            on_rows, counts = (np.concatenate(some) for some in zip(*parts, strict=True))
            self._deal(call, places[row], left, on_rows, counts, served, packed=packed)

    def _market_rows(
        self, call: JointPurchase, columns: list[tuple[str, str, str]], left: list[int], stage: int
    ) -> tuple[list[tuple[Need, Bools, Ints]], list[list[int]]]:
        """The different rows of the market (need, groups, unmet preferences), and the wants that each stands for."""
        draft, base = self.draft, len(self.draft.kinds.names)
        merged: dict[tuple[object, ...], list[int]] = {}
        rows: list[tuple[Need, Bools, Ints]] = []
        needs: dict[int, Need] = {}
        liked: dict[Selector, tuple[Ints, Ints, bytes]] = {}
        for index, want in enumerate(call.wants):
            alternatives = self._alternatives(want)
            if not left[index] or stage >= len(alternatives):
                continue
            item = self.items[want.item]
            if item.selector not in liked:
                of_groups = draft.eligibility.answers(item.selector)[1][draft.profile_index]
                misses = preferences(of_groups)
                liked[item.selector] = alternative(of_groups), misses, misses.tobytes()
            if want.item not in needs:
                more = tuple((base + column, 1) for column, key in enumerate(columns) if counts_in(item.rules, key))
                plain = (*item.need.plain, *more)
                needs[want.item] = Need(plain, item.need.whole, item.need.shares, item.need.unknown)
            of_groups, misses, as_bytes = liked[item.selector]
            groups, need = want.groups & (of_groups == alternatives[stage]), needs[want.item]
            if draft.layout.has_fallbacks:
                fresh, ledger = draft.group_table.fresh, draft.ledger
                groups = without_fallbacks(draft.groups, fresh, ledger, [item.need], groups[None, :], self.gang)[0]
            key = (need, groups.tobytes(), as_bytes)
            if key not in merged:
                merged[key] = []
                rows.append((need, groups, misses))
            merged[key].append(index)
        return rows, list(merged.values())

    def _market(
        self,
        call: JointPurchase,
        columns: list[tuple[str, str, str]],
        rows: list[tuple[Need, Bools, Ints]],
        counts: list[int],
    ) -> Market:
        draft = self.draft
        names = (*draft.kinds.names, *(f"\0{index}" for index in range(len(columns))))
        kinds = Kinds(names, {name: at for at, name in enumerate(names)}, draft.kinds.devices)
        hosts, caps = draft.hosts.copy(), []
        for _, level, name in columns:
            most = min(call.apart.get((level, name), UNBOUNDED), call.spread.get((level, name), UNBOUNDED))
            if level == SLICE:  # a slice with several hosts: at most so many on all of them together
                several = hosts > np.maximum(most, 1)
                hosts = np.where(several, max(most, 1), hosts)
                caps.append(np.where(draft.hosts > 1, most // hosts, most))
            else:
                caps.append(np.full(len(hosts), most))
        market = draft.market((), (), (), gang=self.gang)
        total = np.concatenate((draft.totals, np.stack(caps, axis=1)), axis=1) if caps else draft.totals
        return replace(
            market,
            kinds=kinds,
            needs=tuple(need for need, _, _ in rows),
            counts=np.array(counts, np.int64),
            total=total,
            hosts=hosts,
            eligible=np.array([groups for _, groups, _ in rows], np.bool_).reshape(len(rows), len(hosts)),
            unmet=np.array([unmet for _, _, unmet in rows], np.int64).reshape(len(rows), len(hosts)),
            real_kinds=len(draft.kinds.names),
            learned=self._learned.setdefault(tuple(columns), {}),
        )

    def _deal(
        self,
        call: JointPurchase,
        wants: list[int],
        left: list[int],
        rows: Ints,
        counts: Ints,
        served: list[Served],
        *,
        packed: bool,
    ) -> None:
        """Give the tasks on these rows to the wants that were bought for as one, in their order."""
        end, begun = np.cumsum(counts), 0
        for index in wants:
            some = min(left[index], int(end[-1]) - begun)
            if some <= 0:
                continue
            first, last = np.searchsorted(end, (begun + 1, begun + some)).tolist()
            here = slice(first, last + 1)
            on, mine = rows[here], np.minimum(end[here], begun + some) - np.maximum(end[here] - counts[here], begun)
            want = call.wants[index]
            item = self.items[want.item]
            if packed:
                self.table.room.take(item.need, on, mine)
            self._record(want.item, served[want.item], TakenRows(on, mine))
            left[index] -= some
            begun += some

    # -- whether it holds -------------------------------------------------------------------------------------------

    def _holds(self, served: list[Served]) -> bool:
        """Whether every spread over a label holds for the items as they were served."""
        for item, into in zip(self.items, served, strict=True):
            in_rows, in_groups = self._eligible(item)
            for spread in item.rules.spread:
                if spread.over in (NODE, SLICE) or spread.of not in item.rules.classes:
                    continue
                counts = self.classes.label[spread.over][:, self.classes.columns[spread.of]]
                value, of_groups = self.classes.value[spread.over], self.classes.group_value[spread.over]
                eligible = np.unique(np.concatenate((value[in_rows], of_groups[in_groups])))
                eligible = eligible[eligible != NO_VALUE]
                rows = [run.rows for run in into.runs if run.rows is not None]
                if not rows:
                    continue
                used = np.unique(value[np.concatenate(rows)])
                smallest = 0 if len(eligible) < spread.min_domains else int(counts[eligible].min())
                if int(counts[used].max()) - smallest > spread.max_skew:
                    return False
        return True


NO_HOSTS: Final[Ints] = np.zeros(0, np.int64)
"""How tasks lie on the hosts of a slice is not known."""


def _allowed(value: Ints, room: Ints, needs_label: bool) -> Bools:
    return np.append(room > 0, not needs_label)[value]  # NO_VALUE is the last one
