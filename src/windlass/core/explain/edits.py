"""An Edit is one change of a snapshot that may let waiting demand start: as a sentence, as a setting and as a
function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from windlass.core.model.conditions import Condition, Toleration, untolerated
from windlass.core.model.constraints import Apart, Spread
from windlass.core.model.quantities import NANO, exact_quantity, format_money, format_quantity
from windlass.core.model.reasons import seconds
from windlass.core.model.snapshot import (
    Amounts,
    Availability,
    Bundle,
    Cluster,
    Demand,
    Family,
    Gang,
    Group,
    Seconds,
    Snapshot,
)


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of a snapshot: as a sentence, as a setting of the scenario file, and applied."""

    change: str
    path: tuple[str, ...]
    """The path in the scenario file; a demand is named by its id."""
    value: Any
    apply: Callable[[Snapshot], Snapshot]


@dataclass(frozen=True, slots=True)
class RaisedLimit:
    """A limit, its value now and the value to which it is raised; or another change, with the values -1 and 0."""

    edit: Callable[[int], Edit]
    now: int = -1
    value: int = 0
    of_cost: bool = False
    """Whether it is an amount of money, whose value follows from the plan."""


def set_group(snapshot: Snapshot, group: Group) -> Snapshot:
    groups = tuple(group if one.name == group.name else one for one in snapshot.groups)
    return replace(snapshot, groups=groups)


def set_cluster(snapshot: Snapshot, **changes: Any) -> Snapshot:
    return replace(snapshot, cluster=replace(snapshot.cluster, **changes))


def on_demand(demand: Demand, change: Callable[[Demand], Demand]) -> Callable[[Snapshot], Snapshot]:
    def apply(snapshot: Snapshot) -> Snapshot:
        demands = tuple(change(one) if one.id == demand.id else one for one in snapshot.demands)
        requests = tuple(change(one) if one.id == demand.id else one for one in snapshot.requests)
        return replace(snapshot, demands=demands, requests=requests)

    return apply


def new_max(group: Group, value: int) -> Edit:
    return Edit(
        f"max of {group.name} {group.max} -> {value}",
        ("groups", group.name, "max"),
        value,
        lambda snapshot: set_group(snapshot, replace(_group(snapshot, group.name), max=value)),
    )


def set_family(snapshot: Snapshot, family: Family, most: int) -> Snapshot:
    """Raises the max of a family, and of those of its groups that have no max of their own."""
    families = tuple(replace(one, max=most) if one.name == family.name else one for one in snapshot.cluster.families)
    groups = tuple(
        replace(one, max=most) if one.family == family.name and one.max_of_family else one for one in snapshot.groups
    )
    return replace(set_cluster(snapshot, families=families), groups=groups)


def new_family_max(family: Family, value: int) -> Edit:
    return Edit(
        f"max of {family.name} {family.max} -> {value}",
        (family.section, family.name, "max"),
        value,
        lambda snapshot: set_family(snapshot, family, value),
    )


def new_rate(group: Group, value: int) -> Edit:
    return Edit(
        f"max_launching of {group.name} {group.max_launching} -> {value}",
        ("groups", group.name, "max_launching"),
        value,
        lambda snapshot: set_group(snapshot, replace(_group(snapshot, group.name), max_launching=value)),
    )


def available(group: Group, now: Seconds) -> Edit:
    until = group.availability.until
    when = "" if until is None else f" (expected in {seconds(max(0, until - now))})"
    return Edit(
        f"{group.name} available again{when}",
        ("groups", group.name, "availability"),
        {"state": "available"},
        lambda snapshot: set_group(snapshot, replace(_group(snapshot, group.name), availability=Availability())),
    )


def resumed(group: Group) -> Edit:
    return Edit(
        f"resume {group.name}",
        ("groups", group.name, "frozen"),
        False,
        lambda snapshot: set_group(snapshot, replace(_group(snapshot, group.name), frozen=False)),
    )


def new_cluster_rate(cluster: Cluster, value: int) -> Edit:
    return Edit(
        f"the cluster's max_launching {cluster.max_launching} -> {value}",
        ("cluster", "max_launching"),
        value,
        lambda snapshot: set_cluster(snapshot, max_launching=value),
    )


def new_nodes(cluster: Cluster, value: int) -> Edit:
    return Edit(
        f"the cluster's max_nodes {cluster.max_nodes} -> {value}",
        ("cluster", "max_nodes"),
        value,
        lambda snapshot: set_cluster(snapshot, max_nodes=value),
    )


def new_budget(cluster: Cluster, cost: int) -> Edit:
    cent = NANO // 100
    value = -(-cost // cent) * cent
    return Edit(
        f"the cost ceiling {format_money(cluster.max_hourly_cost or 0)}/h -> {format_money(value)}/h",
        ("cluster", "max_hourly_cost"),
        value / NANO,
        lambda snapshot: set_cluster(snapshot, max_hourly_cost=value),
    )


def _group(snapshot: Snapshot, name: str) -> Group:
    return next(group for group in snapshot.groups if group.name == name)


def tolerated(demand: Demand, group: Group) -> Edit:
    taints = [taint for taint in untolerated(group.taints, demand.tolerates) if taint.effect != "PreferNoSchedule"]
    more = tuple(Toleration(taint.key, "Equal", taint.value, taint.effect) for taint in taints)
    tolerates = (*demand.tolerates, *more)
    return Edit(
        "tolerate " + ", ".join(map(str, taints)),
        ("demands", demand.id, "tolerates"),
        _written_tolerations(tolerates),
        on_demand(demand, lambda d: replace(d, tolerates=tolerates)),
    )


def smaller(demand: Demand, group: Group, nowhere: set[str]) -> Edit | None:
    """Lowers each need that is too large to what a node of the group has, and drops needs that no group has at all.

    A group that lacks a resource which other groups have gives no suggestion: work that needs a GPU cannot run without
    one.
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

    bundles = tuple(replace(bundle, needs=lowered(bundle.needs)) for bundle in demand.bundles)
    lacking = any(have.get(name, 0) == 0 for name in changes if name not in nowhere)
    if not changes or lacking:
        return None
    path, value = ("demands", demand.id, "needs"), _needs_value(bundles[0].needs)
    if demand.gang is not None:
        path = ("demands", demand.id, "bundles")
        value = [written_bundle(bundle) for bundle in bundles]  # type: ignore[assignment]
    return Edit(", ".join(changes.values()), path, value, on_demand(demand, lambda d: replace(d, bundles=bundles)))


def is_smaller(edit: Edit) -> bool:
    """Whether it changes how much is needed."""
    return edit.path[-1] in ("needs", "bundles")


def _needs_value(needs: Amounts) -> dict[str, str]:
    return {name: exact_quantity(amount, name) for name, amount in needs}


def written_bundle(bundle: Bundle) -> dict[str, Any]:
    """Returns a bundle with everything that it has, because a setting replaces the whole list of bundles."""
    placing = {
        "where": written_conditions(bundle.where),
        "prefer": written_conditions(bundle.prefer),
        "tolerates": _written_tolerations(bundle.tolerates),
        "any_of": list(map(written_conditions, bundle.any_of)),
        "classes": list(bundle.classes),
        "apart": written_apart(bundle.apart),
        "spread": written_spread(bundle.spread),
        "together": [{"with": one.class_, "by": one.by} for one in bundle.together],
    }
    given = {key: value for key, value in placing.items() if value}
    return {"needs": _needs_value(bundle.needs), "count": bundle.count, **given}


def _written_tolerations(tolerates: tuple[Toleration, ...]) -> list[dict[str, str]]:
    found = [{"key": t.key, "operator": t.operator, "value": t.value, "effect": t.effect} for t in tolerates]
    return [{key: text for key, text in entry.items() if text} for entry in found]


def written_conditions(conditions: tuple[Condition, ...]) -> list[str]:
    return [str(condition) for condition in conditions]


def written_apart(rules: tuple[Apart, ...]) -> list[dict[str, Any]]:
    return [{"from": one.class_, "by": one.by, "at_most": one.at_most} for one in rules]


def written_spread(rules: tuple[Spread, ...]) -> list[dict[str, Any]]:
    return [
        {"of": one.of, "over": one.over, "max_skew": one.max_skew, "min_domains": one.min_domains}
        | ({"elsewhere": dict(one.elsewhere)} if one.elsewhere else {})
        for one in rules
    ]


def reshaped(demand: Demand, groups: list[Group]) -> Iterator[Edit]:
    """Reduces a gang to whole slices, or lets it use several nodes or slices."""
    if demand.gang == Gang.SAME_SLICE and len(demand.bundles) == 1:
        size = demand.count
        sizes = {multiple for g in groups for multiple in (size // g.hosts * g.hosts, -(-size // g.hosts) * g.hosts)}
        for count in sorted(sizes - {0, size}, key=lambda count: (abs(count - size), count)):
            bundles = (replace(demand.bundles[0], count=count),)
            yield Edit(
                f"size of the gang {size} -> {count}",
                ("demands", demand.id, "bundles"),
                [written_bundle(bundle) for bundle in bundles],
                on_demand(demand, lambda d, b=bundles: replace(d, bundles=b)),  # type: ignore[misc]
            )
    yield Edit(
        f"gang {demand.gang} -> any",
        ("demands", demand.id, "gang"),
        "any",
        on_demand(demand, lambda d: replace(d, gang=Gang.ANY)),
    )


def further_domain(group: Group, family: Family | None, key: str) -> Edit:
    """Adds a group like this one, with another value of a label. It is available, and has no min and no spares.

    A family that is made of offers takes no further group, so the new group has limits of its own.
    """
    name, value = f"{group.name.replace('/', '-')}-in-another-{key}", f"another-{key}"
    if family is not None and family.section == "groups":
        group = replace(group, family="", fallback=False, max_of_family=False)
    new = Group(
        name,
        group.resources,
        group.max,
        {**group.labels, key: value},
        group.taints,
        group.hosts,
        rank=group.rank,
        price=group.price,
        preemptible=group.preemptible,
        max_launching=group.max_launching,
        family=group.family,
        fallback=group.fallback,
        max_of_family=group.max_of_family,
    )
    written: dict[str, Any] = {
        "resources": {resource: exact_quantity(amount, resource) for resource, amount in group.resources},
        "labels": dict(new.labels),
        "hosts": group.hosts,
        "rank": group.rank,
    }
    if not group.max_of_family:
        written["max"] = group.max
    if group.taints:
        written["taints"] = [{"key": one.key, "value": one.value, "effect": one.effect} for one in group.taints]
    if group.price is not None:
        written["price"] = group.price / NANO
    if group.max_launching is not None:
        written["max_launching"] = group.max_launching
    if group.family:
        written["family"] = group.family
    written |= {flag: True for flag in ("preemptible", "fallback") if getattr(group, flag)}
    return Edit(
        f"a group like {group.name} {'in another' if key in group.labels else 'with the label'} {key}",
        ("groups", name),
        written,
        lambda snapshot: replace(snapshot, groups=(*snapshot.groups, new)),
    )


def different(edits: Iterable[Edit]) -> Iterator[Edit]:
    """Returns each edit once: two groups may need the same toleration."""
    seen = set()
    for edit in edits:
        key = (edit.path, repr(edit.value))
        if key not in seen:
            seen.add(key)
            yield edit
