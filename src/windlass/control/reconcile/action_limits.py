"""Action limits bound what one pass carries out of a plan. Pure.

A group may limit a pass to the first kinds of action, in the order unmark, launch, drain, mark, and the number of
slices that may be leaving at once to save money. The next pass plans the rest again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from windlass.control.settings import GroupSettings, Settings
from windlass.control.state.fleet import SAVING, Fleet
from windlass.core.model.lifecycle import State
from windlass.core.model.plan import Change, Plan

LEAVING: Final = frozenset({State.CORDONED, State.DRAINING, State.TERMINATING})


def within_limits(plan: Plan, fleet: Fleet, settings: Settings) -> Plan:
    """Return the part of a plan that this pass carries out; the same plan where no group has limits."""
    limited = [one for one in settings.groups if one.actions_per_pass or one.max_leaving is not None]
    for configured in limited:
        plan = _first_actions(plan, fleet, configured)
        plan = _within_budget(plan, fleet, configured)
    return plan


def _first_actions(plan: Plan, fleet: Fleet, configured: GroupSettings) -> Plan:
    name, most = configured.group.name, configured.actions_per_pass
    if not most:
        return plan
    drains, marks = _of(plan.drain, fleet, name), _of(plan.mark, fleet, name)
    actions = {
        "unmark": bool(_of(plan.unmark, fleet, name)),
        "launch": any(one.group == name for one in plan.launches),
        "drain": bool(drains),
        "mark": bool(marks),
    }
    late = [kind for kind, planned in actions.items() if planned][most:]
    if "launch" in late:
        plan = replace(plan, launches=tuple(one for one in plan.launches if one.group != name))
    if "drain" in late:
        plan = replace(plan, drain=tuple(one for one in plan.drain if one not in drains))
    if "mark" in late:
        plan = replace(plan, mark=tuple(one for one in plan.mark if one not in marks))
    return plan


def _within_budget(plan: Plan, fleet: Fleet, configured: GroupSettings) -> Plan:
    """Return the plan without the drains beyond the limit of the group; the first ones by id are kept."""
    drains = [one for one in _of(plan.drain, fleet, configured.group.name) if one.reason.code in SAVING]
    if configured.max_leaving is None or not drains:
        return plan
    leaving = sum(one.group == configured.group.name and one.state in LEAVING for one in fleet.activity.active.values())
    over = drains[max(0, configured.max_leaving - leaving) :]
    return replace(plan, drain=tuple(one for one in plan.drain if one not in over)) if over else plan


def _of(changes: Iterable[Change], fleet: Fleet, group: str) -> list[Change]:
    found = []
    for one in changes:
        record = fleet.slices.get(one.slice)
        if record is not None and record.group == group:
            found.append(one)
    return found
