"""Applies a plan to a snapshot, for tests of the plan after the next."""

from __future__ import annotations

from dataclasses import replace

from windlass.core.model.lifecycle import State
from windlass.core.model.plan import Plan
from windlass.core.model.snapshot import Bundle, Demand, Group, Node, Slice, Snapshot, amounts


def launches_on_their_way(snapshot: Snapshot, plan: Plan, state: State = State.BOOTING) -> Snapshot:
    """The launches boot, nothing has been placed yet, and the demand still waits."""
    return replace(snapshot, slices=(*_changed(snapshot, plan), *_new_slices(snapshot, plan, state)))


def everything_done(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The launches are ready, and what was placed runs where the plan put it."""
    slices = {item.id: item for item in (*_changed(snapshot, plan), *_new_slices(snapshot, plan, State.READY))}
    demands = {demand.id: demand for demand in snapshot.demands}
    for placement in plan.placements:
        item = slices[placement.on]
        busy = tuple(replace(node, tasks=node.tasks + 1, idle_since=None) for node in item.nodes)
        slices[placement.on] = replace(item, nodes=busy, state=State.READY)
    for target, item in slices.items():
        if any(placement.on == target for placement in plan.placements):
            # Which host took what is not told; a slice that got work offers nothing more.
            group = next(group for group in snapshot.groups if group.name == item.group)
            slices[target] = replace(item, nodes=tuple(replace(node, used=group.resources) for node in item.nodes))
    waiting = {item.demand: item.count for item in plan.waiting}
    left = tuple(_with_count(demands[name], waiting[name]) for name in demands if name in waiting)
    return replace(snapshot, slices=tuple(slices.values()), demands=left)


def _with_count(demand: Demand, count: int) -> Demand:
    return demand if demand.gang else replace(demand, bundles=(Bundle(demand.bundles[0].needs, count),))


def _changed(snapshot: Snapshot, plan: Plan) -> list[Slice]:
    cancelled, drained = ({change.slice for change in changes} for changes in (plan.cancel, plan.drain))
    back = {change.slice for change in plan.uncordon}
    unmarked = {change.slice for change in plan.unmark}
    marked = {change.slice: change.until for change in plan.mark}
    result = []
    for item in snapshot.slices:
        if item.id in cancelled:
            if item.state == State.QUEUED:
                continue
            item = replace(item, state=State.TERMINATING)
        elif item.id in drained:
            item = replace(item, state=State.CORDONED, marked_until=None)
        elif item.id in back:
            item = replace(item, state=State.READY)
        elif item.id in unmarked:
            item = replace(item, marked_until=None)
        elif item.id in marked:
            item = replace(item, marked_until=marked[item.id])
        result.append(item)
    return result


def _new_slices(snapshot: Snapshot, plan: Plan, state: State) -> list[Slice]:
    groups: dict[str, Group] = {group.name: group for group in snapshot.groups}
    names = [(launch.group, name) for launch in plan.launches for name in launch.names()]
    return [
        Slice(
            name,
            group,
            state,
            snapshot.now,
            None,
            tuple(Node(f"{name}/{host}", amounts({}), 0, snapshot.now) for host in range(groups[group].hosts)),
        )
        for group, name in names
    ]
