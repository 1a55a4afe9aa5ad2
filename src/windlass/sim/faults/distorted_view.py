"""How a workload's view comes out wrong: demand that is absent, doubled, poisoned, or was never there."""

from __future__ import annotations

from dataclasses import replace
from math import nan
from typing import Any, Final

from windlass.core.model.snapshot import Bundle, Demand, amounts
from windlass.workloads.protocol import WorkloadView

from .catalogue import KINDS, Storm

BURST = 100_000
DEMAND: Final = frozenset(kind for kind in KINDS if kind.startswith("demand-"))


def distorted(view: WorkloadView, storm: Storm, now: float, look: int) -> WorkloadView:
    """The view as it arrives, on the ``look``-th look."""
    if DEMAND.isdisjoint(storm.by_kind):
        return view
    demands: list[Any] = list(view.demands)
    if storm.strikes("demand-absent", now, look):
        demands = []
    if storm.strikes("demand-doubled", now, look):
        demands = [one for demand in demands for one in (demand, demand)]
    if storm.strikes("demand-reordered", now, look):
        demands.reverse()
    one_cpu = amounts({"cpu": 1000})
    if storm.strikes("demand-negative", now, look):
        demands.append(Demand("negative", (Bundle(one_cpu, -3),)))
    if storm.strikes("demand-nan", now, look):
        demands.append(Demand("not-a-number", (Bundle(one_cpu, 1),), since=nan))
    if storm.strikes("demand-poisoned", now, look):
        demands.insert(len(demands) // 2, {"id": "poisoned"})
    if storm.strikes("demand-burst", now, look):
        demands.append(Demand("burst", (Bundle(one_cpu, BURST),), since=now))
    if storm.strikes("demand-impossible", now, look):
        demands.append(Demand("impossible", (Bundle(amounts({"cpu": 10**9, "unobtainium": 1000}), 2),), since=now))
    return view if demands == list(view.demands) else replace(view, demands=tuple(demands))
