"""What can be bought for the demand that is left, in numbers: the input and the output of every way of choosing.

Rows are shapes (equal demands with a count, hardest first), columns are groups in name order. A choice is a list of
``Batch``: so many equal slices of one group, each with the same tasks on it. Ten thousand equal tasks make a handful
of batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from windlass.core.capacity.room import Bools, Ints, Kinds, Need, Room
from windlass.core.model.quantities import DEVICE


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
    apart: Fraction | None = None
    """``cheapest``: the share that slices may cost more which can be given back one by one; None: nothing is parted."""
    real_kinds: int | None = None
    """Columns that are resources; those behind them stand for constraints between tasks. None: all are resources."""
    single: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))
    """[shape]: whether its tasks end one by one; given with ``apart``."""

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

    def amounts(self) -> Ints:
        """[shape, kind]: what one task of each shape needs."""
        result = np.zeros((len(self.needs), len(self.kinds.names)), np.int64)
        for row, need in enumerate(self.needs):
            for column, amount in need.amounts():
                result[row, column] = amount
        return result

    def host_rows(self, groups: Ints | None = None) -> Ints:
        """For one slice of each group: the place in ``groups`` (default: all) that each of its hosts belongs to."""
        hosts = self.hosts if groups is None else self.hosts[groups]
        return np.repeat(np.arange(len(hosts)), hosts)

    def slices_room(self, groups: Ints | None = None) -> Room:
        """One empty slice of each group, a row for each of its hosts."""
        total = self.total if groups is None else self.total[groups]
        return Room.fresh(self.kinds, total[self.host_rows(groups)])


@dataclass(frozen=True, slots=True)
class Batch:
    """``slices`` equal slices of one group, each with ``fill[shape]`` tasks on it."""

    group: int
    slices: int
    fill: Ints


def fill_slices(market: Market, counts: Ints, groups: Ints, amounts: Ints) -> Ints:
    """[group, shape]: what one new slice of each group would hold of ``counts``, hardest first, host after host."""
    room, of = market.slices_room(groups), market.host_rows(groups)
    result = np.zeros((len(groups), len(counts)), np.int64)
    several = len(of) > len(groups)
    first = np.concatenate(([0], np.cumsum(market.hosts[groups])[:-1]))
    eligible = market.eligible[:, groups]
    by_all = np.asarray(eligible.all(axis=1))
    left = np.flatnonzero((counts > 0) & eligible.any(axis=1))
    while len(left):
        shape, left = int(left[0]), left[1:]
        need, count = market.needs[shape], counts[shape]
        fits = np.minimum(room.capacity(need), count)
        if not by_all[shape]:
            fits *= eligible[shape][of]
        if several:
            before = np.cumsum(fits) - fits
            before -= before[first][of]
            fits = np.maximum(np.minimum(count - before, fits), 0)
        if np.count_nonzero(fits):
            room.take_all(need, fits)
            result[:, shape] = np.add.reduceat(fits, first) if several else fits
            # Most shapes stop fitting soon: one comparison for all of them is cheaper than asking one by one.
            left = left[(amounts[left] <= room.free.max(axis=0)).all(axis=1)]
    return result


def host_fills(kinds: Kinds, total: Ints, hosts: int, tasks: Sequence[tuple[Need, int]]) -> list[Ints] | None:
    """For each of the tasks how many go on each host of one slice; None if no simple order of filling fits them all."""
    if hosts == 1:
        return [np.array([count], np.int64) for _, count in tasks]
    numbered = list(enumerate(tasks))

    def size(task: tuple[int, tuple[Need, int]]) -> float:
        return max((amount / max(int(total[column]), 1) for column, amount in task[1][0].amounts()), default=0.0)

    for order in (numbered, sorted(numbered, key=size, reverse=True)):
        room = Room.fresh(kinds, np.repeat(total[None, :], hosts, axis=0))
        found: dict[int, Ints] = {}
        for index, (need, count) in order:
            fits = np.minimum(room.capacity(need), count)
            taken = np.clip(count - (np.cumsum(fits) - fits), 0, fits)
            if int(taken.sum()) < count:
                break
            rows = np.flatnonzero(taken)
            room.take(need, rows, taken[rows])
            found[index] = taken
        else:
            return [found[index] for index in range(len(tasks))]
    return None


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
