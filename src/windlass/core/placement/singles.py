"""This module serves single tasks: it places them on existing room first and buys for the rest.

Priorities are served from the highest to the lowest. Within one, gangs are served one after the other, then all single
tasks: each shape, the hardest first, is placed on existing room. Then all shapes are bought for together, so that one
new slice can serve many shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from windlass.core.capacity.room import Bools
from windlass.core.demand import Level, Shape
from windlass.core.model.constraints import NO_RULES
from windlass.core.model.quantities import ACCELERATORS
from windlass.core.model.reasons import Code
from windlass.core.model.snapshot import Demand
from windlass.core.placement.joint_purchases import Item
from windlass.core.plan_draft import PlanDraft, Served, record

from .constrained import ConstrainedPlacement
from .gangs import serve_whole
from .spares import closed, kept_spares


def serve(draft: PlanDraft) -> None:
    """Places every demand of the snapshot, or records that it waits."""
    demands, options = draft.snapshot_tables.demands, draft.options
    draft.decisions.invalid += demands.invalid
    draft.decisions.held += demands.held
    draft.decisions.late_gangs += demands.late_gangs
    in_order = demands.in_order(options.gangs_as_singles, draft.classes, as_one=options.priorities_as_one)
    for index, level in enumerate(in_order):
        if not draft.options.singles_first:
            _serve_gangs(draft, level)
        later = index < len(in_order) - 1 or draft.options.singles_first
        _serve_singles(draft, level.shapes, offer=draft.options.offer_every_purchase or later)
        if draft.options.singles_first:
            _serve_gangs(draft, level)
    if _follow(draft):
        draft.decisions.unserved = _unserved(draft, in_order)


def _unserved(draft: PlanDraft, in_order: Sequence[Level]) -> list[int]:
    """Returns how many tasks of each gang and shape wait, by level."""
    gangs, waiting = {gang.id for gang in draft.decisions.waiting_gangs}, draft.decisions.waiting_shapes
    counts, at = list[int](), 0
    for level in in_order:
        counts += [gang.count if gang.id in gangs else 0 for gang in level.gangs]
        for shape in level.shapes:
            waits = at < len(waiting) and waiting[at][0] is shape
            counts.append(waiting[at][1] if waits else 0)
            at += waits
    return counts


def _serve_gangs(draft: PlanDraft, level: Level) -> None:
    if not level.gangs:
        return
    gangs = level.gangs
    if draft.options.gangs_first == "easiest":
        gangs = gangs[::-1]
    elif draft.options.gangs_first == "largest":
        gangs = tuple(sorted(gangs, key=lambda one: -one.count))
    for gang in gangs:
        served = _serve_gang(draft, gang)
        draft.decisions.unserved.append(0 if served else gang.count)
        if served is None:
            draft.decisions.waiting_gangs.append(gang)
        else:
            draft.decisions.served_gangs.append((gang, served))
    draft.offers.room.forget()


def _serve_gang(draft: PlanDraft, gang: Demand) -> Served | None:
    """Serves a gang; one that needs no accelerators takes spares that have them only if nothing else can hold it."""
    needed = any(name in ACCELERATORS for bundle in gang.bundles for name, _ in bundle.needs)
    if not needed or draft.options.spares_last:
        rows, _ = kept_spares(draft)
        if rows.any():
            with closed(draft, rows):
                served = serve_whole(draft, draft.offers, gang, Code.DEMAND)
            if served is not None:
                return served
    return serve_whole(draft, draft.offers, gang, Code.DEMAND)


def _serve_singles(draft: PlanDraft, shapes: Sequence[Shape], *, offer: bool) -> None:
    if any(shape.rules is not NO_RULES for shape in shapes):
        served = _serve_with_rules(draft, shapes)
        draft.decisions.served_shapes += zip(shapes, served, strict=True)
    else:
        served = [Served() for _ in shapes]
        draft.decisions.served_shapes += zip(shapes, served, strict=True)
        _place_and_buy(draft, shapes, served, offer=offer)
    for shape, into in zip(shapes, served, strict=True):
        draft.decisions.unserved.append(shape.count - into.count)
        if into.count < shape.count:
            draft.decisions.waiting_shapes.append((shape, shape.count - into.count))


def _place_and_buy(draft: PlanDraft, shapes: Sequence[Shape], served: Sequence[Served], *, offer: bool) -> None:
    """Places tasks on existing room, then buys for the rest. Tasks that need no accelerator use spares that have one
    only if nothing else can hold them."""
    rows, groups = kept_spares(draft)
    without = [draft.options.spares_last or not (shape.need.whole or shape.need.shares) for shape in shapes]
    if not (rows.any() and any(without)):
        _place(draft, shapes, served)
        _buy(draft, shapes, served, offer=offer)
        return
    for shape, into, plain in zip(shapes, served, without, strict=True):
        with closed(draft, rows if plain else np.zeros_like(rows)):
            _place(draft, [shape], [into])
    barred = np.array([groups if plain else np.zeros_like(groups) for plain in without], np.bool_)
    _buy(draft, shapes, served, offer=True, barred=barred)
    _place(draft, shapes, served)
    _buy(draft, shapes, served, offer=offer)


def _place(draft: PlanDraft, shapes: Sequence[Shape], served: Sequence[Served]) -> None:
    for shape, into in zip(shapes, served, strict=True):
        record(into, draft.offers, draft.offers.place(shape.need, shape.selector, shape.count - into.count))


def _serve_with_rules(draft: PlanDraft, shapes: Sequence[Shape]) -> list[Served]:
    """Serves shapes with constraints between tasks, and those that are counted by them.

    Shapes that must be with a class of other shapes come after these: only then is it known where they may go.
    """
    served = [Served() for _ in shapes]
    waiting = list(range(len(shapes)))
    while waiting:
        provided = [{*shapes[index].rules.classes} for index in waiting]
        ahead = [
            index
            for at, index in enumerate(waiting)
            if not any(
                rule.class_ in classes
                for rule in shapes[index].rules.together
                if rule.class_ not in shapes[index].rules.classes
                for other, classes in enumerate(provided)
                if other != at
            )
        ] or waiting
        items = [
            Item(one.need, one.selector, one.rules, one.count, one.members[0][0])
            for one in (shapes[index] for index in ahead)
        ]
        parts = ConstrainedPlacement(draft, draft.offers, items, Code.DEMAND).serve()
        for index, part in zip(ahead, parts, strict=True):
            served[index] = part
        waiting = [index for index in waiting if index not in ahead]
    draft.offers.room.forget()
    return served


def _follow(draft: PlanDraft) -> bool:
    """Tries waiting tasks with ``together`` again after everything else, until no more of them are served; returns
    whether any was served.

    The tasks that they must be with may have a lower priority, or belong to another gang.
    """
    followed = False
    while _follow_in_gangs(draft) or _follow_singly(draft):
        followed = True
    return followed


def _follow_in_gangs(draft: PlanDraft) -> bool:
    """Serves waiting gangs with ``together``; returns whether any was served."""
    still = []
    for gang in draft.decisions.waiting_gangs:
        follows = bool(gang.together) or any(bundle.together for bundle in gang.bundles)
        served = _serve_gang(draft, gang) if follows else None
        if served is None:
            still.append(gang)
        else:
            draft.decisions.served_gangs.append((gang, served))
    if len(still) == len(draft.decisions.waiting_gangs):
        return False
    draft.decisions.waiting_gangs = still
    draft.offers.room.forget()
    return True


def _follow_singly(draft: PlanDraft) -> bool:
    """Serves waiting single tasks with ``together``; returns whether any was served."""
    again = [(shape, left) for shape, left in draft.decisions.waiting_shapes if shape.rules.together]
    if not again:
        return False
    items = [Item(one.need, one.selector, one.rules, left, one.members[0][0]) for one, left in again]
    parts = ConstrainedPlacement(draft, draft.offers, items, Code.DEMAND).serve()
    draft.offers.room.forget()
    got = [(shape, part) for (shape, _), part in zip(again, parts, strict=True)]

    def part_of(shape: Shape) -> Served | None:
        return next((part for one, part in got if one is shape), None)

    left_over = []
    for shape, left in draft.decisions.waiting_shapes:
        part = part_of(shape)
        if rest := left - (part.count if part is not None else 0):
            left_over.append((shape, rest))
    draft.decisions.waiting_shapes = left_over
    for shape, into in draft.decisions.served_shapes:
        if (part := part_of(shape)) is not None:
            for run in part.runs:
                into.add(run.positions, run.counts, run.rows)
    return any(part.count for part in parts)


def _buy(
    draft: PlanDraft,
    shapes: Sequence[Shape],
    served: Sequence[Served],
    *,
    offer: bool,
    barred: Bools | None = None,
) -> None:
    """Buys for everything that is left of the shapes, as far as the limits allow."""
    for stage in range(draft.stages([shape.selector for shape in shapes])):
        _buy_stage(draft, shapes, served, stage, offer=offer, barred=barred)


def _buy_stage(
    draft: PlanDraft,
    shapes: Sequence[Shape],
    served: Sequence[Served],
    stage: int,
    *,
    offer: bool,
    barred: Bools | None,
) -> None:
    """Buys for what is left of the shapes.

    ``stage``: see ``PlanDraft.market``. ``barred``: the [shape, group] pairs that must not be bought.
    """
    short = [index for index, into in enumerate(served) if into.count < shapes[index].count]
    if not short:
        return
    market = draft.market(
        [shapes[index].need for index in short],
        [shapes[index].count - served[index].count for index in short],
        [shapes[index].selector for index in short],
        stage=stage,
    )
    if barred is not None:
        market = replace(market, eligible=market.eligible & ~barred[short])
    if draft.snapshot.cluster.apart is not None:
        single = [_ends_singly(draft, shapes[index]) for index in short]
        market = replace(market, apart=draft.snapshot.cluster.apart, single=np.array(single, np.bool_))
    for choice in draft.choose(market):
        batch = choice.batch
        owner = shapes[short[choice.shape]].members[0][0]
        filled = np.flatnonzero(batch.fill).tolist()
        names = tuple((shapes[short[index]].members[0][0], int(batch.fill[index])) for index in filled)
        purchase = draft.buy(batch.group, batch.slices, Code.DEMAND, owner, choice, names)
        positions = purchase.position + np.arange(batch.slices)
        for index in filled:
            served[short[index]].add(positions, np.full(batch.slices, int(batch.fill[index])))
        if offer:
            tasks = [(market.needs[index], int(batch.fill[index])) for index in filled]
            draft.offer(purchase, draft.offers, tasks=tasks)


def _ends_singly(draft: PlanDraft, shape: Shape) -> bool:
    """Whether none of its tasks belongs to a gang that is treated as single tasks: those end together."""
    return not any((demand := draft.demand_named(name)) and demand.gang for name, _ in shape.members)
