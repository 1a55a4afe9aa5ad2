"""The least-cost law: on small inputs `cheapest` buys for at most 5 % more than the cheapest set of machines.

The optimum is found by brute force: sets of machines in the order of their price, and for each set every way to place
the work. The search knows only the rules of placement (sums on a node, gangs), not the planner.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product

from hypothesis import example, given, settings
from hypothesis import strategies as st

from windlass.core.model.quantities import NANO
from windlass.core.model.snapshot import Bundle, Cluster, Demand, Gang, Group, Snapshot
from windlass.core.planner import plan

MOST = 4
"""Machines of one group that the search tries."""
WITHIN = 1.05


@dataclass(frozen=True)
class Kind:
    cpus: int
    hosts: int
    price: int


@dataclass(frozen=True)
class Work:
    cpus: int
    count: int
    gang: Gang | None
    priority: int = 0


Machine = tuple[int, tuple[int, ...]]
"""A kind, and the free cpus of each host, in order: equal machines are equal values."""
State = tuple[Machine, ...]


def fits(kinds: list[Kind], counts: tuple[int, ...], work: list[Work]) -> bool:
    """Whether some placement of all work on so many empty machines of each kind exists."""
    empty = [(at, (kinds[at].cpus,) * kinds[at].hosts) for at, count in enumerate(counts) for _ in range(count)]
    states = {tuple(sorted(empty))}
    for one in work:
        states = set().union(*(after(kinds, state, one) for state in states))
        if not states:
            return False
    return True


def after(kinds: list[Kind], state: State, one: Work) -> set[State]:
    """Every way to place one demand whole."""
    match one.gang:
        case Gang.SAME_NODE:
            return {_replaced(state, at, machine) for at, machine in _on_hosts(state, one.cpus * one.count, 1)}
        case Gang.SAME_SLICE:
            found = set[State]()
            for at, kind in enumerate(kinds):
                if one.count <= kind.hosts or one.count % kind.hosts == 0:
                    per_slice, slices = min(one.count, kind.hosts), max(1, one.count // kind.hosts)
                    found |= _on_slices(state, at, one.cpus, per_slice, slices)
            return found
        case Gang.SPREAD:
            return _spread(state, one.cpus, one.count)
        case _:
            states = {state}
            for _ in range(one.count):
                states = {_replaced(s, at, machine) for s in states for at, machine in _on_hosts(s, one.cpus, 1)}
            return states


def _replaced(state: State, at: int, machine: Machine) -> State:
    return tuple(sorted((*state[:at], machine, *state[at + 1 :])))


def _on_hosts(state: State, cpus: int, hosts: int) -> set[tuple[int, Machine]]:
    """Every way to put so many cpus on each of some hosts of one machine; of equal machines only the first."""
    first = {machine: at for at, machine in reversed(list(enumerate(state)))}
    return {
        (at, (kind, tuple(sorted(room - cpus * (host in chosen) for host, room in enumerate(free)))))
        for (kind, free), at in first.items()
        for chosen in combinations(range(len(free)), hosts)
        if all(free[host] >= cpus for host in chosen)
    }


def _on_slices(state: State, kind: int, cpus: int, hosts: int, slices: int) -> set[State]:
    """One task on each of some hosts of several machines of one kind."""
    found: set[tuple[State, State]] = {(state, ())}
    for _ in range(slices):
        found = {
            (rest, (*taken, machine))
            for left, taken in found
            for at, machine in _on_hosts(left, cpus, hosts)
            if machine[0] == kind
            for rest in ((*left[:at], *left[at + 1 :]),)
        }
    return {tuple(sorted((*left, *taken))) for left, taken in found}


def _spread(state: State, cpus: int, count: int) -> set[State]:
    """One task on each of some hosts, machine after machine."""
    found: set[tuple[tuple[Machine, ...], int]] = {((), count)}
    for machine in state:
        more = set()
        for done, left in found:
            for some in range(min(left, len(machine[1])) + 1):
                more |= {((*done, new), left - some) for _, new in _on_hosts((machine,), cpus, some)}
        found = more
    return {tuple(sorted(done)) for done, left in found if not left}


def least_cost(kinds: list[Kind], work: list[Work]) -> int | None:
    """The price of the cheapest set of machines that holds all work; None: no set that is tried does."""
    sets = sorted(
        (sum(kind.price * count for kind, count in zip(kinds, counts, strict=True)), sum(counts), counts)
        for counts in product(range(MOST + 1), repeat=len(kinds))
    )
    full = (MOST,) * len(kinds)
    if not all(fits(kinds, full, [one]) for one in work):
        return None
    needed = sum(one.cpus * one.count for one in work)
    for price, _, counts in sets:
        room = sum(kind.cpus * kind.hosts * count for kind, count in zip(kinds, counts, strict=True))
        if room >= needed and fits(kinds, counts, work):
            return price
    return None


def asked(kinds: list[Kind], work: list[Work]) -> Snapshot:
    return Snapshot(
        groups=tuple(
            Group(f"g-{at}", (("cpu", kind.cpus * 1000),), MOST, hosts=kind.hosts, price=kind.price * NANO)
            for at, kind in enumerate(kinds)
        ),
        demands=tuple(
            Demand(f"d-{at}", (Bundle((("cpu", one.cpus * 1000),), one.count),), gang=one.gang, priority=one.priority)
            for at, one in enumerate(work)
        ),
        cluster=Cluster(choose="cheapest"),
    )


kinds = st.lists(
    st.builds(Kind, st.integers(1, 4), st.sampled_from((1, 1, 2, 4)), st.integers(1, 9)), min_size=1, max_size=3
)
work = st.lists(
    st.builds(
        Work, st.integers(1, 4), st.integers(1, 4), st.sampled_from((None, None, *Gang)), st.sampled_from((0, 0, 5))
    ),
    min_size=1,
    max_size=3,
)


@given(kinds, work)
@example([Kind(4, 1, 3), Kind(1, 1, 1)], [Work(2, 3, None), Work(1, 1, None, 5)])
@example([Kind(4, 3, 10), Kind(2, 2, 3)], [Work(4, 2, Gang.ANY), Work(1, 2, None, 5)])
@example([Kind(8, 1, 3), Kind(3, 1, 1)], [Work(3, 4, Gang.SPREAD), Work(1, 1, Gang.SPREAD, 5)])
@example([Kind(3, 1, 3), Kind(4, 1, 3)], [Work(1, 4, Gang.ANY), Work(3, 2, None), Work(3, 2, Gang.SAME_SLICE)])
@example([Kind(3, 4, 8), Kind(4, 1, 2)], [Work(2, 3, Gang.SPREAD), Work(3, 4, None), Work(2, 4, Gang.SAME_SLICE)])
@example([Kind(4, 1, 1), Kind(2, 2, 3)], [Work(2, 3, None, 5), Work(3, 4, None)])
@example([Kind(4, 2, 8), Kind(3, 1, 2)], [Work(1, 4, Gang.SPREAD), Work(3, 2, Gang.SPREAD, 5)])
@example([Kind(2, 2, 8), Kind(4, 2, 9)], [Work(2, 1, Gang.SPREAD), Work(1, 2, Gang.SPREAD), Work(2, 3, Gang.SPREAD)])
@settings(max_examples=100, deadline=None)
def test_cheapest_costs_at_most_5_percent_more_than_the_cheapest_machines(kinds: list[Kind], work: list[Work]) -> None:
    least = least_cost(kinds, work)
    made = plan(asked(kinds, work))
    if least is None:
        assert made.waiting
    else:
        assert not made.waiting
        assert least * NANO <= made.hourly_cost.planned <= WITHIN * least * NANO
