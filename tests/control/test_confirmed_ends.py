"""A slice whose end is confirmed by its provider frees its place at once; reasons name slices that are ending."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace

from tests.control.worlds import GPU, Cloud, World
from windlass.builders import demand, group, slice_, snapshot
from windlass.control.record.state_reader import recovered
from windlass.control.replay import replayed
from windlass.control.report.current import planned_state, read_state
from windlass.control.settings import GroupSettings, Policy, Settings
from windlass.core.model.lifecycle import State
from windlass.core.model.reasons import Code
from windlass.core.planner import plan

FULL = Settings((GroupSettings(replace(GPU, max=1), "cloud"),), policy=Policy(vanish_timeout=15))


class RememberingCloud(Cloud):
    """A cloud that knows which slices have ended."""

    async def confirm_ended(self, slice_ids: Collection[str]) -> Collection[str]:
        return [name for name in slice_ids if name in self.bought and name not in self.instances]


def a_world(kind: type[Cloud]) -> World:
    world = World(settings=FULL)
    world.clouds["cloud"] = kind(world.point)
    return world


async def seconds_until_replaced(world: World) -> float:
    """A machine of a full group is deleted at the provider; how long until the next one is bought."""
    leader = world.controller()
    world.work.waiting = ["a"]
    await world.ticks(leader, 3)
    assert world.work.running
    world.cloud.died.append(world.cloud.bought[0])
    del world.cloud.instances[world.cloud.bought[0]]
    deleted = world.time
    while len(world.cloud.bought) < 2:
        assert world.time - deleted < 60
        await world.tick(leader)
    return world.time - deleted


def test_a_slice_whose_end_is_confirmed_is_replaced_in_the_next_pass_in_a_group_at_its_max() -> None:
    world = a_world(RememberingCloud)
    assert asyncio.run(seconds_until_replaced(world)) <= 2
    lost = recovered(world.journal()).fleet.gone
    assert list(lost) == world.cloud.bought[:1]
    assert replayed(world.journal()).differing == 0


def test_one_that_is_only_missing_keeps_its_place_for_the_vanish_timeout() -> None:
    assert asyncio.run(seconds_until_replaced(a_world(Cloud))) >= 15


def test_what_the_provider_has_forgotten_is_not_confirmed_and_a_slice_that_is_listed_again_lives_on() -> None:
    async def story() -> None:
        world = a_world(RememberingCloud)
        leader = world.controller()
        world.work.waiting = ["a"]
        await world.ticks(leader, 3)
        name = world.cloud.bought[0]
        world.cloud.listing = lambda: ()  # a lost page: the machine runs on
        await world.ticks(leader, 5)
        assert leader.controller_state.fleet.slices[name].state is State.READY
        world.cloud.listing = None
        await world.ticks(leader, 2)
        assert leader.controller_state.fleet.slices[name].absent_since is None

    asyncio.run(story())


def test_a_slice_that_was_ended_on_order_frees_its_place_when_its_end_is_confirmed() -> None:
    async def story() -> None:
        world = a_world(RememberingCloud)
        leader = world.controller()
        world.work.waiting = ["a"]
        await world.ticks(leader, 3)
        world.cloud.kill(world.cloud.bought[0])
        killed = world.time
        while len(world.cloud.bought) < 2:
            await world.tick(leader)
        assert world.time - killed <= 3
        assert leader.controller_state.fleet.provider_health["gpu"].ends

    asyncio.run(story())


def test_while_a_slice_is_ending_the_answer_says_so_and_no_limit_need_be_raised() -> None:
    full = group("g", gpu=8, max=1, price=10)
    going = slice_("old", "g", state="terminating")
    made = plan(snapshot([full], [going], [demand("job", {"gpu": 8})], max_hourly_cost=10))
    (waiting,) = made.waiting
    assert waiting.reason.code is Code.AT_MAX
    assert "1 of them is ending" in waiting.reason.why
    assert made.unblocks["job"] == ()
    staying = slice_("old", "g", state="ready", nodes=[{"id": "n", "tasks": 1, "used": {"gpu": 8}}])
    (way, *_) = plan(snapshot([full], [staying], [demand("job", {"gpu": 8})])).unblocks["job"]
    assert way.change.startswith("max of g")


def test_the_answer_says_when_room_comes_by_how_long_the_last_ones_took() -> None:
    async def story() -> None:
        world = a_world(RememberingCloud)
        leader = world.controller()
        world.work.waiting = ["a"]
        await world.ticks(leader, 3)
        first = world.cloud.bought[0]
        world.cloud.kill(first)
        while len(world.cloud.bought) < 2:
            await world.tick(leader)
        await world.ticks(leader, 3)
        world.work.waiting.append("b")
        world.cloud.kill(world.cloud.bought[1])
        await world.tick(leader)
        state = read_state(world.journal())
        planned = planned_state(state, FULL, world.time)
        (part, *_) = planned.parts(state.observed.demand["b"])
        assert part.code is Code.AT_MAX
        assert "room comes" in part.why

    asyncio.run(story())
