"""SliceTable holds the slices of a snapshot by id, and which of them are plainly busy.

With a ``PlannerMemo``, only slices that are new objects since the last plan are examined: the cost of a plan depends on
what has changed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, count, islice, repeat
from operator import attrgetter, is_, is_not
from typing import Final

from windlass.core.model.lifecycle import State
from windlass.core.model.snapshot import Slice

from .memo import Memo

FEW: Final = 32
"""With fewer slices a full build is faster than a comparison with the last table."""

CHANGED: Final = 10
"""If more than one slice in this many has changed, a full build is faster."""

_ID: Final = attrgetter("id")
_BUSY_GROUP: Final = attrgetter("busy_group")


@dataclass(frozen=True, slots=True)
class SliceTable:
    """Slices in the order of their ids; the position of a slice is its index."""

    given: tuple[Slice, ...]
    """The slices in their original order."""
    slices: tuple[Slice, ...]
    busy_group: list[str | None]
    """For each position the group of the slice if it is READY, busy, healthy and unmarked, else None."""
    busy_count: Mapping[str, int]
    """How many are plainly busy in each group."""
    not_busy: list[int]
    """The positions of all slices that are not plainly busy, in order."""
    by_group_and_state: Mapping[tuple[str, State], list[int]]
    """The same positions by group and state."""

    @classmethod
    def of(cls, given: tuple[Slice, ...]) -> SliceTable:
        slices = tuple(sorted(given, key=_ID))
        return cls._with(given, slices, list(map(_BUSY_GROUP, slices)))

    @classmethod
    def _with(cls, given: tuple[Slice, ...], slices: tuple[Slice, ...], busy_group: list[str | None]) -> SliceTable:
        not_busy = list(compress(count(), map(is_, busy_group, repeat(None))))
        busy_count = Counter([name for name in busy_group if name is not None])
        return cls(given, slices, busy_group, busy_count, not_busy, _by_group_and_state(slices, not_busy))

    def within(self, groups: Container[str]) -> SliceTable:
        """Returns the same for these groups only: a slice that is busy in another group counts as not plainly busy."""
        if all(group in groups for group in self.busy_count):
            return self
        return self._with(self.given, self.slices, [name if name in groups else None for name in self.busy_group])

    def after(self, given: tuple[Slice, ...]) -> SliceTable | None:
        """Returns the table updated for a few slices that are new objects; None if their order or number differs."""
        changed = few_changes(self.given, given)
        if not changed:
            return None if changed is None else self
        slices, busy_group = list(self.slices), self.busy_group.copy()
        busy_count, not_busy = dict(self.busy_count), self.not_busy.copy()
        for index in changed:
            old, new = self.given[index], given[index]
            place = bisect_left(self.slices, old.id, key=_ID)
            if new.id != old.id or self.slices[place] is not old:
                return None
            was, now = busy_group[place], new.busy_group
            slices[place], busy_group[place] = new, now
            if was == now:
                continue
            if was is None:
                del not_busy[bisect_left(not_busy, place)]
            else:
                busy_count[was] -= 1
            if now is None:
                insort(not_busy, place)
            else:
                busy_count[now] = busy_count.get(now, 0) + 1
        return SliceTable(given, tuple(slices), busy_group, busy_count, not_busy, _by_group_and_state(slices, not_busy))


def few_changes(before: tuple[Slice, ...], after: tuple[Slice, ...]) -> list[int] | None:
    """Returns the positions of slices that are new objects; None if more than a few changed, or their number did."""
    if len(before) != len(after):
        return None
    most = len(after) // CHANGED
    changed = list(islice(compress(count(), map(is_not, before, after)), most + 1))
    return None if len(changed) > most else changed


def _by_group_and_state(slices: Sequence[Slice], not_busy: Iterable[int]) -> Mapping[tuple[str, State], list[int]]:
    found: dict[tuple[str, State], list[int]] = {}
    for place in not_busy:
        item = slices[place]
        found.setdefault((item.group, item.state), []).append(place)
    return found


def slice_table_of(slices: tuple[Slice, ...], recent: Memo[SliceTable]) -> SliceTable:
    """Builds the table of slices that come in any order. Callers must not write to it."""
    if len(slices) < FEW:
        return SliceTable.of(slices)
    return recent(lambda before: before.after(slices), lambda: SliceTable.of(slices))
