"""Says what each benchmark found, in one sentence with the numbers of the last run.

A sentence names its numbers by their check: ``[[first paint]]`` stands for the measured value of that check.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

CONCLUSIONS: Final = {
    "growth": (
        "How long does one plan take?",
        (
            "A plan for 1,000,000 tasks on 10,000 machines in 100 groups takes "
            "[[best-fit: 1,000,000 demands, 10,000 nodes, 100 groups: CPU time]] with `best-fit` and "
            "[[cheapest: 1,000,000 demands, 10,000 nodes, 100 groups: CPU time]] with `cheapest`, in "
            "[[cheapest: 1,000,000 demands, 10,000 nodes, 100 groups: peak memory]] of memory."
        ),
    ),
    "karpenter_mix": (
        "How many pods per second, for pods like those of Karpenter's benchmark?",
        (
            "20,000 pods: [[best-fit: 20,000 pods, 400 groups: pods per second]] per CPU second with `best-fit`, "
            "[[cheapest: 20,000 pods, 400 groups: pods per second]] with `cheapest`."
        ),
    ),
    "karpenter_pods": (
        "And for Karpenter's own pods, each a task of its own with its constraints?",
        (
            "5,000 pods: [[5,000 pods: times Karpenter's pods per CPU second]] Karpenter's rate, at "
            "[[5,000 pods: fewer dollars than Karpenter]] lower cost. 2,000 pods: "
            "[[2,000 pods: times Karpenter's pods per CPU second]] and [[2,000 pods: fewer dollars than Karpenter]]."
        ),
    ),
    "cost_bound": (
        "How far is `cheapest` from the lowest possible cost?",
        (
            "8,152 real pods, 112 machine types: the cost is "
            "[[pods_openb_default: cheapest, effort 1: cost / lower bound]] times the lower bound after "
            "[[pods_openb_default: cheapest, effort 1: CPU time]], and "
            "[[pods_openb_default: cheapest, effort 10: cost / lower bound]] times with ten times the effort."
        ),
    ),
    "against_ray": (
        "How does it compare with Ray's own scheduler?",
        (
            "10,000 tasks on 100 half-free nodes: [[fewest: 10,000 demands, 100 half-free nodes: times as fast as "
            "Ray]] as fast (`cheapest` with equal prices). It launches more nodes than Ray in [[fewest: rows with "
            "more nodes than Ray launches, of 31 where both serve the same]] of 31 inputs; `best-fit`, which takes "
            "smaller nodes, in [[best-fit: rows with more nodes than Ray launches, of 31 where both serve the same]]."
        ),
    ),
    "loop": (
        "How long does a pass of the controller take?",
        (
            "With 1,000 machines the 99th percentile is [[1,000 slices: p99 of a pass]] of wall time, "
            "with 10,000 it is "
            "[[10,000 slices: p99 of a pass]]. From a new task to the provider's launch call: "
            "[[from demand to the provider's call: p95]] (95th percentile)."
        ),
    ),
    "simulating": (
        "How fast is the simulator?",
        (
            "The whole Philly trace takes [[the whole Philly trace]] of CPU, and a week of 1,000 machines takes "
            "[[a week of 1,000 nodes]]."
        ),
    ),
    "traces": (
        "What does it cost on real traces, against models of other autoscalers?",
        (
            "At an equal 95th percentile of the wait, [[openb: cost below the best peer at an equal p95 wait, the "
            "lowest wait]] below the best of them on openb, and [[philly: cost below the best peer at an equal p95 "
            "wait, the lowest wait]] on Philly, where the lower bound is less than 2 % below Ray. Policies that are "
            "better in both cost and wait: [[openb: peers that are better in both cost and p95 wait]] and [[philly: "
            "peers that are better in both cost and p95 wait]]."
        ),
    ),
    "parts": (
        "Does that hold on other parts of the traces?",
        (
            "Ray is better in both cost and wait in [[parts in which Ray is better in both cost and p95 wait]] parts; "
            "it costs less in 4 of the 8, at an equal wait. The parts differ by tens of per cent in either direction, "
            "so no single part decides."
        ),
    ),
    "pool": (
        "What is the overhead of a task in the elastic pool?",
        (
            "10,000 empty tasks take [[no-op tasks, against joblib's loky]] the time of joblib, and a small part of "
            "one `submit` per task with Dask or Ray. A task of 100 ms takes [[overhead of a task of 100 ms]] longer. "
            "A new node runs its first task [[from a burst to the first task of a new node]] after a burst."
        ),
    ),
    "pool_crashes": (
        "How soon does a program learn of a crash?",
        (
            "A task that runs out of memory: [[out of memory, against loky]] the time of loky without retries, [[out "
            "of memory, with the default retries, against loky]] with the default of one retry, which runs it twice."
        ),
    ),
    "pool_data": (
        "How fast are large values?",
        (
            "20 tasks that share 52 MB take [[20 tasks share an array of 52 MB, against loky]] the time of loky and "
            "[[20 tasks share an array of 52 MB, against Ray]] the time of Ray."
        ),
    ),
    "remote": (
        "How soon does a machine with SSH run its first task?",
        "[[from a burst to the first task of a new SSH machine]] after a burst, on hosts that share this computer.",
    ),
    "dashboard": (
        "How fast is the dashboard with 5,000 machines?",
        (
            "The first paint takes [[first paint]]. A change is on the screen [[journal commit to pixel: p95]] after "
            "its commit (95th percentile)."
        ),
    ),
    "kubernetes": (
        "How fast is it on a Kubernetes cluster with 1,000 nodes and 30,300 pods?",
        (
            "From start to plan: [[from start to plan, 30,300 pods]] of CPU. From an unschedulable pod to the "
            "provider's call: [[from the unschedulable pod to the provider's call, 95 of 100]] (95th percentile)."
        ),
    ),
}
"""By benchmark: a question of a user, and the sentence that answers it."""
NUMBER: Final = re.compile(r"\[\[(.+?)\]\]")


def conclusion(result: Mapping[str, Any]) -> tuple[str, str]:
    """Return the question and the answer; without an answer if a number of the sentence was not measured."""
    if result["name"] == "spot":
        return "Do spot machines pay?", _spot(result["rows"])
    question, sentence = CONCLUSIONS[result["name"]]
    shown = {check["what"]: check["shown"] for check in result["checks"]}
    if any(what not in shown for what in NUMBER.findall(sentence)):
        return question, "Not measured in this run."
    return question, NUMBER.sub(lambda found: shown[found[1]], sentence)


def _spot(rows: Sequence[Mapping[str, Any]]) -> str:
    costs = {(row["longest"], row["who"] == "on demand only"): row["dollars"] for row in rows}
    parts = [
        f"{100 * (costs[longest, False] / firm - 1):+.1f} % for jobs of at most {longest}"
        for (longest, is_firm), firm in costs.items()
        if is_firm and (longest, False) in costs
    ]
    return f"Cost against on-demand machines alone: {', '.join(parts)}. Longer jobs lose more work to preemptions."
