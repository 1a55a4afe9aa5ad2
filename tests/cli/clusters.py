"""A cluster whose controller a test drives pass by pass, on a journal that the commands read."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from tests.control.worlds import World
from windlass.cli import windlass
from windlass.config import read_config
from windlass.control.controller import Controller

CONFIG = """
groups:
  gpu: {resources: {gpu: 8}, max: 2, price: 2.0, scale_down: {idle_timeout: 60}}
  dear: {resources: {gpu: 8}, max: 1, price: 9.0, scale_down: {idle_timeout: 60}}
providers: {cloud: {type: simulated}}
workload: {type: simulated}
journal: journal.db
policy: {vanish_timeout: 1s}
"""


class Cluster:
    """A world that began some minutes ago, its configuration, and the command line."""

    def __init__(self, directory: Path, config: str = CONFIG) -> None:
        self.config = directory / "windlass.yaml"
        self.config.write_text(config, encoding="utf-8")
        self.world = World(directory / "journal.db")
        self.world.settings = read_config(config, path=self.config).settings
        self.world.time = time.time() - 600

    def live(self, story: Callable[[World, Controller], Awaitable[None]], *, stopped: bool = True) -> None:
        """Let a controller live through a story, and stop it or not."""

        async def whole() -> None:
            controller = self.world.controller()
            await story(self.world, controller)
            if stopped:
                await controller.stop()
            controller.journal.close()

        asyncio.run(whole())

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(windlass, [*words, "-c", str(self.config)])

    def output(self, *words: str) -> str:
        """What a command prints that succeeds, in one line: how it is folded is another question."""
        done = self.run(*words)
        assert (done.exit_code, done.stderr) == (0, "")
        return " ".join(done.stdout.split())

    def data(self, *words: str) -> Any:
        done = self.run(*words, "--json")
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout)


async def ticks(world: World, controller: Controller, times: int, seconds: float = 1.0) -> None:
    for _ in range(times):
        await world.tick(controller, seconds)


async def two_jobs_run(world: World, controller: Controller) -> None:
    """Two slices of gpu are bought for two jobs, which run."""
    world.work.waiting = ["a", "b"]
    await ticks(world, controller, 5)


async def one_waits(world: World, controller: Controller) -> None:
    """Three run on all that can be bought, and a fourth waits."""
    world.work.waiting = ["a", "b", "c", "d"]
    await ticks(world, controller, 6)


async def all_is_given_back(world: World, controller: Controller) -> None:
    await two_jobs_run(world, controller)
    world.work.finish()
    await ticks(world, controller, 8, 20)
