"""This module makes the rows of a status document: the counts of a group, the cost and use of a slice. ``RowCache``
makes a row again only if something in it has changed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

from windlass.control.record.costs import HOUR
from windlass.control.settings import Settings
from windlass.control.state.fleet import SliceRecord
from windlass.core.model.lifecycle import COSTLY, IN_FLIGHT, TABLE, State
from windlass.core.model.plan import Unblock, Waiting
from windlass.core.model.snapshot import Demand, Group

ZONES: Final = ("zone", "topology.kubernetes.io/zone")
"""Labels that name a zone."""


@dataclass(slots=True)
class GroupCount:
    """The counts of one group's slices."""

    states: Counter[State] = field(default_factory=Counter)
    busy: int = 0
    """All slices, in any state."""
    ready_busy: int = 0
    price: int = 0
    """Nanodollars per hour of the slices that are billed."""

    def add(self, record: SliceRecord) -> None:
        self.states[record.state] += 1
        if record.busy_nodes > 0:
            self.busy += 1
            self.ready_busy += record.state is State.READY
        if record.state in COSTLY:
            self.price += record.price

    @property
    def ready(self) -> int:
        return self.states[State.READY]

    @property
    def coming(self) -> int:
        return sum(self.states[state] for state in IN_FLIGHT)

    @property
    def leaving(self) -> int:
        return self.states.total() - self.ready - self.coming


class RowCache:
    """A cache of rows. Of many slices and demands only a few change from one pass to the next.

    A reused row is still true, except for numbers that change with time alone: these are as old as the row.
    """

    def __init__(self) -> None:
        self._settings: Settings | None = None
        self._ordered: list[tuple[SliceOrder, SliceRecord]] = []
        """All slices of the last document."""
        self._slices: dict[str, tuple[SliceRecord, dict[str, Any]]] = {}
        self._demands: dict[str, _DemandRow] = {}
        self._alike: dict[tuple[int, int], bool] = {}
        """Whether two mappings of reasons are equal, by the ids of both. Equal demands share such a mapping, so it is
        compared once for all of them."""

    def slice_rows(
        self,
        slices: Mapping[str, SliceRecord],
        settings: Settings,
        changes: Container[str],
        make: Callable[[SliceRecord], dict[str, Any]],
    ) -> list[dict[str, Any]]:
        """Returns the rows of all slices in order. The row of a slice that is ready, stays and is not in ``changes``
        follows from its record alone, so it is reused until the record changes."""
        if settings is not self._settings:
            self._settings, self._slices = settings, {}
        ordered = [one for one in self._ordered if slices.get(one[1].id) is one[1]]
        if len(ordered) < len(slices):
            known = {one[1].id for one in ordered}
            ordered += [(slice_order(one), one) for name, one in slices.items() if name not in known]
            ordered.sort(key=itemgetter(0))
        self._ordered = ordered
        rows, before, after = [], self._slices, {}
        for _, record in ordered:
            name = record.id
            cached = before.get(name)
            if cached is None or cached[0] is not record or name in changes:
                cached = (record, make(record))
                if is_steady(record) and name not in changes:
                    after[name] = cached
            else:
                after[name] = cached
            rows.append(cached[1])
        self._slices = after
        return rows

    def demand_row(
        self, demand: Demand, waiting: Waiting, unblocks: tuple[Unblock, ...], make: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """Returns the row of a demand of which no task is placed; a reused one if it is still true."""
        known, unit = self._demands.get(demand.id), duration_unit(waiting.waited)
        if known is not None and known.fits(demand, unblocks, unit) and self._waits_alike(known.waiting, waiting):
            known.waiting = waiting
            return known.row
        row = make()
        self._demands[demand.id] = _DemandRow(demand, waiting, unblocks, unit, row)
        return row

    def _waits_alike(self, one: Waiting, other: Waiting) -> bool:
        if one.count != other.count:
            return False
        pair = (id(one.groups), id(other.groups))
        alike = self._alike.get(pair)
        if alike is None:
            alike = self._alike[pair] = one.groups == other.groups
        return alike and (one.reason is other.reason or one.reason == other.reason)

    def keep(self, demands: Container[str]) -> None:
        """Ends a document: drops the cached rows of all demands except these."""
        self._demands = {name: known for name, known in self._demands.items() if name in demands}
        self._alike = {}


@dataclass(slots=True)
class _DemandRow:
    """The row of a demand and what it was made from."""

    demand: Demand
    waiting: Waiting
    unblocks: tuple[Unblock, ...]
    unit: int
    row: dict[str, Any]

    def fits(self, demand: Demand, unblocks: tuple[Unblock, ...], unit: int) -> bool:
        return self.demand is demand and self.unit == unit and (self.unblocks == unblocks)


SliceOrder = tuple[str, int, float, str]
_STATE_ORDER: Final = {state: index for index, state in enumerate(State)}


def slice_order(record: SliceRecord) -> SliceOrder:
    """Returns the key by which slices are listed: by group, state and age."""
    return record.group, _STATE_ORDER[record.state], record.since, record.id


def is_steady(record: SliceRecord) -> bool:
    """Whether a slice is ready and neither quarantined nor due to go."""
    return record.state is State.READY and not record.quarantine and record.leaving is None


def duration_unit(waited: float | None) -> int:
    """Returns a number for the words in which ``seconds`` writes a duration; when it changes, the row is made again."""
    if waited is None:
        return 0
    if waited < 300:
        return 1
    minutes = int(waited // 60)
    return 2 if minutes < 120 else 3 if minutes % 60 else 4


def ray_status(record: SliceRecord) -> str:
    """Returns the name that Ray uses for the state."""
    if record.state == State.DRAINING and record.certified:
        return "RAY_STOPPED"
    return TABLE[record.state].ray or str(record.state).upper()


def share_in_use(record: SliceRecord, group: Group) -> float:
    """Returns the largest share of any resource that the tasks of a slice use, from 0 to 1."""
    if not record.busy_nodes:
        return 0.0
    used: dict[str, int] = defaultdict(int)
    for node in record.nodes:
        for kind, amount in node.used:
            used[kind] += amount
    whole = {kind: amount * max(1, len(record.nodes)) for kind, amount in group.resources}
    shares = [amount / whole[kind] for kind, amount in used.items() if whole.get(kind)]
    return round(min(1.0, max(shares, default=0.0)), 4)


def cost_so_far(record: SliceRecord, now: float) -> float:
    """Returns the dollars that a slice has cost since it was requested; 0 before it exists."""
    if not record.seen:
        return 0.0
    since = record.since if record.asked_at is None else record.asked_at
    spent = record.price * max(0, round((now - since) * 10**6))
    return round(spent / (HOUR * 10**9), 6)


def zone_of(record: SliceRecord, settings: Settings) -> str | None:
    configured = settings.by_name.get(record.group)
    for labels in (
        *(node.labels for node in record.nodes),
        *(() if configured is None else (configured.group.labels,)),
    ):
        for name in ZONES:
            if name in labels:
                return str(labels[name])
    return None
