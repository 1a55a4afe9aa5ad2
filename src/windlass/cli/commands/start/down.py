"""``windlass down`` drains every machine of a cluster, ends it, and checks that none is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import click

from windlass.cli.connection.config_option import configured
from windlass.cli.connection.observe_once import seen
from windlass.cli.connection.open_journal import opened
from windlass.cli.connection.send_order import operator
from windlass.cli.ui.output import write
from windlass.cli.ui.pages import next_steps, plain
from windlass.config import Config, ConfigError
from windlass.config.build import build_components
from windlass.control.reconcile.operator_orders import Order, What, give
from windlass.control.record.controller_state import ControllerState
from windlass.control.report.current import read_state
from windlass.control.report.leader import leader_of
from windlass.control.service import Service
from windlass.control.state.fleet import EVERY_GROUP
from windlass.core.model.lifecycle import ENDED
from windlass.core.model.reasons import plural
from windlass.journal import Journal, JournalError

from .run import clock_name, steady

SCHEMA = "windlass.down/v1"
EVERY = 0.2
"""Seconds between two checks of the remaining machines."""


@click.command(
    "down", epilog="Exit status: 0 no machine is left, 1 one is left or a provider does not answer, 130 interrupted."
)
@configured
@click.option("--json", "as_json", is_flag=True, help=f"The result as JSON, for programs: {SCHEMA}.")
def command(config: Config, as_json: bool) -> None:
    """Drain and end every machine of the cluster, and check that none is left.

    From its start on, nothing is bought. It waits for running work without a time limit; windlass cancel ends a job at
    once. Waiting jobs stay in the queue. If a controller runs, it drains the machines, and buys nothing until windlass
    resume. Otherwise this command drains them itself.

    \b
    Example:
      windlass down
    """
    with opened(config) as journal:
        down = _Down(config, journal, quiet=as_json)
        with suppress(KeyboardInterrupt):
            down.run()
        outcome = down.outcome()
    if as_json:
        write(json.dumps(outcome.to_dict(), indent=2) + "\n")
    else:
        write(plain([outcome.text, next_steps(*outcome.steps)]))
    sys.exit(130 if not down.finished else 0 if outcome.nothing_left else 1)


def _has_died(holder: str | None) -> bool:
    """Whether a controller that still has the lease was a process of this machine that is gone: it was killed."""
    host, _, pid = (holder or "").rpartition(":")
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


@dataclass(frozen=True, slots=True)
class _Outcome:
    nothing_left: bool
    machines: int
    """The number of machines at the start."""
    left: dict[str, list[str] | None]
    """By provider: the slices that it still lists; None if it did not answer."""
    controller: bool
    text: str
    steps: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "nothing_left": self.nothing_left,
            "slices": self.machines,
            "left": self.left,
            "controller_runs": self.controller,
            "outcome": self.text,
        }


class _Down:
    """Freezes every group, drains every slice, and waits until none is left."""

    def __init__(self, config: Config, journal: Journal, *, quiet: bool) -> None:
        self._config, self._journal, self._quiet = config, journal, quiet
        self._by = operator()
        self._ordered: set[str] = set()
        self._printed = ""
        self._was_frozen = EVERY_GROUP in read_state(journal).fleet.frozen
        self.finished = False

    def run(self) -> None:
        """Wait until the journal has no machine left."""
        self._order("freeze", EVERY_GROUP)
        while (leader := leader_of(self._journal, time.time())).alive and not _has_died(leader.holder):
            if not self._printed:
                self._print("a controller runs and drains the machines now")
            if self._step(read_state(self._journal)):
                self.finished = True
                return
            time.sleep(EVERY)
        try:
            # With the name of a dead controller its lease can be taken over at once.
            asyncio.run(self._serve(leader.holder if leader.alive else None))
        except ConfigError as error:
            raise click.ClickException("\n".join(error.mistakes)) from None
        self.finished = True

    async def _serve(self, holder: str | None) -> None:
        """Run a controller until no machine is left. ``holder`` is the name for the lease."""
        components = build_components(self._config)
        own = f"{self._config.leader.holder}-down-{os.getpid()}"
        leader = replace(self._config.leader, holder=holder or own)
        service = Service(
            self._config.settings,
            components.providers,
            components.workload,
            self._journal,
            leadership=leader,
            retention=self._config.journal.retention,
            now=time.time,
            steady=steady,
            clock_name=clock_name(),
        )
        running = asyncio.create_task(service.run())
        stopped = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        try:
            looked = False
            while not stopped.is_set() and not running.done():
                await asyncio.sleep(EVERY)
                looked = looked or (service.leading and service.controller.controller_state.seq > 0)
                if looked and self._step(service.controller.controller_state):
                    break
        finally:
            service.stop()
            with suppress(JournalError):
                await running
            await components.close()
        if stopped.is_set():
            raise KeyboardInterrupt
        if not self._was_frozen:  # the next controller may buy again
            self._order("resume", EVERY_GROUP)

    def _step(self, controller_state: ControllerState) -> bool:
        """Order new machines to drain, print the progress, and return whether no machine is left."""
        left = [one for one in controller_state.fleet.slices.values() if one.state not in ENDED]
        for record in left:
            if record.id not in self._ordered:
                self._ordered.add(record.id)
                self._order("drain", record.id)
        tasks = sum(node.tasks for record in left for node in record.nodes)
        waits = f"; waiting for {plural(tasks, 'running task')}" if tasks else ""
        if left:
            self._print(f"{plural(len(left), 'machine')} left{waits}")
        return not left and (EVERY_GROUP in controller_state.fleet.frozen)

    def _order(self, what: What, subject: str) -> None:
        give(self._journal, Order(what, subject, self._by), time.time())

    def _print(self, text: str) -> None:
        if text != self._printed and not self._quiet:
            click.echo(text, err=True)
        self._printed = text

    def outcome(self) -> _Outcome:
        """Return the machines that the providers list now."""
        alive = leader_of(self._journal, time.time()).alive
        count = len(self._ordered)
        if not self.finished:
            text = "interrupted: a running controller continues to drain machines; no machine is bought"
            return _Outcome(False, count, {}, alive, text, ("windlass status", "windlass down", "windlass resume"))
        sight = seen(self._config)
        left = {name: None if many is None else sorted(many) for name, many in sight.observation.instances.items()}
        unknown = [name for name, many in left.items() if many is None]
        still = [one for many in left.values() if many for one in many]
        if unknown:
            text = f"cannot check what is left: no answer from {', '.join(unknown)}"
            return _Outcome(False, count, left, alive, text, ("windlass doctor",))
        if still:
            text = f"{plural(len(still), 'machine')} left: {', '.join(still[:8])}"
            return _Outcome(False, count, left, alive, text, ("windlass doctor", f"windlass why {still[0]}"))
        ended = f"{plural(count, 'machine')} ended; " if count else ""
        asked = "the provider lists" if len(left) == 1 else "the providers list"
        text = f"{ended}nothing is left ({asked} no machine of this cluster)"
        if alive:
            return _Outcome(
                True,
                count,
                left,
                alive,
                f"{text}. The controller keeps running, and buys nothing until windlass resume",
                ("windlass resume", "windlass status"),
            )
        return _Outcome(True, count, left, alive, text, ("windlass run", "windlass jobs"))
