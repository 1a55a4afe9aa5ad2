"""The loop on a real journal, with a cloud and a workload in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.control.worlds import World
from windlass.control.controller import Controller
from windlass.control.leadership import NotLeading
from windlass.control.record.state_reader import StateReader, saved
from windlass.core.model.lifecycle import State
from windlass.core.model.reasons import Code
from windlass.providers.protocol import InsufficientCapacity, ProviderError


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "journal.db")


def states(controller: Controller) -> list[State]:
    return sorted(record.state for record in controller.controller_state.fleet.slices.values())


def test_demand_is_bought_for_served_and_given_back_without_killing_anything(world: World) -> None:
    async def story() -> None:
        controller = world.controller()
        world.work.waiting = ["a", "b"]
        for _ in range(5):
            await world.tick(controller)
        assert len(world.cloud.bought) == 2
        assert sorted(world.work.running.values()) == ["a", "b"]
        world.work.finish()
        for _ in range(8):
            await world.tick(controller, 20)
        assert world.cloud.instances == {}
        assert controller.controller_state.fleet.slices == {}
        assert world.work.killed == []

    asyncio.run(story())


def test_new_demand_calls_a_cordoned_slice_back(world: World) -> None:
    async def story() -> None:
        controller = world.controller()
        world.work.waiting = ["a"]
        for _ in range(4):
            await world.tick(controller)
        world.work.finish()
        world.time += 60
        world.work.step()
        await controller.tick()  # decides to cordon; its call is not settled yet
        assert states(controller) == [State.CORDONED]
        world.work.waiting = ["b"]
        world.work.cordons[world.cloud.bought[0]] = 1
        for _ in range(3):
            await world.tick(controller)
        assert world.cloud.ended == []
        assert list(world.work.running.values()) == ["b"]

    asyncio.run(story())


def test_a_refused_launch_is_remembered_and_tried_one_at_a_time(world: World) -> None:
    async def story() -> None:
        controller = world.controller()
        world.cloud.failing = None
        world.work.waiting = ["a", "b", "c"]
        refusal = InsufficientCapacity("none left")
        launch = world.cloud.launch

        async def refuse(order: object, epoch: int) -> None:
            raise refusal

        world.cloud.launch = refuse  # type: ignore[method-assign]
        for _ in range(3):
            await world.tick(controller)
        assert controller.controller_state.fleet.provider_health["gpu"].failures
        world.cloud.launch = launch  # type: ignore[method-assign]
        tick = await world.tick(controller, 60)
        assert tick.plan is not None
        assert tick.plan.launch == {"gpu": 1}
        assert tick.plan.launches[0].reason.code == Code.PROBE

    asyncio.run(story())


def test_a_provider_that_fails_loses_nothing(world: World) -> None:
    async def story() -> None:
        controller = world.controller()
        world.work.waiting = ["a"]
        for _ in range(4):
            await world.tick(controller)
        world.work.finish()
        world.cloud.failing = ProviderError("the list is down")
        for _ in range(6):
            tick = await world.tick(controller, 60)
            assert tick.fold.unknown == ("provider cloud",)
        assert states(controller) == [State.READY]
        world.cloud.failing = None
        for _ in range(4):
            await world.tick(controller)
        assert world.cloud.instances == {}

    asyncio.run(story())


def test_a_launch_that_hangs_holds_up_nothing_else(world: World) -> None:
    async def story() -> None:
        controller = world.controller()
        world.cloud.hanging = asyncio.Event()
        world.work.waiting = ["a"]
        await controller.tick()
        world.time += 1
        await controller.tick()
        assert states(controller) == [State.REQUESTING]
        world.cloud.hanging.set()
        await controller.actuator.settle()
        for _ in range(3):
            await world.tick(controller)
        assert len(world.cloud.bought) == 1

    asyncio.run(story())


def test_an_orphan_is_adopted_and_used(world: World) -> None:
    async def story() -> None:
        first = world.controller()
        world.work.waiting = ["a"]
        for _ in range(3):
            await world.tick(first)
        orphan = world.cloud.bought[0]
        assert world.path is not None
        world.path.unlink()  # the journal is lost, the machine is not
        for suffix in ("-wal", "-shm"):
            Path(f"{world.path}{suffix}").unlink(missing_ok=True)
        second = world.controller()
        world.cloud.epoch = 0
        for _ in range(2):
            await world.tick(second)
        assert second.controller_state.fleet.slices[orphan].started_for.code == Code.LEAKED
        assert second.controller_state.fleet.slices[orphan].state == State.READY
        assert world.cloud.bought == [orphan]

    asyncio.run(story())


def test_only_one_of_two_controllers_leads_and_the_old_one_stops(world: World) -> None:
    async def story() -> None:
        old = world.controller("old")
        with pytest.raises(NotLeading):
            world.controller("new")
        world.time += 16
        new = world.controller("new")
        world.work.waiting = ["a"]
        with pytest.raises(NotLeading):
            await old.tick()
        await old.actuator.settle()
        assert world.cloud.bought == []
        for _ in range(3):
            await world.tick(new)
        assert len(world.cloud.bought) == 1

    asyncio.run(story())


def test_a_saved_state_is_the_book(world: World) -> None:
    async def story() -> None:
        controller = world.controller()
        world.work.waiting = ["a", "b"]
        await world.tick(controller)
        assert (
            StateReader((controller.controller_state.seq, saved(controller.controller_state))).controller_state()
            == controller.controller_state
        )

    asyncio.run(story())
