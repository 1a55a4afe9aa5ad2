"""Two controllers that both believe they lead: only one writes, and the other makes no call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.control.worlds import GPU, World
from windlass.control.controller import Controller
from windlass.control.leadership import NotLeading
from windlass.control.replay import replayed
from windlass.control.settings import GroupSettings, Policy, Settings
from windlass.core.model.lifecycle import State
from windlass.providers.protocol import Instance


def calls(world: World) -> list[tuple[str, str, int]]:
    """Every changing call to a cloud or to the workload."""
    return [*world.cloud.calls, *world.work.calls]


def after_appending(controller: Controller, happens: Callable[[], None]) -> None:
    """Something happens between the commit of the next pass and its acts."""
    journal: Any = controller.journal
    append = journal.append

    def appended(*args: Any, **more: Any) -> Any:
        result = append(*args, **more)
        happens()
        return result

    journal.append = appended


def test_a_leader_that_is_held_up_past_its_lease_between_commit_and_act_makes_no_call() -> None:
    async def story() -> None:
        world = World()
        old = world.controller("old")
        world.work.waiting = ["a"]

        def stopped() -> None:
            world.ahead += 16  # as by SIGSTOP, or a machine that sleeps; the steady clock goes on

        after_appending(old, stopped)
        await world.tick(old)
        assert [one.state for one in old.controller_state.fleet.slices.values()] == [State.REQUESTING]
        assert calls(world) == []
        world.time += 16
        new = world.controller("new")
        for _ in range(3):
            await world.tick(new)
        with pytest.raises(NotLeading):
            await old.tick()
        await old.actuator.settle()
        assert {epoch for _, _, epoch in world.cloud.calls} == {2}
        assert world.cloud.stale == 0
        assert world.cloud.bought == list(
            old.controller_state.fleet.slices
        )  # what the old one had decided, under its id
        assert list(world.work.running.values()) == ["a"]

    asyncio.run(story())


@pytest.mark.parametrize("set_to", [-1000.0, 1000.0])
def test_a_clock_that_is_set_makes_no_lease_longer(set_to: float) -> None:
    async def story() -> None:
        world = World()
        leader = world.controller()
        world.time += set_to
        world.ahead -= set_to  # the steady clock knows nothing of it
        world.work.waiting = ["a"]
        assert leader.leading.leads()
        world.ahead += 16
        assert not leader.leading.leads()

    asyncio.run(story())


def test_a_leader_with_an_expired_lease_continues_if_it_was_not_replaced() -> None:
    async def story() -> None:
        world = World()
        leader = world.controller()
        world.time += 100
        world.work.waiting = ["a"]
        await world.ticks(leader, 3)
        assert list(world.work.running.values()) == ["a"]
        assert leader.leading.epoch == 1

    asyncio.run(story())


def test_a_call_that_was_under_way_when_another_took_over_is_refused_and_the_old_leader_stops() -> None:
    async def story() -> None:
        world = World()
        old = world.controller("old")
        hanging = world.cloud.hanging = asyncio.Event()
        world.work.waiting = ["a"]
        await world.tick(old)
        world.time += 16
        world.cloud.hanging = None
        new = world.controller("new")
        await world.ticks(new, 3)
        hanging.set()
        await old.actuator.settle()
        assert world.cloud.stale == 1
        with pytest.raises(NotLeading):
            await old.tick()
        assert len(world.cloud.bought) == 1

    asyncio.run(story())


def test_two_that_take_turns_do_the_work_of_one() -> None:
    """The lease changes hands before every pass; whoever had it makes its pass all the same, and is stopped."""

    async def story() -> None:
        world = World()
        first = world.controller("a")
        world.work.waiting = ["a", "b", "c"]
        leaders = [first]
        for number in range(40):
            world.time += 16
            leaders.append(world.controller(f"leader-{number}"))
            with pytest.raises(NotLeading):
                await leaders[-2].tick()
            await leaders[-2].actuator.settle()
            await world.tick(leaders[-1])
            if number == 5:
                assert len(world.work.running) == 3
                world.work.finish()
        assert world.instances == {}
        assert len(world.cloud.bought) == len(set(world.cloud.bought)) == 3
        assert world.work.finished == ["a", "b", "c"]
        assert world.cloud.stale == 0

    asyncio.run(story())


async def one_machine_at_work() -> tuple[World, Controller, str]:
    """A leader with one busy machine, and the name of the machine."""
    policy = Policy(vanish_timeout=15, unhealthy_timeout=60)
    world = World(settings=Settings((GroupSettings(GPU, "cloud"),), policy=policy))
    leader = world.controller()
    world.work.waiting = ["a"]
    await world.ticks(leader, 5)
    [name] = world.cloud.instances
    return world, leader, name


def test_a_machine_is_not_given_up_for_the_time_in_which_the_controller_was_stopped() -> None:
    """Two lists in a row have lost it. Between them lie 20 minutes in which nobody looked."""

    async def story() -> None:
        world, leader, name = await one_machine_at_work()
        for _ in range(3):
            world.cloud.listing = lambda: ()
            await world.tick(leader)
            await world.tick(leader, 1200.0)  # SIGSTOP and SIGCONT; no other controller is there
            assert [one.state for one in leader.controller_state.fleet.slices.values()] == [State.READY]
            world.cloud.listing = None
            await world.ticks(leader, 5)
        assert list(world.cloud.instances) == [name]
        assert list(world.work.running.values()) == ["a"]
        assert replayed(world.journal()).differing == 0

    asyncio.run(story())


def test_a_machine_that_is_gone_is_given_up_however_slow_the_passes_are() -> None:
    async def story() -> None:
        world, leader, name = await one_machine_at_work()
        world.cloud.instances.clear()
        world.work.waiting = ["b"]

        def slow() -> tuple[Instance, ...]:
            world.time += 8
            return tuple(world.cloud.instances.values())

        world.cloud.listing = slow
        await world.ticks(leader, 8, 12.0)
        assert name not in leader.controller_state.fleet.slices
        assert len(world.cloud.bought) == 2

    asyncio.run(story())
