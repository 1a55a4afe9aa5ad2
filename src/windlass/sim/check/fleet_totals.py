"""FleetTotals sums the records of a fleet, updated by what changed since the last step.

Records are replaced, never mutated, so identity shows what is unchanged. The comparison is independent of the
controller's own change tracking: a checker must not trust what it checks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from windlass.control.record.controller_state import ControllerState
from windlass.control.state.diff import NONE, TableDiff, full_diff
from windlass.control.state.fleet import SliceRecord
from windlass.core.model.lifecycle import OFFERING, State
from windlass.core.model.reasons import Code


class Idle(NamedTuple):
    """A ready slice whose record shows no running task."""

    since: float
    nodes: tuple[str, ...]


class _Bill(NamedTuple):
    """The billing start of a slice, in whole microseconds."""

    group: str
    price: int
    since: int


@dataclass
class FleetTotals:
    """The slice records of a controller, and sums over them."""

    life_of: Callable[[str], tuple[float, float] | None] = lambda _: None
    """Returns when a machine was created and when it ended, if its cloud reports that."""
    slices: Mapping[str, SliceRecord] = field(default_factory=dict)
    idle: dict[str, Idle] = field(default_factory=dict)
    """Ready slices all of whose nodes are reported idle."""
    unproven: dict[str, Idle] = field(default_factory=dict)
    """Those of them that the workload has not confirmed yet."""
    offering: Counter[str] = field(default_factory=Counter)
    """Slices from QUEUED to READY, by group."""
    _before: Mapping[str, SliceRecord] = field(default_factory=dict)
    _differing: TableDiff = NONE
    """The changes of the last update, and the records before it."""
    _billing: dict[str, _Bill] = field(default_factory=dict)
    _billed: Counter[str] = field(default_factory=Counter)
    """The cost of ended slices, by group."""
    billed_seconds: dict[str, float] = field(default_factory=dict)
    """The billed time of each slice in closed intervals."""
    _rate: Counter[str] = field(default_factory=Counter)
    """The sum of the prices of billed slices, by group."""
    _clock_step: float = 0.0
    _since: Counter[str] = field(default_factory=Counter)
    """The sum of price times billing start, by group."""

    def follow(
        self, controller_state: ControllerState, differing: TableDiff | None = None, clock_step: float = 0.0
    ) -> Collection[str]:
        """Update the sums to the current state and return the names that are gone.

        ``differing``: the differences, if they are known. ``clock_step``: seconds by which the clock was set since the
        last state; they are not billed, also for a slice whose bill ends in this pass.
        """
        self._clock_step = clock_step
        before, after = self.slices, controller_state.fleet.slices
        self._differing = changed, gone = full_diff(before, after) if differing is None else differing
        instant = round(controller_state.at * 10**6)
        for name in changed:
            self._take(name, before.get(name), after[name], instant)
        for name in gone:
            self._take(name, before[name], None, instant)
        self._before, self.slices = before, after
        return gone

    def since(self, slices: Mapping[str, SliceRecord]) -> TableDiff:
        """Return the differences between these slices and the current ones."""
        return self._differing if slices is self._before else full_diff(slices, self.slices)

    def cost(self, at: float) -> dict[str, int]:
        """Return the cost of the slices of each group up to a time: price times billed time of each slice."""
        instant, billed, since = round(at * 10**6), self._billed, self._since
        return {group: billed[group] + instant * rate - since[group] for group, rate in self._rate.items()}

    def _take(self, name: str, old: SliceRecord | None, new: SliceRecord | None, instant: int) -> None:
        if old is not None and old.state in OFFERING:
            self.offering[old.group] -= 1
        if new is not None and new.state in OFFERING:
            self.offering[new.group] += 1
        idle = None if new is None else _idle(new)
        if idle is not None:
            self.idle[name] = self.unproven[name] = idle
        elif self.idle.pop(name, None) is not None:
            self.unproven.pop(name, None)
        self._bill(name, None if new is None or new.billed_since is None else new, instant)
        if new is None and old is not None:
            self._bill_in_full(old, instant)

    def _bill(self, name: str, record: SliceRecord | None, instant: int) -> None:
        """Update the sums for one slice. It keeps the price at which it was bought."""
        bill = self._billing.get(name)
        if record is not None and record.billed_since is not None:
            since = round(record.billed_since * 10**6)
            if bill is None:
                self._rate[record.group] += record.price
                self._since[record.group] += record.price * since
            elif since != bill.since:  # the clock was set
                self._since[bill.group] += bill.price * (since - bill.since)
            price = record.price if bill is None else bill.price
            self._billing[name] = _Bill(record.group, price, since)
        elif bill is not None:
            del self._billing[name]
            self._rate[bill.group] -= bill.price
            self._since[bill.group] -= bill.price * bill.since
            billed = instant - bill.since - round(self._clock_step * 10**6)
            self._billed[bill.group] += bill.price * billed
            self.billed_seconds[name] = self.billed_seconds.get(name, 0.0) + billed / 10**6

    def _bill_in_full(self, record: SliceRecord, instant: int) -> None:
        """Replace the billed time of an ended slice by the time between the start and end that its cloud reports. A
        slice that is listed again after it was given up is billed from then until its end.
        """
        life = self.life_of(record.id)
        if life is None or not record.seen:
            return
        counted = round(self.billed_seconds.get(record.id, 0.0) * 10**6)
        if record.started_at is not None or record.started_for.code != Code.LEAKED:
            billed = round((life[1] - life[0]) * 10**6)
        else:
            now = instant / 10**6 - self._clock_step if record.billed_since is not None else record.bill_from
            since = life[1] if record.billed_since is None else max(record.billed_since, life[1])
            billed = counted - (round((now - since) * 10**6) if now is not None and now > life[1] else 0)
        self._billed[record.group] += record.price * (billed - counted)
        self.billed_seconds[record.id] = billed / 10**6


def _idle(record: SliceRecord) -> Idle | None:
    """Return since when a slice is idle. Independent of ``core.model.snapshot.idle_since`` on purpose."""
    if record.state is not State.READY or not record.nodes or record.busy_nodes:
        return None
    known = [float(node.idle_since) for node in record.nodes if node.idle_since is not None]
    return Idle(max(known), tuple([node.id for node in record.nodes])) if len(known) == len(record.nodes) else None
