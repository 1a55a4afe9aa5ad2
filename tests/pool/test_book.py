"""The task book: what runs where, what happens to tasks that are lost, late, cancelled or in a gang."""

from __future__ import annotations

import asyncio
import os
from functools import partial

import pytest

import windlass as wl
from windlass._free_port import PORTS
from windlass.pool.client.api import compute_of, gang_of
from windlass.pool.engines.protocol import Call
from windlass.pool.errors import NodeLost, QueueTimeout, TaskCancelled, TaskTimeout

from .worlds import World, pool


def fails(value):
    raise ValueError(f"not {value}")


def environment():
    return dict(os.environ)


async def joined(world: World, count: int) -> None:
    await world.until(lambda: len(world.nodes) == count)


# -- batches -----------------------------------------------------------------------------------------------------------


def test_short_tasks_travel_together_and_long_ones_alone():
    async def journey(world: World) -> None:
        await joined(world, 1)
        calls = []
        run = world.engine.run

        def counted(call: Call) -> None:
            calls.append(call)
            run(call)

        world.engine.run = counted  # type: ignore[method-assign]
        futures = world.burst(1000)
        assert await world.over(*futures) == list(range(1000))
        assert len(calls) < 60, f"{len(calls)} calls for 1000 tasks"

    pool(1, journey, seconds=0.001)


def test_an_item_that_raises_affects_no_other_of_its_batch():
    async def journey(world: World) -> None:
        await joined(world, 1)
        maybe = compute_of(lambda value: 1 // (value - 50))
        results = await world.over(*world.start(*[maybe(value) for value in range(100)]))
        assert [position for position, one in enumerate(results) if isinstance(one, ZeroDivisionError)] == [50]
        assert results[60] == 0

    pool(1, journey, seconds=0.001)


def test_the_items_of_a_lost_batch_run_again_and_each_ends_once():
    async def journey(world: World) -> None:
        await joined(world, 2)
        await world.over(*world.burst(200))  # learned: they are short
        world.seconds = 30.0
        futures = world.burst(40)
        await asyncio.sleep(1)
        world.machines.kill(world.nodes[0].partition("/")[0])
        assert await world.over(*futures) == list(range(40))

    pool(2, journey, seconds=0.001)


def test_demand_is_counted_in_tasks_not_in_batches():
    async def journey(world: World) -> None:
        await joined(world, 1)
        await world.over(*world.burst(200))
        world.seconds = 5.0
        futures = world.burst(100)
        await asyncio.sleep(0.5)
        view = world.hub.task_book.view()
        waiting = sum(demand.count for demand in view.demands)
        assert waiting + sum(node.tasks for node in view.nodes) == 100
        await world.over(*futures)

    pool(1, journey, seconds=0.001)


def test_a_batch_behind_a_call_that_takes_long_is_fetched_back_for_a_free_slot():
    async def journey(world: World) -> None:
        await joined(world, 2)
        await world.over(*world.burst(300))
        world.took = lambda call: 1000.0 if call.node == world.nodes[0] else 0.01
        futures = world.burst(2000)
        await world.until(lambda: sum(future.done() for future in futures) > 20, within=10)
        await world.until(lambda: sum(not future.done() for future in futures) == 1, within=60)
        [late] = [future for future in futures if not future.done()]
        assert not late.tasks[0].used, "the call that takes long was started once"

    pool(2, journey, seconds=0.02)


# -- limits of a task --------------------------------------------------------------------------------------------------


def test_exceptions_are_retried_only_when_asked_for():
    async def journey(world: World) -> None:
        never, twice = world.call(fails, 1), world.call(fails, 2, retries=2)
        await world.over(never, twice)
        assert (never.tasks[0].used, twice.tasks[0].used) == (0, 2)
        assert str(twice.exception()) == "not 2"

    pool(1, journey, seconds=0.01)


def test_a_task_without_retries_is_started_once_whatever_happens():
    async def journey(world: World) -> None:
        await joined(world, 2)
        future = world.call(fails, 1, retries=0)
        await world.until(future.running)
        world.machines.kill(world.nodes[0].partition("/")[0])
        (error,) = await world.over(future)
        assert isinstance(error, NodeLost)

    pool(2, journey)


def test_a_run_that_takes_too_long_is_ended_and_its_node_stays():
    async def journey(world: World) -> None:
        await joined(world, 1)
        slow, other = world.call(lambda: 1, timeout=3.0, name="slow"), world.call(lambda: 2)
        results = await world.over(slow, other)
        assert isinstance(results[0], TaskTimeout)
        assert "ran for longer than its timeout of 3 s" in str(results[0])
        assert results[1] == 2
        assert len(world.machines.bought) == 1

    pool(1, journey)


def test_waiting_for_a_slot_counts_against_the_queue_timeout_alone():
    async def journey(world: World) -> None:
        await joined(world, 1)
        first = world.call(lambda: 1, timeout=15.0)
        second = world.call(lambda: 2, timeout=15.0)
        late = world.call(lambda: 3, queue_timeout=5.0)
        results = await world.over(first, second, late)
        assert results[:2] == [1, 2], "the second waited for 10 s and ran for 10: that is no timeout of 15"
        assert isinstance(results[2], QueueTimeout)

    pool(1, journey)


def test_cancelling_ends_a_task_wherever_it_is_and_nothing_else():
    async def journey(world: World) -> None:
        await joined(world, 1)
        running, waiting, other = world.burst(3)
        await world.until(running.running)
        assert running.cancel()
        assert waiting.cancel()
        assert await world.over(running, other) == [running.exception(), 2]
        assert isinstance(running.exception(), TaskCancelled)
        assert waiting.cancelled()

    pool(1, journey)


def test_a_task_that_is_cancelled_while_it_runs_leaves_those_that_travelled_with_it_alone():
    async def journey(world: World) -> None:
        await joined(world, 1)
        await world.over(*world.burst(200))
        world.seconds = 20.0
        futures = world.burst(30)
        await world.until(lambda: futures[0].running())
        assert not futures[1].running()
        futures[0].cancel()
        futures[5].cancel()
        await world.until(lambda: all(future.done() for future in futures), within=1000)
        assert isinstance(futures[0].exception(), TaskCancelled)
        assert [number for number, future in enumerate(futures) if future.cancelled()] == [5]
        assert all(task.used == 0 for future in futures for task in future.tasks)

    pool(1, journey, seconds=0.001)


# -- kinds of nodes ----------------------------------------------------------------------------------------------------


def test_tasks_go_to_nodes_that_have_what_they_need_and_know_their_devices():
    async def journey(world: World) -> None:
        both = [world.call(environment, needs={"gpu": 1}), world.call(environment, needs={"gpu": 1})]
        plain = world.call(environment)
        first, second, none = await world.over(*both, plain)
        assert {first["CUDA_VISIBLE_DEVICES"], second["CUDA_VISIBLE_DEVICES"]} == {"0", "1"}
        assert first["WINDLASS_NODE"] == second["WINDLASS_NODE"] != none["WINDLASS_NODE"]
        assert none["WINDLASS_NODE"].startswith("small")

    groups = [wl.group("small", max=2, price=1), wl.group("big", slots=2, gpu=2, max=1, price=9)]
    pool(None, journey, groups=groups)


def test_a_condition_on_labels_holds_for_buying_and_for_placing():
    async def journey(world: World) -> None:
        future = world.call(environment, where="zone == b")
        (output,) = await world.over(future)
        assert output["WINDLASS_NODE"].startswith("there")

    groups = [wl.group("here", max=2, labels={"zone": "a"}, min=1), wl.group("there", max=2, labels={"zone": "b"})]
    pool(None, journey, groups=groups)


def test_a_node_with_another_python_is_refused_and_what_waits_is_reported():
    async def journey(world: World) -> None:
        (future,) = world.burst(1)
        (error,) = await world.over(future)
        assert "runs Python 3.9 and this program Python" in str(error)
        assert "3 nodes in a row failed to start" in str(error)

    pool((0, 2), journey, python="3.9.1")


def test_a_waiting_caller_learns_of_nodes_that_never_join():
    async def journey(world: World) -> None:
        world.machines.mute = True
        (future,) = world.burst(1)
        (error,) = await world.over(future)
        assert "0 hosts joined after 60 s" in str(error)

    pool((0, 2), journey)


def test_a_setup_that_fails_twice_in_the_same_phase_is_not_tried_a_third_time():
    async def journey(world: World) -> None:
        world.machines.failing = "setup 1 of 2", "no room left, try 1"
        (future,) = world.burst(1)
        await world.until(lambda: len(world.machines.bought) == 2)
        world.machines.failing = "setup 1 of 2", "no room left, try 2"
        (error,) = await world.over(future)
        assert "the setup of 2 nodes failed in the same phase" in str(error)
        assert "no room left" in str(error)
        assert len(world.machines.bought) == 2

    pool((0, 1), journey)


def test_setups_that_fail_in_different_phases_are_tried_a_third_time():
    async def journey(world: World) -> None:
        world.machines.failing = "installing torch", "the index gave no answer"
        (future,) = world.burst(1)
        await world.until(lambda: len(world.machines.bought) == 2)
        world.machines.failing = "setup 1 of 1", "it ended with code 7"
        (error,) = await world.over(future)
        assert "3 nodes in a row failed to start" in str(error) or "2 nodes failed in the same phase" in str(error)
        assert len(world.machines.bought) >= 3

    pool((0, 1), journey)


def test_a_pool_that_has_had_nodes_does_not_give_up_after_a_few_that_die_while_they_boot():
    async def journey(world: World) -> None:
        await world.over(*world.burst(2))
        world.machines.mute = True
        for node in list(world.hub.task_book.nodes.values()):
            world.machines.kill(node.slice_id)
        (future,) = world.burst(1)
        for _ in range(3):
            bought = len(world.machines.bought)
            await world.until(partial(lambda before: len(world.machines.bought) > before, bought))
            world.machines.kill(world.machines.bought[-1])
        assert not future.done()
        world.machines.mute = False
        assert await world.over(future) == [0]
        world.machines.mute = True
        for node in list(world.hub.task_book.nodes.values()):
            world.machines.kill(node.slice_id)
        (error,) = await world.over(*world.burst(1))
        assert "in a row failed to start" in str(error), "it does give up in the end"

    pool((1, 2), journey, seconds=1.0)


# -- gangs -------------------------------------------------------------------------------------------------------------


def test_a_gang_starts_all_at_once_or_not_at_all():
    async def journey(world: World) -> None:
        await joined(world, 2)
        long = world.burst(1)
        await asyncio.sleep(1)
        (gang,) = world.start(gang_of(environment, size=2)())
        await asyncio.sleep(5)
        assert not gang.running(), "one slot is free, and it needs two"
        await world.over(*long, gang)
        assert [output["RANK"] for output in gang.result()] == ["0", "1"]

    pool(2, journey)


def test_members_know_their_ranks_their_size_and_their_head():
    async def journey(world: World) -> None:
        (gang,) = world.start(gang_of(environment, size=4)())
        await world.over(gang)
        output = gang.result()
        assert [one["WORLD_SIZE"] for one in output] == ["4"] * 4
        assert [(one["NODE_RANK"], one["LOCAL_RANK"], one["LOCAL_WORLD_SIZE"]) for one in output] == [
            ("0", "0", "2"),
            ("0", "1", "2"),
            ("1", "0", "2"),
            ("1", "1", "2"),
        ]
        assert {one["MASTER_ADDR"] for one in output} == {"127.0.0.1"}
        (port,) = {int(one["MASTER_PORT"]) for one in output}
        assert port in PORTS, "no outgoing connection takes it before rank 0 listens"
        assert [one["WINDLASS_RANK"] for one in output] == ["0", "1", "2", "3"]

    pool((0, 4), journey, slots=2)


def test_a_spread_gang_has_a_node_for_each_member():
    async def journey(world: World) -> None:
        (gang,) = world.start(gang_of(environment, size=3, spread=True)())
        await world.over(gang)
        assert len({one["WINDLASS_NODE"] for one in gang.result()}) == 3

    pool((0, 4), journey, slots=2)


def test_a_gang_that_loses_a_member_starts_again_as_a_whole():
    async def journey(world: World) -> None:
        (gang,) = world.start(gang_of(environment, size=2)())
        await world.until(gang.running)
        world.machines.kill(world.nodes[1].partition("/")[0])
        await world.over(gang)
        assert [one["RANK"] for one in gang.result()] == ["0", "1"]
        assert gang.tasks[0].gang.used == 1

    pool((0, 3), journey)


def test_a_member_that_raises_ends_its_gang_and_its_exception_is_the_gangs():
    async def journey(world: World) -> None:
        one_fails = compute_of(lambda: 1 // int(os.environ["RANK"]))
        world.took = lambda call: 1.0 if call.environment["RANK"] == "0" else 500.0
        (gang,) = world.start(gang_of(one_fails, size=3)())
        await world.until(gang.done, within=60)
        with pytest.raises(ZeroDivisionError):
            gang.result()
        assert not any(node.running() for node in world.hub.task_book.nodes.values())

    pool((0, 3), journey)


def test_small_tasks_that_came_later_do_not_starve_a_gang():
    async def journey(world: World) -> None:
        await joined(world, 2)
        first = world.burst(2)
        await asyncio.sleep(1)
        (gang,) = world.start(gang_of(environment, size=2)())
        later = world.burst(10)
        await world.until(gang.running, within=15)
        assert not any(future.running() or future.done() for future in later)
        await world.over(*first, gang, *later)

    pool(2, journey)


def test_a_cancelled_gang_ends_as_a_whole():
    async def journey(world: World) -> None:
        (gang,) = world.start(gang_of(environment, size=2)())
        await world.until(gang.running)
        gang.cancel()
        await world.until(gang.done, within=2)
        with pytest.raises(TaskCancelled):
            gang.result()

    pool((0, 2), journey)


# -- what tasks say ----------------------------------------------------------------------------------------------------


def test_lines_carry_the_name_of_their_task():
    async def journey(world: World) -> None:
        (future,) = world.start(compute_of(lambda: print("hello")).options(name="greet")())
        await world.over(future)
        assert world.said == [(f"greet#{future.tasks[0].number}", "hello")]

    pool(1, journey)
