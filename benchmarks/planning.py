"""How long a plan of new slices takes, which no memo has seen before.

The planner recognizes the very slices of its last plan, as the loop needs it. A plan that is timed again gets others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from windlass.core.model.plan import Plan
from windlass.core.model.snapshot import Snapshot
from windlass.core.planner import plan

from .timing import ENOUGH_SECONDS, REPEATS, Timed, cpu_time


def plan_time(
    snapshot: Snapshot,
    then: Callable[[Plan], Any] = lambda planned: planned,
    repeats: int = REPEATS,
    enough: float = ENOUGH_SECONDS,
) -> Timed[Any]:
    """The median CPU time of a plan, with what is done with it ``then``."""
    given = [snapshot]

    def afresh() -> None:
        given[0] = replace(snapshot, slices=tuple([replace(one) for one in snapshot.slices]))

    return cpu_time(lambda: then(plan(given[0])), repeats, enough, before=afresh)
