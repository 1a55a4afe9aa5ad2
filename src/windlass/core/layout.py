"""A snapshot laid out as tables, once for all drafts that are made of it.

A plan tries several ways and makes a draft for each. What they share follows from the snapshot alone and is never
changed by a draft: its parts in their order, who belongs to which group and is in which state, one row for every node
with what is free. Steps that look for slices ask for those of a group in a state, so that a thousand busy ones cost
nothing where the few idle ones are wanted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .eligibility import Eligibility
from .lifecycle import IN_FLIGHT, OFFERING, RECALLABLE, State
from .offers import tier_of
from .room import Ints, Kinds, amounts_matrix
from .shapes import largest_nodes
from .snapshot import Amounts, Node, Snapshot


@dataclass(frozen=True, slots=True)
class Table:
    """Every node that offers room, a row each."""

    rows: Ints
    """(group, slice position, tier, profile, usage) of each."""
    nodes: list[Node | None]
    """None: it is on its way."""
    usages: Ints
    """What each usage takes; the first one is none."""


class Layout:
    """What all drafts of a snapshot share."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.groups = tuple(sorted(snapshot.groups, key=lambda group: group.name))
        self.slices = tuple(sorted(snapshot.slices, key=lambda item: item.id))
        index = {group.name: position for position, group in enumerate(self.groups)}
        self.group_of = tuple([index.get(item.group) for item in self.slices])
        self.positions: dict[tuple[int | None, State], list[int]] = {}
        """The places of the slices of a group in a state, in order; those of no group under None."""
        for position, item in enumerate(self.slices):
            self.positions.setdefault((self.group_of[position], item.state), []).append(position)
        self.offering = [self.of(group, *OFFERING) for group in range(len(self.groups))]
        """For each group the places of its slices from QUEUED to READY."""
        self.kinds = Kinds.of(name for group in self.groups for name, _ in group.resources)
        self.totals = amounts_matrix([dict(group.resources) for group in self.groups], self.kinds)
        self.largest = largest_nodes(self.groups)
        self.hosts = np.array([group.hosts for group in self.groups], np.int64)
        self.price = np.array([group.price or 0 for group in self.groups], np.int64)
        self.rank = np.array([group.rank for group in self.groups], np.int64)
        self.eligibility = Eligibility((*snapshot.demands, *snapshot.requests))
        self.profiles = [self.eligibility.group_profile(group) for group in self.groups]
        self.profile_index = np.array(self.profiles, np.int64)
        self.busy = tuple([item.busy and item.state not in IN_FLIGHT for item in self.slices])
        self.free = [[p for p in here if not self.busy[p] and self.slices[p].healthy] for here in self.offering]
        """Of those, the ones without work and with nothing wrong."""
        groups = (None, *range(len(self.groups)))
        self.recallable = sorted(position for group in groups for position in self.of(group, *RECALLABLE))

    def of(self, group: int | None, *states: State) -> list[int]:
        """The places of the slices of a group in any of some states, in order."""
        found = [here for state in states if (here := self.positions.get((group, state)))]
        return found[0] if len(found) == 1 else sorted(position for here in found for position in here)

    @cached_property
    def table(self) -> Table:
        """The rows. Laid out when they are first asked for: where nothing waits, nobody asks."""
        rows, nodes, usages = [], list[Node | None](), dict[Amounts, int]()
        nothing = usages.setdefault((), 0)
        for position, item in enumerate(self.slices):
            group, tier = self.group_of[position], tier_of(item)
            if group is None or tier is None:
                continue
            kind, profile = self.groups[group], self.profiles[group]
            if item.state in IN_FLIGHT:
                rows += [(group, position, tier, profile, nothing)] * kind.hosts
                nodes += [None] * kind.hosts
                continue
            for node in item.offering_nodes:
                own = self.eligibility.node_profile(kind, node.labels, profile) if node.labels else profile
                usage = usages.setdefault(node.used, len(usages))
                rows.append((group, position, tier, own, usage))
                nodes.append(node)
        known = self.kinds.column
        amounts = [{name: amount for name, amount in used if name in known} for used in usages]
        return Table(np.array(rows, np.int64).reshape(-1, 5), nodes, amounts_matrix(amounts, self.kinds))
