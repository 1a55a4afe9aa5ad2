"""A snapshot laid out as tables, once for all drafts that are made of it.

A plan tries several ways and makes a draft for each. What they share follows from the snapshot alone and is never
changed by a draft: its parts in their order, who belongs to which group and is in which state, one row for every node
with what is free.

Of a large cluster most slices are simply at work: ready, busy, healthy, not marked. They are counted, and looked at one
by one only where a rule is about them. All the others - idle, on their way, leaving, marked, unhealthy, of no group -
are listed by group and state, so that a plan costs by what there is to decide and not by how much runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from itertools import chain, compress, count, repeat
from operator import attrgetter, is_

import numpy as np

from .eligibility import Eligibility
from .lifecycle import ENDING, IN_FLIGHT, OFFERING, RECALLABLE, State
from .lineup import lineup_of
from .offers import READY_TIER, Rows, tier_of
from .room import Ints, Kinds, Need, Room
from .snapshot import Amounts, Bundle, Node, Snapshot


class Layout:
    """What all drafts of a snapshot share."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.groups = tuple(sorted(snapshot.groups, key=attrgetter("name")))
        self.slices = tuple(sorted(snapshot.slices, key=attrgetter("id")))
        self.lineup = lineup = lineup_of(self.groups)
        self._index = index = lineup.index
        self._works_in = works_in = list(map(attrgetter("works_in"), self.slices))
        self.at_work = [0] * len(self.groups)
        """For each group how many of its slices are simply at work."""
        names = Counter(works_in)
        for name, many in names.items():
            if name in index:
                self.at_work[index[name]] = many
        if gone := names.keys() - index.keys() - {None}:
            self._works_in = works_in = [None if name in gone else name for name in works_in]
        self.others = list(compress(count(), map(is_, works_in, repeat(None))))
        """The places of all other slices, in order."""
        self.positions: dict[tuple[int | None, State], list[int]] = {}
        """The same by group and state; those of no group under None."""
        for place in self.others:
            item = self.slices[place]
            self.positions.setdefault((index.get(item.group), item.state), []).append(place)
        self.counts: dict[tuple[int | None, State], int] = {
            (group, State.READY): many for group, many in enumerate(self.at_work) if many
        }
        """How many slices of each group are in each state."""
        self.live = self.at_work.copy()
        """For each group how many slices it has from QUEUED to READY."""
        leaving: list[int] = []
        for (group, state), places in self.positions.items():
            self.counts[group, state] = self.counts.get((group, state), 0) + len(places)
            if group is not None and state in OFFERING:
                self.live[group] += len(places)
            if state in RECALLABLE:
                leaving += places
        self.recallable = sorted(leaving)
        self.strays = self.of(None, *State) if any(group is None for group, _ in self.positions) else []
        """The places of all slices of no group."""
        self.tasks: dict[tuple[Bundle, ...], tuple[tuple[Need, int], ...]] = {}
        """The tasks of gangs, as far as somebody asked: each is tried more than once, and explained."""

    def group_of(self, position: int) -> int | None:
        return self._index.get(self.slices[position].group)

    def of(self, group: int | None, *states: State) -> list[int]:
        """The places of the slices of a group in any of some states, in order, without those simply at work."""
        found = [here for state in states if (here := self.positions.get((group, state)))]
        if len(found) == 1:
            return found[0]
        return sorted(chain.from_iterable(found)) if found else []

    def with_work(self, group: int, *states: State) -> list[int]:
        """The same, and those that are simply at work."""
        rest = self.of(group, *states)
        if State.READY not in states or not self.at_work[group]:
            return rest
        name = self.groups[group].name
        return sorted((*(place for place, works in enumerate(self._works_in) if works == name), *rest))

    # -- for demand -------------------------------------------------------------------------------------------------

    @cached_property
    def eligibility(self) -> Eligibility:
        return Eligibility((*self.snapshot.demands, *self.snapshot.requests))

    @cached_property
    def profiles(self) -> list[int]:
        """Of the nodes of each group."""
        return [self.eligibility.group_profile(group) for group in self.groups]

    @cached_property
    def profile_index(self) -> Ints:
        return np.array(self.profiles, np.int64)

    @cached_property
    def rows(self) -> Rows:
        """Every node that offers room. Laid out when first asked for: where nothing waits, nobody asks."""
        loads: list[tuple[Amounts, ...]] = list(map(attrgetter("loads"), self.slices))
        group_of = self._working_groups()
        tier_at = np.full(len(loads), READY_TIER, np.int64)
        for (group, state), places in self.positions.items():
            if group is None or state in ENDING:
                for place in places:
                    loads[place] = ()
                continue
            group_of[places] = group
            marked = state == State.READY  # only then are slices of one state not equally near
            tiers = [tier_of(self.slices[place]) or READY_TIER for place in (places if marked else places[:1])]
            tier_at[places] = tiers
            if state in IN_FLIGHT:
                empty: tuple[Amounts, ...] = ((),) * self.groups[group].hosts
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
        profile = self.profile_index[group_at]
        self._own_profiles(profile, group_at)
        kinds, total = self.lineup.kinds, self.lineup.totals[group_at]
        used = _used(chain.from_iterable(found.values()), kinds)
        room = Room(kinds, total, np.maximum(total - used[usage], 0), self.lineup.fresh.present[group_at])
        return Rows(group_at, position, tier_at[position], profile, room)

    def _working_groups(self) -> Ints:
        """For each slice the group that it is simply at work in; -1: none."""
        at_work = [group for group, many in enumerate(self.at_work) if many]
        if len(at_work) > 1:
            numbers: dict[str | None, int] = {None: -1}
            numbers.update(self._index)
            return np.fromiter(map(numbers.__getitem__, self._works_in), np.int64, len(self._works_in))
        result = np.full(len(self._works_in), at_work[0] if at_work else -1, np.int64)
        result[self.others] = -1
        return result

    def _own_profiles(self, profile: Ints, group_at: Ints) -> None:
        """The profiles of nodes with labels of their own, where somebody asks for labels at all."""
        if not self.eligibility.asks:
            return
        for row, node in enumerate(self.nodes):
            if node is not None and node.labels:
                group = int(group_at[row])
                profile[row] = self.eligibility.node_profile(self.groups[group], node.labels, self.profiles[group])

    @cached_property
    def nodes(self) -> list[Node | None]:
        """The node of each row; None: it is on its way."""
        found: list[Node | None] = []
        for item in self.slices:
            group = self._index.get(item.group)
            if group is None or tier_of(item) is None:
                continue
            found += [None] * self.groups[group].hosts if item.state in IN_FLIGHT else item.offering_nodes
        return found


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
