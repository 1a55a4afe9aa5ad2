"""The why document explains the state of a slice, a demand or a group, now or at an earlier time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Final

from windlass.control.reconcile.provider_health import availability_of, boot_time, health
from windlass.control.record.journal_tables import LAUNCH
from windlass.control.settings import GroupSettings
from windlass.control.state.fleet import SliceRecord
from windlass.core.model.lifecycle import COSTLY, COUNTED, ENDED, IN_FLIGHT, State
from windlass.core.model.plan import Unblock, Waiting
from windlass.core.model.quantities import dollars, exact_quantity
from windlass.core.model.reasons import Reason, nearest_names, seconds
from windlass.core.model.snapshot import Demand, Family, ScaleDown, Snapshot
from windlass.core.planner import unblocks_of
from windlass.journal import Journal, Record

from .current import PlannedState, SlicePart, phase_of
from .history import SliceHistory, Wait, launches_for, life_of, refusals_of, wait_of
from .status import limits_of, needs_of, next_dict, next_step, part_dict, unblock_dicts

SCHEMA: Final = "windlass.why/v1"
LOOKED_BACK: Final = 5000
"""How many records are searched for names similar to an unknown one."""
MOST_LAUNCHES: Final = 5
"""How many of the last launches and refusals of a group are listed."""


@dataclass(frozen=True)
class Question:
    """A name, and everything that explains its state."""

    name: str
    at: float | None
    """None: now."""
    planned: PlannedState
    journal: Journal
    led: bool
    """Whether a controller runs now."""
    known_unblocks: Mapping[str, tuple[Unblock, ...]] | None = None
    """Unblocks that were computed before; None: they are computed here."""
    search_unblocks: Callable[[Snapshot, Waiting], tuple[Unblock, ...]] = unblocks_of

    @cached_property
    def life(self) -> SliceHistory | None:
        return life_of(self.journal, self.name, self.at)

    @cached_property
    def wait(self) -> Wait | None:
        return wait_of(self.journal, self.name, self.at)

    @cached_property
    def kinds(self) -> list[str]:
        """The kind of thing that has this name."""
        found = [kind for kind, known in (("slice", self.life), ("demand", self.wait)) if known is not None]
        groups = {
            *self.planned.settings.by_name,
            *(one.group for one in self.planned.controller_state.fleet.slices.values()),
        }
        found += ["group"] if self.name in groups else []
        return [*found, "family"] if self.family is not None else found

    @cached_property
    def family(self) -> Family | None:
        families = self.planned.settings.cluster.families
        return next((one for one in families if one.name == self.name), None)

    # -- what answers it ------------------------------------------------------------------------------------------

    @cached_property
    def demand(self) -> Demand | None:
        """The demand while it waits."""
        observed = self.planned.controller_state.observed
        return observed.demand.get(self.name) or observed.request.get(self.name)

    @cached_property
    def parts(self) -> tuple[SlicePart, ...]:
        return () if self.demand is None else self.planned.parts(self.demand)

    @cached_property
    def unblocks(self) -> tuple[Unblock, ...]:
        waiting = next((part.waiting for part in self.parts if part.waiting), None)
        if waiting is None:
            return ()
        known = self.planned.plan.unblocks if self.known_unblocks is None else self.known_unblocks
        # A plan with much waiting demand tries changes for some of it only.
        return known.get(self.name) or self.search_unblocks(self.planned.snapshot, waiting)

    @cached_property
    def launches(self) -> tuple[Record, ...]:
        """The launches for the demand."""
        return () if self.wait is None else launches_for(self.journal, self.name, self.wait)

    @cached_property
    def record(self) -> SliceRecord:
        """The current or last record of the slice."""
        assert self.life is not None
        return self.planned.controller_state.fleet.slices.get(self.name, self.life.last)

    @cached_property
    def configured(self) -> GroupSettings | None:
        return self.planned.settings.by_name.get(self.name)

    def to_dict(self) -> dict[str, Any]:
        parts: Mapping[str, Callable[[Question], dict[str, Any]]] = {
            "slice": slice_dict,
            "demand": demand_dict,
            "group": group_dict,
            "family": family_dict,
        }
        return {
            "schema": SCHEMA,
            "name": self.name,
            "at": self.planned.now,
            "led": self.led,
            **{kind: make(self) if kind in self.kinds else None for kind, make in parts.items()},
        }

    def near_names(self) -> list[str]:
        """Returns similar names, current and past."""
        controller_state = self.planned.controller_state
        observed = controller_state.observed
        known = {*self.planned.settings.by_name, *controller_state.fleet.slices, *observed.demand, *observed.request}
        past = self.journal.read(kinds=("slice", "demand"), newest_first=True, limit=LOOKED_BACK)
        return nearest_names(self.name, known | {one.subject for one in past})


# -- a slice -------------------------------------------------------------------------------------------------------


def until_of(asked: Question) -> tuple[float, str] | None:
    """Returns when the state of the slice changes next without new input, and how."""
    if asked.record.state in ENDED:
        return None
    return next_step(asked.planned, asked.record, asked.planned.stay(asked.record)[0])


def slice_dict(asked: Question) -> dict[str, Any]:
    life, record = asked.life, asked.record
    assert life is not None
    ended = record.state in ENDED
    reason, why = (record.reason.code, record.reason.why) if ended else asked.planned.stay(record)
    launch: Any = None if life.launch is None else life.launch.data
    limit = until_of(asked)
    return {
        "id": record.id,
        "group": record.group,
        "provider": record.provider,
        "state": str(record.state),
        "phase": phase_of(asked.planned, record),
        "since": record.since,
        "hourly_cost": dollars(record.price),
        "started": {
            "at": life.born,
            "code": record.started_for.code,
            "why": record.started_for.why,
            "passed_over": {} if launch is None else launch["passed_over"],
            "count": None if launch is None else launch["count"],
        },
        "life": [
            {"at": one.at, "state": str(one.state), "code": one.reason.code, "why": one.reason.why}
            for one in life.steps
        ],
        "refused": [{"at": one.at, "code": one.data["code"], "why": one.data["why"]} for one in life.refused],
        "must_go": None if life.must_go is None else _at_reason(*life.must_go),
        "cordoned": None if life.draining is None else _at_reason(life.draining.at, life.draining.reason),
        "trouble": _trouble(record, asked.planned.controller_state.observed.problems),
        "now": {
            "code": reason,
            "why": why,
            "until": None if limit is None else limit[0],
            "then": None if limit is None else limit[1],
        },
        "certificate": None if life.certified is None else {"at": life.certified[0], "fence": life.certified[1]},
        "dead": record.dead,
        "dead_hosts": [
            {"host": one.id, "exit_code": one.exit_code, "last_lines": one.last_output.splitlines()}
            for one in record.dead_hosts
        ],
        "joined": record.joined_at is not None,
        "leaving": None if record.leaving is None else str(record.leaving.code),
        "final": record.final or asked.planned.settings.final_cordons,
        "nodes": len(record.nodes),
        "tasks": 0 if ended else sum(node.tasks for node in record.nodes),
        "ready_in": None if record.state not in IN_FLIGHT else asked.planned.ready_in(record),
    }


def _trouble(record: SliceRecord, problems: Mapping[str, str]) -> str | None:
    """Returns the problem of a slice's calls, else those of its hosts."""
    of_hosts = (f"{node.id}: {text}" for node in record.nodes if (text := problems.get(f"node {node.id}")))
    return problems.get(f"slice {record.id}") or "; ".join(of_hosts) or None


def _at_reason(at: float, reason: Reason) -> dict[str, Any]:
    return {"at": at, "code": str(reason.code), "why": reason.why}


# -- a demand ------------------------------------------------------------------------------------------------------


def demand_dict(asked: Question) -> dict[str, Any]:
    wait, demand = asked.wait, asked.demand
    assert wait is not None
    known = demand or wait.demand
    return {
        "id": known.id,
        "waits": demand is not None,
        "since": wait.since,
        "until": None if demand is not None else wait.until,
        "tasks": 0 if demand is None else demand.count,
        "needs": needs_of(known),
        "gang": None if known.gang is None else str(known.gang),
        "parts": [part_dict(part) for part in asked.parts],
        "groups": {
            name: {"code": str(reason.code), "why": reason.why}
            for part in asked.parts
            if part.waiting is not None
            for name, reason in sorted(part.waiting.groups.items())
        },
        "unblocks": unblock_dicts(asked.unblocks, asked.planned, asked.name),
        "launched": [
            {"at": one.at, "group": one.subject, "slices": one.data["slices"], "why": one.data["why"]}
            for one in asked.launches
        ],
        "reasons": [
            {"at": at, "code": None if one is None else one.reason.code, "why": None if one is None else one.why}
            for at, one in wait.reasons
        ],
    }


# -- a group -------------------------------------------------------------------------------------------------------


def group_dict(asked: Question) -> dict[str, Any]:
    return {**_limits_and_health(asked), **_launches_and_refusals(asked)}


def _limits_and_health(asked: Question) -> dict[str, Any]:
    planned, name, configured = asked.planned, asked.name, asked.configured
    provider_health, rules, now = planned.provider_health(name), planned.settings.policy.backoff, planned.now
    mine = [one for one in planned.controller_state.fleet.slices.values() if one.group == name]
    fleet = planned.controller_state.fleet
    available = availability_of(provider_health, rules, now)
    group = None if configured is None else configured.group
    return {
        "name": name,
        "provider": None if configured is None else configured.provider,
        "resources": {} if group is None else {kind: exact_quantity(some, kind) for kind, some in group.resources},
        "hosts": None if group is None else group.hosts,
        "min": None if group is None else group.min,
        "max": None if group is None else group.max,
        "spare": None if group is None else group.spare,
        "price": None if group is None or group.price is None else dollars(group.price),
        "scales_down": group is not None and group.scale_down is not None,
        "idle_timeout": None if group is None or group.scale_down is None else group.scale_down.idle_timeout,
        "release": [] if group is None or group.scale_down is None else release_rules(group.scale_down),
        "slices": {
            "counted": sum(one.state in COUNTED for one in mine),
            "ready": sum(one.state == State.READY for one in mine),
            "coming": sum(one.state in IN_FLIGHT for one in mine),
            "busy": sum(any(node.busy for node in one.nodes) for one in mine),
        },
        "hourly_cost": dollars(sum(one.price for one in mine if one.state in COSTLY)),
        "frozen_by": fleet.frozen_by(name, "" if configured is None else configured.group.family),
        "availability": {"state": available.state, "until": available.until, "why": available.why},
        "next": None if configured is None else next_dict(limits_of(planned)[name]),
        "health": round(health(provider_health, rules, now), 4),
        "failures": [{"at": one.at, "code": one.code} for one in provider_health.failures if now - one.at < rules.heal],
        "succeeded_at": provider_health.succeeded_at,
        "boot_seconds": boot_time(provider_health),
    }


def release_rules(rules: ScaleDown) -> list[str]:
    """Returns the rules by which machines of a group are released, each as text."""
    found = []
    if rules.idle_timeout is not None:
        found.append(f"after {seconds(rules.idle_timeout)} idle")
    if (low := rules.low_utilization) is not None:
        kept = f"; {low.keep} are kept beyond what the work needs" if low.keep else ""
        found.append(f"idle ones, while less than {float(100 * low.below):g} % of the group is in use{kept}")
    if (target := rules.utilization) is not None:
        use = f" ({target.resource})" if target.resource is not None else ""
        kept = f" and {target.spare_nodes} more than are in use stay" if target.spare_nodes else ""
        goal = f"so that {target.percent} % are in use{use}{kept}"
        found.append(f"empty ones, {seconds(target.delay)} after they were marked, {goal}")
    if rules.consolidate:
        found.append("when their work fits elsewhere for less money")
    return found


def family_dict(asked: Question) -> dict[str, Any]:
    """Returns the limits of a family and each of its groups, cheapest first: its machines, and whether one more can be
    launched."""
    family, planned = asked.family, asked.planned
    assert family is not None
    limits, rules = limits_of(planned), planned.settings.policy.backoff
    configured = [one for one in planned.settings.groups if one.group.family == family.name]
    groups = []
    for one in sorted(configured, key=lambda each: (each.group.price or 0, each.group.name)):
        name = one.group.name
        mine = [each for each in planned.controller_state.fleet.slices.values() if each.group == name]
        available = availability_of(planned.provider_health(name), rules, planned.now)
        groups.append(
            {
                "name": name,
                "provider": one.provider,
                "price": None if one.group.price is None else dollars(one.group.price),
                "counted": sum(each.state in COUNTED for each in mine),
                "busy": sum(any(node.busy for node in each.nodes) for each in mine),
                "hourly_cost": dollars(sum(each.price for each in mine if each.state in COSTLY)),
                "availability": {"state": available.state, "until": available.until, "why": available.why},
                "next": next_dict(limits[name]),
            }
        )
    return {
        "name": family.name,
        "min": family.min,
        "max": family.max,
        "spare": family.spare,
        "groups": groups,
        "frozen_by": planned.controller_state.fleet.frozen_by(family.name),
    }


def _launches_and_refusals(asked: Question) -> dict[str, Any]:
    journal, until = asked.journal, asked.at
    launched = journal.read(subject=asked.name, kinds=(LAUNCH,), until=until, newest_first=True)
    launches = list(islice(launched, MOST_LAUNCHES))[::-1]
    refusals = refusals_of(journal, asked.name, MOST_LAUNCHES, until)[::-1]
    return {
        "launches": [
            {"at": one.at, "count": one.data["count"], "code": one.data["code"], "why": one.data["why"]}
            for one in launches
        ],
        "refusals": [
            {"at": one.at, "slice": one.subject, "code": one.data["code"], "why": one.data["why"]} for one in refusals
        ],
    }
