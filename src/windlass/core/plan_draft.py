"""PlanDraft is a plan under construction, over a snapshot in a fixed order.

Everything is sorted by name or id first, so the order of the input never matters. Nothing of it outlives the plan.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from windlass.core.buying.fallbacks import without_fallbacks
from windlass.core.buying.market import Market, filled_slice
from windlass.core.buying.strategies import Choice, choose
from windlass.core.capacity.eligibility import Eligibility, alternative, preferences
from windlass.core.capacity.limits import LimitCounter
from windlass.core.capacity.offers import RECALL_TIER, Mark, Offers, TakenRows
from windlass.core.capacity.room import Bools, Ints, Need, Room
from windlass.core.model.cached import cached_attribute
from windlass.core.model.lifecycle import OFFERING
from windlass.core.model.reasons import Code, Reason
from windlass.core.model.snapshot import Choose, Demand, Gang, Selector
from windlass.core.tables.running_classes import class_counts
from windlass.core.tables.snapshot_tables import SnapshotTables

from .demand import MEMBER, Shape, on_own_nodes


@dataclass(frozen=True, slots=True)
class DraftOptions:
    """Options for serving demand; a plan may try several of them and keep the best."""

    gangs_as_singles: frozenset[Gang] = frozenset()
    """Gangs of these kinds are bought for together with single demand; valid only if nothing waits in the end."""
    priorities_as_one: bool = False
    """Demand of all priorities is bought for together; valid only if nothing waits in the end."""
    singles_first: bool = False
    """Single tasks are served before gangs; valid only if nothing waits in the end."""
    gangs_first: Literal["hardest", "easiest", "largest"] = "hardest"
    """Which gangs are served first: largest means the most members. Another order than the hardest first is valid only
    if nothing waits in the end."""
    ignore_tiers: bool = False
    """The tightest node is taken first, also if it is still booting and another one is ready."""
    spares_last: bool = False
    """As many free slices as are held as spares are used only for tasks that fit nowhere else."""
    offer_every_purchase: bool = False
    """The room of every bought slice gets rows, also where no later demand could use it."""
    cancelled: frozenset[int] = frozenset()
    """Queued slices that are cancelled from the start, so that they no longer count for the limits."""
    ahead: tuple[tuple[int, int], ...] = ()
    """Slices, as (group, number), that are bought before demand is served; then nothing else is bought for demand."""
    fewer_min: tuple[tuple[int, int], ...] = ()
    """Slices, as (scope, number), that are not bought for a ``min`` before demand is served, because what is bought
    later counts for it too."""


@dataclass(frozen=True, slots=True)
class Purchase:
    """Equal slices that this plan buys for one reason."""

    group: int
    first: int
    """Number within its group, counted from 0."""
    position: int
    """Position of the first one, after the slices of the snapshot."""
    slices: int
    code: Code
    owner: str
    """The demand or request that it was bought for; empty for a minimum."""
    choice: Choice | None = None
    tasks: tuple[tuple[str, int], ...] = ()
    """(demand, tasks) on each of them; equal demands under the name of the first."""


@dataclass(frozen=True, slots=True)
class PlacedRun:
    """Tasks on some slices."""

    positions: Ints
    counts: Ints
    rows: Ints | None = None
    """The rows of the offers table, where they are known."""
    tasks: int = 0
    """Which tasks of a gang they are, by index in its order."""


@dataclass(slots=True)
class Served:
    """Where the tasks of one shape or gang went."""

    runs: list[PlacedRun] = field(default_factory=list)
    count: int = 0

    def add(self, positions: Ints, counts: Ints, rows: Ints | None = None, tasks: int = 0) -> None:
        if len(positions):
            self.runs.append(PlacedRun(positions, counts, rows, tasks))
            self.count += int(counts.sum())

    def cut(self, runs: int) -> None:
        """Drops the runs after the first ``runs``."""
        self.count -= sum(int(run.counts.sum()) for run in self.runs[runs:])
        del self.runs[runs:]

    def include(self, other: Served, tasks: int) -> None:
        """Adds the runs of the given tasks of a gang."""
        for run in other.runs:
            self.add(run.positions, run.counts, run.rows, tasks)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state to which a draft is rolled back after an attempt to serve a gang."""

    offers: tuple[tuple[Offers, Mark], ...]
    limits: tuple[list[int], int, int, int]
    purchases: int
    recalled: frozenset[int]


@dataclass(slots=True)
class Decisions:
    """The decisions of a draft about demand, as one value that another draft of the same snapshot can copy."""

    served_shapes: list[tuple[Shape, Served]] = field(default_factory=list)
    served_gangs: list[tuple[Demand, Served]] = field(default_factory=list)
    unserved: list[int] = field(default_factory=list)
    """How much of each gang and shape waits, in serving order."""
    waiting_shapes: list[tuple[Shape, int]] = field(default_factory=list)
    waiting_gangs: list[Demand] = field(default_factory=list)
    late_gangs: list[Demand] = field(default_factory=list)
    """Gangs past their deadline, which are no longer served."""
    waiting_requests: list[Demand] = field(default_factory=list)
    requests_table: Offers | None = None
    """The room of all nodes, less what the standing requests take."""
    invalid: list[tuple[Demand, str]] = field(default_factory=list)
    """Demands that no machine could run, each with its mistake."""
    held: list[Demand] = field(default_factory=list)
    """Demands that no machine would help, according to their workload."""

    def moved(self, place: Ints) -> Decisions:
        """Returns the same decisions with each slice at its new position in ``place``."""

        def there(served: Served) -> Served:
            result = Served()
            for run in served.runs:
                result.add(place[run.positions], run.counts, None, run.tasks)
            return result

        return replace(
            self,
            served_shapes=[(shape, there(served)) for shape, served in self.served_shapes],
            served_gangs=[(gang, there(served)) for gang, served in self.served_gangs],
        )


class PlanDraft:
    """A plan under construction."""

    def __init__(self, snapshot_tables: SnapshotTables, options: DraftOptions) -> None:
        self.snapshot_tables = snapshot_tables
        self.snapshot = snapshot = snapshot_tables.snapshot
        self.options = options
        self.now = snapshot.now
        self.strategy: Choose = snapshot.strategy()
        self.groups, self.slices = snapshot_tables.groups, snapshot_tables.slices
        self.group_of = snapshot_tables.group_of
        self.group_table = group_table = snapshot_tables.group_table
        self.kinds, self.totals, self.largest = group_table.kinds, group_table.totals, group_table.largest
        self.hosts, self.price, self.rank = group_table.hosts, group_table.price, group_table.rank

        self._demands: dict[str, Demand] | None = None
        self.released: dict[int, Reason] = {}
        """Slices to release: cancelled if in flight, drained otherwise."""
        self._released_of = [0] * len(self.groups)
        self.recalled: dict[int, Code] = {}
        """Slices that are uncordoned for a minimum or a request."""
        self.requested: set[int] = set()
        """Slices, purchases included, that hold room for a standing request."""
        self.decisions = Decisions()
        self.purchases: list[Purchase] = []

    # -- set up after the slices above a limit are known ------------------------------------------------------------

    def open(self) -> None:
        """Starts to count purchases against the limits. Called once, after the slices above a limit are released."""
        released = ((self.group_of(p), self.slices[p].state) for p in self.released)
        cancelled = Counter(released) if self.released else {}
        slices_without_group = [self.slices[p] for p in self.snapshot_tables.slices_without_group]
        self.limits = LimitCounter(
            self.snapshot.cluster, self.groups, self.snapshot_tables.counts, cancelled, slices_without_group, self.now
        )
        self._closed = sorted({*self.released, *self._not_recallable()})

    @property
    def eligibility(self) -> Eligibility:
        return self.snapshot_tables.eligibility

    @property
    def profiles(self) -> list[int]:
        return self.snapshot_tables.profiles

    @property
    def profile_index(self) -> Ints:
        return self.snapshot_tables.profile_index

    @cached_attribute
    def offers(self) -> Offers:
        """The offers table, built when it is first used."""
        offers = Offers(self.eligibility, self.snapshot_tables.rows, ignore_tiers=self.options.ignore_tiers)
        if self.classes:
            offers.classes = class_counts(self.snapshot_tables, self.classes)
        if self._closed:
            offers.open = ~np.isin(offers.position, np.array(self._closed, np.int64))
        return offers

    @cached_attribute
    def classes(self) -> tuple[str, ...]:
        """Returns the classes of tasks that are counted: those that some constraint names."""
        names = set(self.eligibility.classes)
        spread = [demand for demand in self.snapshot_tables.demands.gangs if demand.gang == Gang.SPREAD]
        spread += [request for request in self.snapshot.requests if request.gang == Gang.SPREAD]
        if spread and (names or (self.strategy == "cheapest" and int(self.hosts.max(initial=1)) > 1)):
            names.add(MEMBER)
        if Gang.SPREAD in self.options.gangs_as_singles:
            names.update(on_own_nodes(demand).classes[0] for demand in spread)
        return tuple(sorted(names))

    def _not_recallable(self) -> Iterable[int]:
        """Returns slices being released that the limits, as they are now, would not allow back."""
        leaving = self.snapshot_tables.recallable
        if not leaving:
            return
        nodes, money = self.snapshot.cluster.max_nodes, self.snapshot.cluster.max_hourly_cost
        live = [self.live_count(group) for group in range(len(self.groups))]
        scopes, scopes_of = self.snapshot_tables.scopes, self.snapshot_tables.scopes_of
        room = [scope.max - sum(live[group] for group in scope.groups) for scope in scopes]
        if nodes is not None:
            nodes -= sum(group.hosts * count for group, count in zip(self.groups, live, strict=True))
        if money is not None:
            money -= sum((group.price or 0) * count for group, count in zip(self.groups, live, strict=True))
        if nodes is None and money is None and all(len(leaving) <= more for more in room):
            return
        for position in leaving:
            group = self.group_of(position)
            if group is None:
                continue
            kind = self.groups[group]
            if (
                any(room[scope] < 1 for scope in scopes_of[group])
                or (nodes is not None and nodes < kind.hosts)
                or (money is not None and money < (kind.price or 0))
            ):
                yield position
                continue
            for scope in scopes_of[group]:
                room[scope] -= 1
            nodes = None if nodes is None else nodes - kind.hosts
            money = None if money is None else money - (kind.price or 0)

    # -- counting ---------------------------------------------------------------------------------------------------

    def live(self, group: int) -> Sequence[int]:
        """Returns slices QUEUED..READY of a group that stay, called back ones included."""
        here = self.snapshot_tables.with_work(group, *OFFERING)
        if self.recalled:
            here = sorted((*here, *(p for p in self.recalled if self.group_of(p) == group)))
        if self.snapshot_tables.final:
            here = [p for p in here if p not in self.snapshot_tables.final]
        return [p for p in here if p not in self.released] if self.released else here

    def live_count(self, group: int) -> int:
        """Returns how many slices ``live`` returns."""
        back = sum(self.group_of(p) == group for p in self.recalled) if self.recalled else 0
        return self.snapshot_tables.live[group] + back - self._released_of[group]

    def buying_order(self, groups: Iterable[int]) -> list[int]:
        """Returns the groups of a family in the order in which slices for its ``min`` and ``spare`` are bought."""

        def key(group: int) -> tuple[object, ...]:
            kind = self.groups[group]
            price = (kind.price is None, kind.price or 0)
            by_strategy = (*price, kind.rank) if self.strategy == "cheapest" else (kind.rank, *price)
            return kind.fallback, *by_strategy, group

        return sorted(groups, key=key)

    def release(self, position: int, reason: Reason) -> None:
        """Releases a slice that is QUEUED..READY."""
        self.released[position] = reason
        group = self.group_of(position)
        if group is not None:
            self._released_of[group] += 1

    def busy(self, position: int) -> bool:
        return self.slices[position].counts_as_busy

    def is_whole_and_free(self, position: int) -> bool:
        """Whether nothing runs on the slice, it is healthy, and its end is not final."""
        item = self.slices[position]
        return not self.busy(position) and item.healthy and not item.final

    def placed(self) -> Bools:
        """Returns, for each slice of the snapshot and then each new one, whether it got a task in this plan."""
        result = np.zeros(len(self.slices) + self.limits.bought, np.bool_)
        for _, served in (*self.decisions.served_shapes, *self.decisions.served_gangs):
            for run in served.runs:
                result[run.positions] = True
        return result

    def used(self) -> list[int]:
        """Returns the positions of the slices of the snapshot that got a task in this plan."""
        return np.flatnonzero(self.placed()[: len(self.slices)]).tolist()

    def sticky(self) -> Bools:
        """Returns groups that this plan has chosen already, or that have slices in flight."""
        return np.array([a + b > 0 for a, b in zip(self.limits.new, self.limits.in_flight, strict=True)], np.bool_)

    # -- buying -----------------------------------------------------------------------------------------------------

    def stages(self, selectors: Iterable[Selector]) -> int:
        """Returns how many times to buy: for each alternative of ``any_of``, and once more where groups are
        fallbacks."""
        alternatives = max((len(self._alternatives(one)) for one in selectors if one[3]), default=1)
        return alternatives + self.snapshot_tables.has_fallbacks

    def _alternatives(self, selector: Selector) -> list[int]:
        """Returns the alternatives of ``any_of`` that some group meets, the preferred first."""
        allowed, unmet = self.eligibility.answers(selector)
        of_groups = self.profile_index[allowed[self.profile_index]]
        return sorted(set(alternative(unmet[of_groups]).tolist())) or [0]

    def market(
        self,
        needs: Sequence[Need],
        counts: Sequence[int],
        selectors: Sequence[Selector],
        *,
        gang: bool = False,
        stage: int = 0,
    ) -> Market:
        """Returns what can be bought for these tasks, under the limits as they are now.

        ``stage``: how many of the alternatives of ``any_of``, in addition to the preferred one, may be used.
        """
        limits, groups = self.limits, range(len(self.groups))
        answers = [self.eligibility.answers(selector) for selector in selectors]
        shape = (len(needs), len(self.groups))
        eligible = np.array([allowed[self.profile_index] for allowed, _ in answers], np.bool_).reshape(shape)
        for row, selector in enumerate(selectors):
            if selector[3]:
                within = self._alternatives(selector)[: stage + 1]
                eligible[row] &= np.isin(alternative(answers[row][1][self.profile_index]), within)
        unmet = np.array([preferences(unmet[self.profile_index]) for _, unmet in answers], np.int64).reshape(shape)
        return Market(
            kinds=self.kinds,
            needs=tuple(needs),
            counts=np.array(counts, np.int64),
            total=self.totals,
            hosts=self.hosts,
            price=self.price,
            rank=self.rank,
            eligible=without_fallbacks(self.groups, self.group_table.fresh, limits, needs, eligible, gang),
            unmet=unmet,
            headroom=np.array([limits.own_headroom(group, gang) for group in groups], np.int64),
            nodes_left=limits.nodes_left(),
            money_left=limits.money_left(),
            launches_left=limits.under_cluster_rate(gang),
            family=self.snapshot_tables.family_index,
            family_left=np.array(limits.families_left(), np.int64),
        )

    def choose(self, market: Market) -> list[Choice]:
        return choose(market, self.strategy, self.snapshot.cluster.effort, self.sticky())

    def buy(
        self,
        group: int,
        slices: int,
        code: Code,
        owner: str = "",
        choice: Choice | None = None,
        tasks: tuple[tuple[str, int], ...] = (),
    ) -> Purchase:
        """Decides to launch slices of a group."""
        position = len(self.slices) + self.limits.bought
        purchase = Purchase(group, self.limits.new[group], position, slices, code, owner, choice, tasks)
        self.limits.add(group, slices)
        self.purchases.append(purchase)
        return purchase

    def offer(
        self, purchase: Purchase, *tables: Offers, tasks: Sequence[tuple[Need, int]] = (), is_open: bool = True
    ) -> None:
        """Adds the room of bought slices, less what ``tasks`` take, to the tables that later demand is placed on."""
        room = self.room_with(purchase.group, tasks)
        profile = self.profiles[purchase.group]
        for table in tables:
            table.append(purchase.group, profile, room, purchase.position, purchase.slices, is_open=is_open)

    def offer_empty(self, purchases: Sequence[Purchase], *tables: Offers) -> None:
        """Adds empty rows for all hosts of bought slices at once."""
        if not purchases:
            return
        groups = np.array([purchase.group for purchase in purchases], np.int64)
        hosts = self.hosts[groups]
        rows = hosts * np.array([purchase.slices for purchase in purchases], np.int64)
        of_rows = np.repeat(groups, rows)
        first = np.repeat(np.array([purchase.position for purchase in purchases], np.int64), rows)
        within = np.arange(len(of_rows)) - np.repeat(np.cumsum(rows) - rows, rows)
        positions = first + within // np.repeat(hosts, rows)
        for table in tables:
            room = Room.fresh(self.kinds, self.totals[of_rows])
            table.append_rows(of_rows, self.profile_index[of_rows], positions, room)

    def room_with(self, group: int, tasks: Sequence[tuple[Need, int]]) -> Room:
        """Returns the room of one slice of the group with these tasks on it.

        If no simple filling fits them (the solver packed it), it counts as full.
        """
        hosts, total = self.groups[group].hosts, self.totals[group]
        room = filled_slice(self.kinds, total, hosts, tasks)
        if room is None:
            full = np.repeat(total[None, :], hosts, axis=0)
            room = Room(self.kinds, full, np.zeros_like(full))
        return room

    def checkpoint(self, *tables: Offers) -> Checkpoint:
        marks = tuple((table, table.mark()) for table in tables)
        return Checkpoint(marks, self.limits.copy_state(), len(self.purchases), frozenset(self.recalled))

    def rollback(self, checkpoint: Checkpoint) -> None:
        for table, mark in checkpoint.offers:
            table.undo(mark)
        self.limits.restore(checkpoint.limits)
        del self.purchases[checkpoint.purchases :]
        for position in self.recalled.keys() - checkpoint.recalled:
            del self.recalled[position]
            self.offers.tier[self.offers.position == position] = RECALL_TIER

    def demand_named(self, name: str) -> Demand | None:
        if self._demands is None:
            self._demands = {one.id: one for one in (*self.snapshot.requests, *self.snapshot.demands)}
        return self._demands.get(name)

    # -- names ------------------------------------------------------------------------------------------------------

    def name_of(self, position: int) -> str:
        """Returns the id of a slice, or ``new:GROUP:i`` of one that is bought."""
        if position < len(self.slices):
            return self.slices[position].id
        purchase = self.purchases[bisect_right(self.purchases, position, key=lambda p: p.position) - 1]
        return f"new:{self.groups[purchase.group].name}:{purchase.first + position - purchase.position}"


def record(served: Served, offers: Offers, taken: TakenRows, tasks: int = 0) -> None:
    """Adds the rows that tasks took to ``served``."""
    served.add(offers.position[taken.rows], taken.counts, taken.rows, tasks)
