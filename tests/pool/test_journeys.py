"""Journeys of a whole pool on virtual time: it grows with the work, shrinks after it, and heals."""

from __future__ import annotations

import asyncio

import pytest

import windlass as wl
from windlass.control.replay import replayed
from windlass.core.model.lifecycle import State

from .worlds import World, pool


def test_queued_work_makes_the_pool_as_large_as_the_work_needs_at_once():
    async def journey(world: World) -> None:
        await world.until(lambda: len(world.nodes) == 1)
        futures = world.burst(6)
        grown = await world.until(lambda: len(world.states) == 6)
        assert grown < 1, "growing is never damped"
        assert await world.over(*futures) == list(range(6))

    pool((1, 8), journey)


def test_a_pool_never_has_more_nodes_than_its_max():
    async def journey(world: World) -> None:
        futures = world.burst(50)
        while not all(future.done() for future in futures):
            assert len(world.machines.instances) <= 3
            await asyncio.sleep(0.5)

    pool((1, 3), journey)


def test_nodes_that_boot_count_so_that_nothing_is_bought_twice():
    async def journey(world: World) -> None:
        futures = world.burst(4)
        await world.over(*futures)
        assert len(world.machines.bought) == 4

    pool((0, 10), journey, boot=60.0)


def test_a_lazy_pool_has_no_node_until_its_first_task_and_then_starts_at_once():
    async def journey(world: World) -> None:
        await asyncio.sleep(100)
        assert world.machines.bought == []
        (future,) = world.burst(1)
        assert await world.until(lambda: world.machines.bought) < 0.5
        assert await world.over(future) == [0]

    pool((0, 4), journey)


def test_little_use_that_lasts_for_the_cooldown_shrinks_the_pool_to_what_runs_and_one():
    async def journey(world: World) -> None:
        quick, slow = world.burst(9), world.call(lambda: "slow", name="slow")
        world.took = lambda call: 1000.0 if len(world.hub.task_book.waiting) == 0 and call.id == "c10" else 10.0
        await world.over(*quick)
        ended = await world.until(lambda: len(world.nodes) == 2)
        assert 30 <= ended <= 32, "the cooldown is 30 s"
        assert not slow.done()
        await asyncio.sleep(100)
        assert len(world.nodes) == 2

    pool((0, 10), journey)


def test_a_pause_that_is_shorter_than_the_cooldown_costs_no_nodes():
    async def journey(world: World) -> None:
        for _ in range(3):
            await world.over(*world.burst(6))
            await asyncio.sleep(20)
        assert len(world.machines.bought) == 6

    pool((1, 6), journey)


def test_without_work_for_the_idle_timeout_the_pool_goes_to_its_min():
    async def journey(world: World) -> None:
        await world.over(*world.burst(6))
        await world.until(lambda: len(world.machines.instances) == 2)
        await asyncio.sleep(300)
        assert len(world.machines.instances) == 2

    pool((2, 6), journey)


def test_min_zero_scales_to_zero_and_a_second_burst_grows_again():
    async def journey(world: World) -> None:
        await world.over(*world.burst(4))
        gone = await world.until(lambda: not world.machines.instances)
        assert 60 <= gone <= 70, "the idle timeout is 60 s"
        await world.until(lambda: not world.states)  # confirmed gone
        assert await world.over(*world.burst(4)) == [0, 1, 2, 3]
        assert len(world.machines.bought) == 8

    pool((0, 4), journey)


def test_the_head_is_the_last_to_go():
    async def journey(world: World) -> None:
        await world.over(*world.burst(4))
        head = world.nodes[0]
        await world.until(lambda: not world.machines.instances)
        assert world.machines.ended[-1] == head.partition("/")[0]

    pool((0, 4), journey)


def test_idle_nodes_go_first_and_of_those_the_highest_id():
    async def journey(world: World) -> None:
        await world.until(lambda: len(world.nodes) == 1)
        world.took = lambda call: 500.0 if call.node.endswith("-4/0") else 10.0
        world.burst(12)
        await world.until(lambda: len(world.nodes) == 2)
        assert {name.rpartition("-")[2] for name in world.nodes} == {"1/0", "4/0"}, "the head and the busy one"

    pool((1, 12), journey)


def test_of_idle_nodes_the_highest_ids_go_first():
    async def journey(world: World) -> None:
        world.took = lambda call: 500.0 if call.node == world.nodes[0] else 10.0
        world.burst(12)
        await world.until(lambda: len(world.nodes) == 12)
        head, *others = world.nodes
        await world.until(lambda: len(world.nodes) == 2)
        assert set(world.nodes) == {head, min(others)}

    pool((1, 12), journey)


def test_surplus_busy_nodes_finish_their_work_first_and_take_no_new_tasks():
    async def journey(world: World) -> None:
        # Eight nodes of four slots, and in the end one long task on each: 8 of 32 slots.
        world.took = lambda call: 300.0 if call.slot == 3 else 10.0
        futures = world.burst(32)
        await world.until(lambda: State.DRAINING in world.states)
        begun = {future: future.running() for future in futures}
        assert world.states.count(State.READY) == 3, "ceil(8 / 4) and one more"
        await asyncio.sleep(60)
        assert world.machines.ended == [], "nothing that runs is killed"
        assert sum(begun.values()) == 8
        assert await world.over(*futures) == list(range(32))
        assert all(task.used == 0 for future in futures for task in future.tasks)

    pool((0, 8), journey, slots=4)


def test_new_demand_takes_a_drain_back():
    async def journey(world: World) -> None:
        world.took = lambda call: 300.0 if call.slot == 3 else 10.0
        world.burst(32)
        await world.until(lambda: State.DRAINING in world.states)
        world.took = lambda _: 10.0
        more = world.burst(24)
        await world.until(lambda: world.states.count(State.READY) == 8, within=2)
        assert await world.over(*more) == list(range(24))
        assert len(world.machines.bought) == 8

    pool((0, 8), journey, slots=4)


def test_a_fixed_pool_heals():
    async def journey(world: World) -> None:
        await world.until(lambda: len(world.nodes) == 3)
        killed = world.nodes[1]
        world.machines.kill(killed.partition("/")[0])
        await world.until(lambda: len(world.nodes) == 3 and len(world.machines.bought) == 4, within=10)
        assert killed not in world.nodes

    pool(3, journey)


def test_the_work_of_a_lost_node_runs_again_elsewhere_and_results_stay_in_their_places():
    async def journey(world: World) -> None:
        await world.until(lambda: len(world.nodes) == 2)
        futures = world.burst(8)
        await asyncio.sleep(5)
        lost = world.nodes[1]
        world.machines.kill(lost.partition("/")[0])
        assert await world.over(*futures) == list(range(8))
        again = [task for future in futures for task in future.tasks if task.used]
        assert [task.lost_on for task in again] == [{lost}]

    pool(2, journey)


def test_a_task_that_loses_every_node_it_runs_on_fails_with_its_budget():
    async def journey(world: World) -> None:
        future = world.call(lambda: None, name="poison")
        while not future.done():
            for node in list(world.hub.task_book.nodes.values()):
                if any(call.began_at is not None for call in node.running()):
                    world.machines.kill(node.slice_id)
            await asyncio.sleep(1)
        assert "was started 4 times and lost its node each time" in str(future.exception())

    pool((1, 2), journey)


def test_resize_takes_effect_at_once_and_waits_for_work_where_nodes_are_too_many():
    async def journey(world: World) -> None:
        await world.until(lambda: len(world.nodes) == 2)
        await world.hub.reshape(world.shaped(4))
        await world.until(lambda: len(world.nodes) == 4, within=10)
        futures = world.burst(4)
        await asyncio.sleep(1)
        await world.hub.reshape(world.shaped(1))
        assert await world.over(*futures) == [0, 1, 2, 3]
        assert all(not task.used for future in futures for task in future.tasks)
        await world.until(lambda: len(world.machines.instances) == 1, within=20)

    pool(2, journey)


def test_the_size_to_begin_with_is_there_before_any_work_and_not_kept_for_ever():
    async def journey(world: World) -> None:
        await world.until(lambda: len(world.nodes) == 4, within=10)
        await world.until(lambda: len(world.machines.instances) == 1, within=100)
        assert len(world.machines.bought) == 4

    pool(wl.Nodes(1, 4, 8), journey)


def test_a_budget_bounds_what_is_bought():
    async def journey(world: World) -> None:
        futures = world.burst(20)
        while not all(future.done() for future in futures):
            assert len(world.machines.instances) <= 4
            await asyncio.sleep(1)
        assert max(len(world.machines.bought), 4) == 4

    pool(None, journey, groups=[wl.group("small", max=10, price=5)], budget="$20/h")


@pytest.mark.parametrize("seconds", [0.001, 0.1, 3.0])
def test_every_task_ends_once_whatever_it_takes(seconds):
    async def journey(world: World) -> None:
        futures = world.burst(300)
        assert await world.over(*futures) == list(range(300))

    pool((1, 4), journey, seconds=seconds)


def test_every_decision_of_a_pool_can_be_made_again_from_its_journal():
    async def journey(world: World) -> None:
        await world.over(*world.burst(12))
        await world.until(lambda: len(world.nodes) == 1)
        await world.over(*world.burst(5))
        found = replayed(world.hub.journal)
        assert (found.differing, found.first) == (0, None)
        assert found.passes > 10

    pool((1, 8), journey)
