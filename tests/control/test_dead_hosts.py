"""What a dead host leaves (exit code, last lines) is in the journal, and why shows it after the machine is removed."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.control.worlds import GPU, QUICK, World
from windlass.cli.commands.look.why.slice import page
from windlass.control.reconcile.slice_steps import LONGEST_OUTPUT
from windlass.control.report.current import planned_state, read_state
from windlass.control.report.why import Question
from windlass.control.settings import GroupSettings, Settings
from windlass.core.model.snapshot import amounts
from windlass.providers.local.files import LocalHost
from windlass.providers.local.provider import LocalProvider
from windlass.providers.protocol import HostOrder, Instance, LaunchOrder
from windlass.testing.eventually import eventually


async def dead(provider: LocalProvider) -> Instance:
    async def look() -> Instance | None:
        return next(iter(await provider.list()), None)

    def has_ended(one: Instance | None) -> bool:
        return one is not None and one.state != "pending" and not all(host.running for host in one.hosts)

    found = await eventually(look, has_ended)
    assert found is not None
    return found


@pytest.mark.parametrize("way", ["exits", "killed"])
def test_a_dead_local_host_is_listed_with_its_exit_code_and_its_last_lines(tmp_path: Path, way: str) -> None:
    async def story() -> None:
        provider = LocalProvider(tmp_path, grace=0.5)
        ending = "exit 3" if way == "exits" else "while true; do sleep 1; done"
        order = LaunchOrder("s-1", "g", (HostOrder(("sh", "-c", f"echo no such device >&2; {ending}")),), amounts({}))
        await provider.launch(order, 1)
        if way == "killed":
            life = await eventually(lambda: asyncio.to_thread(LocalHost.read, tmp_path / "s-1" / "host-0"), running)
            log = tmp_path / "s-1" / "host-0" / "stderr.log"
            await eventually(lambda: asyncio.to_thread(log.read_text))
            assert life.command is not None
            os.kill(life.command.pid, signal.SIGKILL)
        (host,) = (await dead(provider)).hosts
        assert (host.exit_code, host.last_output) == (3 if way == "exits" else -9, "no such device")
        await provider.terminate("s-1", 1)

    asyncio.run(story())


def running(life: LocalHost) -> bool:
    return life.running


def test_why_shows_what_a_dead_host_left_when_the_machine_is_long_gone_and_only_so_much_of_it() -> None:
    async def story() -> None:
        settings = Settings((GroupSettings(GPU, "cloud"),), policy=QUICK)
        world = World(settings=settings)
        leader = world.controller()
        world.work.waiting = ["a"]
        await world.ticks(leader, 3)
        name = world.cloud.bought[0]
        world.cloud.kill(name)
        one = world.cloud.instances[name]
        left = replace(one.hosts[0], exit_code=-9, last_output="x" * 5000 + "\nout of memory")
        world.cloud.instances[name] = replace(one, hosts=(left,))
        await world.ticks(leader, 5)
        assert name not in leader.controller_state.fleet.slices
        state = read_state(world.journal())
        document = Question(name, None, planned_state(state, settings, world.time), world.journal(), led=True).to_dict()
        (host,) = document["slice"]["dead_hosts"]
        assert (host["exit_code"], host["last_lines"][-1]) == (-9, "out of memory")
        assert sum(map(len, host["last_lines"])) <= LONGEST_OUTPUT
        console = Console(width=100)
        with console.capture() as capture:
            console.print(*page(document))
        text = capture.get()
        assert "was killed by SIGKILL" in text
        assert "out of memory" in text

    asyncio.run(story())
