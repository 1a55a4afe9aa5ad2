"""A snapshot laid out as tables, once for all drafts that are made of it.

A plan tries several ways and makes a draft for each. What they share follows from the snapshot alone and is never
changed by a draft: its parts in their order, who belongs to which group, one row for every node with what is free.
"""

from __future__ import annotations

import numpy as np

from .eligibility import Eligibility
from .lifecycle import IN_FLIGHT, RECALLABLE
from .offers import free_rows
from .room import Ints, Kinds, amounts_matrix
from .shapes import largest_nodes
from .snapshot import Node, Snapshot


class Layout:
    """What all drafts of a snapshot share."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.groups = tuple(sorted(snapshot.groups, key=lambda group: group.name))
        self.slices = tuple(sorted(snapshot.slices, key=lambda item: item.id))
        index = {group.name: position for position, group in enumerate(self.groups)}
        self.group_of = tuple(index.get(item.group) for item in self.slices)
        self.members: list[list[int]] = [[] for _ in self.groups]
        for position, of in enumerate(self.group_of):
            if of is not None:
                self.members[of].append(position)
        self.kinds = Kinds.of(name for group in self.groups for name, _ in group.resources)
        self.totals = amounts_matrix([dict(group.resources) for group in self.groups], self.kinds)
        self.largest = largest_nodes(self.groups)
        self.hosts = np.array([group.hosts for group in self.groups], np.int64)
        self.price = np.array([group.price or 0 for group in self.groups], np.int64)
        self.rank = np.array([group.rank for group in self.groups], np.int64)
        self.eligibility = Eligibility((*snapshot.demands, *snapshot.requests))
        self.profiles = [self.eligibility.group_profile(group) for group in self.groups]
        self.profile_index = np.array(self.profiles, np.int64)
        self.busy = tuple(item.state not in IN_FLIGHT and item.busy for item in self.slices)
        self.recallable = [position for position, item in enumerate(self.slices) if item.state in RECALLABLE]
        self.row_nodes: list[Node | None] = []
        self.rows, self.used = self._rows()

    def _rows(self) -> tuple[Ints, Ints]:
        """(group, slice position, tier, profile) of every node that offers room; (row, column, amount) that it uses."""
        rows, used, column = [], [], self.kinds.column
        for row, (group, position, tier, profile, node) in enumerate(
            free_rows(self.slices, self.groups, self.group_of, self.profiles, self.eligibility)
        ):
            rows.append((group, position, tier, profile))
            self.row_nodes.append(node)
            if node is not None:
                used += [(row, column[name], amount) for name, amount in node.used if name in column]
        return np.array(rows, np.int64).reshape(-1, 4), np.array(used, np.int64).reshape(-1, 3)
