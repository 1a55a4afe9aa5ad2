"""This module logs which tasks wait for which machines that are starting."""

from __future__ import annotations

from collections.abc import Iterator

from windlass.core.model.lifecycle import IN_FLIGHT
from windlass.core.model.plan import Plan
from windlass.core.model.reasons import Code, plural
from windlass.core.model.snapshot import Snapshot

from .events import NAMED, EventLine


class AssignmentLog:
    """Reports each demand once for every machine in flight that it is put on."""

    def __init__(self) -> None:
        self._known: dict[str, frozenset[str]] = {}

    def lines(self, snapshot: Snapshot | None, plan: Plan | None) -> Iterator[EventLine]:
        """Return a line for each demand that this plan puts on a machine in flight and no plan before did."""
        if snapshot is None or plan is None:
            return
        coming = {one.id for one in snapshot.slices if one.state in IN_FLIGHT}
        tasks: dict[str, dict[str, int]] = {}
        for one in plan.placements if coming else ():
            if one.on in coming:
                tasks.setdefault(one.demand, {})[one.on] = tasks.get(one.demand, {}).get(one.on, 0) + one.count
        for demand, on in sorted(tasks.items()):
            fresh = sorted(on.keys() - self._known.get(demand, frozenset()))
            if fresh:
                more = f" and {len(fresh) - NAMED} more" if len(fresh) > NAMED else ""
                count = plural(sum(on[name] for name in fresh), "task")
                text = f"{demand}: {count} assigned to {', '.join(fresh[:NAMED])}{more}, still starting"
                yield EventLine(snapshot.now, "assigned", Code.LAUNCHING, text, (demand, *fresh))
        self._known = {demand: frozenset(on) for demand, on in tasks.items()}
