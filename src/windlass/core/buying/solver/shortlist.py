"""The shortlist reduces hundreds of machine types to those that can matter for a purchase.

The cost of the search grows with groups times shapes. Where there are very many groups, each is filled once with what
is worth the most by a first guess, and only those with the most value per dollar stay: so many for every set of groups
that some shape is restricted to, and the cheapest ones for each shape alone. What these cannot hold because of their
limits is bought from all groups afterwards, slice by slice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from windlass.core.buying.market import Market

from .knapsack import Catalogue, Knapsacks

MANY: Final = 400
"""Up to so many groups all are looked at."""
FEW: Final = 120
"""Of these, so many that can be bought are all looked at."""
BEST: Final = 40
"""Groups that stay for each set of groups that a shape may go to."""
ALONE: Final = 2
"""Groups that stay for each shape alone."""


def shortlisted(market: Market) -> Market:
    """The market with only the groups that can matter, the others without headroom."""
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
    value = (knapsacks.fill(everyone, worth, catalogue.counts) @ worth) / price
    best_first = np.lexsort((everyone, -np.round(value, 9)))
    keep = np.zeros(len(everyone), np.bool_)
    for pattern in np.unique(catalogue.usable, axis=1).T:
        keep[best_first[pattern[best_first]][:BEST]] = True
    held = catalogue.alone()
    each = np.where(held > 0, price[:, None] / np.maximum(held, 1), np.inf)
    for groups in np.argsort(each, axis=0, kind="stable")[:ALONE]:
        keep[groups] = True
    headroom = np.zeros_like(market.headroom)
    kept = catalogue.groups[keep]
    headroom[kept] = market.headroom[kept]
    return replace(market, headroom=headroom)
