"""This module reports to users of Ray: a message to the GCS for ``ray status`` and the dashboard, and lines for
drivers. Pure.

Only what is impossible is reported as infeasible: Ray can be set to fail such tasks. What waits for a limit or for a
provider is printed by the drivers, with what would help.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from windlass.core.model.lifecycle import ENDED, ENDING, IN_FLIGHT, State
from windlass.core.model.plan import Plan, Waiting
from windlass.core.model.reasons import Code, plural
from windlass.workloads.protocol import DecidedSlice, DecisionReport

from . import wire_pb2 as wire
from .demand import GROUP, REQUEST, matches
from .nodes import RayNodes
from .shapes import needs_of, selectors_of

IMPOSSIBLE: Final = frozenset({Code.NO_SHAPE_FITS, Code.NO_LABEL_MATCH, Code.GANG_SHAPE})
NOT_REPORTED: Final = frozenset(
    {Code.RATE_LIMITED, Code.LAUNCHING, Code.BOOTING, Code.UNKNOWN_INPUT, Code.INVALID_DEMAND}
)
"""Reasons that end within moments, or that are reported elsewhere."""
KEPT: Final = 600.0
"""Seconds for which a failure is shown."""
MOST_FAILURES: Final = 20
_SINCE: Final = re.compile(r"^waits [^:]*: ")
_WENT_WRONG: Final = frozenset({Code.LOST, Code.REPLACE_FAILED, Code.PREEMPTED, Code.STOCKOUT, Code.QUOTA})
_ASKED: Final = frozenset({State.QUEUED, State.REQUESTING})

Message = wire.ResourceRequest | wire.GangResourceRequest


@dataclass(frozen=True, slots=True)
class FailedLaunch:
    """A launch that was refused, or a machine that never joined."""

    group: str
    why: str
    started: float
    failed: float


@dataclass(frozen=True, slots=True)
class ReportState:
    """What has been reported, as far as the next report depends on it."""

    coming: Mapping[str, DecidedSlice] = field(default_factory=dict)
    failures: tuple[FailedLaunch, ...] = ()
    lines: Mapping[str, str] = field(default_factory=dict)
    """What drivers have last printed about each demand: the part that must change for another line."""
    version: int = 0

    def after(self, decision: DecisionReport) -> ReportState:
        """Return the state with the launches that have failed since the last pass."""
        refused, failed = dict(decision.refused), list(self.failures)
        for name, before in self.coming.items():
            after = decision.slices.get(name)
            if name in refused:
                failed.append(FailedLaunch(before.group, refused[name], before.since, decision.now))
            elif after is not None and after.state in ENDING | ENDED and after.reason.code in _WENT_WRONG:
                why = f"it ended before it joined: {after.reason.why}"
                failed.append(FailedLaunch(before.group, why, before.since, decision.now))
        kept = tuple(one for one in failed if decision.now - one.failed < KEPT)[-MOST_FAILURES:]
        coming = {name: one for name, one in decision.slices.items() if one.state in IN_FLIGHT}
        return replace(self, coming=coming, failures=kept)


def autoscaling_state(
    plan: Plan,
    reported: ReportState,
    messages: Mapping[str, Message],
    constraints: Sequence[wire.ClusterResourceConstraint],
    nodes: RayNodes,
    seen: int,
    version: int,
) -> wire.AutoscalingState:
    """Return the report. ``seen``: the version of the cluster's state that was last read."""
    state = wire.AutoscalingState(
        last_seen_cluster_resource_state_version=seen,
        autoscaler_state_version=version,
        pending_instance_requests=[
            # One entry per slice: `ray status` counts entries.
            wire.PendingInstanceRequest(ray_node_type_name=one.group, count=1, request_ts=int(one.since))
            for one in reported.coming.values()
            if one.state in _ASKED
        ],
        pending_instances=[
            wire.PendingInstance(ray_node_type_name=one.group, instance_id=one.id, details=one.reason.why)
            for one in reported.coming.values()
            if one.state not in _ASKED
        ],
        failed_instance_requests=[
            wire.FailedInstanceRequest(
                ray_node_type_name=one.group,
                count=1,
                reason=one.why,
                start_ts=int(one.started),
                failed_ts=int(one.failed),
            )
            for one in reported.failures
        ],
    )
    for item in plan.waiting:
        if item.reason.code not in IMPOSSIBLE:
            continue
        message = messages.get(item.demand)
        if item.demand == REQUEST:
            state.infeasible_cluster_resource_constraints.extend(constraints)
        elif isinstance(message, wire.GangResourceRequest):
            state.infeasible_gang_resource_requests.append(message)
        elif message is not None and not _fits_a_node(message, nodes):
            state.infeasible_resource_requests.append(message)
    return state


def loosened(plan: Plan, preferring: Collection[str]) -> frozenset[str]:
    """Return the placement groups that the plan cannot serve in the way that they prefer."""
    return frozenset(
        item.demand for item in plan.waiting if item.demand in preferring and item.reason.code not in NOT_REPORTED
    )


def _fits_a_node(request: wire.ResourceRequest, nodes: RayNodes) -> bool:
    """Return whether a node of the cluster could run it when it is free, though none can be bought that could."""
    needs, own = needs_of(request.resources_bundle)
    selectors = selectors_of(request.label_selectors)
    return any(
        all(node.total.get(name, 0) >= amount for name, amount in needs) and matches(own, selectors, node.labels)
        for node in nodes.alive.values()
    )


def driver_lines(plan: Plan, reported: ReportState) -> tuple[ReportState, tuple[str, ...]]:
    """Return lines for every driver's terminal: what waits and why, once when it changes."""
    lines: list[str] = []
    known: dict[str, str] = {}
    for item in plan.waiting:
        if item.reason.code in NOT_REPORTED:
            continue
        why = _SINCE.sub("", item.reason.why)
        known[item.demand] = f"{item.reason.code} {sorted((name, one.code) for name, one in item.groups.items())}"
        if reported.lines.get(item.demand) != known[item.demand]:
            lines.append(f"windlass: {_who(item)}: {why}{_would_help(plan, item)}")
    return replace(reported, lines=known), tuple(lines)


def _who(item: Waiting) -> str:
    if item.demand == REQUEST:
        return "request_resources waits"
    if item.demand.startswith(GROUP):
        return f"placement group {item.demand.removeprefix(GROUP)} waits for {plural(item.count, 'bundle')}"
    return f"{plural(item.count, 'task')} {'waits' if item.count == 1 else 'wait'} for {item.demand}"


def _would_help(plan: Plan, item: Waiting) -> str:
    ways: Iterable[str] = [way.change for way in plan.unblocks.get(item.demand, ())][:1]
    return "".join(f"; would help: {way}" for way in ways)
