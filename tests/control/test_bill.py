"""The bill is lifetimes times price: from the order to the end, nothing for launches that failed, no clock steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import pytest

from tests.control.worlds import GPU, World
from windlass.control.controller import Controller
from windlass.control.record.costs import charged
from windlass.control.replay import replayed
from windlass.control.settings import GroupSettings, Policy, Settings
from windlass.journal.sql.schema import DatabaseSession
from windlass.journal.sqlite import SqliteJournal
from windlass.providers.protocol import ProviderError, Throttled

HOURLY = 3600 * 10**9
"""A dollar a second, so that the bill in dollars is the number of seconds."""
PAID = replace(GPU, price=HOURLY)


def world_with(**policy: float) -> World:
    return World(settings=Settings((GroupSettings(PAID, "cloud"),), policy=Policy(**policy)))  # type: ignore[arg-type]


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


def test_a_group_without_a_price_is_billed_at_the_price_of_its_provider() -> None:
    async def story() -> None:
        world = World(settings=Settings((GroupSettings(GPU, "cloud"),)))
        leader = world.controller()
        world.work.waiting = ["a"]
        await world.tick(leader)
        ordered = world.time
        (name,) = world.cloud.instances
        world.cloud.instances[name] = replace(world.cloud.instances[name], price=HOURLY)
        await world.ticks(leader, 10)
        assert seconds_billed(world, leader) == world.time - ordered
        assert replayed(world.journal()).differing == 0

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


class SharedDatabase(SqliteJournal):
    """A journal in a database with a clock that every controller reads, as PostgreSQL has."""

    own_clock = True

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._clock = clock
        super().__init__(path)

    def _database_time(self, session: DatabaseSession) -> float:
        return self._clock()


@pytest.mark.parametrize("difference", [3600.0, -3600.0, 0.0])
def test_a_controller_on_another_computer_with_another_clock_bills_the_time_that_passed(
    tmp_path: Path, difference: float
) -> None:
    async def story() -> None:
        world = world_with()
        true_time = lambda: world.time + world.ahead  # noqa: E731
        world.journal = lambda: SharedDatabase(tmp_path / "journal.db", true_time)  # type: ignore[method-assign]
        leader = world.controller("one", clock_name="boot of one computer")
        world.work.waiting = ["a"]
        await world.ticks(leader, 10)
        before = seconds_billed(world, leader)
        await leader.stop()
        world.time += 600
        world.time += difference
        world.ahead -= difference  # the database shows how much time has passed
        leader = world.controller("two", clock_name="boot of another computer")
        await world.ticks(leader, 5)
        assert seconds_billed(world, leader) == before + 605
        assert replayed(world.journal()).first is None

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


def remembered_ends(world: World) -> dict[str, float]:
    """Let the cloud confirm the ends in the returned mapping, by slice."""
    ends: dict[str, float] = {}

    class Remembering(type(world.cloud)):  # type: ignore[misc]
        async def confirm_ended(self, slice_ids: Collection[str]) -> dict[str, float]:
            return {name: ends[name] for name in slice_ids if name in ends}

    world.cloud.__class__ = Remembering
    return ends


def test_a_slice_is_billed_until_the_end_that_its_provider_reports_and_not_until_it_was_observed() -> None:
    async def story() -> None:
        world = world_with()
        ends = remembered_ends(world)
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


@pytest.mark.parametrize("busy", [True, False], ids=["with work", "ended while empty"])
def test_a_slice_that_a_list_loses_for_so_long_that_it_is_given_up_is_billed_in_full_when_it_is_listed_again(
    busy: bool,
) -> None:
    async def story() -> None:
        world = world_with(vanish_timeout=15, unhealthy_timeout=30)
        leader = world.controller()
        world.work.waiting = ["a"]
        await world.tick(leader)
        ordered = world.time
        await world.ticks(leader, 5)
        [name] = world.cloud.instances
        kept = world.cloud.instances[name]
        if not busy:
            world.work.finish()
            while not world.cloud.ended:
                await world.tick(leader)
            world.cloud.instances[name] = kept  # the call had no effect, and no list shows that
        world.cloud.listing = lambda: ()
        while name in leader.controller_state.fleet.slices:
            await world.tick(leader)
        world.time += 100  # a clock that is set is not billed here either
        world.ahead -= 100
        await world.ticks(leader, 200)
        world.cloud.listing = None
        await world.tick(leader)
        assert name in leader.controller_state.fleet.slices
        assert seconds_billed(world, leader) == world.time - 100 - ordered
        assert replayed(world.journal()).differing == 0

    asyncio.run(story())


def test_a_slice_that_is_listed_again_after_hours_is_billed_for_no_second_twice() -> None:
    async def story() -> None:
        world = world_with(vanish_timeout=15, unhealthy_timeout=30)
        leader = world.controller()
        world.work.waiting = ["a"]
        await world.tick(leader)
        ordered = world.time
        [name] = world.cloud.instances
        world.cloud.instances[name] = replace(world.cloud.instances[name], started_at=ordered)
        await world.ticks(leader, 50, 100.0)
        world.cloud.listing = lambda: ()
        await world.ticks(leader, 100, 100.0)
        world.cloud.listing = None
        await world.tick(leader, 100.0)
        assert 5000 + 3600 <= seconds_billed(world, leader) <= world.time - ordered

    asyncio.run(story())


def test_a_slice_that_a_list_loses_before_its_end_is_billed_until_the_end_that_its_provider_reports() -> None:
    async def story() -> None:
        world = world_with(vanish_timeout=60, unhealthy_timeout=60)
        ends = remembered_ends(world)
        leader = world.controller()
        world.work.waiting = ["a"]
        await world.tick(leader)
        ordered = world.time
        await world.ticks(leader, 5)
        [name] = world.cloud.instances
        world.cloud.listing = lambda: ()
        await world.ticks(leader, 20)
        world.work.finish()
        ends[name] = world.time
        del world.cloud.instances[name]
        await world.ticks(leader, 5)
        assert name not in leader.controller_state.fleet.slices
        assert seconds_billed(world, leader) == ends[name] - ordered
        assert replayed(world.journal()).differing == 0

    asyncio.run(story())


def test_the_time_that_a_provider_asked_to_wait_before_a_launch_costs_nothing() -> None:
    async def story() -> None:
        world = world_with()
        leader = world.controller()
        world.cloud.refusing = lambda _: Throttled("slow down", retry_after=30)
        world.work.waiting = ["a"]
        await world.ticks(leader, 20)
        world.cloud.refusing = lambda _: None
        while not world.cloud.bought:
            await world.tick(leader)
        bought = world.time
        await world.ticks(leader, 5)
        assert seconds_billed(world, leader) == world.time - bought

    asyncio.run(story())


def test_an_end_that_a_provider_reports_by_another_clock_takes_nothing_off_the_bill() -> None:
    """Our clock is ten minutes ahead, so the machine seems to have ended before it was ordered."""

    async def story() -> None:
        world = world_with()
        ends = remembered_ends(world)
        leader = world.controller()
        world.work.waiting = ["a"]
        await world.tick(leader)
        ordered = world.time
        await world.ticks(leader, 40)
        [name] = world.cloud.instances
        world.work.finish()
        ends[name] = world.time - 600
        del world.cloud.instances[name]
        gone = world.time
        await world.ticks(leader, 5)
        assert name not in leader.controller_state.fleet.slices
        assert gone - ordered <= seconds_billed(world, leader) <= gone - ordered + 1
        assert replayed(world.journal()).differing == 0

    asyncio.run(story())
