"""Controllers that are restarted often, and compactions that take long."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any
from unittest import mock

from tests.control.worlds import World
from windlass.control import controller as controller_module
from windlass.control.journal_thread import JournalThread
from windlass.control.service import Service
from windlass.control.settings import Leadership


def test_controllers_that_each_write_a_little_save_a_checkpoint_in_the_end() -> None:
    async def story(world: World) -> None:
        for number in range(40):
            world.work.waiting = [f"job-{number}"]
            leader = world.controller(f"leader-{number}")
            await world.ticks(leader, 2)
            world.work.finish()
            await world.tick(leader)
            await leader.stop()

    world = World()
    with mock.patch.object(controller_module, "SAVE_AFTER", 80):
        asyncio.run(story(world))
    assert world.journal().latest_state() is not None


class Slow:
    """A journal whose compaction takes as long as the test wants."""

    def __init__(self, journal: Any) -> None:
        self._journal = journal
        self.compacting, self.go_on = threading.Event(), threading.Event()

    def compact(self, *args: Any, **more: Any) -> int:
        self.compacting.set()
        self.go_on.wait(30)
        return 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


def test_passes_continue_while_old_records_are_deleted() -> None:
    async def story() -> None:
        world = World()
        journal = Slow(world.journal())
        passes: list[object] = []
        service = Service(
            world.settings,
            world.clouds,
            world.work,
            journal,
            leadership=Leadership("one"),
            retention=60,
            now=lambda: world.time,
            steady=time.monotonic,
            on_pass=passes.append,
            offload=JournalThread(),
        )
        running = asyncio.create_task(service.run())
        try:
            deadline = time.monotonic() + 20
            while not journal.compacting.is_set() or len(passes) < 3:
                assert time.monotonic() < deadline, len(passes)
                world.work.news.set()
                world.time += 1
                await asyncio.sleep(0.01)
            before = len(passes)
            while len(passes) < before + 3:
                assert time.monotonic() < deadline, "it waits for the compaction"
                world.work.news.set()
                world.time += 1
                await asyncio.sleep(0.01)
        finally:
            journal.go_on.set()
            service.stop()
            await running

    asyncio.run(story())
