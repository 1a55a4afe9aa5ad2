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
from windlass.core.demand import Level, Shape, levels
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
    valid = []
    for demand in draft.snapshot.demands:
        if mistake := demand.mistake:
            draft.decisions.invalid.append((demand, mistake))
        elif demand.held:
            draft.decisions.held.append(demand)
        elif demand.gang and demand.deadline is not None and draft.now >= demand.deadline:
            draft.decisions.late_gangs.append(demand)
        else:
            valid.append(demand)
    in_order = levels(
        valid, draft.kinds, draft.largest, gangs_as_singles=draft.options.gangs_as_singles, classes=draft.classes
    )
    for index, level in enumerate(in_order):
        _serve_gangs(draft, level)
        _serve_singles(draft, level.shapes, offer=draft.options.offer_every_purchase or index < len(in_order) - 1)
    _follow(draft)


def _serve_gangs(draft: PlanDraft, level: Level) -> None:
    if not level.gangs:
        return
    for gang in level.gangs:
        served = _serve_gang(draft, gang)
        draft.decisions.unserved.append(0 if served else gang.count)
        if served is None:
            draft.decisions.waiting_gangs.append(gang)
        else:
            draft.decisions.served_gangs.append((gang, served))
    draft.offers.room.forget()


def _serve_gang(draft: PlanDraft, gang: Demand) -> Served | None:
    """Serves a gang; one that needs no accelerators takes spares that have them only if nothing else can hold it."""
    if not any(name in ACCELERATORS for bundle in gang.bundles for name, _ in bundle.needs):
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
    """Places first and buys last; spares with accelerators are left to work that needs them while others can serve."""
    rows, groups = kept_spares(draft)
    without = [not (shape.need.whole or shape.need.shares) for shape in shapes]
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


def _follow(draft: PlanDraft) -> None:
    """Tries tasks with ``together`` again after everything else: the tasks that they follow may have a lower
    priority."""
    again = [(shape, left) for shape, left in draft.decisions.waiting_shapes if shape.rules.together]
    if not again:
        return
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
    """Buys for what is left, with this many alternatives of ``any_of``; ``barred``: [shape, group] not to be bought."""
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
