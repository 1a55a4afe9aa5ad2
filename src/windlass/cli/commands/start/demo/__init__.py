"""``windlass demo`` runs a burst of tasks on this computer, from the first task to the bill."""

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
from typing import Any

import click

from windlass.cli.commands.start.run import shown, steady
from windlass.cli.ui.pages import program_name
from windlass.config import Config, read_config
from windlass.config.build import Components, build_components
from windlass.control.controller import Pass
from windlass.control.record.controller_state import ControllerState
from windlass.control.record.costs import KINDS, charged
from windlass.control.record.journal_tables import IS
from windlass.control.record.state_reader import recovered
from windlass.control.report.events import EventLine, lines
from windlass.control.service import Service
from windlass.core.model.lifecycle import State
from windlass.core.model.reasons import plural
from windlass.journal import Entry, open_journal
from windlass.providers.local.files import LocalHost
from windlass.workloads.queue.store import Queue

from .view import Scene, live, summary

CONFIG = """\
# The cluster of `windlass demo`. Its machines are processes on this computer, with the price of real ones.
cluster: {max_hourly_cost: 12}
groups:
  worker:
    resources: {cpu: 2}
    max: 4
    price: 3.0
    scale_down: {idle_timeout: 3s}
providers:
  here: {type: local, boot_delay: 1s, grace: 1s}
workload: {type: queue}
policy: {vanish_timeout: 1s}
"""
JOB, TASKS, SECONDS = "burst", 24, 1.5
PATIENCE = 300.0
"""Seconds after which the demo gives up. It takes about fifteen, and longer on a busy computer."""
STEPS = frozenset(
    {State.REQUESTING, State.BOOTING, State.INITIALIZING, State.DRAINING, State.TERMINATING, State.TERMINATED}
)
"""Intermediate states of a machine, which are shown with ``-v`` only."""


@click.command(
    "demo", epilog="Exit status: 0 every task ran and no machine is left, 1 something went wrong, 130 interrupted."
)
@click.option(
    "--directory",
    default=".windlass/demo",
    metavar="DIRECTORY",
    type=click.Path(file_okay=False),
    show_default=True,
    help="The directory of the demo; it is emptied first.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show every state of every machine.")
def command(directory: str, verbose: bool) -> None:
    """See Windlass work on this computer, in about 15 seconds. No account, Docker or network is needed.

    A burst of tasks arrives, and Windlass starts machines for it. One machine is killed while it works, and its tasks
    run again on another one. When all tasks are done, the machines are released. At the end the demo shows what
    happened and why, the bill, and what to try next. The machines are processes on this computer. Ctrl-C ends the
    demo at once. No process is left running in either case.
    """
    home = Path(directory).absolute()
    if home.exists() and not (home / "windlass.yaml").exists() and any(home.iterdir()):
        raise click.ClickException(f"{home} contains other files; choose another --directory")
    shutil.rmtree(home, ignore_errors=True)
    try:
        home.mkdir(parents=True)
    except OSError as error:
        raise click.ClickException(f"{home} cannot be created: {error.strerror}; choose another --directory") from None
    file = home / "windlass.yaml"
    file.write_text(CONFIG, encoding="utf-8")
    sys.exit(asyncio.run(_Demo(file, verbose).run()))


@dataclass
class _Demo:
    """One run of the demo."""

    file: Path
    verbose: bool = False
    scene: Scene = field(default_factory=Scene)
    killed: str = ""
    finished: bool = False
    interrupted: bool = False

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
                on_pass=self._passed,
            )
            playing = asyncio.create_task(self._play(service))
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, self._interrupt, playing)
            try:
                with nullcontext() if self.plain else live(self.scene):
                    running = asyncio.create_task(service.run())
                    self._print(f"the controller runs; nothing is bought yet ({_beside(self.file)})")
                    await asyncio.wait({playing, running}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
                    playing.cancel()
                    service.stop()
                    await running
                    with suppress(asyncio.CancelledError):
                        await playing
            finally:
                left = await self._clean_up(components, service)
            controller_state = recovered(journal)
        if self.interrupted:
            click.echo("stopped; nothing is left running" if not left else f"stopped; {_left(left)}")
            return 130 if not left else 1
        return self._report(controller_state, len(left))

    def _interrupt(self, playing: asyncio.Task[None]) -> None:
        self.interrupted = True
        playing.cancel()

    # -- the script ---------------------------------------------------------------------------------------------------

    async def _play(self, service: Service) -> None:
        sleeper = [sys.executable, "-c", f"import time; time.sleep({SECONDS})"]
        self.queue.submit(JOB, sleeper, (("cpu", 1000),), TASKS, 0)
        self._print(f"a job arrives: {JOB}, {TASKS} tasks of {SECONDS:g} s, one cpu each")
        await self._until(service, lambda: self._busy(service) >= 3)
        self._kill_one(service)
        await self._until(service, lambda: self.scene.done == TASKS)
        self._print("all tasks are done; a machine without work is released after 3 s")
        await self._until(service, lambda: not service.controller.controller_state.fleet.slices)
        self.finished = True

    async def _until(self, service: Service, happened: Callable[[], bool]) -> None:
        """Poll until a condition holds."""
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
        """Kill a machine that runs tasks with SIGKILL, as a power cut would."""
        records = sorted(service.controller.controller_state.fleet.slices.values(), key=lambda one: one.id)
        victim = next(one for one in records if any(node.tasks for node in one.nodes))
        self.killed = victim.id
        home = Path(self.config.providers["here"].settings["directory"]) / victim.id / "host-0"
        command = LocalHost.read(home).command
        tasks = sum(node.tasks for node in victim.nodes)
        if command is not None and command.signal(signal.SIGKILL):
            self._print(f"machine {victim.id} is killed (kill -9) while it runs {plural(tasks, 'task')}")

    async def _clean_up(self, components: Components, service: Service) -> list[str]:
        """End every remaining machine, and return those that could not be ended."""
        provider = components.providers["here"]
        epoch = service.controller.leading.epoch
        there = await provider.list()
        await asyncio.gather(*(provider.terminate(one.slice_id, epoch) for one in there), return_exceptions=True)
        left = [one.slice_id for one in await provider.list()] if there else []
        await components.close()
        self.queue.close()
        return left

    # -- output ------------------------------------------------------------------------------------------------------

    def _passed(self, done: Pass) -> None:
        shown = done.entries if self.verbose else [one for one in done.entries if _is_outcome(one)]
        for line in lines(shown):
            if line.kind != "settings":
                self._show(line)

    def _print(self, text: str) -> None:
        self._show(EventLine(time.time(), "demo", "", text, ()))

    def _show(self, line: EventLine) -> None:
        self.scene.lines.append(line)
        if self.plain:
            click.echo(f"{'> ' if line.kind == 'demo' else '  '}{shown(line)}")

    def _report(self, controller_state: ControllerState, left: int) -> int:
        for text in summary(self._facts(controller_state, left)):
            click.echo(text)
        return 0 if self.finished and not left else 1

    def _facts(self, controller_state: ControllerState, left: int) -> Iterator[tuple[str, str]]:
        starts = [line for line in self.scene.lines if line.kind == "launch"]
        bought = sum(len(line.subjects) for line in starts)
        yield "", "What happened" if self.finished else f"The demo did not finish within {PATIENCE:g} s"
        yield "tasks", f"{self.scene.done} of {TASKS} done"
        killed = 1 if self.killed else 0
        yield "machines", f"{bought} bought, {killed} killed, {bought - killed - left} released, {left} left running"
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
        program = program_name()
        yield "next", f"{program} events -c {_beside(self.file)}"
        yield " ", f"{program} why {self.killed or 'worker'} -c {_beside(self.file)}"
        yield " ", f"{program} init"


def _is_outcome(entry: Entry) -> bool:
    """Return whether an entry is shown without ``-v``."""
    if entry.kind != "slice":
        return entry.kind not in ("waiting", "settings")
    record: Any = entry.data.get(IS)
    return bool(record) and State(record["state"]) not in STEPS


def _left(ids: list[str]) -> str:
    return f"{plural(len(ids), 'machine')} could not be ended: {', '.join(ids)}"


def _beside(file: Path) -> str:
    with suppress(ValueError):
        return str(file.relative_to(Path.cwd()))
    return str(file)
