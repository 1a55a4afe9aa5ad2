"""This module decides how many tasks each label value gets, so that every skew and every cap holds.

Tasks start one by one, and each may only go where the constraint holds at that moment. For one label and one spread the
result of the best order has a closed form: every domain that can grow that far reaches a common level, and no domain is
more than the skew above the smallest. Its cost does not depend on the number of tasks. With several labels, tasks are
assigned one by one until a cycle of steps is complete, and the cycle is then repeated as often as tasks and room allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from windlass.core.capacity.class_counts import SpreadState
from windlass.core.capacity.room import UNBOUNDED, Ints


@dataclass(frozen=True, slots=True)
class LabelShares:
    """One label that divides the cells: the value of each cell, and what the values allow."""

    value: Ints
    """The value of each cell; negative: the cell has none, and the label binds nothing there."""
    room: Ints
    """Tasks that each value takes at most."""
    spreads: tuple[SpreadState, ...]


def share_out(count: int, capacity: Ints, labels: Sequence[LabelShares], preference: Sequence[float]) -> Ints:
    """Returns the tasks for each cell, at most ``count`` together and at most ``capacity`` in each; low ``preference``
    first."""
    if len(labels) == 1 and len(labels[0].spreads) <= 1 and len(np.unique(labels[0].value)) == len(capacity):
        return _one_label(count, capacity, labels[0], preference)
    return _step_by_step(count, capacity, labels, preference)


def _one_label(count: int, capacity: Ints, label: LabelShares, preference: Sequence[float]) -> Ints:
    known = label.value >= 0
    if not known.any():
        return _in_order(count, np.zeros_like(capacity) if label.spreads else capacity, preference)
    most = np.where(known, np.minimum(capacity, label.room[label.value]), capacity)
    base = np.zeros(len(capacity), np.int64)
    if label.spreads:
        spread = label.spreads[0]
        counts = np.where(known, spread.counts[label.value], 0)
        inside = known & spread.eligible[label.value]
        most = np.where(inside, most, 0)
        # Eligible values without a cell of their own cannot grow.
        others = spread.eligible.copy()
        others[label.value[known]] = False
        stuck = spread.counts[others]
        if spread.from_zero:
            most = np.minimum(most, np.maximum(spread.max_skew - counts, 0))
        elif inside.any():
            low = int(min(counts[inside].min(), stuck.min(initial=UNBOUNDED)))
            high = int(min((counts + most)[inside].min(), stuck.min(initial=UNBOUNDED)))

            def within(level: int) -> Ints:
                return np.asarray(np.clip(level + spread.max_skew - counts, 0, most))

            while low < high:
                middle = (low + high) // 2
                if int(within(middle).sum()) >= count:
                    high = middle
                else:
                    low = middle + 1
            most = within(low)
            base = np.minimum(np.maximum(low - counts, 0), most)
    left = count - int(base.sum())
    if left < 0:
        return _in_order(count, base, preference)
    return base + _in_order(left, most - base, preference)


def _in_order(count: int, most: Ints, preference: Sequence[float]) -> Ints:
    """Fills the preferred cells first; equally preferred cells get equal shares."""
    result = np.zeros(len(most), np.int64)
    for rank in sorted(set(preference)):
        open_cells = [cell for cell in range(len(most)) if preference[cell] == rank and most[cell] > 0]
        open_cells.sort(key=lambda cell: int(most[cell]))
        for index, cell in enumerate(open_cells):
            result[cell] = min(int(most[cell]), -(-count // (len(open_cells) - index)))
            count -= int(result[cell])
    return result


def _step_by_step(count: int, capacity: Ints, labels: Sequence[LabelShares], preference: Sequence[float]) -> Ints:
    steps, preferences = _Steps(capacity, labels), np.array(preference, float)
    while count:
        cells, height = steps.open_cells()
        if not len(cells):
            break
        steps.take(int(cells[np.lexsort((cells, preferences[cells], height[cells]))[0]]))
        count -= 1
        count -= steps.repeat_cycle(count)
    return steps.taken


class _Steps:
    """Tasks that are given to cells one by one, and what is left of each label value."""

    def __init__(self, capacity: Ints, labels: Sequence[LabelShares]) -> None:
        self.taken = np.zeros(len(capacity), np.int64)
        self._capacity, self._labels = capacity, labels
        self._room = [label.room.astype(np.int64).copy() for label in labels]
        self._counts = [[spread.counts.astype(np.int64).copy() for spread in label.spreads] for label in labels]
        self._begin_cycle()

    def _begin_cycle(self) -> None:
        self._taken_before = self.taken.copy()
        self._counts_before = [[one.copy() for one in some] for some in self._counts]

    def open_cells(self) -> tuple[Ints, Ints]:
        """Returns the cells that may take one more task, and the height of every cell: its tasks in all spreads."""
        allowed = self.taken < self._capacity
        height = np.zeros(len(self._capacity), np.int64)
        for label, left, tables in zip(self._labels, self._room, self._counts, strict=True):
            known = label.value >= 0
            if not known.any():
                allowed &= not label.spreads
                continue
            at = np.where(known, label.value, 0)
            allowed &= ~known | (left[at] > 0)
            for spread, table in zip(label.spreads, tables, strict=True):
                smallest = 0 if spread.from_zero else int(table[spread.eligible].min(initial=UNBOUNDED))
                allowed &= known & spread.eligible[at] & (table[at] + 1 - smallest <= spread.max_skew)
                height += table[at]
        return np.flatnonzero(allowed), height

    def take(self, cell: int) -> None:
        self.taken[cell] += 1
        for label, left, tables in zip(self._labels, self._room, self._counts, strict=True):
            if label.value[cell] >= 0:
                left[label.value[cell]] -= 1
                for table in tables:
                    table[label.value[cell]] += 1

    def repeat_cycle(self, count: int) -> int:
        """Repeats the steps since the last cycle as often as tasks and room allow, if all domains of every spread have
        grown equally. Returns how many tasks were assigned."""
        if not _grew_equally(self._labels, self._counts, self._counts_before):
            return 0
        step = self.taken - self._taken_before
        size = int(step.sum())
        times = self._repeats(step, count // size) if size else 0
        if times > 0:
            self.taken += step * times
            for label, left, tables in zip(self._labels, self._room, self._counts, strict=True):
                known = label.value >= 0
                for table in tables:
                    np.add.at(table, label.value[known], step[known] * times)
                np.subtract.at(left, label.value[known], step[known] * times)
        self._begin_cycle()
        return size * max(times, 0)

    def _repeats(self, step: Ints, times: int) -> int:
        """Returns how often a cycle fits into the capacity of its cells, the room of its label values, and the skew of
        spreads whose smallest count stays 0."""
        some = np.flatnonzero(step)
        times = min(times, int(((self._capacity - self.taken)[some] // step[some]).min()))
        for label, left, tables in zip(self._labels, self._room, self._counts, strict=True):
            used = np.zeros(len(left), np.int64)
            known = label.value >= 0
            np.add.at(used, label.value[known], step[known])
            busy = np.flatnonzero(used)
            if not len(busy):
                continue
            times = min(times, int((left[busy] // used[busy]).min()))
            for spread, table in zip(label.spreads, tables, strict=True):
                if spread.from_zero:
                    times = min(times, int(((spread.max_skew - table[busy]) // used[busy]).min()))
        return times


def _grew_equally(
    labels: Sequence[LabelShares], counts: Sequence[Sequence[Ints]], start: Sequence[Sequence[Ints]]
) -> bool:
    """Whether every eligible domain of every spread has grown by the same number."""
    for label, tables, before in zip(labels, counts, start, strict=True):
        for spread, table, old in zip(label.spreads, tables, before, strict=True):
            grown = (table - old)[spread.eligible]
            if len(grown) and (grown != grown[0]).any():
                return False
    return True
