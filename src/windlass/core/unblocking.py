"""What would unblock waiting demand: the planner is asked again with one thing changed at a time.

Each suggestion is true: it is kept only if a plan of the changed snapshot leaves nothing of the demand waiting. A limit
is first lifted altogether, which shows how far it must be raised, and then raised just so far. Where several limits
bind at once and no single change is enough, the limits that one group needs are raised together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from .conditions import Condition, Toleration, untolerated
from .lifecycle import COUNTED, IN_FLIGHT, State
from .plan import Plan, Unblock, Waiting
from .quantities import NANO, format_money, format_quantity
from .reasons import TRANSIENT, Code, nearest_names
from .snapshot import Amounts, Availability, Bundle, Cluster, Demand, Gang, Group, Snapshot

Replan = Callable[[Snapshot], Plan]

MOST_REPLANS: Final = 400
"""What-if plans for one plan at the most, when it is small."""
WORK: Final = 200_000
"""Slices and demands that all what-if plans together may look at: a large plan gets fewer of them."""
MOST_TOLD: Final = 5
"""Ways out that are told for one demand."""
LIFTED: Final = 10**6


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of a snapshot: in words, as a setting of the scenario file, and done."""

    change: str
    path: tuple[str, ...]
    """Where in the scenario file; a demand is named by its id."""
    value: Any
    apply: Callable[[Snapshot], Snapshot]


class _Spent(Exception):
    """No more what-if plans for this plan."""


class Unblocker:
    """Finds ways out for the waiting demand of one plan, within a fixed number of what-if plans."""

    def __init__(self, snapshot: Snapshot, plan: Plan, replan: Replan) -> None:
        self.snapshot, self.plan = snapshot, plan
        self._replan = replan
        size = len(snapshot.slices) + len(snapshot.demands) + len(snapshot.groups)
        self._left = max(8, min(MOST_REPLANS, WORK // (size + 1)))
        self._requests = {request.id for request in snapshot.requests}
        self._demands = {demand.id: demand for demand in (*snapshot.requests, *snapshot.demands)}

    def all(self) -> Mapping[str, tuple[Unblock, ...]]:
        """For each waiting demand: the changes that would place it, the smallest first."""
        found: dict[str, tuple[Unblock, ...]] = {}
        try:
            for waiting in self.plan.waiting:
                found[waiting.demand] = self.ways_out(waiting)
        except _Spent:
            pass
        return found

    def ways_out(self, waiting: Waiting) -> tuple[Unblock, ...]:
        demand = self._demands[waiting.demand]
        singles: dict[str, Unblock] = {}
        for edit in self._edits(demand, waiting):
            unblock = self._if_true(demand, (edit,))
            if unblock is not None:
                singles.setdefault(unblock.change, unblock)
            if len(singles) == MOST_TOLD:
                break
        if not singles:
            singles = {unblock.change: unblock for unblock in self._together(demand, waiting)}
        return tuple(singles.values())

    def _ask(self, snapshot: Snapshot) -> Plan:
        if self._left <= 0:
            raise _Spent
        self._left -= 1
        return self._replan(snapshot)

    def _places(self, demand: Demand, snapshot: Snapshot) -> Plan | None:
        plan = self._ask(snapshot)
        return None if any(item.demand == demand.id for item in plan.waiting) else plan

    def _if_true(self, demand: Demand, edits: tuple[Edit, ...]) -> Unblock | None:
        snapshot = self.snapshot
        for edit in edits:
            snapshot = edit.apply(snapshot)
        plan = self._places(demand, snapshot)
        if plan is None:
            return None
        cost = plan.hourly_cost.planned - self.plan.hourly_cost.planned
        return Unblock(
            " and ".join(edit.change for edit in edits), tuple((self._path(edit), edit.value) for edit in edits), cost
        )

    def _path(self, edit: Edit) -> tuple[str, ...]:
        """Standing requests have the keys of a demand, in a section of their own."""
        section, name, *_ = edit.path
        return ("requests", *edit.path[1:]) if section == "demands" and name in self._requests else edit.path

    # -- candidates, the smallest change first ----------------------------------------------------------------------

    def _edits(self, demand: Demand, waiting: Waiting) -> Iterator[Edit]:
        """Single changes that might help: the typing error first, then what passes by itself, then limits."""
        by_code = self._groups_by_code(waiting)
        if waiting.reason.code == Code.GANG_FORMING and demand.deadline is not None:
            without = _on_demand(demand, lambda d: replace(d, deadline=None))
            yield Edit("no deadline", ("demands", demand.id, "deadline"), None, without)
        if Code.NO_LABEL_MATCH in by_code:
            yield from self._mended_conditions(demand)
        for code in sorted(TRANSIENT - {Code.RATE_LIMITED}):
            for group in by_code.get(code, ()):
                yield _available(group)
        if Code.RATE_LIMITED in by_code:
            yield from self._raised_rates(demand, by_code[Code.RATE_LIMITED])
        for group in by_code.get(Code.AT_MAX, ()):
            yield from self._raised_max(demand, group)
        if Code.MAX_NODES in by_code:
            yield from self._raised_nodes(demand)
        if Code.BUDGET in by_code:
            yield from self._raised_budget(demand)
        yield from self._edits_of_demand(demand, waiting)

    def _groups_by_code(self, waiting: Waiting) -> dict[Code, list[Group]]:
        groups = {group.name: group for group in self.snapshot.groups}
        by_code: dict[Code, list[Group]] = {}
        for name, reason in sorted(waiting.groups.items()):
            by_code.setdefault(reason.code, []).append(groups[name])
        return by_code

    def _edits_of_demand(self, demand: Demand, waiting: Waiting) -> Iterator[Edit]:
        """Changes of what the demand itself asks for."""
        by_code = self._groups_by_code(waiting)
        if Code.NO_LABEL_MATCH in by_code:
            yield from self._mended_conditions(demand)
        for group in by_code.get(Code.NOT_TOLERATED, ()):
            yield _tolerated(demand, group)
        if Code.NO_LABEL_MATCH in by_code:
            yield from _dropped_conditions(demand)
        if Code.GANG_SHAPE in by_code:
            yield from _reshaped(demand, by_code[Code.GANG_SHAPE])
        nowhere = {name for bundle in demand.bundles for name, _ in bundle.needs} - {
            name for group in self.snapshot.groups for name, _ in group.resources
        }
        for group in by_code.get(Code.TOO_SMALL, ()):
            edit = _smaller(demand, group, nowhere)
            if edit is not None:
                yield edit

    def _raised_max(self, demand: Demand, group: Group) -> Iterator[Edit]:
        lifted = self._places(demand, _set_group(self.snapshot, replace(group, max=LIFTED)))
        if lifted is not None:
            yield _new_max(group, self._counted(group, lifted) + lifted.launch.get(group.name, 0))

    def _counted(self, group: Group, plan: Plan) -> int:
        """Slices that count for the group's max beside those that the plan launches."""
        cancelled = {change.slice for change in plan.cancel}
        mine = [s for s in self.snapshot.slices if s.group == group.name and s.state in COUNTED]
        return sum(not (s.state == State.QUEUED and s.id in cancelled) for s in mine)

    def _raised_rates(self, demand: Demand, groups: list[Group]) -> Iterator[Edit]:
        flying = [s.group for s in self.snapshot.slices if s.state in IN_FLIGHT]
        for group in groups:
            if group.max_launching is not None:
                lifted = self._places(demand, _set_group(self.snapshot, replace(group, max_launching=None)))
                if lifted is not None:
                    yield _new_rate(group, flying.count(group.name) + lifted.launch.get(group.name, 0))
        if self.snapshot.cluster.max_launching is not None:
            lifted = self._places(demand, _set_cluster(self.snapshot, max_launching=None))
            if lifted is not None:
                yield _new_cluster_rate(self.snapshot.cluster, len(flying) + sum(lifted.launch.values()))

    def _raised_nodes(self, demand: Demand) -> Iterator[Edit]:
        lifted = self._places(demand, _set_cluster(self.snapshot, max_nodes=None))
        if lifted is not None:
            yield _new_nodes(self.snapshot.cluster, committed(self.snapshot, lifted)[0])

    def _raised_budget(self, demand: Demand) -> Iterator[Edit]:
        lifted = self._places(demand, _set_cluster(self.snapshot, max_hourly_cost=None))
        if lifted is not None:
            yield _new_budget(self.snapshot.cluster, committed(self.snapshot, lifted)[1])

    def _mended_conditions(self, demand: Demand) -> Iterator[Edit]:
        """Conditions whose value nobody has, with the value that was probably meant."""
        everywhere = [group.node_labels() for group in self.snapshot.groups]
        for index, condition in enumerate(demand.where):
            if condition.op not in ("==", "in"):
                continue
            known = {labels[condition.key] for labels in everywhere if condition.key in labels}
            if known & set(condition.values):
                continue
            for meant in dict.fromkeys(name for value in condition.values for name in nearest_names(value, known)):
                mended = Condition(condition.key, "==", (meant,))
                where = (*demand.where[:index], mended, *demand.where[index + 1 :])
                yield _where(demand, where, f"{condition} -> {mended}")

    def _together(self, demand: Demand, waiting: Waiting) -> Iterator[Unblock]:
        """Every limit that one group needs, raised at once, if need be beside a change of the demand itself."""
        own = list(self._edits_of_demand(demand, waiting))
        for first in ((), *((edit,) for edit in own)):
            found = []
            for group in sorted(self.snapshot.groups, key=lambda group: group.name):
                free = replace(group, max=LIFTED, max_launching=None, availability=Availability())
                lifted_snapshot = _set_cluster(
                    _set_group(self.snapshot, free), max_nodes=None, max_hourly_cost=None, max_launching=None
                )
                for edit in first:
                    lifted_snapshot = edit.apply(lifted_snapshot)
                lifted = self._places(demand, lifted_snapshot)
                if lifted is None:
                    continue
                unblock = self._if_true(demand, (*first, *self._needed(group, lifted)))
                if unblock is not None:
                    found.append(unblock)
            if found:
                yield min(found, key=lambda unblock: (unblock.hourly_cost, unblock.change))
                return

    def _needed(self, group: Group, lifted: Plan) -> Iterator[Edit]:
        """The limits that a plan without limits goes beyond, each raised just so far."""
        snapshot, cluster = self.snapshot, self.snapshot.cluster
        have = self._counted(group, lifted)
        flying = [s.group for s in snapshot.slices if s.state in IN_FLIGHT]
        launched = lifted.launch.get(group.name, 0)
        nodes, cost = committed(snapshot, lifted)
        if have + launched > group.max:
            yield _new_max(group, have + launched)
        if group.max_launching is not None and flying.count(group.name) + launched > group.max_launching:
            yield _new_rate(group, flying.count(group.name) + launched)
        if group.availability.state != "available":
            yield _available(group)
        if cluster.max_launching is not None and len(flying) + sum(lifted.launch.values()) > cluster.max_launching:
            yield _new_cluster_rate(cluster, len(flying) + sum(lifted.launch.values()))
        if cluster.max_nodes is not None and nodes > cluster.max_nodes:
            yield _new_nodes(cluster, nodes)
        if cluster.max_hourly_cost is not None and cost > cluster.max_hourly_cost:
            yield _new_budget(cluster, cost)


def committed(snapshot: Snapshot, plan: Plan) -> tuple[int, int]:
    """Nodes and nanodollars per hour that the ceilings count once the plan is carried out."""
    groups = {group.name: group for group in snapshot.groups}
    cancelled = {change.slice for change in plan.cancel}
    nodes = cost = 0
    for item in snapshot.slices:
        if item.state not in COUNTED or (item.state == State.QUEUED and item.id in cancelled):
            continue
        group = groups.get(item.group)
        nodes += group.hosts if group else max(len(item.nodes), 1)
        cost += (group.price or 0) if group else 0
    for name, count in plan.launch.items():
        nodes += groups[name].hosts * count
        cost += (groups[name].price or 0) * count
    return nodes, cost


# -- the edits -----------------------------------------------------------------------------------------------------


def _set_group(snapshot: Snapshot, group: Group) -> Snapshot:
    groups = tuple(group if one.name == group.name else one for one in snapshot.groups)
    return replace(snapshot, groups=groups)


def _set_cluster(snapshot: Snapshot, **changes: Any) -> Snapshot:
    return replace(snapshot, cluster=replace(snapshot.cluster, **changes))


def _on_demand(demand: Demand, change: Callable[[Demand], Demand]) -> Callable[[Snapshot], Snapshot]:
    def apply(snapshot: Snapshot) -> Snapshot:
        demands = tuple(change(one) if one.id == demand.id else one for one in snapshot.demands)
        requests = tuple(change(one) if one.id == demand.id else one for one in snapshot.requests)
        return replace(snapshot, demands=demands, requests=requests)

    return apply


def _new_max(group: Group, value: int) -> Edit:
    return Edit(
        f"max of {group.name} {group.max} -> {value}",
        ("groups", group.name, "max"),
        value,
        lambda snapshot: _set_group(snapshot, replace(_group(snapshot, group.name), max=value)),
    )


def _new_rate(group: Group, value: int) -> Edit:
    return Edit(
        f"max_launching of {group.name} {group.max_launching} -> {value}",
        ("groups", group.name, "max_launching"),
        value,
        lambda snapshot: _set_group(snapshot, replace(_group(snapshot, group.name), max_launching=value)),
    )


def _available(group: Group) -> Edit:
    until = group.availability.until
    when = "" if until is None else f" (expected at {until:g})"
    return Edit(
        f"{group.name} available again{when}",
        ("groups", group.name, "availability"),
        {"state": "available"},
        lambda snapshot: _set_group(snapshot, replace(_group(snapshot, group.name), availability=Availability())),
    )


def _new_cluster_rate(cluster: Cluster, value: int) -> Edit:
    return Edit(
        f"the cluster's max_launching {cluster.max_launching} -> {value}",
        ("cluster", "max_launching"),
        value,
        lambda snapshot: _set_cluster(snapshot, max_launching=value),
    )


def _new_nodes(cluster: Cluster, value: int) -> Edit:
    return Edit(
        f"the cluster's max_nodes {cluster.max_nodes} -> {value}",
        ("cluster", "max_nodes"),
        value,
        lambda snapshot: _set_cluster(snapshot, max_nodes=value),
    )


def _new_budget(cluster: Cluster, cost: int) -> Edit:
    cent = NANO // 100
    value = -(-cost // cent) * cent
    return Edit(
        f"the cost ceiling {format_money(cluster.max_hourly_cost or 0)}/h -> {format_money(value)}/h",
        ("cluster", "max_hourly_cost"),
        value / NANO,
        lambda snapshot: _set_cluster(snapshot, max_hourly_cost=value),
    )


def _group(snapshot: Snapshot, name: str) -> Group:
    return next(group for group in snapshot.groups if group.name == name)


def _tolerated(demand: Demand, group: Group) -> Edit:
    taints = [taint for taint in untolerated(group.taints, demand.tolerates) if taint.effect != "PreferNoSchedule"]
    more = tuple(Toleration(taint.key, "Equal", taint.value, taint.effect) for taint in taints)
    tolerates = (*demand.tolerates, *more)
    value = [{"key": t.key, "operator": t.operator, "value": t.value, "effect": t.effect or None} for t in tolerates]
    value = [{key: text for key, text in entry.items() if text} for entry in value]
    return Edit(
        "tolerate " + ", ".join(map(str, taints)),
        ("demands", demand.id, "tolerates"),
        value,
        _on_demand(demand, lambda d: replace(d, tolerates=tolerates)),
    )


def _where(demand: Demand, where: tuple[Condition, ...], change: str) -> Edit:
    return Edit(
        change,
        ("demands", demand.id, "where"),
        [str(condition) for condition in where],
        _on_demand(demand, lambda d: replace(d, where=where)),
    )


def _dropped_conditions(demand: Demand) -> Iterator[Edit]:
    for index, condition in enumerate(demand.where):
        yield _where(demand, (*demand.where[:index], *demand.where[index + 1 :]), f"without the condition {condition}")
    if len(demand.where) > 1:
        yield _where(demand, (), "without any condition")


def _smaller(demand: Demand, group: Group, nowhere: set[str]) -> Edit | None:
    """Each need that is too large lowered to what a node of the group has; what no group has at all is left out.

    A group that lacks a resource which others have is no way out: work that needs a GPU is not helped by having none.
    """
    have, changes = dict(group.resources), {}

    def lowered(needs: Amounts) -> Amounts:
        kept = []
        for name, amount in needs:
            if name in nowhere:
                changes[name] = f"without {name}"
                continue
            largest = have.get(name, 0)
            if amount > largest:
                changes[name] = f"{name} {format_quantity(amount, name)} -> {format_quantity(largest, name)}"
            kept.append((name, min(amount, largest)))
        return tuple(kept)

    bundles = tuple(Bundle(lowered(bundle.needs), bundle.count) for bundle in demand.bundles)
    lacking = any(have.get(name, 0) == 0 for name in changes if name not in nowhere)
    if not changes or lacking:
        return None
    path, value = ("demands", demand.id, "needs"), _needs_value(bundles[0].needs)
    if demand.gang is not None:
        path = ("demands", demand.id, "bundles")
        value = [{"needs": _needs_value(bundle.needs), "count": bundle.count} for bundle in bundles]  # type: ignore[assignment]
    return Edit(", ".join(changes.values()), path, value, _on_demand(demand, lambda d: replace(d, bundles=bundles)))


def _needs_value(needs: Amounts) -> dict[str, str]:
    return {name: exact_quantity(amount, name) for name, amount in needs}


def exact_quantity(amount: int, resource: str) -> str:
    """The amount as text that reads back to the very same number."""
    text = format_quantity(amount, resource)
    return text if "." not in text else (str(amount) if resource in ("memory", "disk") else f"{amount}m")


def _reshaped(demand: Demand, groups: list[Group]) -> Iterator[Edit]:
    """A gang cut to whole slices, or one that need not lie on one node or slice."""
    if demand.gang == Gang.SAME_SLICE and len(demand.bundles) == 1:
        size = demand.count
        sizes = {multiple for g in groups for multiple in (size // g.hosts * g.hosts, -(-size // g.hosts) * g.hosts)}
        for count in sorted(sizes - {0, size}, key=lambda count: (abs(count - size), count)):
            bundles = (Bundle(demand.bundles[0].needs, count),)
            value = [{"needs": _needs_value(bundles[0].needs), "count": count}]
            yield Edit(
                f"size of the gang {size} -> {count}",
                ("demands", demand.id, "bundles"),
                value,
                _on_demand(demand, lambda d, b=bundles: replace(d, bundles=b)),  # type: ignore[misc]
            )
    yield Edit(
        f"gang {demand.gang} -> any",
        ("demands", demand.id, "gang"),
        "any",
        _on_demand(demand, lambda d: replace(d, gang=Gang.ANY)),
    )
