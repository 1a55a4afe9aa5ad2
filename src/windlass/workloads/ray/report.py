"""This module makes the report for ``ray status`` and the dashboard, and the lines that drivers print. Pure.

Only impossible demand is reported as infeasible, because Ray can be configured to fail such tasks. For demand that
waits for a limit or a provider, drivers print the reason and what would help.
"""

from __future__ import annotations

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
"""Reasons that pass within seconds, or that are reported elsewhere."""
KEPT: Final = 600.0
"""Seconds for which a failed launch is reported."""
MOST_FAILURES: Final = 20
_WENT_WRONG: Final = frozenset({Code.LOST, Code.REPLACE_FAILED, Code.PREEMPTED, Code.STOCKOUT, Code.QUOTA})
_ASKED: Final = frozenset({State.QUEUED, State.REQUESTING})

Message = wire.ResourceRequest | wire.GangResourceRequest


@dataclass(frozen=True, slots=True)
class FailedLaunch:
    """A launch that the provider refused, or a machine that ended before it joined."""

    group: str
    why: str
    started: float
    failed: float


@dataclass(frozen=True, slots=True)
class ReportState:
    """The state of reporting that the next report depends on."""

    coming: Mapping[str, DecidedSlice] = field(default_factory=dict)
    failures: tuple[FailedLaunch, ...] = ()
    lines: Mapping[str, str] = field(default_factory=dict)
    """By demand: the key of the line that drivers printed last; a new key prints a new line."""
    version: int = 0

    def after(self, decision: DecisionReport) -> ReportState:
        """Return the state after a pass, with the launches that have failed since the last one."""
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
    """Return the report to the GCS. ``seen``: the version of the cluster state that was read last."""
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
    """Return the placement groups that the plan cannot serve with their preferred placement."""
    return frozenset(
        item.demand for item in plan.waiting if item.demand in preferring and item.reason.code not in NOT_REPORTED
    )


def _fits_a_node(request: wire.ResourceRequest, nodes: RayNodes) -> bool:
    """Return whether a node of the cluster could run a task if it were free."""
    needs, own = needs_of(request.resources_bundle)
    selectors = selectors_of(request.label_selectors)
    return any(
        all(node.total.get(name, 0) >= amount for name, amount in needs) and matches(own, selectors, node.labels)
        for node in nodes.alive.values()
    )


def driver_lines(plan: Plan, reported: ReportState) -> tuple[ReportState, tuple[str, ...]]:
    """Return the lines that every driver prints: what waits and why, once per change."""
    lines: list[str] = []
    known: dict[str, str] = {}
    for item in plan.waiting:
        if item.reason.code in NOT_REPORTED:
            continue
        known[item.demand] = f"{item.reason.code} {sorted((name, one.code) for name, one in item.groups.items())}"
        if reported.lines.get(item.demand) != known[item.demand]:
            lines.append(f"windlass: {_who(item)}: {item.reason.why}{_would_help(plan, item)}")
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
