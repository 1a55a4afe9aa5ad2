"""Joint purchases decide which constrained tasks are bought for in one market, and the caps on every new machine.

A constraint on nodes or slices becomes a resource of its own in the market: an empty machine has as much of it as the
constraint allows, and every task that counts takes one. Tasks whose constraints cannot be written that way side by side
are bought for one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from windlass.core.capacity.room import UNBOUNDED, Bools, Need
from windlass.core.model.constraints import NODE, SLICE, Rules
from windlass.core.model.snapshot import Selector


@dataclass(frozen=True, slots=True)
class Item:
    """Equal tasks to place."""

    need: Need
    selector: Selector
    rules: Rules
    count: int
    owner: str
    """The demand that a purchase is made for."""


Cell = tuple[tuple[str, int], ...]
"""The label values, as (key, value), that tasks are decided for."""


@dataclass(frozen=True, slots=True)
class Want:
    """Tasks of an item that are to be bought for, in groups that its share of the label values allows."""

    item: int
    cell: Cell
    groups: Bools
    count: int


@dataclass(slots=True)
class JointPurchase:
    """Wants that are bought for together, and the caps on classes that hold on every new node or slice."""

    wants: list[Want] = field(default_factory=list)
    apart: dict[tuple[str, str], int] = field(default_factory=dict)
    spread: dict[tuple[str, str], int] = field(default_factory=dict)


NODE_COLUMN: Final = "apart"
"""Marks the resource of an ``apart`` constraint, which every task of the class takes."""


MANY_GROUPS: Final = 400
"""With more groups than this, wants that may go to different groups are bought for one after the other: the work grows
with wants times groups."""


def machine_caps(rules: Rules) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], int]]:
    """The caps per node and per slice that the constraints ask for: of ``apart``, and of ``spread``."""
    apart: dict[tuple[str, str], int] = {}
    spread: dict[tuple[str, str], int] = {}
    for rule in rules.apart:
        if rule.by in (NODE, SLICE):
            key = (rule.by, rule.class_)
            apart[key] = min(rule.at_most, apart.get(key, UNBOUNDED))
    for other in rules.spread:
        if other.over in (NODE, SLICE):
            key = (other.over, other.of)
            spread[key] = min(other.max_skew, spread.get(key, UNBOUNDED))
    return apart, spread


def counts_in(rules: Rules, column: tuple[str, str, str]) -> bool:
    """Whether a task takes one of the resource that stands for a constraint."""
    kind, _, name = column
    if name not in rules.classes:
        return False
    return kind == NODE_COLUMN or rules.binding


def joint_purchases(wants: Sequence[Want], items: Sequence[Item]) -> list[JointPurchase]:
    """The wants in as few calls as their constraints on machines allow."""
    calls: list[JointPurchase] = []
    by_groups = bool(wants) and len(wants[0].groups) > MANY_GROUPS
    if by_groups:
        wants = _dealt_out(wants)
    for want in wants:
        rules = items[want.item].rules
        apart, spread = machine_caps(rules)
        near = [one for one in calls if not by_groups or (one.wants[0].groups & want.groups).any()]
        call = next((one for one in near if _joins(one, rules, apart, spread, items)), None)
        if call is None:
            call = JointPurchase()
            calls.append(call)
        call.wants.append(want)
        call.apart.update(apart)
        call.spread.update(spread)
    return calls


def _dealt_out(wants: Sequence[Want]) -> list[Want]:
    """Wants that may go to several label values to which others are bound, in equal parts to each of these values."""
    bound: dict[Cell, Bools] = {}
    for want in wants:
        if want.cell:
            bound[want.cell] = bound.get(want.cell, np.zeros_like(want.groups)) | want.groups
    cells = sorted(bound)
    if len(cells) < 2 or int(np.sum([bound[cell] for cell in cells], axis=0).max()) > 1:
        return list(wants)
    result: list[Want] = []
    turn = 0
    for want in wants:
        mine = [cell for cell in cells if (bound[cell] & want.groups).any()] if not want.cell else []
        if len(mine) < 2:
            result.append(want)
            continue
        each, more = divmod(want.count, len(mine))
        for place, cell in enumerate(mine):
            some = each + ((place - turn) % len(mine) < more)
            if some:
                result.append(replace(want, groups=want.groups & bound[cell], count=some))
        turn += more
    return result


def _joins(
    call: JointPurchase,
    rules: Rules,
    apart: dict[tuple[str, str], int],
    spread: dict[tuple[str, str], int],
    items: Sequence[Item],
) -> bool:
    """Whether tasks with these constraints can be bought for in the same call."""
    if any(call.apart.get(key, most) != most for key, most in apart.items()):
        return False
    if any(call.spread.get(key, most) != most for key, most in spread.items()):
        return False
    bound = bool(apart or spread)
    for key, most in call.apart.items():
        if key[1] in rules.classes and key not in apart and (most == 0 or not bound):
            return False
    for key, most in apart.items():
        if key in call.apart:
            continue
        for other in call.wants:
            theirs = items[other.item].rules
            if key[1] in theirs.classes and (most == 0 or not any(machine_caps(theirs))):
                return False
    return True
