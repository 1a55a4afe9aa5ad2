"""The nodes that offer room, a row each: whose they are, how near their room is, and how much of it is free.

All of it follows from the slices and from what the groups look like, whatever is asked for. So it is kept (``recent``),
and only the rows of slices that are other objects now are made anew: demand that waits is asked about in one plan after
the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Final

import numpy as np

from windlass.core.capacity.offers import READY_TIER, tier_of
from windlass.core.capacity.room import Ints, Kinds, Room
from windlass.core.model.lifecycle import ENDING, IN_FLIGHT, State
from windlass.core.model.snapshot import Amounts, Slice

from .groups import Lineup
from .memo import Recent
from .slices import FEW, Muster, few_changes


@dataclass(frozen=True, slots=True)
class Ground:
    """Rows in the order of slice id and node id."""

    muster: Muster
    lineup: Lineup
    group: Ints
    position: Ints
    """The place of its slice."""
    tier: Ints
    room: Room

    @classmethod
    def of(cls, muster: Muster, lineup: Lineup) -> Ground:
        slices = muster.slices
        loads: list[tuple[Amounts, ...]] = list(map(attrgetter("loads"), slices))
        group_of = _working_groups(muster, lineup)
        tier_at = np.full(len(loads), READY_TIER, np.int64)
        for (name, state), places in muster.standing.items():
            group = lineup.index.get(name)
            if group is None or state in ENDING:
                for place in places:
                    loads[place] = ()
                continue
            group_of[places] = group
            marked = state == State.READY  # only then are slices of one state not equally near
            tier_at[places] = [tier_of(slices[place]) or READY_TIER for place in (places if marked else places[:1])]
            if state in IN_FLIGHT:
                empty = _loads(slices[places[0]], lineup, group)
                for place in places:
                    loads[place] = empty
        # By identity: to hash a load takes longer than all the rest, and equal ones are nearly always the same object.
        keys = list(map(id, loads))
        found = dict(zip(keys, loads, strict=True))
        number = dict(zip(found, range(len(found)), strict=True))
        which = np.fromiter(map(number.__getitem__, keys), np.int64, len(keys))
        size = np.array([len(one) for one in found.values()], np.int64)
        each = size[which]
        before = (size.cumsum() - size)[which]
        position: Ints
        if size.max(initial=0) > 1:
            position = np.repeat(np.arange(len(loads)), each)
            ahead = each.cumsum() - each
            usage = np.arange(len(position), dtype=np.int64) + (before - ahead)[position]
        else:
            position = each.nonzero()[0]
            usage = before[position]
        group_at = group_of[position]
        used = _used(chain.from_iterable(found.values()), lineup.kinds)
        total = lineup.totals[group_at]
        room = Room(lineup.kinds, total, np.maximum(total - used[usage], 0), lineup.fresh.present[group_at])
        tier = tier_at[position]
        return cls._closed(muster, lineup, group_at, position, tier, room)

    @classmethod
    def _closed(cls, muster: Muster, lineup: Lineup, group: Ints, position: Ints, tier: Ints, room: Room) -> Ground:
        """Nobody may write to it: the next plans look at it too."""
        for table in (group, position, tier, *room.tables()):
            table.flags.writeable = False
        return cls(muster, lineup, group, position, tier, room)

    def after(self, muster: Muster, lineup: Lineup) -> Ground | None:
        """The ground of slices of which a few changed, with as many nodes as they had; None: it is not like that."""
        if lineup is not self.lineup:
            return None
        if muster is self.muster:
            return self
        changed = few_changes(self.muster.slices, muster.slices)
        if changed is None:
            return None
        rows, tiers, loads = list[int](), list[int](), list[Amounts]()
        for place in changed:
            item = muster.slices[place]
            first, end = self.position.searchsorted((place, place + 1)).tolist()
            group, tier = lineup.index.get(item.group), tier_of(item)
            here = () if group is None or tier is None else _loads(item, lineup, group)
            if len(here) != end - first or (here and group != self.group[first]):
                return None
            rows += range(first, end)
            tiers += [tier or READY_TIER] * len(here)
            loads += here
        tier_at, room = self.tier, self.room
        if rows:
            at = np.array(rows)
            tier_at = tier_at.copy()
            tier_at[at] = tiers
            total = room.total[at]
            free = np.maximum(total - _used(loads, lineup.kinds), 0)
            room = room.copy()
            room.put(at, Room(lineup.kinds, total, free, room.present[at]))
        return self._closed(muster, lineup, self.group, self.position, tier_at, room)


def _loads(item: Slice, lineup: Lineup, group: int) -> tuple[Amounts, ...]:
    """What is used on each node of a slice that offers room; nothing runs yet on one that is on its way."""
    return ((),) * int(lineup.hosts[group]) if item.state in IN_FLIGHT else item.loads


def _working_groups(muster: Muster, lineup: Lineup) -> Ints:
    """For each slice the group that it is simply at work in; -1: none."""
    at_work = [name for name, many in muster.at_work.items() if many]
    if len(at_work) > 1:
        numbers: dict[str | None, int] = {None: -1}
        numbers.update(lineup.index)
        return np.fromiter(map(numbers.__getitem__, muster.works_in), np.int64, len(muster.slices))
    result = np.full(len(muster.slices), lineup.index[at_work[0]] if at_work else -1, np.int64)
    result[muster.others] = -1
    return result


def _used(loads: Iterable[Amounts], kinds: Kinds) -> Ints:
    """A row for each load, a column for each kind; what no group has is left out."""
    lines = []
    for load in loads:
        line = [0] * len(kinds.names)
        for name, amount in load:
            if name in kinds.column:
                line[kinds.column[name]] = amount
        lines.append(line)
    return np.array(lines, np.int64).reshape(len(lines), len(kinds.names))


_RECENT: Final = Recent[Ground](2)


def ground_of(muster: Muster, lineup: Lineup) -> Ground:
    """The rows of slices of which none works in a group that the line-up does not have. Nobody may write to it."""

    if len(muster.slices) < FEW:
        return Ground.of(muster, lineup)
    return _RECENT(lambda known: known.after(muster, lineup), lambda: Ground.of(muster, lineup))
