"""The rule of an elastic pool: a pure function from pressure to nodes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from windlass.core.model.lifecycle import State
from windlass.core.model.snapshot import Bundle, Demand, Group, Node, Slice, Snapshot
from windlass.core.planner import plan
from windlass.pool.scaling.rule import Limits, Memory, Pressure, decide

LIMITS = Limits(min=1, max=10, cooldown=30, idle_timeout=60)


NOTHING = Memory()


def said(queued=0, running=0, slots=1, nodes=1, memory=NOTHING, now=1000.0, limits=LIMITS):
    return decide(Pressure(queued, running, slots, nodes), memory, now, limits)


def test_queued_work_without_a_free_slot_asks_for_all_the_nodes_it_needs():
    decision = said(queued=17, running=8, slots=8, nodes=1)
    assert (decision.nodes, decision.action) == (4, "grow")
    assert decision.reason == "17 queued and 8 running need 4 nodes"


def test_growing_stops_at_max():
    assert said(queued=100, nodes=3).nodes == 10
    full = said(queued=100, nodes=10)
    assert (full.nodes, full.action) == (10, "steady")
    assert "max is 10" in full.reason


def test_nodes_that_boot_count():
    assert said(queued=4, running=1, nodes=5).action == "steady"


def test_growing_is_never_damped():
    low = Memory(idle_since=999.0, low_since=999.0)
    assert said(queued=5, nodes=1, memory=low).nodes == 5


def test_little_use_must_last_for_the_cooldown():
    first = said(running=1, nodes=10, now=0.0)
    assert (first.nodes, first.action, first.due) == (10, "steady", 30.0)
    soon = said(running=1, nodes=10, memory=first.memory, now=29.9)
    assert soon.action == "steady"
    then = said(running=1, nodes=10, memory=soon.memory, now=30.0)
    assert (then.nodes, then.action) == (2, "shrink")
    assert then.reason == "1 of 10 slots used, less than 30 % for 30 s: 2 nodes enough"


def test_use_in_between_starts_the_cooldown_again():
    low = said(running=1, nodes=10, now=0.0)
    used = said(running=3, nodes=10, memory=low.memory, now=20.0)
    assert (used.action, used.memory.low_since) == ("steady", None)
    again = said(running=1, nodes=10, memory=used.memory, now=21.0)
    assert again.due == 51.0


def test_each_shrink_waits_for_a_cooldown_of_its_own():
    shrunk = said(running=9, slots=8, nodes=5, memory=Memory(low_since=0.0), now=30.0)
    assert shrunk.nodes == 3
    after = said(running=9, slots=8, nodes=3, memory=shrunk.memory, now=31.0)
    assert (after.action, after.memory.low_since) == ("steady", None)
    assert said(running=1, slots=8, nodes=3, memory=after.memory, now=32.0).action == "steady"


def test_nothing_running_for_the_idle_timeout_goes_to_min():
    slow = Limits(min=1, max=10, cooldown=100, idle_timeout=60)
    idle = said(nodes=2, now=0.0, limits=slow)
    assert idle.due == 60.0
    assert said(nodes=2, memory=idle.memory, now=59.0, limits=slow).action == "steady"
    then = said(nodes=2, memory=idle.memory, now=60.0, limits=slow)
    assert (then.nodes, then.action) == (1, "idle")
    assert then.reason == "nothing ran for 60 s, limit 60 s"


def test_a_queue_is_never_idle():
    idle = Memory(idle_since=0.0)
    assert said(queued=1, nodes=1, memory=idle, now=1000.0).memory.idle_since is None


def test_fewer_than_min_is_growing():
    assert said(nodes=0).nodes == 1


@given(
    queued=st.integers(0, 1000),
    running=st.integers(0, 200),
    slots=st.integers(1, 16),
    nodes=st.integers(0, 50),
    low=st.none() | st.floats(0, 1000),
    idle=st.none() | st.floats(0, 1000),
    least=st.integers(0, 5),
    more=st.integers(1, 50),
)
def test_the_answer_is_always_within_what_is_wanted(queued, running, slots, nodes, low, idle, least, more):
    limits = Limits(least, least + more)
    decision = decide(Pressure(queued, running, slots, nodes), Memory(idle, low), 1000.0, limits)
    wanted = -(-(queued + running) // slots)
    match decision.action:
        case "grow":
            assert nodes < decision.nodes <= limits.max
            assert decision.nodes >= min(wanted, limits.max) or decision.nodes == limits.min
        case "steady":
            assert decision.nodes == nodes
        case _:
            assert queued == 0, "nothing goes while something waits"
            assert limits.min <= decision.nodes <= max(nodes, limits.min)
            assert decision.nodes * slots >= running or decision.nodes == nodes
    assert decision.due is None or decision.due > 1000.0


@given(queued=st.integers(1, 200), busy=st.lists(st.integers(0, 4), max_size=8), booting=st.integers(0, 4))
def test_for_equal_tasks_the_planner_buys_what_the_rule_asks_for(queued, busy, booting):
    """So growing needs no override: the demand is enough."""
    group = Group("pool", (("slots", 4000),), 20)
    ready = [
        Slice(f"r-{number}", "pool", State.READY, nodes=(Node(f"r-{number}/0", (("slots", 1000 * used),), used),))
        for number, used in enumerate(busy)
    ]
    coming = [Slice(f"b-{number}", "pool", State.BOOTING) for number in range(booting)]
    demand = Demand("task", (Bundle((("slots", 1000),), queued),))
    planned = plan(Snapshot((group,), (*ready, *coming), (demand,)))
    decision = said(queued, sum(busy), 4, len(busy) + booting, limits=Limits(0, 20))
    assert len(busy) + booting + sum(launch.count for launch in planned.launches) == decision.nodes
