"""Fixed size: what many clusters are. Machines for what runs at once in 95 % of the time, and nothing comes or goes.

It knows the trace beforehand, which no real operator does. Each job is counted on the machine where it costs least, as
in the pool rule, and each kind of machine gets as many as its jobs filled at once for 95 % of the time from the first
arrival to the last, and at least what its largest gang needs. What comes above that waits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from fractions import Fraction
from math import ceil

from windlass.control.settings import Settings
from windlass.core.capacity.room import Need
from windlass.core.demand import Shape
from windlass.core.model.snapshot import Demand, Snapshot, selector_of
from windlass.sim.workload.jobs import Job

from .peer import Sight, seen
from .pool_rule import pool_of, share_of

ENOUGH = Fraction(95, 100)


def fixed_size(settings: Settings, jobs: Iterable[Job]) -> str:
    """A policy to lay over the configuration: ``min`` and ``max`` of every group."""
    jobs = list(jobs)
    demands = tuple(job.demand for job in jobs)
    sight = seen(Snapshot(tuple(one.group for one in settings.groups), demands=demands))
    sizes = _sizes(sight, jobs)
    names = [one.group.name for one in settings.groups]
    return json.dumps({"groups": {name: {"min": sizes.get(name, 0), "max": sizes.get(name, 0)} for name in names}})


def _sizes(sight: Sight, jobs: list[Job]) -> dict[str, int]:
    """Machines of each kind."""
    ends = max((job.arrives for job in jobs), default=0.0)
    changes: dict[str, list[tuple[float, Fraction]]] = {}
    least: dict[str, int] = {}
    for job in jobs:
        for bundle in job.demand.bundles:
            group = pool_of(sight, _shape(sight, job.demand))
            if group is None:
                continue
            share = share_of(group, bundle.needs)
            # Whole tasks on whole machines: where two do not fit, one takes all of it.
            nodes = Fraction(bundle.count, int(1 / share))
            some = changes.setdefault(group.name, [])
            some += [(job.arrives, nodes), (min(job.arrives + job.duration, ends), -nodes)]
            least[group.name] = max(least.get(group.name, 1), ceil(nodes) if job.demand.gang else 1)
    return {name: max(least[name], ceil(_level(some, ends))) for name, some in changes.items()}


def _shape(sight: Sight, demand: Demand) -> Shape:
    needs = demand.bundles[0].needs
    return Shape(needs, Need.of(dict(needs), sight.draft.kinds), selector_of(demand), 0, ((demand.id, 1),), 1)


def _level(changes: list[tuple[float, Fraction]], ends: float) -> Fraction:
    """What is not exceeded for most of the time."""
    spans: dict[Fraction, float] = {}
    now, height = 0.0, Fraction(0)
    for at, change in [*sorted(changes), (ends, Fraction(0))]:
        spans[height] = spans.get(height, 0.0) + at - now
        now, height = at, height + change
    passed = 0.0
    for height, span in sorted(spans.items()):
        passed += span
        if passed >= ENOUGH * ends:
            return height
    return max(spans)
