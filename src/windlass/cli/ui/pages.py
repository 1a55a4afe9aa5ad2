"""This module renders pages: sections, tables and next steps, in colour on a terminal and as plain text elsewhere."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource
from rich.console import Console, ConsoleOptions, RenderableType
from rich.console import Group as Lines
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from windlass.core.model.quantities import NANO, format_money
from windlass.core.model.reasons import seconds

PIPED_WIDTH: Final = 100
"""Columns where there is no terminal to ask."""


_UNIT: Final = re.compile(r"(?<=\d) (?=(?:ms|s|min|h|[KMGT]iB)\b)")
_NO_BREAK: Final = "\ue000"
"""Stands for the blank between a number and its unit while lines are broken. Rich breaks lines at every kind of blank,
the no-break space among them."""


class _Page(Console):
    """A console that breaks no line between a number and its unit."""

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
    """The parts as text for standard output: in colour and as wide as the terminal, if it is one."""
    console = _Page(highlight=False, emoji=False, markup=False)
    if not console.is_terminal:
        return plain(parts)
    with console.capture() as captured:
        console.print(*parts, sep="\n")
    return captured.get().replace(_NO_BREAK, " ")


def plain(parts: Iterable[RenderableType]) -> str:
    """The same without colour, of a fixed width, without blanks at the ends of lines."""
    text = StringIO()
    console = _Page(file=text, highlight=False, emoji=False, markup=False, width=PIPED_WIDTH, color_system=None)
    console.print(*parts, sep="\n")
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().replace(_NO_BREAK, " ").splitlines())


def section(title: str | Text, *content: RenderableType) -> Lines:
    """A title, and what belongs to it, a little to the right."""
    return Lines(Text(), Text(title, style="bold") if isinstance(title, str) else title, indented(*content))


def indented(*content: RenderableType) -> Padding:
    return Padding(Lines(*content), (0, 0, 0, 2), expand=False)


def grid(*columns: str) -> Table:
    """A table without a head; ``-`` is a column that is not broken, any other may be folded."""
    table = Table.grid(padding=(0, 2), expand=False)
    for column in columns:
        table.add_column(no_wrap=column == "-", overflow="fold")
    return table


def headed(*columns: str) -> Table:
    """A table with a head; columns that end in ``>`` are right-aligned, ``*`` marks one that may wrap."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False, header_style="dim")
    for column in columns:
        name = column.rstrip("*>")
        right, fold = column.endswith(">"), column.endswith("*")
        table.add_column(name, justify="right" if right else "left", no_wrap=not fold, overflow="fold")
    return table


def coloured(text: object, style: str) -> Text:
    return Text(str(text), style=style)


def code(name: object) -> Text:
    """A reason code, as it can be looked up."""
    return Text("" if name is None else str(name), style="cyan")


def program_name() -> str:
    """How to call this program where its output is read: ``windlass``, or the path by which it was called where the
    shell does not find it by name."""
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
    """What is useful now: one to three commands, for the same configuration."""
    config, program = config_words(), program_name()
    first, *others = [f"{command.replace('windlass', program, 1)}{config}" for command in commands]
    lines = [f"\nnext: {first}", *(f"      {one}" for one in others)]
    return Text("\n".join(lines), style="dim")


def config_words() -> str:
    """``-c FILE`` as it was given; one from the environment is there for the next command, too."""
    context = click.get_current_context(silent=True)
    if context is None or context.get_parameter_source("config_file") != ParameterSource.COMMANDLINE:
        return ""
    return f" -c {context.params['config_file']}"


def money(amount: float) -> str:
    """Dollars of a document."""
    return format_money(round(amount * NANO))


def run_command() -> str:
    """The command that starts a controller for the configuration of this command."""
    context = click.get_current_context(silent=True)
    given = config_words()
    return f"{program_name()} run" + (f" {context.params['config_file']}" if context is not None and given else "")


# -- times ---------------------------------------------------------------------------------------------------------


def clock(at: float, now: float) -> str:
    """When something was or will be: the time of day, and the day if it is not today's."""
    there, here = time.localtime(at), time.localtime(now)
    form = "%H:%M:%S" if there[:3] == here[:3] else "%Y-%m-%d %H:%M:%S"
    return time.strftime(form, there)


def span(length: float) -> str:
    """``12 s``, ``6 min``; never negative, and whole."""
    return seconds(max(0, round(length)))
