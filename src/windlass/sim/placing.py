"""Where waiting work goes on the nodes that are there: the planner's rule, with nothing to buy.

The order of demand, the conditions and what fits are asked from ``windlass.core``, so that the simulated workload
starts a task exactly where a plan says that it fits. A plan tells slices; a workload must know nodes, and that is all
that is worked out here.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from windlass.core.draft import Draft, Way
from windlass.core.gangs import serve_whole
from windlass.core.layout import Layout
from windlass.core.lifecycle import State
from windlass.core.offers import Offers
from windlass.core.reasons import Code
from windlass.core.room import Ints, Need
from windlass.core.shapes import Selector, Shape, bundles_in_order, levels, selector_of
from windlass.core.snapshot import Amounts, Bundle, Demand, Gang, Group, Node, Seconds, Slice, Snapshot


@dataclass(frozen=True, slots=True)
class Placed:
    """``count`` equal tasks of a demand that start on a node."""

    demand: str
    node: str
    needs: Amounts
    count: int


@dataclass(frozen=True, slots=True)
class Score:
    """What speaks for a node, the less the better, and how many tasks fit there."""

    unmet: int
    """Preferences that are not met."""
    left: float
    """What it would have left free."""
    capacity: int


SCORES = 50_000
"""Answers that are remembered: more than there are different ones in most traces, and a few megabytes."""


class Places:
    """Where tasks start, on slices of some groups. What follows from the groups alone is worked out once."""

    def __init__(self, groups: Iterable[Group]) -> None:
        self._groups = tuple(replace(group, max=0, min=0, spare=0) for group in groups)
        self._lineup = Layout(Snapshot(groups=self._groups)).lineup
        self._scores: dict[Hashable, Score | None] = {}

    def placed(self, slices: Iterable[Slice], demands: Sequence[Demand], now: Seconds) -> Iterator[Placed]:
        """What can start now on these slices, all of them ready and of a known group."""
        slices = sorted(slices, key=lambda item: item.id)
        valid = [demand for demand in demands if demand.mistake() is None and not _late(demand, now)]
        if valid and _are_alike(valid):
            yield from self._placed_alike(slices, valid)
            return
        rows = [node.id for item in slices for node in item.offering_nodes]
        draft = self._draft(slices, valid, now) if any(one.gang not in (None, Gang.ANY) for one in valid) else None
        offers = self._offers(slices, valid) if draft is None else draft.offers
        kinds, largest = self._lineup.kinds, self._lineup.largest
        for level in levels(valid, kinds, largest):
            for gang in level.gangs:
                if draft is not None and gang.gang != Gang.ANY:
                    yield from _together(draft, gang, rows)
                else:
                    bundles = bundles_in_order(gang, largest)
                    tasks = [(Need.of(dict(bundle.needs), kinds), bundle) for bundle in bundles]
                    yield from _anywhere(offers, gang, tasks, rows)
            for shape in level.shapes:
                yield from _singly(offers, shape, rows)

    def _placed_alike(self, slices: Sequence[Slice], demands: Sequence[Demand]) -> Iterator[Placed]:
        """Demands of one task or equal ones, as most of the time: each node can be asked by itself, and a node in the
        same use as one that was asked before gives the same answer."""
        selector, needs = selector_of(demands[0]), demands[0].bundles[0].needs
        found = []
        for item in slices:
            for node in item.offering_nodes:
                score = self._score(item.group, node, selector, needs)
                if score is not None:
                    found.append((score, node.id))
        found.sort(key=_by_score)
        members = iter(sorted([(demand.id, demand.count) for demand in demands]))
        yield from _dealt(members, ((name, score.capacity) for score, name in found), needs)

    def _score(self, group: str, node: Node, selector: Selector, needs: Amounts) -> Score | None:
        """What the rule says about a task on a node; None: it does not fit there."""
        labels = tuple(sorted(node.labels.items())) if selector[0] or selector[1] else ()
        key = (group, node.used, labels, selector, needs)
        if key not in self._scores:
            if len(self._scores) >= SCORES:
                self._scores.clear()
            self._scores[key] = self._asked(group, node, selector, needs)
        return self._scores[key]

    def _asked(self, group: str, node: Node, selector: Selector, needs: Amounts) -> Score | None:
        where, prefer, tolerates = selector
        demand = Demand("", (Bundle(needs, 1),), where=where, prefer=prefer, tolerates=tolerates)
        offers = self._offers([Slice("", group, State.READY, nodes=(node,))], [demand])
        need = Need.of(dict(needs), self._lineup.kinds)
        capacity = int(offers.capacity(need, selector)[0])
        if not capacity:
            return None
        unmet = offers.eligibility.answers(selector)[1][offers.profile[0]]
        return Score(int(unmet), float(offers.room.left_share(need, np.zeros(1, np.int64))[0]), capacity)

    def _draft(self, slices: Sequence[Slice], demands: Sequence[Demand], now: Seconds) -> Draft:
        """A whole draft of a plan, for gangs that must lie together."""
        snapshot = Snapshot(groups=self._groups, slices=tuple(slices), demands=tuple(demands), now=now)
        draft = Draft(Layout(snapshot), Way())
        draft.open()
        return draft

    def _offers(self, slices: Sequence[Slice], demands: Sequence[Demand]) -> Offers:
        """The room on the slices, a row for each node, and no more than that."""
        snapshot = Snapshot(groups=self._groups, slices=tuple(slices), demands=tuple(demands))
        layout = Layout(snapshot)
        return Offers(layout.eligibility, layout.rows)


def _late(demand: Demand, now: Seconds) -> bool:
    return demand.gang is not None and demand.deadline is not None and now >= demand.deadline


def _singly(offers: Offers, shape: Shape, rows: Sequence[str]) -> Iterator[Placed]:
    """As many of some equal tasks as there is room for."""
    taken = offers.place(shape.need, shape.selector, shape.count)
    places = zip([rows[row] for row in taken.rows.tolist()], taken.counts.tolist(), strict=True)
    yield from _dealt(iter(shape.members), places, shape.needs)


def _dealt(members: Iterator[tuple[str, int]], places: Iterable[tuple[str, int]], needs: Amounts) -> Iterator[Placed]:
    """Equal tasks of some demands on nodes that take so many each, one after the other."""
    name, left = "", 0
    for node, count in places:
        while count:
            while not left:
                if (member := next(members, None)) is None:
                    return
                name, left = member
            some = min(left, count)
            yield Placed(name, node, needs, some)
            left, count = left - some, count - some


def _are_alike(demands: Sequence[Demand]) -> bool:
    """Whether all of them are of the same single tasks, so that it does not matter which goes first."""
    first = demands[0]
    return all(
        one.gang is None
        and len(one.bundles) == 1
        and one.bundles[0].needs == first.bundles[0].needs
        and one.priority == first.priority
        and selector_of(one) == selector_of(first)
        for one in demands
    )


def _by_score(found: tuple[Score, str]) -> tuple[int, float]:
    return found[0].unmet, found[0].left


def _anywhere(offers: Offers, gang: Demand, tasks: Iterable[tuple[Need, Bundle]], rows: Sequence[str]) -> list[Placed]:
    """Each member where it fits, if all of them do."""
    mark, found = offers.mark(), []
    for need, bundle in tasks:
        taken = offers.place(need, selector_of(gang), bundle.count)
        if taken.total < bundle.count:
            offers.undo(mark)
            return []
        pairs = zip(taken.rows.tolist(), taken.counts.tolist(), strict=True)
        found += [Placed(gang.id, rows[row], bundle.needs, some) for row, some in pairs]
    offers.room.forget()
    return found


def _together(draft: Draft, gang: Demand, rows: Sequence[str]) -> list[Placed]:
    """On one node, or one member a host: what each node has less of tells which member it took."""
    before = draft.offers.room.free.copy()
    served = serve_whole(draft, draft.offers, gang, Code.DEMAND)
    draft.offers.room.forget()
    if served is None:
        return []
    less = before - draft.offers.room.free
    touched = np.flatnonzero(less.any(axis=1)).tolist() or _first_rows(draft, served.runs[0][0])
    bundles = bundles_in_order(gang, draft.largest)
    if gang.gang == Gang.SAME_NODE:
        return [Placed(gang.id, rows[touched[0]], bundle.needs, bundle.count) for bundle in bundles]
    found, free = [], list(touched)
    for bundle in bundles:
        vector = _vector(draft, bundle.needs)
        mine = [row for row in free if (less[row] == vector).all()][: bundle.count]
        # Members that need nothing leave no trace; they go to hosts that nobody else of the gang is on.
        mine += [row for row in range(len(rows)) if row not in touched and row not in mine][: bundle.count - len(mine)]
        free = [row for row in free if row not in mine]
        found += [Placed(gang.id, rows[row], bundle.needs, 1) for row in mine]
    return found


def _first_rows(draft: Draft, positions: Ints) -> list[int]:
    return np.flatnonzero(np.isin(draft.offers.position, positions)).tolist()


def _vector(draft: Draft, needs: Amounts) -> Ints:
    vector = np.zeros(len(draft.kinds.names), np.int64)
    for name, amount in needs:
        if name in draft.kinds.column:
            vector[draft.kinds.column[name]] = amount
    return vector
