"""Closing: a dear slice takes no small work that could hold it for long.

Work that cannot be moved holds its slice until it ends. A small task that found room on a dear slice may hold it long
after the work that it was bought for is over, and no rule for giving back can mend that. So, where a group has
``close_above``, a slice with work is drained as soon as it is ready and costs more than so many times the cheapest
group with the same kinds of resource: it takes nothing more, and goes when what it has is done.

Demand that deserves it calls it back like any other slice on its way out: demand for which a slice of its own would
cost so much that the closed one is at most ``close_above`` times as dear. To all other demand it offers nothing.
Whether a slice is closed follows from the snapshot alone; nothing is remembered.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from .quantities import format_money
from .reasons import Code, Reason
from .room import Need, Room
from .shapes import Selector, selector_of

if TYPE_CHECKING:
    from .draft import Draft
    from .offers import Offers
    from .releasing import Release


def close(release: Release) -> None:
    """Let go of dear slices with work: the work stays until it ends, and nothing new comes."""
    draft = release.draft
    for group in _dear(draft):
        price = format_money(draft.groups[group].price or 0)
        for position in release.ready(group):
            if draft.busy[position] and not release.is_pinned(position) and draft.slices[position].marked_until is None:
                why = f"at {price}/h it is kept free of small work: it goes when its work is done"
                release.release(position, Reason(Code.CONSOLIDATE, why))


def shut(draft: Draft, offers: Offers) -> set[int]:
    """Slices on their way out that offer nothing, because nothing waits that deserves them."""
    if not draft.layout.recallable:
        return set()
    dear = _dear(draft)
    closed = {p for p in draft.layout.recallable if draft.busy[p] and draft.group_of[p] in dear}
    if not closed:
        return set()
    wanted = set[int]()
    for need, selector, own in _own_prices(draft):
        rows = np.flatnonzero(offers.capacity(need, selector))
        for position in set(offers.position[rows].tolist()) & closed - wanted:
            group = draft.groups[draft.group_of[position] or 0]
            if (group.price or 0) <= dear[draft.group_of[position] or 0] * own:
                wanted.add(position)
    return closed - wanted


def _dear(draft: Draft) -> dict[int, Fraction]:
    """The groups whose slices are closed, and how many times dearer than its own a slice may be for a task."""
    cheapest: dict[tuple[str, ...], int] = {}
    for kind in draft.groups:
        names = tuple(name for name, _ in kind.resources)
        if kind.price is not None:
            cheapest[names] = min(kind.price, cheapest.get(names, kind.price))
    found = {}
    for group, kind in enumerate(draft.groups):
        above = kind.scale_down.close_above if kind.scale_down else None
        names = tuple(name for name, _ in kind.resources)
        if above is not None and kind.price is not None and not kind.frozen and kind.price > above * cheapest[names]:
            found[group] = above
    return found


def _own_prices(draft: Draft) -> Iterator[tuple[Need, Selector, int]]:
    """For each different task that waits: the price of the cheapest slice that could be bought for it."""
    fresh = Room.fresh(draft.kinds, draft.totals)
    seen = set()
    for demand in draft.snapshot.demands:
        for bundle in demand.bundles:
            selector = selector_of(demand)
            if (bundle.needs, selector) in seen:
                continue
            seen.add((bundle.needs, selector))
            need = Need.of(dict(bundle.needs), draft.kinds)
            allowed, _ = draft.eligibility.answers(selector)
            fits = np.flatnonzero((fresh.capacity(need) > 0) & allowed[draft.profile_index]).tolist()
            prices = [price for group in fits if (price := draft.groups[group].price) is not None]
            if prices:
                yield need, selector, min(prices)
