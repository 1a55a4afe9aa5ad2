"""This module renders pages: sections, tables and next steps, in colour on a terminal and as plain text elsewhere."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.console import Group as Lines
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from windlass.core.model.quantities import NANO, format_money
from windlass.core.model.reasons import seconds

LEAST_FOLDED: Final = 16
"""The least width of a column that may wrap."""
PIPED_WIDTH: Final = 100
"""The width if the output is not a terminal."""


_UNIT: Final = re.compile(r"(?<=\d) (?=(?:ms|s|min|h|[KMGT]iB)\b)")
_NO_BREAK: Final = "\ue000"
"""Replaces the space between a number and its unit while lines are wrapped. Rich breaks lines at every kind of blank,
the no-break space among them."""


class _Page(Console):
    """A console that never wraps a line between a number and its unit."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        return super().render(_unbroken(renderable) if isinstance(renderable, Text) else renderable, options)

    def render_str(self, text: str, **options: Any) -> Text:
        return _unbroken(super().render_str(text, **options))


def _unbroken(text: Text) -> Text:
    if _UNIT.search(text.plain) is None:
        return text
    found = text.copy()
    found.plain = _UNIT.sub(_NO_BREAK, text.plain)
    return found


def printed(parts: Iterable[RenderableType]) -> str:
    """Render the parts for standard output: in colour and as wide as the terminal, if it is one."""
    console = _Page(highlight=False, emoji=False, markup=False)
    if not console.is_terminal:
        return plain(parts)
    with console.capture() as captured:
        console.print(*parts, sep="\n")
    return captured.get().replace(_NO_BREAK, " ")


def plain(parts: Iterable[RenderableType]) -> str:
    """Render the parts without colour, with a fixed width, without spaces at the ends of lines."""
    text = StringIO()
    console = _Page(file=text, highlight=False, emoji=False, markup=False, width=PIPED_WIDTH, color_system=None)
    console.print(*parts, sep="\n")
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().replace(_NO_BREAK, " ").splitlines())


def section(title: str | Text, *content: RenderableType) -> Lines:
    """Return a title with indented content."""
    return Lines(Text(), Text(title, style="bold") if isinstance(title, str) else title, indented(*content))


def indented(*content: RenderableType) -> Padding:
    return Padding(Lines(*content), (0, 0, 0, 2), expand=False)


def grid(*columns: str) -> Table:
    """Return a table without a head; a ``-`` column is not wrapped, any other may be.

    Where it is too wide for the terminal, the first cell of each row gets a line of its own.
    """
    table = _GridTable.grid(padding=(0, 2), expand=False)
    for column in columns:
        table.add_column(no_wrap=column == "-", overflow="fold")
    return table


class _GridTable(Table):
    """A table without a head that cuts nothing off in a narrow terminal."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        first, *others = self.columns
        if not others or _least_width(self, console, options) <= options.max_width:
            yield from super().__rich_console__(console, options)
            return
        for name, *cells in zip(first.cells, *(column.cells for column in others), strict=True):
            yield name
            values = grid(*("-" if column.no_wrap else "fold" for column in others))
            values.add_row(*cells)
            yield Padding(values, (0, 0, 0, 2), expand=False)


def _least_width(table: Table, console: Console, options: ConsoleOptions) -> int:
    """Return the columns of a terminal that a table needs to cut nothing off."""
    width = 2 * (len(table.columns) - 1)
    for column in table.columns:
        cells = [column.header, *column.cells]
        natural = max(Measurement.get(console, options.update(max_width=10_000), cell).maximum for cell in cells)
        width += natural if column.no_wrap else min(natural, LEAST_FOLDED)
    return width


class _HeadedTable(Table):
    """A table that shows each row as lines of names and values where it would be cut off: in a narrow terminal."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if _least_width(self, console, options) <= options.max_width:
            yield from super().__rich_console__(console, options)
        else:
            yield from self._rows_as_lines()

    def _rows_as_lines(self) -> Iterator[RenderableType]:
        first, *others = self.columns
        for name, *cells in zip(first.cells, *(column.cells for column in others), strict=True):
            yield name
            values = grid("-", "fold")
            for column, cell in zip(others, cells, strict=True):
                if str(cell):
                    values.add_row(Text(str(column.header), style="dim"), cell)
            yield Padding(values, (0, 0, 0, 2), expand=False)


def headed(*columns: str, cut: bool = False) -> Table:
    """Return a table with a head; columns that end in ``>`` are right-aligned, ``*`` marks one that may wrap.

    Where it is too wide for the terminal, each row becomes several lines; with ``cut`` its columns are cut off instead.
    """
    kind = Table if cut else _HeadedTable
    table = kind(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False, header_style="dim")
    for column in columns:
        name = column.rstrip("*>")
        right, fold = column.endswith(">"), column.endswith("*")
        table.add_column(name, justify="right" if right else "left", no_wrap=not fold, overflow="fold")
    return table


def coloured(text: object, style: str) -> Text:
    return Text(str(text), style=style)


def code(name: object) -> Text:
    """Format a reason code."""
    return Text("" if name is None else str(name), style="cyan")


def program_name() -> str:
    """Return how to call this program where its output is read: ``windlass``, or the path by which it was called where
    the shell does not find it by name.
    """
    called = Path(sys.argv[0])
    if called.name != "windlass":
        return "windlass"
    found = shutil.which("windlass")
    if found is not None and Path(found).absolute() == called.absolute():
        return "windlass"
    with suppress(ValueError):
        return str(called.absolute().relative_to(Path.cwd()))
    return str(called.absolute())


def next_steps(*commands: str) -> Text:
    """Render one to three useful next commands, for the same configuration."""
    config, program = config_words(), program_name()
    first, *others = [f"{command.replace('windlass', program, 1)}{config}" for command in commands]
    lines = [f"\nnext: {first}", *(f"      {one}" for one in others)]
    return Text("\n".join(lines), style="dim")


def config_words() -> str:
    """Return ``-c FILE`` if it was given. A file from the environment need not be repeated."""
    context = click.get_current_context(silent=True)
    if context is None or context.get_parameter_source("config_file") != ParameterSource.COMMANDLINE:
        return ""
    return f" -c {context.params['config_file']}"


def money(amount: float) -> str:
    """Format the dollars of a document."""
    return format_money(round(amount * NANO))


def run_command() -> str:
    """Return the command that starts a controller for this configuration."""
    context = click.get_current_context(silent=True)
    given = config_words()
    return f"{program_name()} run" + (f" {context.params['config_file']}" if context is not None and given else "")


# -- times ---------------------------------------------------------------------------------------------------------


def clock(at: float, now: float) -> str:
    """Format an instant: the time of day, and the day unless it is today."""
    there, here = time.localtime(at), time.localtime(now)
    form = "%H:%M:%S" if there[:3] == here[:3] else "%Y-%m-%d %H:%M:%S"
    return time.strftime(form, there)


def span(length: float) -> str:
    """Format a duration as a whole, non-negative number: ``12 s``, ``6 min``."""
    return seconds(max(0, round(length)))
