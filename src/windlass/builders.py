"""Short ways to write a snapshot in Python: for tests, notebooks and what-ifs.

    import windlass as wl

    wl.plan(wl.snapshot(
        groups=[wl.group("gpu-a", cpu=32, memory="128Gi", gpu=4, max=8, price=12.0)],
        slices=[wl.slice_("s-1", "gpu-a", used={"gpu": 2})],
        demands=[wl.demand("train", {"cpu": 4, "gpu": 1}, count=3)],
    )).launch

Each builder gives the same plain data as a scenario file has, and ``snapshot`` reads it as such: the same defaults, the
same checks, the same ``ScenarioError`` with the same paths.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from windlass.core.model.snapshot import Snapshot
from windlass.scenario.reader import Doubled
from windlass.scenario.scenario import read_plain

Quantity = int | float | str
Needs = Mapping[str, Quantity]
NamedGroup = tuple[str, dict[str, Any]]


def _given(**values: Any) -> dict[str, Any]:
    return {key: _plain(value) for key, value in values.items() if value is not None}


def _plain(value: Any) -> Any:
    """Mappings as dicts and other collections as lists: what a file would have held."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, Sequence | set | frozenset):
        items = sorted(value) if isinstance(value, set | frozenset) else value
        return [_plain(one) for one in items]
    return value


def group(
    name: str,
    *,
    max: int,
    min: int | None = None,
    spare: int | None = None,
    hosts: int | None = None,
    rank: int | None = None,
    price: Quantity | None = None,
    labels: Mapping[str, object] | None = None,
    taints: Sequence[Mapping[str, str]] | None = None,
    preemptible: bool | None = None,
    max_launching: int | None = None,
    scale_down: Mapping[str, Any] | None = None,
    availability: Mapping[str, Any] | None = None,
    protected: Iterable[str] | None = None,
    boot_seconds: float | None = None,
    frozen: bool | None = None,
    resources: Needs | None = None,
    **more_resources: Quantity,
) -> NamedGroup:
    """A kind of machine. Every other keyword is a resource of one node: ``cpu=32, memory="128Gi", gpu=4``."""
    return name, _given(
        resources={**(resources or {}), **more_resources},
        labels=labels,
        taints=taints,
        hosts=hosts,
        min=min,
        max=max,
        spare=spare,
        rank=rank,
        price=price,
        preemptible=preemptible,
        max_launching=max_launching,
        scale_down=scale_down,
        availability=availability,
        protected=None if protected is None else sorted(protected),
        boot_seconds=boot_seconds,
        frozen=frozen,
    )


def node(
    id: str | None = None,
    *,
    used: Needs | None = None,
    tasks: int | None = None,
    idle_since: float | None = None,
    labels: Mapping[str, object] | None = None,
    healthy: bool | None = None,
    classes: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """One host of a slice, for ``slice_(nodes=[...])``."""
    return _given(id=id, used=used, tasks=tasks, idle_since=idle_since, labels=labels, healthy=healthy, classes=classes)


def slice_(
    id: str,
    group: str,
    state: str = "ready",
    *,
    since: float | None = None,
    marked_until: float | None = None,
    final: bool | None = None,
    nodes: Sequence[Mapping[str, Any]] | None = None,
    used: Needs | None = None,
    tasks: int | None = None,
    idle_since: float | None = None,
    labels: Mapping[str, object] | None = None,
    healthy: bool | None = None,
    classes: Mapping[str, int] | None = None,
    hosts: int | None = None,
    price: Quantity | None = None,
) -> dict[str, Any]:
    """A slice. What its only node uses can be given here; one with several hosts takes ``nodes=[node(...), ...]``.
    ``hosts`` and ``price`` are for one whose group is gone."""
    of_node = node(used=used, tasks=tasks, idle_since=idle_since, labels=labels, healthy=healthy, classes=classes)
    if of_node and nodes is not None:
        raise TypeError(f"slice {id}: give either nodes=[...] or {', '.join(of_node)}, not both")
    if of_node:
        nodes = [of_node]
    return _given(
        id=id,
        group=group,
        state=state,
        since=since,
        marked_until=marked_until,
        final=final,
        nodes=nodes,
        hosts=hosts,
        price=price,
    )


def demand(
    id: str,
    needs: Needs,
    *,
    count: int | None = None,
    where: Sequence[str] | None = None,
    prefer: Sequence[str] | None = None,
    tolerates: Sequence[Mapping[str, str]] | None = None,
    any_of: Sequence[Sequence[str]] | None = None,
    classes: Sequence[str] | None = None,
    apart: Sequence[Mapping[str, Any]] | None = None,
    spread: Sequence[Mapping[str, Any]] | None = None,
    together: Sequence[Mapping[str, Any]] | None = None,
    priority: int | None = None,
    since: float | None = None,
) -> dict[str, Any]:
    """Work without a place yet, ``count`` times; also a standing request, in ``snapshot(requests=[...])``."""
    return _given(
        id=id,
        needs=needs,
        count=count,
        where=where,
        prefer=prefer,
        tolerates=tolerates,
        any_of=any_of,
        classes=classes,
        apart=apart,
        spread=spread,
        together=together,
        priority=priority,
        since=since,
    )


def gang(
    id: str,
    bundles: Iterable[tuple[Needs, int] | Mapping[str, Any]],
    kind: str = "any",
    *,
    deadline: float | None = None,
    where: Sequence[str] | None = None,
    prefer: Sequence[str] | None = None,
    tolerates: Sequence[Mapping[str, str]] | None = None,
    any_of: Sequence[Sequence[str]] | None = None,
    classes: Sequence[str] | None = None,
    apart: Sequence[Mapping[str, Any]] | None = None,
    spread: Sequence[Mapping[str, Any]] | None = None,
    together: Sequence[Mapping[str, Any]] | None = None,
    priority: int | None = None,
    since: float | None = None,
) -> dict[str, Any]:
    """Work that starts all at once or not at all: ``gang("pg-7", [({"gpu": 1}, 8)], kind="same-slice")``.

    A bundle is (needs, count), the needs of one task, or a mapping with the keys of a bundle in a scenario file.
    """
    members = []
    for one in bundles:
        if not isinstance(one, Mapping):
            members.append({"needs": one[0], "count": one[1]})
        elif isinstance(one.get("needs"), Mapping):
            members.append(dict(one))
        else:
            members.append({"needs": one, "count": 1})
    return _given(
        id=id,
        gang=kind,
        bundles=members,
        deadline=deadline,
        where=where,
        prefer=prefer,
        tolerates=tolerates,
        any_of=any_of,
        classes=classes,
        apart=apart,
        spread=spread,
        together=together,
        priority=priority,
        since=since,
    )


def snapshot(
    groups: Iterable[NamedGroup],
    slices: Iterable[Mapping[str, Any]] = (),
    demands: Iterable[Mapping[str, Any]] = (),
    requests: Iterable[Mapping[str, Any]] = (),
    *,
    now: float = 0,
    max_nodes: int | None = None,
    max_hourly_cost: Quantity | None = None,
    max_launching: int | None = None,
    choose: str | None = None,
    effort: int | None = None,
    own_machine_premium: float | None = None,
    apart: float | None = None,
) -> Snapshot:
    """All of it together, checked as a scenario file is; ``ScenarioError`` names every mistake."""
    cluster = _given(
        max_nodes=max_nodes,
        max_hourly_cost=max_hourly_cost,
        max_launching=max_launching,
        choose=choose,
        effort=effort,
        own_machine_premium=own_machine_premium,
        apart=apart,
    )
    return read_plain(
        {
            "now": now,
            "cluster": cluster,
            "groups": Doubled.of(list(groups)),
            "slices": list(slices),
            "demands": list(demands),
            "requests": list(requests),
        }
    )
