"""``decide`` applies a plan to the state of every slice, as transitions. Pure; the actuator makes the calls.

While a source is unknown nothing shrinks: only launches, uncordons and unmarks of such a plan are applied, and launches
that are still queued are cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from windlass.control.settings import GroupSettings, Settings
from windlass.control.state.fleet import SAVING, Bought, Fleet, Moved, SliceRecord, moved
from windlass.core.model.lifecycle import IN_FLIGHT, State
from windlass.core.model.plan import Change, Launch, Plan
from windlass.core.model.reasons import Code, Reason

from .action_limits import within_limits


@dataclass(frozen=True, slots=True)
class AppliedPlan:
    """The fleet after a plan, and the transitions that led to it."""

    fleet: Fleet
    moves: tuple[Moved, ...]
    bought: tuple[Bought, ...]


def decide(
    fleet: Fleet, plan: Plan, settings: Settings, unknown: tuple[str, ...], new_id: Callable[[str], str], now: float
) -> AppliedPlan:
    """Apply a plan to the fleet."""
    deciding = _Deciding(fleet, settings.by_name, now)
    plan = within_limits(plan, fleet, settings)
    for launch in plan.launches:
        deciding.buy(launch, new_id)
    for change in plan.uncordon:
        deciding.move(change.slice, State.READY, change.reason)
    for change in plan.unmark:
        deciding.mark(change.slice, None)
    for change in plan.cancel:
        # A queued launch has no machine, and this plan may have given its place under a limit to another launch.
        if not unknown or deciding.is_queued(change.slice):
            deciding.cancel(change.slice, change.reason)
    if not unknown:
        deciding.end_certified()
        for change in plan.drain:
            if not (settings.final_cordons and deciding.would_wait_for_work(change)):
                deciding.move(change.slice, State.CORDONED, change.reason)
        for change in plan.mark:
            deciding.mark(change.slice, change.until)
        deciding.drain_leaving()
    return deciding.done()


class _Deciding:
    """The fleet while a plan is applied."""

    def __init__(self, fleet: Fleet, groups: Mapping[str, GroupSettings], now: float) -> None:
        self.fleet, self.groups, self.now = fleet, groups, now
        self.changed: dict[str, SliceRecord] = {}
        self.moves: list[Moved] = []
        self.bought: list[Bought] = []

    def done(self) -> AppliedPlan:
        return AppliedPlan(self.fleet.after(self.changed), tuple(self.moves), tuple(self.bought))

    def record(self, slice_id: str) -> SliceRecord | None:
        """Return a record with the changes so far."""
        return self.changed.get(slice_id) or self.fleet.slices.get(slice_id)

    def active(self) -> Iterable[SliceRecord]:
        """Return every record that was active or has changed, in its current state."""
        return (
            {**self.fleet.activity.active, **self.changed}.values()
            if self.changed
            else self.fleet.activity.active.values()
        )

    def buy(self, launch: Launch, new_id: Callable[[str], str]) -> None:
        configured, ids = self.groups[launch.group], []
        for _ in range(launch.count):
            record = SliceRecord(
                new_id(launch.group),
                launch.group,
                configured.provider,
                State.QUEUED,
                self.now,
                launch.reason,
                launch.reason,
                configured.group.price or 0,
            )
            ids.append(record.id)
            self.changed[record.id] = record
            self.moves.append(Moved(record.id, None, State.QUEUED, self.now, launch.reason))
        self.bought.append(Bought(tuple(ids), launch))

    def move(self, slice_id: str, target: State, reason: Reason) -> None:
        record = self.record(slice_id)
        if record is None or record.quarantine:
            return
        self.changed[slice_id], move = moved(record, target, self.now, reason)
        self.moves += [move] if move is not None else []

    def would_wait_for_work(self, change: Change) -> bool:
        """Whether a slice with work on it is to be drained only to save money."""
        record = self.record(change.slice)
        return record is not None and record.busy_nodes > 0 and change.reason.code in SAVING

    def is_queued(self, slice_id: str) -> bool:
        record = self.record(slice_id)
        return record is not None and record.state is State.QUEUED

    def cancel(self, slice_id: str, reason: Reason) -> None:
        """Cancel a launch that is no longer needed; not while hosts of it are in the workload, because they may hold
        work."""
        record = self.record(slice_id)
        if record is None or (record.nodes and record.state != State.QUEUED):
            return
        self.move(slice_id, State.TERMINATED if record.state == State.QUEUED else State.TERMINATING, reason)

    def mark(self, slice_id: str, until: float | None) -> None:
        record = self.record(slice_id)
        if record is not None:
            self.changed[slice_id] = record.replace(marked_until=until)

    def end_certified(self) -> None:
        """End drained slices that were not called back and that the workload reports as empty."""
        draining = [record for record in self.active() if record.state is State.DRAINING]
        for record in sorted(draining, key=lambda one: one.id):
            # A freeze stops the scale-down rules, but not the order of an operator to drain this slice.
            ordered = record.leaving is not None and record.leaving.code == Code.MANUAL
            configured = self.groups.get(record.group)
            family = "" if configured is None else configured.group.family
            if record.certified and (ordered or not self.fleet.is_frozen(record.group, family)):
                why = "the workload confirmed that nothing runs there"
                self.move(record.id, State.TERMINATING, Reason(record.reason.code, why))

    def drain_leaving(self) -> None:
        """Drain or cancel slices that must leave, whatever the plan says."""
        leaving = [record for record in self.active() if record.leaving is not None]
        for record in sorted(leaving, key=lambda one: one.id):
            assert record.leaving is not None
            if record.state == State.READY:
                self.move(record.id, State.CORDONED, record.leaving)
            elif record.state in IN_FLIGHT:
                self.cancel(record.id, record.leaving)
