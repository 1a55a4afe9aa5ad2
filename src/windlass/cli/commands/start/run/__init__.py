"""``windlass run`` runs the controller until Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from windlass.cli.connection.config_option import load
from windlass.cli.connection.serve import LISTEN, announce, served, server_config
from windlass.config import Config, ConfigError, read_config
from windlass.config.build import Components, build_components
from windlass.config.server import ServerConfig
from windlass.control.controller import IncompatibleConfig, Overtaken, Pass
from windlass.control.journal_thread import JournalThread
from windlass.control.leadership import NotLeading
from windlass.control.report.events import AssignmentLog, EventLine, lines
from windlass.control.service import Service
from windlass.core.model.lifecycle import COUNTED, ENDING, State
from windlass.core.model.reasons import plural
from windlass.journal import JournalError, open_journal
from windlass.workloads.protocol import ElectedWorkload, ProviderNamingWorkload

from .stop_signals import stop_signals

if TYPE_CHECKING:
    from windlass.server.listener import HttpServer

FILE_EVERY = 1.0
"""Seconds between two checks of the configuration file."""
LEFT = COUNTED - {State.QUEUED}
"""States of a slice that may have machines: one that is queued was not requested yet."""
REPEATED = 60.0
"""Seconds in which equal lines are counted instead of printed again."""


@click.command(
    "run", epilog="Exit status: 0 stopped by Ctrl-C or SIGTERM, 1 the configuration or the journal is wrong."
)
@click.argument("file", metavar="[CONFIG]", default="windlass.yaml", envvar="WINDLASS_CONFIG")
@click.option("--json", "as_json", is_flag=True, help="Write the log as JSON, one object per line.")
@click.option("--serve", is_flag=True, help="Serve the dashboard and the API as well, at server.listen.")
@LISTEN
@click.option("--shadow", is_flag=True, help="Observe, plan and record, but do not act: windlass shadow report.")
def command(file: str, as_json: bool, serve: bool, listen: str | None, shadow: bool) -> None:
    """Run the controller of the cluster in CONFIG (windlass.yaml, or WINDLASS_CONFIG).

    It watches the workload and the providers, plans, records each decision with its reason, and carries it out. One
    line per decision goes to standard error. After SIGHUP or a change of the file it reloads CONFIG; if the new
    file has a mistake, the old settings stay in use. Ctrl-C or SIGTERM stops it: machines and work keep running, and
    the next run takes them over; windlass down ends them. A second controller on the same journal stands by.

    \b
    While it runs, in another terminal:
      windlass status
      windlass why JOB
      windlass events --follow
    """
    config = load(file)
    try:
        if shadow or config.shadow:
            from .shadow import run_shadow

            sys.exit(asyncio.run(run_shadow(file, config, RunLog(as_json))))
        components = build_components(config)
        server = server_config(config, listen) if serve or listen is not None or config.server.enabled else None
        sys.exit(asyncio.run(_run(file, config, components, RunLog(as_json), server)))
    except ConfigError as error:
        for mistake in error.mistakes:
            click.echo(mistake, err=True)
    except (JournalError, IncompatibleConfig, NotLeading, Overtaken) as error:
        click.echo(f"{file}: {error}", err=True)
    sys.exit(1)


def steady() -> float:
    """Return the seconds of a clock that cannot be set and that runs while the computer sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def clock_name() -> str:
    """Return the id of that clock. It is the same for all programs until the next boot."""
    try:
        return f"boot {Path('/proc/sys/kernel/random/boot_id').read_text(encoding='ascii').strip()}"
    except OSError:
        return ""


def _what_is_left(service: Service, led: bool) -> str:
    """Tell what a controller leaves at its stop. ``led``: whether it led then; otherwise it does not know."""
    if not led:
        return "it did not lead, so machines and work are not affected"
    states = [one.state for one in service.controller.controller_state.fleet.slices.values() if one.state in LEFT]
    ending = sum(state in ENDING for state in states)
    running = len(states) - ending
    parts = []
    if running:
        verb, them = ("keeps", "it") if running == 1 else ("keep", "them")
        parts.append(f"{plural(running, 'machine')} {verb} running, with the work on {them}")
    if ending:
        parts.append(f"{plural(ending, 'machine')} {'is' if ending == 1 else 'are'} not confirmed as ended yet")
    return "; ".join(parts) or "no machine is left"


async def _run(file: str, config: Config, components: Components, log: RunLog, server: ServerConfig | None) -> int:
    with ExitStack() as stack:
        journal = stack.enter_context(open_journal(config.journal.location))
        http: HttpServer | None = None
        running: _Running | None = None
        if server is not None:
            settings = lambda: (running.components.config if running else config).settings  # noqa: E731
            http = stack.enter_context(served(config, server, settings, file, journal))
            http.measure_sources(components.providers, components.workload)
        service = Service(
            config.settings,
            components.providers,
            components.workload,
            journal,
            leadership=config.leader,
            retention=config.journal.retention,
            now=time.time,
            steady=steady,
            clock_name=clock_name(),
            offload=JournalThread(),
            on_pass=log.passed,
            on_message=log.message,
            on_alarm=partial(log.message, alarm=True),
        )
        running = _Running(Path(file), service, components, log)
        stopped, led = asyncio.Event(), False

        def stop() -> None:
            nonlocal led
            led = led or service.leading
            stopped.set()
            service.stop()

        def cut_short() -> None:
            left = _what_is_left(service, led or service.leading)
            log.message(f"stopped before every call had ended; {left}")

        stack.enter_context(stop_signals(stop, cut_short, on_hangup=running.read_again.set))
        if http is not None:
            http.measure(service.controller)
            http.start()
            stack.callback(http.stop)
            announce(http.url, log.as_json)
        watching = asyncio.create_task(running.watch())
        elected = components.workload if isinstance(components.workload, ElectedWorkload) else None
        election = elected.election if elected is not None else None
        try:
            if elected is None or election is None:
                await service.run()
            else:
                await _run_elected(service, elected, stopped, log)
        finally:
            watching.cancel()
            await running.components.close()
            log.close()
    if election is not None and not stopped.is_set():
        log.message("stopped: the lease was lost; another controller may lead", alarm=True)
        return 1
    log.message(f"stopped; {_what_is_left(service, led)}")
    return 0


async def _run_elected(service: Service, workload: ElectedWorkload, stopped: asyncio.Event, log: RunLog) -> None:
    """Stand by until this controller holds the workload's own lease, and run while it does."""
    election = workload.election
    if workload.health is not None:
        await workload.health.start()
    said: set[str] = set()

    def say(text: str) -> None:
        if text not in said:
            said.add(text)
            log.message(text)

    acquiring = asyncio.create_task(election.acquire(say))
    waiting = asyncio.create_task(stopped.wait())
    await asyncio.wait({acquiring, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if stopped.is_set():
        acquiring.cancel()
        return
    await acquiring
    losing = asyncio.create_task(election.lost.wait())
    losing.add_done_callback(lambda done: None if done.cancelled() else service.stop())
    try:
        await service.run()
    finally:
        losing.cancel()
        await election.release()


class _Running:
    """A service and its configuration file."""

    def __init__(self, file: Path, service: Service, components: Components, log: RunLog) -> None:
        self.file, self.service, self.components, self.log = file, service, components, log
        self.read_again = asyncio.Event()
        self._stamp = self._file_stamp()

    def _file_stamp(self) -> tuple[int, int] | None:
        with suppress(OSError):
            stat = self.file.stat()
            return stat.st_mtime_ns, stat.st_size
        return None

    async def watch(self) -> None:
        """Reload the file when it changes, or on request."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(FILE_EVERY):
                    await self.read_again.wait()
            stamp = self._file_stamp()
            if self.read_again.is_set() or (stamp is not None and stamp != self._stamp):
                self.read_again.clear()
                self._stamp = stamp
                await self._reload()

    async def _reload(self) -> None:
        try:
            config = read_config(self.file.read_bytes(), path=self.file)
            _check_fixed(self.components, config)
            components = build_components(config, like=self.components)
            await self.service.reconfigure(config.settings, components.providers, components.workload)
        except ConfigError as error:
            self.log.message(
                f"{self.file} is refused, the old settings stay in use: " + "; ".join(error.mistakes), alarm=True
            )
        except (IncompatibleConfig, OSError) as error:
            self.log.message(f"{self.file} is refused, the old settings stay in use: {error}", alarm=True)
        else:
            before, self.components = self.components, components
            if isinstance(components.workload, ProviderNamingWorkload):
                components.workload.use_providers(components.providers)
            await before.close(but=components)
            self.log.message(f"{self.file} is reloaded")


def _check_fixed(running: Components, after: Config) -> None:
    """Raise ``ConfigError`` with the changes that need a restart."""
    before, wrong = running.config, []
    if before.journal != after.journal:
        wrong.append("journal: cannot change while the controller runs; restart it")
    if before.leader.lease != after.leader.lease:
        wrong.append("leader: cannot change while the controller runs; restart it")
    workload = running.workload
    elected = isinstance(workload, ElectedWorkload) and workload.election is not None
    if elected and before.workload != after.workload:
        wrong.append("workload: cannot change while the controller holds its lease; restart it")
    if wrong:
        raise ConfigError(wrong)


class RunLog:
    """Writes one line per decision to standard error; equal lines within a minute are counted."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self._counts: dict[str, tuple[float, int]] = {}
        self._assignments = AssignmentLog()

    def passed(self, done: Pass) -> None:
        for line in (*lines(done.entries), *self._assignments.lines(done.snapshot, done.plan)):
            self.write(line)
        self._tell_repeats(time.time())

    def message(self, text: str, *, alarm: bool = False) -> None:
        self.write(EventLine(time.time(), "controller", "", text, (), alarm))

    def close(self) -> None:
        self._tell_repeats(float("inf"))

    def write(self, line: EventLine) -> None:
        first, count = self._counts.get(line.text, (line.at, 0))
        self._counts[line.text] = (first, count + 1)
        if count == 0:
            self._print(line)

    def _tell_repeats(self, now: float) -> None:
        over = [text for text, (first, _) in self._counts.items() if now - first >= REPEATED]
        for text in over:
            count = self._counts.pop(text)[1]
            if count > 1:
                self._print(EventLine(time.time(), "repeated", "", f"{_times(count - 1)} more in a minute: {text}", ()))

    def _print(self, line: EventLine) -> None:
        text = json.dumps(line.to_dict()) if self.as_json else shown(line)
        with suppress(OSError):  # a full disk, a terminal that was closed, a broken pipe
            click.echo(text, err=True)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def shown(line: EventLine) -> str:
    """Format a line: the time, an exclamation mark for an alarm, the text, and the reason code."""
    when = time.strftime("%H:%M:%S", time.localtime(line.at))
    code = f" [{line.code}]" if line.code else ""
    return f"{when} {'!' if line.alarm else ' '} {line.text}{code}"
