"""``windlass top`` shows the cluster live in the terminal."""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import click
from rich.console import Console, RenderableType
from rich.console import Group as Lines
from rich.live import Live
from rich.table import Table
from rich.text import Text

from windlass.cli.connection.config_option import configured
from windlass.cli.connection.open_journal import opened, stop
from windlass.cli.connection.remote import Remote, reachable
from windlass.cli.ui.pages import code, headed, money, span
from windlass.config import Config
from windlass.control.report.current import planned_state, read_state
from windlass.control.report.leader import leader_of
from windlass.control.report.status import Status, spent_since
from windlass.control.report.why import Question
from windlass.core.model.reasons import plural

from .status import group_rows, has_prices, is_priced

EVERY: Final = 1.0
"""Seconds between two refreshes."""
KINDS: Final = {
    "green": {"BUSY", "PLACED"},
    "blue": {"LAUNCHING", "BOOTING", "GANG_FORMING"},
    "yellow": {"AT_MAX", "MAX_NODES", "BUDGET", "FROZEN", "RATE_LIMITED"},
    "red": {"LOST", "PREEMPTED", "UNHEALTHY", "LEAKED", "STOCKOUT", "QUOTA", "BACKOFF"},
    "magenta": {"UNKNOWN_INPUT"},
}
"""The dashboard's colours of reason codes."""
LEAST_NAME, LEAST_LAST = 14, 10
"""Columns that a name and the last column of a table have on a narrow terminal."""
STATES: Final = {"ready": "green", "cordoned": "yellow", "draining": "yellow", "lost": "red"}

_KEY: Final = re.compile(r"\x1b\[[A-D]|[\s\S]")

Document = Mapping[str, Any]
Cells = Sequence[str | Text]


def _remotely(remote: Remote) -> None:
    _watch(lambda: remote.get("/status"), lambda name: remote.get("/why", name=name))


@click.command("top", epilog="Exit status: 0 ended with q or Ctrl-C, 1 there is no terminal or no journal.")
@reachable(_remotely)
@configured
def command(config: Config) -> None:
    """Watch the cluster live: groups, machines and jobs.

    Keys: q quits, j and k select a row, enter explains it.
    """
    with opened(config) as journal:

        def status() -> Document:
            now = time.time()
            leader = leader_of(journal, now)
            planned = planned_state(read_state(journal), config.settings, leader.instant(now))
            return Status(config.settings, leader, planned, now, spent_since(journal), {}).to_dict()

        def why(name: str) -> Document:
            now = time.time()
            leader = leader_of(journal, now)
            planned = planned_state(read_state(journal), config.settings, leader.instant(now))
            return Question(name, None, planned, journal, leader.alive).to_dict()

        _watch(status, why)


def _watch(status: Callable[[], Document], why: Callable[[str], Document]) -> None:
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        stop("windlass top needs a terminal; elsewhere: windlass status, or windlass events --follow")
    chosen, answer = 0, None
    with _keys(), Live(console=Console(), screen=True, auto_refresh=False) as live:
        document, read_at = status(), time.monotonic()
        while True:
            names = [*(one["id"] for one in document["demands"]), *(one["id"] for one in document["slices"])]
            chosen = max(0, min(chosen, len(names) - 1))
            live.update(page(document, names[chosen] if names else None, answer, live.console.size), refresh=True)
            for key in _pressed(max(0.0, read_at + EVERY - time.monotonic())):
                match key:
                    case "q":
                        return
                    case "j" | "\x1b[B":
                        chosen, answer = min(chosen + 1, len(names) - 1), None
                    case "k" | "\x1b[A":
                        chosen, answer = max(chosen - 1, 0), None
                    case "\n" | "\r" if names:
                        answer = why(names[chosen])
                    case "\x1b":
                        answer = None
            if time.monotonic() - read_at >= EVERY:
                document, read_at = status(), time.monotonic()


@contextmanager
def _keys() -> Iterator[None]:
    """Makes the terminal pass on every key at once, and restores it at the end."""
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin.fileno())
        yield
    except KeyboardInterrupt:
        return
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _pressed(seconds: float) -> list[str]:
    """Waits for keys and returns all that were pressed; an arrow key is one of them."""
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return _KEY.findall(os.read(sys.stdin.fileno(), 1024).decode(errors="replace")) if ready else []


def page(status: Document, chosen: str | None, answer: Document | None, size: tuple[int, int]) -> RenderableType:
    """Render the screen: a headline, groups, waiting jobs, machines, and the explanation of the chosen row.

    ``size`` is its width and height. Rows that do not fit are left out, except the chosen one.
    """
    width, height = size
    head, answers = Text(status["headline"], style="bold"), [] if answer is None else list(_why(answer))
    used = sum(len(one.wrap(Console(), width)) for one in (head, *answers)) + 4 + bool(answers)
    rows = list(group_rows(status))
    counts = (len(rows), len(status["demands"]), len(status["slices"]))
    groups, jobs, machines = _shares(max(9, height - used), counts)
    parts: list[RenderableType] = [
        head,
        Text(_figures(status), style="dim"),
        Text(),
        _groups(rows[:groups], width),
    ]
    if status["demands"]:
        parts += [Text(), _jobs(_window(status["demands"], chosen, jobs), chosen, width)]
    if status["slices"]:
        parts += [Text(), _machines(_window(status["slices"], chosen, machines), chosen, status["as_of"], width)]
    if answers:
        parts += [Text(), *answers]
    parts.append(Text("\nq end   j k choose   enter why", style="dim"))
    return Lines(*parts)


def _shares(lines: int, rows: tuple[int, ...]) -> list[int]:
    """Share ``lines`` among the tables. Each table needs two more lines, for its head and the gap."""
    free, shares = lines - 2 * sum(count > 0 for count in rows), [min(1, count) for count in rows]
    free -= sum(shares)
    while free > 0 and shares != list(rows):
        for place, count in enumerate(rows):
            if shares[place] < count and free > 0:
                shares[place], free = shares[place] + 1, free - 1
    return shares


def _window(rows: Sequence[Document], chosen: str | None, most: int) -> Sequence[Document]:
    """Return ``most`` rows that include the chosen one."""
    place = next((index for index, one in enumerate(rows) if one["id"] == chosen), 0)
    first = max(0, min(place - most // 2, len(rows) - most))
    return rows[first : first + most]


def _table(columns: Sequence[str], rows: Sequence[Cells], width: int) -> Table:
    """Make a table with one line per row. A name that leaves no room is cut in the middle, and the last column at its
    end; numbers are never cut.
    """
    table = headed(*columns, cut=True)
    table.expand, last = True, table.columns[-1]
    last.no_wrap, last.overflow, last.ratio = True, "ellipsis", 1
    longest = [
        max(len(column.rstrip("*>")), *(len(row[place]) for row in rows), 0) for place, column in enumerate(columns)
    ]
    name = next(place for place, column in enumerate(columns) if column)
    room = width - sum(longest[:name] + longest[name + 1 : -1]) - min(longest[-1], LEAST_LAST) - 2 * (len(columns) - 1)
    for row in rows:
        table.add_row(*row[:name], _cut(str(row[name]), max(LEAST_NAME, room)), *row[name + 1 :])
    return table


def _cut(name: str, most: int) -> str:
    """Cut a name in the middle: machines of a group differ only at the end."""
    tail = most // 3
    return name if len(name) <= most else f"{name[: most - tail - 1]}…{name[-tail:]}"


def _groups(rows: Sequence[Document], width: int) -> Table:
    lines: list[Cells] = []
    for one in rows:
        more = Text("available", style="green") if one["next"]["code"] is None else _code(one["next"]["code"])
        if "groups" in one:
            more.append(f"  {plural(len(one['groups']), 'offer')}", style="dim")
        counts = (str(one[key]) for key in ("ready", "coming", "leaving"))
        cost = money(one["hourly_cost"]) if is_priced(one) else "-"
        lines.append((one["name"], *counts, str(one["max"] or "-"), cost, more))
    return _table(("group", "ready>", "coming>", "leaving>", "max>", "$/h>", "one more"), lines, width)


def _jobs(rows: Sequence[Document], chosen: str | None, width: int) -> Table:
    lines: list[Cells] = []
    for one in rows:
        part = one["parts"][0] if one["parts"] else {"code": None, "why": ""}
        mark = ">" if one["id"] == chosen else " "
        lines.append((mark, one["id"], str(one["tasks"]), _code(part["code"]), str(part["why"])))
    return _table(("", "job", "tasks>", "code", "why"), lines, width)


def _machines(rows: Sequence[Document], chosen: str | None, now: float, width: int) -> Table:
    lines = [
        (
            ">" if one["id"] == chosen else " ",
            one["id"],
            Text(one["state"], style=STATES.get(one["state"], "blue")),
            span(now - one["since"]),
            str(one["tasks"]),
            f"{one['use']:.0%}",
            _code(one["code"]),
            one["why"],
        )
        for one in rows
    ]
    return _table(("", "machine", "state", "for>", "tasks>", "use>", "code", "why"), lines, width)


def _figures(status: Document) -> str:
    summary, ceiling = status["summary"], status["summary"]["ceiling"]
    limit = "" if ceiling is None else f" of {money(ceiling)}/h"
    counts = f"{summary['slices']} machines: {summary['busy']} busy, {summary['idle']} idle, {summary['coming']} coming"
    cost = f" · {money(status['hourly_cost']['now'])}/h{limit}" if has_prices(status) else ""
    return f"{summary['waiting_tasks']} tasks wait · {counts}{cost}"


def _why(answer: Document) -> Iterator[Text]:
    yield Text(f"Why {answer['name']}", style="bold")
    if (one := answer["slice"]) is not None:
        yield Text.assemble(_code(one["now"]["code"]), f" {one['now']['why']}")
        yield Text.assemble("started for ", _code(one["started"]["code"]), f" {one['started']['why']}")
    if (demand := answer["demand"]) is not None:
        for part in demand["parts"]:
            yield Text.assemble(_code(part["code"]), f" {part['why']}")
        for way in demand["unblocks"][:3]:
            yield Text(f"would help: {way['change']}  +{money(way['hourly_cost'])}/h")


def _code(name: str | None) -> Text:
    style = next((style for style, codes in KINDS.items() if name in codes), "")
    return Text(name or "", style=style) if style else code(name)
