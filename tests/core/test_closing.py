"""Dear slices are closed to small work, and called back for work that deserves them."""

from __future__ import annotations

import pytest

import windlass as wl
from windlass.core.invariants import broken_laws
from windlass.core.plan import Plan
from windlass.core.snapshot import Snapshot

RULE = {"close_above": 1.5}
ONE = wl.group("one", cpu=8, gpu=1, max=9, price=1, scale_down=RULE)
TWO = wl.group("two", cpu=16, gpu=2, max=9, price=1.5, scale_down=RULE)
FOUR = wl.group("four", cpu=32, gpu=4, max=9, price=5, scale_down=RULE)
SMALL, WIDE = {"cpu": 6, "gpu": 1}, {"cpu": 18, "gpu": 3}


def planned(snapshot: Snapshot) -> Plan:
    plan = wl.plan(snapshot)
    assert list(broken_laws(snapshot, plan)) == []
    return plan


def busy(name: str, group: str, state: str = "ready", **used: float) -> dict:
    return wl.slice_(name, group, state, since=0, nodes=[wl.node(f"{name}-0", used=used or SMALL, tasks=1)])


def drained(plan: Plan) -> list[str]:
    return [change.slice for change in plan.drain]


def test_a_slice_with_work_that_is_dearer_than_the_rule_says_is_closed():
    slices = [busy("s-1", "one", gpu=0.5), busy("s-2", "two"), busy("s-3", "four")]
    plan = planned(wl.snapshot([ONE, TWO, FOUR], slices=slices))
    assert drained(plan) == ["s-3"]
    assert "$5.00/h" in plan.drain[0].reason.why


def test_an_idle_slice_is_left_to_the_rules_for_idle_ones():
    assert not planned(wl.snapshot([ONE, FOUR], slices=[wl.slice_("s-1", "four", since=0)])).drain


def test_without_the_rule_nothing_is_closed():
    plain = wl.group("four", cpu=32, gpu=4, max=9, price=5, scale_down={"idle_timeout": 60})
    assert not planned(wl.snapshot([ONE, plain], slices=[busy("s-1", "four")])).drain


def test_a_group_is_compared_with_groups_of_the_same_kinds_of_resource_only():
    cpus = wl.group("cpus", cpu=2, max=9, price=0.1)
    only = wl.group("only", cpu=32, gpu=4, max=9, price=5, scale_down=RULE)
    assert not planned(wl.snapshot([cpus, only], slices=[busy("s-1", "only")])).drain


def test_small_work_gets_a_slice_of_its_own_rather_than_room_on_a_closed_one():
    closed = busy("s-1", "four", "draining")
    plan = planned(wl.snapshot([ONE, FOUR], slices=[closed], demands=[wl.demand("small", SMALL)]))
    assert plan.launch == {"one": 1}
    assert not plan.uncordon


def test_work_whose_own_slice_would_be_as_dear_calls_a_closed_one_back():
    closed = busy("s-1", "four", "draining")
    plan = planned(wl.snapshot([ONE, FOUR], slices=[closed], demands=[wl.demand("wide", WIDE)]))
    assert [change.slice for change in plan.uncordon] == ["s-1"]
    assert not plan.launches


def test_a_slice_that_gets_work_in_this_plan_is_not_closed_by_it():
    plan = planned(wl.snapshot([ONE, FOUR], slices=[busy("s-1", "four")], demands=[wl.demand("wide", WIDE)]))
    assert not plan.drain
    assert not plan.launches


@pytest.mark.parametrize("more", [{"min": 1}, {"protected": ["s-1"]}, {"frozen": True}])
def test_what_must_stay_open_stays_open(more):
    kept = wl.group("four", cpu=32, gpu=4, max=9, price=5, scale_down=RULE, **more)
    assert not planned(wl.snapshot([ONE, kept], slices=[busy("s-1", "four")])).drain


@pytest.mark.parametrize("value", [0.5, True, "much", 1001])
def test_a_value_that_means_nothing_is_told(value):
    with pytest.raises(wl.ScenarioError, match="close_above: must be a number from 1 to 1000"):
        wl.snapshot([wl.group("one", cpu=8, max=9, price=1, scale_down={"close_above": value})])
