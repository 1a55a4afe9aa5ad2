"""This module turns an observation into a plan, for the controller, shadow mode, ``plan --live``, reports, simulator.

``observed_now`` merges an observation into the tables of the last one. ``fold_and_plan`` applies them to the fleet and
plans. ``plan_fleet`` plans a fleet without a new observation. ``snapshot_of`` makes the planner's input: every slice,
the availability of each group, what waits. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from windlass._gc_pause import uncollected
from windlass.control.observe.observed import WORKLOAD, Observed, observed_after
from windlass.control.observe.observer import Observation
from windlass.control.record.controller_state import SETTINGS, ControllerState
from windlass.control.settings import Settings
from windlass.control.state.fleet import Fleet, Refused
from windlass.core.model.plan import Plan
from windlass.core.model.snapshot import Demand, Group, Slice, Snapshot
from windlass.core.planner import plan

from .provider_health import NOTHING_KNOWN, availability_of
from .transitions import NEVER_LISTED, Fold, fold

NO_ERRORS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class FoldedPlan:
    """The fleet after an observation, and its plan."""

    fold: Fold
    snapshot: Snapshot | None
    """None: the workload did not answer, and without it nothing can be planned."""
    plan: Plan | None


def observed_now(
    before: ControllerState, observation: Observation, settings: Settings, errors: Mapping[str, str] = NO_ERRORS
) -> Observed:
    """Return the observation tables after a new observation. ``errors``: errors of calls, in addition to those of
    sources.
    """
    was = before.settings.get(SETTINGS)
    return observed_after(
        before.observed, observation.instances, observation.work, {**errors, **observation.problems}, was, settings
    )


def fold_and_plan(
    fleet: Fleet,
    observed: Observed,
    settings: Settings,
    now: float,
    *,
    refused: Sequence[Refused] = (),
    touched: Collection[str] | None = None,
    listed_before: Mapping[str, float] = NEVER_LISTED,
    planner: Callable[[Snapshot], Plan] = plan,
) -> FoldedPlan:
    """Apply observations to the fleet, and plan unless the workload is unknown. ``touched`` and ``listed_before`` are
    those of ``fold``.
    """
    folded = fold(fleet, observed, settings, now, refused, touched, listed_before)
    if WORKLOAD in observed.unknown:
        return FoldedPlan(folded, None, None)
    return FoldedPlan(folded, *plan_fleet(folded.fleet, observed, settings, now, planner))


def plan_fleet(
    fleet: Fleet, observed: Observed, settings: Settings, now: float, planner: Callable[[Snapshot], Plan] = plan
) -> tuple[Snapshot, Plan]:
    """Plan a fleet for the demand that was last observed."""
    snapshot = snapshot_of(fleet, observed.demand.values(), observed.request.values(), settings, now)
    with uncollected(len(snapshot.demands)):
        return snapshot, planner(snapshot)


def snapshot_of(
    fleet: Fleet, demands: Iterable[Demand], requests: Iterable[Demand], settings: Settings, now: float
) -> Snapshot:
    """Return everything that the planner depends on."""
    held = frozenset([record.id for record in fleet.activity.active.values() if record.quarantine])
    return Snapshot(
        groups=tuple([_with_beliefs(one.group, fleet, settings, held, now) for one in settings.groups]),
        slices=_slices(fleet, settings),
        demands=tuple(demands),
        requests=tuple(requests),
        cluster=settings.cluster,
        now=now,
    )


def _slices(fleet: Fleet, settings: Settings) -> tuple[Slice, ...]:
    """Return the slices for the planner. Slices of removed groups carry their own counts for the limits."""
    known, activity, slices = settings.by_name, fleet.activity, fleet.planned_with
    if all(group in known for group in activity.steady) and all(one.group in known for one in activity.active.values()):
        return tuple(slices.values())
    return tuple(
        one if one.group in known else replace(one, hosts=fleet.slices[name].hosts, price=fleet.slices[name].price)
        for name, one in slices.items()
    )


def _with_beliefs(group: Group, fleet: Fleet, settings: Settings, held: frozenset[str], now: float) -> Group:
    """Return a group with its provider's availability, the slices that are held, and whether it is frozen.

    The same object if none of these applies.
    """
    if settings.final_cordons and group.scale_down is not None and group.scale_down.consolidate:
        # Work cannot be moved off a node whose workload refuses the cordon while it runs.
        group = replace(group, scale_down=replace(group.scale_down, consolidate=False))
    provider_health = fleet.provider_health.get(group.name)
    frozen = fleet.is_frozen(group.name, group.family) or group.frozen
    known = NOTHING_KNOWN if provider_health is None else availability_of(provider_health, settings.policy.backoff, now)
    if not held and known == group.availability and frozen == group.frozen:
        return group
    return replace(group, availability=known, protected=group.protected | held, frozen=frozen)
