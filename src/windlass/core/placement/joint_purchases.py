"""Joint purchases decide which constrained tasks are bought for in one market, and the caps on every new machine.

A constraint on nodes or slices becomes a resource of its own in the market: an empty machine has as much of it as the
constraint allows, and every task that counts takes one. Tasks whose constraints cannot be combined in one market are
bought for one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from windlass.core.buying.fallbacks import without_fallbacks
from windlass.core.buying.market import Market
from windlass.core.capacity.eligibility import alternative, preferences
from windlass.core.capacity.room import UNBOUNDED, Bools, Ints, Kinds, Need
from windlass.core.model.constraints import NODE, SLICE, Rules
from windlass.core.model.snapshot import Selector
from windlass.core.plan_draft import PlanDraft


@dataclass(frozen=True, slots=True)
class Item:
    """Equal tasks to place."""

    need: Need
    selector: Selector
    rules: Rules
    count: int
    owner: str
    """The demand that a purchase is made for."""


Cell = tuple[tuple[str, int], ...]
"""The label values, as (key, value), that are decided for the tasks."""


@dataclass(frozen=True, slots=True)
class Want:
    """Tasks of an item that must be bought for, in groups that its share of the label values allows."""

    item: int
    cell: Cell
    groups: Bools
    count: int


@dataclass(slots=True)
class JointPurchase:
    """Wants that are bought for together, and the caps on classes that hold on every new node or slice."""

    wants: list[Want] = field(default_factory=list)
    apart: dict[tuple[str, str], int] = field(default_factory=dict)
    spread: dict[tuple[str, str], int] = field(default_factory=dict)
    uncapped: set[str] = field(default_factory=set)
    """Classes of wants that have no cap on nodes or slices themselves."""
    carriers: dict[str, set[int]] = field(default_factory=dict)
    """The items of each class."""

    def add(self, want: Want, rules: Rules) -> None:
        apart, spread = machine_caps(rules)
        self.wants.append(want)
        self.apart.update(apart)
        self.spread.update(spread)
        if not (apart or spread):
            self.uncapped.update(rules.classes)
        for name in rules.classes:
            self.carriers.setdefault(name, set()).add(want.item)

    @property
    def columns(self) -> list[tuple[str, str, str]]:
        """The caps that are resources of the market: (kind of constraint, kind of domain, class)."""
        return [*((NODE_COLUMN, *key) for key in sorted(self.apart)), *(("", *key) for key in sorted(self.spread))]

    def cap(self, level: str, name: str) -> int:
        """Returns how many tasks of a class one node or slice may hold."""
        return min(self.apart.get((level, name), UNBOUNDED), self.spread.get((level, name), UNBOUNDED))


@dataclass(slots=True)
class MarketRow:
    """Wants with equal tasks, which are one row of the market.

    Items that nothing but their own cap on nodes distinguishes share a row: as many tasks of ``each`` of them may be
    on one node. They have equal numbers of tasks, so the tasks of a row can always be dealt out to them in turn.
    """

    need: Need
    groups: Bools
    unmet: Ints
    wants: list[int] = field(default_factory=list)
    each: int | None = None
    """None: there is no such cap."""


NODE_COLUMN: Final = "apart"
"""Marks the resource of an ``apart`` constraint, which every task of the class takes."""


MANY_GROUPS: Final = 400
"""With more groups than this, wants that may go to different groups are bought for one after the other: the work grows
with wants times groups."""


def deal_out(row: MarketRow, left: list[int], counts: Ints) -> Iterator[tuple[int, Ints, Ints]]:
    """Assigns the tasks of a market row, ``counts`` of them on each machine, to its wants.

    Yields for each want its index, the machines, and the number of its tasks on each.
    """
    if row.each is None or len(row.wants) == 1:
        end, begun = np.cumsum(counts), 0
        for index in row.wants:
            some = min(left[index], int(end[-1]) - begun)
            if some > 0:
                first, last = np.searchsorted(end, (begun + 1, begun + some)).tolist()
                on = np.arange(first, last + 1)
                yield index, on, np.minimum(end[on], begun + some) - np.maximum(end[on] - counts[on], begun)
                begun += some
    elif int(counts.sum()) == sum(left[index] for index in row.wants):
        tasks = np.repeat(np.arange(len(counts)), counts)
        for turn, index in enumerate(row.wants):
            yield index, *np.unique(tasks[turn :: len(row.wants)], return_counts=True)
    else:
        rest = counts.copy()
        for index in row.wants:
            order = np.argsort(-rest, kind="stable")
            most = np.minimum(rest[order], row.each)
            mine = np.clip(left[index] - (np.cumsum(most) - most), 0, most)
            on = np.flatnonzero(mine)
            if len(on):
                rest[order[on]] -= mine[on]
                yield index, order[on], mine[on]


def machine_caps(rules: Rules) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], int]]:
    """Returns the caps per node and per slice of the constraints: of ``apart``, and of ``spread``."""
    apart: dict[tuple[str, str], int] = {}
    spread: dict[tuple[str, str], int] = {}
    for rule in rules.apart:
        if rule.by in (NODE, SLICE):
            key = (rule.by, rule.class_)
            apart[key] = min(rule.at_most, apart.get(key, UNBOUNDED))
    for other in rules.spread:
        if other.over in (NODE, SLICE):
            key = (other.over, other.of)
            spread[key] = min(other.max_skew, spread.get(key, UNBOUNDED))
    return apart, spread


def counts_in(rules: Rules, column: tuple[str, str, str]) -> bool:
    """Whether a task takes one of the resource that stands for a constraint."""
    kind, _, name = column
    if name not in rules.classes:
        return False
    return kind == NODE_COLUMN or rules.binding


def joint_purchases(wants: Sequence[Want], items: Sequence[Item]) -> list[JointPurchase]:
    """Returns the wants in as few markets as their constraints on machines allow."""
    calls: list[JointPurchase] = []
    by_groups = bool(wants) and len(wants[0].groups) > MANY_GROUPS
    if by_groups:
        wants = _dealt_out(wants)
    for want in wants:
        rules = items[want.item].rules
        apart, spread = machine_caps(rules)
        near = [one for one in calls if not by_groups or (one.wants[0].groups & want.groups).any()]
        call = next((one for one in near if _joins(one, rules, apart, spread)), None)
        if call is None:
            call = JointPurchase()
            calls.append(call)
        call.add(want, rules)
    return calls


def _dealt_out(wants: Sequence[Want]) -> list[Want]:
    """Divides wants that may go to several label values to which others are bound, in equal parts over these values."""
    bound: dict[Cell, Bools] = {}
    for want in wants:
        if want.cell:
            bound[want.cell] = bound.get(want.cell, np.zeros_like(want.groups)) | want.groups
    cells = sorted(bound)
    if len(cells) < 2 or int(np.sum([bound[cell] for cell in cells], axis=0).max()) > 1:
        return list(wants)
    result: list[Want] = []
    turn = 0
    for want in wants:
        mine = [cell for cell in cells if (bound[cell] & want.groups).any()] if not want.cell else []
        if len(mine) < 2:
            result.append(want)
            continue
        each, more = divmod(want.count, len(mine))
        for place, cell in enumerate(mine):
            some = each + ((place - turn) % len(mine) < more)
            if some:
                result.append(replace(want, groups=want.groups & bound[cell], count=some))
        turn += more
    return result


def _joins(
    call: JointPurchase, rules: Rules, apart: dict[tuple[str, str], int], spread: dict[tuple[str, str], int]
) -> bool:
    """Whether tasks with these constraints can be bought for in the same market."""
    if any(call.apart.get(key, most) != most for key, most in apart.items()):
        return False
    if any(call.spread.get(key, most) != most for key, most in spread.items()):
        return False
    bound = bool(apart or spread)
    for key in ((level, name) for name in rules.classes for level in (NODE, SLICE)):
        if key in call.apart and key not in apart and (call.apart[key] == 0 or not bound):
            return False
    for key, most in apart.items():
        if key not in call.apart and (key[1] in call.uncapped or (most == 0 and key[1] in call.carriers)):
            return False
    return True


class JointMarkets:
    """Builds the markets in which items with constraints are bought for together."""

    def __init__(self, draft: PlanDraft, items: Sequence[Item], *, gang: bool) -> None:
        self.draft, self.items, self.gang = draft, items, gang
        self._learned: dict[tuple[tuple[str, str, str], ...], dict[Need, float]] = {}
        """Cost of a task in the markets so far, for each set of columns that stand for constraints."""

    def alternatives(self, want: Want) -> list[int]:
        """Returns the alternatives of ``any_of`` that some group of the want meets, the preferred first."""
        item, draft = self.items[want.item], self.draft
        if not item.selector[3]:
            return [0]
        _, unmet = draft.eligibility.answers(item.selector)
        return sorted({int(rank) for rank in alternative(unmet[draft.profile_index[want.groups]]).tolist()})

    def rows(self, call: JointPurchase, left: list[int], stage: int) -> list[MarketRow]:
        """Returns the different rows of the market for what is left of the wants."""
        draft, rows = self.draft, dict[tuple[object, ...], MarketRow]()
        by_selector: dict[Selector, tuple[Ints, Ints, bytes]] = {}
        columns = self._columns(call)
        for index, want in enumerate(call.wants):
            alternatives = self.alternatives(want)
            if not left[index] or stage >= len(alternatives):
                continue
            item = self.items[want.item]
            if item.selector not in by_selector:
                of_groups = draft.eligibility.answers(item.selector)[1][draft.profile_index]
                misses = preferences(of_groups)
                by_selector[item.selector] = alternative(of_groups), misses, misses.tobytes()
            of_groups, misses, as_bytes = by_selector[item.selector]
            groups = want.groups & (of_groups == alternatives[stage])
            if draft.snapshot_tables.has_fallbacks:
                fresh, limits = draft.group_table.fresh, draft.limits
                groups = without_fallbacks(draft.groups, fresh, limits, [item.need], groups[None, :], self.gang)[0]
            need, each = self._capped_need(call, columns, want)
            key: tuple[object, ...] = (need, groups.tobytes(), as_bytes)
            if each is not None:
                several = int(draft.hosts[groups].max(initial=1)) > 1
                key = (*key, each, left[index], index if several else want.cell)
            rows.setdefault(key, MarketRow(need, groups, misses, each=each)).wants.append(index)
        return list(rows.values())

    def _columns(self, call: JointPurchase) -> dict[str, list[tuple[int, str, str]]]:
        """For each class its columns: number, kind of constraint, kind of domain."""
        found: dict[str, list[tuple[int, str, str]]] = {}
        for number, (kind, level, name) in enumerate(self._shared(call)):
            found.setdefault(name, []).append((number, kind, level))
        return found

    def _shared(self, call: JointPurchase) -> list[tuple[str, str, str]]:
        """Returns the columns in which several items count, or that hold for slices."""
        return [key for key in call.columns if len(call.carriers.get(key[2], ())) > (key[1] != SLICE)]

    def _capped_need(
        self, call: JointPurchase, columns: dict[str, list[tuple[int, str, str]]], want: Want
    ) -> tuple[Need, int | None]:
        """Returns the need of one task with its shared columns, and its cap on nodes that no other item shares."""
        item, base, each = self.items[want.item], len(self.draft.kinds.names), UNBOUNDED
        more = []
        for name in item.rules.classes:
            more += [
                base + number for number, kind, _ in columns.get(name, ()) if counts_in(item.rules, (kind, "", name))
            ]
            if len(call.carriers[name]) == 1:
                each = min(each, call.apart.get((NODE, name), UNBOUNDED))
                each = min(each, call.spread.get((NODE, name), UNBOUNDED) if item.rules.binding else UNBOUNDED)
        plain = (*item.need.plain, *((number, 1) for number in sorted(more)))
        need = Need(plain, item.need.whole, item.need.shares, item.need.unknown)
        return need, None if each == UNBOUNDED else each

    def market(self, call: JointPurchase, rows: list[MarketRow], left: list[int]) -> Market:
        """Returns the market of these rows; the caps of nodes and slices are additional resources."""
        draft, shared = self.draft, self._shared(call)
        capped = [index for index, row in enumerate(rows) if row.each is not None]
        base = len(draft.kinds.names)
        names = (*draft.kinds.names, *(f"\0{index}" for index in range(len(shared) + len(capped))))
        kinds = Kinds(names, {name: at for at, name in enumerate(names)}, draft.kinds.devices)
        hosts, caps = draft.hosts.copy(), []
        for _, level, name in shared:
            most = call.cap(level, name)
            if level == SLICE:  # a slice with several hosts: the bound holds for all of them together
                several = hosts > np.maximum(most, 1)
                hosts = np.where(several, max(most, 1), hosts)
                caps.append(np.where(draft.hosts > 1, most // hosts, most))
            else:
                caps.append(np.full(len(hosts), most))
        needs = [row.need for row in rows]
        for number, index in enumerate(capped):
            row = rows[index]
            caps.append(np.full(len(hosts), (row.each or 0) * len(row.wants)))
            plain = (*row.need.plain, (base + len(shared) + number, 1))
            needs[index] = Need(plain, row.need.whole, row.need.shares, row.need.unknown)
        market = draft.market((), (), (), gang=self.gang)
        total = np.concatenate((draft.totals, np.stack(caps, axis=1)), axis=1) if caps else draft.totals
        shape = (len(rows), len(hosts))
        return replace(
            market,
            kinds=kinds,
            needs=tuple(needs),
            counts=np.array([sum(left[index] for index in row.wants) for row in rows], np.int64),
            total=total,
            hosts=hosts,
            eligible=np.array([row.groups for row in rows], np.bool_).reshape(shape),
            unmet=np.array([row.unmet for row in rows], np.int64).reshape(shape),
            real_kinds=base,
            learned=self._learned.setdefault(tuple(shared), {}),
        )
