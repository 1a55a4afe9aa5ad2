"""Standard output that may go away, run full, or know few characters."""

from __future__ import annotations

import io
import os
import sys

import click


def write(text: str) -> None:
    """Write to standard output, all of it, now. A reader that has seen enough ends the process quietly."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _let_go()
        sys.exit(0)
    except OSError as error:
        _let_go()
        raise click.ClickException(f"cannot write the answer: {error.strerror}") from None


def _let_go() -> None:
    """Whatever is still held back must not fail a second time when the interpreter flushes it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
