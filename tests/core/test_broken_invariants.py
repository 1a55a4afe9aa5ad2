"""A broken law of a plan names the invariant that it belongs to, as data."""

from __future__ import annotations

from dataclasses import replace

import windlass as wl
from windlass.core.plan_laws import broken_invariants


def invariants(snapshot: wl.Snapshot, plan: wl.Plan) -> set[str]:
    return {invariant for invariant, _ in broken_invariants(snapshot, plan)}


def test_a_right_plan_breaks_none():
    snapshot = wl.snapshot(groups=[wl.group("cpu", cpu=4, max=2)], demands=[wl.demand("a", {"cpu": 4}, count=2)])
    assert invariants(snapshot, wl.plan(snapshot)) == set()


def test_a_split_gang_breaks_s7():
    snapshot = wl.snapshot(
        groups=[wl.group("cpu", cpu=4, max=4)],
        demands=[wl.gang("a", [({"cpu": 4}, 2)]), wl.demand("b", {"cpu": 64})],
    )
    plan = wl.plan(snapshot)
    (waits,) = plan.waiting
    assert "S7" in invariants(snapshot, replace(plan, waiting=(replace(waits, demand="a"), waits)))


def test_a_launch_beyond_max_breaks_s3():
    snapshot = wl.snapshot(groups=[wl.group("cpu", cpu=4, max=2)], demands=[wl.demand("a", {"cpu": 4}, count=2)])
    plan = wl.plan(snapshot)
    lower = replace(snapshot, groups=(replace(snapshot.groups[0], max=1),))
    assert invariants(lower, plan) == {"S3"}
