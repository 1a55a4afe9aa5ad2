"""Random snapshots for property tests: small, but with every feature of the scenario file switched on somewhere."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from windlass.core.model.conditions import Condition, Taint, Toleration
from windlass.core.model.constraints import Apart, Spread, Together
from windlass.core.model.lifecycle import IN_FLIGHT, RECALLABLE, State
from windlass.core.model.quantities import NANO
from windlass.core.model.snapshot import (
    Availability,
    Bundle,
    Cluster,
    Demand,
    Family,
    Gang,
    Group,
    LowUtilization,
    Node,
    ScaleDown,
    Slice,
    Snapshot,
    UtilizationTarget,
    amounts,
)

GI = 2**30
NOW = 1000

ZONES = ("a", "b", "c")
RED = Taint("team", "red", "NoSchedule")
SOFT = Taint("slow", "", "PreferNoSchedule")


def resources() -> st.SearchStrategy[tuple[tuple[str, int], ...]]:
    return st.fixed_dictionaries(
        {"cpu": st.sampled_from((2000, 4000, 8000))},
        optional={
            "memory": st.sampled_from((4 * GI, 16 * GI)),
            "gpu": st.sampled_from((1000, 2000, 4000)),
        },
    ).map(amounts)


def needs() -> st.SearchStrategy[tuple[tuple[str, int], ...]]:
    return st.fixed_dictionaries(
        {},
        optional={
            "cpu": st.sampled_from((500, 1000, 2000, 3000, 4000)),
            "memory": st.sampled_from((GI, 3 * GI, 8 * GI)),
            "gpu": st.sampled_from((300, 500, 600, 1000, 2000)),
        },
    ).map(amounts)


def scale_downs() -> st.SearchStrategy[ScaleDown | None]:
    return st.none() | st.builds(
        ScaleDown,
        idle_timeout=st.none() | st.sampled_from((0, 60, 600)),
        low_utilization=st.none() | st.builds(LowUtilization, st.just(Fraction(3, 10)), st.integers(0, 2)),
        utilization=st.none()
        | st.builds(UtilizationTarget, st.sampled_from((50, 80, 100)), st.just(600), st.integers(0, 1)),
        consolidate=st.booleans(),
    )


def availabilities() -> st.SearchStrategy[Availability]:
    return st.just(Availability()) | st.builds(
        Availability,
        st.sampled_from(("backoff", "quota_exceeded")),
        st.sampled_from((None, 500, 2000)),
        st.just("stock"),
    )


@st.composite
def groups(draw: st.DrawFn, name: str, *, priced: bool, limited: bool) -> Group:
    most = draw(st.integers(0, 4)) if limited else 50
    return Group(
        name=name,
        resources=draw(resources()),
        max=most,
        labels=draw(st.just({}) | st.sampled_from(ZONES).map(lambda zone: {"zone": zone})),
        taints=draw(st.sampled_from(((), (), (), (RED,), (SOFT,)))),
        hosts=draw(st.sampled_from((1, 1, 1, 2, 3))),
        min=draw(st.integers(0, min(most, 2))) if limited else 0,
        spare=draw(st.sampled_from((0, 0, 0, 1, 2))) if limited else 0,
        rank=draw(st.sampled_from((0, 1, 100))),
        price=draw(st.sampled_from((1, 2, 3, 5))) * NANO // 10 if priced else None,
        preemptible=draw(st.booleans()),
        max_launching=draw(st.none() | st.integers(1, 3)) if limited else None,
        scale_down=draw(scale_downs()),
        availability=draw(availabilities()) if limited else Availability(),
        protected=draw(st.sampled_from((frozenset(), frozenset({"s-0"})))),
        frozen=limited and draw(st.integers(0, 4)) == 0,
    )


@st.composite
def nodes(draw: st.DrawFn, name: str, group: Group) -> Node:
    if draw(st.booleans()):
        return Node(name, (), 0, draw(st.sampled_from((None, 100, 990))), {}, draw(st.integers(0, 9)) > 0)
    share = draw(st.sampled_from((2, 4, 1)))
    used = {kind: amount // share for kind, amount in group.resources if draw(st.booleans())}
    return Node(name, amounts(used), draw(st.integers(1, 2)), None, draw(st.sampled_from(({}, {"zone": "b"}))))


@st.composite
def slices(draw: st.DrawFn, name: str, kinds: list[Group]) -> Slice:
    if draw(st.integers(0, 19)) == 0:
        taken: dict[str, Any] = {
            "hosts": draw(st.sampled_from((0, 1, 3))),
            "price": draw(st.sampled_from((0, 7 * 10**8))),
        }
        return Slice(name, "removed", draw(st.sampled_from(State)), nodes=(Node(f"{name}/0"),), **taken)
    group = draw(st.sampled_from(kinds))
    state = draw(st.sampled_from((State.READY,) * 6 + tuple(State)))
    marked = draw(st.sampled_from((None, None, None, 900, 1500))) if state == State.READY else None
    hosts = [f"{name}/{index}" for index in range(group.hosts)]
    if state in IN_FLIGHT:
        return Slice(name, group.name, state, 900, None, tuple(Node(host) for host in hosts))
    fenced = marked is not None or state in RECALLABLE
    return Slice(
        name,
        group.name,
        state,
        900,
        marked,
        tuple(draw(nodes(host, group)) for host in hosts),
        final=fenced and draw(st.integers(0, 2)) == 0,
    )


@st.composite
def demands(draw: st.DrawFn, name: str, *, gangs: bool = True) -> Demand:
    gang = draw(st.sampled_from((None, None, None, *Gang))) if gangs else None
    bundles = draw(st.lists(st.builds(Bundle, needs(), st.integers(1, 3)), min_size=1, max_size=2 if gang else 1))
    zone = Condition("zone", draw(st.sampled_from(("==", "!="))), (draw(st.sampled_from(ZONES)),))
    return Demand(
        id=name,
        bundles=tuple(bundles),
        gang=gang,
        where=draw(st.sampled_from(((), (), (), (zone,)))),
        prefer=draw(st.sampled_from(((), (), (Condition("preemptible", "==", ("true",)),)))),
        tolerates=draw(st.sampled_from(((), (Toleration(operator="Exists"),)))),
        priority=draw(st.sampled_from((0, 0, 0, 5))),
        deadline=draw(st.sampled_from((None, None, 900, 2000))) if gang else None,
        since=draw(st.sampled_from((None, 700))),
    )


@st.composite
def snapshots(
    draw: st.DrawFn,
    *,
    limited: bool = True,
    gangs: bool = True,
    most_groups: int = 4,
    most_slices: int = 6,
    most_demands: int = 5,
    choose: tuple[str, ...] = ("best-fit", "rank", "cheapest"),
) -> Snapshot:
    """A snapshot with everything in it; without ``limited``, with no ceiling, floor or refusal."""
    strategy = draw(st.sampled_from(choose))
    names = [f"g-{index}" for index in range(draw(st.integers(1, most_groups)))]
    kinds = [
        draw(groups(name, priced=strategy == "cheapest" or draw(st.booleans()), limited=limited)) for name in names
    ]
    cluster = Cluster(
        max_nodes=draw(st.none() | st.integers(0, 8)) if limited else None,
        max_hourly_cost=draw(st.none() | st.integers(0, 20).map(lambda dimes: dimes * NANO // 10)) if limited else None,
        max_launching=draw(st.none() | st.integers(0, 3)) if limited else None,
        choose=strategy,  # type: ignore[arg-type]
        apart=draw(st.sampled_from((None, None, Fraction(0), Fraction(1, 2)))) if strategy == "cheapest" else None,
    )
    return Snapshot(
        groups=tuple(kinds),
        slices=tuple(draw(slices(f"s-{index}", kinds)) for index in range(draw(st.integers(0, most_slices)))),
        demands=tuple(draw(demands(f"d-{index}", gangs=gangs)) for index in range(draw(st.integers(0, most_demands)))),
        requests=tuple(
            draw(demands(f"r-{index}", gangs=False)) for index in range(draw(st.sampled_from((0, 0, 1, 2))))
        ),
        cluster=cluster,
        now=NOW,
    )


CLASSES = ("web", "db", "job")


def constraints() -> st.SearchStrategy[dict[str, Any]]:
    """Classes, constraints between tasks and alternatives, as fields of a demand or a bundle."""
    names, domains = st.sampled_from(CLASSES), st.sampled_from(("node", "slice", "zone"))
    return st.fixed_dictionaries(
        {
            "classes": st.sets(names, max_size=2).map(lambda found: tuple(sorted(found))),
            "apart": st.lists(st.builds(Apart, names, domains, st.integers(0, 2)), max_size=1).map(tuple),
            "spread": st.lists(st.builds(Spread, names, domains, st.integers(1, 2), st.integers(1, 2)), max_size=1).map(
                tuple
            ),
            "together": st.lists(st.builds(Together, names, domains), max_size=1).map(tuple),
            "any_of": st.sampled_from(
                ((), (), ((Condition("zone", "==", ("a",)),), (Condition("zone", "==", ("b",)),)), ((),))
            ),
        }
    )


@st.composite
def constrained_snapshots(draw: st.DrawFn, *, gangs: bool = True, limited: bool = True) -> Snapshot:
    """A snapshot in which many demands have constraints, and some nodes tasks of their classes."""
    snapshot = draw(snapshots(gangs=gangs, limited=limited))

    def demand(one: Demand) -> Demand:
        if draw(st.integers(0, 2)) == 0:
            return one
        some = replace(one, **draw(constraints()))
        if one.gang is not None and draw(st.booleans()):
            own = tuple(replace(bundle, **draw(constraints())) for bundle in one.bundles)
            some = replace(some, bundles=own)
        return some

    def node(one: Node) -> Node:
        counts = draw(st.dictionaries(st.sampled_from(CLASSES), st.integers(1, 2), max_size=2)) if one.busy else {}
        return replace(one, classes=tuple(sorted(counts.items())))

    return replace(
        snapshot,
        demands=tuple(map(demand, snapshot.demands)),
        slices=tuple(
            item if item.state in IN_FLIGHT else replace(item, nodes=tuple(map(node, item.nodes)))
            for item in snapshot.slices
        ),
    )


@st.composite
def snapshots_with_families(draw: st.DrawFn, /, **options: Any) -> Snapshot:
    """Snapshots whose groups belong to one or two families with limits of their own."""
    snapshot = draw(snapshots(**options))
    names = draw(st.lists(st.sampled_from(("fast", "slow")), min_size=1, max_size=2, unique=True))
    families = []
    for name in names:
        most = draw(st.integers(0, 5))
        families.append(Family(name, most, draw(st.integers(0, min(most, 2))), draw(st.sampled_from((0, 0, 1, 2)))))
    kinds = tuple(replace(one, family=draw(st.sampled_from(("", *names)))) for one in snapshot.groups)
    return replace(snapshot, groups=kinds, cluster=replace(snapshot.cluster, families=tuple(families)))
