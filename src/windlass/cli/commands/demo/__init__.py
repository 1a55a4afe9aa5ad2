"""``windlass demo``: the main job on this machine, start to end, in less than a minute, with nothing left running."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

import click

from windlass.cli.commands.run import shown, steady
from windlass.config import Config, read_config
from windlass.config.build import Components, build_components
from windlass.control.controller import Pass
from windlass.control.record.costs import KINDS, charged
from windlass.control.record.journal_tables import ControllerState, recovered
from windlass.control.report.events import EventLine, lines
from windlass.control.service import Service
from windlass.core.model.lifecycle import State
from windlass.core.model.reasons import plural
from windlass.journal import open_journal
from windlass.providers.local.files import LocalSlice
from windlass.workloads.queue.store import Queue

from .view import Scene, live, summary

CONFIG = """\
# The cluster of `windlass demo`: machines that are processes on this computer, with the price of real ones.
cluster: {max_hourly_cost: 12}
groups:
  worker:
    resources: {cpu: 2}
    max: 4
    price: 3.0
    scale_down: {idle_timeout: 3s}
providers:
  here: {type: local, boot_delay: 1s}
workload: {type: queue}
policy: {vanish_timeout: 1s}
"""
JOB, TASKS, SECONDS = "burst", 24, 1.5
PATIENCE = 55.0
"""Seconds after which the demo gives up: it takes about fifteen."""


@click.command("demo")
@click.option("--directory", default=".windlass/demo", show_default=True, help="Where it works; made anew.")
def command(directory: str) -> None:
    """See it work, on this machine and in less than a minute: no account, no Docker, no network.

    A burst of tasks arrives, machines are started for it, one is killed in the middle of its work, the work goes on,
    and the machines are given back. At the end: what happened and why, the bill, and what to try next. Machines are
    processes on this computer here; nothing is left running.
    """
    home = Path(directory).absolute()
    if home.exists() and not (home / "windlass.yaml").exists() and any(home.iterdir()):
        raise click.ClickException(f"{home} holds something else; choose another --directory")
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    file = home / "windlass.yaml"
    file.write_text(CONFIG, encoding="utf-8")
    sys.exit(asyncio.run(_Demo(file).run()))


@dataclass
class _Demo:
    """One performance."""

    file: Path
    scene: Scene = field(default_factory=Scene)
    killed: str = ""
    finished: bool = False

    def __post_init__(self) -> None:
        self.config: Config = read_config(self.file.read_bytes(), path=self.file)
        self.queue = Queue(self.config.workload.settings["directory"])
        self.plain = not sys.stdout.isatty()

    async def run(self) -> int:
        components = build_components(self.config, tie_to=os.getpid())
        with open_journal(self.config.journal.location) as journal:
            service = Service(
                self.config.settings,
                components.providers,
                components.workload,
                journal,
                leadership=self.config.leader,
                retention=self.config.journal.retention,
                now=time.time,
                steady=steady,
                passed=self._passed,
            )
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, service.stop)
            try:
                with nullcontext() if self.plain else live(self.scene):
                    running = asyncio.create_task(service.run())
                    self._tell(f"the controller runs; nothing is bought yet ({self.file})")
                    with suppress(TimeoutError):
                        async with asyncio.timeout(PATIENCE):
                            await self._play(service)
                    service.stop()
                    await running
            finally:
                left = await self._clean_up(components, service)
            controller_state = recovered(journal)
        return self._curtain(controller_state, left)

    # -- the play -----------------------------------------------------------------------------------------------------

    async def _play(self, service: Service) -> None:
        sleeper = [sys.executable, "-c", f"import time; time.sleep({SECONDS})"]
        self.queue.submit(JOB, sleeper, (("cpu", 1000),), TASKS, 0)
        self._tell(f"a burst arrives: {TASKS} tasks of {SECONDS:g} s, one cpu each")
        await self._until(service, lambda: self._busy(service) >= 3)
        self._kill_one(service)
        await self._until(service, lambda: self.scene.done == TASKS)
        self._tell("all tasks are done; the machines are idle now, and go after 3 s without work")
        await self._until(service, lambda: not service.controller.controller_state.fleet.slices)
        self.finished = True

    async def _until(self, service: Service, happened: Callable[[], bool]) -> None:
        """Look after every pass, and now and then."""
        self._look(service)
        while not happened():
            await asyncio.sleep(0.05)
            self._look(service)

    def _look(self, service: Service) -> None:
        jobs = [job for job in self.queue.jobs() if job.name == JOB]
        if jobs:
            self.scene.waiting, self.scene.running, self.scene.done = jobs[0].waiting, jobs[0].running, jobs[0].done
        self.scene.controller_state, self.scene.now = service.controller.controller_state, time.time()

    def _busy(self, service: Service) -> int:
        slices = service.controller.controller_state.fleet.slices.values()
        return sum(record.state == State.READY and any(node.tasks for node in record.nodes) for record in slices)

    def _kill_one(self, service: Service) -> None:
        """As if somebody pulled the plug: kill -9 for a machine that is at work."""
        records = sorted(service.controller.controller_state.fleet.slices.values(), key=lambda one: one.id)
        victim = next(one for one in records if any(node.tasks for node in one.nodes))
        self.killed = victim.id
        home = Path(self.config.providers["here"].settings["directory"]) / victim.id / "host-0"
        command = LocalSlice.read(home).command
        tasks = sum(node.tasks for node in victim.nodes)
        if command is not None and command.signal(signal.SIGKILL):
            self._tell(f"kill -9 for the machine {victim.id}, in the middle of {plural(tasks, 'task')}")

    async def _clean_up(self, components: Components, service: Service) -> int:
        """End whatever is still there, however the play ended; how many machines that were."""
        provider, left = components.providers["here"], await components.providers["here"].list()
        for instance in left:
            await provider.terminate(instance.slice_id, service.controller.leading.epoch)
        await components.close()
        self.queue.close()
        return len(left)

    # -- telling ------------------------------------------------------------------------------------------------------

    def _passed(self, done: Pass) -> None:
        for line in lines(done.entries):
            if line.kind != "settings":
                self._show(line)

    def _tell(self, text: str) -> None:
        self._show(EventLine(time.time(), "demo", "", text, ()))

    def _show(self, line: EventLine) -> None:
        self.scene.lines.append(line)
        if self.plain:
            click.echo(f"{'> ' if line.kind == 'demo' else '  '}{shown(line)}")

    def _curtain(self, controller_state: ControllerState, left: int) -> int:
        for text in summary(self._facts(controller_state, left)):
            click.echo(text)
        return 0 if self.finished and not left else 1

    def _facts(self, controller_state: ControllerState, left: int) -> Iterator[tuple[str, str]]:
        starts = [line for line in self.scene.lines if line.kind == "launch"]
        bought = sum(len(line.subjects) for line in starts)
        yield "", "What happened" if self.finished else "It did not come to its end within the time"
        yield "tasks", f"{self.scene.done} of {TASKS} done"
        yield "machines", f"{bought} bought, 1 killed, {bought - 1 - left} given back, {left} left running"
        for line in starts:
            yield "why", f"{line.text} [{line.code}]"
        for line in self.scene.lines:
            if line.kind == "slice" and (self.killed in line.subjects) and line.code == "LOST":
                yield "why", f"{line.text} [{line.code}]"
                break
        idle = [line for line in self.scene.lines if line.kind == "slice" and line.code == "IDLE"]
        if idle:
            yield "why", f"{idle[0].text} [{idle[0].code}]"
        account = charged(controller_state.account, controller_state.fleet, controller_state.stay, time.time()).get(
            "worker"
        )
        if account is not None:
            parts = ", ".join(f"{kind} ${account.dollars(kind):.4f}" for kind in KINDS if getattr(account, kind))
            yield "bill", f"${account.dollars():.4f}: {parts}"
        yield "next", f"windlass events -c {_beside(self.file)}"
        yield "", f"windlass why {self.killed or 'worker'} -c {_beside(self.file)}"
        yield "", f"windlass run {_beside(self.file)}"


def _beside(file: Path) -> str:
    with suppress(ValueError):
        return str(file.relative_to(Path.cwd()))
    return str(file)
