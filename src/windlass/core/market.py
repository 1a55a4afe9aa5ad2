"""What can be bought for the demand that is left, in numbers: the input and the output of every way of choosing.

Rows are shapes (equal demands with a count, hardest first), columns are groups in name order. A choice is a list of
``Batch``: so many equal slices of one group, each with the same tasks on it. Ten thousand equal tasks make a handful
of batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .quantities import DEVICE
from .room import Bools, Ints, Kinds, Need, Room


@dataclass(frozen=True, slots=True)
class Market:
    """Demand that is left, and the groups that may be bought for it."""

    kinds: Kinds
    needs: tuple[Need, ...]
    """One per shape, hardest first."""
    counts: Ints
    """Tasks left of each shape."""
    total: Ints
    """Resources of one node of each group, by kind."""
    hosts: Ints
    """Nodes per slice of each group."""
    price: Ints
    """Nanodollars per hour for one slice of each group; 0 where a group has no price."""
    rank: Ints
    eligible: Bools
    """[shape, group]: conditions hold and taints are tolerated; whether it fits is the room's business."""
    unmet: Ints
    """[shape, group]: preferences that the group does not meet."""
    headroom: Ints
    """Slices of each group that may still be bought, whatever the others do."""
    nodes_left: int
    """Nodes that may still be bought, over all groups."""
    money_left: int
    """Nanodollars per hour that may still be committed, over all groups."""
    launches_left: int
    """Slices that may still be bought, over all groups."""

    def after(self, batches: Iterable[Batch]) -> Market:
        """What can still be bought, and for what, once these batches are."""
        counts, bought = self.counts.copy(), np.zeros(len(self.hosts), np.int64)
        for batch in batches:
            counts -= batch.fill * batch.slices
            bought[batch.group] += batch.slices
        return replace(
            self,
            counts=counts,
            headroom=self.headroom - bought,
            nodes_left=self.nodes_left - int((bought * self.hosts).sum()),
            money_left=self.money_left - int((bought * self.price).sum()),
            launches_left=self.launches_left - int(bought.sum()),
        )

    def host_rows(self) -> Ints:
        """The group of each host of one slice of every group: the rows of ``slices_room``."""
        return np.repeat(np.arange(len(self.hosts)), self.hosts)

    def slices_room(self) -> Room:
        """One empty slice of every group, a row for each of its hosts."""
        return Room.fresh(self.kinds, self.total[self.host_rows()])


@dataclass(frozen=True, slots=True)
class Batch:
    """``slices`` equal slices of one group, each with ``fill[shape]`` tasks on it."""

    group: int
    slices: int
    fill: Ints


def fill_slices(market: Market, counts: Ints) -> Ints:
    """[group, shape]: what one new slice of each group would hold of ``counts``, hardest first, host after host."""
    room, groups = market.slices_room(), market.host_rows()
    first = np.concatenate(([0], np.cumsum(market.hosts)[:-1]))
    result = np.zeros((len(market.hosts), len(counts)), np.int64)
    for shape in np.flatnonzero(counts):
        need = market.needs[shape]
        fits = np.minimum(room.capacity(need), counts[shape]) * market.eligible[shape, groups]
        before = np.cumsum(fits) - fits
        before -= before[first][groups]
        taken = np.clip(counts[shape] - before, 0, fits)
        rows = np.flatnonzero(taken)
        if len(rows):
            room.take(need, rows, taken[rows])
            result[:, shape] = np.add.reduceat(taken, first)
    return result


def filled_slice(kinds: Kinds, total: Ints, hosts: int, tasks: Sequence[tuple[Need, int]]) -> Room | None:
    """The room of one slice with these tasks on it; None if no simple order of filling it fits them all."""
    fresh = Room.fresh(kinds, np.repeat(total[None, :], hosts, axis=0))

    def size(task: tuple[Need, int]) -> float:
        return max((amount / max(int(total[column]), 1) for column, amount in task[0].amounts()), default=0.0)

    def share(task: tuple[Need, int]) -> int:
        return sum(amount for _, _, amount in task[0].shares) if task[0].shares else DEVICE

    orders = (tasks, sorted(tasks, key=size, reverse=True), sorted(tasks, key=share, reverse=True))
    return next((room for order in orders if (room := _filled(fresh.copy(), order)) is not None), None)


def _filled(room: Room, tasks: Sequence[tuple[Need, int]]) -> Room | None:
    """The room with the tasks on it, host after host in this order."""
    for need, count in tasks:
        fits = np.minimum(room.capacity(need), count)
        taken = np.clip(count - (np.cumsum(fits) - fits), 0, fits)
        if int(taken.sum()) < count:
            return None
        rows = np.flatnonzero(taken)
        room.take(need, rows, taken[rows])
    return room
