"""The knapsack solver fills one slice of each group with the tasks that have the highest total value.

The question behind every purchase is a knapsack with several kinds of resources: given what each task is worth and how
many of each are left, fill a slice so that the value on it is as high as possible. It is asked for all groups at once
(a row a group) and answered greedily: take the task with the most value for what it uses of the room that is still
free, then look again. What a task "uses" is its dominant share: the largest part that it takes of any kind. As the node
fills up the scarce kind changes, and so does the choice. (Measured against exact knapsacks on the Alibaba pods: with
each shape on board once, the best fill found is within 2 % of the best there is; with fixed weights it was 6 %.)

The fit rule is the one of ``room``: shares go to the fullest device that still has room, opened devices are never
merged. It is written out here a second time because here every row takes another shape in the same step; the tests
hold the two against each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from windlass.core.buying.market import Headroom, Market
from windlass.core.capacity.room import UNBOUNDED, Bools, Floats, Ints, at_end, share_devices
from windlass.core.model.quantities import DEVICE

NOTHING: Final = 1e-6
"""The share that a task takes at least, of a node: what needs nothing is worth taking, but not infinitely so."""

ROUGHLY_ALL: Final = 1.0 + 1e-6
"""Shares are floats of 32 bits, for speed, and only say what to try; whether it fits is decided in whole numbers."""

NO_SHAPES: Final[Bools] = np.zeros(1, np.bool_)
NO_CAPS: Final[Ints] = np.zeros(0, np.int64)

Floats32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The part of a market that can matter: shapes that fit somewhere, groups that may be bought for one of them."""

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
    """How many of the kinds, the last ones, stand for constraints between tasks: a task takes one of them or none."""

    @classmethod
    def of(cls, market: Market, *, all_groups: bool = False) -> Catalogue:
        """``all_groups``: also those that another group beats in every respect."""
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
    """Which groups may be needed: not those that another one beats in every respect without ever running out."""
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
    """One empty slice a row; ``fill`` packs all rows at once."""

    __slots__ = ("_needs", "catalogue", "dominant")

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        size = catalogue.size.astype(np.float64)
        shares = catalogue.plain[None, :, :] / np.where(size > 0, size, np.inf)[:, :, None]
        self.dominant: Floats = np.maximum(shares.max(axis=1, initial=0.0), NOTHING) / catalogue.hosts[:, None]
        """[group, shape]: the largest share of the slice that one task takes of any kind."""
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

        ``worth`` is per shape, or per row and shape; what is worth nothing is not taken. ``counts`` (likewise) is the
        most that may be taken. ``first`` is a shape per row that must be on board: one task of it is put there before
        all else (-1: no such wish). ``large_first`` divides the worth by the root of what a task takes, not by all of
        it: other fills, often better ones when only two or three tasks fit. ``in_order``: the worth alone decides.
        """
        catalogue = self.catalogue
        columns = np.flatnonzero(((counts > 0) & (worth > 0.0)).reshape(-1, len(catalogue.shapes)).any(axis=0))
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
            # The same node again and again, as long as hosts and tasks last: a thousand hosts cost one packing.
            times = np.where(one > 0, left[rows] // np.maximum(one, 1), UNBOUNDED).min(axis=1, initial=UNBOUNDED)
            times = np.minimum(times, hosts[rows])
            packed[rows] += one * times[:, None]
            left[rows] -= one * times[:, None]
            hosts[rows] -= times
            rows = rows[(hosts[rows] > 0) & (left[rows] * (score[rows] > 0.0)).any(axis=1)]
            opening = None
        result = np.zeros((len(groups), len(catalogue.shapes)), np.int64)
        result[:, columns] = packed
        return result

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
        """Tasks on one empty node of each group. ``worth`` and ``left`` are used up."""
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
        no_wish = NO_SHAPES
        if opening is not None:
            pick, amount = np.maximum(opening, 0), (opening >= 0).astype(np.int64)
            no_wish = opening < 0
        while True:
            if opening is None:
                # The dominant share of what is free: 1 is all of it, more does not fit.
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
                if not found.all():
                    rows, pick, at = rows[found], pick[found], at[: int(found.sum())]
                    if not len(rows):
                        return packed
                    worth, left, free = worth[found], left[found], free[found]
                    opened = [parts[found] for parts in opened]
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
            packed[rows, pick] += amount
            rest_of_it = left[at, pick] - amount
            left[at, pick] = rest_of_it
            # Nothing left of it, or (a rough share was wrong) not one of it fits: not again on this node.
            over = ((rest_of_it <= 0) | ((amount <= 0) & ~no_wish)).nonzero()[0]
            worth[over, pick[over]] = 0.0
            opening, no_wish = None, NO_SHAPES
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
