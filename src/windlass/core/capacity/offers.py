"""Offers is the table of free room on every node that runs, can be uncordoned, or is in flight.

Rows are nodes in the order of slice id and node id. The tier of a row says how soon its room can be used: free on a
ready slice, then by uncordon or unmark, then in flight (the furthest along first), then slices that this plan buys.
Placing takes the nearest tier first, then more preferences met, then the node with the least left free, then the id.
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
"""A state of the table to which it can be rolled back."""

READY_TIER: Final = 0
RECALL_TIER: Final = 1
FLIGHT_TIERS: Final = {state: RECALL_TIER + 1 + index for index, state in enumerate(PROGRESS)}
NEW_TIER: Final = RECALL_TIER + 1 + len(PROGRESS)


@dataclass(frozen=True, slots=True)
class TakenRows:
    """Rows that took tasks, with the number on each."""

    rows: Ints
    counts: Ints

    @property
    def total(self) -> int:
        return int(self.counts.sum())


NOTHING: Final = TakenRows(np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns of the table, one entry for each node that offers room."""

    group: Ints
    position: Ints
    """Of its slice."""
    tier: Ints
    profile: Ints
    room: Room


class Offers:
    """The rows, their free room, and the order in which rows that fit are taken."""

    def __init__(self, eligibility: Eligibility, rows: Rows, *, ignore_tiers: bool = False) -> None:
        """``rows`` are not changed. ``ignore_tiers``: slices in flight count as near as ready ones."""
        self.ignore_tiers = ignore_tiers
        self.eligibility = eligibility
        self.group, self.position, self.profile = rows.group, rows.position, rows.profile
        self.tier = rows.tier.copy()
        self.open: Bools = np.ones(len(rows.group), np.bool_)
        self.room = rows.room.copy()
        self.classes: ClassCounts | None = None
        """Counts of tasks per class and domain, where there are constraints between tasks."""

    def __len__(self) -> int:
        return len(self.group)

    def append(
        self, group: int, profile: int, one_slice: Room, first_position: int, slices: int, *, is_open: bool
    ) -> None:
        """Adds rows for equal slices that this plan buys, in the last tier; ``one_slice`` is the free room of each."""
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
        """Adds rows for the hosts of new slices, one group and slice each, in the last tier."""
        self.room.append(room)
        self.group = np.concatenate((self.group, groups))
        self.position = np.concatenate((self.position, positions))
        self.tier = np.concatenate((self.tier, np.full(len(groups), NEW_TIER)))
        self.profile = np.concatenate((self.profile, profiles))
        self.open = np.concatenate((self.open, np.ones(len(groups), np.bool_)))
        if self.classes is not None:
            self.classes.append_rows(groups, positions)

    def adopt(self, other: Offers, rows: Ints, positions: Ints) -> None:
        """Appends rows of another table as those of new slices, under other positions."""
        self.room.append(other.room.rows(rows))
        self.group = np.concatenate((self.group, other.group[rows]))
        self.position = np.concatenate((self.position, positions))
        self.tier = np.concatenate((self.tier, np.full(len(rows), NEW_TIER)))
        self.profile = np.concatenate((self.profile, other.profile[rows]))
        self.open = np.concatenate((self.open, other.open[rows]))
        if self.classes is not None and other.classes is not None:
            self.classes.adopt(other.classes, rows, positions)

    def mark(self) -> Mark:
        return self.room.mark(), None if self.classes is None else self.classes.copy()

    def undo(self, mark: Mark) -> None:
        """Rolls back to the state at ``mark``, rows included."""
        of_room, classes = mark
        self.room.undo(of_room)
        self.classes = None if classes is None else classes.copy()
        count = len(self.room)
        self.group, self.position, self.tier = self.group[:count], self.position[:count], self.tier[:count]
        self.profile, self.open = self.profile[:count], self.open[:count]

    # -- who can take it --------------------------------------------------------------------------------------------

    def capacity(self, need: Need, selector: Selector) -> Ints:
        """Returns how many such tasks each row can take, with conditions and taints."""
        allowed, _ = self.eligibility.answers(selector)
        return self.room.capacity(need) * (allowed[self.profile] & self.open)

    def in_order(self, rows: Ints, need: Need, selector: Selector) -> Ints:
        """Sorts the rows in the order in which they are taken."""
        if len(rows) == 1:
            return rows
        _, unmet = self.eligibility.answers(selector)
        left = self.room.left_share(need, rows)
        tier = self.tier[rows]
        if self.ignore_tiers:
            tier = np.where((tier > RECALL_TIER) & (tier < NEW_TIER), READY_TIER, tier)
        penalty = unmet[self.profile[rows]]
        devices = list(self.room.kinds.devices)
        if not devices or need.whole or need.shares:
            return rows[np.lexsort((left, penalty, tier))]
        # Accelerators are kept for work that needs them.
        accelerated = self.room.total[rows][:, devices].any(axis=1)
        return rows[np.lexsort((left, accelerated, penalty, tier))]

    # -- placing ----------------------------------------------------------------------------------------------------

    def place(self, need: Need, selector: Selector, count: int) -> TakenRows:
        """Places up to ``count`` tasks on the rows, filling the first in order first."""
        capacity = self.capacity(need, selector)
        rows = capacity.nonzero()[0]
        if not len(rows) or not count:
            return NOTHING
        rows = self.in_order(rows, need, selector)
        fits = np.minimum(capacity[rows], count)
        return self._take(need, rows, np.minimum(np.maximum(count - (fits.cumsum() - fits), 0), fits))

    def place_apart(self, need: Need, selector: Selector, count: int, apart: Bools) -> TakenRows:
        """Places up to ``count`` tasks on the rows, at most one on each, and none where ``apart`` forbids it."""
        capacity = self.capacity(need, selector)
        rows = np.flatnonzero((capacity > 0) & ~apart)
        if not len(rows):
            return NOTHING
        chosen = self.in_order(rows, need, selector)[:count]
        return self._take(need, chosen, np.ones(len(chosen), np.int64))

    def fitting(self, need: Need, selector: Selector, most: Ints, per_slice: Ints | None, count: int) -> Ints:
        """Returns how many tasks each row takes within ``most`` for the row and ``per_slice`` for its slice."""
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
        """Places up to ``count`` tasks on rows, at most ``most`` on each, ``per_slice`` on the rows of one slice, and
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
    """Returns ``fits`` reduced, from the end, so that the sum within each domain is at most its bound in ``most``."""
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
    """Returns how near the room of a slice is; None when a slice in its state offers nothing."""
    if item.state == State.READY:
        return READY_TIER if item.marked_until is None else RECALL_TIER
    if item.state in RECALLABLE:
        return RECALL_TIER
    return FLIGHT_TIERS[item.state] if item.state in IN_FLIGHT else None
