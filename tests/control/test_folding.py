"""What is seen decides what becomes of a slice; journeys through the book, with the time as an argument."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.control.observe.observed import Observed, observed_after
from windlass.control.observe.validation import Views
from windlass.control.reconcile.apply_plan import AppliedPlan, decide
from windlass.control.reconcile.launch_queue import ask
from windlass.control.reconcile.planner_input import snapshot_of
from windlass.control.reconcile.provider_health import availability_of, health
from windlass.control.reconcile.transitions import NEVER_LISTED, Fold, ended, fold
from windlass.control.settings import BackOff, GroupSettings, Policy, Settings
from windlass.control.state.fleet import Failure, Fleet, Moved, ProviderHealth, Refused, SliceRecord
from windlass.core.model.lifecycle import LEGAL, State
from windlass.core.model.reasons import Code, Reason
from windlass.core.model.snapshot import Bundle, Cluster, Demand, Group, ScaleDown
from windlass.core.planner import plan
from windlass.providers.protocol import Host, Instance
from windlass.workloads.protocol import Acknowledgement, WorkloadView, WorkNode

GPU = Group("gpu", (("gpu", 8000),), 4, scale_down=ScaleDown(idle_timeout=60))
POD = Group("pod", (("tpu", 4000),), 4, hosts=2)
SETTINGS = Settings(
    (GroupSettings(GPU, "cloud"), GroupSettings(POD, "cloud")), Cluster(choose="best-fit"), Policy(vanish_timeout=0)
)
WHY = Reason(Code.DEMAND, "for a test")


def a_record(state: State, *, name: str = "s-1", group: str = "gpu", since: float = 0, **more: Any) -> SliceRecord:
    return SliceRecord(name, group, "cloud", state, since, WHY, WHY, **more)


def an_instance(name: str = "s-1", group: str = "gpu", hosts: int = 1, **more: Any) -> Instance:
    return Instance(name, group, more.pop("state", "running"), tuple(Host(f"{name}/{n}") for n in range(hosts)), **more)


def a_node(name: str = "s-1", host: int = 0, **more: Any) -> WorkNode:
    return WorkNode(f"{name}/{host}", name, **more)


def after(
    record: SliceRecord | Fleet,
    *,
    now: float = 10,
    instances: Sequence[Instance] | None = (),
    nodes: Sequence[WorkNode] = (),
    acknowledged: Sequence[Acknowledgement] = (),
    refused: Sequence[Refused] = (),
    silent: bool = False,
    settings: Settings = SETTINGS,
    listed_before: Mapping[str, float] = NEVER_LISTED,
) -> Fold:
    fleet = record if isinstance(record, Fleet) else Fleet().with_records(record)
    work = None if silent else Views()(WorkloadView((), (), tuple(nodes), tuple(acknowledged)))
    listed = None if instances is None else {one.slice_id: one for one in instances}
    observed = observed_after(Observed(), {"cloud": listed}, work, {}, None, settings)
    return fold(fleet, observed, settings, now, refused, listed_before=listed_before)


def state(result: Fold, name: str = "s-1") -> State:
    return result.fleet.slices[name].state


def decided(
    fleet: Fleet, now: float, *demands: Demand, unknown: tuple[str, ...] = (), ids: Callable[[str], str] | None = None
) -> AppliedPlan:
    """What becomes of the book by a plan for these demands."""
    snapshot = snapshot_of(fleet, demands, (), SETTINGS, now)
    return decide(fleet, plan(snapshot), SETTINGS, unknown, ids or (lambda group: f"{group}-new"), now)


def test_a_launch_that_the_provider_shows_boots() -> None:
    assert state(after(a_record(State.REQUESTING), instances=[an_instance(state="pending")])) == State.BOOTING


def test_a_machine_that_is_up_waits_for_its_hosts_to_join() -> None:
    assert state(after(a_record(State.BOOTING, seen=True), instances=[an_instance()])) == State.INITIALIZING


def test_a_slice_is_ready_when_all_of_its_hosts_have_joined() -> None:
    booting = a_record(State.BOOTING, group="pod", seen=True)
    one = after(booting, instances=[an_instance(group="pod", hosts=2)], nodes=[a_node()])
    assert state(one) == State.INITIALIZING
    both = after(one.fleet, instances=[an_instance(group="pod", hosts=2)], nodes=[a_node(), a_node(host=1)])
    assert state(both) == State.READY


def test_a_host_without_its_accelerator_has_not_joined() -> None:
    bare = a_node(present=(("cpu", 8000),))
    assert state(after(a_record(State.INITIALIZING, seen=True), instances=[an_instance()], nodes=[bare])) == (
        State.INITIALIZING
    )


@pytest.mark.parametrize(
    ("before", "silent_for", "then"),
    [(State.BOOTING, 900, State.TERMINATING), (State.INITIALIZING, 900, State.TERMINATING)],
)
def test_what_never_comes_up_is_ended(before: State, silent_for: float, then: State) -> None:
    pending = an_instance(state="pending")
    late = after(a_record(before, seen=True), now=silent_for, instances=[pending])
    assert state(late) == then
    assert len(late.moves) == 2  # first what went wrong, then the ending


def test_the_requesting_timeout_is_kept_and_only_three_unanswered_tries_mean_that_nothing_was_bought() -> None:
    assert state(after(a_record(State.REQUESTING, attempts=2), now=599)) == State.REQUESTING
    # A call hangs: it may have been bought, so it is not forgotten but ended when it comes.
    assert state(after(a_record(State.REQUESTING, attempts=2), now=600)) == State.TERMINATING
    assert state(after(a_record(State.REQUESTING, attempts=3), now=599)) == State.REQUESTING
    assert state(after(a_record(State.REQUESTING, attempts=3), now=600)) == State.LAUNCH_FAILED


def test_a_refused_launch_fails_and_the_group_remembers() -> None:
    stock = Refused("s-1", Code.STOCKOUT, "none left in us-1a")
    result = after(a_record(State.REQUESTING), refused=[stock])
    assert state(result) == State.LAUNCH_FAILED
    assert result.fleet.provider_health["gpu"] == ProviderHealth(
        (Failure(10, Code.STOCKOUT),), last_error="none left in us-1a"
    )


def test_a_throttled_launch_is_retried_later() -> None:
    result = after(a_record(State.REQUESTING), refused=[Refused("s-1", Code.RATE_LIMITED, "slow down", 5)])
    assert state(result) == State.QUEUED
    assert result.fleet.provider_health["gpu"].failures == ()
    assert ask(result.fleet, SETTINGS, (), 14).slices["s-1"].state == State.QUEUED
    assert ask(result.fleet, SETTINGS, (), 16).slices["s-1"].state == State.REQUESTING


def test_a_quota_error_blocks_the_group_for_a_while() -> None:
    result = after(a_record(State.REQUESTING), refused=[Refused("s-1", Code.QUOTA, "8 of 8 GPUs")])
    provider_health = result.fleet.provider_health["gpu"]
    assert availability_of(provider_health, BackOff(), 11).state == "quota_exceeded"
    assert availability_of(provider_health, BackOff(), 310).state == "available"


def test_a_slice_that_vanishes_is_lost_and_confirmed_gone_in_one_look() -> None:
    result = after(a_record(State.READY, seen=True))
    assert [(move.source, move.target) for move in result.moves] == [
        (State.READY, State.LOST),
        (State.LOST, State.TERMINATED),
    ]


def test_a_slice_that_vanishes_while_the_workload_sees_it_well_is_not_given_up_at_once() -> None:
    here: dict[str, Any] = {"nodes": [a_node(tasks=1)]}
    missing = after(a_record(State.READY, seen=True, joined_at=0), now=10, **here)
    assert state(missing) == State.READY
    assert state(after(missing.fleet, now=309, **here)) == State.READY
    back = after(missing.fleet, now=309, instances=[an_instance()], **here)
    assert state(after(back.fleet, now=700, instances=[an_instance()], **here)) == State.READY
    assert [move.target for move in after(missing.fleet, now=310, **here).moves] == [State.LOST, State.TERMINATED]


def test_one_dead_host_takes_the_whole_slice() -> None:
    half = Instance("s-1", "pod", "running", (Host("a"), Host("b", running=False)))
    result = after(a_record(State.READY, group="pod", seen=True), instances=[half], nodes=[a_node(), a_node(host=1)])
    assert [move.target for move in result.moves] == [State.LOST, State.TERMINATING]


def test_a_host_of_a_pending_instance_is_not_dead_but_not_up_yet() -> None:
    pending = Instance("s-1", "gpu", "pending", (Host("a", running=False),))
    assert state(after(a_record(State.READY, seen=True), instances=[pending], nodes=[a_node()])) == State.READY


def test_an_unknown_provider_is_not_an_empty_one() -> None:
    result = after(a_record(State.READY, seen=True), instances=None, nodes=[a_node()])
    assert state(result) == State.READY
    assert result.unknown == ("provider cloud",)


def test_a_silent_workload_loses_no_slice_and_keeps_what_was_known_of_it() -> None:
    busy = a_record(State.READY, seen=True, nodes=())
    result = after(
        after(busy, instances=[an_instance()], nodes=[a_node(tasks=2)]).fleet, instances=[an_instance()], silent=True
    )
    assert state(result) == State.READY
    assert result.fleet.slices["s-1"].nodes[0].tasks == 2
    assert result.unknown == ("workload",)


def test_a_lost_heartbeat_does_not_lose_the_slice_at_once() -> None:
    ready = after(
        a_record(State.READY, seen=True, joined_at=0), instances=[an_instance()], nodes=[a_node(tasks=1)]
    ).fleet
    quiet = after(ready, now=20, instances=[an_instance()])
    assert state(quiet) == State.READY
    assert not quiet.fleet.slices["s-1"].nodes[0].healthy
    back = after(quiet.fleet, now=300, instances=[an_instance()], nodes=[a_node(tasks=1)])
    assert back.fleet.slices["s-1"].nodes[0].healthy
    assert state(after(back.fleet, now=400, instances=[an_instance()])) == State.READY
    silent = after(quiet.fleet, now=320, instances=[an_instance()])
    assert silent.moves == ()  # its work may go on where nobody sees it: only the fence can tell
    moves = decided(silent.fleet, 320).moves
    assert [(move.target, move.reason.code) for move in moves] == [(State.CORDONED, Code.UNHEALTHY)]


def test_a_cordoned_slice_ends_only_with_the_acknowledgement_of_its_own_fence() -> None:
    cordoned = a_record(State.CORDONED, seen=True, fence=3)
    here: dict[str, Any] = {"instances": [an_instance()], "nodes": [a_node()]}
    stale = after(cordoned, acknowledged=[Acknowledgement("s-1", 2, 0)], **here)
    assert state(stale) == State.CORDONED
    running = after(cordoned, acknowledged=[Acknowledgement("s-1", 3, 1)], **here)
    assert state(running) == State.DRAINING
    assert running.fleet.slices["s-1"].certificate is None
    empty = after(running.fleet, acknowledged=[Acknowledgement("s-1", 3, 0)], **here)
    assert empty.fleet.slices["s-1"].certificate == 3
    fleet = decided(empty.fleet, 10).fleet
    assert fleet.slices["s-1"].state == State.TERMINATING
    landed = after(empty.fleet, acknowledged=[Acknowledgement("s-1", 3, 1)], **here)
    fleet = decided(landed.fleet, 10).fleet
    assert fleet.slices["s-1"].state == State.DRAINING


def test_demand_that_is_seen_with_the_certificate_calls_the_slice_back() -> None:
    draining = a_record(State.DRAINING, seen=True, fence=1)
    empty = after(draining, instances=[an_instance()], nodes=[a_node()], acknowledged=[Acknowledgement("s-1", 1, 0)])
    decision = decided(empty.fleet, 10, Demand("job", (Bundle((("gpu", 8000),)),)))
    assert [(move.target, move.reason.code) for move in decision.moves] == [(State.READY, Code.DEMAND)]
    assert decision.fleet.slices["s-1"].state == State.READY


def test_a_drain_that_takes_too_long_is_given_up() -> None:
    draining = a_record(State.DRAINING, seen=True, fence=1)
    result = after(
        draining,
        now=3600,
        instances=[an_instance()],
        nodes=[a_node(tasks=1)],
        acknowledged=[Acknowledgement("s-1", 1, 1)],
    )
    assert state(result) == State.READY
    assert result.fleet.slices["s-1"].reason.code == Code.DRAIN_ABORTED


def test_ending_is_tried_for_ever() -> None:
    stuck = after(a_record(State.TERMINATING, seen=True), now=300, instances=[an_instance()])
    assert state(stuck) == State.TERMINATE_FAILED
    again = after(stuck.fleet, now=360, instances=[an_instance()])
    assert state(again) == State.TERMINATING
    assert state(after(again.fleet, now=361)) == State.TERMINATED


def test_an_instance_with_our_tag_and_no_record_is_adopted() -> None:
    result = after(Fleet(), instances=[an_instance("found", state="pending")])
    assert state(result, "found") == State.BOOTING
    assert result.fleet.slices["found"].started_for.code == Code.LEAKED


@pytest.mark.parametrize(
    ("started_at", "listed_before", "billed_since"),
    [
        (400, None, 400),  # nobody listed before: its own start time
        (700, 990, 975),  # the provider's clock is 300 s behind ours: the list before is late by 15 s at most
        (980, 990, 980),  # the list before was late
        (995, 990, 995),
        (1200, 990, 1000),  # the provider's clock is ahead
    ],
)
def test_an_adopted_instance_is_billed_from_its_start_and_not_from_long_before_a_list_without_it(
    started_at: float, listed_before: float | None, billed_since: float
) -> None:
    lists = {} if listed_before is None else {"cloud": listed_before}
    found = replace(an_instance("found"), started_at=started_at)
    settings = replace(SETTINGS, policy=Policy(vanish_timeout=15))
    result = after(Fleet(), now=1000, instances=[found], settings=settings, listed_before=lists)
    assert result.fleet.slices["found"].billed_since == billed_since


def test_an_instance_of_a_group_that_is_gone_is_ended() -> None:
    found = after(Fleet(), instances=[an_instance("found", "old")]).fleet
    assert decided(found, 11).fleet.slices["found"].state == State.TERMINATING


def test_an_instance_of_a_group_that_is_gone_and_that_holds_work_is_drained_first() -> None:
    found = after(Fleet(), instances=[an_instance("found", "old")], nodes=[a_node("found", tasks=1)]).fleet
    assert decided(found, 11).fleet.slices["found"].state == State.CORDONED


def test_failures_make_the_back_off_longer_and_it_heals() -> None:
    rules = BackOff()
    record_failure = ProviderHealth(tuple(Failure(at, Code.STOCKOUT) for at in (0, 10, 20)), last_error="none left")
    assert health(record_failure, rules, 20) == pytest.approx(0.7**3)
    assert availability_of(record_failure, rules, 20).until == pytest.approx(20 + 15 / 0.7**3)
    assert health(record_failure, rules, 2260) == pytest.approx(0.7**1.5, rel=0.01)
    assert availability_of(record_failure, rules, 3621).state == "available"
    assert availability_of(replace(record_failure, succeeded_at=30), rules, 31).state == "available"


# -- journeys ------------------------------------------------------------------------------------------------------


def test_demand_becomes_a_slice_and_an_idle_slice_goes_under_the_fence() -> None:
    """One slice from the first demand to its confirmed end, with the planner deciding."""
    ids = (f"s-{number}" for number in count(1))
    demand = Demand("job", (Bundle((("gpu", 8000),)),))

    def planned(fleet: Fleet, now: float, *demands: Demand) -> tuple[Fleet, tuple[Moved, ...]]:
        decision = decided(fleet, now, *demands, ids=lambda _: next(ids))
        return decision.fleet, decision.moves

    fleet, moves = planned(Fleet(), 0, demand)
    assert [(move.slice_id, move.target) for move in moves] == [("s-1", State.QUEUED)]
    fleet, again = planned(fleet, 1, demand)
    assert again == ()
    fleet = ask(fleet, SETTINGS, (), 1)
    assert fleet.slices["s-1"].state == State.REQUESTING
    fleet = after(fleet, now=2, instances=[an_instance(state="pending")]).fleet
    fleet = after(fleet, now=30, instances=[an_instance()], nodes=[a_node(tasks=1)]).fleet
    assert fleet.slices["s-1"].state == State.READY
    fleet = after(fleet, now=40, instances=[an_instance()], nodes=[a_node(idle_since=40)]).fleet
    fleet, moves = planned(fleet, 99)
    assert moves == ()
    fleet, moves = planned(fleet, 100)
    assert [(move.target, move.reason.code) for move in moves] == [(State.CORDONED, Code.IDLE)]
    here: dict[str, Any] = {"instances": [an_instance()], "nodes": [a_node(idle_since=40)]}
    fleet = after(fleet, now=101, acknowledged=[Acknowledgement("s-1", 1, 0)], **here).fleet
    fleet, _ = planned(fleet, 101)
    assert fleet.slices["s-1"].state == State.TERMINATING
    fleet = after(fleet, now=102).fleet
    assert ended(fleet) == ("s-1",)


def test_nothing_shrinks_while_a_source_is_unknown() -> None:
    idle = a_record(State.READY, seen=True)
    fleet = after(idle, now=1000, instances=[an_instance()], nodes=[a_node(idle_since=0)]).fleet
    assert [move.target for move in decided(fleet, 1000).moves] == [State.CORDONED]
    kept = decided(fleet, 1000, unknown=("provider cloud",))
    assert kept.moves == ()
    assert kept.fleet.slices["s-1"].state == State.READY


def test_a_quarantined_slice_is_left_alone() -> None:
    odd = a_record(State.READY, seen=True, quarantine="READY cannot become TERMINATING")
    fleet = Fleet().with_records(odd)
    assert decided(fleet, 10_000).moves == ()
    assert state(after(fleet, now=20_000)) == State.READY


@st.composite
def sights(draw: st.DrawFn) -> dict[str, Any]:
    listed = draw(st.sampled_from(["unknown", "gone", "pending", "running", "dead"]))
    instances: list[Instance] | None = []
    if listed == "unknown":
        instances = None
    elif listed == "dead":
        instances = [replace(an_instance(), hosts=(Host("h", running=False),))]
    elif listed != "gone":
        instances = [an_instance(state=listed)]
    nodes = [a_node(tasks=draw(st.integers(0, 1)), idle_since=0)] if draw(st.booleans()) else []
    words = draw(st.lists(st.builds(Acknowledgement, st.just("s-1"), st.integers(0, 3), st.integers(0, 1)), max_size=2))
    return {"instances": instances, "nodes": nodes, "acknowledged": words, "silent": draw(st.booleans())}


@given(st.lists(st.tuples(sights(), st.integers(1, 2000)), max_size=12), st.sampled_from(State), st.integers(0, 2))
def test_whatever_is_seen_every_move_is_legal_and_no_work_is_ended_without_its_certificate(
    steps: list[tuple[dict[str, Any], int]], start: State, fence: int
) -> None:
    fleet, now = Fleet().with_records(a_record(start, seen=True, fence=fence)), 0
    for sight, pause in steps:
        now += pause
        result = after(fleet, now=now, **sight)
        assert all(move.source is None or (move.source, move.target) in LEGAL for move in result.moves)
        assert not any((move.source, move.target) == (State.DRAINING, State.TERMINATING) for move in result.moves)
        if result.fleet.slices["s-1"].state == State.DRAINING and result.fleet.slices["s-1"].certificate is not None:
            words = [word for word in sight["acknowledged"] if word.epoch == fence]
            assert not sight["silent"]
            assert words
            assert all(word.running == 0 for word in words)
        assert not result.fleet.slices["s-1"].quarantine
        if sight["instances"] is None:
            endings = {State.LOST, State.LAUNCH_FAILED, State.LAUNCH_TIMEOUT, State.TERMINATED}
            assert not endings & {move.target for move in result.moves}
        fleet = result.fleet
