"""GroupTable holds the groups of a snapshot as arrays: the resources, price and labels of a new slice.

They rarely change from plan to plan, so a ``PlannerMemo`` keeps the last few.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final

import numpy as np

from windlass.core.capacity.room import Ints, Kinds, Room, amounts_matrix
from windlass.core.model.cached import cached_attribute
from windlass.core.model.snapshot import Group

from .memo import Memo


def largest_nodes(groups: Iterable[Group]) -> dict[str, int]:
    """Returns the largest amount of each resource on any group's node."""
    largest: dict[str, int] = {}
    for group in groups:
        for name, amount in group.resources:
            largest[name] = max(amount, largest.get(name, 0))
    return largest


_PARTS: Final = attrgetter("name", "resources", "hosts", "price", "rank", "labels", "preemptible")
"""Returns what the table depends on: not the limits of a group, its availability, or whether it is frozen."""


class GroupTable:
    """Groups in name order, a row each."""

    def __init__(self, groups: tuple[Group, ...], parts: Sequence[tuple[object, ...]]) -> None:
        self.parts = parts
        self.index: Mapping[str, int] = {group.name: position for position, group in enumerate(groups)}
        self.kinds = Kinds.of(name for group in groups for name, _ in group.resources)
        self.totals = _fixed(amounts_matrix([dict(group.resources) for group in groups], self.kinds))
        self.largest = largest_nodes(groups)
        self.hosts = _fixed(np.array([group.hosts for group in groups], np.int64))
        self.price = _fixed(np.array([group.price or 0 for group in groups], np.int64))
        self.rank = _fixed(np.array([group.rank for group in groups], np.int64))
        self.node_labels = [group.node_labels() for group in groups]

    @cached_attribute
    def fresh(self) -> Room:
        """The room of an empty node of each group, for fit checks."""
        room = Room.fresh(self.kinds, self.totals)
        for table in room.tables():
            _fixed(table)
        return room

    @cached_attribute
    def labels(self) -> dict[str, set[str]]:
        """Every label that some group has, with its values."""
        found: dict[str, set[str]] = {}
        for labels in self.node_labels:
            for key, value in labels.items():
                found.setdefault(key, set()).add(value)
        return found


def _fixed(table: Ints) -> Ints:
    table.flags.writeable = False
    return table


def group_table_of(groups: tuple[Group, ...], recent: Memo[GroupTable]) -> GroupTable:
    """Returns the table of groups that come in name order. Callers must not write to it."""
    parts = list(map(_PARTS, groups))  # the comparison is quick where the parts are identical objects
    return recent(lambda known: known if known.parts == parts else None, lambda: GroupTable(groups, parts))
