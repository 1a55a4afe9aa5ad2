"""The offline bound is a cost that no policy can beat, because it knows the future and shares machines freely.

Each task pays, for exactly its run time, the share of a machine that its largest need takes, of the cheapest kind.
There is no boot time, no idle time and no fragmentation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from windlass.core.model.snapshot import Amounts, Demand, Group
from windlass.sim.workload.jobs import Job


def offline_bound(groups: Sequence[Group], jobs: Iterable[Job]) -> float:
    """Return the bound in dollars. Jobs that fit no group cost nothing."""
    known: dict[tuple[object, ...], float] = {}
    total = 0.0
    for job in jobs:
        for bundle in job.demand.bundles:
            key = (bundle.needs, job.demand.where, job.demand.tolerates)
            if key not in known:
                known[key] = _least_per_hour(groups, job.demand, bundle.needs)
            total += known[key] * bundle.count * job.duration / 3600
    return total


def _least_per_hour(groups: Sequence[Group], demand: Demand, needs: Amounts) -> float:
    prices = [share * (group.price or 0) / 10**9 for group in groups if (share := _share(group, demand, needs))]
    return min(prices, default=0.0)


def _share(group: Group, demand: Demand, needs: Amounts) -> float | None:
    """Return the share of a slice that a task uses; None: it does not fit."""
    labels, total = group.node_labels(), dict(group.resources)
    if not all(condition.holds(labels) for condition in demand.where):
        return None
    if any(amount > total.get(name, 0) for name, amount in needs):
        return None
    return max((amount / total[name] for name, amount in needs if amount), default=0.0) / group.hosts
