"""The least-cost law with constraints between tasks: small inputs against the cheapest set of machines.

The optimum is found by brute force: sets of machines in the order of their price, and for each set every way to place
the tasks. The search knows the rules as counts per node and per zone, and nothing of the planner.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from windlass.core.model.constraints import Apart, Spread, Together
from windlass.core.model.quantities import NANO
from windlass.core.model.snapshot import Bundle, Cluster, Demand, Group, Snapshot
from windlass.core.plan_laws import broken_laws
from windlass.core.planner import plan

MOST = 3
"""Machines of each group."""
WITHIN = 1.05
INPUTS = 150
EXCEPTIONS = 1
"""Inputs that may cost more. Placing tasks is not a search; one in three hundred costs a machine too many."""


@dataclass(frozen=True)
class Kind:
    cpus: int
    zone: str
    price: int


@dataclass(frozen=True)
class Work:
    name: str
    """Its class, too."""
    cpus: int
    count: int
    rule: str


RULES = ("none", "apart by node", "two in a zone", "spread over zones", "together in a zone", "together on a node")


def demand(work: Work) -> Demand:
    name = work.name
    return Demand(
        name,
        (Bundle((("cpu", work.cpus * 1000),), work.count),),
        classes=(name,),
        apart={"apart by node": (Apart(name, "node", 1),), "two in a zone": (Apart(name, "zone", 2),)}.get(
            work.rule, ()
        ),
        spread=(Spread(name, "zone"),) if work.rule == "spread over zones" else (),
        together={
            "together in a zone": (Together(name, "zone"),),
            "together on a node": (Together(name, "node"),),
        }.get(work.rule, ()),
    )


def asked(kinds: list[Kind], work: list[Work]) -> Snapshot:
    groups = tuple(
        Group(f"g-{at}", (("cpu", one.cpus * 1000),), MOST, price=one.price * NANO, labels={"zone": one.zone})
        for at, one in enumerate(kinds)
    )
    return Snapshot(groups, demands=tuple(demand(one) for one in work), cluster=Cluster(choose="cheapest"))


def least_cost(kinds: list[Kind], work: list[Work]) -> int | None:
    """The price of the cheapest set of machines that holds all work; None: no set does."""
    needed = sum(one.cpus * one.count for one in work)
    sets = sorted(
        (sum(kind.price * count for kind, count in zip(kinds, counts, strict=True)), counts)
        for counts in product(range(MOST + 1), repeat=len(kinds))
    )
    for price, counts in sets:
        machines = [kind for kind, count in zip(kinds, counts, strict=True) for _ in range(count)]
        if sum(one.cpus for one in machines) >= needed and holds(kinds, machines, work, [one.cpus for one in machines]):
            return price
    return None


def holds(kinds: list[Kind], machines: list[Kind], work: list[Work], free: list[int]) -> bool:
    """Whether some placement of all work keeps every rule; no demand shares its class, so each is checked alone."""
    if not work:
        return True
    first, *rest = work
    return any(
        keeps_its_rule(kinds, machines, first, counts)
        and holds(kinds, machines, rest, [room - first.cpus * n for room, n in zip(free, counts, strict=True)])
        for counts in ways(first.count, [room // first.cpus for room in free])
    )


def ways(count: int, room: list[int]) -> Iterator[tuple[int, ...]]:
    if not room:
        if not count:
            yield ()
        return
    for here in range(min(count, room[0]) + 1):
        for others in ways(count - here, room[1:]):
            yield (here, *others)


def keeps_its_rule(kinds: list[Kind], machines: list[Kind], work: Work, counts: tuple[int, ...]) -> bool:
    zones = Counter({kind.zone: 0 for kind in kinds if kind.cpus >= work.cpus})
    for machine, count in zip(machines, counts, strict=True):
        zones[machine.zone] += count
    match work.rule:
        case "apart by node":
            return max(counts) <= 1
        case "two in a zone":
            return max(zones.values()) <= 2
        case "spread over zones":
            eligible = [zones[zone] for zone in {kind.zone for kind in kinds if kind.cpus >= work.cpus}]
            return max(eligible) - min(eligible) <= 1
        case "together in a zone":
            return sum(count > 0 for count in zones.values()) == 1
        case "together on a node":
            return sum(count > 0 for count in counts) == 1
    return True


def drawn(seed: int) -> tuple[list[Kind], list[Work]]:
    draw = random.Random(seed)
    kinds = [Kind(draw.randint(1, 4), draw.choice("ab"), draw.randint(1, 9)) for _ in range(draw.randint(1, 3))]
    work = [
        Work(f"d-{at}", draw.randint(1, 3), draw.randint(1, 3), draw.choice(RULES)) for at in range(draw.randint(1, 3))
    ]
    return kinds, work


def test_cheapest_costs_at_most_5_percent_more_than_the_cheapest_machines_that_keep_the_constraints() -> None:
    exceptions = []
    for seed in range(INPUTS):
        kinds, work = drawn(seed)
        snapshot, least = asked(kinds, work), least_cost(kinds, work)
        made = plan(snapshot)
        assert list(broken_laws(snapshot, made)) == [], seed
        if least is None:
            assert made.waiting, seed
        elif made.waiting or made.hourly_cost.planned > WITHIN * least * NANO:
            exceptions.append((seed, least, made.hourly_cost.planned / NANO))
        else:
            assert made.hourly_cost.planned >= least * NANO, seed
    assert len(exceptions) <= EXCEPTIONS, exceptions
