"""Two clusters never share machines, and a controller that another journal has overtaken stops for good."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import pytest

from tests.control.test_service import running
from tests.control.worlds import World
from windlass.control.controller import Controller, Overtaken
from windlass.control.settings import GroupSettings, Leadership, Settings
from windlass.core.model.snapshot import Cluster, Group
from windlass.journal import open_journal
from windlass.providers.local.provider import LocalProvider
from windlass.workloads.queue.store import Queue
from windlass.workloads.queue.workload import QueueWorkload

CPU = Group("cpu", (("cpu", 1000),), 2)


def controller_of(home: Path, machines: Path, name: str) -> Controller:
    """A controller with a journal and a queue of its own."""
    settings = Settings((GroupSettings(CPU, "local"),), Cluster(name=name))
    queue = QueueWorkload(home / "queue", [CPU])
    journal = open_journal(home / "journal.db")
    made = Controller(
        settings,
        {"local": LocalProvider(machines, grace=1.0)},
        queue,
        journal,
        now=time.time,
        steady=time.monotonic,
        leadership=Leadership(name, 60),
    )
    made.start()
    return made


async def until(controllers: list[Controller], wanted, within: float = 60.0) -> None:
    deadline = time.monotonic() + within
    while not wanted():
        assert time.monotonic() < deadline, [one.controller_state for one in controllers]
        for one in controllers:
            await one.tick()
        await asyncio.sleep(0.05)


async def end(controller: Controller) -> None:
    provider = controller.providers["local"]
    for instance in await provider.list():
        await provider.terminate(instance.slice_id, controller.leading.epoch)
    await controller.stop()
    await controller.workload.close()
    controller.journal.close()


def test_a_second_cluster_on_the_same_machines_directory_leaves_the_first_ones_work_alone(tmp_path: Path) -> None:
    async def story() -> None:
        one = controller_of(tmp_path / "one", tmp_path / "machines", "one")
        two = controller_of(tmp_path / "two", tmp_path / "machines", "two")
        try:
            Queue(tmp_path / "one" / "queue").submit("work", [sys.executable, "-c", "input()"], CPU.resources, 1, 0)
            Queue(tmp_path / "one" / "queue").submit("long", ["sleep", "60"], CPU.resources, 1, 0)
            jobs = lambda: {job.name: job for job in Queue(tmp_path / "one" / "queue").jobs()}  # noqa: E731
            await until([one, two], lambda: jobs()["long"].running == 1)
            Queue(tmp_path / "two" / "queue").submit("other", ["true"], CPU.resources, 1, 0)
            await until([one, two], lambda: any(j.done for j in Queue(tmp_path / "two" / "queue").jobs()))
            assert jobs()["long"].running == 1
            ids = set(one.controller_state.fleet.slices), set(two.controller_state.fleet.slices)
            assert ids[0].isdisjoint(ids[1])
            assert all(one.journal.cluster_id in name for name in ids[0])
        finally:
            await end(one)
            await end(two)

    asyncio.run(story())


def test_a_second_journal_under_the_same_name_buys_nothing_and_says_why(tmp_path: Path) -> None:
    async def story() -> None:
        one = controller_of(tmp_path / "one", tmp_path / "machines", "prod")
        try:
            Queue(tmp_path / "one" / "queue").submit("long", ["sleep", "60"], CPU.resources, 1, 0)
            await until([one], lambda: any(job.running for job in Queue(tmp_path / "one" / "queue").jobs()))
            two = controller_of(tmp_path / "two", tmp_path / "machines", "prod")
            Queue(tmp_path / "two" / "queue").submit("other", ["true"], CPU.resources, 1, 0)
            for _ in range(5):
                await two.tick()
                await two.actuator.settle()
            assert "another cluster named prod" in two.controller_state.observed.problems["provider local"]
            assert [job.running for job in Queue(tmp_path / "one" / "queue").jobs()] == [1]
            assert len(await one.providers["local"].list()) == 1
            await two.stop()
            await two.workload.close()
        finally:
            await end(one)

    asyncio.run(story())


def test_a_provider_that_knows_a_newer_controller_than_the_journal_stops_the_controller() -> None:
    async def story() -> None:
        world = World()
        leader = world.controller()
        world.cloud.epoch = 40  # granted by another journal
        world.work.waiting = ["a"]
        with pytest.raises(Overtaken, match="journal"):
            await world.ticks(leader, 5)
        assert world.cloud.bought == []

    asyncio.run(story())


def test_the_service_ends_instead_of_taking_epoch_after_epoch() -> None:
    async def story() -> None:
        world = World()
        world.cloud.epoch = 40
        world.work.waiting = ["a"]
        with pytest.raises(Overtaken):
            async with asyncio.timeout(20), running(world) as run:
                await asyncio.shield(run.task)
        assert [text.partition(":")[0] for text in run.alarms] == ["stopping"]
        assert world.journal().health().epoch == 1

    asyncio.run(story())
