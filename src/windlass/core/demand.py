"""This module sorts demand into serving order, hardest first, and groups equal tasks into one shape with a count.

Higher priority comes first, then gangs before single tasks, then more conditions, more resource kinds, a larger share
of the largest node, and the id. Single demands with the same needs, conditions and constraints are one ``Shape``; ties
between shapes go by the smallest id in each. A hundred thousand tasks of ten kinds are ten shapes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from math import inf
from operator import itemgetter
from typing import Final

from windlass.core.capacity.room import Kinds, Need
from windlass.core.model.constraints import NO_RULES, NODE, Apart, Rules
from windlass.core.model.snapshot import Amounts, Bundle, Demand, Gang, Selector, rules_of, selector_of

_Key = tuple[int, bool, Amounts, Selector, Rules]
"""Of single tasks: priority, whether they belong to no gang, needs, conditions, constraints."""


Alike = tuple[Demand, list[str]]
"""Demands that differ only in their ids and times: the first of them, and the ids of all."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Equal single tasks, from one or many demands."""

    needs: Amounts
    need: Need
    selector: Selector
    priority: int
    members: tuple[tuple[str, int], ...]
    """(demand id, count), sorted by id, which is the serving order."""
    count: int
    rules: Rules = NO_RULES
    bundles: tuple[int, ...] = ()
    """For each member its bundle, if it belongs to a gang."""


@dataclass(frozen=True, slots=True)
class GangTasks:
    """Equal tasks of a gang."""

    needs: Amounts
    need: Need
    count: int
    selector: Selector
    rules: Rules
    bundles: tuple[tuple[int, int], ...]
    """(bundle, count): the bundles of the tasks, by index in the demand."""


@dataclass(frozen=True, slots=True)
class Level:
    """All demand of one priority, in serving order: gangs, then single tasks."""

    gangs: tuple[Demand, ...]
    shapes: tuple[Shape, ...]


def total_needs(bundles: Iterable[Bundle]) -> dict[str, int]:
    """Returns the needs of all tasks of all bundles together."""
    total: dict[str, int] = {}
    for bundle in bundles:
        for name, amount in bundle.needs:
            total[name] = total.get(name, 0) + amount * bundle.count
    return total


def hardness(needs: Mapping[str, int], conditions: int, largest: Mapping[str, int]) -> tuple[float, ...]:
    """Sort key, the hardest first: more conditions, more kinds, a larger share of the largest node."""
    wanted = {name: amount for name, amount in needs.items() if amount}
    shares = (amount / largest[name] if largest.get(name) else inf for name, amount in wanted.items())
    return -conditions, -len(wanted), -max(shares, default=0.0)


def counting(rules: Rules, classes: Collection[str]) -> Rules:
    """Returns the rules without the classes that no constraint names: demands that differ only in these are equal."""
    if not rules.classes or all(name in classes for name in rules.classes):
        return rules
    kept = tuple(name for name in rules.classes if name in classes)
    return Rules(kept, rules.apart, rules.spread, rules.together) if kept or rules.binding else NO_RULES


def alike(demands: Iterable[Demand]) -> list[Alike]:
    """Groups demands that differ only in their ids and times, as far as that can be seen quickly: those with one bundle
    and without conditions, constraints and gangs. ``levels`` merges the others that are equal."""
    found: list[Alike] = []
    known: dict[tuple[int, int, Amounts], list[str]] = {}
    for demand in demands:
        bundle = demand.bundles[0] if len(demand.bundles) == 1 else None
        if bundle is None or not demand.plain or not bundle.plain or demand.held:
            found.append((demand, [demand.id]))
            continue
        key = demand.priority, bundle.count, bundle.needs
        ids = known.get(key)
        if ids is None:
            ids = known[key] = []
            found.append((demand, ids))
        ids.append(demand.id)
    return found


def levels(
    demands: Iterable[Alike],
    kinds: Kinds,
    largest: Mapping[str, int],
    *,
    gangs_as_singles: Collection[Gang] = (),
    classes: Collection[str] = (),
    as_one: bool = False,
) -> tuple[Level, ...]:
    """Returns demand by priority, the highest first.

    ``demands``: as ``alike`` returns them. ``classes``: those that some constraint names. ``gangs_as_singles``: members
    of gangs of these kinds become single tasks, in front of the others. ``as_one``: all priorities are one level. The
    caller must check that in the end all of them were served.
    """
    gangs: dict[int, list[Demand]] = {}
    singles: dict[_Key, list[tuple[str, int]]] = {}
    of_gangs: dict[_Key, list[tuple[str, int, int]]] = {}
    # The whole key of a task is slow to compute; priority and needs are enough where there are no conditions.
    plain: dict[tuple[int, Amounts], list[tuple[str, int]]] = {}
    for demand, ids in demands:
        gang, priority = demand.gang, 0 if as_one else demand.priority
        if gang is None:
            for bundle in demand.bundles:
                simple = demand.plain and bundle.plain
                members = plain.get((priority, bundle.needs)) if simple else None
                if members is None:
                    members = singles.setdefault(_key(priority, demand, bundle, classes), [])
                    if simple:
                        plain[priority, bundle.needs] = members
                members += zip(ids, repeat(bundle.count))
        elif gang not in gangs_as_singles:
            gangs.setdefault(priority, []).append(demand)
        else:
            for index, bundle in enumerate(demand.bundles):
                key = _key(priority, demand, bundle, classes)
                of_gangs.setdefault(key, []).append((demand.id, bundle.count, index))
    shapes: dict[int, list[tuple[bool, Shape]]] = {}

    def add(key: _Key, members: list[tuple[str, int]], bundles: Sequence[int] = ()) -> None:
        priority, single, needs, selector, rules = key
        count = sum(map(itemgetter(1), members))
        need = Need.of(dict(needs), kinds)
        shape = Shape(needs, need, selector, priority, tuple(members), count, rules, tuple(bundles))
        shapes.setdefault(priority, []).append((single, shape))

    for key, members in singles.items():
        members.sort()
        add(key, members)
    for key, of_bundles in of_gangs.items():
        of_bundles.sort()
        add(key, [(name, count) for name, count, _ in of_bundles], [bundle for _, _, bundle in of_bundles])

    def order(item: tuple[bool, Shape]) -> tuple[bool, tuple[float, ...], str]:
        single, shape = item
        return single, hardness(dict(shape.needs), len(shape.selector[0]), largest), shape.members[0][0]

    return tuple(
        Level(
            in_order(gangs.get(priority, ()), largest, as_one=as_one),
            tuple(shape for _, shape in sorted(shapes.get(priority, ()), key=order)),
        )
        for priority in sorted({*gangs, *shapes}, reverse=True)
    )


def _key(priority: int, demand: Demand, bundle: Bundle, classes: Collection[str]) -> _Key:
    """Returns what equal single tasks have in common."""
    rules = counting(rules_of(demand, bundle), classes)
    if demand.gang is Gang.SPREAD:
        rules = rules.plus(on_own_nodes(demand))
    return priority, demand.gang is None, bundle.needs, selector_of(demand, bundle), rules


def in_order(demands: Sequence[Demand], largest: Mapping[str, int], *, as_one: bool = False) -> tuple[Demand, ...]:
    """Sorts demands, the hardest first; a gang by the sum of its needs. ``as_one``: whatever their priorities."""

    def order(one: Demand) -> tuple[int, tuple[float, ...], str]:
        return 0 if as_one else -one.priority, hardness(total_needs(one.bundles), len(one.where), largest), one.id

    return tuple(sorted(demands, key=order))


def gang_tasks(
    demand: Demand, kinds: Kinds, largest: Mapping[str, int], classes: Collection[str]
) -> tuple[GangTasks, ...]:
    """Returns the tasks of a gang, the hardest first; equal bundles are merged."""
    alike: dict[tuple[Amounts, Selector, Rules], list[tuple[int, int]]] = {}
    for index, bundle in enumerate(demand.bundles):
        if bundle.count:
            key = (bundle.needs, selector_of(demand, bundle), counting(rules_of(demand, bundle), classes))
            alike.setdefault(key, []).append((index, bundle.count))
    tasks = [
        GangTasks(needs, Need.of(dict(needs), kinds), sum(n for _, n in bundles), selector, rules, tuple(bundles))
        for (needs, selector, rules), bundles in alike.items()
    ]
    own = len(demand.where)

    def order(one: GangTasks) -> tuple[object, ...]:
        return hardness(dict(one.needs), len(one.selector[0]) - own, largest), one.needs, one.bundles[0]

    return tuple(sorted(tasks, key=order))


def on_own_nodes(demand: Demand) -> Rules:
    """Returns the rule of a ``spread`` gang as a constraint: no two members on one node."""
    name = f"{MEMBER}{demand.id}"
    return Rules((name,), (Apart(name, NODE),))


MEMBER: Final = "\0member of "
"""The prefix of the class of a gang's members, which no demand can have."""
