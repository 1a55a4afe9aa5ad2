"""Formats tables for a terminal and for Markdown, and numbers for both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .targets import Check

UNKNOWN = "-"


@dataclass(frozen=True)
class Table:
    """Cells are text; the first ``left`` columns are words, the others numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    left: int = 1


def as_text(table: Table) -> str:
    """Format a table for a terminal."""
    widths = _widths(table)
    rule = "  ".join("-" * width for width in widths)
    lines = [table.title, "=" * len(table.title), _line(table, table.columns, widths), rule]
    lines += [_line(table, row, widths) for row in table.rows]
    return "\n".join([*lines, *([table.note] if table.note else [])]) + "\n"


def as_markdown(table: Table) -> str:
    rule = ["---" if index < table.left else "---:" for index in range(len(table.columns))]
    lines = [f"| {' | '.join(cells)} |" for cells in (table.columns, rule, *table.rows)]
    note = ["", table.note] if table.note else []
    return "\n".join([f"**{table.title}**", "", *lines, *note]) + "\n"


def of_checks(checks: Sequence[Check]) -> Table:
    """Return the table of targets: measured, target, reached or missed."""
    words = {True: "reached", False: "MISSED", None: "unknown"}
    rows = tuple((one["what"], one["shown"], one["target"], words[one["reached"]]) for one in checks)
    return Table("Targets", ("what", "measured", "target", ""), rows)


def seconds(value: float | None) -> str:
    """Format seconds with three significant digits: 12.3 ms, 1.23 s, 123 s."""
    if value is None:
        return UNKNOWN
    if value < 0.9995:
        value *= 1000
        unit = "ms"
    else:
        unit = "s"
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f} {unit}"


def number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"


def _widths(table: Table) -> list[int]:
    return [max(len(row[index]) for row in (table.columns, *table.rows)) for index in range(len(table.columns))]


def _line(table: Table, cells: Sequence[str], widths: Sequence[int]) -> str:
    shown = [
        cell.ljust(width) if index < table.left else cell.rjust(width)
        for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(shown).rstrip()
