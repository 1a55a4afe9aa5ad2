"""This module reports mistakes in a file: one line each, with the file and the line number."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import NoReturn

import click

from windlass.scenario.places import lines_of
from windlass.scenario.reader import FileError


def located(error: FileError, file: str, text: str | bytes) -> list[str]:
    """Format mistakes as ``FILE:LINE: PATH: message``, in the order of the lines; for standard input the path alone."""
    if file == "-":
        return list(error.mistakes)
    lines = lines_of(text, error.places) if error.line is None else [error.line] * len(error.mistakes)
    found = sorted(zip(error.mistakes, lines, strict=True), key=lambda one: one[1] or 0)
    return [f"{file}:{line}: {mistake}" if line is not None else f"{file}: {mistake}" for mistake, line in found]


def refuse(error: FileError, file: str, text: str | bytes) -> NoReturn:
    """Print all mistakes to standard error, and exit with status 1."""
    for line in located(error, file, text):
        click.echo(line, err=True)
    sys.exit(1)


def warn(warnings: Iterable[str]) -> None:
    for text in warnings:
        click.echo(f"warning: {text}", err=True)
