"""A workload whose cordon is final, may be refused, and may be lost with the whole cluster; as seen by reconcile."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

from tests.control.test_folding import GPU, SETTINGS, a_node, a_record, after, an_instance, decided, state
from windlass.control.reconcile.apply_plan import decide
from windlass.control.reconcile.operator_orders import Order, apply_orders
from windlass.control.reconcile.planner_input import snapshot_of
from windlass.control.reconcile.provider_health import availability_of
from windlass.control.settings import BackOff, GroupSettings
from windlass.control.state.fleet import Fleet, SliceRecord
from windlass.core.model.lifecycle import State
from windlass.core.model.reasons import Code, Reason
from windlass.core.model.snapshot import Bundle, Demand, LowUtilization, Node, ScaleDown
from windlass.core.planner import plan
from windlass.providers.protocol import Host
from windlass.workloads.protocol import Acknowledgement

IDLE = Reason(Code.IDLE, "idle 60 s")
JOB = Demand("job", (Bundle((("gpu", 8000),)),))


def cordoned(why: Reason = IDLE, **more: Any) -> SliceRecord:
    record = a_record(State.CORDONED, fence=3, joined_at=1, seen=True, **more)
    return record.replace(reason=why)


def test_a_refused_cordon_brings_the_slice_back_to_work_at_once() -> None:
    refused = Acknowledgement("s-1", 3, 0, refused="the raylet is no longer idle")
    found = after(cordoned(), instances=[an_instance()], nodes=[a_node(tasks=1)], acknowledged=[refused])
    record = found.fleet.slices["s-1"]
    assert (record.state, record.reason.code) == (State.READY, Code.DRAIN_ABORTED)
    assert record.reason.why == "the raylet is no longer idle"


def test_the_refusal_of_an_older_cordon_says_nothing_about_this_one() -> None:
    refused = Acknowledgement("s-1", 2, 0, refused="the raylet is no longer idle")
    assert state(after(cordoned(), instances=[an_instance()], nodes=[a_node()], acknowledged=[refused])) == (
        State.CORDONED
    )


def test_a_slice_that_must_go_is_drained_with_its_work_when_its_cordon_is_refused() -> None:
    refused = Acknowledgement("s-1", 3, 0, refused="the raylet is no longer idle")
    must = cordoned(leaving=Reason(Code.MANUAL, "ops asked to drain it"))
    found = after(must, instances=[an_instance()], nodes=[a_node(tasks=1)], acknowledged=[refused])
    record = found.fleet.slices["s-1"]
    assert (record.state, record.certified) == (State.DRAINING, False)


def test_a_final_cordon_is_waited_for_and_serves_no_demand() -> None:
    word = Acknowledgement("s-1", 3, 1, final=True)
    found = after(cordoned(), instances=[an_instance()], nodes=[a_node(tasks=1)], acknowledged=[word])
    assert state(found) == State.DRAINING
    bought = decided(found.fleet, 10, JOB)
    assert [one.launch.group for one in bought.bought] == ["gpu"], "demand buys a new machine in the same plan"
    late = after(found.fleet, now=99_999, instances=[an_instance()], nodes=[a_node(tasks=1)], acknowledged=[word])
    assert state(late) == State.DRAINING, "the drain limit cannot put it back to work"


def test_a_host_that_ends_after_a_final_drain_is_released_and_not_lost() -> None:
    word = Acknowledgement("s-1", 3, 0, final=True)
    found = after(cordoned(), instances=[an_instance(state="ending")], acknowledged=[word])
    assert state(found) == State.DRAINING
    assert found.fleet.slices["s-1"].certified
    assert decided(found.fleet, 10).fleet.slices["s-1"].state == State.TERMINATING


def test_a_drain_that_was_accepted_after_it_was_given_up_continues() -> None:
    ready = a_record(State.READY, fence=3, joined_at=1, seen=True)
    found = after(ready, instances=[an_instance()], acknowledged=[Acknowledgement("s-1", 3, 0, final=True)])
    record = found.fleet.slices["s-1"]
    assert (record.state, record.fence, record.certified) == (State.CORDONED, 4, False)


def test_a_drain_that_cannot_be_taken_back_is_not_taken_back_by_an_operator() -> None:
    record = a_record(State.DRAINING, fence=3, final=True, leaving=Reason(Code.MANUAL, "ops asked to drain it"))
    fleet = apply_orders(Fleet().with_records(record), [Order("undrain", "s-1", "ops")], 10)
    assert fleet.slices["s-1"].state == State.DRAINING
    assert fleet.slices["s-1"].leaving is not None


def test_a_slice_whose_cluster_is_gone_is_lost_although_its_machine_runs() -> None:
    ready = a_record(State.READY, joined_at=1, seen=True)
    gone = a_node(healthy=False, lost="its cluster is gone: the head has been restarted")
    found = after(ready, instances=[an_instance()], nodes=[gone])
    lost = [move for move in found.moves if move.target == State.LOST]
    assert [move.reason.why for move in lost] == ["its cluster is gone: the head has been restarted"]
    assert state(found) == State.TERMINATING
    assert found.fleet.slices["s-1"].is_empty
    assert found.fleet.slices["s-1"].reason.why == f"{lost[0].reason.why}; the rest of it is terminated"


def test_a_host_that_dies_before_it_joins_is_replaced_at_once_the_first_time_and_not_the_second() -> None:
    def died(fleet: Fleet, name: str, now: float) -> Fleet:
        starting = a_record(State.INITIALIZING, name=name, seen=True, since=now - 30)
        dead = replace(an_instance(name), hosts=(Host(f"{name}/0", running=False),))
        return after(fleet.with_records(starting), now=now, instances=[dead]).fleet

    once = died(Fleet(), "s-1", 30)
    assert availability_of(once.provider_health["gpu"], BackOff(), 30).state == "available"
    together = died(once, "s-2", 31)
    assert availability_of(together.provider_health["gpu"], BackOff(), 31).state == "available"
    again = died(together, "s-3", 62)
    assert availability_of(again.provider_health["gpu"], BackOff(), 62).state == "backoff"


def test_a_slice_with_work_is_not_asked_to_go_to_save_money_where_its_cordon_would_be_refused() -> None:
    rule = LowUtilization(Fraction(9, 10), 0)
    group = replace(GPU, scale_down=ScaleDown(low_utilization=rule))
    records = [
        a_record(State.READY, name=name, joined_at=1, seen=True).replace(
            nodes=(Node(f"{name}/0", (("gpu", 1000),), tasks=1),)
        )
        for name in ("s-1", "s-2")
    ]
    for final, left in ((False, 1), (True, 2)):
        settings = replace(SETTINGS, groups=(GroupSettings(group, "cloud"),), final_cordons=final)
        fleet = Fleet().with_records(*records)
        made = decide(fleet, plan(snapshot_of(fleet, (), (), settings, 10)), settings, (), str, 10)
        assert sum(one.state == State.READY for one in made.fleet.slices.values()) == left
