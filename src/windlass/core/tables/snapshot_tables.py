"""SnapshotTables holds a snapshot as arrays, once for all drafts that are made from it.

A plan tries several drafts. They share what follows from the snapshot alone and is never changed by a draft: its parts
in order, the group and state of each slice, one row for every node with its free room.

In a large cluster most slices are plainly busy: ready, with work, healthy, not marked. They are only counted, unless a
rule is about them. All others (idle, in flight, leaving, marked, unhealthy, of no group) are listed by group and state,
so that the cost of a plan depends on what there is to decide and not on how much runs.
"""

from __future__ import annotations

from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np

from windlass.core.capacity.eligibility import Eligibility
from windlass.core.capacity.limits import family_index, limit_scopes
from windlass.core.capacity.offers import Rows, tier_of
from windlass.core.capacity.room import Ints
from windlass.core.model.cached import cached_attribute
from windlass.core.model.lifecycle import IN_FLIGHT, OFFERING, RECALLABLE, State
from windlass.core.model.snapshot import Demand, Node, Snapshot

from .demands import DemandTable
from .groups import group_table_of
from .nodes import node_table_of
from .planner_memo import PlannerMemo
from .slices import slice_table_of


class SnapshotTables:
    """The parts of a snapshot that all its drafts share."""

    def __init__(self, snapshot: Snapshot, memo: PlannerMemo | None = None, demands: DemandTable | None = None) -> None:
        """``demands``: the table of another snapshot with the same demand and groups."""
        self.snapshot, self._demands = snapshot, demands
        self.memo = memo = memo or PlannerMemo()
        self.groups = tuple(sorted(snapshot.groups, key=attrgetter("name")))
        self.group_table = group_table_of(self.groups, memo.groups)
        self._index = index = self.group_table.index
        self.scopes = limit_scopes(self.groups, snapshot.cluster.families)
        """A scope for each group, then one for each family."""
        families = family_index(self.groups, self.scopes)
        self.scopes_of = [(group,) if at < 0 else (group, at) for group, at in enumerate(families)]
        """For each group the indices of the scopes that it counts for."""
        self.has_fallbacks = any(group.fallback for group in self.groups)
        self.family_index: Ints | None = None
        """For each group the index of its family among the families, -1 without one. None: there are no families."""
        if len(self.scopes) > len(self.groups):
            self.family_index = np.maximum(np.array(families, np.int64) - len(self.groups), -1)
        self._slice_table = slice_table = slice_table_of(snapshot.slices, memo.slices).within(index)
        self.slices = slice_table.slices
        self.not_busy = slice_table.not_busy
        """The positions of all slices that are not plainly busy, in order."""
        self.busy_count = [slice_table.busy_count.get(group.name, 0) for group in self.groups]
        """For each group how many of its slices are plainly busy."""
        self.positions: dict[tuple[int | None, State], list[int]] = {}
        """The same positions by group and state; those of no group under None."""
        self.counts: dict[tuple[int | None, State], int] = {
            (group, State.READY): many for group, many in enumerate(self.busy_count) if many
        }
        """How many slices of each group are in each state."""
        self.live = self.busy_count.copy()
        """For each group how many slices it has from QUEUED to READY."""
        self.recallable: list[int] = []
        self.slices_without_group: list[int] = []
        """The positions of all slices of no group."""
        self.final = frozenset(place for place in self.not_busy if self.slices[place].final)
        """The positions of slices that are about to end."""
        for (name, state), places in slice_table.by_group_and_state.items():
            group = index.get(name)
            alike = self.positions.get((group, state))
            self.positions[group, state] = sorted((*alike, *places)) if alike else places
            self.counts[group, state] = self.counts.get((group, state), 0) + len(places)
            if group is None:
                self.slices_without_group += places
            elif state in OFFERING:
                self.live[group] += len(places) - len(self.final.intersection(places))
            if state in RECALLABLE:
                self.recallable += [place for place in places if place not in self.final]
        self.recallable.sort()
        self.slices_without_group.sort()
        self.tasks: dict[Demand, Any] = {}
        """The tasks of gangs that were already computed: each gang is tried more than once, and explained."""

    def group_of(self, position: int) -> int | None:
        return self._index.get(self.slices[position].group)

    def of(self, group: int | None, *states: State) -> list[int]:
        """Returns the positions of the slices of a group in any of some states, in order, without the plainly busy
        ones."""
        found = [here for state in states if (here := self.positions.get((group, state)))]
        if len(found) == 1:
            return found[0]
        return sorted(chain.from_iterable(found)) if found else []

    def with_work(self, group: int, *states: State) -> list[int]:
        """Returns the same with the plainly busy ones."""
        rest = self.of(group, *states)
        if State.READY not in states or not self.busy_count[group]:
            return rest
        name = self.groups[group].name
        return sorted((*(place for place, works in enumerate(self._slice_table.busy_group) if works == name), *rest))

    # -- for demand -------------------------------------------------------------------------------------------------

    @cached_attribute
    def demands(self) -> DemandTable:
        return self._demands or DemandTable(self.snapshot, self.group_table)

    @cached_attribute
    def eligibility(self) -> Eligibility:
        return Eligibility((*self.demands.different, *self.snapshot.requests))

    @cached_attribute
    def profiles(self) -> list[int]:
        """Of the nodes of each group."""
        return [self.eligibility.group_profile(group) for group in self.groups]

    @cached_attribute
    def profile_index(self) -> Ints:
        return np.array(self.profiles, np.int64)

    @cached_attribute
    def rows(self) -> Rows:
        """Every node that offers room. Computed when first used: if nothing waits, it is not used."""
        node_table = node_table_of(self._slice_table, self.group_table, self.memo.nodes)
        profile = self.profile_index[node_table.group]
        self._own_profiles(profile, node_table.group)
        return Rows(node_table.group, node_table.position, node_table.tier, profile, node_table.room)

    def _own_profiles(self, profile: Ints, group_at: Ints) -> None:
        """The profiles of nodes with labels of their own, if some condition uses labels."""
        if not self.eligibility.asks:
            return
        for row, node in enumerate(self.nodes):
            if node is not None and node.labels:
                group = int(group_at[row])
                profile[row] = self.eligibility.node_profile(self.groups[group], node.labels, self.profiles[group])

    @cached_attribute
    def nodes(self) -> list[Node | None]:
        """The node of each row; None: it is in flight."""
        found: list[Node | None] = []
        for item in self.slices:
            group = self._index.get(item.group)
            if group is None or tier_of(item) is None:
                continue
            found += [None] * self.groups[group].hosts if item.state in IN_FLIGHT else item.offering_nodes
        return found
