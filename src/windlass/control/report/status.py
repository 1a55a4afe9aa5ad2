"""The status document describes the current state of a cluster, for the command line and the server."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from typing import Any, Final

from windlass._version import __version__
from windlass.control.reconcile.provider_health import boot_time
from windlass.control.record.controller_state import SETTINGS
from windlass.control.record.costs import KINDS, Account, charged
from windlass.control.settings import Settings
from windlass.control.state.fleet import EVERY_GROUP, SliceRecord
from windlass.core.capacity.limits import LimitCounter
from windlass.core.model.lifecycle import State
from windlass.core.model.plan import Unblock
from windlass.core.model.quantities import dollars, exact_quantity
from windlass.core.model.reasons import Code, Reason
from windlass.core.model.snapshot import Availability, Demand, Family, Group
from windlass.journal import Journal

from .current import PlannedState, SlicePart, due, phase_of
from .decision import decision_dict
from .headline import NEVER, headline
from .leader import Leader
from .rows import GroupCount, RowCache, cost_so_far, ray_status, share_in_use, slice_order, zone_of

SCHEMA: Final = "windlass.status/v1"
FOR_WHOM: Final = 10
"""An unblock in a status names at most this many other demands: with all of them, a status would grow with the square
of what waits."""
RECENT: Final = 3600.0
"""Slices that failed or ended are counted for this many seconds."""


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A group and the counts of its slices."""

    name: str
    ready: int
    coming: int
    leaving: int
    busy: int
    group: Group | None
    """None if the group is no longer in the settings."""
    hourly_cost: int
    availability: Availability
    frozen: str
    boot: float | None
    next: Reason | None
    """Why one more machine cannot be launched now; None if it can."""
    requesting: int = 0
    """Slices that were requested and that the provider does not list yet."""
    states: Mapping[State, int] = field(default_factory=dict)
    """Slices by state, including those that failed or ended within the last hour."""

    @property
    def max(self) -> int | None:
        return None if self.group is None else self.group.max

    @property
    def state(self) -> str:
        """The availability at the provider, or why no launch is needed: the group is at its ``max`` or launching."""
        if self.availability.state != "available":
            return self.availability.state
        if self.next is not None and self.next.code == Code.AT_MAX:
            return "at_max"
        return "requesting" if self.requesting else "available"

    def to_dict(self) -> dict[str, Any]:
        group = self.group
        return {
            "name": self.name,
            "family": None if group is None else group.family or None,
            "ready": self.ready,
            "coming": self.coming,
            "leaving": self.leaving,
            "busy": self.busy,
            "states": {str(state): self.states.get(state, 0) for state in State},
            "max": self.max,
            "min": None if group is None else group.min,
            "spare": None if group is None else group.spare,
            "hosts": 1 if group is None else group.hosts,
            "resources": {} if group is None else {kind: exact_quantity(n, kind) for kind, n in group.resources},
            "labels": {} if group is None else dict(sorted(group.labels.items())),
            "price": None if group is None or group.price is None else dollars(group.price),
            "preemptible": False if group is None else group.preemptible,
            "hourly_cost": dollars(self.hourly_cost),
            "availability": {
                "state": self.state,
                "until": self.availability.until,
                "why": self.availability.why,
            },
            "frozen_by": self.frozen or None,
            "boot_seconds": self.boot,
            "next": next_dict(self.next),
        }


def _refusal(family: Family, groups: list[GroupStatus]) -> Reason | None:
    """Explain why no group of a family is available: it is full, or the reason of the cheapest; None if one is."""
    if groups and sum(one.ready + one.coming + one.leaving for one in groups) >= family.max:
        return Reason(Code.AT_MAX, f"{family.name} is at its max of {family.max}")
    by_price = sorted(groups, key=lambda one: (0 if one.group is None else one.group.price or 0, one.name))
    if not by_price:
        return Reason(Code.NO_SHAPE_FITS, "the family has no groups")
    return None if any(one.next is None for one in by_price) else by_price[0].next


def next_dict(reason: Reason | None) -> dict[str, Any]:
    return {"code": None, "why": "one more can be launched now"} if reason is None else _reason_dict(reason)


@dataclass(frozen=True)
class Status:
    """Everything that ``windlass status`` reports."""

    configured: Settings
    """The settings of the configuration file."""
    leader: Leader
    planned: PlannedState
    now: float
    spent_since: float | None = None
    """When the accounts begin."""
    known_unblocks: Mapping[str, tuple[Unblock, ...]] | None = None
    """Unblocks that were computed before, by demand; None: they are computed here."""
    rows: RowCache | None = None
    """Rows of an earlier document, reused where only time has passed."""
    known_decision: dict[str, Any] | None = None
    """The decision of an earlier document; None: it is made here."""

    @cached_property
    def records(self) -> list[SliceRecord]:
        """All slices, ordered by group and state."""
        return sorted(self.planned.controller_state.fleet.slices.values(), key=slice_order)

    @cached_property
    def counts(self) -> Mapping[str, GroupCount]:
        """The counts of each group. Busy slices are counted incrementally, so only the others are visited here."""
        activity, found = self.planned.controller_state.fleet.activity, defaultdict[str, GroupCount](GroupCount)
        for name, steady in activity.steady.items():
            found[name] = GroupCount(Counter({State.READY: steady.slices}), steady.slices, steady.slices, steady.price)
        for record in activity.active.values():
            found[record.group].add(record)
        return found

    @cached_property
    def groups(self) -> list[GroupStatus]:
        limits, names = limits_of(self.planned), sorted({*self.planned.settings.by_name, *self.counts})
        return [self._group(name, self.counts.get(name, GroupCount()), limits) for name in names]

    @cached_property
    def families(self) -> list[dict[str, Any]]:
        """Each family with its limits and the summed counts of its groups."""
        found = []
        for family in self.planned.settings.cluster.families:
            mine = [one for one in self.groups if one.group is not None and one.group.family == family.name]
            found.append(
                {
                    "name": family.name,
                    "min": family.min,
                    "max": family.max,
                    "spare": family.spare,
                    "groups": [one.name for one in mine],
                    **{key: sum(getattr(one, key) for one in mine) for key in ("ready", "coming", "leaving", "busy")},
                    "hourly_cost": dollars(sum(one.hourly_cost for one in mine)),
                    "frozen_by": self.planned.controller_state.fleet.frozen_by(family.name),
                    "next": next_dict(_refusal(family, mine)),
                }
            )
        return found

    def _group(self, name: str, count: GroupCount, limits: Mapping[str, Reason | None]) -> GroupStatus:
        configured = self.planned.settings.by_name.get(name)
        fleet = self.planned.controller_state.fleet
        removed = Reason(Code.GROUP_REMOVED, f"{name} is not in the settings any more: what is left of it is drained")
        recent = Counter(
            one.state for one in fleet.gone.values() if one.group == name and self.planned.now - one.at < RECENT
        )
        return GroupStatus(
            name,
            count.ready,
            count.coming,
            count.leaving,
            count.busy,
            None if configured is None else configured.group,
            count.price,
            self.planned.planned_group(name).availability if configured is not None else Availability(),
            fleet.frozen_by(name, "" if configured is None else configured.group.family) or "",
            boot_time(self.planned.provider_health(name)),
            removed if configured is None else limits[name],
            count.states[State.REQUESTING],
            count.states + recent,
        )

    @cached_property
    def demands(self) -> list[Demand]:
        """The demands that wait, largest first; standing requests only while they are not met."""
        observed, waits = self.planned.controller_state.observed, self.planned.waiting
        found = [*observed.demand.values(), *(one for one in observed.request.values() if one.id in waits)]
        return sorted(found, key=lambda one: (-one.count, one.id))

    @cached_property
    def problems(self) -> dict[str, str]:
        """Errors by name: of sources, of calls, and of quarantined slices."""
        active = self.planned.controller_state.fleet.activity.active.values()
        held = {f"slice {one.id}": f"quarantined: {one.quarantine}" for one in active if one.quarantine}
        stuck = {
            f"slice {one.id}": f"cannot be ended: {one.reason.why}"
            for one in active
            if one.state == State.TERMINATE_FAILED
        }
        found = {**held, **stuck, **self.planned.controller_state.observed.problems}
        return dict(sorted(found.items(), key=lambda item: (item[0].startswith("slice "), item[0])))

    @cached_property
    def accounts(self) -> Mapping[str, Account]:
        controller_state = self.planned.controller_state
        return charged(controller_state.account, controller_state.fleet, controller_state.stay, self.now)

    @cached_property
    def bill(self) -> dict[str, int]:
        """What was spent so far, in nanodollars, by account."""
        return {kind: round(sum(one.dollars(kind) for one in self.accounts.values()) * 10**9) for kind in KINDS}

    @property
    def hourly_cost(self) -> tuple[int, int]:
        """The hourly cost now and as planned, including slices of groups that are no longer in the settings."""
        cost, known = self.planned.plan.hourly_cost, self.planned.settings.by_name
        removed = sum(count.price for name, count in self.counts.items() if name not in known)
        return cost.now + removed, cost.planned + removed

    @property
    def other_settings(self) -> bool:
        """Whether the configuration file differs from the settings that the controller uses."""
        running = self.planned.controller_state.settings.get(SETTINGS)
        return running is not None and running.of_file != self.configured

    def unblocks_of(self, demand: str) -> tuple[Unblock, ...]:
        unblocks = self.planned.plan.unblocks if self.known_unblocks is None else self.known_unblocks
        return unblocks.get(demand, ())

    @cached_property
    def _family_of(self) -> Mapping[str, str]:
        """The family of each group that has one."""
        return {group: name for name, groups in self.planned.settings.families.items() for group in groups}

    # -- the document ---------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        now, planned = self.hourly_cost
        demands = [self._demand_row(one) for one in self.demands]
        frozen = dict(sorted(self.planned.controller_state.fleet.frozen.items()))
        summary, leader = self.summary(demands), self.leader.to_dict()
        return {
            "schema": SCHEMA,
            "seq": self.planned.controller_state.seq,
            "version": __version__,
            "at": self.now,
            "as_of": self.planned.now,
            "headline": headline(demands, summary, frozen, leader, self._family_of),
            "summary": summary,
            "leader": leader,
            "troubles": self.problems,
            "frozen": frozen,
            "settings_differ": self.other_settings,
            "groups": [one.to_dict() for one in self.groups],
            "families": self.families,
            "slices": self._slice_rows(),
            "demands": demands,
            "decision": decision_dict(self.planned) if self.known_decision is None else self.known_decision,
            "hourly_cost": {"now": dollars(now), "planned": dollars(planned)},
            "bill": {"total": dollars(sum(self.bill.values())), **{k: dollars(v) for k, v in self.bill.items()}},
            "spent_since": self.spent_since,
        }

    def summary(self, demands: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Returns the counts of the document, from its rows."""
        rows = list(demands)
        counts = self.counts.values()
        ready, busy = sum(one.ready for one in counts), sum(one.ready_busy for one in counts)
        ceiling = self.planned.settings.cluster.max_hourly_cost
        return {
            "waiting_tasks": sum(one["tasks"] for one in rows),
            "waiting_demands": len(rows),
            "impossible_demands": sum(any(part["code"] in NEVER for part in one["parts"]) for one in rows),
            "oldest_wait_since": min((one["since"] for one in rows if one["since"] is not None), default=None),
            "slices": len(self.planned.controller_state.fleet.slices),
            "busy": busy,
            "idle": ready - busy,
            "coming": sum(one.coming for one in counts),
            "leaving": sum(one.leaving for one in counts),
            "ceiling": None if ceiling is None else dollars(ceiling),
            "unknown_sources": sorted(self.planned.controller_state.observed.unknown),
        }

    def _slice_rows(self) -> list[dict[str, Any]]:
        if self.rows is None:
            return [self._slice_dict(one) for one in self.records]
        slices, changes = self.planned.controller_state.fleet.slices, self.planned.changes
        return self.rows.slice_rows(slices, self.planned.settings, changes, self._slice_dict)

    def _slice_dict(self, record: SliceRecord) -> dict[str, Any]:
        reason, why = self.planned.stay(record)
        until = next_step(self.planned, record, reason)
        return {
            "id": record.id,
            "group": record.group,
            "provider": record.provider,
            "state": str(record.state),
            "ray_status": ray_status(record),
            "since": record.since,
            "tasks": sum(node.tasks for node in record.nodes),
            "code": reason,
            "why": why,
            "ready_in": self.planned.ready_in(record),
            "hourly_cost": dollars(record.price),
            "until": None if until is None else until[0],
            "then": None if until is None else until[1],
            "use": self._use(record),
            "cost": cost_so_far(record, self.planned.now),
            "zone": zone_of(record, self.planned.settings),
            "hosts": record.hosts,
            "phase": phase_of(self.planned, record),
        }

    def _use(self, record: SliceRecord) -> float:
        configured = self.planned.settings.by_name.get(record.group)
        return 0.0 if configured is None else share_in_use(record, configured.group)

    def _demand_row(self, demand: Demand) -> dict[str, Any]:
        waiting = self.planned.waiting.get(demand.id)
        whole = waiting is not None and demand.id not in self.planned.placed
        if self.rows is None or waiting is None or not whole or self.planned.room_for(waiting) is not None:
            return self._demand_dict(demand)
        return self.rows.demand_row(demand, waiting, self.unblocks_of(demand.id), partial(self._demand_dict, demand))

    def _demand_dict(self, demand: Demand) -> dict[str, Any]:
        waits = self.planned.waiting.get(demand.id)
        unblocks = () if waits is None else self.unblocks_of(demand.id)
        return {
            "id": demand.id,
            "tasks": demand.count,
            "since": demand.since,
            "parts": [part_dict(part) for part in self.planned.parts(demand)],
            "needs": needs_of(demand),
            "gang": None if demand.gang is None else str(demand.gang),
            "groups": {} if waits is None else _reasons_dict(waits.groups),
            "unblocks": unblock_dicts(unblocks, self.planned, demand.id, FOR_WHOM),
        }


def spent_since(journal: Journal) -> float | None:
    """Returns when the accounts begin: at the oldest settings, which are never compacted."""
    return next((one.at for one in journal.read(kinds=("settings",), limit=1)), None)


def limits_of(planned: PlannedState) -> dict[str, Reason | None]:
    """Returns for each group why one more machine, besides the planned launches, cannot be launched now; None if it
    can."""
    snapshot, activity = planned.snapshot, planned.controller_state.fleet.activity
    places = {group.name: index for index, group in enumerate(snapshot.groups)}
    counts = Counter({(places.get(name), State.READY): one.slices for name, one in activity.steady.items()})
    counts.update((places.get(one.group), one.planned_with.state) for one in activity.active.values())
    unknown = any(group is None for group, _ in counts)
    slices_without_group = [one for one in snapshot.slices if one.group not in places] if unknown else []
    limits = LimitCounter(snapshot.cluster, snapshot.groups, counts, {}, slices_without_group, snapshot.now)
    for launch in planned.plan.launches:
        limits.add(places[launch.group], launch.count)
    return {name: limits.refusal(index, 1) for name, index in places.items()}


def next_step(planned: PlannedState, record: SliceRecord, reason: Code | None) -> tuple[float, str] | None:
    """Returns when the state of a slice changes next without new input, and how."""
    limit = due(record, planned.settings)
    if limit is not None:
        return limit[0], f"it is too late and becomes {limit[1]}"
    configured = planned.settings.by_name.get(record.group)
    rules = None if configured is None else configured.group.scale_down
    if reason == Code.NOT_IDLE_LONG_ENOUGH and rules is not None and rules.idle_timeout is not None:
        return record.idle_since + rules.idle_timeout, "it is drained, if nothing needs it"
    if record.marked_until is not None:
        return record.marked_until, "its mark is due"
    return None


def needs_of(demand: Demand) -> list[dict[str, Any]]:
    return [
        {"count": one.count, "needs": {name: exact_quantity(amount, name) for name, amount in one.needs}}
        for one in demand.bundles
    ]


def unblock_dicts(
    unblocks: Iterable[Unblock], planned: PlannedState, demand: str, most: int | None = None
) -> list[dict[str, Any]]:
    """Returns the unblocks of a demand, each with the machines it buys and the tasks it places; the price is for all of
    them. A group that is frozen with its family or with everything is resumed with them. ``most``: how many other
    demands are named; the counts are those of all."""
    frozen_with, found = _frozen_with(planned), dict[str, dict[str, Any]]()
    for way in unblocks:
        change, places = _with_orders(way, frozen_with), dict(way.places)
        named = places if most is None or len(places) <= most + 1 else _first(places, demand, most)
        counts = {"for": named, "for_demands": len(places), "for_tasks": sum(places.values())}
        made = {**way.to_dict(), "change": change, "buys": dict(way.buys), **counts}
        # Several groups may be resumed by one order, which launches the cheapest machines.
        if change not in found or made["hourly_cost"] < found[change]["hourly_cost"]:
            found[change] = made
    return list(found.values())


EVERYTHING: Final = "everything"
"""The name of a freeze of all groups in a suggested change."""


def _frozen_with(planned: PlannedState) -> dict[str, str]:
    """Returns for each group that is not frozen by its own name what must be resumed: its family, or everything."""
    frozen, settings = planned.controller_state.fleet.frozen, planned.settings
    if EVERY_GROUP in frozen:
        return dict.fromkeys(settings.by_name, EVERYTHING)
    return {group: name for name, groups in settings.families.items() if name in frozen for group in groups}


def _with_orders(way: Unblock, frozen_with: Mapping[str, str]) -> str:
    """Returns the text of a change, in which each resume names what an operator can resume."""
    groups = [path[1] for path, _ in way.set if path[2:] == ("frozen",)]
    if frozen_with.keys().isdisjoint(groups):
        return way.change
    names = dict.fromkeys(frozen_with.get(group, group) for group in groups)
    others = [part for (path, _), part in zip(way.set, way.parts, strict=True) if path[2:] != ("frozen",)]
    return " and ".join((*(f"resume {name}" for name in names), *others))


def _first(places: Mapping[str, int], demand: str, most: int) -> dict[str, int]:
    """Returns the tasks of one demand and of the first others."""
    others = islice((name for name in places if name != demand), most)
    return {name: places[name] for name in (*([demand] if demand in places else ()), *others)}


def part_dict(part: SlicePart) -> dict[str, Any]:
    return {
        "tasks": part.count,
        "code": part.code,
        "why": part.why,
        "slices": list(part.slices),
        "starts_in": part.starts_in,
    }


def _reason_dict(reason: Reason) -> dict[str, Any]:
    return {"code": str(reason.code), "why": reason.why}


def _reasons_dict(reasons: Mapping[str, Reason]) -> dict[str, dict[str, Any]]:
    return {name: _reason_dict(reason) for name, reason in sorted(reasons.items())}
