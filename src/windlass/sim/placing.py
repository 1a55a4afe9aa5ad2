"""Where waiting work goes on the nodes that are there: the planner's rule, with nothing to buy.

The order of demand, the conditions and what fits are asked from ``windlass.core``, so that the simulated workload
starts a task exactly where a plan says that it fits. A plan tells slices; a workload must know nodes, and that is all
that is worked out here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from windlass.core.draft import Draft, Way
from windlass.core.gangs import serve_whole, tasks_of
from windlass.core.layout import Layout
from windlass.core.reasons import Code
from windlass.core.room import Ints
from windlass.core.shapes import bundles_in_order, levels, selector_of
from windlass.core.snapshot import Amounts, Demand, Gang, Group, Seconds, Slice, Snapshot


@dataclass(frozen=True, slots=True)
class Placed:
    """``count`` equal tasks of a demand that start on a node."""

    demand: str
    node: str
    needs: Amounts
    count: int


def placed(
    groups: Iterable[Group], slices: Sequence[Slice], demands: Sequence[Demand], now: Seconds
) -> Iterator[Placed]:
    """What can start now on these slices, all of them ready and of a known group."""
    closed = tuple(replace(group, max=0, min=0, spare=0) for group in groups)
    draft = Draft(Layout(Snapshot(groups=closed, slices=tuple(slices), demands=tuple(demands), now=now)), Way())
    draft.open()
    rows = [node.id for item in draft.slices for node in sorted(item.nodes, key=lambda n: n.id) if node.healthy]
    assert len(rows) == len(draft.offers)
    valid = [demand for demand in demands if demand.mistake() is None and not _late(demand, now)]
    for level in levels(valid, draft.kinds, draft.largest):
        for gang in level.gangs:
            yield from _anywhere(draft, gang, rows) if gang.gang == Gang.ANY else _together(draft, gang, rows)
        for shape in level.shapes:
            taken = draft.offers.place(shape.need, shape.selector, shape.count)
            members = iter(shape.members)
            name, left = "", 0
            for row, count in zip(taken.rows.tolist(), taken.counts.tolist(), strict=True):
                while count:
                    if not left:
                        name, left = next(members)
                    some = min(left, count)
                    yield Placed(name, rows[row], shape.needs, some)
                    left, count = left - some, count - some


def _late(demand: Demand, now: Seconds) -> bool:
    return demand.gang is not None and demand.deadline is not None and now >= demand.deadline


def _anywhere(draft: Draft, gang: Demand, rows: Sequence[str]) -> list[Placed]:
    """Each member where it fits, if all of them do."""
    mark, found = draft.offers.mark(), []
    bundles = bundles_in_order(gang, draft.largest)
    for bundle, (need, count) in zip(bundles, tasks_of(draft, gang), strict=True):
        taken = draft.offers.place(need, selector_of(gang), count)
        if taken.total < count:
            draft.offers.undo(mark)
            return []
        pairs = zip(taken.rows.tolist(), taken.counts.tolist(), strict=True)
        found += [Placed(gang.id, rows[row], bundle.needs, some) for row, some in pairs]
    draft.offers.room.forget()
    return found


def _together(draft: Draft, gang: Demand, rows: Sequence[str]) -> list[Placed]:
    """On one node, or one member a host: what each node has less of tells which member it took."""
    before = draft.offers.room.free.copy()
    served = serve_whole(draft, draft.offers, gang, Code.DEMAND)
    draft.offers.room.forget()
    if served is None:
        return []
    less = before - draft.offers.room.free
    touched = np.flatnonzero(less.any(axis=1)).tolist() or _first_rows(draft, served.runs[0][0])
    bundles = bundles_in_order(gang, draft.largest)
    if gang.gang == Gang.SAME_NODE:
        return [Placed(gang.id, rows[touched[0]], bundle.needs, bundle.count) for bundle in bundles]
    found, free = [], list(touched)
    for bundle in bundles:
        vector = _vector(draft, bundle.needs)
        mine = [row for row in free if (less[row] == vector).all()][: bundle.count]
        # Members that need nothing leave no trace; they go to hosts that nobody else of the gang is on.
        mine += [row for row in range(len(rows)) if row not in touched and row not in mine][: bundle.count - len(mine)]
        free = [row for row in free if row not in mine]
        found += [Placed(gang.id, rows[row], bundle.needs, 1) for row in mine]
    return found


def _first_rows(draft: Draft, positions: Ints) -> list[int]:
    return np.flatnonzero(np.isin(draft.offers.position, positions)).tolist()


def _vector(draft: Draft, needs: Amounts) -> Ints:
    vector = np.zeros(len(draft.kinds.names), np.int64)
    for name, amount in needs:
        if name in draft.kinds.column:
            vector[draft.kinds.column[name]] = amount
    return vector
