"""This module finds what would unblock waiting demand: it changes the snapshot and plans again.

Each suggestion is true: it is kept only if a plan of the changed snapshot leaves nothing of the demand waiting. A limit
is first removed, which shows how far it must be raised, and then raised to that value. Where several limits bind at
once and no single change is enough, the limits that one group needs are raised together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from windlass.core.model.constraints import NODE, SLICE
from windlass.core.model.lifecycle import ENDING
from windlass.core.model.plan import Unblock, Waiting
from windlass.core.model.reasons import IMPOSSIBLE, TRANSIENT, Code
from windlass.core.model.snapshot import (
    Availability,
    Demand,
    Family,
    Group,
    Snapshot,
)

from .edits import (
    Edit,
    RaisedLimit,
    available,
    different,
    further_domain,
    is_smaller,
    new_budget,
    new_cluster_rate,
    new_family_max,
    new_max,
    new_nodes,
    new_rate,
    on_demand,
    reshaped,
    resumed,
    set_cluster,
    set_family,
    set_group,
    smaller,
    tolerated,
)
from .rule_edits import Raised, dropped_conditions, mended_conditions, raised_numbers


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """The result of a snapshot: which demand waits, and what the limits count once its launches are made."""

    waiting: Mapping[str, int]
    """Tasks that find no place, by demand."""
    counted: Mapping[str, int]
    """Slices that count for each group's max, launches included."""
    in_flight: Mapping[str, int]
    """Slices in flight, by group, launches included."""
    nodes: int
    cost: int
    """Nanodollars per hour, of all that counts."""


WhatIf = Callable[[Snapshot], TrialOutcome]

MOST_REPLANS: Final = 400
"""Largest number of what-if plans for one plan, if it is small."""
WORK: Final = 200_000
"""Largest number of slices and demands that all what-if plans together may handle: a large plan gets fewer of them."""
MOST_SUGGESTIONS: Final = 5
"""Largest number of suggestions for one demand."""
LIFTED: Final = 10**6
STEPS: Final = 4
"""A cap on tasks is raised by up to this many times the tasks of the demand, because running tasks count too."""


_LIMITS: Final = frozenset({Code.AT_MAX, Code.MAX_NODES, Code.BUDGET})
"""Blockers for which slices count until they are confirmed gone."""


class _Spent(Exception):
    """No what-if plans are left for this plan."""


class Unblocker:
    """Finds suggestions for the waiting demand of one plan, within a fixed number of what-if plans."""

    def __init__(self, snapshot: Snapshot, waiting: tuple[Waiting, ...], what_if: WhatIf) -> None:
        self.snapshot, self.waiting = snapshot, waiting
        self._what_if = what_if
        self._unedited = what_if(snapshot) if waiting else None
        size = len(snapshot.slices) + len(snapshot.demands) + len(snapshot.groups)
        self._left = max(8, min(MOST_REPLANS, WORK // (size + 1)))
        self._reserve = self._left // 2
        """What-if plans that are not used to lower a limit that is known to be high enough."""
        self._requests = {request.id for request in snapshot.requests}
        self._demands = {demand.id: demand for demand in (*snapshot.requests, *snapshot.demands)}

    def all(self) -> Mapping[str, tuple[Unblock, ...]]:
        """Returns for each waiting demand the changes that would place it, the smallest first."""
        return {waiting.demand: self.ways_out(waiting) for waiting in self.waiting}

    def ways_out(self, waiting: Waiting) -> tuple[Unblock, ...]:
        """Returns the suggestions that are found before the what-if plans are used up."""
        demand, found = self._demands[waiting.demand], dict[str, Unblock]()
        try:
            if self._room_comes(demand, waiting):
                return ()
            for edit in different(self._edits(demand, waiting)):
                unblock = self._if_true(demand, (edit,))
                if unblock is not None:
                    found.setdefault(unblock.change, unblock)
                if len(found) == MOST_SUGGESTIONS:
                    break
            if not found:
                found = {unblock.change: unblock for unblock in self._all_resumed(demand, waiting)}
            if not found:
                found = {unblock.change: unblock for unblock in self._together(demand, waiting)}
            if len(found) < MOST_SUGGESTIONS and not any(_resumes(unblock) for unblock in found.values()):
                found |= {unblock.change: unblock for unblock in self._resumed_with_limits(demand, waiting)}
        except _Spent:
            pass
        return tuple(found.values())

    def _room_comes(self, demand: Demand, waiting: Waiting) -> bool:
        """Whether a demand that a limit blocks is placed when the ending slices are gone: then nothing needs to be
        changed."""
        if not any(reason.code in _LIMITS for reason in waiting.groups.values()):
            return False
        staying = tuple(one for one in self.snapshot.slices if one.state not in ENDING)
        if len(staying) == len(self.snapshot.slices):
            return False
        return self._places(demand, replace(self.snapshot, slices=staying)) is not None

    def _places(self, demand: Demand, snapshot: Snapshot) -> TrialOutcome | None:
        """Returns the result of the snapshot if nothing of the demand waits there."""
        if self._left <= 0:
            raise _Spent
        self._left -= 1
        outcome = self._what_if(snapshot)
        return None if demand.id in outcome.waiting else outcome

    def _if_true(self, demand: Demand, edits: tuple[Edit, ...]) -> Unblock | None:
        snapshot = self.snapshot
        for edit in edits:
            snapshot = edit.apply(snapshot)
        outcome = self._places(demand, snapshot)
        if outcome is None or self._unedited is None:
            return None
        before = self._unedited
        return Unblock(
            " and ".join(edit.change for edit in edits),
            tuple((self._path(edit), edit.value) for edit in edits),
            outcome.cost - before.cost,
            _more(outcome.counted, before.counted),
            _more(before.waiting, outcome.waiting),
            tuple(edit.change for edit in edits),
        )

    def _path(self, edit: Edit) -> tuple[str, ...]:
        """Returns the path of an edit; standing requests have a section of their own."""
        section, name, *_ = edit.path
        return ("requests", *edit.path[1:]) if section == "demands" and name in self._requests else edit.path

    # -- candidates, the smallest change first ----------------------------------------------------------------------

    def _edits(self, demand: Demand, waiting: Waiting) -> Iterator[Edit]:
        """Returns single changes that might help: the typing error, frozen groups, what passes with time, limits."""
        by_code = self._groups_by_code(waiting)
        if waiting.reason.code == Code.GANG_FORMING and demand.deadline is not None:
            without = on_demand(demand, lambda d: replace(d, deadline=None))
            yield Edit("no deadline", ("demands", demand.id, "deadline"), None, without)
        if Code.NO_LABEL_MATCH in by_code:
            yield from mended_conditions(demand, self._labels())
        for group in by_code.get(Code.FROZEN, ()):
            yield resumed(group)
        for code in sorted(TRANSIENT - {Code.RATE_LIMITED}):
            for group in by_code.get(code, ()):
                yield available(group, self.snapshot.now)
        if Code.RATE_LIMITED in by_code:
            yield from self._raised_rates(demand, by_code[Code.RATE_LIMITED])
        full = by_code.get(Code.AT_MAX, [])
        for group in full:
            family = self._family_of(group)
            if family is None or group.max < family.max:
                yield from self._raised_max(demand, group)
        for family in self.snapshot.cluster.families:
            if any(group.family == family.name for group in full):
                yield from self._raised_family(demand, family)
        if Code.MAX_NODES in by_code:
            yield from self._raised_nodes(demand)
        if Code.BUDGET in by_code:
            yield from self._raised_budget(demand)
        yield from self._edits_of_demand(demand, waiting)

    def _groups_by_code(self, waiting: Waiting) -> dict[Code, list[Group]]:
        groups = {group.name: group for group in self.snapshot.groups}
        by_code: dict[Code, list[Group]] = {}
        for name, reason in sorted(waiting.groups.items()):
            by_code.setdefault(reason.code, []).append(groups[name])
        return by_code

    def _edits_of_demand(self, demand: Demand, waiting: Waiting) -> Iterator[Edit]:
        """Returns changes of the demand itself."""
        by_code = self._groups_by_code(waiting)
        if Code.NO_LABEL_MATCH in by_code:
            yield from mended_conditions(demand, self._labels())
        for group in by_code.get(Code.NOT_TOLERATED, ()):
            yield tolerated(demand, group)
        if Code.NO_LABEL_MATCH in by_code:
            yield from dropped_conditions(demand)
        if Code.APART in by_code:
            yield from self._smallest(demand, raised_numbers(demand, "apart"))
        if Code.SPREAD in by_code:
            yield from self._smallest(demand, raised_numbers(demand, "spread"))
        yield from self._further_domains(demand, [*by_code.get(Code.APART, ()), *by_code.get(Code.SPREAD, ())])
        if Code.GANG_SHAPE in by_code:
            yield from reshaped(demand, by_code[Code.GANG_SHAPE])
        nowhere = {name for bundle in demand.bundles for name, _ in bundle.needs} - {
            name for group in self.snapshot.groups for name, _ in group.resources
        }
        for group in by_code.get(Code.TOO_SMALL, ()):
            edit = smaller(demand, group, nowhere)
            if edit is not None:
                yield edit

    def _further_domains(self, demand: Demand, groups: list[Group]) -> Iterator[Edit]:
        """Returns the cheapest group that a constraint over a label keeps the demand out of, with another label
        value."""
        rules = [*demand.apart, *(rule for bundle in demand.bundles for rule in bundle.apart)]
        spreads = [*demand.spread, *(rule for bundle in demand.bundles for rule in bundle.spread)]
        keys = dict.fromkeys([rule.by for rule in rules] + [rule.over for rule in spreads])
        group = min(groups, key=lambda one: (one.price or 0, one.rank, one.name), default=None)
        if group is not None:
            family = self._family_of(group)
            yield from (further_domain(group, family, key) for key in keys if key not in (NODE, SLICE))

    def _smallest(self, demand: Demand, constraints: Iterable[Raised]) -> Iterator[Edit]:
        """Returns for each constraint the smallest larger number with which the demand is placed, found by bisection,
        if any number helps."""
        for now, edit in constraints:
            low, high = now + 1, now + STEPS * max(demand.count, 1)
            if self._places(demand, edit(high).apply(self.snapshot)) is None:
                continue
            while low < high:
                middle = (low + high) // 2
                if self._places(demand, edit(middle).apply(self.snapshot)) is None:
                    low = middle + 1
                else:
                    high = middle
            yield edit(high)

    def _raised_max(self, demand: Demand, group: Group) -> Iterator[Edit]:
        lifted = self._places(demand, set_group(self.snapshot, replace(group, max=LIFTED)))
        if lifted is not None:
            yield self._raised_least(demand, partial(new_max, group), group.max, lifted.counted[group.name])

    def _raised_least(self, demand: Demand, edit: Callable[[int], Edit], now: int, value: int) -> Edit:
        """Returns the edit with the smallest value that places the demand, found by bisection.

        A plan without the limit also places other demand, so its value may be higher than this demand needs.
        """
        low, high = now + 1, value
        middle = high - 1  # nearly always too small, which settles it
        while low < high and self._left > self._reserve:
            if self._places(demand, edit(middle).apply(self.snapshot)) is None:
                low = middle + 1
            else:
                high = middle
            middle = (low + high) // 2
        return edit(high)

    def _family_of(self, group: Group) -> Family | None:
        return next((one for one in self.snapshot.cluster.families if one.name == group.family), None)

    def _in_family(self, family: Family, counted: Mapping[str, int]) -> int:
        """Returns the slices of all groups of a family."""
        return sum(counted[group.name] for group in self.snapshot.groups if group.family == family.name)

    def _raised_family(self, demand: Demand, family: Family) -> Iterator[Edit]:
        lifted = self._places(demand, set_family(self.snapshot, family, LIFTED))
        if lifted is not None:
            value = self._in_family(family, lifted.counted)
            yield self._raised_least(demand, partial(new_family_max, family), family.max, value)

    def _raised_rates(self, demand: Demand, groups: list[Group]) -> Iterator[Edit]:
        for group in groups:
            if group.max_launching is not None:
                lifted = self._places(demand, set_group(self.snapshot, replace(group, max_launching=None)))
                if lifted is not None:
                    value = lifted.in_flight[group.name]
                    yield self._raised_least(demand, partial(new_rate, group), group.max_launching, value)
        cluster = self.snapshot.cluster
        if cluster.max_launching is not None:
            lifted = self._places(demand, set_cluster(self.snapshot, max_launching=None))
            if lifted is not None:
                value = sum(lifted.in_flight.values())
                yield self._raised_least(demand, partial(new_cluster_rate, cluster), cluster.max_launching, value)

    def _raised_nodes(self, demand: Demand) -> Iterator[Edit]:
        cluster = self.snapshot.cluster
        lifted = self._places(demand, set_cluster(self.snapshot, max_nodes=None))
        if lifted is not None and cluster.max_nodes is not None:
            yield self._raised_least(demand, partial(new_nodes, cluster), cluster.max_nodes, lifted.nodes)

    def _raised_budget(self, demand: Demand) -> Iterator[Edit]:
        lifted = self._places(demand, set_cluster(self.snapshot, max_hourly_cost=None))
        if lifted is not None:
            yield new_budget(self.snapshot.cluster, lifted.cost)

    def _labels(self) -> list[Mapping[str, str]]:
        return [group.node_labels() for group in self.snapshot.groups]

    def _all_resumed(self, demand: Demand, waiting: Waiting) -> Iterator[Unblock]:
        """Resumes every frozen group at once: an operator may have frozen them all with one command."""
        frozen = self._groups_by_code(waiting).get(Code.FROZEN, [])
        if len(frozen) > 1:
            unblock = self._if_true(demand, tuple(resumed(group) for group in frozen))
            if unblock is not None:
                yield unblock

    def _resumed_with_limits(self, demand: Demand, waiting: Waiting) -> Iterator[Unblock]:
        """Resumes the frozen group that costs least, together with every limit that it needs: a user who reads that a
        group is frozen looks for this change, even if another one is enough."""
        frozen = self._groups_by_code(waiting).get(Code.FROZEN, [])
        unblock = self._cheapest_raised(demand, (), frozen)
        if unblock is not None and _resumes(unblock):
            yield unblock

    def _together(self, demand: Demand, waiting: Waiting) -> Iterator[Unblock]:
        """Raises every limit that one group needs at once, or that several groups need which hold the demand only
        together; if necessary with one change of the demand itself."""
        for first in ((), *((edit,) for edit in different(self._edits_of_demand(demand, waiting)))):
            hopeless = IMPOSSIBLE if not first else set() if is_smaller(first[0]) else {Code.TOO_SMALL}
            groups = sorted(self.snapshot.groups, key=lambda group: group.name)
            codes = {group.name: waiting.groups[group.name].code for group in groups}
            alone = [group for group in groups if codes[group.name] not in hopeless]
            unblock = self._cheapest_raised(demand, first, alone)
            if unblock is None:
                parts = [group for group in groups if codes[group.name] not in hopeless - {Code.GANG_SHAPE}]
                raised = self._limits_of(demand, first, parts) if len(parts) > 1 else []
                unblock = self._if_raised(demand, first, raised)
                unblock = unblock and (self._lowest(demand, first, raised) or unblock)
            if unblock is not None:
                yield unblock
                return

    def _cheapest_raised(self, demand: Demand, first: tuple[Edit, ...], groups: list[Group]) -> Unblock | None:
        """Returns the cheapest change that raises all limits of one of the groups; None if there is none."""
        tried = [self._limits_of(demand, first, [group]) for group in groups]
        found = [(unblock, raised) for raised in tried if (unblock := self._if_raised(demand, first, raised))]
        if not found:
            return None
        unblock, raised = min(found, key=lambda one: (one[0].hourly_cost, len(one[0].set), one[0].change))
        return self._lowest(demand, first, raised) or unblock

    def _limits_of(self, demand: Demand, first: tuple[Edit, ...], groups: list[Group]) -> list[RaisedLimit]:
        """Returns the limits of some groups, and those of the cluster, raised as far as a plan without them needs."""
        snapshot = self.snapshot
        for group in groups:
            family = self._family_of(group)
            if family is not None:
                snapshot = set_family(snapshot, family, LIFTED)
        for group in groups:
            free = replace(group, max=LIFTED, max_launching=None, availability=Availability(), frozen=False)
            snapshot = set_group(snapshot, free)
        snapshot = set_cluster(snapshot, max_nodes=None, max_hourly_cost=None, max_launching=None)
        for edit in first:
            snapshot = edit.apply(snapshot)
        lifted = self._places(demand, snapshot)
        return [] if lifted is None else list(self._needed(groups, lifted))

    def _if_raised(self, demand: Demand, first: tuple[Edit, ...], raised: list[RaisedLimit]) -> Unblock | None:
        return self._if_true(demand, (*first, *(one.edit(one.value) for one in raised))) if raised else None

    def _lowest(self, demand: Demand, first: tuple[Edit, ...], raised: list[RaisedLimit]) -> Unblock | None:
        """Lowers each limit to the smallest value that still places the demand; None if the what-if plans are used up.

        A plan without limits also places other demand, so its values may be higher than this demand needs.
        """
        try:
            return self._if_raised(demand, first, self._lowered(demand, first, raised))
        except _Spent:
            return None

    def _lowered(self, demand: Demand, first: tuple[Edit, ...], raised: list[RaisedLimit]) -> list[RaisedLimit]:
        for index, limit in enumerate(raised):
            low, high = limit.now, limit.value

            def outcome(value: int, index: int = index) -> TrialOutcome | None:
                snapshot = self.snapshot
                for edit in (*first, *(one.edit(one.value) for one in (*raised[:index], *raised[index + 1 :]))):
                    snapshot = edit.apply(snapshot)
                return self._places(demand, raised[index].edit(value).apply(snapshot))

            if limit.of_cost:
                known = outcome(high)
                high = high if known is None else max(low, known.cost)
                low = high
            if low < 0:
                continue
            while low < high:
                middle = (low + high) // 2
                if outcome(middle) is None:
                    low = middle + 1
                else:
                    high = middle
            raised[index] = replace(limit, value=high)
        return [one for one in raised if one.value != one.now]

    def _needed(self, groups: list[Group], lifted: TrialOutcome) -> Iterator[RaisedLimit]:
        """Returns the limits that a result without limits exceeds, each raised to the value that it needs."""
        cluster, in_flight = self.snapshot.cluster, sum(lifted.in_flight.values())
        before = self._unedited.counted if self._unedited is not None else {}
        families = {family.name: family for group in groups if (family := self._family_of(group)) is not None}
        for family in families.values():
            if (many := self._in_family(family, lifted.counted)) > family.max:
                yield RaisedLimit(partial(new_family_max, family), family.max, many)
        for group in groups:
            if len(groups) == 1 or lifted.counted[group.name] > before.get(group.name, 0):
                yield from self._needed_of(group, lifted)
        if cluster.max_launching is not None and in_flight > cluster.max_launching:
            yield RaisedLimit(partial(new_cluster_rate, cluster), cluster.max_launching, in_flight)
        if cluster.max_nodes is not None and lifted.nodes > cluster.max_nodes:
            yield RaisedLimit(partial(new_nodes, cluster), cluster.max_nodes, lifted.nodes)
        if cluster.max_hourly_cost is not None and lifted.cost > cluster.max_hourly_cost:
            yield RaisedLimit(partial(new_budget, cluster), cluster.max_hourly_cost, lifted.cost, of_cost=True)

    def _needed_of(self, group: Group, lifted: TrialOutcome) -> Iterator[RaisedLimit]:
        """Returns those of the group itself."""
        if lifted.counted[group.name] > group.max and not group.max_of_family:
            yield RaisedLimit(partial(new_max, group), group.max, lifted.counted[group.name])
        if group.max_launching is not None and lifted.in_flight[group.name] > group.max_launching:
            yield RaisedLimit(partial(new_rate, group), group.max_launching, lifted.in_flight[group.name])
        if group.frozen:
            yield RaisedLimit(lambda _: resumed(group))
        if group.availability.state != "available":
            yield RaisedLimit(lambda _: available(group, self.snapshot.now))


def _resumes(unblock: Unblock) -> bool:
    """Whether a change resumes a frozen group."""
    return any(path[2:] == ("frozen",) for path, _ in unblock.set)


def _more(some: Mapping[str, int], than: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Returns by how much the counts of one are above those of another, where they are."""
    more = ((name, count - than.get(name, 0)) for name, count in some.items())
    return tuple(sorted((name, count) for name, count in more if count > 0))
