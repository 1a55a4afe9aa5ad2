"""This module renders the live view of the demo: machines, tasks, money, and the last events with their reasons."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from windlass.control.record.controller_state import ControllerState
from windlass.control.record.costs import charged
from windlass.control.report.events import EventLine
from windlass.core.model.lifecycle import COSTLY, State
from windlass.core.model.reasons import plural

LINES = 12
"""The number of last events that are shown."""
COLOURS = {State.READY: "green", State.LOST: "bold red", State.TERMINATING: "red"}


@dataclass
class Scene:
    """The facts that the view shows."""

    waiting: int = 0
    running: int = 0
    done: int = 0
    controller_state: ControllerState = field(default_factory=ControllerState)
    now: float = 0
    lines: list[EventLine] = field(default_factory=list)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        fleet = self.controller_state.fleet
        cost = sum(record.price for record in fleet.slices.values() if record.state in COSTLY) / 10**9
        account = charged(self.controller_state.account, fleet, self.controller_state.stay, self.now).get("worker")
        bill = account.dollars() if account else 0.0
        total = max(1, self.waiting + self.running + self.done)
        width = options.max_width - 2  # a terminal echoes ^C behind the last line: in a full line that starts a new one
        size = max(10, min(40, width - len("windlass demo   24 of 24 tasks done, 24 running, 24 waiting")))
        bar = "█" * (size * self.done // total) + "▒" * (size * self.running // total)
        yield Text.assemble(
            ("windlass demo  ", "bold"),
            f"{bar:░<{size}} {self.done} of {total} tasks done, {self.running} running, {self.waiting} waiting",
        )
        machines_there = sum(record.state in COSTLY for record in fleet.slices.values())
        yield Text(f"{plural(machines_there, 'machine')}, ${cost:.2f}/h, ${bill:.4f} so far")
        machines = Table.grid(padding=(0, 2))
        for name in sorted(fleet.slices):
            record = fleet.slices[name]
            tasks = sum(node.tasks for node in record.nodes)
            machines.add_row(
                "  " + name,
                Text(str(record.state), style=COLOURS.get(record.state, "yellow")),
                "■" * tasks or "·",
                Text(record.reason.why, style="dim", overflow="ellipsis", no_wrap=True),
            )
        for _ in range(4 - len(fleet.slices)):
            machines.add_row("  ·", "", "", "")
        yield machines
        for line in self.lines[-LINES:]:
            when = time.strftime("%H:%M:%S", time.localtime(line.at))
            style = "bold cyan" if line.kind == "demo" else "bold red" if line.alarm else ""
            code = f" [{line.code}]" if line.code else ""
            text = Text(f"{when} {line.text}{code}", style=style)
            text.truncate(width, overflow="ellipsis")
            yield text


def live(scene: Scene) -> Any:
    """Draw the scene ten times a second."""
    return Live(scene, refresh_per_second=10, transient=False, console=Console())


def summary(facts: Iterable[tuple[str, str]]) -> Iterable[str]:
    """Format facts as lines with their names at the left. A fact without a name is a heading.

    Commands are never wrapped, because users copy them.
    """
    width = min(120, shutil.get_terminal_size((120, 24)).columns)
    for name, text in facts:
        if not name:
            yield ""
            yield text
            continue
        command = name in ("next", " ")
        first, *more = [text] if command else wrap(text, width - 12, break_long_words=False, break_on_hyphens=False)
        yield f"  {name:<9} {first}"
        yield from (f"{'':<12}{one}" for one in more)
