"""Rows of a status document: the counts of a group, what a slice has cost and uses, and rows that are made again only
when something has changed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Any, Final

from windlass.control.record.costs import HOUR
from windlass.control.settings import Settings
from windlass.control.state.fleet import SliceRecord
from windlass.core.model.lifecycle import COSTLY, IN_FLIGHT, TABLE, State
from windlass.core.model.plan import Unblock, Waiting
from windlass.core.model.reasons import seconds
from windlass.core.model.snapshot import Demand, Group

ZONES: Final = ("zone", "topology.kubernetes.io/zone")
"""Labels that name a zone."""


@dataclass(slots=True)
class GroupCount:
    """The slices of one group, counted."""

    states: Counter[State] = field(default_factory=Counter)
    busy: int = 0
    """In whatever state."""
    ready_busy: int = 0
    price: int = 0
    """Nanodollars per hour of those that cost."""

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
    """Rows that were made before: of many slices and demands only a few change from one pass to the next.

    A row that is taken over says what is true now, but for numbers that time alone changes: those are as of the row.
    """

    def __init__(self) -> None:
        self._slices: dict[str, tuple[SliceRecord, Settings, dict[str, Any]]] = {}
        self._demands: dict[str, tuple[Demand, Waiting, tuple[Unblock, ...], dict[str, Any]]] = {}

    def slice_row(self, record: SliceRecord, settings: Settings, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The row of a slice whose reason follows from its record."""
        known = self._slices.get(record.id)
        if known is not None and known[0] is record and known[1] is settings:
            return known[2]
        row = make()
        self._slices[record.id] = (record, settings, row)
        return row

    def demand_row(
        self, demand: Demand, waiting: Waiting, ways: tuple[Unblock, ...], make: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """The row of a demand of which no task has a place."""
        known = self._demands.get(demand.id)
        if known is not None and known[0] is demand and known[2] == ways and _waits_alike(known[1], waiting):
            return known[3]
        row = make()
        self._demands[demand.id] = (demand, waiting, ways, row)
        return row

    def keep(self, slices: Container[str], demands: Container[str]) -> None:
        """Forget the rows of all others."""
        self._slices = {name: known for name, known in self._slices.items() if name in slices}
        self._demands = {name: known for name, known in self._demands.items() if name in demands}


def _waits_alike(one: Waiting, other: Waiting) -> bool:
    alike = one.count == other.count and one.reason == other.reason and one.groups == other.groups
    return alike and _unit(one.waited) == _unit(other.waited)


_NO_DIGITS: Final = str.maketrans("", "", "0123456789.")


def _unit(waited: float | None) -> str:
    """The unit in which a time is written: a change of it is more than a change of a number."""
    return "" if waited is None else seconds(waited).translate(_NO_DIGITS)


def ray_status(record: SliceRecord) -> str:
    """The state by the name that users of Ray know."""
    if record.state == State.DRAINING and record.certified:
        return "RAY_STOPPED"
    return TABLE[record.state].ray or str(record.state).upper()


def share_in_use(record: SliceRecord, group: Group) -> float:
    """The largest share of any resource of a slice that its tasks use, between 0 and 1."""
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
    """Dollars that a slice has cost since its provider was asked for it; nothing while it is not there yet."""
    if not record.seen:
        return 0.0
    since = record.since if record.asked_at is None else record.asked_at
    spent = record.price * max(0, round((now - since) * 10**6))
    return round(spent / (HOUR * 10**9), 6)


def zone_of(record: SliceRecord, settings: Settings) -> str | None:
    sold = settings.by_name.get(record.group)
    for labels in (*(node.labels for node in record.nodes), *(() if sold is None else (sold.group.labels,))):
        for name in ZONES:
            if name in labels:
                return str(labels[name])
    return None
