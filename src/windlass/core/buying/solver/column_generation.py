"""Column generation buys slices for all tasks at the least cost, for any number of tasks.

The law, in three moves that feed each other:

1. **Cover.** With a value for every task, find for each group the fill that is worth most, and for each shape the best
   fill that has it on board; buy the ones with the most value per dollar as often as the tasks last; look again.
2. **Price.** All fills ever seen go into a linear programme (``master``) that mixes them with fractions allowed. Its
   row prices are what a task of each shape really costs: better values for the next cover.
3. **Round.** The whole part of the programme's mix is bought as it is; the rest is covered as in 1.

The work grows with shapes and groups. Counts are only ever divided, so a million equal tasks cost what one costs.
"""

from __future__ import annotations

import math
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
"""The same for the first cover of all, whose values are only a guess."""

MANY_SHAPES: Final = 128
TOO_MANY_SHAPES: Final = 400
FEW_SLICES: Final = 2
"""Where constraints between tasks make many shapes, there are hundreds of machine types (or still more shapes) and
fewer slices than so many for each shape, the first round of effort covers again at the prices of the cover before,
instead of solving the programme. Its mix would be nearly all fractions, and its work grows with the cube of the shapes.
(Karpenter's 5,000 pods: 442 $/h in a zone from the programme, 395 $/h from two covers, in a third of the time. The
Alibaba pods, and 112 machine types: the programme is 2 % better.)"""

AGAIN: Final = 1
"""Covers at the prices of the cover before."""

AGAIN_SLACK: Final = 0.9

CHUNK: Final = 64
"""Fills that are redone together: fewer would cost more calls, more would redo what is not needed."""

TURNS: Final = (4, 8)
"""Looks for new fills in the first round of effort, and in every later one. Four bring the Alibaba pods from 1.06 to
1.04 times the lower bound; the later ones find less."""

PLACES: Final = 16
"""Each shape is tried on board of its most promising groups, so many of them, in turn; with 4 the programme stalls
1.4 % above its optimum, with 16 1 %."""

ROWS: Final = 1200
"""Fills sought in one turn, about: few shapes are tried on board of many groups at once, many shapes of three."""

ALONE: Final = 3
"""The programme begins with every shape alone on its cheapest groups, so many of them: its prices cannot run wild."""

FORBIDDING: Final = 3.0
"""An unserved task costs so many times the most expensive slice that could hold it: it never pays to leave it."""

UP_FROM: Final = (1.0, 0.5)
"""Fractions from which on the programme's mix is rounded up: never, and as in school. The cheaper one is kept."""

WORTH_IT: Final = 0.9
"""A fill of which a part is no longer wanted is still bought if the rest is worth so much of its price."""

STEADY: Final = 0.9
"""Fills are sought at values that are by so much the steady ones, the rest is the programme's latest prices. Those jump
from one corner to the next; fills that are good in one corner only are no use."""

FOLLOW: Final = 0.4
"""How far the steady values follow the programme's prices in each turn."""

SPREAD: Final = 0.3
"""From the second round on values are raised by up to so much, each shape by another part and in each turn by another:
otherwise the same fills are found again and again."""

GOLDEN: Final = 0.6180339887498949
"""Its multiples, modulo 1, are spread evenly: variety without chance."""


@dataclass(frozen=True, slots=True)
class Lot:
    """``slices`` equal slices of one group; everything in the catalogue's numbering."""

    group: int
    slices: int
    fill: Ints


@dataclass(frozen=True, slots=True)
class Cover:
    """Lots, what they cost, and the tasks that they leave."""

    lots: tuple[Lot, ...]
    cost: int
    left: Ints

    def better_than(self, other: Cover) -> bool:
        return (int(self.left.sum()), self.cost) < (int(other.left.sum()), other.cost)


class Coverer:
    """The values and leans found so far, and the programme: what one round leaves to the next."""

    def __init__(self, catalogue: Catalogue, learned: Floats | None = None, *, many_types: bool = False) -> None:
        """``learned``: what a task of each shape cost in a market like this one; NaN where that is not known.

        ``many_types``: there are hundreds of groups to choose from.
        """
        self.catalogue, self._many_types = catalogue, many_types
        self.knapsacks = Knapsacks(catalogue)
        self.groups = np.arange(len(catalogue.groups))
        # One nanodollar more for every slice: fewer slices among those that cost nothing.
        self.price: Floats = (catalogue.price + 1) / float(catalogue.price.max() + 1)
        # A first guess at what a task costs: its largest share of the slice where that is cheapest.
        cheapest = np.where(catalogue.usable, self.knapsacks.dominant * self.price[:, None], np.inf).min(axis=0)
        self._limited: Bools = np.zeros((0, len(catalogue.groups)), np.bool_)
        """[limit, group]: the groups that each limit of the programme counts."""
        self._owner: Ints = np.zeros(0, np.int64)
        self._value: Floats = self.price.copy()
        self.fractional = 0.0
        """Nanodollars of the programme's last mix: about what the best cover costs, at least."""
        self.worth: Floats = np.maximum(cheapest, 1e-9 * cheapest.max(initial=1e-9))
        self.has_learned = learned is not None
        if learned is not None:
            known = np.isfinite(learned)
            guess = self.worth * np.median(learned[known] / self.worth[known])
            self.worth = np.where(known, np.maximum(learned, 1e-9 * learned[known].max()), guess)
        self.latest: Floats = self.worth
        """What a task of each shape costs, as far as is known by now."""

    # -- 1. cover ---------------------------------------------------------------------------------------------------

    def cover(self, counts: Ints, headroom: Headroom, worth: Floats, price: Floats, slack: float = SLACK) -> Cover:
        """Buy the most value per dollar until nothing is left or nothing can be had."""
        catalogue = self.catalogue
        left, room = counts.copy(), headroom.copy()
        lots: list[Lot] = []
        candidates = _Candidates(self, worth, price)
        while True:
            order = candidates.best_first(left, room.all(), slack)
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
        """Whether nothing can be cheaper: not even if tasks could be cut to fill every slice to the brim."""
        catalogue = self.catalogue
        room = catalogue.size * catalogue.hosts[:, None]
        per_unit = np.where(room > 0, catalogue.price[:, None] / np.maximum(room, 1), np.inf).min(axis=0)
        asked = catalogue.plain @ catalogue.counts
        floor = float((asked[asked > 0] * per_unit[asked > 0]).max(initial=0.0))
        return not cover.left.any() and self.is_next_above(cover.cost, floor)

    def is_next_above(self, cost: int, floor: float) -> bool:
        """Whether no sum of prices lies between the two: all are multiples of what the prices have in common."""
        step = max(int(np.gcd.reduce(self.catalogue.price)), 1)
        return cost <= math.ceil(floor * (1 - 1e-9) / step) * step

    def is_scattered(self, cover: Cover) -> bool:
        """Whether the programme would find little here: see ``FEW_SLICES``."""
        shapes = len(self.catalogue.counts)
        if not self.catalogue.caps or shapes < (MANY_SHAPES if self._many_types else TOO_MANY_SHAPES):
            return False
        return sum(lot.slices for lot in cover.lots) < FEW_SLICES * shapes

    def covered_again(self, best: Cover, worth: Floats) -> tuple[Cover, Floats]:
        """Cover again at what the cover before paid for each task; the best cover, and the last values."""
        catalogue = self.catalogue
        for _ in range(AGAIN):
            cover = self.cover(catalogue.counts, catalogue.headroom, worth, self.price, AGAIN_SLACK)
            best = cover if cover.better_than(best) else best
            worth = 0.5 * (worth + self.paid(cover, worth))
        return best, worth

    # -- 2. price ---------------------------------------------------------------------------------------------------

    def open_programme(self) -> LinearProgram:
        """Every task unserved at a forbidding price, every limit unused."""
        catalogue = self.catalogue
        # A limit that all tasks of a group together cannot reach needs no row.
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
        """Keep the programme small: pricing every fill ever seen would cost more than it finds."""
        kept = master.forget(3 * len(master.right))
        self._owner = self._owner[kept]

    def paid(self, cover: Cover, worth: Floats) -> Floats:
        """What the cover paid for one task of each shape, each slice's price split by worth."""
        total = np.zeros(len(worth))
        for lot in cover.lots:
            value = lot.fill * worth
            total += value * (lot.slices * self.price[lot.group] / value.sum())
        served = self.catalogue.counts - cover.left
        return np.where(served > 0, total / np.maximum(served, 1), worth)

    # -- 3. round ---------------------------------------------------------------------------------------------------

    def round_off(self, master: LinearProgram, up_from: float) -> Cover:
        """The whole part of the programme's mix, one more of those with a fraction of ``up_from``; the rest covered.

        The programme may serve a shape more often than asked. What is no longer wanted is left out of a fill, as long
        as the rest of it is worth its price.
        """
        catalogue, worth, price = self.catalogue, self.prices(master), self.full_price(master)
        left, room = catalogue.counts.copy(), catalogue.headroom.copy()
        fills = master.columns(master.basis)[:, : len(left)].astype(np.int64)
        owner = self._owner[master.basis]
        # A hair more: 2.9999 slices are 3.
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
        """Give the programme fills that pay: the best of each group, and of each shape. How many there were."""
        catalogue, knapsacks, price = self.catalogue, self.knapsacks, self.full_price(master)
        counts, shapes = catalogue.counts, len(catalogue.counts)
        promise = self.promise(self._value, worth, price)
        places = min(PLACES, len(self.groups))
        ways = min(max(ROWS // shapes, 3), places)
        ranking = np.argsort(-promise, axis=0, kind="stable")
        chosen = ranking[(ways * turn + np.arange(ways)) % places]
        useful = np.take_along_axis(promise, chosen, axis=0) > 0
        on_board = np.broadcast_to(np.arange(shapes), chosen.shape)[useful]
        group = np.concatenate((self.groups, chosen[useful]))
        first = np.concatenate((np.full(len(self.groups), -1), on_board))
        tilted = worth
        if varied:
            tilted = worth * (1.0 + SPREAD * (np.arange(1, shapes + 1) * (turn + 1) * GOLDEN % 1.0))
        fill = knapsacks.fill(group, tilted, counts, first=first, large_first=large_first)
        self._value = fill[: len(self.groups)] @ worth
        pays = fill @ np.maximum(master.duals[:shapes], 0.0) > price[group] * (1 + 1e-6)
        # Equal fills of one group are found from many sides; one is enough.
        distinct = {(int(group[row]), fill[row].tobytes()): row for row in np.flatnonzero(pays).tolist()}
        rows = np.array(sorted(distinct.values()), np.int64)
        self._learn(master, group[rows], fill[rows])
        return len(rows)

    def promise(self, value: Floats, worth: Floats, price: Floats) -> Floats:
        """[group, shape]: value per dollar of a slice if one such task displaces its share of the best fill."""
        with_it = value[:, None] * np.maximum(1.0 - self.knapsacks.dominant, 0.0) + worth
        return np.where(self.catalogue.usable, np.round(with_it / price[:, None], DIGITS), -1.0)

    def prices(self, master: LinearProgram) -> Floats:
        """What one task of each shape costs by the programme; never nothing, so that nothing is left lying about."""
        return self.worth * np.maximum(np.round(master.duals[: len(self.worth)] / self.worth, DIGITS), 1e-9)

    def full_price(self, master: LinearProgram) -> Floats:
        """The price of a slice of each group, and what its place under a short headroom is worth besides."""
        extra = -master.duals[len(self.worth) :] @ self._limited / self.price
        return np.asarray(self.price * (1.0 + np.maximum(np.round(extra, DIGITS), 0.0)))

    # -- all of it ---------------------------------------------------------------------------------------------------

    def best(self, effort: int) -> Cover:
        """The best cover of ``effort`` rounds of pricing and rounding; with 0 the first greedy one."""
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
        master = self.open_programme()
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
                # Nothing found: the steady values are left behind at once; twice nothing there either: it is done.
                steady += (FOLLOW if found else 1.0) * (self.prices(master) - steady)
                idle = 0 if found else idle + 1
                if idle > 2:
                    break
            self.fractional = float(master.price[master.basis] @ master.level) * (float(catalogue.price.max()) + 1.0)
            # Short of the programme's optimum its cost is no bound, and a later round may still lower it.
            final = idle > 2 or effort_round + 1 == effort
            for up_from in UP_FROM:
                if final and not best.left.any() and self.is_next_above(best.cost, self.fractional):
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
    """A fill for every group, and one for every shape with that shape on board.

    Tasks only ever get fewer, so a fill only ever gets worse: its last value per dollar is a ceiling, and what no
    longer fits is redone only when its ceiling would put it among the best.
    """

    def __init__(self, coverer: Coverer, worth: Floats, price: Floats) -> None:
        groups, shapes = len(coverer.groups), len(worth)
        self._coverer, self._worth, self._price = coverer, worth, price
        self._first: Ints = np.concatenate((np.full(groups, -1), np.arange(shapes)))
        self._ratio: Floats = np.full(groups + shapes, np.inf)
        self.group: Ints = np.concatenate((coverer.groups, np.full(shapes, -1)))
        self.fill: Ints = np.zeros((groups + shapes, shapes), np.int64)

    def best_first(self, left: Ints, room: Ints, slack: float) -> Ints:
        """The candidates within ``slack`` of the best, best first; all of them fit what is left."""
        groups, is_open = len(room), room > 0
        self._ratio[:groups][~is_open] = 0.0
        self._ratio[groups:][left == 0] = 0.0
        stale = np.isinf(self._ratio) | (self.fill > left).any(axis=1) | ~is_open[self.group]
        while True:
            limit = slack * self._ratio[~stale].max(initial=0.0)
            rows = np.flatnonzero(stale & (self._ratio > 0.0) & (self._ratio >= limit))
            if not len(rows):
                break
            rows = rows[np.argsort(-self._ratio[rows], kind="stable")[:CHUNK]]
            self._redo(rows, left, is_open)
            stale[rows] = False
        order = np.argsort(-self._ratio, kind="stable")
        ratio = self._ratio[order]
        return np.asarray(order[(ratio >= limit) & (ratio > 0.0) & ~stale[order]])

    def _redo(self, rows: Ints, left: Ints, is_open: Bools) -> None:
        groups = len(is_open)
        shapes = rows[rows >= groups] - groups
        if len(shapes):
            value = np.where(np.isfinite(self._ratio[:groups]), self._ratio[:groups], 1.0) * self._price
            promise = self._coverer.promise(value, self._worth, self._price)[:, shapes]
            promise[~is_open] = -1.0
            self.group[groups + shapes] = np.where(promise.max(axis=0) > 0, promise.argmax(axis=0), -1)
        lost = self.group[rows] < 0
        self._ratio[rows[lost]] = 0.0
        self.fill[rows[lost]] = 0
        rows = rows[~lost]
        group = self.group[rows]
        self.fill[rows] = self._coverer.knapsacks.fill(group, self._worth, left, first=self._first[rows])
        self._ratio[rows] = np.round(self.fill[rows] @ self._worth / self._price[group], DIGITS)
