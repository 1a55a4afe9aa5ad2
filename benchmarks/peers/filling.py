"""Filling new machines: what one new slice of each group would take of what waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from windlass.core.capacity.room import Ints, Room

from .peer import Sight, Unplaced


@dataclass(frozen=True, slots=True)
class Filled:
    """One new slice of a group, and how much of each waiting shape it takes."""

    group: int
    taken: tuple[int, ...]
    room: Room

    @property
    def tasks(self) -> int:
        return sum(self.taken)

    def used(self) -> Ints:
        """Of each resource, in the units of the tables."""
        used: Ints = (self.room.total - self.room.free)[0]
        return used


def eligible(sight: Sight, waiting: Sequence[Unplaced]) -> list[list[bool]]:
    """For each shape and group, whether one may be bought for it: conditions, alone on an empty node, and stock. Each
    peer passes over what was refused a moment ago, in its own way; here all know it from the same memory."""
    fresh = Room.fresh(sight.draft.kinds, sight.draft.totals)
    available = [group.availability.state == "available" for group in sight.draft.groups]
    found = []
    for one in waiting:
        capacity = fresh.capacity(one.shape.need)
        found.append(
            [may and available[g] and bool(capacity[g]) for g, may in enumerate(sight.may_go(one.shape.selector))]
        )
    return found


def filled(sight: Sight, group: int, waiting: Sequence[Unplaced], left: Sequence[int], may: list[list[bool]]) -> Filled:
    """One new node of the group with as much of what is left as fits, in the given order."""
    room = Room.fresh(sight.draft.kinds, sight.draft.totals[group : group + 1])
    taken = []
    for index, one in enumerate(waiting):
        some = 0
        if left[index] and may[index][group]:
            some = min(left[index], int(room.capacity(one.shape.need)[0]))
            if some:
                room.take(one.shape.need, np.zeros(1, np.int64), np.array([some], np.int64))
        taken.append(some)
    return Filled(group, tuple(taken), room)


def price_order(sight: Sight) -> list[int]:
    """Groups, the cheapest slice first."""
    groups = sight.draft.groups
    return sorted(range(len(groups)), key=lambda g: (groups[g].price or 0, groups[g].rank, groups[g].name))
