"""Messages of a Ray cluster become nodes, waiting work and acknowledgements."""

import pytest

from tests.workloads.ray_messages import VERSIONS, actor, cluster, load, node, recorded
from windlass.workloads.protocol import Acknowledgement
from windlass.workloads.ray import wire_pb2 as wire
from windlass.workloads.ray.demand import groups_of, load_of, shapes_of
from windlass.workloads.ray.fences import RayFences, message
from windlass.workloads.ray.nodes import RayNodes, fold_nodes, slice_of
from windlass.workloads.ray.waiting import PendingWork, fold_groups, fold_waiting, with_placed_bundles

GROUPS = ("worker",)


def seen(version, name, before=None, now=1000.0):
    infos, actors = recorded(version, f"{name}_nodes"), recorded(version, f"{name}_actors")
    state = recorded(version, f"{name}_state")
    return fold_nodes(before or RayNodes(), state, infos.node_info_list, actors.actor_table_data, GROUPS, now)


def fold(*nodes, before=None, actors=(), now=1000.0, infos=(), ready=None):
    return fold_nodes(before or RayNodes(), cluster(*nodes), infos, actors, GROUPS, now, ready=ready or {})


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_nodes_are_busy_with_what_they_use(version):
    found = seen(version, "busy")
    assert {one.slice_id for one in found.bought()} == {"worker-0", "worker-1"}
    assert found.head is not None
    assert found.head.raylet.startswith("127.0.0.2:")
    shown = [one.work_node() for one in found.bought()]
    assert [(one.tasks, one.idle_since, dict(one.used)["cpu"]) for one in shown] == [(1, None, 1000)] * 2
    assert all(dict(one.present or ())["cpu"] == 2000 for one in shown)
    assert all(one.labels["zone"] == "z1" for one in shown)
    assert all(set(dict(one.used)) == {"cpu"} for one in shown), "resources of placement groups are Ray's business"


@pytest.mark.parametrize("version", VERSIONS)
def test_the_death_of_a_drained_node_brings_its_message_back(version):
    found = seen(version, "dead")
    assert not found.bought()
    assert {one.slice_id: (one.reason, one.message) for one in found.dead.values()} == {
        "worker-0": (4, "windlass: test 3"),
        "worker-1": (3, "windlass: test 4"),
    }


def test_an_actor_that_is_being_created_makes_its_node_busy_although_the_raylet_calls_it_idle():
    for state, tasks in ((0, 1), (1, 1), (2, 1), (3, 1), (4, 0)):
        found = fold(node(1, idle=9), actors=[actor(1, state)])
        (shown,) = [one.work_node() for one in found.bought()]
        assert shown.tasks == tasks
        assert (shown.idle_since is None) == bool(tasks)


def test_a_node_is_not_idle_from_before_it_was_first_seen():
    found = fold(node(1, idle=10.5))
    assert [one.idle_since for one in found.bought()] == [1000.0]
    later = fold(node(1, idle=30.5), before=found, now=1020.0)
    assert [one.idle_since for one in later.bought()] == [1000.0]


def test_after_a_restart_a_node_is_idle_as_long_as_its_raylet_says_but_not_from_before_its_slice_was_ready():
    ready = {"worker-1": 700.0, "worker-2": 990.0, "worker-3": 700.0}
    first = fold(node(1, idle=200), node(2, idle=200), node(3, status=wire.NODE_RUNNING, free=1))
    assert [one.idle_since for one in first.bought()] == [1000.0, 1000.0, None]
    later = fold(node(1, idle=201), node(2, idle=201), node(3, idle=0.5), before=first, now=1001.0, ready=ready)
    assert [one.idle_since for one in later.bought()] == [800.0, 990.0, 1000.5]
    last = fold(node(1, idle=202), node(2, idle=202), node(3, idle=1.5), before=later, now=1002.0, ready=ready)
    assert [one.idle_since for one in last.bought()] == [800.0, 990.0, 1000.5]


def test_a_node_that_joins_after_the_first_observation_is_not_idle_from_before():
    first = fold(node(1))
    joined = fold(node(1, idle=1), node(2, idle=11), before=first, now=1001.0)
    later = fold(node(1, idle=2), node(2, idle=12), before=joined, now=1002.0, ready={"worker-2": 500.0})
    assert [one.idle_since for one in later.bought()] == [1000.0, 1001.0]


def test_the_idle_clock_starts_when_work_ends_and_does_not_move_between_two_observations():
    busy = fold(node(1, status=wire.NODE_RUNNING, free=1), now=1000.0)
    idle = fold(node(1, idle=0.8), before=busy, now=1010.0)
    assert [one.idle_since for one in idle.bought()] == [pytest.approx(1009.2)]
    again = fold(node(1, idle=1.7), before=idle, now=1011.1)
    assert [one.idle_since for one in again.bought()] == [one.idle_since for one in idle.bought()]
    worked = fold(node(1, idle=0.5), before=again, now=1020.0)
    assert [one.idle_since for one in worked.bought()] == [1019.5]


def test_short_tasks_that_no_observation_sees_restart_the_idle_clock():
    seen = fold(node(1, idle=5), before=fold(node(1), now=1000.0), now=1005.0)
    for turn in range(1, 30):  # a task every 0.3 s, and an observation just after each
        seen = fold(node(1, idle=0.01), before=seen, now=1005.0 + 0.3 * turn)
        (since,) = [one.idle_since for one in seen.bought()]
        assert since == pytest.approx(1005.0 + 0.3 * turn, abs=0.5)


def test_after_an_actor_that_the_raylet_knew_nothing_of_the_idle_clock_starts_again():
    first = fold(node(1, idle=0), now=1000.0)
    creating = fold(node(1, idle=5), before=first, actors=[actor(1)], now=1005.0)
    gone = fold(node(1, idle=6), before=creating, now=1006.0)
    assert [one.idle_since for one in gone.bought()] == [1006.0]


def test_nodes_of_others_are_not_ours():
    found = fold(node(1, kind="theirs"), node(2))
    assert [one.slice_id for one in found.bought()] == ["worker-2"]
    assert len(found.others()) == 1


def test_a_node_of_a_group_that_was_removed_is_still_ours():
    ours = slice_of("gpu-a2-spot-ea1fce4514ton2pn-7/0", "gpu/a2/spot", frozenset(GROUPS))
    assert ours == "gpu-a2-spot-ea1fce4514ton2pn-7"
    assert not slice_of("gpu-a2-spot-ea1fce4514ton2pn-7/0", "gpu/b1/spot", frozenset(GROUPS))
    assert not slice_of("theirs-7/0", "theirs", frozenset(GROUPS))


def waits(before, gcs, head, nodes, now):
    at_head = None if head is None else load_of(load(head))
    return fold_waiting(before, shapes_of(cluster(tasks=gcs)), at_head, nodes, now)


def test_what_a_driver_on_the_head_submits_counts_before_the_gcs_has_pulled_it():
    first = waits(PendingWork(), 0, 0, RayNodes(), 1000.0)
    submitted = waits(first, 0, 8, RayNodes(), 1000.1)
    assert submitted.counts == {"CPU=1": 8}
    pulled = waits(submitted, 8, 8, RayNodes(), 1000.6)
    assert pulled.counts == {"CPU=1": 8}
    more = waits(pulled, 8, 11, RayNodes(), 1000.8)
    assert more.counts == {"CPU=1": 11}
    assert waits(more, 11, 11, RayNodes(), 1001.5).counts == {"CPU=1": 11}


def test_whether_tasks_run_or_wait_is_uncertain_until_the_gcs_has_pulled_after_the_first_observation():
    """A controller takes over: two tasks run on a node, and two wait at its raylet."""
    found = fold(node(1, status=wire.NODE_RUNNING, free=0), now=1000.0)
    first = waits(PendingWork(), 2, 0, found, 1000.0)
    assert first.uncertain
    again = fold(node(1, status=wire.NODE_RUNNING, free=0), before=found, now=1000.5)
    assert waits(first, 2, 0, again, 1000.5).uncertain
    later = fold(node(1, status=wire.NODE_RUNNING, free=0), before=again, now=1001.3)
    known = waits(first, 2, 0, later, 1001.3)
    assert known.counts == {"CPU=1": 2}
    assert not known.uncertain
    assert not waits(PendingWork(), 2, 2, found, 1000.0).uncertain, "they wait at the head"


def test_what_leaves_the_head_may_wait_at_another_raylet_until_the_gcs_says_that_it_runs():
    idle = fold(node(1), now=1000.0)
    both = waits(waits(PendingWork(), 8, 8, idle, 1000.0), 8, 8, idle, 1001.5)
    started = fold(node(1, status=wire.NODE_RUNNING, free=0), before=idle, now=1002.0)
    spread = waits(both, 8, 0, started, 1002.0)
    assert spread.counts == {"CPU=1": 6}, "two run, and six wait at the raylet of the node"
    assert waits(spread, 6, 0, started, 1003.0).counts == {"CPU=1": 6}


def test_a_controller_that_has_just_started_counts_what_waits_at_the_head_once():
    first = waits(PendingWork(), 2, None, RayNodes(), 1000.0)  # the address of the head's raylet is not known yet
    assert first.counts == {"CPU=1": 2}
    second = waits(first, 2, 2, RayNodes(), 1000.2)
    assert second.counts == {"CPU=1": 2}
    assert waits(second, 2, 5, RayNodes(), 1000.4).counts == {"CPU=1": 5}, "three were submitted since"


def test_tasks_that_come_back_to_the_head_because_their_node_died_are_counted_once():
    idle = fold(node(1), now=1000.0)
    both = waits(waits(PendingWork(), 2, 2, idle, 1000.0), 2, 2, idle, 1001.5)
    started = fold(node(1, status=wire.NODE_RUNNING, free=0), before=idle, now=1002.0)
    running = waits(both, 2, 0, started, 1002.0)
    assert running.counts == {}
    assert waits(running, 2, 2, RayNodes(), 1002.5).counts == {"CPU=1": 2}


def test_tasks_that_leave_the_head_and_come_back_at_once_are_counted_once():
    first = waits(waits(PendingWork(), 0, 0, RayNodes(), 1000.0), 0, 2, RayNodes(), 1000.2)
    gone = waits(first, 2, 0, RayNodes(), 1000.4)  # cancelled or assigned, and the GCS shows what it pulled before
    again = waits(gone, 2, 2, RayNodes(), 1000.6)
    assert again.counts == {"CPU=1": 2}
    assert waits(again, 2, 2, RayNodes(), 1001.6).counts == {"CPU=1": 2}
    assert waits(again, 2, 4, RayNodes(), 1001.6).counts == {"CPU=1": 4}, "two were submitted since"


def test_a_raylet_of_the_head_that_gives_no_answer_changes_nothing():
    first = waits(PendingWork(), 0, 8, RayNodes(), 1000.0)
    assert waits(first, 0, None, RayNodes(), 1000.2).counts == {"CPU=1": 8}
    assert waits(waits(first, 8, None, RayNodes(), 1000.8), 8, 8, RayNodes(), 1001.0).counts == {"CPU=1": 8}


def test_what_waits_elsewhere_is_added_to_what_waits_at_the_head():
    first = waits(PendingWork(), 5, 0, RayNodes(), 1000.0)
    both = waits(first, 5, 3, RayNodes(), 1000.2)
    assert both.counts == {"CPU=1": 8}
    assert waits(both, 8, 3, RayNodes(), 1001.0).counts == {"CPU=1": 8}


def test_a_task_that_has_just_started_on_a_node_is_not_bought_for_again():
    idle = fold(node(1), now=1000.0)
    old = waits(PendingWork(), 4, None, idle, 1000.0)
    assert old.counts == {"CPU=1": 4}
    started = fold(node(1, status=wire.NODE_RUNNING, free=0), before=idle, now=1000.3)
    stale = waits(old, 4, None, started, 1000.3)
    assert stale.counts == {"CPU=1": 2}, "two of the four run on the node that joined"
    later = fold(node(1, status=wire.NODE_RUNNING, free=0), before=started, now=1002.0)
    assert waits(stale, 4, None, later, 1002.0).counts == {"CPU=1": 4}, "the GCS has pulled since: four wait"


def test_tasks_that_ray_does_not_place_on_free_nodes_are_stuck_after_ten_seconds():
    found = fold(node(1), now=1000.0)
    one = waits(PendingWork(), 4, None, found, 1000.0)
    nine = waits(one, 4, None, fold(node(1), before=found, now=1009.0), 1009.0)
    assert not nine.stuck
    ten = waits(nine, 4, None, fold(node(1), before=found, now=1010.5), 1010.5)
    assert (ten.stuck["CPU=1"].count, ten.stuck["CPU=1"].node) == (4, "worker-1")
    gone = waits(ten, 4, None, RayNodes(), 1020.0)
    assert gone.stuck["CPU=1"].count == 4, "that the node went does not mean that another one would help"
    more = waits(gone, 9, None, RayNodes(), 1021.0)
    assert (more.counts["CPU=1"], more.stuck["CPU=1"].count) == (9, 4)
    assert not waits(more, 0, None, RayNodes(), 1030.0).stuck


def test_stuck_tasks_that_ray_does_not_count_for_a_moment_are_still_stuck():
    free = fold(node(1))
    stuck = waits(waits(PendingWork(), 5, None, free, 1000.0), 5, None, free, 1010.0)
    fewer = waits(stuck, 1, None, RayNodes(), 1011.0)  # their node has just ended
    assert fewer.stuck["CPU=1"].count == 1
    assert waits(fewer, 5, None, RayNodes(), 1012.0).stuck["CPU=1"].count == 5
    assert waits(fewer, 5, None, RayNodes(), 1030.0).stuck["CPU=1"].count == 1, "four were submitted much later"


def test_tasks_that_come_later_are_stuck_when_ray_does_not_place_them_either():
    free = fold(node(1))
    stuck = waits(waits(PendingWork(), 1, None, free, 1000.0), 1, None, free, 1010.0)
    more = waits(stuck, 5, None, free, 1020.0)
    assert more.stuck["CPU=1"].count == 1, "the others may have been submitted just now"
    assert waits(more, 5, None, free, 1029.0).stuck["CPU=1"].count == 1
    assert waits(more, 5, None, free, 1030.0).stuck["CPU=1"].count == 5
    placed = waits(more, 3, None, free, 1029.0)
    assert waits(placed, 3, None, free, 1030.0).stuck["CPU=1"].count == 1, "Ray places some of them"


def test_a_full_node_makes_nothing_stuck():
    full = fold(node(1, status=wire.NODE_RUNNING, free=0), now=1000.0)
    one = waits(PendingWork(), 4, None, full, 1000.0)
    assert not waits(one, 4, None, full, 1060.0).stuck


PG = "ab" * 18


def placing(strategy, bundles):
    """A placement group that waits."""
    requests = [wire.ResourceRequest(resources_bundle={"CPU": cpu}) for cpu in bundles]
    gang = wire.GangResourceRequest(requests=requests, details=f"{PG}:{strategy}|PENDING")
    return groups_of(wire.ClusterResourceState(pending_gang_resource_requests=[gang]))


def test_the_room_of_a_group_that_has_just_been_placed_is_taken_before_its_nodes_show_it():
    waiting = fold_groups({}, placing("STRICT_SPREAD", [2, 2]), 1000.0)
    placed = fold_groups(waiting, {}, 1000.2)
    nodes = fold(node(1, dynamic={f"_PG_{PG}": ""}), node(2, dynamic={f"_PG_{PG}": ""}), node(3), now=1000.2)
    shown = with_placed_bundles(nodes, placed, 1000.2)
    assert [one.work_node().tasks for one in shown.bought()] == [1, 1, 0]
    assert [dict(one.work_node().used).get("cpu") for one in shown.bought()] == [2000, 2000, None]
    assert with_placed_bundles(nodes, fold_groups(placed, {}, 1005.0), 1005.0) == nodes, "only for a moment"


def test_bundles_that_their_node_shows_are_counted_once():
    placed = fold_groups(fold_groups({}, placing("STRICT_PACK", [1, 1]), 1000.0), {}, 1000.2)
    one = node(1, status=wire.NODE_RUNNING, free=0, dynamic={f"_PG_{PG}": ""})
    for index in range(2):
        one.total_resources[f"CPU_group_{index}_{PG}"] = 1
    nodes = fold(one, node(2), now=1000.2)
    assert with_placed_bundles(nodes, placed, 1000.2) == nodes


def test_a_group_that_was_removed_or_still_waits_takes_no_room():
    waiting = fold_groups({}, placing("PACK", [1, 1]), 1000.0)
    nodes = fold(node(1), node(2))
    assert with_placed_bundles(nodes, waiting, 1000.0) == nodes
    assert with_placed_bundles(nodes, fold_groups(waiting, {}, 1000.2), 1000.2) == nodes


def dead(number, epoch):
    """A node of slice ``worker-NUMBER`` that was drained with this epoch."""
    return wire.GcsNodeInfo(
        node_id=f"node-{number}".encode(),
        instance_id=f"worker-{number}/0",
        node_type_name="worker",
        state=1,
        death_info=wire.NodeDeathInfo(reason=4, reason_message=message(f"worker-{number}", epoch)),
    )


def test_drained_nodes_are_acknowledged_for_slices_of_this_controller_only_also_after_its_restart():
    nodes, fences = fold(infos=[dead(1, 3), dead(2, 5)]), RayFences()
    assert fences.acknowledged(nodes) == (), "nothing is known of the controller's slices yet"
    assert fences.own({"worker-2"}, nodes)
    assert not fences.own({"worker-2"}, nodes), "nothing new"
    assert fences.acknowledged(nodes) == (Acknowledgement("worker-2", 5, 0, final=True),)
    fences.forget(["worker-2"])
    assert fences.acknowledged(nodes) == ()


def test_a_drain_that_is_answered_after_its_slice_was_forgotten_changes_nothing():
    """As when the head is restarted, or the machine dies, during the call."""
    fences = RayFences()
    assert fences.raise_to("worker-1", 1)
    fences.forget(["worker-1"])
    fences.drained("worker-1", b"1")
    fences.completed("worker-1", 1)
    assert not fences.is_drained("worker-1", b"1")
    assert fences.acknowledged(fold(node(1))) == ()
