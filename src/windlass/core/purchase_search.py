"""Purchase search tries sets of new slices, the cheapest first, for small inputs with gangs or constraints.

Gangs are bought for one after the other, and single tasks after them, so a purchase for one does not consider the needs
of the others. Tasks with constraints are divided over label values before anything is bought. Where there are few tasks
and groups, every set of new slices that costs less than the draft is tried: the slices are bought first, and then all
demand is placed on them by the usual rules. The first set on which nothing waits is taken. The number of tries is
fixed, and large inputs are not searched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from heapq import heappop, heappush
from itertools import islice
from typing import Final

import numpy as np

from windlass.core.buying.fallbacks import first_choices
from windlass.core.capacity.limits import BOUNDLESS
from windlass.core.model.reasons import Code
from windlass.core.model.snapshot import Demand, Gang
from windlass.core.tables.snapshot_tables import SnapshotTables

from .draft_worth import later_alternatives
from .plan_draft import DraftOptions, PlanDraft

TASKS: Final = 32
"""Inputs with more tasks are not searched."""
GROUPS: Final = 6
"""Inputs with more groups that could hold one of the tasks are not searched."""
SETS: Final = 2000
"""The largest number of sets that are enumerated."""
TRIES: Final = 40
"""The largest number of sets that are tried, because their sum is large enough. A try takes about a millisecond."""

Serve = Callable[[SnapshotTables, DraftOptions], PlanDraft]


def cheaper_set(draft: PlanDraft, served: Serve, *, as_one: bool, any_order: bool) -> PlanDraft | None:
    """Returns a draft that serves all demand with a cheaper set of new slices; None if there is none or no search.

    ``as_one``: demand of all priorities is placed together. ``any_order``: single tasks may be placed before gangs,
    and gangs in other orders.
    """
    groups = _groups(draft)
    if not groups:
        return None
    most = BOUNDLESS if any(draft.decisions.unserved) else _cost(draft)
    passed = BOUNDLESS if any(draft.decisions.unserved) else later_alternatives(draft)
    options = replace(draft.options, gangs_as_singles=frozenset(), priorities_as_one=as_one)
    orders = [options]
    gangs = len(draft.snapshot_tables.demands.gangs)
    if any_order and 0 < gangs < len(draft.snapshot.demands):
        orders.append(replace(options, singles_first=True))
    if any_order and gangs > 1:
        orders += [replace(options, gangs_first="easiest"), replace(options, gangs_first="largest")]
    for counts in islice(_sets(draft, groups, most), TRIES):
        ahead = tuple((group, count) for group, count in zip(groups, counts, strict=True) if count)
        for order in orders:
            other = served(draft.snapshot_tables, replace(order, ahead=ahead))
            if not _serves_all(other, len(ahead)) or later_alternatives(other) > passed:
                continue
            if not ((as_one or order != options) and other.used()):
                name_owners(other)
                return other
    return None


def _serves_all(draft: PlanDraft, wanted: int) -> bool:
    return not any(draft.decisions.unserved) and not draft.decisions.waiting_requests and _uses_all(draft, wanted)


def _groups(draft: PlanDraft) -> list[int]:
    """Returns the groups to buy from; none if a search cannot help or would take too long."""
    cluster = draft.snapshot.cluster
    if draft.strategy != "cheapest" or cluster.apart is not None or cluster.max_launching is not None:
        return []
    if len(draft.snapshot.demands) - len(draft.snapshot_tables.demands.invalid) > TASKS:
        return []
    demands = [one for one in draft.snapshot.demands if not one.mistake]
    if sum(one.count for one in demands) > TASKS:
        return []
    if all(one.gang in (None, Gang.ANY) and not _constrained(one) for one in demands):
        return []
    if draft.limits.bought < (1 if any(draft.decisions.unserved) else 2):
        return []
    if draft.decisions.waiting_requests or any(kind.max_launching is not None for kind in draft.groups):
        return []
    needs = {bundle.needs for one in demands for bundle in one.bundles}
    most = _most(draft)
    useful = [
        group
        for group, kind in enumerate(draft.groups)
        if most[group] > 0
        and any(all(amount <= dict(kind.resources).get(name, 0) for name, amount in need) for need in needs)
    ]
    useful = first_choices(draft.groups, useful)
    return useful if len(useful) <= GROUPS else []


def _constrained(demand: Demand) -> bool:
    """Whether constraints bind some of its tasks, so that they are bought for in several steps."""
    return demand.rules.binding or any(bundle.rules.binding for bundle in demand.bundles)


def _most(draft: PlanDraft) -> list[int]:
    """Returns how many slices of each group could be bought if the draft had bought nothing for demand and spares."""
    limits = draft.limits
    state = limits.copy_state()
    for one in draft.purchases:
        if one.code in (Code.DEMAND, Code.SPARE):
            limits.add(one.group, -one.slices)
    most = [limits.headroom(group, gang=True) for group in range(len(draft.groups))]
    limits.restore(state)
    return most


def _cost(draft: PlanDraft) -> int:
    return sum(int(draft.price[one.group]) * one.slices for one in draft.purchases)


def _sets(draft: PlanDraft, groups: list[int], most: int) -> Iterator[tuple[int, ...]]:
    """Yields sets of slices below a price that have enough of everything in sum, by price, slices and names."""
    total = np.array([draft.totals[group] * draft.hosts[group] for group in groups], np.int64)
    price = [int(draft.price[group]) for group in groups]
    most_of = _most(draft)
    limit = [min(most_of[group], TASKS) for group in groups]
    demands = [one for one in draft.snapshot.demands if not one.mistake]
    needed = np.zeros(len(draft.kinds.names), np.int64)
    for one in demands:
        for bundle in one.bundles:
            for name, amount in bundle.needs:
                if name in draft.kinds.column:
                    needed[draft.kinds.column[name]] += amount * bundle.count
    offers = draft.snapshot_tables.rows
    needed -= offers.room.free.sum(axis=0)
    nodes = max((one.count for one in demands if one.gang == Gang.SPREAD), default=0) - len(offers.group)
    heap: list[tuple[int, int, tuple[int, ...]]] = [(0, 0, (0,) * len(groups))]
    for _ in range(SETS):
        if not heap:
            return
        cost, slices, counts = heappop(heap)
        if cost >= most:
            return
        hosts = sum(count * int(draft.hosts[group]) for group, count in zip(groups, counts, strict=True))
        if slices and hosts >= nodes and (np.array(counts) @ total >= needed).all():
            yield counts
        # Each set is reached once: only from the set without its last slice.
        last = max((at for at, count in enumerate(counts) if count), default=0)
        for at in range(last, len(groups)):
            if counts[at] < limit[at]:
                more = (*counts[:at], counts[at] + 1, *counts[at + 1 :])
                heappush(heap, (cost + price[at], slices + 1, more))


def _uses_all(draft: PlanDraft, wanted: int) -> bool:
    """Whether every slice of the set was bought and got a task."""
    placed, mine = draft.placed(), [one for one in draft.purchases if one.code == Code.DEMAND]
    return len(mine) == wanted and all(bool(placed[one.position : one.position + one.slices].all()) for one in mine)


def name_owners(draft: PlanDraft) -> None:
    """Records for each purchase without an owner the first demand that was placed on it."""
    first: dict[int, str] = {}
    served = [(gang.id, one) for gang, one in draft.decisions.served_gangs]
    served += [(shape.members[0][0], one) for shape, one in draft.decisions.served_shapes]
    for name, one in served:
        for run in one.runs:
            for position in run.positions.tolist():
                first.setdefault(position, name)
    for at, purchase in enumerate(draft.purchases):
        if purchase.code == Code.DEMAND and not purchase.owner:
            draft.purchases[at] = replace(purchase, owner=first[purchase.position])
