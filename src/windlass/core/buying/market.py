"""A Market is the numeric input of every purchase strategy; a list of Batch is the output.

Rows are shapes (equal demands with a count, hardest first), columns are groups in name order. A ``Batch`` is a number
of equal slices of one group, each with the same tasks on it, so ten thousand equal tasks make a few batches.
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
    """The demand that is left, and the groups that may be bought for it."""

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
    """[shape, group]: conditions hold and taints are tolerated. Whether a task fits is checked with the room."""
    unmet: Ints
    """[shape, group]: number of preferences that the group does not meet."""
    headroom: Ints
    """Slices of each group that may still be bought, by the limits of that group alone."""
    nodes_left: int
    """Nodes that may still be bought, over all groups."""
    money_left: int
    """Nanodollars per hour that may still be committed, over all groups."""
    launches_left: int
    """Slices that may still be bought, over all groups."""
    apart: Fraction | None = None
    """``cheapest``: the share by which slices that can be released one by one may cost more.

    None: tasks are not separated.
    """
    real_kinds: int | None = None
    """Number of columns that are resources; the columns after them stand for constraints between tasks.

    None: all are.
    """
    single: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))
    """[shape]: whether its tasks end independently; set together with ``apart``."""
    family: Ints | None = None
    """[group]: the place of its family in ``family_left``, -1 for a group without one. None: there are no families."""
    family_left: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Slices that may still be bought in all groups of each family together."""
    learned: dict[Need, float] | None = None
    """Cost of a task, by shape, from similar markets that were solved before, as parts of one sum.

    The search for the cheapest slices starts there, and the solver adds its results. None: there were no such markets.
    """

    def after(self, batches: Iterable[Batch]) -> Market:
        """Returns the market that is left after these batches are bought."""
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
        """Returns the number of slices in each family, given the number in each group."""
        if self.family is None:
            return np.zeros_like(self.family_left)
        inside = self.family >= 0
        return np.bincount(self.family[inside], bought[inside], len(self.family_left)).astype(np.int64)

    def headroom_now(self, groups: Ints | None = None) -> Headroom:
        """Returns a counter of the slices of the given groups (default: all) that may still be bought."""
        own = self.headroom if groups is None else self.headroom[groups]
        if self.family is None:
            return Headroom(own.copy(), None, self.family_left)
        family = self.family if groups is None else self.family[groups]
        family = np.where(family < 0, len(self.family_left), family)
        return Headroom(own.copy(), family, np.append(self.family_left, UNBOUNDED))

    def amounts(self) -> Ints:
        """[shape, kind]: the needs of one task of each shape."""
        result = np.zeros((len(self.needs), len(self.kinds.names)), np.int64)
        for row, need in enumerate(self.needs):
            for column, amount in need.amounts():
                result[row, column] = amount
        return result

    def host_rows(self, groups: Ints | None = None) -> Ints:
        """Returns, for one slice of each group, the index in ``groups`` (default: all) that each of its hosts belongs
        to."""
        hosts = self.hosts if groups is None else self.hosts[groups]
        return np.repeat(np.arange(len(hosts)), hosts)

    def slices_room(self, groups: Ints | None = None) -> Room:
        """Returns the room of one empty slice of each group, a row for each of its hosts."""
        total = self.total if groups is None else self.total[groups]
        return Room.fresh(self.kinds, total[self.host_rows(groups)])


class Headroom:
    """Counts how many slices of each group may still be bought, under its own limits and those of its family."""

    __slots__ = ("_family", "_left", "_own")

    def __init__(self, own: Any, family: Ints | None, left: Any) -> None:
        """``family`` is the index of each group in ``left``; the last entry of ``left`` has no limit."""
        self._own, self._family, self._left = own, family, left

    def copy(self, *, fractions: bool = False) -> Headroom:
        kind = np.float64 if fractions else np.int64
        return Headroom(self._own.astype(kind), self._family, self._left.astype(kind))

    @property
    def has_families(self) -> bool:
        """Whether some limit counts the slices of several groups."""
        return self._family is not None

    def part(self, groups: Ints) -> Headroom:
        """Returns a counter of its own for some of the groups."""
        return Headroom(self._own[groups], None if self._family is None else self._family[groups], self._left.copy())

    def of(self, group: int) -> int:
        own = int(self._own[group])
        return own if self._family is None else min(own, int(self._left[self._family[group]]))

    def holds(self, group: int, slices: float) -> bool:
        """Whether this many slices of one group, possibly a fraction, may still be bought."""
        fits = slices <= self._own[group]
        return bool(fits if self._family is None else fits and slices <= self._left[self._family[group]])

    def all(self) -> Ints:
        """Returns for each group how many slices may still be bought if no other group is bought."""
        return np.asarray(self._own if self._family is None else np.minimum(self._own, self._left[self._family]))

    def allows(self, bought: Ints) -> bool:
        """Whether these numbers of slices may be bought together."""
        if not (bought <= self._own).all():
            return False
        return self._family is None or bool((np.bincount(self._family, bought, len(self._left)) <= self._left).all())

    def binding(self, wanted: Ints) -> tuple[Bools, Floats]:
        """Returns the limits that these numbers of slices could reach, of groups first, then of families:

        [limit, group] whether the limit counts the group, and the number that it allows.
        """
        short = np.flatnonzero(self._own < wanted)
        counts = np.arange(len(self._own)) == short[:, None]
        limits = self._own[short].astype(np.float64)
        if self._family is not None:
            full = np.flatnonzero(np.bincount(self._family, wanted, len(self._left))[:-1] > self._left[:-1])
            counts = np.concatenate((counts, self._family == full[:, None]))
            limits = np.concatenate((limits, self._left[full].astype(np.float64)))
        return counts, limits

    def take(self, group: int, slices: float) -> None:
        """Counts slices as bought; a negative number takes purchases back."""
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
    """[group, shape]: tasks of ``counts`` that one new slice of each group would hold, hardest first, host after
    host."""
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
            # Most shapes stop fitting early: one comparison for all of them is cheaper than one call each.
            left = left[(amounts[left] <= room.free.max(axis=0)).all(axis=1)]
    return result


def host_fills(kinds: Kinds, total: Ints, hosts: int, tasks: Sequence[tuple[Need, int]]) -> list[Ints] | None:
    """Returns how many of each task go on each host of one slice; None if no simple order of filling fits them all."""
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
    """Returns the room of one slice with these tasks on it; None if no simple order of filling fits them all."""
    fresh = Room.fresh(kinds, np.repeat(total[None, :], hosts, axis=0))

    def size(task: tuple[Need, int]) -> float:
        return max((amount / max(int(total[column]), 1) for column, amount in task[0].amounts()), default=0.0)

    def share(task: tuple[Need, int]) -> int:
        return sum(amount for _, _, amount in task[0].shares) if task[0].shares else DEVICE

    orders = (tasks, sorted(tasks, key=size, reverse=True), sorted(tasks, key=share, reverse=True))
    return next((room for order in orders if (room := _filled(fresh.copy(), order)) is not None), None)


def _filled(room: Room, tasks: Sequence[tuple[Need, int]]) -> Room | None:
    """Returns the room with the tasks on it, filled host after host in this order."""
    for need, count in tasks:
        fits = np.minimum(room.capacity(need), count)
        taken = np.clip(count - (np.cumsum(fits) - fits), 0, fits)
        if int(taken.sum()) < count:
            return None
        rows = np.flatnonzero(taken)
        room.take(need, rows, taken[rows])
    return room
