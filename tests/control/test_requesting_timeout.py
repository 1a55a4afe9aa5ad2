"""A launch without an answer is given up after its time limit, and its demand is served elsewhere in the same pass."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.control.worlds import GPU, QUICK, World
from windlass.control.settings import GroupSettings, Settings
from windlass.core.model.lifecycle import State

NEAR = replace(GPU, name="near", rank=1)
FAR = replace(GPU, name="far", rank=2)


def world_with(timeout: float) -> World:
    policy = replace(QUICK, requesting_timeout=timeout, call_timeout=240)
    return World(settings=Settings((GroupSettings(NEAR, "one"), GroupSettings(FAR, "two")), policy=policy))


@pytest.mark.parametrize("silent", [False, True])
def test_a_launch_call_that_hangs_does_not_hold_its_demand_for_longer_than_the_limit(silent: bool) -> None:
    async def story() -> None:
        world = world_with(20)
        leader = world.controller()
        hanging = asyncio.Event()
        world.clouds["one"].hanging = hanging
        world.work.waiting = ["a"]
        began = world.time
        await world.tick(leader)
        [first] = leader.controller_state.fleet.slices
        if silent:
            world.clouds["one"].failing = RuntimeError("the list cannot be had either")
        while not world.clouds["two"].bought:
            assert world.time - began <= 22, leader.controller_state.fleet.slices
            await world.tick(leader)
        assert world.time - began >= 20
        assert leader.controller_state.fleet.slices[first].state == State.TERMINATING
        # What comes late is ended, and the work runs once.
        world.clouds["one"].failing = None
        world.clouds["one"].hanging = None
        hanging.set()
        await leader.actuator.settle()
        for _ in range(30):
            await world.tick(leader)
        assert list(world.work.running.values()) == ["a"]
        assert world.clouds["one"].instances == {}
        assert first not in leader.controller_state.fleet.slices

    asyncio.run(story())


def test_a_machine_that_comes_after_the_call_that_ends_it_is_ended_as_soon_as_it_is_seen() -> None:
    async def story() -> None:
        world = world_with(20)
        settings = replace(world.settings, policy=replace(world.settings.policy, terminate_timeout=3600))
        world.settings = settings
        leader = world.controller()
        hanging = asyncio.Event()
        world.clouds["one"].hanging = hanging
        world.work.waiting = ["a"]
        await world.tick(leader)
        [first] = leader.controller_state.fleet.slices
        while leader.controller_state.fleet.slices[first].state != State.TERMINATING:
            await world.tick(leader)
        for _ in range(3):
            await world.tick(leader)
        world.clouds["one"].hanging = None
        hanging.set()
        for _ in range(5):
            await world.tick(leader)
            await leader.actuator.settle()
        assert world.clouds["one"].bought == [first]
        assert world.clouds["one"].instances == {}

    asyncio.run(story())


def test_the_group_is_not_asked_again_at_once() -> None:
    async def story() -> None:
        world = world_with(20)
        leader = world.controller()
        world.clouds["one"].hanging = asyncio.Event()
        world.work.waiting = ["a"]
        for _ in range(22):
            await world.tick(leader)
        assert leader.controller_state.fleet.provider_health["near"].failures
        world.work.waiting.append("b")
        await world.tick(leader)
        groups = [one.group for one in leader.controller_state.fleet.slices.values()]
        assert groups.count("near") == 1

    asyncio.run(story())


def test_the_loop_wakes_when_the_limit_is_over() -> None:
    async def story() -> None:
        world = world_with(20)
        leader = world.controller()
        world.clouds["one"].hanging = asyncio.Event()
        world.work.waiting = ["a"]
        began = world.time
        for _ in range(16):
            await world.tick(leader)
        assert leader.next_deadline() is not None
        assert leader.next_deadline() <= began + 1 + 20  # type: ignore[operator]

    asyncio.run(story())
