"""Reads input files and writes standard output; a missing file, a closed pipe or a full disk is one line."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import click


def content(file: str) -> bytes:
    """What is in a file, or on standard input for ``-``; one line and exit status 1 if it cannot be read."""
    try:
        if file == "-":
            return sys.stdin.buffer.read()
        return Path(file).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        remedy = "; write a first one with windlass init" if file == "windlass.yaml" else ""
        click.echo(f"{file}: cannot be read: {reason}{remedy}", err=True)
        sys.exit(1)


def write(text: str) -> None:
    """Write to standard output, all of it, now. A reader that has closed the pipe ends the process quietly."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        sys.exit(0)
    except OSError as error:
        _discard_output()
        raise click.ClickException(f"cannot write the answer: {error.strerror}") from None


def _discard_output() -> None:
    """Send what is still in the buffer to the null device, so that the flush at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
