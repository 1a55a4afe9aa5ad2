"""What all peers share: when they look, what finds no room, and how they say what they want as a plan."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from windlass.core.demand import Shape, alike, levels
from windlass.core.model.lifecycle import ENDING, IN_FLIGHT, RECALLABLE, State
from windlass.core.model.plan import Change, HourlyCost, Launch, Plan
from windlass.core.model.plan import Waiting as PlanWaiting
from windlass.core.model.reasons import Code, Reason
from windlass.core.model.snapshot import Gang, Selector, Slice, Snapshot
from windlass.core.plan_draft import DraftOptions, PlanDraft
from windlass.core.tables.snapshot_tables import SnapshotTables

TICK = 1e-6
"""What is due within a microsecond is due now."""

WAITS = Reason(Code.RATE_LIMITED, "the peer has not said yet where it goes")
KEEPS = {
    "flying": Reason(Code.LAUNCHING, "it is on its way"),
    "leaving": Reason(Code.DRAINING, "it is on its way out"),
    "ending": Reason(Code.ENDING, "it is ending"),
    "busy": Reason(Code.BUSY, "it has work"),
    "idle": Reason(Code.NOT_IDLE_LONG_ENOUGH, "the peer keeps it"),
}
GOES = {
    False: Reason(Code.IDLE, "the peer gives it back"),
    True: Reason(Code.OVER_MAX, "the peer wants it gone, whatever runs there"),
}
"""Without and with work. To save money the loop never evicts; a peer may, so to the loop it is a matter of limits."""


@dataclass(frozen=True, slots=True)
class Unplaced:
    """Equal tasks that find no room on what is there or on its way."""

    shape: Shape
    count: int


@dataclass(frozen=True)
class Sight:
    """A snapshot as a peer sees it: what finds no room, and which slices waiting work will use."""

    snapshot: Snapshot
    draft: PlanDraft
    unplaced: tuple[Unplaced, ...]
    awaited: frozenset[str]
    """Slices on which waiting work would go."""

    @property
    def now(self) -> float:
        return float(self.snapshot.now)

    def ready(self) -> list[Slice]:
        return [item for item in self.draft.slices if item.state == State.READY]

    def empty(self) -> list[Slice]:
        """Ready slices without work that no waiting work will use, the longest idle first."""
        found = [item for item in self.ready() if not item.busy and item.id not in self.awaited]
        return sorted(found, key=lambda item: (item.idle_since(self.snapshot.now), item.id))

    def may_go(self, selector: Selector) -> list[bool]:
        """For each group of the draft, whether such tasks may run there."""
        allowed, _ = self.draft.eligibility.answers(selector)
        return [bool(allowed[profile]) for profile in self.draft.profiles]


def seen(snapshot: Snapshot) -> Sight:
    """Waiting work laid on what is there and on its way, the members of a gang one by one: none of the peers knows
    gangs, and none needs to where nothing is limited."""
    draft = PlanDraft(SnapshotTables(snapshot), DraftOptions())
    draft.open()
    unplaced, awaited = [], set[int]()
    for level in levels(alike(snapshot.demands), draft.kinds, draft.largest, gangs_as_singles=frozenset({Gang.ANY})):
        for shape in level.shapes:
            taken = draft.offers.place(shape.need, shape.selector, shape.count)
            awaited.update(np.unique(draft.offers.position[taken.rows]).tolist())
            if taken.total < shape.count:
                unplaced.append(Unplaced(shape, shape.count - taken.total))
    names = frozenset(draft.slices[position].id for position in awaited)
    return Sight(snapshot, draft, tuple(unplaced), names)


def as_plan(
    snapshot: Snapshot, launch: Mapping[str, int] | None = None, drain: Iterable[str] = (), why: str = "demand waits"
) -> Plan:
    """What a peer wants, in the words of a plan. A peer does not launch and release one group at once here: what it
    would release waits for its next look."""
    prices = {group.name: group.price or 0 for group in snapshot.groups}
    wanted = {name: count for name, count in sorted((launch or {}).items()) if count > 0}
    of = {item.id: item.group for item in snapshot.slices}
    going = frozenset(name for name in drain if of[name] not in wanted)
    busy = {item.id for item in snapshot.slices if item.busy}
    by_id = sorted(snapshot.slices, key=lambda one: one.id)
    staying = [(item, _doing(item)) for item in by_id if item.id not in going]
    costs = sum(prices.get(item.group, 0) for item in snapshot.slices)
    blockers = {group.name: WAITS for group in snapshot.groups}
    return Plan(
        now=snapshot.now,
        strategy=snapshot.strategy(),
        launches=tuple(
            Launch(name, 0, count, Reason(Code.DEMAND, why), prices[name] * count) for name, count in wanted.items()
        ),
        cancel=(),
        drain=tuple(Change(name, GOES[name in busy]) for name in sorted(going)),
        uncordon=(),
        mark=(),
        unmark=(),
        stays=tuple(Change(item.id, KEEPS[doing]) for item, doing in staying if doing != "busy"),
        waiting=tuple(
            PlanWaiting(demand.id, demand.count, WAITS, blockers)
            for demand in sorted(snapshot.demands, key=lambda one: one.id)
            if demand.count
        ),
        hourly_cost=HourlyCost(costs, costs + sum(prices[name] * count for name, count in wanted.items())),
        mistakes=(),
        _busy=lambda: tuple(Change(item.id, KEEPS[doing]) for item, doing in staying if doing == "busy"),
        _placements=lambda: (),
        _unblocks=dict,
    )


def _doing(item: Slice) -> str:
    if item.state in IN_FLIGHT:
        return "flying"
    if item.state in RECALLABLE:
        return "leaving"
    if item.state in ENDING:
        return "ending"
    return "busy" if item.busy else "idle"


class Peer(ABC):
    """Decides as another system does. What it remembers between two looks is in the object, as in the system."""

    due: float | None = None
    """When it looks again although nothing new is seen."""

    @abstractmethod
    def __call__(self, snapshot: Snapshot) -> Plan: ...


@dataclass
class Scanning(Peer):
    """Looks every so many seconds, however much happens in between.

    Between two events nothing changes, so of its looks only those after an event, and those at which a time limit of
    its own is over, are made.
    """

    every: float = 10.0
    _looked: float = field(default=-1.0, init=False)

    def __call__(self, snapshot: Snapshot) -> Plan:
        now = float(snapshot.now)
        scan = self.scan_at(now)
        if now < scan - TICK:
            self.due = scan if self.due is None else min(self.due, scan)
            return as_plan(snapshot)
        self._looked = now
        plan, again = self.look(seen(snapshot))
        self.due = None if again is None else self.scan_at(max(again, now + self.every))
        return plan

    def scan_at(self, at: float) -> float:
        """The first scan at an instant or after it."""
        return ceil(round(at / self.every, 6)) * self.every

    @abstractmethod
    def look(self, sight: Sight) -> tuple[Plan, float | None]:
        """What it does now, and when it must look again if nothing happens."""
