"""Column generation buys slices for all tasks at the least cost, for any number of tasks.

It repeats three steps:

1. **Cover.** Each task has a value. Find the fill with the highest value for each group, and for each shape the best
   fill that contains it. Buy the fills with the most value per dollar as often as the tasks last, then search again.
2. **Price.** All fills found so far go into a linear program that mixes them, with fractions allowed. Its dual prices
   are the real cost of a task of each shape: better values for the next cover.
3. **Round.** The whole part of the program's mix is bought. The rest is covered as in step 1.

The work grows with shapes and groups. Counts are only divided, so a million equal tasks cost as much as one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from windlass.core.buying.market import Headroom
from windlass.core.capacity.room import UNBOUNDED, Bools, Floats, Ints

from .knapsack import Catalogue, Knapsacks
from .linear_program import DIGITS, LinearProgram

SLACK: Final = 0.97
"""Fills within 3 % of the best value per dollar are bought in the same round: a third of the rounds for the same
cost."""

ROUGH: Final = 0.8
"""The same for the first cover, whose values are only an estimate."""

MANY_SHAPES: Final = (128, 256)
FEW_SLICES: Final = 2
"""Where constraints between tasks make many shapes, and there are fewer slices than so many for each shape, the first
round of effort covers again at the prices of the cover before, instead of solving the program. Its mix would be
nearly all fractions. The first number holds where there are hundreds of machine types. (Karpenter's 5,000 pods: 442 $/h
in a zone from the program, 395 $/h from two covers, in a third of the time. The Alibaba pods, and 112 machine types:
the program is 2 % better.)"""

TOO_MANY_SHAPES: Final = 480
"""With more shapes than this the same holds for all tasks, because the work of the program grows with the cube of the
shapes. (36 machine types, 500 shapes of 1,000 tasks each: 1.306 M$/h in 3.7 s from the program, 1.300 M$/h in 0.7 s
from two covers.)"""

AGAIN: Final = 1
"""How often tasks are covered again with the prices of the cover before."""

AGAIN_SLACK: Final = 0.9

CHUNK: Final = 64
"""Number of fills that are recomputed together: fewer would need more calls, more would recompute fills
unnecessarily."""

SMALL_CHUNK: Final = 16
"""With too many shapes only this many fills are recomputed before the best of them are bought: nearly every purchase
makes the others obsolete. (1,000 shapes: 2.2 s in place of 8.7 s, at the same cost.)"""

TURNS: Final = (4, 8)
"""Number of searches for new fills in the first round of effort, and in every later one.

Four bring the Alibaba pods from 1.06 to 1.04 times the lower bound; later ones find less.
"""

PLACES: Final = 16
"""Number of promising groups in which a fill with each shape is searched, in turn.

With 4 the program stops 1.4 % above its optimum, with 16 at 1 %.
"""

ROWS: Final = 1200
"""Approximate number of fills searched in one turn: few shapes are tried in many groups at once, many shapes in
three."""

ALONE: Final = 3
"""The program starts with every shape alone on this many of its cheapest groups, so that its prices stay bounded."""

FORBIDDING: Final = 3.0
"""The price of an unserved task, as a multiple of the most expensive slice that could hold it: so high that leaving a
task never pays."""

UP_FROM: Final = (1.0, 0.5)
"""Fractions from which the program's mix is rounded up: never, and from one half. The cheaper result is kept."""

WORTH_IT: Final = 0.9
"""A fill with some tasks that are no longer wanted is still bought if the rest is worth this share of its price."""

STEADY: Final = 0.9
"""Weight of the smoothed values in the search for fills; the rest is the program's latest prices.

Those jump between corner solutions, and fills that are good for one corner only are not useful.
"""

FOLLOW: Final = 0.4
"""How far the smoothed values follow the program's prices in each turn."""

SPREAD: Final = 0.3
"""From the second round on, values are raised by up to this share, differently for each shape and turn.

Otherwise the same fills are found again.
"""

GOLDEN: Final = 0.6180339887498949
"""Its multiples, modulo 1, are spread evenly: variety without randomness."""


@dataclass(frozen=True, slots=True)
class Lot:
    """``slices`` equal slices of one group, in the numbering of the catalogue."""

    group: int
    slices: int
    fill: Ints


@dataclass(frozen=True, slots=True)
class Cover:
    """The purchased lots, their cost, and the tasks that are left."""

    lots: tuple[Lot, ...]
    cost: int
    left: Ints

    def better_than(self, other: Cover) -> bool:
        return (int(self.left.sum()), self.cost) < (int(other.left.sum()), other.cost)


class Coverer:
    """Covers tasks with fills; keeps the values and the program from one round to the next."""

    def __init__(self, catalogue: Catalogue, learned: Floats | None = None, *, many_types: bool = False) -> None:
        """``learned``: the cost of a task of each shape in a similar market; NaN where it is not known.

        ``many_types``: there are hundreds of groups to choose from.
        """
        self.catalogue, self._many_types = catalogue, many_types
        self._too_many = len(catalogue.counts) > TOO_MANY_SHAPES
        self._small_steps = self._too_many or (catalogue.caps > 0 and len(catalogue.counts) >= MANY_SHAPES[1])
        self.knapsacks = Knapsacks(catalogue)
        self.groups = np.arange(len(catalogue.groups))
        # One nanodollar more for every slice, so that among slices without a price fewer are bought.
        self.price: Floats = (catalogue.price + 1) / float(catalogue.price.max() + 1)
        # First estimate of the cost of a task: its largest share of the slice where that is cheapest.
        cheapest = np.where(catalogue.usable, self.knapsacks.dominant * self.price[:, None], np.inf).min(axis=0)
        self._limited: Bools = np.zeros((0, len(catalogue.groups)), np.bool_)
        """[limit, group]: the groups that each limit of the program counts."""
        self._owner: Ints = np.zeros(0, np.int64)
        self._value: Floats = self.price.copy()
        self.fractional = 0.0
        """Nanodollars of the program's last mix, which is a lower estimate for the best cover."""
        self.worth: Floats = np.maximum(cheapest, 1e-9 * cheapest.max(initial=1e-9))
        self.has_learned = learned is not None
        if learned is not None:
            known = np.isfinite(learned)
            guess = self.worth * np.median(learned[known] / self.worth[known])
            self.worth = np.where(known, np.maximum(learned, 1e-9 * learned[known].max()), guess)
        self.latest: Floats = self.worth
        """The cost of a task of each shape, as far as it is known."""

    # -- 1. cover ---------------------------------------------------------------------------------------------------

    def cover(self, counts: Ints, headroom: Headroom, worth: Floats, price: Floats, slack: float = SLACK) -> Cover:
        """Buys the fills with the most value per dollar until no task is left or no group is available."""
        catalogue = self.catalogue
        left, room = counts.copy(), headroom.copy()
        lots: list[Lot] = []
        candidates = _Candidates(self, worth, price)
        while True:
            order = candidates.best_first(left, room.all(), slack, at_once=self._small_steps)
            if not len(order):
                break
            for row in order.tolist():
                group, fill = int(candidates.group[row]), candidates.fill[row]
                some = np.flatnonzero(fill)
                slices = min(int((left[some] // fill[some]).min()), room.of(group))
                if slices > 0:
                    left[some] -= slices * fill[some]
                    room.take(group, slices)
                    lots.append(Lot(group, slices, fill.copy()))
        cost = sum(int(catalogue.price[lot.group]) * lot.slices for lot in lots)
        return Cover(tuple(lots), cost, left)

    def proven(self, cover: Cover) -> bool:
        """Whether no cover can be cheaper, even if tasks could be cut to fill every slice completely."""
        catalogue = self.catalogue
        room = catalogue.size * catalogue.hosts[:, None]
        per_unit = np.where(room > 0, catalogue.price[:, None] / np.maximum(room, 1), np.inf).min(axis=0)
        asked = catalogue.plain @ catalogue.counts
        floor = float((asked[asked > 0] * per_unit[asked > 0]).max(initial=0.0))
        return not cover.left.any() and self.catalogue.is_next_above(cover.cost, floor)

    def is_scattered(self, cover: Cover) -> bool:
        """Whether the program would find little here, or take too long: see ``FEW_SLICES``."""
        shapes, many = len(self.catalogue.counts), MANY_SHAPES[0 if self._many_types else 1]
        few = sum(lot.slices for lot in cover.lots) < FEW_SLICES * shapes
        return self._too_many or (self.catalogue.caps > 0 and shapes >= many and few)

    def covered_again(self, best: Cover, worth: Floats) -> tuple[Cover, Floats]:
        """Covers again with the price that the cover before paid for each task; returns the best cover and the last
        values."""
        catalogue = self.catalogue
        for _ in range(AGAIN):
            cover = self.cover(catalogue.counts, catalogue.headroom, worth, self.price, AGAIN_SLACK)
            best = cover if cover.better_than(best) else best
            worth = 0.5 * (worth + self.paid(cover, worth))
        return best, worth

    # -- 2. price ---------------------------------------------------------------------------------------------------

    def open_program(self) -> LinearProgram:
        """Starts the program: every task unserved at a very high price, every limit unused."""
        catalogue = self.catalogue
        # A limit above what all tasks of a group need together needs no row.
        self._limited, limits = catalogue.headroom.binding(catalogue.usable @ catalogue.counts)
        shapes, rows = len(catalogue.counts), len(catalogue.counts) + len(limits)
        highest = (catalogue.usable * self.price[:, None]).max(axis=0)
        master = LinearProgram(catalogue.counts.astype(np.float64), limits)
        master.add(np.eye(rows), np.concatenate((FORBIDDING * highest, np.zeros(len(limits)))))
        master.add(-np.eye(shapes, rows), np.zeros(shapes))
        self._owner = np.full(rows + shapes, -1)
        basis = np.arange(rows)
        room = catalogue.headroom.copy(fractions=True)
        held = catalogue.alone()
        each = np.where(held > 0, self.price[:, None] / np.maximum(held, 1), np.inf)
        ranking = np.argsort(each, axis=0, kind="stable")[:ALONE]
        for place, groups in enumerate(ranking):
            some = np.flatnonzero(np.isfinite(each[groups, np.arange(shapes)]))
            fills = np.zeros((len(some), shapes), np.int64)
            fills[np.arange(len(some)), some] = held[groups[some], some]
            if place == 0:
                for row, shape in enumerate(some.tolist()):
                    slices = float(catalogue.counts[shape] / fills[row, shape])
                    if room.holds(int(groups[shape]), slices):
                        room.take(int(groups[shape]), slices)
                        basis[shape] = len(self._owner) + row
            self._learn(master, groups[some], fills)
        master.start(basis)
        return master

    def _learn(self, master: LinearProgram, groups: Ints, fills: Ints) -> None:
        limit_rows = self._limited[:, groups].T
        master.add(np.concatenate((fills, limit_rows), axis=1, dtype=np.float64), self.price[groups])
        self._owner = np.concatenate((self._owner, groups))

    def _forget(self, master: LinearProgram) -> None:
        """Limits the size of the program: pricing all fills ever found would cost more than it saves."""
        kept = master.forget(3 * len(master.right))
        self._owner = self._owner[kept]

    def paid(self, cover: Cover, worth: Floats) -> Floats:
        """Returns what the cover paid for one task of each shape, with each slice's price divided by value."""
        total = np.zeros(len(worth))
        for lot in cover.lots:
            value = lot.fill * worth
            total += value * (lot.slices * self.price[lot.group] / value.sum())
        served = self.catalogue.counts - cover.left
        return np.where(served > 0, total / np.maximum(served, 1), worth)

    # -- 3. round ---------------------------------------------------------------------------------------------------

    def round_off(self, master: LinearProgram, up_from: float) -> Cover:
        """Buys the whole part of the program's mix, one more where the fraction is at least ``up_from``, and covers the
        rest.

        The program may serve a shape more often than needed. Tasks that are no longer wanted are removed from a fill,
        as long as the rest of it is worth its price.
        """
        catalogue, worth, price = self.catalogue, self.prices(master), self.full_price(master)
        left, room = catalogue.counts.copy(), catalogue.headroom.copy()
        fills = master.columns(master.basis)[:, : len(left)].astype(np.int64)
        owner = self._owner[master.basis]
        # 2.9999 slices count as 3
        level = np.round(master.level, DIGITS)
        whole = np.floor(level + 1e-4).astype(np.int64)
        rows = np.flatnonzero((owner >= 0) & (level > 1e-4))
        lots: list[Lot] = []

        def buy(group: int, slices: int, fill: Ints) -> int:
            some = np.flatnonzero(fill)
            slices = min(slices, int((left[some] // fill[some]).min(initial=0 if not len(some) else UNBOUNDED)))
            slices = min(slices, room.of(group))
            if slices > 0:
                left[some] -= slices * fill[some]
                room.take(group, slices)
                lots.append(Lot(group, slices, fill))
            return max(slices, 0)

        for row in rows[np.argsort(-level[rows], kind="stable")].tolist():
            whole[row] -= buy(int(owner[row]), int(whole[row]), fills[row])
        fraction = level - np.floor(level + 1e-4)
        whole += fraction >= up_from
        for row in rows[np.argsort(-fraction[rows], kind="stable")].tolist():
            while whole[row] > 0:
                fill = np.minimum(fills[row], left)
                bought = (
                    buy(int(owner[row]), int(whole[row]), fill) if fill @ worth >= WORTH_IT * price[owner[row]] else 0
                )
                whole[row] -= bought
                if not bought:
                    break
        rest = self.cover(left, room, worth, price)
        cost = rest.cost + sum(int(catalogue.price[lot.group]) * lot.slices for lot in lots)
        return Cover((*lots, *rest.lots), cost, rest.left)

    def search(self, master: LinearProgram, worth: Floats, turn: int, varied: bool, large_first: bool) -> int:
        """Adds profitable fills to the program: the best of each group, and of each shape.

        Returns how many were added.
        """
        catalogue, knapsacks, price = self.catalogue, self.knapsacks, self.full_price(master)
        counts, shapes = catalogue.counts, len(catalogue.counts)
        promise = self.promise(self._value, worth, price, slice(None))
        places = min(PLACES, len(self.groups))
        ways = min(max(ROWS // shapes, 3), places)
        ranking = np.argsort(-promise, axis=0, kind="stable")
        chosen = ranking[(ways * turn + np.arange(ways)) % places]
        useful = np.take_along_axis(promise, chosen, axis=0) > 0
        forced = np.broadcast_to(np.arange(shapes), chosen.shape)[useful]
        group = np.concatenate((self.groups, chosen[useful]))
        first = np.concatenate((np.full(len(self.groups), -1), forced))
        values = worth
        if varied:
            values = worth * (1.0 + SPREAD * (np.arange(1, shapes + 1) * (turn + 1) * GOLDEN % 1.0))
        fill = knapsacks.fill(group, values, counts, first=first, large_first=large_first)
        self._value = fill[: len(self.groups)] @ worth
        pays = fill @ np.maximum(master.duals[:shapes], 0.0) > price[group] * (1 + 1e-6)
        # Several searches find the same fill of a group; one is enough.
        distinct = {(int(group[row]), fill[row].tobytes()): row for row in np.flatnonzero(pays).tolist()}
        rows = np.array(sorted(distinct.values()), np.int64)
        self._learn(master, group[rows], fill[rows])
        return len(rows)

    def promise(self, value: Floats, worth: Floats, price: Floats, shapes: Ints | slice) -> Floats:
        """[group, shape]: value per dollar of a slice in which one such task replaces its share of the best fill."""
        with_it = value[:, None] * np.maximum(1.0 - self.knapsacks.dominant[:, shapes], 0.0) + worth[shapes]
        return np.where(self.catalogue.usable[:, shapes], np.round(with_it / price[:, None], DIGITS), -1.0)

    def prices(self, master: LinearProgram) -> Floats:
        """Returns the cost of one task of each shape by the program; always above 0, so that no task is left out."""
        return self.worth * np.maximum(np.round(master.duals[: len(self.worth)] / self.worth, DIGITS), 1e-9)

    def full_price(self, master: LinearProgram) -> Floats:
        """Returns the price of a slice of each group, with the dual price of the limits that it counts for."""
        extra = -master.duals[len(self.worth) :] @ self._limited / self.price
        return np.asarray(self.price * (1.0 + np.maximum(np.round(extra, DIGITS), 0.0)))

    # -- all of it ---------------------------------------------------------------------------------------------------

    def best(self, effort: int) -> Cover:
        """Returns the best cover of ``effort`` rounds of pricing and rounding; with 0 the first greedy one."""
        catalogue = self.catalogue
        slack = SLACK if effort < 1 else AGAIN_SLACK if self.has_learned else ROUGH
        best = self.cover(catalogue.counts, catalogue.headroom, self.worth, self.price, slack)
        if effort < 1:
            return best
        if self.proven(best):
            self.fractional = float(best.cost)
            return best
        steady = self.paid(best, self.worth)
        self.latest = 0.5 * (self.worth + steady) if self.has_learned else steady
        if self.is_scattered(best):
            if not self.has_learned:
                best, steady = self.covered_again(best, steady)
                self.latest = steady
            effort -= 1
            if not effort:
                return best
        master = self.open_program()
        if best.lots:  # none under a limit that no slice fits
            self._learn(master, *_as_columns(best.lots))
        pivots = 2 * len(master.right)
        master.solve(pivots)
        turn = 0
        for effort_round in range(effort):
            idle = 0
            for _ in range(TURNS[min(effort_round, 1)]):
                worth = STEADY * steady + (1.0 - STEADY) * self.prices(master)
                varied = effort_round + idle > 0
                found = self.search(master, worth, turn, varied, large_first=effort_round % 2 == 0)
                turn += 1
                master.solve(pivots)
                self._forget(master)
                # Nothing was found: use the program's prices without smoothing. If that finds nothing twice, the search
                # ends.
                steady += (FOLLOW if found else 1.0) * (self.prices(master) - steady)
                idle = 0 if found else idle + 1
                if idle > 2:
                    break
            self.fractional = float(master.price[master.basis] @ master.level) * (float(catalogue.price.max()) + 1.0)
            # Before the program is optimal its cost is no bound, and a later round may lower it.
            final = idle > 2 or effort_round + 1 == effort
            for up_from in UP_FROM:
                if final and not best.left.any() and self.catalogue.is_next_above(best.cost, self.fractional):
                    return best
                rounded = self.round_off(master, up_from)
                if rounded.better_than(best):
                    best = rounded
            if effort_round + 1 < effort:
                self._learn(master, *_as_columns(best.lots))
        return best


def _as_columns(lots: tuple[Lot, ...]) -> tuple[Ints, Ints]:
    return np.array([lot.group for lot in lots], np.int64), np.array([lot.fill for lot in lots], np.int64)


class _Candidates:
    """The best known fill of every group, and of every shape with that shape in it.

    Tasks only become fewer, so a fill only becomes worse: its last value per dollar is an upper bound. A fill that no
    longer fits is recomputed only when its bound would put it among the best.
    """

    def __init__(self, coverer: Coverer, worth: Floats, price: Floats) -> None:
        groups, shapes = len(coverer.groups), len(worth)
        self._coverer, self._worth, self._price = coverer, worth, price
        self._first: Ints = np.concatenate((np.full(groups, -1), np.arange(shapes)))
        self._ratio: Floats = np.full(groups + shapes, np.inf)
        self.group: Ints = np.concatenate((coverer.groups, np.full(shapes, -1)))
        self.fill: Ints = np.zeros((groups + shapes, shapes), np.int64)

    def best_first(self, left: Ints, room: Ints, slack: float, *, at_once: bool) -> Ints:
        """Returns the candidates within ``slack`` of the best, best first; all of them fit the tasks that are left.

        ``at_once``: those that are known after a few were recomputed.
        """
        groups, is_open = len(room), room > 0
        self._ratio[:groups][~is_open] = 0.0
        self._ratio[groups:][left == 0] = 0.0
        stale = np.isinf(self._ratio) | (self.fill > left).any(axis=1) | ~is_open[self.group]
        redone, at_once = False, at_once and not np.isinf(self._ratio).any()
        while True:
            limit = slack * self._ratio[~stale].max(initial=0.0)
            rows = np.flatnonzero(stale & (self._ratio > 0.0) & (self._ratio >= limit))
            if not len(rows):
                break
            if at_once and redone and limit > 0.0:
                break
            rows = rows[np.argsort(-self._ratio[rows], kind="stable")[: SMALL_CHUNK if at_once else CHUNK]]
            self._redo(rows, left, is_open)
            stale[rows] = False
            redone = True
        order = np.argsort(-self._ratio, kind="stable")
        ratio = self._ratio[order]
        return np.asarray(order[(ratio >= limit) & (ratio > 0.0) & ~stale[order]])

    def _redo(self, rows: Ints, left: Ints, is_open: Bools) -> None:
        groups = len(is_open)
        shapes = rows[rows >= groups] - groups
        if len(shapes):
            value = np.where(np.isfinite(self._ratio[:groups]), self._ratio[:groups], 1.0) * self._price
            promise = self._coverer.promise(value, self._worth, self._price, shapes)
            promise[~is_open] = -1.0
            self.group[groups + shapes] = np.where(promise.max(axis=0) > 0, promise.argmax(axis=0), -1)
        lost = self.group[rows] < 0
        self._ratio[rows[lost]] = 0.0
        self.fill[rows[lost]] = 0
        rows = rows[~lost]
        group = self.group[rows]
        self.fill[rows] = self._coverer.knapsacks.fill(group, self._worth, left, first=self._first[rows])
        self._ratio[rows] = np.round(self.fill[rows] @ self._worth / self._price[group], DIGITS)
