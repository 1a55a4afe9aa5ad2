"""Limits hold at every pass, counted by what the clouds really have: across restarts and changes of leader."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given

from tests.control.histories import BUDGET, CHEAP, DEAR, SETTINGS, Step, get_well, live, steps
from tests.control.worlds import Survivor, World

PRICES = {CHEAP.name: CHEAP.price or 0, DEAR.name: DEAR.price or 0}


def assert_within_limits(world: World) -> None:
    groups = [one.group for one in world.instances.values()]
    assert groups.count("cheap") <= CHEAP.max
    assert groups.count("dear") <= DEAR.max
    assert len(groups) <= 4
    assert sum(PRICES[group] for group in groups) <= BUDGET
    assert len(world.bought) == len(set(world.bought))
    assert world.work.killed == []


@given(steps)
def test_whatever_happens_no_limit_is_passed_no_work_is_killed_and_nothing_is_bought_twice(life: list[Step]) -> None:
    world = World(settings=SETTINGS)
    last: list[Survivor] = []

    def check(alive: Survivor) -> None:
        last[:] = [alive]
        assert_within_limits(world)
        assert not any(record.quarantine for record in alive.controller.controller_state.fleet.slices.values())

    async def story() -> None:
        await live(world, life, check, found=False)
        await get_well(world, last[0])
        spare = list(world.instances)
        assert len(spare) == DEAR.spare  # nothing else is left, and all that ever came was done
        assert world.work.waiting == []
        assert world.work.running == {}
        assert set(last[0].controller.controller_state.fleet.slices) == set(spare)

    asyncio.run(story())


@given(steps)
def test_what_turns_up_with_our_tag_is_adopted_or_ended_and_never_forgotten(life: list[Step]) -> None:
    world = World(settings=SETTINGS)
    last: list[Survivor] = []

    async def story() -> None:
        await live(world, life, lambda alive: last.__setitem__(slice(None), [alive]))
        await get_well(world, last[0])
        assert set(last[0].controller.controller_state.fleet.slices) == set(world.instances)
        assert len(world.instances) == DEAR.spare
        assert world.work.killed == []

    asyncio.run(story())


@pytest.mark.parametrize("moves", [1, 2, 3])
def test_limits_hold_when_the_leader_changes_in_the_middle_of_a_launch(moves: int) -> None:
    async def story() -> None:
        world = World(settings=SETTINGS)
        world.work.waiting = [f"job-{number}" for number in range(20)]
        hanging = asyncio.Event()
        for cloud in world.clouds.values():
            cloud.hanging = hanging
        for number in range(moves):
            leader = world.controller(f"leader-{number}")
            await world.tick(leader)
            world.time += 20  # it is stuck past its lease, with calls under way
        hanging.set()
        for cloud in world.clouds.values():
            cloud.hanging = None
        last = world.controller("last")
        for _ in range(5):
            await world.tick(last)
            assert_within_limits(world)
        assert len(world.instances) == 3  # 1.7 + 1.7 + 1.7 $/h and the spare of 2.1 would be too much

    asyncio.run(story())
