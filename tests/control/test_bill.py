"""The bill is what the machines cost: from the order to the end, nothing for what never came, no steps of the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace

from tests.control.worlds import GPU, World
from windlass.control.controller import Controller
from windlass.control.record.costs import charged
from windlass.control.replay import replayed
from windlass.control.settings import Policy, Settings, SoldGroup
from windlass.providers.protocol import ProviderError

HOURLY = 3600 * 10**9
"""A dollar a second, so that the bill in dollars is the number of seconds."""
PAID = replace(GPU, price=HOURLY)


def world_with(**policy: float) -> World:
    return World(settings=Settings((SoldGroup(PAID, "cloud"),), policy=Policy(**policy)))  # type: ignore[arg-type]


def seconds_billed(world: World, leader: Controller) -> float:
    state = leader.controller_state
    accounts = charged(state.account, state.fleet, state.stay, world.time)
    return round(sum(account.dollars() for account in accounts.values()), 3)


def test_a_slice_is_billed_from_its_order_to_its_end_and_not_until_it_is_believed() -> None:
    async def story() -> None:
        world = world_with(vanish_timeout=15)
        leader = world.controller()
        world.cloud.booting = True
        world.work.waiting = ["a"]
        await world.tick(leader)
        ordered = world.time
        for _ in range(10):
            await world.tick(leader)
        world.cloud.boot()
        for _ in range(5):
            await world.tick(leader)
        assert seconds_billed(world, leader) == world.time - ordered
        world.work.finish()
        while not world.cloud.ended:
            await world.tick(leader)
        ended = world.time
        for _ in range(40):
            await world.tick(leader)
        assert leader.controller_state.fleet.slices == {}
        assert seconds_billed(world, leader) <= ended - ordered + 1, "one pass later it is seen that it is gone"

    asyncio.run(story())


def test_what_was_never_bought_costs_nothing() -> None:
    async def story() -> None:
        world = world_with(requesting_timeout=30, retry_pause=1)
        leader = world.controller()
        world.cloud.refusing = lambda _: ProviderError("no answer")
        world.work.waiting = ["a"]
        for _ in range(60):
            await world.tick(leader)
        assert world.cloud.bought == []
        assert seconds_billed(world, leader) == 0

    asyncio.run(story())


def test_a_clock_that_is_set_is_not_paid_for() -> None:
    async def story() -> None:
        for step in (3600.0, -3600.0):
            world = world_with()
            leader = world.controller()
            world.work.waiting = ["a"]
            await world.tick(leader)
            for _ in range(10):
                await world.tick(leader)
            before = seconds_billed(world, leader)
            world.time += step
            world.ahead -= step  # the steady clock knows nothing of it
            for _ in range(10):
                await world.tick(leader)
            assert seconds_billed(world, leader) == before + 10

    asyncio.run(story())


def test_the_time_without_a_controller_is_paid_for() -> None:
    async def story() -> None:
        world = world_with()
        leader = world.controller()
        world.work.waiting = ["a"]
        await world.ticks(leader, 10)
        before = seconds_billed(world, leader)
        await leader.stop()
        world.time += 600
        leader = world.controller("two")
        await world.ticks(leader, 5)
        assert seconds_billed(world, leader) == before + 605

    asyncio.run(story())


def test_a_list_that_misses_a_slice_for_a_moment_does_not_make_it_free() -> None:
    async def story() -> None:
        world = world_with(vanish_timeout=30)
        leader = world.controller()
        world.work.waiting = ["a"]
        await world.tick(leader)
        ordered = world.time
        await world.ticks(leader, 5)
        world.cloud.listing = lambda: ()
        await world.ticks(leader, 5)
        world.cloud.listing = None
        await world.ticks(leader, 5)
        assert seconds_billed(world, leader) == world.time - ordered

    asyncio.run(story())


def test_a_slice_is_billed_until_its_end_by_its_providers_word_and_not_until_that_was_seen() -> None:
    async def story() -> None:
        world = world_with()
        ends: dict[str, float] = {}

        class Remembering(type(world.cloud)):  # type: ignore[misc]
            async def confirm_ended(self, slice_ids: Collection[str]) -> dict[str, float]:
                return {name: ends[name] for name in slice_ids if name in ends}

        world.cloud.__class__ = Remembering
        leader = world.controller()
        world.work.waiting = ["a"]
        await world.tick(leader)
        ordered = world.time
        for _ in range(5):
            await world.tick(leader)
        name = world.cloud.bought[0]
        world.cloud.died.append(name)
        del world.cloud.instances[name]
        ends[name] = world.time + 2
        await world.tick(leader, 40)  # nobody looked for a while
        await world.tick(leader)
        assert name not in leader.controller_state.fleet.slices
        second = sum(leader.controller_state.fleet.slices[one].asked_at or 0 for one in world.cloud.bought[1:])
        later = world.time - second if second else 0
        assert seconds_billed(world, leader) == ends[name] - ordered + later
        assert replayed(world.journal()).differing == 0

    asyncio.run(story())
