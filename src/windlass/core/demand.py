"""Demand in the order in which it is served: the hardest first, and equal tasks as one shape with a count.

Higher priority comes first of all, then gangs before singles, then more conditions, more resource kinds, a larger
share of the largest node, and the id. Single demands that need the same and may go to the same places are one
``Shape``; ties between shapes go by the smallest id in each. A hundred thousand tasks of ten kinds are ten shapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from windlass.core.capacity.room import Kinds, Need
from windlass.core.model.snapshot import Amounts, Bundle, Demand, Gang, Selector, selector_of


@dataclass(frozen=True, slots=True)
class Shape:
    """Equal single tasks, from one or many demands."""

    needs: Amounts
    need: Need
    selector: Selector
    priority: int
    members: tuple[tuple[str, int], ...]
    """(demand id, count), sorted by id: served in this order."""
    count: int


@dataclass(frozen=True, slots=True)
class Level:
    """All demand of one priority, in the order in which it is served: gangs, then singles."""

    gangs: tuple[Demand, ...]
    shapes: tuple[Shape, ...]


def total_needs(bundles: Iterable[Bundle]) -> dict[str, int]:
    """What all tasks of all bundles need together."""
    total: dict[str, int] = {}
    for bundle in bundles:
        for name, amount in bundle.needs:
            total[name] = total.get(name, 0) + amount * bundle.count
    return total


def hardness(needs: Mapping[str, int], conditions: int, largest: Mapping[str, int]) -> tuple[float, ...]:
    """Sorts the hardest first: more conditions, more kinds, a larger share of the largest node."""
    wanted = {name: amount for name, amount in needs.items() if amount}
    shares = (amount / largest[name] if largest.get(name) else inf for name, amount in wanted.items())
    return -conditions, -len(wanted), -max(shares, default=0.0)


def levels(
    demands: Iterable[Demand], kinds: Kinds, largest: Mapping[str, int], *, loose: bool = False
) -> tuple[Level, ...]:
    """Demand by priority, the highest first.

    ``loose``: members of gangs that may go anywhere are taken as single tasks, in front of the others. Whoever asks for
    that must check that in the end all of them were served.
    """
    gangs: dict[int, list[Demand]] = {}
    singles: dict[tuple[int, bool, Amounts, Selector], list[tuple[str, int]]] = {}
    for demand in demands:
        if demand.gang is not None and not (loose and demand.gang == Gang.ANY):
            gangs.setdefault(demand.priority, []).append(demand)
            continue
        for bundle in demand.bundles:
            key = (demand.priority, demand.gang is None, bundle.needs, selector_of(demand))
            singles.setdefault(key, []).append((demand.id, bundle.count))
    shapes: dict[int, list[tuple[bool, Shape]]] = {}
    for (priority, single, needs, selector), members in singles.items():
        members.sort()
        count = sum(count for _, count in members)
        need = Need.of(dict(needs), kinds)
        shape = Shape(needs, need, selector, priority, tuple(members), count)
        shapes.setdefault(priority, []).append((single, shape))

    def order(item: tuple[bool, Shape]) -> tuple[bool, tuple[float, ...], str]:
        single, shape = item
        return single, hardness(dict(shape.needs), len(shape.selector[0]), largest), shape.members[0][0]

    return tuple(
        Level(
            in_order(gangs.get(priority, ()), largest),
            tuple(shape for _, shape in sorted(shapes.get(priority, ()), key=order)),
        )
        for priority in sorted({*gangs, *shapes}, reverse=True)
    )


def in_order(demands: Sequence[Demand], largest: Mapping[str, int]) -> tuple[Demand, ...]:
    """Demands, the hardest first; a gang by its sum."""
    return tuple(
        sorted(demands, key=lambda d: (-d.priority, hardness(total_needs(d.bundles), len(d.where), largest), d.id))
    )


def bundles_in_order(demand: Demand, largest: Mapping[str, int]) -> tuple[Bundle, ...]:
    """The bundles of a gang, the hardest first; equal ones as one."""
    counts: dict[Amounts, int] = {}
    for bundle in demand.bundles:
        counts[bundle.needs] = counts.get(bundle.needs, 0) + bundle.count
    bundles = [Bundle(needs, count) for needs, count in counts.items() if count]
    return tuple(sorted(bundles, key=lambda b: (hardness(dict(b.needs), 0, largest), b.needs)))
