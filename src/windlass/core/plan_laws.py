"""``broken_laws`` checks a finished plan against the laws that every plan obeys.

It uses only the snapshot and the plan, not how the plan was made, and returns every law that is broken. Tests and
simulations call it after every plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from operator import attrgetter

from windlass.core.model.lifecycle import COUNTED, ENDING, IN_FLIGHT, OFFERING, RECALLABLE, State
from windlass.core.model.plan import Change, Plan
from windlass.core.model.reasons import (
    WHY_DEMAND_WAITS,
    WHY_GROUP_PASSED_OVER,
    WHY_SLICE_STARTS,
    WHY_SLICE_STAYS,
    WHY_SLICE_STOPS,
    Code,
    Reason,
)
from windlass.core.model.snapshot import Group, Slice, Snapshot

from .constraint_laws import constraints_hold

_COMING_BACK = {Code.DEMAND, Code.MIN, Code.SPARE, Code.REQUEST}
_CHANGED_IN = {
    "cancel": IN_FLIGHT,
    "drain": {State.READY},
    "uncordon": RECALLABLE,
    "mark": {State.READY},
    "unmark": {State.READY},
}
"""The lists of slices that a plan changes, with the states that each allows."""
_LISTS = (*_CHANGED_IN, "stays")
_BUSY_GROUP = attrgetter("busy_group")


class _Seen:
    """The slices of a snapshot for the laws.

    Plainly busy slices that the plan does not name, which are most slices of a large cluster, are only counted; the
    others are checked one by one.
    """

    def __init__(self, snapshot: Snapshot, plan: Plan) -> None:
        self.lists = {name: [change.slice for change in getattr(plan, name)] for name in _LISTS}
        self.targets = {placement.on for placement in plan.placements}
        busy_group = list(map(_BUSY_GROUP, snapshot.slices))
        self.busy_count = Counter(busy_group)
        """How many slices are plainly busy in each group."""
        groups = {group.name for group in snapshot.groups}
        self.others: list[Slice] = []
        if not self.busy_count.keys() <= groups:
            self.others = [one for one, group in zip(snapshot.slices, busy_group, strict=True) if group not in groups]
        self.named = {one.id: one for one in self.others}
        """By id; includes busy slices that get a task or are in a list."""
        more = self.targets.union(*self.lists.values()).difference(self.named)
        if more:
            self.named.update([(one.id, one) for one in snapshot.slices if one.id in more])

    def groups_of(self, changes: Iterable[Change]) -> list[tuple[Change, str]]:
        """Returns changes with the groups of their slices; a change of an unknown slice breaks a law of its own."""
        return [(one, self.named[one.slice].group) for one in changes if one.slice in self.named]


def broken_laws(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Returns every law that the plan breaks, as a sentence."""
    return (text for _, text in broken_invariants(snapshot, plan))


def broken_invariants(snapshot: Snapshot, plan: Plan) -> Iterator[tuple[str, str]]:
    """Returns every law that the plan breaks: its invariant (``S1`` to ``S15``), and a sentence."""
    seen = _Seen(snapshot, plan)
    checks = (
        ("S13", _every_slice_once(seen)),
        ("S13", _every_task_once(snapshot, plan)),
        ("S7", _gangs_are_whole(snapshot, plan)),
        ("S13", _nothing_lands_on_what_goes(seen, plan)),
        ("S13", _placed_tasks_fit(snapshot, seen, plan)),
        ("S13", constraints_hold(snapshot, plan)),
        ("S13", _launches_name_what_they_serve(snapshot, plan)),
        ("S3", _limits_hold(snapshot, seen, plan)),
        ("S2", _floors_hold(snapshot, seen, plan)),
        ("S8", _launch_or_release(seen, plan)),
        ("S1", _final_stays_final(seen, plan)),
        ("S2", _frozen_stays(snapshot, seen, plan)),
        ("S7", _held_for_a_gang_that_forms(snapshot, plan)),
        ("S13", _reasons_answer_their_question(snapshot, plan)),
    )
    return ((invariant, text) for invariant, texts in checks for text in texts)


def _every_slice_once(seen: _Seen) -> Iterator[str]:
    for name, listed_here in seen.lists.items():
        if listed_here != sorted(listed_here):
            yield f"{name} is not sorted by slice"
    listed = list(chain(*seen.lists.values()))
    listed_ids = set(listed)
    if len(listed_ids) != len(listed) or not listed_ids <= seen.named.keys():
        yield f"not every slice is in exactly one list: {sorted(listed)}"
    # A slice that the plan does not name is kept because it is busy; these are only counted.
    for one in seen.others:
        if one.id not in listed_ids and (not one.busy or one.state != State.READY):
            yield f"{one.id} stays without a reason"
    for name, allowed in _CHANGED_IN.items():
        for slice_id in seen.lists[name]:
            state = seen.named[slice_id].state if slice_id in seen.named else None
            if state not in allowed:
                yield f"{name} of {slice_id}, which is {state}"


def _every_task_once(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    placed: dict[str, int] = {}
    for placement in plan.placements:
        placed[placement.demand] = placed.get(placement.demand, 0) + placement.count
        if placement.count < 1:
            yield f"{placement} places nothing"
    waiting = {item.demand: item.count for item in plan.waiting}
    for demand in snapshot.demands:
        here, there = placed.get(demand.id, 0), waiting.get(demand.id, 0)
        if here + there != demand.count:
            yield f"{demand.id}: {here} placed and {there} waiting of {demand.count}"
    order = [(one.demand, one.on, -1 if one.bundle is None else one.bundle) for one in plan.placements]
    if order != sorted(set(order)):
        yield "placements are not sorted, or name the same twice"
    gangs = {demand.id for demand in snapshot.demands if demand.gang}
    if any((one.bundle is None) == (one.demand in gangs) for one in plan.placements):
        yield "a placement of a gang does not say its bundle, or one of a single task does"
    if [item.demand for item in plan.waiting] != sorted(item.demand for item in plan.waiting):
        yield "waiting is not sorted by demand"


def _gangs_are_whole(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    gangs = {demand.id for demand in snapshot.demands if demand.gang}
    if not gangs:
        return
    placed = Counter[str]()
    for placement in plan.placements:
        if placement.demand in gangs:
            placed[placement.demand] += placement.count
    for item in plan.waiting:
        if item.count and placed[item.demand]:
            yield f"gang {item.demand} is split: {placed[item.demand]} placed, {item.count} waiting"


def _nothing_lands_on_what_goes(seen: _Seen, plan: Plan) -> Iterator[str]:
    if not seen.targets:
        return
    new = {name for launch in plan.launches for name in launch.names()}
    for change in (*plan.cancel, *plan.drain, *plan.mark):
        if change.slice in seen.targets:
            yield f"{change.slice} gets tasks and goes ({change.reason.code})"
    back = {change.slice for change in (*plan.uncordon, *plan.unmark)}
    for target in sorted(seen.targets):
        item = seen.named.get(target)
        if item is None:
            if target not in new:
                yield f"placed on unknown {target}"
        elif item.state in ENDING:
            yield f"{target} gets tasks and is {item.state}"
        elif item.final:
            yield f"{target} gets tasks, and its {item.state} is final"
        elif (item.state in RECALLABLE or item.marked_until is not None) and target not in back:
            yield f"{target} gets tasks and is not called back"


def _placed_tasks_fit(snapshot: Snapshot, seen: _Seen, plan: Plan) -> Iterator[str]:
    """Checks that the tasks placed on a slice need in sum at most what is free there: necessary, and computed without
    ``Room``."""
    if not seen.targets:
        return
    demands = {demand.id: demand for demand in snapshot.demands}
    load: dict[str, dict[str, int]] = {}
    for placement in plan.placements:
        demand = demands[placement.demand]
        needs = load.setdefault(placement.on, {})
        for name, amount in demand.bundles[placement.bundle or 0].needs:
            needs[name] = needs.get(name, 0) + amount * placement.count
    groups, bought = {group.name: group for group in snapshot.groups}, plan.group_of_new
    for target, needs in load.items():
        item = seen.named.get(target)
        name_of_group = item.group if item else bought.get(target)
        if name_of_group is None:
            yield f"{target} gets tasks, and the plan does not launch it"
            continue
        free = _free(groups[name_of_group], item)
        for name, amount in sorted(needs.items()):
            if amount > free.get(name, 0):
                yield f"{target} gets {amount} {name} and has {free.get(name, 0)}"


def _free(group: Group, item: Slice | None) -> dict[str, int]:
    if item is None or item.state in IN_FLIGHT:
        return {name: amount * group.hosts for name, amount in group.resources}
    healthy = [node for node in item.nodes if node.healthy]
    free = {name: amount * len(healthy) for name, amount in group.resources}
    for node in healthy:
        for name, amount in node.used:
            free[name] = free.get(name, 0) - amount
    return free


def _limits_hold(snapshot: Snapshot, seen: _Seen, plan: Plan) -> Iterator[str]:
    if not plan.launches:
        return
    groups = {group.name: group for group in snapshot.groups}
    cancelled = {change.slice for change in plan.cancel}
    counted = [s for s in seen.others if s.state in COUNTED and not (s.state == State.QUEUED and s.id in cancelled)]
    have = seen.busy_count.copy()
    have.update([item.group for item in counted])
    in_flight = Counter(item.group for item in counted if item.state in IN_FLIGHT and item.id not in cancelled)
    gangs = {demand.id for demand in snapshot.demands if demand.gang}
    gang_placed = {placement.on for placement in plan.placements if placement.demand in gangs}
    with_gang = {launch.group for launch in plan.launches if not gang_placed.isdisjoint(launch.names())}
    for name, count in plan.launch.items():
        group = groups[name]
        if have[name] + count > group.max:
            yield f"{count} {name} launched beside {have[name]}, max {group.max}"
        by_gang = name in with_gang and group.max_launching != 0
        if group.max_launching is not None and in_flight[name] + count > group.max_launching and not by_gang:
            yield f"{count} {name} launched beside {in_flight[name]} in flight, max_launching {group.max_launching}"
    for family in snapshot.cluster.families:
        mine = [group.name for group in snapshot.groups if group.family == family.name]
        launched = sum(plan.launch.get(name, 0) for name in mine)
        there = sum(have[name] for name in mine)
        if launched and there + launched > family.max:
            yield f"{launched} of family {family.name} launched beside {there}, max {family.max}"
    nodes = sum(groups[name].hosts * count for name, count in have.items() if name in groups)
    nodes += sum(item.taken_nodes for item in counted if item.group not in groups)
    nodes += sum(groups[name].hosts * count for name, count in plan.launch.items())
    if snapshot.cluster.max_nodes is not None and nodes > snapshot.cluster.max_nodes:
        yield f"{nodes} nodes, max {snapshot.cluster.max_nodes}"
    cost = sum((groups[name].price or 0) * count for name, count in have.items() if name in groups)
    cost += sum(item.price for item in counted if item.group not in groups)
    added = sum((groups[name].price or 0) * count for name, count in plan.launch.items())
    if snapshot.cluster.max_hourly_cost is not None and added and cost + added > snapshot.cluster.max_hourly_cost:
        yield f"{cost + added} nanodollars per hour, ceiling {snapshot.cluster.max_hourly_cost}"


def _floors_hold(snapshot: Snapshot, seen: _Seen, plan: Plan) -> Iterator[str]:
    """Checks that releases never go below ``min``, and never include a protected slice."""
    gone = [change.slice for change in (*plan.cancel, *plan.drain)]
    if not gone:
        return
    leaving = [seen.named[name] for name in gone if name in seen.named]
    back, busy_count = set(seen.lists["uncordon"]), seen.busy_count
    for group in snapshot.groups:
        released = [item.id for item in leaving if item.group == group.name]
        if not released:
            continue
        mine = [item for item in seen.others if item.group == group.name]
        live = [item.id in back or (item.state in OFFERING and not item.final) for item in mine]
        released = [item.id for item in leaving if item.group == group.name and not item.final]
        before = busy_count[group.name] + sum(live)
        if released and before - len(released) < group.min:
            yield f"{group.name}: {released} go, {before - len(released)} stay, min {group.min}"
        yield from (f"{name} is protected and goes" for name in released if name in group.protected)
    above = {change.slice for change in (*plan.cancel, *plan.drain) if change.reason.code == Code.OVER_MAX}
    for family in snapshot.cluster.families:
        names = {group.name for group in snapshot.groups if group.family == family.name}
        # Slices above the max of their own group are released whatever the family needs.
        released = [item.id for item in leaving if item.group in names and not item.final and item.id not in above]
        here = [item for item in seen.others if item.group in names and item.id not in above]
        before = sum(busy_count[name] for name in names)
        before += sum(item.id in back or (item.state in OFFERING and not item.final) for item in here)
        if released and before - len(released) < family.min:
            yield f"family {family.name}: {released} go, {before - len(released)} stay, min {family.min}"


def _launch_or_release(seen: _Seen, plan: Plan) -> Iterator[str]:
    """Checks that no plan launches and releases the same group, except for consolidation."""
    bought = {launch.group for launch in plan.launches if launch.reason.code != Code.CONSOLIDATE}
    for change, group in seen.groups_of((*plan.cancel, *plan.drain, *plan.mark)):
        is_final = seen.named[change.slice].final
        if group in bought and change.reason.code not in (Code.CONSOLIDATE, Code.OVER_MAX) and not is_final:
            yield f"{group} is launched, and {change.slice} goes ({change.reason.code})"


def _final_stays_final(seen: _Seen, plan: Plan) -> Iterator[str]:
    """Checks that a final cordon, drain or mark is never taken back."""
    for change in (*plan.uncordon, *plan.unmark):
        item = seen.named.get(change.slice)
        if item is not None and item.final:
            yield f"{change.slice} is {item.state} finally, and is called back ({change.reason.code})"


def _frozen_stays(snapshot: Snapshot, seen: _Seen, plan: Plan) -> Iterator[str]:
    """Checks that nothing is launched in a frozen group, nothing of it is released, and only demand removes a mark."""
    frozen = {group.name for group in snapshot.groups if group.frozen}
    if not frozen:
        return
    yield from (f"{name} is frozen and launched" for name in plan.launch if name in frozen)
    rules = [change for change in plan.unmark if change.reason.code != Code.DEMAND]
    for change, group in seen.groups_of((*plan.cancel, *plan.drain, *plan.mark, *rules)):
        if group in frozen:
            yield f"{group} is frozen, and {change.slice} is changed ({change.reason.code})"


def _launches_name_what_they_serve(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Checks that a launch names the tasks placed on its slices, by demand; or, if there are none yet, for whom it
    is."""
    if not plan.launches:
        return
    launch_of = {name: launch for launch in plan.launches for name in launch.names()}
    placed: dict[tuple[str, int], Counter[str]] = {(one.group, one.first): Counter() for one in plan.launches}
    for placement in plan.placements:
        if (launch := launch_of.get(placement.on)) is not None:
            placed[launch.group, launch.first][placement.demand] += placement.count
    known = {demand.id for demand in (*snapshot.demands, *snapshot.requests)}
    for launch in plan.launches:
        serves = {name: count for name, count in launch.demands.items() if count}
        gets = dict(placed[launch.group, launch.first])
        if serves != gets:
            yield f"{launch.group} is launched for {serves}, and gets {gets}"
        for name in sorted(launch.demands.keys() - known):
            yield f"{launch.group} is launched for {name}, which is not there"
        # Another planner, such as one in the benchmarks, may give no placements at all.
        if launch.reason.code in (Code.DEMAND, Code.REQUEST) and not launch.demands and plan.placements:
            yield f"{launch.group} is launched for nothing: {launch.reason}"


def _held_for_a_gang_that_forms(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Checks that a slice is held only for a gang that may still start whole; at its deadline its slices are
    released."""
    for_a_gang = Code.GANG_HELD
    held = [change for change in plan.stays if change.reason.code is for_a_gang]
    if not held:
        return
    forming = {
        demand.id
        for demand in snapshot.demands
        if demand.gang and (demand.deadline is None or plan.now < demand.deadline)
    }
    for change in held:
        if change.gang not in forming:
            yield f"{change.slice} is held for a gang that forms no more: {change.reason.why}"


def _reasons_answer_their_question(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    questions = (
        ("stops", (*plan.cancel, *plan.drain, *plan.mark), WHY_SLICE_STOPS),
        ("stays", plan.stays, WHY_SLICE_STAYS),
        ("comes back", plan.uncordon, _COMING_BACK),
        ("is unmarked", plan.unmark, WHY_SLICE_STAYS | _COMING_BACK),
    )
    for question, changes, allowed in questions:
        wrong = [one for one in changes if (reason := one.reason).code not in allowed or not reason.why]
        yield from (f"{change.slice} {question} with {change.reason}" for change in wrong)
    for launch in plan.launches:
        if launch.reason.code not in WHY_SLICE_STARTS or not launch.reason.why:
            yield f"{launch.group} starts with {launch.reason}"
        yield from _passed_over(launch.group, launch.passed_over.values())
    names = {group.name for group in snapshot.groups}
    for item in plan.waiting:
        if item.reason.code not in WHY_DEMAND_WAITS or not item.reason.why:
            yield f"{item.demand} waits with {item.reason}"
        if item.groups.keys() != names:
            yield f"{item.demand} does not have one entry per group"
        if item.reason.code not in (Code.GANG_FORMING, Code.INVALID_DEMAND, Code.NOT_TAKEN, Code.UNKNOWN_INPUT):
            yield from _passed_over(item.demand, item.groups.values())


def _passed_over(what: str, reasons: Iterable[Reason]) -> Iterator[str]:
    for reason in reasons:
        if reason.code not in WHY_GROUP_PASSED_OVER or not reason.why:
            yield f"{what}: a group was passed over with {reason}"
