"""The decision document shows the last plan: launches, the group of each demand, and what waits and why."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from windlass.core.model.lifecycle import IN_FLIGHT
from windlass.core.model.quantities import exact_quantity
from windlass.core.model.snapshot import Demand

from .current import PlannedState


def decision_dict(planned: PlannedState) -> dict[str, Any]:
    """Returns the decision document.

    ``launch``: launches by group. ``routed``: demands and tasks by group. ``pending``: the free capacity of slices that
    are in flight or planned, after the tasks assigned to them. ``unmet``: demands that wait, each with its code.
    """
    plan, snapshot = planned.plan, planned.snapshot
    fleet = planned.controller_state.fleet
    launching: dict[str, str] = {}
    launches: Counter[str] = Counter()
    for launch in plan.launches:
        launches[launch.group] += launch.count
        launching |= dict.fromkeys(launch.names(), launch.group)
    coming = {name: one.group for name, one in fleet.activity.active.items() if one.planned_with.state in IN_FLIGHT}
    coming |= launching
    demands = {one.id: one for one in (*snapshot.demands, *snapshot.requests)}
    routed: dict[str, Counter[str]] = {}
    assigned: dict[str, Counter[str]] = {}
    used: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for one in plan.placements:
        record = fleet.slices.get(one.on)
        group = launching.get(one.on) if record is None else record.group
        if group is None:
            continue
        routed.setdefault(group, Counter())[one.demand] += one.count
        if one.on in coming:
            assigned.setdefault(group, Counter())[one.demand] += one.count
            for resource, amount in _needs(demands.get(one.demand), one.bundle):
                used[group][resource] += amount * one.count
    slices = Counter(coming.values())
    kinds = {one.name: one for one in snapshot.groups}
    return {
        "at": planned.controller_state.at,
        "launch": dict(sorted(launches.items())),
        "routed": {
            group: {"demands": dict(sorted(found.items())), "tasks": found.total()}
            for group, found in sorted(routed.items())
        },
        "pending": {
            group: {
                "slices": count,
                "remaining": {
                    resource: exact_quantity(amount * kinds[group].hosts * count - used[group][resource], resource)
                    for resource, amount in kinds[group].resources
                },
                "demands": dict(sorted(assigned.get(group, Counter()).items())),
            }
            for group, count in sorted(slices.items())
            if group in kinds
        },
        "unmet": [
            {"demand": one.demand, "tasks": one.count, "code": str(one.reason.code)}
            for one in sorted(plan.waiting, key=lambda one: one.demand)
        ],
    }


def _needs(demand: Demand | None, bundle: int | None) -> tuple[tuple[str, int], ...]:
    if demand is None or not demand.bundles:
        return ()
    return demand.bundles[bundle or 0].needs
