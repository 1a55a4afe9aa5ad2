"""A snapshot as plain data in the form of a scenario file: what ``read_plain`` turns into the same snapshot again.

Only what differs from its default is written. Amounts and prices are written so that reading gives the same
whole numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windlass.core.model.conditions import Condition, Taint, Toleration
from windlass.core.model.quantities import BYTES, NANO, parse_money
from windlass.core.model.snapshot import (
    Amounts,
    Bundle,
    Cluster,
    Demand,
    Group,
    Node,
    ScaleDown,
    Slice,
    Snapshot,
    rules_of,
    selector_of,
)


def write_scenario(snapshot: Snapshot) -> dict[str, Any]:
    """The scenario as plain data, ready for a JSON or YAML writer."""
    return _given(
        now=snapshot.now or None,
        cluster=_cluster(snapshot.cluster) or None,
    ) | {
        "groups": {group.name: _group(group) for group in snapshot.groups},
        **_given(
            slices=[_slice(one) for one in snapshot.slices] or None,
            demands=[_demand(one) for one in snapshot.demands] or None,
            requests=[_demand(one) for one in snapshot.requests] or None,
        ),
    }


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _changed(value: Any, default: Any) -> Any:
    return None if value == default else value


def _cluster(cluster: Cluster) -> dict[str, Any]:
    return _given(
        name=_changed(cluster.name, Cluster().name),
        max_nodes=cluster.max_nodes,
        max_hourly_cost=_money(cluster.max_hourly_cost),
        max_launching=cluster.max_launching,
        choose=cluster.choose,
        effort=_changed(cluster.effort, 1),
        own_machine_premium=None if cluster.apart is None else float(cluster.apart),
    )


def _group(group: Group) -> dict[str, Any]:
    standard = Group(group.name, (), group.max)
    availability = group.availability
    return {"resources": _amounts(group.resources)} | _given(
        labels=dict(group.labels) or None,
        taints=[_taint(taint) for taint in group.taints] or None,
        hosts=_changed(group.hosts, standard.hosts),
        min=_changed(group.min, standard.min),
        max=group.max,
        spare=_changed(group.spare, standard.spare),
        rank=_changed(group.rank, standard.rank),
        price=_money(group.price),
        preemptible=_changed(group.preemptible, standard.preemptible),
        max_launching=group.max_launching,
        scale_down=_scale_down(group.scale_down) if group.scale_down else None,
        availability=None
        if availability == standard.availability
        else _given(state=availability.state, until=availability.until, why=availability.why or None),
        protected=sorted(group.protected) or None,
        boot_seconds=_changed(group.boot_seconds, standard.boot_seconds),
        frozen=_changed(group.frozen, standard.frozen),
    )


def _scale_down(rules: ScaleDown) -> dict[str, Any]:
    low, target = rules.low_utilization, rules.utilization
    return _given(
        idle_timeout=rules.idle_timeout,
        low_utilization={"below": float(low.below), "keep": low.keep} if low else None,
        utilization=_given(
            percent=target.percent, delay=target.delay, spare_nodes=target.spare_nodes, resource=target.resource
        )
        if target
        else None,
        consolidate=rules.consolidate or None,
    )


def _taint(taint: Taint) -> dict[str, Any]:
    return _given(key=taint.key, value=taint.value or None, effect=taint.effect)


def _slice(one: Slice) -> dict[str, Any]:
    return _given(
        id=one.id,
        group=one.group,
        state=str(one.state),
        since=one.since,
        marked_until=one.marked_until,
        final=one.final or None,
        nodes=[_node(node) for node in one.nodes],
        hosts=one.hosts or None,
        price=_money(one.price or None),
    )


def _node(node: Node) -> dict[str, Any]:
    return _given(
        id=node.id,
        used=_amounts(node.used) or None,
        tasks=_changed(node.tasks, 1 if node.used else 0),
        idle_since=node.idle_since,
        labels=dict(node.labels) or None,
        healthy=_changed(node.healthy, True),
        classes=dict(node.classes) or None,
    )


def _demand(demand: Demand) -> dict[str, Any]:
    single = demand.gang is None and len(demand.bundles) == 1
    return _given(
        id=demand.id,
        gang=None if demand.gang is None else str(demand.gang),
        **(_bundle(_with_all(demand)) if single else {"bundles": [_bundle(bundle) for bundle in demand.bundles]}),
        **(_placing(demand) if demand.gang is not None or not single else {}),
        priority=demand.priority or None,
        since=demand.since,
        deadline=demand.deadline,
    )


def _bundle(bundle: Bundle) -> dict[str, Any]:
    return {"needs": _amounts(bundle.needs)} | _given(count=_changed(bundle.count, 1)) | _placing(bundle)


def _with_all(demand: Demand) -> Bundle:
    """The one bundle of a single demand, with all that the demand says about where it goes."""
    bundle = demand.bundles[0]
    rules = rules_of(demand, bundle)
    where, prefer, tolerates, any_of = selector_of(demand, bundle)
    return Bundle(
        bundle.needs,
        bundle.count,
        where,
        prefer,
        tolerates,
        any_of[0] if any_of else (),
        rules.classes,
        rules.apart,
        rules.spread,
        rules.together,
    )


def _placing(one: Demand | Bundle) -> dict[str, Any]:
    """Where tasks may go, and what they ask of the tasks around them."""
    return _given(
        where=_conditions(one.where),
        prefer=_conditions(one.prefer),
        tolerates=[_toleration(each) for each in one.tolerates] or None,
        any_of=[_conditions(each) or [] for each in one.any_of] or None,
        classes=list(one.classes) or None,
        apart=[{"from": rule.class_, "by": rule.by, "at_most": rule.at_most} for rule in one.apart] or None,
        spread=[
            {"of": rule.of, "over": rule.over, "max_skew": rule.max_skew, "min_domains": rule.min_domains}
            for rule in one.spread
        ]
        or None,
        together=[{"with": rule.class_, "by": rule.by} for rule in one.together] or None,
    )


def _toleration(one: Toleration) -> dict[str, Any]:
    return _given(key=one.key or None, operator=one.operator, value=one.value or None, effect=one.effect or None)


def _conditions(conditions: Iterable[Condition]) -> list[str] | None:
    return [_condition(one) for one in conditions] or None


def _condition(condition: Condition) -> str:
    """As ``str`` writes it, with quotes where they keep a value what it is (empty, in quotes, blanks around it)."""
    values = tuple(
        f'"{value}"' if not value or value != value.strip() or value[0] == value[-1] in "'\"" else value
        for value in condition.values
    )
    return str(Condition(condition.key, condition.op, values))


def _amounts(pairs: Amounts) -> dict[str, int | str]:
    return {
        name: amount if name in BYTES else amount // 1000 if amount % 1000 == 0 else f"{amount}m"
        for name, amount in pairs
    }


def _money(nanodollars: int | None) -> float | str | None:
    """Dollars as a number; as text where a float would not come back as the same sum."""
    if nanodollars is None:
        return None
    number = nanodollars / NANO
    whole, rest = divmod(nanodollars, NANO)
    return number if parse_money(number) == nanodollars else f"{whole}.{rest:09d}"
