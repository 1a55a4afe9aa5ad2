"""This module places waiting work on existing nodes by the planner's rules, with nothing to buy.

Order, conditions and the fit rule come from ``windlass.core``, so the simulated workload starts a task exactly where a
plan says that it fits. A plan names slices; this module also chooses the nodes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final

import numpy as np

from windlass.core.capacity.offers import Mark, Offers
from windlass.core.capacity.room import Need
from windlass.core.demand import GangTasks, alike, gang_tasks, levels
from windlass.core.model.constraints import NO_RULES
from windlass.core.model.lifecycle import State
from windlass.core.model.quantities import ACCELERATORS, DEVICE
from windlass.core.model.reasons import Code
from windlass.core.model.snapshot import (
    Amounts,
    Bundle,
    Demand,
    Gang,
    Group,
    Node,
    Seconds,
    Selector,
    Slice,
    Snapshot,
    amounts,
    selector_of,
)
from windlass.core.placement.gang_attempt import tasks_of
from windlass.core.placement.gangs import serve_whole
from windlass.core.placement.singles import serve
from windlass.core.plan_draft import DraftOptions, PlacedRun, PlanDraft, Served
from windlass.core.tables.planner_memo import PlannerMemo
from windlass.core.tables.snapshot_tables import SnapshotTables


@dataclass(frozen=True, slots=True)
class PlacedTasks:
    """``count`` equal tasks of a demand that start on a node."""

    demand: str
    node: str
    needs: Amounts
    count: int
    bundle: Bundle | None = None
    """Their bundle in the demand, where it matters."""


@dataclass(frozen=True, slots=True)
class Score:
    """The score of a node (lower is better), and how many tasks fit there."""

    unmet: int
    """Number of preferences that are not met."""
    accelerators: bool
    """Whether the node has accelerators that the task does not need."""
    left: float
    """Free resources that would be left."""
    capacity: int


_BY_ID: Final = attrgetter("id")
SCORES = 50_000
"""Size of the cache: more than the distinct cases of most traces, and a few megabytes."""


class Places:
    """Places tasks on slices of some groups. Values derived from the groups are computed once."""

    def __init__(self, groups: Iterable[Group]) -> None:
        self._groups = tuple(replace(group, max=0, min=0, spare=0) for group in groups)
        self._memo = PlannerMemo()
        self._group_table = SnapshotTables(Snapshot(groups=self._groups), self._memo).group_table
        self._scores: dict[Hashable, Score | None] = {}

    def placed(self, slices: Iterable[Slice], demands: Sequence[Demand], now: Seconds) -> Iterator[PlacedTasks]:
        """Return what can start now on these slices, all of them ready and of a known group, with their nodes by id."""
        slices = sorted(slices, key=_BY_ID)
        valid = [demand for demand in demands if demand.mistake is None and not _late(demand, now)]
        if not valid:
            return
        if any(map(has_rules, valid)):
            yield from self._by_rules(slices, valid, now)
            return
        if _are_alike(valid):
            members, needs = sorted([(one.id, one.bundles[0].count) for one in valid]), valid[0].bundles[0].needs
            count = sum([count for _, count in members])
            yield from _dealt(members, _Asked(self, slices).take(selector_of(valid[0]), needs, count), needs)
            return
        draft = self._draft(slices, valid, now) if any(one.gang not in (None, Gang.ANY) for one in valid) else None
        table: _Asked | _Laid
        if draft is None and not any(map(_takes_a_share, valid)):
            table = _Asked(self, slices)
        else:
            offers = self._offers(slices, valid) if draft is None else draft.offers
            table = _Laid(offers, [node.id for item in slices for node in item.offering_nodes])
        for level in levels(alike(valid), self._group_table.kinds, self._group_table.largest):
            for gang in level.gangs:
                if draft is not None and isinstance(table, _Laid) and gang.gang != Gang.ANY:
                    yield from _whole_gang(draft, gang, table.rows)
                else:
                    yield from _anywhere(
                        table, gang, gang_tasks(gang, self._group_table.kinds, self._group_table.largest, ())
                    )
            for shape in level.shapes:
                yield from _dealt(shape.members, table.take(shape.selector, shape.needs, shape.count), shape.needs)

    def _by_rules(self, slices: Sequence[Slice], demands: Sequence[Demand], now: Seconds) -> Iterator[PlacedTasks]:
        """Return the same under constraints between tasks: what the planner would place without buying."""
        draft = self._draft(slices, demands, now)
        serve(draft)
        rows = [node.id for item in slices for node in item.offering_nodes]
        for gang, served in draft.decisions.served_gangs:
            yield from _members(draft, gang, served, rows)
        for shape, served in draft.decisions.served_shapes:
            yield from _dealt(shape.members, _nodes(served.runs, rows), shape.needs)

    def score(self, group: str, node: Node, used: Amounts, selector: Selector, needs: Amounts) -> Score | None:
        """Return the score of a task on a node with this usage; None: it does not fit. Nodes with equal usage share the
        cached result.
        """
        labels = tuple(sorted(node.labels.items())) if selector[0] or selector[1] or selector[3] else ()
        key = (group, used, labels, selector, needs)
        if key not in self._scores:
            if len(self._scores) >= SCORES:
                self._scores.clear()
            self._scores[key] = self._asked(group, Node(node.id, used, labels=node.labels), selector, needs)
        return self._scores[key]

    def _asked(self, group: str, node: Node, selector: Selector, needs: Amounts) -> Score | None:
        where, prefer, tolerates, any_of = selector
        alternatives = any_of[0] if any_of else ()
        demand = Demand("", (Bundle(needs, 1),), where=where, prefer=prefer, tolerates=tolerates, any_of=alternatives)
        offers = self._offers([Slice("", group, State.READY, nodes=(node,))], [demand])
        need = Need.of(dict(needs), self._group_table.kinds)
        capacity = int(offers.capacity(need, selector)[0])
        if not capacity:
            return None
        unmet = offers.eligibility.answers(selector)[1][offers.profile[0]]
        devices = list(offers.room.kinds.devices)
        idle = not (need.whole or need.shares) and bool(offers.room.total[0, devices].any())
        return Score(int(unmet), idle, float(offers.room.left_share(need, np.zeros(1, np.int64))[0]), capacity)

    def _draft(self, slices: Sequence[Slice], demands: Sequence[Demand], now: Seconds) -> PlanDraft:
        """Return a complete draft of a plan, for gangs that must be placed together."""
        snapshot = Snapshot(groups=self._groups, slices=tuple(slices), demands=tuple(demands), now=now)
        draft = PlanDraft(SnapshotTables(snapshot, self._memo), DraftOptions())
        draft.open()
        return draft

    def _offers(self, slices: Sequence[Slice], demands: Sequence[Demand]) -> Offers:
        """Return the free capacity of the slices, a row for each node."""
        snapshot = Snapshot(groups=self._groups, slices=tuple(slices), demands=tuple(demands))
        snapshot_tables = SnapshotTables(snapshot, self._memo)
        return Offers(snapshot_tables.eligibility, snapshot_tables.rows)


def _late(demand: Demand, now: Seconds) -> bool:
    return demand.gang is not None and demand.deadline is not None and now >= demand.deadline


class _Asked:
    """Nodes that are checked one by one: for tasks without device shares, where free capacity depends only on usage,
    not on its order.
    """

    def __init__(self, places: Places, slices: Iterable[Slice]) -> None:
        self._places = places
        self._nodes = [(item.group, node) for item in slices for node in item.nodes if node.healthy]
        self._used: dict[str, Amounts] = {}

    def take(self, selector: Selector, needs: Amounts, count: int) -> list[tuple[str, int]]:
        """Place up to ``count`` equal tasks on nodes with their capacities, the best node first."""
        found, used_now = [], self._used
        plain = not (selector[0] or selector[1] or selector[3])
        known: dict[tuple[str, int], Score | None] = {}
        """Without label conditions, nodes with equal use are tried once; identical objects are found fast."""
        for number, (group, node) in enumerate(self._nodes):
            used = used_now.get(node.id, node.used) if used_now else node.used
            alike = group, id(used)
            if plain and alike in known:
                score = known[alike]
            else:
                score = known[alike] = self._places.score(group, node, used, selector, needs)
            if score is not None:
                found.append((score.unmet, score.accelerators, score.left, number, score.capacity, used))
        found.sort()
        taken = []
        for _, _, _, number, capacity, used in found:
            some = min(capacity, count)
            if not some:
                break
            name = self._nodes[number][1].id
            taken.append((name, some))
            used_now[name] = _with(used, needs, some)
            count -= some
        return taken

    def mark(self) -> dict[str, Amounts]:
        return dict(self._used)

    def undo(self, mark: Any) -> None:
        self._used = mark


class _Laid:
    """Nodes as rows of a table, checked all at once."""

    def __init__(self, offers: Offers, rows: Sequence[str]) -> None:
        self._offers, self.rows = offers, rows

    def take(self, selector: Selector, needs: Amounts, count: int) -> list[tuple[str, int]]:
        """Place up to ``count`` equal tasks on nodes with their capacities, the best node first."""
        taken = self._offers.place(Need.of(dict(needs), self._offers.room.kinds), selector, count)
        return [(self.rows[row], some) for row, some in zip(taken.rows.tolist(), taken.counts.tolist(), strict=True)]

    def mark(self) -> Mark:
        return self._offers.mark()

    def undo(self, mark: Any) -> None:
        self._offers.undo(mark)


def _anywhere(table: _Asked | _Laid, gang: Demand, bundles: Iterable[GangTasks]) -> list[PlacedTasks]:
    """Place each member where it fits, if all of them fit."""
    mark, found = table.mark(), []
    for bundle in bundles:
        taken = table.take(selector_of(gang), bundle.needs, bundle.count)
        if sum([some for _, some in taken]) < bundle.count:
            table.undo(mark)
            return []
        found += [PlacedTasks(gang.id, node, bundle.needs, some) for node, some in taken]
    return found


def _dealt(
    members: Iterable[tuple[str, int]], places: Iterable[tuple[str, int]], needs: Amounts
) -> Iterator[PlacedTasks]:
    """Place equal tasks of some demands on nodes with their capacities, in order."""
    waiting = iter(members)
    name, left = "", 0
    for node, count in places:
        while count:
            if not left:
                name, left = next(waiting)
            some = min(left, count)
            if some:
                yield PlacedTasks(name, node, needs, some)
            left, count = left - some, count - some


def _are_alike(demands: Sequence[Demand]) -> bool:
    """Whether all of them are equal single tasks, so that their order does not matter."""
    first = demands[0]
    if first.gang is not None or len(first.bundles) != 1:
        return False
    return len(demands) == 1 or all(
        one.gang is None
        and len(one.bundles) == 1
        and one.bundles[0].needs == first.bundles[0].needs
        and one.priority == first.priority
        and selector_of(one) == selector_of(first)
        for one in demands[1:]
    )


def _takes_a_share(demand: Demand) -> bool:
    return any(
        name in ACCELERATORS and amount % DEVICE > 0 for bundle in demand.bundles for name, amount in bundle.needs
    )


def _with(used: Amounts, needs: Amounts, count: int) -> Amounts:
    more = dict(used)
    for name, amount in needs:
        more[name] = more.get(name, 0) + amount * count
    return amounts(more)


def _whole_gang(draft: PlanDraft, gang: Demand, rows: Sequence[str]) -> list[PlacedTasks]:
    """Place a gang on one node, on one slice, or one member per host."""
    served = serve_whole(draft, draft.offers, gang, Code.DEMAND)
    draft.offers.room.forget()
    return [] if served is None else list(_members(draft, gang, served, rows))


def _members(draft: PlanDraft, gang: Demand, served: Served, rows: Sequence[str]) -> Iterator[PlacedTasks]:
    """Return where each bundle of a gang was placed, node by node."""
    for index, tasks in enumerate(tasks_of(draft, gang)):
        places = list(_nodes([run for run in served.runs if run.tasks == index], rows))
        bundles = iter(tasks.bundles)
        bundle, left = 0, 0
        for node, count in places:
            while count:
                if not left:
                    bundle, left = next(bundles)
                some = min(left, count)
                yield PlacedTasks(gang.id, node, tasks.needs, some, gang.bundles[bundle])
                left, count = left - some, count - some


def _nodes(runs: Iterable[PlacedRun], rows: Sequence[str]) -> Iterator[tuple[str, int]]:
    for run in runs:
        if run.rows is not None:
            for row, count in zip(run.rows.tolist(), run.counts.tolist(), strict=True):
                yield rows[row], count


def has_rules(demand: Demand) -> bool:
    """Whether it matters what else runs on a node, or its bundles have conditions of their own."""
    if demand.rules is not NO_RULES:
        return True
    return any(bundle.selective or bundle.rules is not NO_RULES for bundle in demand.bundles)
