"""This module moves tasks to machines of their own where that costs little more, because such machines can be released
one by one.

A slice that is bought for several tasks lives as long as the longest of them, and durations are unknown. The cheapest
mix lets tasks share a slice for the smallest saving, or for none. With ``apart``, every slice of the mix is therefore
checked again:

1. Its tasks are removed one after the other, each to the cheapest slice that holds it alone, those with the cheapest
   own slice first. The rest moves to the cheapest group that holds it.
2. As many tasks are removed as all parts together cost at most ``1 + apart`` times the original slice.
3. No task loses a preference, and where a limit leaves no room for the parts, the slice stays as it was.

Tasks of a gang start and end together, so they stay together.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from windlass.core.buying.market import Market
from windlass.core.capacity.room import Bools, Ints

from .column_generation import Lot
from .knapsack import Catalogue, Knapsacks

MOST: Final = 64
"""Largest number of tasks that are removed from one slice. It bounds the work."""


def holds(catalogue: Catalogue, groups: Ints, fills: Ints) -> Bools:
    """Whether a slice of each group also holds the fill. May be False for a fill that only an unusual packing fits."""
    if not len(groups):
        return np.zeros(0, np.bool_)
    knapsacks = Knapsacks(catalogue)
    packed = knapsacks.fill(groups, knapsacks.dominant[groups], fills, in_order=True)
    return np.asarray((packed == fills).all(axis=1))


def parted(market: Market, catalogue: Catalogue, lots: tuple[Lot, ...]) -> tuple[Lot, ...]:
    """Returns the same tasks on more slices that cost little more."""
    if market.apart is None:
        return lots
    result: list[Lot] = []
    bought = _slices(catalogue, lots)
    for lot in lots:
        pieces = _pieces(market, catalogue, lot)
        after = bought - _slices(catalogue, (lot,)) + _slices(catalogue, pieces)
        if int(after.sum()) > int(bought.sum()) and _is_within(market, catalogue, after):
            bought = after
            result += pieces
        else:
            result.append(lot)
    return tuple(result)


def _slices(catalogue: Catalogue, lots: tuple[Lot, ...]) -> Ints:
    bought = np.zeros(len(catalogue.groups), np.int64)
    for lot in lots:
        bought[lot.group] += lot.slices
    return bought


def _is_within(market: Market, catalogue: Catalogue, bought: Ints) -> bool:
    return bool(
        catalogue.headroom.allows(bought)
        and int((bought * catalogue.hosts).sum()) <= market.nodes_left
        and int((bought * catalogue.price).sum()) <= market.money_left
        and int(bought.sum()) <= market.launches_left
    )


def _pieces(market: Market, catalogue: Catalogue, lot: Lot) -> tuple[Lot, ...]:
    """Returns the lot as single tasks and the rest of it; the lot itself if that would cost too much."""
    if market.apart is None or int(lot.fill.sum()) < 2:
        return (lot,)
    price = int(catalogue.price[lot.group])
    most = price * (market.apart.numerator + market.apart.denominator) // market.apart.denominator
    shapes = np.flatnonzero((lot.fill > 0) & market.single[catalogue.shapes])
    own = {int(shape): group for shape in shapes if (group := _alone(market, catalogue, lot.group, int(shape))) >= 0}
    singly = [shape for shape in own for _ in range(int(lot.fill[shape]))]
    singly.sort(key=lambda shape: (int(catalogue.price[own[shape]]), shape))
    off = np.zeros((min(len(singly), MOST) + 1, len(lot.fill)), np.int64)
    spent = [0]
    for number, shape in enumerate(singly[:MOST], 1):
        off[number] = off[number - 1]
        off[number, shape] += 1
        spent.append(spent[-1] + int(catalogue.price[own[shape]]))
    groups, prices = _cheapest_for(market, catalogue, lot, lot.fill - off)
    taken = max(number for number in range(len(spent)) if not number or spent[number] + prices[number] <= most)
    pieces = [Lot(own[int(shape)], lot.slices * int(off[taken, shape]), _one(lot, int(shape))) for shape in shapes]
    rest = lot.fill - off[taken]
    return (
        *(piece for piece in pieces if piece.slices),
        *((Lot(groups[taken], lot.slices, rest),) if rest.any() else ()),
    )


def _one(lot: Lot, shape: int) -> Ints:
    fill = np.zeros_like(lot.fill)
    fill[shape] = 1
    return fill


def _alone(market: Market, catalogue: Catalogue, group: int, shape: int) -> int:
    """Returns the cheapest group for one task of a shape that meets as many of its preferences as this one; -1:
    none."""
    unmet, rank = catalogue.unmet[shape], market.rank[catalogue.groups]
    fits = np.flatnonzero(catalogue.usable[:, shape] & (unmet <= unmet[group]))
    return min(fits.tolist(), key=lambda one: (catalogue.price[one], unmet[one], rank[one], one), default=-1)


def _cheapest_for(market: Market, catalogue: Catalogue, lot: Lot, fills: Ints) -> tuple[list[int], list[int]]:
    """Returns for each fill the cheapest group that holds it, and its price; an empty fill costs 0."""
    unmet, rank = fills @ catalogue.unmet, market.rank[catalogue.groups]
    may = ~((fills > 0) @ ~catalogue.usable.T) & (unmet <= unmet[:, [lot.group]])
    may &= catalogue.price < catalogue.price[lot.group]
    for kind, needs in enumerate(catalogue.plain):
        may &= (fills @ needs)[:, None] <= catalogue.size[:, kind] * catalogue.hosts
    rows, groups = np.nonzero(may)
    held = holds(catalogue, groups, fills[rows])
    best = [lot.group] * len(fills)  # a group that holds all of it holds a part of it
    for row, group in zip(rows[held].tolist(), groups[held].tolist(), strict=True):
        best[row] = min(best[row], group, key=lambda one: (catalogue.price[one], unmet[row, one], rank[one], one))
    return best, [int(catalogue.price[group]) if fill.any() else 0 for group, fill in zip(best, fills, strict=True)]
