"""This module solves a market in separate parts, such as the zones over which tasks are divided.

Groups of different parts have no shape in common, so the cheapest mix of the whole is the sum of the cheapest mixes of
the parts. The work of the linear program grows with the cube of the shapes: three parts take a ninth of the time of the
whole. Parts that differ only in a few tasks are solved once, for the larger number of tasks of each shape; what a part
does not need is then removed from the slices with the fewest tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from windlass.core.capacity.room import Floats, Ints

from .column_generation import Cover, Coverer, Lot
from .knapsack import Catalogue, parts_of

ALIKE: Final = 0.003
"""Largest share of the tasks of a part by which it may differ from another one that is solved together with it."""


@dataclass(frozen=True, slots=True)
class Solution:
    """The cover of a whole catalogue."""

    cover: Cover
    fractional: float
    """Lower estimate of the cost, in nanodollars."""
    worth: Floats
    """First estimate of the value of a task of each shape."""
    paid: Floats
    """What one task of each shape costs in this cover."""


def solve(catalogue: Catalogue, learned: Floats | None, effort: int, *, many_types: bool) -> Solution:
    """Returns the best cover that ``effort`` rounds find in each part."""
    parts = _parts(catalogue)
    if len(parts) < 2:
        return _solved(catalogue, learned, effort, many_types)
    worth: Floats = np.zeros(len(catalogue.counts))
    paid, left = np.zeros_like(worth), np.zeros_like(catalogue.counts)
    lots: list[Lot] = []
    fractional = 0.0
    for alike in _alike(parts):
        first = alike[0]
        most = np.max([part.catalogue.counts for part in alike], axis=0)
        values = None if learned is None else _mostly_known(learned[first.shapes])
        found = _solved(replace(first.catalogue, counts=most), values, effort, many_types)
        for part in alike:
            mine, unserved = _without(found.cover, most - part.catalogue.counts)
            for lot in mine:
                fill = np.zeros(len(catalogue.counts), np.int64)
                fill[part.shapes] = lot.fill
                lots.append(Lot(int(part.groups[lot.group]), lot.slices, fill))
            # Values are in units of the most expensive group of each part.
            unit = (part.catalogue.price.max() + 1) / (catalogue.price.max() + 1)
            worth[part.shapes], paid[part.shapes] = found.worth * unit, found.paid * unit
            left[part.shapes] = unserved
            fractional += found.fractional
    cost = sum(int(catalogue.price[lot.group]) * lot.slices for lot in lots)
    return Solution(Cover(tuple(lots), cost, left), fractional, worth, paid)


def _mostly_known(values: Floats) -> Floats | None:
    return values if 2 * np.isfinite(values).sum() > len(values) else None


def _solved(catalogue: Catalogue, learned: Floats | None, effort: int, many_types: bool) -> Solution:
    coverer = Coverer(catalogue, learned, many_types=many_types)
    cover = coverer.best(effort)
    return Solution(cover, coverer.fractional, coverer.worth, coverer.paid(cover, coverer.worth))


@dataclass(frozen=True, slots=True)
class _Part:
    groups: Ints
    """The catalogue's index of each group."""
    shapes: Ints
    catalogue: Catalogue


def _parts(catalogue: Catalogue) -> list[_Part]:
    """Returns the parts of a catalogue; none if a limit of a family counts the groups of several."""
    number = parts_of(catalogue.usable)
    if catalogue.headroom.has_families or not number.any():
        return []
    result = []
    for one in range(int(number.max()) + 1):
        groups = np.flatnonzero(number == one)
        shapes = np.flatnonzero(catalogue.usable[groups].any(axis=0))
        result.append(_Part(groups, shapes, catalogue.part(groups, shapes)))
    return result


def _alike(parts: Sequence[_Part]) -> list[list[_Part]]:
    """Returns the parts in sets that can be solved together."""
    found: dict[tuple[bytes, ...], list[list[_Part]]] = {}
    for part in parts:
        one = part.catalogue
        tables = (one.price, one.hosts, one.unmet, one.usable, one.plain, one.size, one.whole, one.share)
        sets = found.setdefault(tuple(table.tobytes() for table in tables), [])
        mine = next((some for some in sets if _differ_little([*some, part])), None)
        if mine is None:
            sets.append([part])
        else:
            mine.append(part)
    return [some for sets in found.values() for some in sets]


def _differ_little(parts: Sequence[_Part]) -> bool:
    """Whether the parts have nearly the same tasks, and no limit that these could reach."""
    counts = np.array([part.catalogue.counts for part in parts])
    most = counts.max(axis=0)
    few = ((most - counts).sum(axis=1) <= ALIKE * counts.sum(axis=1)).all()
    return bool(few) and all((part.catalogue.headroom.all() >= int(most.sum())).all() for part in parts)


def _without(cover: Cover, surplus: Ints) -> tuple[Sequence[Lot], Ints]:
    """Returns the lots and the unserved tasks of a cover without tasks that are not wanted: those on the slices with
    the fewest tasks go first."""
    if not surplus.any():
        return cover.lots, cover.left
    surplus = surplus.copy()
    left = np.maximum(cover.left - surplus, 0)
    surplus -= cover.left - left
    lots: list[Lot] = []
    for lot in sorted(cover.lots, key=lambda lot: int(lot.fill.sum())):
        slices = lot.slices
        while slices and (removed := np.minimum(lot.fill, surplus)).any():
            slices -= 1
            surplus -= removed
            if (lot.fill > removed).any():
                lots.append(Lot(lot.group, 1, lot.fill - removed))
        if slices:
            lots.append(Lot(lot.group, slices, lot.fill))
    return lots, left
