"""NodeTable has one row per schedulable node: its slice, its tier (ready, recallable, in flight) and its free
resources.

It follows from the slices and the groups alone. A caller that plans repeatedly keeps it in its ``PlannerMemo``, and the
next plan rebuilds only the rows of slices that are new objects.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter

import numpy as np

from windlass.core.capacity.offers import READY_TIER, tier_of
from windlass.core.capacity.room import Ints, Kinds, Room
from windlass.core.model.lifecycle import ENDING, IN_FLIGHT, State
from windlass.core.model.snapshot import Amounts, Slice

from .groups import GroupTable
from .memo import Memo
from .slices import FEW, SliceTable, few_changes


@dataclass(frozen=True, slots=True)
class NodeTable:
    """Rows in the order of slice id and node id."""

    slice_table: SliceTable
    group_table: GroupTable
    group: Ints
    position: Ints
    """The position of its slice."""
    tier: Ints
    room: Room

    @classmethod
    def of(cls, slice_table: SliceTable, group_table: GroupTable) -> NodeTable:
        slices = slice_table.slices
        loads: list[tuple[Amounts, ...]] = list(map(attrgetter("loads"), slices))
        group_of = _working_groups(slice_table, group_table)
        tier_at = np.full(len(loads), READY_TIER, np.int64)
        for (name, state), places in slice_table.by_group_and_state.items():
            group = group_table.index.get(name)
            if group is None or state in ENDING:
                for place in places:
                    loads[place] = ()
                continue
            group_of[places] = group
            marked = state == State.READY  # only then do slices of one state differ in their tier
            tier_at[places] = [tier_of(slices[place]) or READY_TIER for place in (places if marked else places[:1])]
            if state in IN_FLIGHT:
                empty = _loads(slices[places[0]], group_table, group)
                for place in places:
                    loads[place] = empty
        number: dict[tuple[Amounts, ...], int] = {}
        which = np.fromiter([number.setdefault(load, len(number)) for load in loads], np.int64, len(loads))
        found = list(number)
        size = np.array([len(one) for one in found], np.int64)
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
        used = _used(chain.from_iterable(found), group_table.kinds)
        total = group_table.totals[group_at]
        room = Room(group_table.kinds, total, np.maximum(total - used[usage], 0), group_table.fresh.present[group_at])
        tier = tier_at[position]
        return cls._closed(slice_table, group_table, group_at, position, tier, room)

    @classmethod
    def _closed(
        cls, slice_table: SliceTable, group_table: GroupTable, group: Ints, position: Ints, tier: Ints, room: Room
    ) -> NodeTable:
        """Makes its arrays read-only, because later plans read them too."""
        for table in (group, position, tier, *room.tables()):
            table.flags.writeable = False
        return cls(slice_table, group_table, group, position, tier, room)

    def after(self, slice_table: SliceTable, group_table: GroupTable) -> NodeTable | None:
        """Returns the table updated for a few slices that changed and kept their number of nodes; None if more
        changed."""
        if group_table is not self.group_table:
            return None
        if slice_table is self.slice_table:
            return self
        changed = few_changes(self.slice_table.slices, slice_table.slices)
        if changed is None:
            return None
        rows, tiers, loads = list[int](), list[int](), list[Amounts]()
        for place in changed:
            item = slice_table.slices[place]
            first, end = self.position.searchsorted((place, place + 1)).tolist()
            group, tier = group_table.index.get(item.group), tier_of(item)
            here = () if group is None or tier is None else _loads(item, group_table, group)
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
            free = np.maximum(total - _used(loads, group_table.kinds), 0)
            room = room.copy()
            room.put(at, Room(group_table.kinds, total, free, room.present[at]))
        return self._closed(slice_table, group_table, self.group, self.position, tier_at, room)


def _loads(item: Slice, group_table: GroupTable, group: int) -> tuple[Amounts, ...]:
    """Returns the use of each node of a slice that offers room; a slice in flight uses nothing."""
    return ((),) * int(group_table.hosts[group]) if item.state in IN_FLIGHT else item.loads


def _working_groups(slice_table: SliceTable, group_table: GroupTable) -> Ints:
    """Returns for each slice the index of the group in which it is plainly busy; -1: none."""
    busy_count = [name for name, many in slice_table.busy_count.items() if many]
    if len(busy_count) > 1:
        numbers: dict[str | None, int] = {None: -1}
        numbers.update(group_table.index)
        return np.fromiter(map(numbers.__getitem__, slice_table.busy_group), np.int64, len(slice_table.slices))
    result = np.full(len(slice_table.slices), group_table.index[busy_count[0]] if busy_count else -1, np.int64)
    result[slice_table.not_busy] = -1
    return result


def _used(loads: Iterable[Amounts], kinds: Kinds) -> Ints:
    """Returns a row for each load, a column for each kind; kinds that no group has are left out."""
    lines = []
    for load in loads:
        line = [0] * len(kinds.names)
        for name, amount in load:
            if name in kinds.column:
                line[kinds.column[name]] = amount
        lines.append(line)
    return np.array(lines, np.int64).reshape(len(lines), len(kinds.names))


def node_table_of(slice_table: SliceTable, group_table: GroupTable, recent: Memo[NodeTable]) -> NodeTable:
    """Returns the rows of slices whose busy groups are all in the group table. Callers must not write to it."""
    if len(slice_table.slices) < FEW:
        return NodeTable.of(slice_table, group_table)
    return recent(lambda known: known.after(slice_table, group_table), lambda: NodeTable.of(slice_table, group_table))
