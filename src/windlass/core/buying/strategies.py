"""The strategies ``best-fit``, ``rank`` and ``cheapest`` choose the group of each new slice.

``best-fit`` and ``rank`` buy slice after slice: the candidates are the groups that can hold the hardest shape that is
left. One new slice of each candidate is filled, and the best one is bought. While no filling changes, the same choice
repeats, so it is made for many slices at once: the cost depends on the number of different slices. If a limit refuses a
group, the next one is tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from windlass.core.capacity.room import UNBOUNDED, Bools, Floats, Ints, Room
from windlass.core.model.snapshot import Choose

from .market import Batch, Market, fill_slices

Key = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """A batch that was bought, the shape that decided, and the sort key of each candidate (smaller is better)."""

    batch: Batch
    shape: int
    keys: dict[int, Key]


def choose(market: Market, strategy: Choose, effort: int, sticky: Bools) -> list[Choice]:
    """Buys for everything that is left, as far as the limits allow. ``sticky``: groups already chosen or in flight."""
    if not len(market.counts) or not market.headroom.any():
        return []
    if strategy == "cheapest":
        from windlass.core.buying.solver.search import (
            cheapest_mix,  # imported here because it takes a fifth of the import time of the core
        )

        batches = [batch for batch in cheapest_mix(market, effort) if batch.slices]
        mix = [Choice(batch, int(np.flatnonzero(batch.fill)[0]), {}) for batch in batches]
        if sum(int(batch.fill.sum()) * batch.slices for batch in batches) == int(market.counts.sum()):
            return mix
        # Under a limit the mix may leave tasks that a group could still hold: these are bought for slice by slice.
        return mix + _slice_by_slice(market.after(batches), _by_price, sticky.copy())
    return _slice_by_slice(market, _best_fit if strategy == "best-fit" else _by_rank, sticky.copy())


def _slice_by_slice(
    market: Market, keys_of: Callable[[Market, Ints, Ints, int, Bools], dict[int, Key]], sticky: Bools
) -> list[Choice]:
    bought = np.zeros(len(market.hosts), np.int64)
    allowed = allowance(market, bought)
    if not allowed.any():
        return []
    counts = market.counts.copy()
    fills = np.zeros((len(market.hosts), len(counts)), np.int64)
    stale = np.ones(len(market.hosts), np.bool_)
    amounts = market.amounts()
    used = np.zeros((len(market.hosts), amounts.shape[1]), np.int64)
    fresh = Room.fresh(market.kinds, market.total)
    result: list[Choice] = []
    shape, holds = -1, np.zeros(0, np.bool_)
    while counts.any():
        hardest = int(np.argmax(counts > 0))
        if hardest != shape:
            shape, holds = hardest, (fresh.capacity(market.needs[hardest]) > 0) & market.eligible[hardest]
        candidates = np.flatnonzero(holds & (allowed > 0))
        if not len(candidates):
            stale |= fills[:, shape] > 0
            counts[shape] = 0  # no group can take it: it waits, and new slices are not filled with it
            continue
        again = candidates[stale[candidates]]
        if len(again):
            fills[again] = fill_slices(market, counts, again, amounts)
            used[again] = fills[again] @ amounts
            stale[again] = False
        keys = keys_of(market, used, candidates, shape, sticky)
        best = min(keys, key=lambda group: (keys[group], group))
        slices = min(_repeats(fills, candidates, best, counts), int(allowed[best]))
        result.append(Choice(Batch(best, slices, fills[best].copy()), shape, keys))
        counts -= fills[best] * slices
        bought[best] += slices
        sticky[best] = True
        allowed = allowance(market, bought)
        stale |= (fills > counts).any(axis=1)
    return result


def allowance(market: Market, bought: Ints) -> Ints:
    """Returns the slices of each group that may still be bought after ``bought``, under every limit."""
    nodes = market.nodes_left - int((bought * market.hosts).sum())
    money = market.money_left - int((bought * market.price).sum())
    launches = market.launches_left - int(bought.sum())
    priced = np.maximum(market.price, 1)
    by_money = np.where(market.price > 0, money // priced, launches)
    own = np.minimum(market.headroom - bought, nodes // market.hosts)
    if market.family is not None:
        left = np.append(market.family_left - market.by_family(bought), UNBOUNDED)
        own = np.minimum(own, left[market.family])
    return np.asarray(np.maximum(np.minimum(own, np.minimum(by_money, launches)), 0))


def _repeats(fills: Ints, candidates: Ints, best: int, counts: Ints) -> int:
    """Returns how often the choice can be repeated before the filling of any candidate changes."""
    used = np.flatnonzero(fills[best])
    spare = counts[used] - fills[np.ix_(candidates, used)].max(axis=0)
    return 1 + int((spare // fills[best][used]).min())


def _best_fit(market: Market, used: Ints, candidates: Ints, shape: int, sticky: Bools) -> dict[int, Key]:
    """Sort key: preferences, no wasted accelerator, kinds used, least and mean utilization; then rank, price, name."""
    del sticky
    scores = fit_scores(market, candidates, used[candidates])
    unmet = market.unmet[shape, candidates].tolist()
    return {group: (misses, *score) for group, misses, score in zip(candidates.tolist(), unmet, scores, strict=True)}


def fit_scores(market: Market, groups: Ints, used: Ints) -> list[Key]:
    """Returns how well ``used`` (a row for each group) fills one slice of each; smaller is better."""
    total = market.total[groups] * market.hosts[groups][:, None]
    if market.real_kinds is not None:
        total, used = total[:, : market.real_kinds], used[:, : market.real_kinds]
    present = total > 0
    share: Floats = np.divide(used, total, out=np.zeros(total.shape), where=present)
    devices = list(market.kinds.devices)
    wasted = present[:, devices].any(axis=1) & ~((used > 0) & present)[:, devices].any(axis=1)
    kinds = ((used > 0) & present).sum(axis=1)
    lowest = np.where(present, share, np.inf).min(axis=1, initial=np.inf)
    lowest[np.isinf(lowest)] = 0.0
    mean = share.sum(axis=1) / np.maximum(present.sum(axis=1), 1)
    columns = (wasted.astype(float), -kinds, -lowest, -mean, market.rank[groups], market.price[groups])
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _by_rank(market: Market, used: Ints, candidates: Ints, shape: int, sticky: Bools) -> dict[int, Key]:
    """Sort key: rank, then preferences, then a group already chosen or in flight, then the name."""
    del used
    return {
        int(group): (float(market.rank[group]), float(market.unmet[shape, group]), float(not sticky[group]))
        for group in candidates
    }


def _by_price(market: Market, used: Ints, candidates: Ints, shape: int, sticky: Bools) -> dict[int, Key]:
    """Sort key: price, then preferences, rank, name."""
    del used, sticky
    return {
        int(group): (float(market.price[group]), float(market.unmet[shape, group]), float(market.rank[group]))
        for group in candidates
    }
