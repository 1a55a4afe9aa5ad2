"""The shortlist reduces hundreds of machine types to those that can matter for a purchase.

The cost of the search grows with groups times shapes. Where there are very many groups, each is filled once with the
most valuable tasks by a first estimate. For every set of groups that some shape is restricted to, the shortlist keeps
those with the most value per dollar, and the best of each price range, because left-over tasks need small machines. It
also keeps the cheapest groups for each shape alone. Tasks that these groups cannot hold because of their limits are
bought from all groups afterwards, slice by slice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from windlass.core.buying.market import Market
from windlass.core.capacity.room import UNBOUNDED, Floats, Ints

from .knapsack import Catalogue, Knapsacks

MANY: Final = 400
"""Up to this many groups, no shortlist is made."""
FEW: Final = 120
"""Nor with at most this many groups that can be bought."""
BEST: Final = 24
"""Number of machine types with the most value per dollar that are kept for each set of groups that a shape may use.

Groups with equal nodes (the same type in several zones) count once.
"""
STEPS: Final = 24
"""Number of price ranges, from the cheapest group of a set to the most expensive, each this many times the one
before."""
ALONE: Final = 2
"""Number of groups that are kept for each shape alone."""


def shortlisted(market: Market) -> Market:
    """Returns the market with only the groups that can matter; the others get no headroom."""
    if len(market.hosts) <= MANY:
        return market
    catalogue = Catalogue.of(market, all_groups=True)
    if len(catalogue.groups) <= FEW:
        return market
    knapsacks = Knapsacks(catalogue)
    price = (catalogue.price + 1) / float(catalogue.price.max() + 1)
    cheapest = np.where(catalogue.usable, knapsacks.dominant * price[:, None], np.inf).min(axis=0)
    worth = np.maximum(cheapest, 1e-9 * cheapest.max(initial=1e-9))
    everyone = np.arange(len(catalogue.groups))
    value = _rough_value(catalogue, knapsacks, worth) / price
    best_first = np.lexsort((everyone, -np.round(value, 9)))
    keep = np.zeros(len(everyone), np.bool_)
    nodes = np.concatenate((catalogue.size, catalogue.hosts[:, None]), axis=1)
    type_of = np.unique(nodes, axis=0, return_inverse=True)[1].reshape(-1)
    for pattern in np.unique(catalogue.usable, axis=1).T:
        mine = best_first[pattern[best_first]]
        best_types = list(dict.fromkeys(type_of[mine].tolist()))[:BEST]
        keep[mine[np.isin(type_of[mine], best_types)]] = True
        height = np.log(price[mine])
        step = (STEPS * (height - height.min()) / max(float(np.ptp(height)), 1e-9)).astype(np.int64)
        keep[mine[np.unique(step, return_index=True)[1]]] = True
    held = catalogue.alone()
    each = np.where(held > 0, price[:, None] / np.maximum(held, 1), np.inf)
    for groups in np.argsort(each, axis=0, kind="stable")[:ALONE]:
        keep[groups] = True
    headroom = np.zeros_like(market.headroom)
    kept = catalogue.groups[keep]
    headroom[kept] = market.headroom[kept]
    return replace(market, headroom=headroom)


def _rough_value(catalogue: Catalogue, knapsacks: Knapsacks, worth: Floats) -> Floats:
    """Returns the approximate value of the tasks that one slice of each group holds, filled by value per dominant
    share.

    Shares of devices are added up, and the hosts of a slice count as one node: only the ranking of the groups matters.
    """
    density = np.where(catalogue.usable, worth / knapsacks.dominant, -1.0)
    order = np.argsort(-density, axis=1, kind="stable")
    free: Ints = catalogue.size * catalogue.hosts[:, None]
    needs, rows = catalogue.plain.T, np.arange(len(free))
    value = np.zeros(len(free))
    for shape in order.T:
        need = needs[shape]
        fits = np.where(need > 0, free // np.maximum(need, 1), UNBOUNDED).min(axis=1)
        amount = np.minimum(fits, catalogue.counts[shape]) * catalogue.usable[rows, shape]
        free -= need * amount[:, None]
        value += amount * worth[shape]
    return value
