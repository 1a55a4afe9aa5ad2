"""This module computes the status of provisioners and claims from a decision. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from windlass.core.model.lifecycle import IN_FLIGHT, State
from windlass.core.model.plan import Plan
from windlass.core.model.reasons import Code, Reason
from windlass.core.model.snapshot import Group
from windlass.kubernetes_api.objects import NodeProvisioner, ObjectCondition, rfc3339
from windlass.workloads.protocol import DecidedSlice

REGISTERED: Final = frozenset({State.READY, State.CORDONED, State.DRAINING})
IMPOSSIBLE: Final = frozenset(
    {Code.TOO_SMALL, Code.NO_LABEL_MATCH, Code.NOT_TOLERATED, Code.GANG_SHAPE, Code.UNKNOWN_INPUT}
)
"""Reasons that do not make a provisioner Blocked: it could never take the pods, or that is not known."""


@dataclass(frozen=True, slots=True)
class GroupNumbers:
    """The counts of a provisioner's status."""

    current: int
    in_flight: int
    marked: int
    used: int
    target: int
    next_deadline: float | None

    @property
    def utilization(self) -> int:
        return 100 * self.used // self.current if self.current else 0


def numbers_of(group: Group, slices: Iterable[DecidedSlice], in_use: frozenset[str], plan: Plan | None) -> GroupNumbers:
    """Return the counts of one group. ``in_use``: slices whose GPUs are in use."""
    mine = [one for one in slices if one.group == group.name]
    registered = [one for one in mine if one.state in REGISTERED]
    in_flight = {one.id for one in mine if one.state in IN_FLIGHT}
    marks = [one.marked_until for one in registered if one.marked_until is not None and one.state == State.READY]
    used = sum(one.id in in_use for one in registered)
    whole = len(registered) + len(in_flight)
    rule = group.scale_down.utilization if group.scale_down is not None else None
    target = whole
    if rule is not None and plan is not None and not _serves(plan, group.name, in_flight):
        enough = max(100 * used // rule.percent, used + rule.spare_nodes, group.min)
        target = min(whole, enough)
    return GroupNumbers(len(registered), len(in_flight), len(marks), used, target, min(marks, default=None))


def _serves(plan: Plan, group: str, in_flight: set[str]) -> bool:
    """Whether pods wait for machines of a group that are in flight or just bought: then there is no surplus."""
    if any(launch.group == group for launch in plan.launches):
        return True
    return bool(in_flight) and any(one.on in in_flight for one in plan.placements)


def blocked_by(group: str, plan: Plan | None) -> Reason | None:
    """Return the reason for which pods wait that a group could take; None if no such pod waits."""
    for item in plan.waiting if plan is not None else ():
        reason = item.groups.get(group)
        if reason is not None and reason.code not in IMPOSSIBLE:
            pods = f"{item.demand} waits" if item.count == 1 else f"{item.count} pods of {item.demand} wait"
            return Reason(reason.code, f"{pods}: {reason.why}")
    return None


def condition(
    kind: str, holds: bool, reason: str, message: str, before: Sequence[Mapping[str, Any]], now: float
) -> dict[str, Any]:
    """Return a condition; its transition time is kept while its status does not change."""
    status = "True" if holds else "False"
    old = next((one for one in before if one.get("type") == kind), None)
    same = old is not None and old.get("status") == status
    at = old["lastTransitionTime"] if same and old is not None else rfc3339(now)
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at}


def provisioner_status(
    provisioner: NodeProvisioner,
    numbers: GroupNumbers,
    ready: tuple[bool, str, str],
    blocked: tuple[bool, str, str],
    decided: Mapping[str, Any] | None,
    now: float,
) -> dict[str, Any]:
    """Return the whole status of a provisioner."""
    before = provisioner.status or {}
    conditions: Sequence[Mapping[str, Any]] = before.get("conditions") or ()
    status: dict[str, Any] = {
        "observedGeneration": provisioner.metadata.generation,
        "currentSize": numbers.current,
        "targetSize": numbers.target,
        "utilizedNodes": numbers.used,
        "markedNodes": numbers.marked,
        "inFlight": numbers.in_flight,
        "utilizationPercent": numbers.utilization,
        "conditions": [
            condition("Ready", *ready, conditions, now),
            condition("Blocked", *blocked, conditions, now),
        ],
    }
    if numbers.next_deadline is not None:
        status["nextDeadline"] = rfc3339(numbers.next_deadline)
    last = decided or before.get("lastDecision")
    if last:
        status["lastDecision"] = dict(last)
    return status


def merged(
    before: tuple[ObjectCondition, ...] | None,
    wanted: Mapping[str, tuple[bool, str, str]],
    now: float,
) -> list[dict[str, Any]] | None:
    """Return an object's conditions with the wanted ones merged in; None if nothing changes."""
    known = {one.type: one for one in before or ()}
    changed = False
    found: dict[str, dict[str, Any]] = {
        one.type: {
            "type": one.type,
            "status": one.status,
            "reason": one.reason,
            "message": one.message,
            "lastTransitionTime": one.last_transition_time or rfc3339(now),
        }
        for one in before or ()
    }
    for kind, (holds, reason, message) in wanted.items():
        old = known.get(kind)
        status = "True" if holds else "False"
        if old is not None and (old.status, old.reason, old.message) == (status, reason, message):
            continue
        changed = True
        plain = [found[kind]] if kind in found else []
        found[kind] = condition(kind, holds, reason, message, plain, now)
    return list(found.values()) if changed else None
