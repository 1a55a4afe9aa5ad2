"""This module finds the cheapest purchase for few tasks by exhaustive search.

A state is the multiset of tasks that are left, encoded as one number in mixed radix, so that removing tasks is a
subtraction. Each slice takes the first shape that is left, and any others beside it. Without limits the best way to
continue depends on the state alone; the table of these costs is then the lower bound for the search under the limits.
Costs are whole numbers that include the tie-breakers: dollars, then unmet preferences, slices, ranks, names.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Final, TypeAlias

import numpy as np

from windlass.core.buying.market import Batch, Market
from windlass.core.capacity.room import Bools, Ints
from windlass.core.model.quantities import DEVICE

from .knapsack import Catalogue

PAIRS: Final = 2500
"""Largest number of pairs (tasks left, part of them) for an exact search: six different tasks have 729, thirty equal
ones 496. The search takes a few milliseconds."""

STEPS: Final = 6_000
"""Largest number of steps of the search under limits: about 50 ms.

Thirty tasks under tight limits may need more; then the result is not proven, and column generation is tried as well.
"""

Mix: TypeAlias = list[tuple[int, Ints]]
"""Slices as (group, tasks of each shape), both in the catalogue's numbering."""


@dataclass(frozen=True, slots=True)
class _Option:
    """One slice of ``group`` with the tasks of state ``part`` on it."""

    cost: int
    part: int
    group: int


def pairs(counts: Ints) -> int:
    """Returns the number of ways to take a part of the tasks and then a part of that: the work of an exact search."""
    return prod((count + 1) * (count + 2) // 2 for count in counts.tolist())


def exact_mix(market: Market, catalogue: Catalogue) -> tuple[Mix | None, bool]:
    """Returns the cheapest slices for all tasks within every limit (None if none are found), and whether that is
    proven."""
    counts = catalogue.counts.tolist()
    radix = [prod(count + 1 for count in counts[position + 1 :]) for position in range(len(counts))]
    states = list(product(*(range(count + 1) for count in counts)))
    options, dollar = _options(market, catalogue, states)
    leading = [next((radix[at] for at, count in enumerate(state) if count), 0) for state in states]
    by_first: dict[int, list[_Option]] = {}
    for option in options:
        by_first.setdefault(leading[option.part], []).append(option)
    table = np.array(states).reshape(len(states), len(counts))

    best: list[int | None] = [0] + [None] * (len(states) - 1)
    usable: list[list[_Option]] = [[] for _ in states]
    for state in range(1, len(states)):
        candidates = by_first.get(leading[state], [])
        inside = (table[[option.part for option in candidates]] <= table[state]).all(axis=1) if candidates else []
        found: list[tuple[int, _Option]] = []
        for option, fits in zip(candidates, inside, strict=True):
            rest = best[state - option.part] if fits else None
            if rest is not None:
                found.append((rest + option.cost, option))
        found.sort(key=lambda pair: pair[0])
        usable[state] = [option for _, option in found]
        best[state] = found[0][0] if found else None
    if best[-1] is None:
        return None, True
    chosen, proven = _search(market, catalogue, best, usable, (market.money_left + 1) * dollar)
    return None if chosen is None else [(option.group, table[option.part]) for option in chosen], proven


def _options(market: Market, catalogue: Catalogue, states: list[tuple[int, ...]]) -> tuple[list[_Option], int]:
    """Returns every slice that could be bought with its possible contents, and the weight of one nanodollar in its
    cost."""
    tasks = sum(states[-1])
    rank = market.rank[catalogue.groups]
    # Each tie-breaker gets more room than the slices of any mix can fill; a mix has at most one slice per task.
    unmet_base = 1 + tasks * int(catalogue.unmet.max(initial=0))
    rank_base = 1 + tasks * int(rank.max(initial=0))
    name_base = 1 + tasks * len(rank)
    options = []
    for group in range(len(catalogue.groups)):
        nodes = _nodes_needed(catalogue, group, states)
        for part in range(1, len(states)):
            if nodes[part] <= catalogue.hosts[group]:
                unmet = sum(count * int(catalogue.unmet[shape, group]) for shape, count in enumerate(states[part]))
                cost = int(catalogue.price[group]) * unmet_base + unmet
                cost = (cost * (tasks + 1) + 1) * rank_base + int(rank[group])
                options.append(_Option(cost * name_base + group, part, group))
    return options, unmet_base * (tasks + 1) * rank_base * name_base


def _nodes_needed(catalogue: Catalogue, group: int, states: list[tuple[int, ...]]) -> list[int]:
    """Returns how many nodes of the group each state needs at least; more than it has hosts if it does not fit at
    all."""
    table = np.array(states, np.int64).reshape(len(states), len(states[0]))
    hosts = int(catalogue.hosts[group])
    together = (table @ catalogue.plain.T <= catalogue.size[group]).all(axis=1)
    together &= ~table[:, ~catalogue.usable[group]].any(axis=1)
    for at in np.flatnonzero(together).tolist():
        together[at] = all(
            _devices_suffice(catalogue, group, index, states[at]) for index in range(len(catalogue.devices))
        )
    needed = [0] + [1 if fits else hosts + 1 for fits in together[1:].tolist()]
    if hosts == 1:
        return needed
    single = np.flatnonzero(together)[1:]
    for state in range(1, len(states)):
        if needed[state] > 1:
            parts = single[(table[single] <= table[state]).all(axis=1)]
            needed[state] = min((needed[state - part] + 1 for part in parts.tolist()), default=hosts + 1)
    return needed


def _devices_suffice(catalogue: Catalogue, group: int, index: int, tasks: tuple[int, ...]) -> bool:
    """Whether whole devices and shares fit on the devices of one node; shares are tried in every way."""
    amount = int(catalogue.size[group, catalogue.devices[index]])
    whole = sum(count * int(catalogue.whole[index, shape]) for shape, count in enumerate(tasks))
    free = [DEVICE] * ((amount - whole) // DEVICE) + ([amount % DEVICE] if amount % DEVICE and whole <= amount else [])
    shares = [int(catalogue.share[index, shape]) for shape, count in enumerate(tasks) for _ in range(count)]
    return whole <= amount // DEVICE * DEVICE and _shares_fit(sorted((s for s in shares if s), reverse=True), free)


def _shares_fit(shares: list[int], free: list[int]) -> bool:
    if not shares:
        return True
    if sum(shares) > sum(free):
        return False
    for room in sorted(set(free)):
        if room >= shares[0]:
            rest = free.copy()
            rest[rest.index(room)] = room - shares[0]
            if _shares_fit(shares[1:], rest):
                return True
    return False


def _search(
    market: Market, catalogue: Catalogue, best: list[int | None], usable: list[list[_Option]], ceiling: int
) -> tuple[list[_Option] | None, bool]:
    """Searches depth first, the most promising slice first, and prunes with the table of costs without limits."""
    headroom, price, hosts = catalogue.headroom.copy(), catalogue.price.tolist(), catalogue.hosts.tolist()
    taken: list[_Option] = []
    found: list[_Option] | None = None
    steps = 0

    def descend(state: int, cost: int, money: int, nodes: int, launches: int) -> None:
        nonlocal found, ceiling, steps
        if state == 0:
            found, ceiling = taken.copy(), cost
            return
        for option in usable[state]:
            rest = best[state - option.part]
            assert rest is not None
            if cost + option.cost + rest >= ceiling or steps >= STEPS:
                return  # the options are sorted by this sum
            group = option.group
            if headroom.of(group) > 0 and price[group] <= money and hosts[group] <= nodes and launches:
                steps += 1
                headroom.take(group, 1)
                taken.append(option)
                left = (money - price[group], nodes - hosts[group], launches - 1)
                descend(state - option.part, cost + option.cost, *left)
                taken.pop()
                headroom.take(group, -1)

    descend(len(usable) - 1, 0, market.money_left, market.nodes_left, market.launches_left)
    return found, steps < STEPS


def one_slice(market: Market) -> Batch | None:
    """Returns the one slice that is the cheapest mix for all of ``market.counts``; None if that needs a full search."""
    if market.nodes_left < 1 or market.launches_left < 1 or pairs(market.counts) > PAIRS:
        return None
    if market.apart is not None and int(market.counts.sum()) > 1:
        return None
    useful, sums = np.zeros(len(market.hosts), np.bool_), dict[int, int]()
    holding = open_groups = market.headroom_now().all() > 0
    for shape, (need, count) in enumerate(zip(market.needs, market.counts.tolist(), strict=True)):
        if not count:
            continue
        if need.unknown or need.shares:
            return None
        fits = open_groups & market.eligible[shape]
        holding = holding & market.eligible[shape]
        for column, amount in need.amounts():
            fits &= market.total[:, column] >= amount
            sums[column] = sums.get(column, 0) + amount * count
        useful |= fits
    if not useful.any():
        return None
    price = int(market.price[useful].min())
    if not 0 < price <= market.money_left:
        return None
    cheapest = useful & (market.price == price)
    if (market.hosts[cheapest] > 1).any():
        return None
    groups = np.flatnonzero(cheapest & holding & _room_for(market, sums))
    if not len(groups):
        return None
    unmet = market.counts @ market.unmet
    best = min(groups.tolist(), key=lambda group: (unmet[group], market.rank[group], group))
    return Batch(best, 1, market.counts.copy())


def _room_for(market: Market, sums: dict[int, int]) -> Bools:
    """Whether an empty node of each group has this much of each kind; devices count as far as they are whole."""
    result = np.ones(len(market.hosts), np.bool_)
    for column, amount in sums.items():
        total = market.total[:, column]
        result &= (total // DEVICE * DEVICE if column in market.kinds.devices else total) >= amount
    return result
