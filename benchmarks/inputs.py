"""Generates the same input for every side from a seed: machine types, running nodes and demand as plain numbers.

Amounts are cpus, GiB and GPUs. Each side converts it to its own types outside the measured time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from windlass.core.model.lifecycle import State
from windlass.core.model.quantities import NANO
from windlass.core.model.snapshot import (
    Amounts,
    Bundle,
    Choose,
    Cluster,
    Demand,
    Gang,
    Group,
    Node,
    Slice,
    Snapshot,
    amounts,
)

Needs = Mapping[str, float]
"""``cpu``, ``memory`` (GiB) and ``gpu``."""

GIB = 2**30


@dataclass(frozen=True)
class Size:
    """The size of an input."""

    demands: int
    nodes: int
    fill: str = "half"
    """``full``: nothing is free on the running nodes; ``half``: between a quarter and three quarters is."""
    shapes: int = 10
    types: int = 5
    gangs: str = "none"
    """``none``, or the placement rule of gangs; half of the demand is in gangs then."""
    most: int = 1_000_000
    """Nodes of each type that may exist."""


@dataclass(frozen=True)
class Problem:
    """One input in plain numbers."""

    types: dict[str, Needs]
    running: list[tuple[str, Needs]]
    """The type, and its used resources."""
    singles: list[tuple[Needs, int]]
    gangs: list[tuple[str, list[tuple[Needs, int]]]]
    """Kind (``strict-spread``, ``strict-pack``, ``pack``) and members."""
    most: int

    @property
    def demands(self) -> int:
        return sum(count for _, count in self.singles) + sum(n for _, members in self.gangs for _, n in members)


FEW_TYPES = {
    "general-16": {"cpu": 16.0, "memory": 64.0},
    "general-64": {"cpu": 64.0, "memory": 256.0},
    "memory-32": {"cpu": 32.0, "memory": 256.0},
    "gpu-1": {"cpu": 16.0, "memory": 64.0, "gpu": 1.0},
    "gpu-8": {"cpu": 96.0, "memory": 768.0, "gpu": 8.0},
}

GANG_SIZE = 8


def machine_types(count: int) -> dict[str, Needs]:
    """Return the five types, and further sizes and ratios of the same families."""
    types: dict[str, Needs] = dict(FEW_TYPES)
    families = {"compute": (2, 0), "general": (4, 0), "memory": (8, 0), "gpu": (8, 1)}
    for size in range(1, count):
        for family, (per_cpu, has_gpu) in families.items():
            cpu = 8.0 * (size + 1)
            gpu = {"gpu": float(1 + (size * 2 - 1) % 8)} if has_gpu else {}
            types.setdefault(f"{family}-{int(cpu)}c", {"cpu": cpu, "memory": cpu * per_cpu, **gpu})
    return dict(list(types.items())[:count])


def task_shapes(count: int, chance: random.Random) -> list[Needs]:
    """Different needs, each of which some type of ``FEW_TYPES`` holds. A third needs a GPU or half of one."""
    shapes: list[Needs] = []
    while len(shapes) < count:
        cpu = chance.choice([0.5, *range(1, 17)])
        needs = {"cpu": float(cpu)}
        if chance.random() < 0.6:
            needs["memory"] = float(max(1, round(cpu * chance.choice([1, 1.5, 2, 3, 4, 6]))))
        if len(shapes) % 3 == 2:
            needs["gpu"] = float(chance.choice([0.5, 1, 1, 2, 4]))
        if needs not in shapes:
            shapes.append(needs)
    return shapes


def split(total: int, parts: int, chance: random.Random) -> list[int]:
    """Split ``total`` into ``parts`` counts of different size, none of them zero if possible."""
    weights = [chance.random() + 0.2 for _ in range(parts)]
    counts = [int(total * weight / sum(weights)) for weight in weights]
    for index in range(total - sum(counts)):
        counts[index % parts] += 1
    return counts


def half_used(resources: Needs, chance: random.Random) -> Needs:
    """Between a quarter and three quarters of each resource, in whole GiB and GPUs and half cpus."""
    used = {}
    for name, amount in resources.items():
        step = 0.5 if name == "cpu" else 1.0
        used[name] = min(amount, round(amount * chance.uniform(0.25, 0.75) / step) * step)
    return used


def make(size: Size, seed: int = 1) -> Problem:
    """Generate the input of a size; the same seed gives the same input."""
    chance = random.Random(f"{seed} {size.shapes} {size.types}")
    types = machine_types(size.types)
    shapes = task_shapes(size.shapes, chance)
    names = list(types)
    running = []
    for index in range(size.nodes):
        name = names[index % len(names)]
        running.append((name, types[name] if size.fill == "full" else half_used(types[name], chance)))
    in_gangs = 0 if size.gangs == "none" else size.demands // 2 // GANG_SIZE
    gangs = []
    for index in range(in_gangs):
        first, second = shapes[index % len(shapes)], shapes[(index * 3 + 1) % len(shapes)]
        if size.gangs == "strict-pack":  # eight members on one node: the smaller of two shapes
            first = second = min(shapes, key=lambda needs: (needs.get("gpu", 0), needs["cpu"], needs.get("memory", 0)))
        members = [(first, GANG_SIZE)] if first == second else [(first, GANG_SIZE // 2), (second, GANG_SIZE // 2)]
        gangs.append((size.gangs, members))
    counts = split(size.demands - in_gangs * GANG_SIZE, len(shapes), chance)
    singles = [(needs, count) for needs, count in zip(shapes, counts, strict=True) if count]
    return Problem(types, running, singles, gangs, size.most)


# -- as a snapshot -----------------------------------------------------------------------------------------------------

GANGS = {"strict-spread": Gang.SPREAD, "strict-pack": Gang.SAME_NODE, "pack": Gang.ANY, "spread": Gang.ANY}
"""Return the gang kind. Ray's scheduler ignores the preferences PACK and SPREAD: all or none, anywhere."""


def amounts_of(needs: Needs) -> Amounts:
    return amounts({name: round(n * GIB) if name == "memory" else round(n * 1000) for name, n in needs.items()})


def as_snapshot(problem: Problem, choose: Choose = "best-fit", price: Callable[[Needs], int] | None = None) -> Snapshot:
    """Return the snapshot for ``plan``; ``price`` gives the nanodollars per hour of a machine type."""
    groups = tuple(
        Group(name, amounts_of(needs), problem.most, price=None if price is None else price(needs))
        for name, needs in problem.types.items()
    )
    slices = tuple(
        Slice(f"s-{index}", name, State.READY, since=0, nodes=(Node(f"n-{index}", amounts_of(used), tasks=1),))
        for index, (name, used) in enumerate(problem.running)
    )
    demands = [
        Demand(f"shape-{index}", (Bundle(amounts_of(needs), count),))
        for index, (needs, count) in enumerate(problem.singles)
    ]
    demands += [
        Demand(f"gang-{index}", tuple(Bundle(amounts_of(needs), count) for needs, count in members), GANGS[kind])
        for index, (kind, members) in enumerate(problem.gangs)
    ]
    return Snapshot(groups, slices, tuple(demands), cluster=Cluster(choose=choose))


def one_each(_: Needs) -> int:
    """Return one price for every machine, so that the cheapest set has the fewest machines."""
    return NANO


def listed(needs: Needs) -> int:
    """Return a price per cpu, GiB and GPU, close to those of clouds."""
    dollars = 0.04 * needs.get("cpu", 0) + 0.005 * needs.get("memory", 0) + 1.5 * needs.get("gpu", 0)
    return round(dollars * NANO)
