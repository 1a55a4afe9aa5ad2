"""``cheapest_mix`` finds the set of new slices with the least cost per hour for all demand that is left.

1. Shapes that no group can hold are ignored.
2. A small market is solved exactly (``exact``), a large one by ``column_generation``, both under the limits of each
   group. Then every slice moves to the cheapest group that holds its tasks.
3. If the result breaks a limit of the whole cluster (nodes, cost, launches) or leaves tasks that fit somewhere, the
   hardest are served first (``_hardest_first``): no purchase takes the place of an earlier shape.
4. With ``apart``, tasks get slices of their own where that costs little more (``own_machines``).
5. If everything fits on one slice of a group that is as cheap as any, that slice is the answer without a search
   (``one_slice``): most purchases are for a task or two.

At equal cost: fewer unmet preferences, fewer slices, lower ranks, names. It is a pure function without a clock or
randomness; effort is counted in rounds.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np

from windlass.core.buying.market import Batch, Headroom, Market
from windlass.core.capacity.room import Floats

from .column_generation import Lot
from .exact import PAIRS, exact_mix, one_slice, pairs
from .knapsack import Catalogue, Knapsacks
from .own_machines import holds, parted
from .separate_parts import solve
from .shortlist import MANY, shortlisted

FEW_LOTS: Final = 40
DOUBT: Final = 1.02
"""With at most this many lots that cost at least this much more than with fractions, the greedy search of rule 3 is
tried as well. It takes some milliseconds, and one slice too many in ten is the largest error of the covering search."""


def cheapest_mix(market: Market, effort: int) -> tuple[Batch, ...]:
    """Returns the slices to buy, cheapest for all of ``market.counts`` together, and separated where the market asks
    for it.

    ``effort`` is the number of rounds of the covering search (0: one greedy cover); the cost never rises with more
    rounds. Small markets are always solved exactly.
    """
    if (batch := one_slice(market)) is not None:
        return (batch,)
    market = shortlisted(market)
    catalogue = Catalogue.of(market)
    if not len(catalogue.shapes):
        return ()
    return _batches(market, catalogue, parted(market, catalogue, _cheapest_lots(market, catalogue, effort)))


def _cheapest_lots(market: Market, catalogue: Catalogue, effort: int) -> tuple[Lot, ...]:
    found: list[tuple[Lot, ...]] = []
    if pairs(catalogue.counts) <= PAIRS:
        mix, proven = exact_mix(market, catalogue)
        if mix is not None:
            found.append(tuple(Lot(group, 1, fill) for group, fill in mix))
            if proven:
                return found[0]
    solution = solve(catalogue, _learned(market, catalogue), effort, many_types=len(market.hosts) > MANY)
    if market.learned is not None:
        prices = zip(catalogue.shapes, solution.paid.tolist(), strict=True)
        market.learned.update((market.needs[shape], price) for shape, price in prices)
    lots = _settled(market, catalogue, solution.cover.lots)
    if not solution.cover.left.any() and _within_limits(market, catalogue, lots):
        found.append(lots)
    cost = _cost(catalogue, lots)
    doubtful = cost > DOUBT * solution.fractional and not catalogue.is_next_above(cost, solution.fractional)
    if not found or (len(lots) <= FEW_LOTS and doubtful):
        plain = _settled(market, catalogue, _hardest_first(market, catalogue, solution.worth))
        if not found or _served(plain) == _served(found[0]):
            found.append(plain)
    return min(found, key=lambda lots: _cost(catalogue, lots))


def _learned(market: Market, catalogue: Catalogue) -> Floats | None:
    """Returns the cost of a task of each shape in earlier markets, NaN where it is not known; None if most are not."""
    known = market.learned or {}
    found = np.array([known.get(market.needs[shape], np.nan) for shape in catalogue.shapes], np.float64)
    return found if 2 * np.isfinite(found).sum() > len(found) else None


def _cost(catalogue: Catalogue, lots: tuple[Lot, ...]) -> int:
    return sum(int(catalogue.price[lot.group]) * lot.slices for lot in lots)


def _served(lots: tuple[Lot, ...]) -> int:
    return sum(int(lot.fill.sum()) * lot.slices for lot in lots)


def _batches(market: Market, catalogue: Catalogue, lots: tuple[Lot, ...]) -> tuple[Batch, ...]:
    """Returns batches of equal slices, in the market's numbering, groups in name order."""
    together: Counter[tuple[int, tuple[int, ...]]] = Counter()
    for lot in lots:
        together[lot.group, tuple(lot.fill.tolist())] += lot.slices
    result = []
    for (group, tasks), slices in sorted(together.items(), key=lambda item: (item[0][0], [-n for n in item[0][1]])):
        fill = np.zeros(len(market.counts), np.int64)
        fill[catalogue.shapes] = tasks
        result.append(Batch(int(catalogue.groups[group]), slices, fill))
    return tuple(result)


# -- moving to cheaper groups --------------------------------------------------------------------------------------


def _settled(market: Market, catalogue: Catalogue, lots: tuple[Lot, ...]) -> tuple[Lot, ...]:
    """Returns the lots in cheaper groups, unless their hosts would exceed ``max_nodes``."""
    moved = _moved(market, catalogue, lots)
    return moved if _within_limits(market, catalogue, moved) else lots


def _moved(market: Market, catalogue: Catalogue, lots: tuple[Lot, ...]) -> tuple[Lot, ...]:
    """Moves each lot to the cheapest group that holds it, as far as the limits allow; ties by the usual order."""
    if not lots:
        return lots
    fills = np.array([lot.fill for lot in lots])
    own = np.array([lot.group for lot in lots])
    rank = market.rank[catalogue.groups]
    unmet = fills @ catalogue.unmet
    # One number for (price, rank, name) of a group; unmet preferences depend on the lot and come in between.
    place = np.empty(len(rank), np.int64)
    place[np.lexsort((np.arange(len(rank)), rank))] = np.arange(len(rank))
    price = np.broadcast_to(catalogue.price, unmet.shape)
    better = price < price[np.arange(len(lots)), own][:, None]
    same = price == price[np.arange(len(lots)), own][:, None]
    mine = unmet[np.arange(len(lots)), own][:, None]
    better |= same & ((unmet < mine) | ((unmet == mine) & (place < place[own][:, None])))
    # Candidates that surely do not fit are skipped: a shape may not be there, or the sum is larger than the slice.
    better &= ~((fills > 0) @ ~catalogue.usable.T)
    for kind, needs in enumerate(catalogue.plain):
        better &= (fills @ needs)[:, None] <= catalogue.size[:, kind] * catalogue.hosts
    lot_rows, groups = np.nonzero(better)
    holding = holds(catalogue, groups, fills[lot_rows])
    room = catalogue.headroom.copy()
    for lot in lots:
        room.take(lot.group, lot.slices)
    options: dict[int, list[int]] = {}
    for row, group in zip(lot_rows[holding].tolist(), groups[holding].tolist(), strict=True):
        options.setdefault(row, []).append(group)
    result = []
    for row, lot in enumerate(lots):
        slices = lot.slices
        room.take(lot.group, -slices)
        ranking = [(int(catalogue.price[g]), int(unmet[row, g]), int(place[g]), g) for g in options.get(row, [])]
        for *_, group in sorted(ranking):
            moving = min(slices, room.of(group))
            if moving > 0:
                room.take(group, moving)
                slices -= moving
                result.append(Lot(group, moving, lot.fill))
        if slices:
            room.take(lot.group, slices)
            result.append(Lot(lot.group, slices, lot.fill))
    return tuple(result)


# -- under limits --------------------------------------------------------------------------------------------------


def _within_limits(market: Market, catalogue: Catalogue, lots: tuple[Lot, ...]) -> bool:
    nodes = sum(int(catalogue.hosts[lot.group]) * lot.slices for lot in lots)
    money = _cost(catalogue, lots)
    launches = sum(lot.slices for lot in lots)
    return nodes <= market.nodes_left and money <= market.money_left and launches <= market.launches_left


LOOKAHEAD: Final = 300
"""Largest number of steps of the count of tasks that can still be served; beyond it the count is an upper estimate."""


class _Budget:
    """What may still be bought."""

    __slots__ = ("headroom", "launches", "money", "nodes")

    def __init__(self, headroom: Headroom, nodes: int, money: int, launches: int) -> None:
        self.headroom, self.nodes, self.money, self.launches = headroom, nodes, money, launches

    def max_slices(self, hosts: int, price: int, group: int) -> int:
        """Slices of the group that could be bought now."""
        most = min(self.headroom.of(group), self.launches, self.nodes // hosts)
        return max(min(most, self.money // price) if price else most, 0)

    def after(self, hosts: int, price: int, group: int, slices: int) -> _Budget:
        headroom = self.headroom.copy()
        headroom.take(group, slices)
        return _Budget(headroom, self.nodes - hosts * slices, self.money - price * slices, self.launches - slices)


def _hardest_first(market: Market, catalogue: Catalogue, worth: Floats) -> tuple[Lot, ...]:
    """Serves the shapes in order, each with the slices that give the most value per dollar, as far as the limits
    allow."""
    knapsacks = Knapsacks(catalogue)
    groups, shapes = np.arange(len(catalogue.groups)), len(catalogue.shapes)
    in_order = np.arange(shapes, 0, -1, dtype=np.float64)
    hosts, price = catalogue.hosts.tolist(), catalogue.price.tolist()
    budget = _Budget(catalogue.headroom.copy(), market.nodes_left, market.money_left, market.launches_left)
    held = catalogue.alone()
    left = catalogue.counts.copy()
    lots: list[Lot] = []
    shape = 0
    while shape < shapes:
        if not left[shape]:
            shape += 1
            continue
        affordable = [budget.max_slices(hosts[group], price[group], group) > 0 for group in groups.tolist()]
        open_groups = groups[catalogue.usable[:, shape] & affordable]
        if not len(open_groups):
            left[shape] = 0
            shape += 1
            continue
        fills = knapsacks.fill(open_groups, in_order, left, in_order=True)
        alone = {g: int(held[g, shape]) for g in open_groups.tolist()}
        goal = _servable(budget, int(left[shape]), alone, hosts, price)
        value = (fills @ worth) / (catalogue.price[open_groups] + 1)
        bought = None
        for row in np.lexsort((open_groups, market.rank[catalogue.groups[open_groups]], -value)).tolist():
            group, fill = int(open_groups[row]), fills[row]
            some = np.flatnonzero(fill)
            slices = min(int((left[some] // fill[some]).min()), budget.max_slices(hosts[group], price[group], group))
            while slices and bought is None:
                rest = budget.after(hosts[group], price[group], group, slices)
                got = int(fill[shape]) * slices
                if got + _servable(rest, int(left[shape]) - got, alone, hosts, price) >= goal:
                    bought = Lot(group, slices, fill)
                    budget = rest
                slices //= 2
            if bought is not None:
                break
        if bought is None:  # only when the count was an estimate: take the first group that is available
            row = int(value.argmax())
            group = int(open_groups[row])
            bought = Lot(group, 1, fills[row])
            budget = budget.after(hosts[group], price[group], group, 1)
        left -= bought.slices * bought.fill
        lots.append(bought)
    return tuple(lots)


def _servable(budget: _Budget, wanted: int, alone: dict[int, int], hosts: list[int], price: list[int]) -> int:
    """Returns the most tasks of one shape that can still be served: branch and bound over the slices of each group."""
    order = sorted(alone, key=lambda g: (-alone[g] / (price[g] + 1), -alone[g] / hosts[g], g))
    best, steps = 0, 0

    def bound(at: int, budget: _Budget) -> float:
        rest = order[at:]
        if not rest:
            return 0.0
        per_launch = max(alone[g] for g in rest)
        per_node = max(alone[g] / hosts[g] for g in rest)
        limit = min(budget.launches * per_launch, budget.nodes * per_node)
        limit = min(limit, sum(alone[g] * budget.headroom.of(g) for g in rest))
        if all(price[g] for g in rest):
            limit = min(limit, budget.money * max(alone[g] / price[g] for g in rest))
        return limit * (1 + 1e-9)

    def descend(at: int, budget: _Budget, served: int) -> None:
        nonlocal best, steps
        best = max(best, min(served, wanted))
        steps += 1
        if best >= wanted or at == len(order) or steps > LOOKAHEAD or served + bound(at, budget) < best + 1:
            return
        group = order[at]
        enough = -(-(wanted - served) // alone[group])
        most = min(budget.max_slices(hosts[group], price[group], group), enough)
        for slices in range(most, -1, -1):
            descend(at + 1, budget.after(hosts[group], price[group], group, slices), served + slices * alone[group])
            if best >= wanted or steps > LOOKAHEAD:
                return

    descend(0, budget, 0)
    return best
