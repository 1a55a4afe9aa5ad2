"""The knapsack solver fills one slice of each group with the tasks that have the highest total value.

Each purchase is a knapsack with several resources: given the value of each task and how many are left, fill a slice so
that the total value is as high as possible. All groups are solved at once (one row per group), greedily: take the task
with the most value for its share of the free room, then repeat. The share of a task is its dominant share: the largest
part that it takes of any resource. As the node fills up the scarce resource changes, and so does the choice. (Compared
with exact knapsacks on the Alibaba pods: if each shape is forced in once, the best fill is within 2 % of the optimum;
with fixed weights it was 6 %.)

The fit rule is that of ``room``: shares go to the fullest device that still has room, opened devices are never merged.
It is implemented here a second time because every row takes a different shape in the same step. Tests compare the two
implementations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from windlass.core.buying.market import Headroom, Market
from windlass.core.capacity.room import UNBOUNDED, Bools, Floats, Ints, at_end, share_devices
from windlass.core.model.quantities import DEVICE

MANY_PARTS: Final = 16
"""Largest number of parts into which groups without a common shape are divided, such as those of different zones."""

NOTHING: Final = 1e-6
"""Smallest share of a node that a task counts as taking, so that a task that needs nothing has a finite value."""

ROUGHLY_ALL: Final = 1.0 + 1e-6
"""Shares are 32-bit floats, for speed, and only rank the tasks; whether one fits is decided in whole numbers."""

NO_SHAPES: Final[Bools] = np.zeros(1, np.bool_)
NO_CAPS: Final[Ints] = np.zeros(0, np.int64)

Floats32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The part of a market that can matter: shapes that fit somewhere, and groups that may be bought for one of
    them."""

    shapes: Ints
    """The market's index of each shape."""
    groups: Ints
    """The market's index of each group."""
    counts: Ints
    price: Ints
    hosts: Ints
    headroom: Headroom
    unmet: Ints
    """[shape, group]"""
    usable: Bools
    """[group, shape]: eligible, and one task fits on an empty node."""
    plain: Ints
    """[kind, shape]: needs of the kinds that are not devices; devices count here in total, too."""
    size: Ints
    """[group, kind]: one node."""
    whole: Ints
    """[device kind, shape]: needs of whole devices, in thousandths."""
    share: Ints
    """[device kind, shape]: needs of a share of one device."""
    devices: tuple[int, ...]
    """The column of each device kind."""
    caps: int = 0
    """Number of kinds, at the end, that stand for constraints between tasks: a task takes one of them or none."""

    @classmethod
    def of(cls, market: Market, *, all_groups: bool = False) -> Catalogue:
        """``all_groups``: includes groups that another group dominates."""
        kinds = market.kinds
        everything = np.flatnonzero(market.counts > 0)
        plain = np.zeros((len(kinds.names), len(everything)), np.int64)
        whole = np.zeros((len(kinds.devices), len(everything)), np.int64)
        share = np.zeros_like(whole)
        known = np.ones(len(everything), np.bool_)
        for position, shape in enumerate(everything):
            need = market.needs[shape]
            known[position] = not need.unknown
            for column, amount in need.amounts():
                plain[column, position] = amount
            for index, _, amount in need.whole:
                whole[index, position] = amount
            for index, _, amount in need.shares:
                share[index, position] = amount
        usable = (market.eligible[everything] & known[:, None]).T & (market.headroom_now().all() > 0)[:, None]
        for column in range(len(kinds.names)):
            usable &= plain[column] <= market.total[:, column, None]
        for index, column in enumerate(kinds.devices):
            devices = market.total[:, column, None] // DEVICE * DEVICE
            usable &= (whole[index] <= devices) & (
                share[index] <= np.where(devices, DEVICE, market.total[:, column, None])
            )
        shapes = np.flatnonzero(usable.any(axis=0))
        groups = np.flatnonzero(usable.any(axis=1))
        if not all_groups:
            groups = groups[_undominated(market, everything, usable, groups)]
        return cls(
            everything[shapes],
            groups,
            market.counts[everything[shapes]],
            market.price[groups],
            market.hosts[groups],
            market.headroom_now(groups),
            market.unmet[np.ix_(everything[shapes], groups)],
            usable[np.ix_(groups, shapes)],
            plain[:, shapes],
            market.total[groups],
            whole[:, shapes],
            share[:, shapes],
            kinds.devices,
            0 if market.real_kinds is None else len(kinds.names) - market.real_kinds,
        )

    def part(self, groups: Ints, shapes: Ints) -> Catalogue:
        """Returns the catalogue of some of the groups and shapes; no limit of the others counts there."""
        return Catalogue(
            self.shapes[shapes],
            self.groups[groups],
            self.counts[shapes],
            self.price[groups],
            self.hosts[groups],
            self.headroom.part(groups),
            self.unmet[np.ix_(shapes, groups)],
            self.usable[np.ix_(groups, shapes)],
            self.plain[:, shapes],
            self.size[groups],
            self.whole[:, shapes],
            self.share[:, shapes],
            self.devices,
            self.caps,
        )

    def is_next_above(self, cost: int, floor: float) -> bool:
        """Whether no sum of prices lies between the two, because all prices are multiples of a common divisor."""
        step = max(int(np.gcd.reduce(self.price)), 1)
        return cost <= math.ceil(floor * (1 - 1e-9) / step) * step

    def alone(self) -> Ints:
        """[group, shape]: tasks of one shape that a slice holds with nothing else on it; 0 where it may not go."""
        result = np.full(self.usable.shape, UNBOUNDED)
        for kind, needs in enumerate(self.plain):
            if kind not in self.devices:
                result = np.minimum(result, _times(self.size[:, kind, None], needs))
        for index, column in enumerate(self.devices):
            devices, rest = self.size[:, column, None] // DEVICE, self.size[:, column, None] % DEVICE
            share = np.maximum(self.share[index], 1)
            shares = np.where(self.share[index] > 0, devices * (DEVICE // share) + rest // share, UNBOUNDED)
            result = np.minimum(np.minimum(result, _times(devices * DEVICE, self.whole[index])), shares)
        return np.where(self.usable, np.minimum(result * self.hosts[:, None], self.counts), 0)


def _times(size: Ints, needs: Ints) -> Ints:
    return np.where(needs > 0, size // np.maximum(needs, 1), UNBOUNDED)


def _undominated(market: Market, shapes: Ints, usable: Bools, groups: Ints) -> Bools:
    """Whether each group may be needed: False if another group without a limit is at least as good in every respect."""
    keep = np.ones(len(groups), np.bool_)
    tasks = int(market.counts[shapes].sum())
    endless = groups[market.headroom_now().all()[groups] >= tasks]
    key = list(zip(market.price.tolist(), market.rank.tolist(), range(len(market.price)), strict=True))
    for position, group in enumerate(groups):
        better = [other for other in endless.tolist() if key[other] < key[group]]
        if not better:
            continue
        rivals = np.array(better)
        beats = (market.total[rivals] >= market.total[group]).all(axis=1) & (
            market.hosts[rivals] == market.hosts[group]
        )
        for rival in rivals[beats].tolist():
            if (usable[rival] >= usable[group]).all() and (
                market.unmet[shapes, rival] <= market.unmet[shapes, group]
            ).all():
                keep[position] = False
                break
    return keep


class Knapsacks:
    """Fills slices, one empty slice per row; ``fill`` packs all rows at once."""

    __slots__ = ("_in_part", "_needs", "_part", "catalogue", "dominant")

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        size = np.where(catalogue.size > 0, catalogue.size, np.inf)
        largest = np.full(catalogue.usable.shape, NOTHING)
        for kind, needs in enumerate(catalogue.plain):
            some = np.flatnonzero(needs)
            largest[:, some] = np.maximum(largest[:, some], needs[some] / size[:, [kind]])
        self.dominant: Floats = largest / catalogue.hosts[:, None]
        """[group, shape]: the largest share of the slice that one task takes of any kind."""
        self._part = parts_of(catalogue.usable)
        """For each group its part of the catalogue: groups of different parts have no shape in common."""
        numbers = range(int(self._part.max(initial=0)) + 1)
        self._in_part: Bools = np.array([catalogue.usable[self._part == one].any(axis=0) for one in numbers], np.bool_)
        """[part, shape]: whether some group of the part can be used for the shape."""
        self._needs: Ints = np.ascontiguousarray(np.concatenate((catalogue.plain, catalogue.whole)).T)

    def fill(
        self,
        groups: Ints,
        worth: Floats,
        counts: Ints,
        *,
        first: Ints | None = None,
        large_first: bool = False,
        in_order: bool = False,
    ) -> Ints:
        """[row, shape]: the tasks on one slice of each group.

        ``worth`` is the value per shape, or per row and shape; a shape with value 0 is not taken. ``counts`` (likewise)
        is the most that may be taken. ``first`` is a shape per row that must be in the fill: one task of it is placed
        first (-1: none). ``large_first`` divides the value by the square root of what a task takes instead of all of
        it: the fills differ, and are often better when only two or three tasks fit. ``in_order`` ranks tasks by value
        alone.
        """
        result = np.zeros((len(groups), len(self.catalogue.shapes)), np.int64)
        if len(self._in_part) == 1:
            columns, packed = self._fill_part(groups, worth, counts, first, large_first, in_order)
            result[:, columns] = packed
            return result
        part = self._part[groups]
        for one in sorted(set(part.tolist())):
            rows = np.flatnonzero(part == one)
            some_worth = worth[rows] if worth.ndim > 1 else worth
            some_counts = counts[rows] if counts.ndim > 1 else counts
            forced = None if first is None else first[rows]
            columns, packed = self._fill_part(groups[rows], some_worth, some_counts, forced, large_first, in_order)
            result[np.ix_(rows, columns)] = packed
        return result

    def _fill_part(
        self, groups: Ints, worth: Floats, counts: Ints, first: Ints | None, large_first: bool, in_order: bool
    ) -> tuple[Ints, Ints]:
        """Returns the shapes that groups of one part can take, and [row, shape] the tasks on one slice of each."""
        catalogue = self.catalogue
        wanted = ((counts > 0) & (worth > 0.0)).reshape(-1, len(catalogue.shapes)).any(axis=0)
        columns = np.flatnonzero(wanted & self._in_part[self._part[groups[0]]] if len(groups) else wanted)
        usable = catalogue.usable[np.ix_(groups, columns)]
        score = (usable * worth[..., columns]).astype(np.float32)
        left = np.where(usable, counts[..., columns], 0)
        packed = np.zeros(left.shape, np.int64)
        hosts = catalogue.hosts[groups]
        opening = None
        if first is not None:
            place = np.full(len(catalogue.shapes) + 1, -1)
            place[columns] = np.arange(len(columns))
            opening = place[first]
        rows = np.arange(len(groups))
        while len(rows) and len(columns):
            one = self._fill_node(groups[rows], columns, score[rows], left[rows], opening, large_first, in_order)
            # The same node is repeated as long as hosts and tasks last: a thousand hosts cost one packing.
            times = np.where(one > 0, left[rows] // np.maximum(one, 1), UNBOUNDED).min(axis=1, initial=UNBOUNDED)
            times = np.minimum(times, hosts[rows])
            packed[rows] += one * times[:, None]
            left[rows] -= one * times[:, None]
            hosts[rows] -= times
            rows = rows[(hosts[rows] > 0) & (left[rows] * (score[rows] > 0.0)).any(axis=1)]
            opening = None
        return columns, packed

    def _fill_node(
        self,
        groups: Ints,
        columns: Ints,
        worth: Floats32,
        left: Ints,
        opening: Ints | None,
        large_first: bool,
        in_order: bool,
    ) -> Ints:
        """Packs one empty node of each group. Writes to ``worth`` and ``left``.

        Each round has four phases: score every task by its value for its dominant share of the free room; drop the rows
        where nothing fits; compute how many of the chosen task are taken; take them. An example with two groups, of 8
        cpu and 32 GiB, and the second also with a GPU, and three shapes:

        ======================  =====  ==================================  =========================================
        shape                   value  first group                         second group
        ======================  =====  ==================================  =========================================
        a: 4 cpu, 4 GiB         4      4 / (4/8) = 8, then 4 / (4/5) = 5   8, then 5
        b: 1 cpu, 8 GiB         3      3 / (8/32) = 12, then 3 / 1 = 3     12, then 3
        c: 2 cpu, a GPU         10     does not fit                        10 / 1 = 10, then 10
        ======================  =====  ==================================  =========================================

        In the first round both take b: 4 fit, and two thirds of them, rounded up, are taken, because 5 cpu and 8 GiB
        are left then, and memory is scarce. So the first group takes one a in the second round and is full. The second
        takes c, and then one more b.
        """
        catalogue, devices = self.catalogue, self.catalogue.devices
        share = catalogue.share[:, columns]
        shared = [index for index in range(len(devices)) if share[index].any()]
        need = self._needs[columns]
        rough = self._needs.T[:, columns].astype(np.float32)
        caps = slice(len(catalogue.plain) - catalogue.caps, len(catalogue.plain))
        is_cap = np.zeros(len(rough), np.bool_)
        is_cap[caps] = True
        kinds = np.flatnonzero(rough.any(axis=1) & ~is_cap).tolist()
        capped = (rough[caps] > 0).astype(np.float32)
        takes_cap = capped.T > 0
        several = bool((takes_cap.sum(axis=1) > 1).any())
        cap_of = np.where(takes_cap.any(axis=1), takes_cap.argmax(axis=1), -1) if catalogue.caps else NO_CAPS
        sized = np.flatnonzero(~is_cap)  # a task takes one of a cap or none: no division is needed there
        at_least, asked = np.maximum(need[:, sized], 1), need[:, sized] > 0
        size, whole = catalogue.size[groups], len(catalogue.plain)
        free = np.concatenate((size, size[:, list(devices)] // DEVICE * DEVICE), axis=1)
        opened = [size[:, [column]] % DEVICE for column in devices]
        packed = np.zeros(left.shape, np.int64)
        worth *= left > 0
        rows = at = np.arange(len(groups))  # rows of ``packed``; everything else has only the rows that go on
        unforced = NO_SHAPES
        if opening is not None:
            pick, amount = np.maximum(opening, 0), (opening >= 0).astype(np.int64)
            unforced = opening < 0
        while True:
            if opening is None:
                # Score: the dominant share of the free room; 1 is all of it, more does not fit.
                rest = (1.0 / np.maximum(free, 0.5)).astype(np.float32)
                takes = np.full(worth.shape, NOTHING, np.float32)
                for kind in kinds:
                    np.maximum(takes, rough[kind] * rest[:, kind, None], out=takes)
                score = worth * (takes <= ROUGHLY_ALL)
                if not in_order:
                    score /= np.sqrt(takes) if large_first else takes
                for index in shared:
                    largest = np.where(free[:, whole + index] > 0, DEVICE, opened[index].max(axis=1))
                    score *= share[index] <= largest[:, None]
                pick = score.argmax(axis=1)
                found = score[at, pick] > 0.0
                if not found.all():  # drop the rows where nothing fits
                    rows, pick, at = rows[found], pick[found], at[: int(found.sum())]
                    if not len(rows):
                        return packed
                    worth, left, free = worth[found], left[found], free[found]
                    opened = [parts[found] for parts in opened]
                # How many are taken: as many as are left, fit, and may be there.
                fitting = np.where(asked[pick], free[:, sized] // at_least[pick], UNBOUNDED).min(axis=1)
                amount = np.minimum(left[at, pick], fitting)
                if catalogue.caps:
                    allowed = np.where(takes_cap[pick], free[:, caps], UNBOUNDED).min(axis=1)
                    amount = np.minimum(amount, allowed)
                for index in shared:
                    per = np.maximum(share[index, pick], 1)
                    fitting = free[:, whole + index] // DEVICE * (DEVICE // per) + (opened[index] // per[:, None]).sum(
                        axis=1
                    )
                    amount = np.where(share[index, pick] > 0, np.minimum(amount, fitting), amount)
                if not in_order:  # not all at once: what is scarce changes with every task
                    amount -= amount // 3
            # Take them.
            packed[rows, pick] += amount
            rest_of_it = left[at, pick] - amount
            left[at, pick] = rest_of_it
            # None left, or none fits (the rough share was wrong): do not try it again on this node.
            over = ((rest_of_it <= 0) | ((amount <= 0) & ~unforced)).nonzero()[0]
            worth[over, pick[over]] = 0.0
            opening, unforced = None, NO_SHAPES
            free -= need[pick] * amount[:, None]
            if catalogue.caps:
                spent = takes_cap[pick] & (free[:, caps] < 1)
                if np.count_nonzero(spent):  # nothing more that counts for these constraints
                    if several:
                        worth *= (spent.astype(np.float32) @ capped) < 0.5
                    else:
                        worth *= cap_of != np.where(spent.any(axis=1), spent.argmax(axis=1), -2)[:, None]
            for index in shared:
                sharing = np.flatnonzero((share[index, pick] > 0) & (amount > 0))
                if len(sharing):
                    parts, fresh = share_devices(opened[index][sharing], share[index, pick[sharing]], amount[sharing])
                    free[sharing, whole + index] -= fresh * DEVICE
                    opened[index] = at_end(opened[index], max(opened[index].shape[1], parts.shape[1]))
                    opened[index][sharing] = at_end(parts, opened[index].shape[1])


def parts_of(usable: Bools) -> Ints:
    """Returns for each group the number of its part; groups that share a shape, also through others, are in one."""
    part = np.full(len(usable), -1)
    for number in range(MANY_PARTS):
        rest = np.flatnonzero(part < 0)
        if not len(rest):
            break
        inside = np.zeros(len(usable), np.bool_)
        inside[rest[0] if number < MANY_PARTS - 1 else rest] = True
        size = 0
        while int(inside.sum()) > size:
            size = int(inside.sum())
            inside = inside | usable[:, usable[inside].any(axis=0)].any(axis=1)
        part[inside] = number
    return part
