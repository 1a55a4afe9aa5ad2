"""A Market is the numeric input of every purchase strategy, and a list of Batch its output.

Rows are shapes (equal demands with a count, hardest first), columns are groups in name order. A choice is a list of
``Batch``: so many equal slices of one group, each with the same tasks on it. Ten thousand equal tasks make a handful
of batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from windlass.core.capacity.room import UNBOUNDED, Bools, Floats, Ints, Kinds, Need, Room
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
    family: Ints | None = None
    """[group]: the place of its family in ``family_left``, -1 for a group without one. None: there are no families."""
    family_left: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Slices that may still be bought in all groups of each family together."""
    learned: dict[Need, float] | None = None
    """What tasks cost in markets like this one that were solved before, as parts of any one sum: where the search for
    the cheapest slices begins. The solver adds what it learns. None: there are no such markets."""

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
            family_left=self.family_left - self.by_family(bought),
        )

    def by_family(self, bought: Ints) -> Ints:
        """Slices in each family, given how many there are of each group."""
        if self.family is None:
            return np.zeros_like(self.family_left)
        inside = self.family >= 0
        return np.bincount(self.family[inside], bought[inside], len(self.family_left)).astype(np.int64)

    def headroom_now(self, groups: Ints | None = None) -> Headroom:
        """A counter of the slices of the given groups (default: all) that may still be bought."""
        own = self.headroom if groups is None else self.headroom[groups]
        if self.family is None:
            return Headroom(own.copy(), None, self.family_left)
        family = self.family if groups is None else self.family[groups]
        family = np.where(family < 0, len(self.family_left), family)
        return Headroom(own.copy(), family, np.append(self.family_left, UNBOUNDED))

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


class Headroom:
    """How many slices of each group may still be bought, under its own limits and those of its family."""

    __slots__ = ("_family", "_left", "_own")

    def __init__(self, own: Any, family: Ints | None, left: Any) -> None:
        """``family``: the place of each group in ``left``, whose last one is without limit."""
        self._own, self._family, self._left = own, family, left

    def copy(self, *, fractions: bool = False) -> Headroom:
        kind = np.float64 if fractions else np.int64
        return Headroom(self._own.astype(kind), self._family, self._left.astype(kind))

    def of(self, group: int) -> int:
        own = int(self._own[group])
        return own if self._family is None else min(own, int(self._left[self._family[group]]))

    def holds(self, group: int, slices: float) -> bool:
        """Whether so many slices of one group may still be bought, fractions included."""
        fits = slices <= self._own[group]
        return bool(fits if self._family is None else fits and slices <= self._left[self._family[group]])

    def all(self) -> Ints:
        """For each group how many slices of it alone may still be bought."""
        return np.asarray(self._own if self._family is None else np.minimum(self._own, self._left[self._family]))

    def allows(self, bought: Ints) -> bool:
        """Whether so many slices of each group may be bought at once."""
        if not (bought <= self._own).all():
            return False
        return self._family is None or bool((np.bincount(self._family, bought, len(self._left)) <= self._left).all())

    def binding(self, wanted: Ints) -> tuple[Bools, Floats]:
        """The limits that could be reached if so many slices of each group were wanted, of groups, then of families:
        [limit, group] which groups each of them counts, and how much it allows."""
        short = np.flatnonzero(self._own < wanted)
        counts = np.arange(len(self._own)) == short[:, None]
        limits = self._own[short].astype(np.float64)
        if self._family is not None:
            full = np.flatnonzero(np.bincount(self._family, wanted, len(self._left))[:-1] > self._left[:-1])
            counts = np.concatenate((counts, self._family == full[:, None]))
            limits = np.concatenate((limits, self._left[full].astype(np.float64)))
        return counts, limits

    def take(self, group: int, slices: float) -> None:
        """Count slices as bought; a negative number gives them back."""
        self._own[group] -= slices
        if self._family is not None:
            self._left[self._family[group]] -= slices


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
