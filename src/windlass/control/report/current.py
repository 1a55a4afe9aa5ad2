"""This module plans the recorded state of an instant again, so that reports show current numbers.

The journal records a reason when it changes, not when only its numbers change; the current numbers come from planning
the same snapshot again. The module is pure and not part of the loop: it acts on nothing and writes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf, nextafter
from typing import Final

from windlass.control.reconcile.planner_input import plan_fleet
from windlass.control.reconcile.provider_health import boot_time, end_time
from windlass.control.record.controller_state import SETTINGS, ControllerState
from windlass.control.record.state_reader import recovered, with_nodes
from windlass.control.settings import Settings
from windlass.control.state.fleet import ProviderHealth, SliceRecord
from windlass.core.explain.kept import busy_reason
from windlass.core.model.lifecycle import ENDING, IN_FLIGHT, RECALLABLE, TABLE, State
from windlass.core.model.plan import Change, Plan, Waiting
from windlass.core.model.reasons import Code, plural, seconds
from windlass.core.model.snapshot import Demand, Group, Snapshot
from windlass.core.planner import plan
from windlass.core.tables.planner_memo import PlannerMemo
from windlass.journal import Journal

NAMED = 3
"""A sentence names at most this many slices and counts the others."""


def read_state(journal: Journal, until: float | None = None) -> ControllerState:
    """Returns the controller state of now or of an instant, with the nodes of its slices; raises ``TooOld`` as
    ``recovered`` does.

    Records written at exactly that instant are included: the state as of an event contains the event.
    """
    return with_nodes(recovered(journal, None if until is None else nextafter(until, inf)))


@dataclass(frozen=True, slots=True)
class SlicePart:
    """Tasks of a demand that share one outcome: placed, coming or waiting."""

    count: int
    code: Code | None
    """None if there is room for them now."""
    why: str
    slices: tuple[str, ...] = ()
    """The slices they are placed on, if that is decided."""
    starts_in: float | None = None
    """Estimated seconds until they start; None if not known."""
    waiting: Waiting | None = None
    """What blocks them in each group, if they find no place."""


@dataclass(frozen=True)
class PlannedState:
    """A controller state and the plan for it at an instant."""

    controller_state: ControllerState
    settings: Settings
    now: float
    snapshot: Snapshot
    plan: Plan

    @cached_property
    def changes(self) -> Mapping[str, tuple[str, Change]]:
        """What the plan does with each slice: stays, cancel, drain, uncordon, mark or unmark. A ready, busy slice that
        the plan does not mention is missing here: it stays because it has work."""
        verbs = ("stays", "cancel", "drain", "uncordon", "mark", "unmark")
        return {change.slice: (verb, change) for verb in verbs for change in getattr(self.plan, verb)}

    @cached_property
    def placed(self) -> Mapping[str, Mapping[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for one in self.plan.placements:
            found.setdefault(one.demand, {})[one.on] = one.count
        return found

    @cached_property
    def waiting(self) -> Mapping[str, Waiting]:
        return {one.demand: one for one in self.plan.waiting}

    @cached_property
    def _groups(self) -> Mapping[str, Group]:
        return {group.name: group for group in self.snapshot.groups}

    def planned_group(self, name: str) -> Group:
        """Returns the group as the planner saw it, with the availability that was assumed."""
        return self._groups[name]

    def provider_health(self, group: str) -> ProviderHealth:
        return self.controller_state.fleet.provider_health.get(group, ProviderHealth())

    def ready_in(self, record: SliceRecord) -> float | None:
        """Estimated seconds until a slice in flight is ready, from the boot times of its group. None if no boot time is
        known, or if a host of it has a problem."""
        usual = boot_time(self.provider_health(record.group))
        if usual is None or record.state not in IN_FLIGHT or self.host_problems(record):
            return None
        return max(0.0, usual - (self.now - record.asked_at if record.asked_at is not None else 0.0))

    def host_problems(self, record: SliceRecord) -> str:
        """Returns the problems of the hosts of a slice, each with the name of its host; empty if none has one."""
        problems = self.controller_state.observed.problems
        nodes = record.nodes if problems else ()
        return "; ".join(
            f"host {node.id} has a problem: {text}" for node in nodes if (text := problems.get(f"node {node.id}"))
        )

    def room_in(self, groups: Collection[str]) -> float | None:
        """Estimated seconds until the first ending slice of these groups is gone, from how long the last ones took.
        None if no slice is ending, or if no duration is known."""
        found = [left for group in groups if (left := self._room.get(group)) is not None]
        return min(found, default=None)

    def room_for(self, waiting: Waiting) -> float | None:
        """Estimated seconds until a slice is gone that counts toward a limit that blocks a demand; None as for
        ``room_in``."""
        if not self._room:
            return None
        return self.room_in([name for name, reason in waiting.groups.items() if reason.code in _HELD_UP])

    @cached_property
    def _room(self) -> Mapping[str, float]:
        """Estimated seconds until the first ending slice is gone, by group."""
        found: dict[str, float] = {}
        for record in self.controller_state.fleet.activity.active.values():
            usual = end_time(self.provider_health(record.group)) if record.state in ENDING else None
            if usual is not None:
                left = max(0.0, usual - (self.now - record.since))
                found[record.group] = min(left, found.get(record.group, left))
        return found

    def stay(self, record: SliceRecord) -> tuple[Code | None, str]:
        """Returns the reason for the state of a slice, with what happens next."""
        if record.quarantine:
            return None, f"quarantined, the controller does not touch it any more: {record.quarantine}"
        verb, change = self.changes.get(record.id, ("stays", None))
        if record.leaving is not None and record.state in IN_FLIGHT | {State.READY}:
            return record.leaving.code, f"must go: {record.leaving.why}"
        if change is not None and verb != "stays":
            return change.reason.code, f"{_DUE[verb]}: {change.reason.why}"
        if record.state == State.READY:
            reason = busy_reason(sum(node.tasks for node in record.nodes)) if change is None else change.reason
            held, why = self._held_by(record), reason.why
            return reason.code, f"{why}; stays: {held}" if held else why
        text = record.reason.why
        if record.state in IN_FLIGHT and (problems := self.host_problems(record)):
            text += f"; {problems}"
        elif record.state in IN_FLIGHT and (left := self.ready_in(record)) is not None:
            text += f"; ready {about(left)}"
        elif (limit := due(record, self.settings)) is not None and record.state in RECALLABLE:
            text += f"; if not empty in {seconds(max(0, round(limit[0] - self.now)))} it goes back to {limit[1]}"
        return record.reason.code, text

    def _held_by(self, record: SliceRecord) -> str:
        """Returns what keeps the nodes of a slice busy, as the workload reports it."""
        nodes = self.controller_state.observed.nodes_of.get(record.id, ())
        return "; ".join(dict.fromkeys(node.activity for node in nodes if node.activity))

    def parts(self, demand: Demand) -> tuple[SlicePart, ...]:
        """Returns the outcome for the tasks of a demand, those without a place first."""
        found: list[SlicePart] = []
        if (waiting := self.waiting.get(demand.id)) is not None:
            left = self.room_for(waiting)
            why = waiting.why + ("" if left is None else f"; room comes {about(left)}")
            found.append(SlicePart(waiting.count, waiting.reason.code, why, waiting=waiting))
        new: dict[str, int] = {}
        ready: dict[str, int] = {}
        coming: dict[str, int] = {}
        for name, count in self.placed.get(demand.id, {}).items():
            record = self.controller_state.fleet.slices.get(name)
            into = new if record is None else coming if record.state in IN_FLIGHT else ready
            into[name] = count
        if new:
            groups = sorted(
                {launch.group for launch in self.plan.launches if not new.keys().isdisjoint(launch.names())}
            )
            times = [boot_time(self.provider_health(group)) for group in groups]
            why = f"the next pass launches {plural(len(new), 'slice')} of {', '.join(groups)} for them"
            found.append(SlicePart(sum(new.values()), Code.LAUNCHING, why, (), _latest(times)))
        if coming:
            found.append(self._coming(coming))
        if ready:
            why = f"there is room on {_named(ready)}"
            found.append(SlicePart(sum(ready.values()), None, why, tuple(sorted(ready)), 0.0))
        return tuple(found)

    def _coming(self, on: Mapping[str, int]) -> SlicePart:
        records = [self.controller_state.fleet.slices[name] for name in sorted(on)]
        asked = all(record.state in (State.QUEUED, State.REQUESTING) for record in records)
        left = _latest([self.ready_in(record) for record in records])
        when = "" if left is None else f", ready {about(left)}"
        if problems := next(filter(None, map(self.host_problems, records)), ""):
            when = f", but {problems}"
        why = f"{_named(on)} {'is' if len(on) == 1 else 'are'} on the way for them{when}"
        code = Code.LAUNCHING if asked else Code.BOOTING
        return SlicePart(sum(on.values()), code, why, tuple(sorted(on)), left)


_HELD_UP: Final = frozenset({Code.AT_MAX, Code.MAX_NODES, Code.BUDGET})
"""A slice counts toward these limits until the provider confirms that it is gone."""
_DUE = {
    "cancel": "due to be cancelled",
    "drain": "due to be drained",
    "uncordon": "due to take work again",
    "mark": "due to be marked for release",
    "unmark": "no longer due to be released",
}


def planned_state(
    controller_state: ControllerState, configured: Settings, now: float, memo: PlannerMemo | None = None
) -> PlannedState:
    """Plans a controller state again at an instant, with its own settings, or with ``configured`` if it has none.

    ``memo``: planner tables that a caller keeps between calls, to plan faster.
    """
    settings = controller_state.settings.get(SETTINGS, configured)
    planner = plan if memo is None else partial(plan, memo=memo)
    snapshot, made = plan_fleet(controller_state.fleet, controller_state.observed, settings, now, planner)
    if memo is not None:
        # Unblocks are searched in another thread, and the memo belongs to the caller's thread.
        made = replace(made, _unblocks=lambda: plan(snapshot).unblocks)
    return PlannedState(controller_state, settings, now, snapshot, made)


def due(record: SliceRecord, settings: Settings) -> tuple[float, State] | None:
    """Returns when the time limit of a slice's state ends and the state that follows; None if there is no limit."""
    limit, after = settings.policy.limit_of(record.state), TABLE[record.state].after_limit
    if limit is None or after is None or (record.state == State.DRAINING and _has_no_limit(record, settings)):
        return None
    return record.since + limit, after


def _has_no_limit(record: SliceRecord, settings: Settings) -> bool:
    """Whether a draining slice waits for its work without a time limit, or is empty and will be ended."""
    removed = record.group not in settings.by_name
    return (
        record.final
        or record.certified
        or removed
        or record.leaving is not None
        or (settings.policy.allow_eviction and record.must_go)
    )


def about(left: float) -> str:
    """Formats a time left as ``in about 40 s``, or ``any moment`` if it is over."""
    return f"in about {seconds(round(left))}" if left >= 1 else "any moment"


def _latest(times: Iterable[float | None]) -> float | None:
    known = list(times)
    return None if not known or None in known else max(one for one in known if one is not None)


def _named(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - NAMED} more" if len(ordered) > NAMED else ""
    return ", ".join(ordered[:NAMED]) + more


def phase_of(planned: PlannedState, record: SliceRecord) -> str | None:
    """Returns what the hosts of a slice do before they join and for how long, if the provider reports it. None if one
    has joined and has a problem, because then the slice waits for that host."""
    instance = planned.controller_state.observed.instance.get(record.id)
    if instance is None or not instance.phase or record.state not in IN_FLIGHT or planned.host_problems(record):
        return None
    since = instance.phase_since
    return instance.phase if since is None else f"{instance.phase}, {seconds(max(0, round(planned.now - since)))}"
