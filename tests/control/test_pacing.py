"""Launches obey the launch rate and the concurrency limit, and one group's queue delays no other's."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.control.clocks import leap
from tests.control.worlds import GPU, World
from windlass.control.settings import GroupSettings, Policy, Settings
from windlass.core.model.lifecycle import State
from windlass.core.model.reasons import Code
from windlass.providers.protocol import InsufficientCapacity, Throttled

MANY = replace(GPU, max=500)
OTHER = replace(MANY, name="tpu", resources=(("tpu", 4000),))


def a_world(**policy: Any) -> World:
    configured = (GroupSettings(MANY, "first"), GroupSettings(OTHER, "second"))
    world = World(settings=Settings(configured, policy=Policy(vanish_timeout=0, **policy)))
    world.work.needs = {f"t{number}": OTHER.resources for number in range(100)}
    return world


def jobs(letter: str, count: int) -> list[str]:
    return [f"{letter}{number}" for number in range(count)]


def test_a_minutes_worth_goes_out_at_once_and_the_rest_one_by_one() -> None:
    async def story() -> None:
        world = a_world(launch_rate=6)
        controller = world.controller()
        world.work.waiting = jobs("g", 12)
        await world.tick(controller)
        assert len(world.bought) == 6
        queued = [one for one in controller.controller_state.fleet.slices.values() if one.state == State.QUEUED]
        assert {record.reason.code for record in queued} == {Code.RATE_LIMITED}
        for number in range(1, 7):
            due = controller.next_deadline()
            assert due is not None
            assert due <= world.time + 10
            await world.tick(controller, 10)
            assert len(world.bought) == 6 + number

    leap(story())


def test_a_group_that_waits_for_its_turn_holds_up_no_other() -> None:
    async def story() -> None:
        world = a_world(launch_rate=6)
        controller = world.controller()
        world.work.waiting = jobs("g", 50)
        await world.tick(controller)
        world.work.waiting += jobs("t", 5)
        await world.tick(controller)
        assert len(world.clouds["first"].bought) == 6
        assert len(world.clouds["second"].bought) == 5

    leap(story())


def test_no_more_calls_are_under_way_than_allowed_in_a_group_and_a_group_whose_calls_hang_holds_up_no_other() -> None:
    async def story() -> None:
        world = a_world(launch_concurrency=3)
        controller = world.controller()
        first = world.clouds["first"]
        first.hanging = asyncio.Event()
        world.work.waiting = [*jobs("g", 10), *jobs("t", 10)]
        for _ in range(5):
            await world.tick(controller)
            assert len(controller.actuator.launching) <= 3
        assert len(controller.actuator.launching) == 3
        assert len(world.clouds["second"].bought) == 10
        first.hanging.set()
        first.hanging = None
        for _ in range(5):
            await world.tick(controller)
        assert len(first.bought) == 10

    leap(story())


def test_the_pace_survives_a_restart() -> None:
    async def story() -> None:
        world = a_world(launch_rate=6)
        world.work.waiting = jobs("g", 30)
        for _ in range(5):
            controller = world.controller()
            await world.tick(controller)
        assert len(world.bought) == 6

    leap(story())


def test_a_provider_that_asks_for_a_pause_gets_it_with_the_same_tokens() -> None:
    async def story() -> None:
        world = a_world()
        controller = world.controller()
        first = world.clouds["first"]
        first.refusing = lambda _: Throttled("slow down", 30)
        world.work.waiting = jobs("g", 2)
        await world.tick(controller)
        asked = sorted(name for _, name, _ in first.calls)
        first.refusing = lambda _: None
        await world.ticks(controller, 25)
        assert len(first.calls) == 2
        await world.ticks(controller, 10)
        assert sorted(first.bought) == asked

    leap(story())


def test_failures_slow_a_group_down_to_one_probe_at_a_time() -> None:
    async def story() -> None:
        world = a_world()
        controller = world.controller()
        first = world.clouds["first"]
        first.refusing = lambda _: InsufficientCapacity("none left")
        world.work.waiting = jobs("g", 20)
        await world.ticks(controller, 3)
        assert len(first.calls) == 20
        before, most = len(first.calls), 0
        for _ in range(200):
            calls = len(first.calls)
            await world.tick(controller, 10)
            most = max(most, len(first.calls) - calls)
        probes = len(first.calls) - before
        assert most == 1
        assert 5 <= probes <= 40  # it never stops asking, and asks less and less
        first.refusing = lambda _: None
        await world.ticks(controller, 40, 10)
        assert len(world.work.running) == 20

    leap(story())


@pytest.mark.parametrize("calls", [1, 5])
def test_launches_go_on_as_calls_come_back(calls: int) -> None:
    async def story() -> None:
        world = a_world(launch_concurrency=calls)
        controller = world.controller()
        world.work.waiting = jobs("g", 10)
        for number in range(1, 10 // calls + 1):
            await world.tick(controller)
            assert len(world.bought) == number * calls

    leap(story())


def coming(world: World) -> int:
    return len(world.bought)


def test_an_upscaling_speed_limits_starting_machines_to_the_running_ones_times_the_speed() -> None:
    async def story() -> None:
        world = World(settings=Settings((GroupSettings(MANY, "first", upscaling_speed=1.0),), policy=Policy()))
        controller = world.controller()
        world.work.waiting = jobs("g", 7)
        await world.tick(controller)
        assert coming(world) == 1
        queued = [one for one in controller.controller_state.fleet.slices.values() if one.state == State.QUEUED]
        assert {record.reason.code for record in queued} == {Code.RATE_LIMITED}
        assert "upscaling_speed 1" in queued[0].reason.why

    leap(story())


@pytest.mark.parametrize(
    "settings",
    [
        Settings((GroupSettings(MANY, "first"), GroupSettings(OTHER, "second")), max_concurrent_launches=3),
        Settings((GroupSettings(MANY, "first"), GroupSettings(OTHER, "first")), starting={"first": 3}),
    ],
)
def test_machines_that_start_at_once_are_limited_over_all_groups(settings: Settings) -> None:
    async def story() -> None:
        world = World(settings=settings)
        world.work.needs = {f"t{number}": OTHER.resources for number in range(100)}
        controller = world.controller()
        world.work.waiting = jobs("g", 4) + jobs("t", 4)
        await world.tick(controller)
        assert coming(world) == 3

    leap(story())
