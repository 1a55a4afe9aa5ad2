"""Offers is the table of free room on every node that runs, can be uncordoned, or is in flight.

Rows are nodes in the order of slice id and node id. A row's tier says how near its room is: free on a ready slice,
then by uncordon or unmark, then in flight (the furthest along first), then slices that this plan has already decided
to buy. Placing takes the nearest tier first, then more preferences met, then the node with the least left free, then
the id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from windlass.core.model.lifecycle import IN_FLIGHT, PROGRESS, RECALLABLE, State
from windlass.core.model.snapshot import Selector, Slice

from .class_counts import ClassCounts
from .eligibility import Eligibility
from .room import Bools, Ints, Need, Room

Mark = tuple[tuple[int, int], ClassCounts | None]
"""A point to go back to."""

READY_TIER: Final = 0
RECALL_TIER: Final = 1
FLIGHT_TIERS: Final = {state: RECALL_TIER + 1 + index for index, state in enumerate(PROGRESS)}
NEW_TIER: Final = RECALL_TIER + 1 + len(PROGRESS)


@dataclass(frozen=True, slots=True)
class TakenRows:
    """Rows that took tasks, and how many each."""

    rows: Ints
    counts: Ints

    @property
    def total(self) -> int:
        return int(self.counts.sum())


NOTHING: Final = TakenRows(np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True)
class Rows:
    """Nodes that offer room, one entry each in every column."""

    group: Ints
    position: Ints
    """Of its slice."""
    tier: Ints
    profile: Ints
    room: Room


class Offers:
    """The rows, their free room, and the rule of which of several that fit is taken."""

    def __init__(self, eligibility: Eligibility, rows: Rows, *, flat: bool = False) -> None:
        """``rows`` stay as they are. ``flat``: what is in flight counts as near as what is ready."""
        self.flat = flat
        self.eligibility = eligibility
        self.group, self.position, self.profile = rows.group, rows.position, rows.profile
        self.tier = rows.tier.copy()
        self.open: Bools = np.ones(len(rows.group), np.bool_)
        self.room = rows.room.copy()
        self.classes: ClassCounts | None = None
        """Where constraints between tasks matter: how many tasks of each class are where."""

    def __len__(self) -> int:
        return len(self.group)

    def append(
        self, group: int, profile: int, one_slice: Room, first_position: int, slices: int, *, is_open: bool
    ) -> None:
        """Rows for equal slices that this plan buys, in the last tier; ``one_slice`` is what each has free."""
        hosts = len(one_slice)
        count = hosts * slices
        self.room.append(one_slice.repeated(slices))
        self.group = np.concatenate((self.group, np.full(count, group)))
        self.position = np.concatenate((self.position, first_position + np.arange(count) // hosts))
        self.tier = np.concatenate((self.tier, np.full(count, NEW_TIER)))
        self.profile = np.concatenate((self.profile, np.full(count, profile)))
        self.open = np.concatenate((self.open, np.full(count, is_open)))
        if self.classes is not None:
            self.classes.append(group, hosts, first_position, slices)

    def append_rows(self, groups: Ints, profiles: Ints, positions: Ints, room: Room) -> None:
        """Rows for the hosts of new slices, of one group and slice each, in the last tier."""
        self.room.append(room)
        self.group = np.concatenate((self.group, groups))
        self.position = np.concatenate((self.position, positions))
        self.tier = np.concatenate((self.tier, np.full(len(groups), NEW_TIER)))
        self.profile = np.concatenate((self.profile, profiles))
        self.open = np.concatenate((self.open, np.ones(len(groups), np.bool_)))
        if self.classes is not None:
            self.classes.append_rows(groups, positions)

    def adopt(self, other: Offers, rows: Ints, positions: Ints) -> None:
        """Rows of another table at the end, under other places."""
        self.room.append(other.room.rows(rows))
        self.group = np.concatenate((self.group, other.group[rows]))
        self.position = np.concatenate((self.position, positions))
        self.tier = np.concatenate((self.tier, other.tier[rows]))
        self.profile = np.concatenate((self.profile, other.profile[rows]))
        self.open = np.concatenate((self.open, other.open[rows]))
        if self.classes is not None and other.classes is not None:
            self.classes.adopt(other.classes, rows, positions)

    def mark(self) -> Mark:
        return self.room.mark(), None if self.classes is None else self.classes.copy()

    def undo(self, mark: Mark) -> None:
        """Back to the state at ``mark``, rows included."""
        of_room, classes = mark
        self.room.undo(of_room)
        self.classes = None if classes is None else classes.copy()
        count = len(self.room)
        self.group, self.position, self.tier = self.group[:count], self.position[:count], self.tier[:count]
        self.profile, self.open = self.profile[:count], self.open[:count]

    # -- who can take it --------------------------------------------------------------------------------------------

    def capacity(self, need: Need, selector: Selector) -> Ints:
        """How many such tasks each row can take, conditions and taints included."""
        allowed, _ = self.eligibility.answers(selector)
        return self.room.capacity(need) * (allowed[self.profile] & self.open)

    def in_order(self, rows: Ints, need: Need, selector: Selector) -> Ints:
        """The rows, the one to be taken first in front."""
        if len(rows) == 1:
            return rows
        _, unmet = self.eligibility.answers(selector)
        left = self.room.left_share(need, rows)
        tier = self.tier[rows]
        if self.flat:
            tier = np.where((tier > RECALL_TIER) & (tier < NEW_TIER), READY_TIER, tier)
        unliked = unmet[self.profile[rows]]
        devices = list(self.room.kinds.devices)
        if not devices or need.whole or need.shares:
            return rows[np.lexsort((left, unliked, tier))]
        # Accelerators are kept for work that needs them.
        accelerated = self.room.total[rows][:, devices].any(axis=1)
        return rows[np.lexsort((left, accelerated, unliked, tier))]

    # -- placing ----------------------------------------------------------------------------------------------------

    def place(self, need: Need, selector: Selector, count: int) -> TakenRows:
        """Put up to ``count`` tasks on the rows, the first in order filled first."""
        capacity = self.capacity(need, selector)
        rows = capacity.nonzero()[0]
        if not len(rows) or not count:
            return NOTHING
        rows = self.in_order(rows, need, selector)
        fits = np.minimum(capacity[rows], count)
        return self._take(need, rows, np.minimum(np.maximum(count - (fits.cumsum() - fits), 0), fits))

    def place_apart(self, need: Need, selector: Selector, count: int, apart: Bools) -> TakenRows:
        """Put up to ``count`` tasks on the rows, at most one on each, and none where ``apart`` forbids it."""
        capacity = self.capacity(need, selector)
        rows = np.flatnonzero((capacity > 0) & ~apart)
        if not len(rows):
            return NOTHING
        chosen = self.in_order(rows, need, selector)[:count]
        return self._take(need, chosen, np.ones(len(chosen), np.int64))

    def fitting(self, need: Need, selector: Selector, most: Ints, per_slice: Ints | None, count: int) -> Ints:
        """How many tasks each row takes within ``most`` for itself and ``per_slice`` for its slice."""
        fits = np.minimum(np.minimum(self.capacity(need, selector), most), count)
        return fits if per_slice is None else clip_by(fits, self.position, per_slice)

    def place_within(
        self,
        need: Need,
        selector: Selector,
        count: int,
        most: Ints,
        per_slice: Ints | None,
        cell: Ints | None = None,
        quota: Ints | None = None,
    ) -> TakenRows:
        """Put up to ``count`` tasks on rows, at most ``most`` on each, ``per_slice`` on the rows of one slice, and
        ``quota`` on the rows of one cell."""
        capacity = np.minimum(self.capacity(need, selector), most)
        rows = capacity.nonzero()[0]
        if not len(rows) or count <= 0:
            return NOTHING
        rows = self.in_order(rows, need, selector)
        fits = np.minimum(capacity[rows], count)
        if per_slice is not None:
            fits = clip_by(fits, self.position[rows], per_slice)
        if cell is not None and quota is not None:
            fits = clip_by(fits, cell[rows], quota)
        return self._take(need, rows, np.minimum(np.maximum(count - (fits.cumsum() - fits), 0), fits))

    def _take(self, need: Need, rows: Ints, counts: Ints) -> TakenRows:
        some = counts.nonzero()[0]
        rows, counts = rows[some], counts[some]
        self.room.take(need, rows, counts)
        return TakenRows(rows, counts)


def clip_by(fits: Ints, domain: Ints, most: Ints) -> Ints:
    """The numbers, in their order, cut so that those of one domain sum up to at most what it takes."""
    order = np.argsort(domain, kind="stable")
    sorted_fits, sorted_domain = fits[order], domain[order]
    total = np.cumsum(sorted_fits)
    first = np.concatenate(([True], sorted_domain[1:] != sorted_domain[:-1])) if len(order) else np.zeros(0, np.bool_)
    start = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0)) if len(order) else order
    before = total - sorted_fits
    before = before - before[start] if len(order) else before
    result = np.empty_like(fits)
    result[order] = np.clip(most[sorted_domain] - before, 0, sorted_fits)
    return result


def tier_of(item: Slice) -> int | None:
    """How near the room of a slice is; None when a slice in its state offers nothing."""
    if item.state == State.READY:
        return READY_TIER if item.marked_until is None else RECALL_TIER
    if item.state in RECALLABLE:
        return RECALL_TIER
    return FLIGHT_TIERS[item.state] if item.state in IN_FLIGHT else None
