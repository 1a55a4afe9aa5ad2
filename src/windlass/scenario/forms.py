"""What each part of a scenario may hold, and how large its numbers may be."""

from __future__ import annotations

from typing import Final

from windlass.core.lifecycle import State
from windlass.core.snapshot import Gang

from .reading import Form

# Larger numbers are typing errors, and would only cost time and memory before they fail.
MOST_HOSTS: Final = 4096
MOST_DEVICES: Final = 1024
MOST_SLICES: Final = 1_000_000
MOST_TASKS: Final = 10_000_000
MOST_GANG: Final = 100_000
MOST_EFFORT: Final = 1000
MOST: Final = 10**9
"""For numbers that are only compared: ranks, priorities, nodes of the cluster."""

SCENARIO: Final = Form("a scenario", ("now", "cluster", "groups", "slices", "demands", "requests"), ("groups",))
CLUSTER: Final = Form("the cluster", ("max_nodes", "max_hourly_cost", "max_launching", "choose", "effort"))
GROUP: Final = Form(
    "a group",
    (
        *("resources", "labels", "taints", "hosts", "min", "max", "spare", "rank", "price", "preemptible"),
        *("max_launching", "scale_down", "availability", "protected", "boot_seconds"),
    ),
    ("resources", "max"),
)
SCALE_DOWN: Final = Form("scale_down", ("idle_timeout", "low_utilization", "utilization", "consolidate"))
LOW_UTILIZATION: Final = Form("low_utilization", ("below", "keep"), ("below",))
UTILIZATION: Final = Form("utilization", ("percent", "delay", "spare_nodes", "resource"), ("percent", "delay"))
AVAILABILITY: Final = Form("availability", ("state", "until", "why"), ("state",))
TAINT: Final = Form("a taint", ("key", "value", "effect"), ("key",))
TOLERATION: Final = Form("a toleration", ("key", "operator", "value", "effect"))
SLICE: Final = Form("a slice", ("id", "group", "state", "since", "marked_until", "nodes"), ("id", "group", "state"))
NODE: Final = Form("a node", ("id", "used", "tasks", "idle_since", "labels", "healthy"))
DEMAND: Final = Form(
    "a demand",
    (
        *("id", "needs", "count", "where", "prefer", "tolerates", "priority", "since"),
        *("gang", "deadline", "bundles"),
    ),
    ("id",),
)
REQUEST: Final = Form("a request", DEMAND.known, DEMAND.required)
BUNDLE: Final = Form("a bundle", ("needs", "count"), ("needs",))

STATES: Final = tuple(State)
STRATEGIES: Final = ("best-fit", "rank", "cheapest")
GANGS: Final = tuple(Gang)
