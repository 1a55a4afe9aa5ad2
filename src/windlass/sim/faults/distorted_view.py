"""This module distorts a workload's view: demand that is absent, doubled, malformed or invented."""

from __future__ import annotations

from dataclasses import replace
from math import nan
from typing import Any, Final

from windlass.core.model.snapshot import Bundle, Demand, amounts
from windlass.workloads.protocol import WorkloadView

from .catalogue import KINDS, FaultSet

BURST = 100_000
DEMAND: Final = frozenset(kind for kind in KINDS if kind.startswith("demand-"))


def distorted(view: WorkloadView, fault_set: FaultSet, now: float, number: int) -> WorkloadView:
    """Return the view of the observation with this number as it arrives."""
    if DEMAND.isdisjoint(fault_set.by_kind):
        return view
    demands: list[Any] = list(view.demands)
    if fault_set.occurs("demand-absent", now, number):
        demands = []
    if fault_set.occurs("demand-doubled", now, number):
        demands = [one for demand in demands for one in (demand, demand)]
    if fault_set.occurs("demand-reordered", now, number):
        demands.reverse()
    one_cpu = amounts({"cpu": 1000})
    if fault_set.occurs("demand-negative", now, number):
        demands.append(Demand("negative", (Bundle(one_cpu, -3),)))
    if fault_set.occurs("demand-nan", now, number):
        demands.append(Demand("not-a-number", (Bundle(one_cpu, 1),), since=nan))
    if fault_set.occurs("demand-poisoned", now, number):
        demands.insert(len(demands) // 2, {"id": "poisoned"})
    if fault_set.occurs("demand-burst", now, number):
        demands.append(Demand("burst", (Bundle(one_cpu, BURST),), since=now))
    if fault_set.occurs("demand-impossible", now, number):
        demands.append(Demand("impossible", (Bundle(amounts({"cpu": 10**9, "unobtainium": 1000}), 2),), since=now))
    return view if demands == list(view.demands) else replace(view, demands=tuple(demands))
