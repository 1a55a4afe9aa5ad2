"""Two controllers that both believe they lead: only one writes, and the other makes no call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.control.worlds import World
from windlass.control.controller import Controller
from windlass.control.leadership import NotLeading
from windlass.core.model.lifecycle import State


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
