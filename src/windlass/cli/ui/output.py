"""This module reads input files and writes standard output; a missing file, a closed pipe or a full disk gives one
line."""

from __future__ import annotations

import io
import os
import shlex
import sys
from pathlib import Path

import click


def content(file: str) -> bytes:
    """Read a file, or standard input for ``-``; print one line and exit with status 1 if it cannot be read."""
    try:
        if file == "-":
            return sys.stdin.buffer.read()
        return Path(file).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        click.echo(f"{file or '(empty name)'}: cannot be read: {reason}{_remedy(file, error)}", err=True)
        sys.exit(1)


def _remedy(file: str, error: Exception) -> str:
    if isinstance(error, IsADirectoryError):
        return "; give a file"
    if not isinstance(error, FileNotFoundError):
        return ""
    if file == "windlass.yaml":
        return "; write a first one with windlass init"
    if file.endswith((".yaml", ".yml")):
        return f"; check the path, or write a first configuration there with windlass init {shlex.quote(file)}"
    return "; check the path"


def exists(file: str) -> bool:
    """Whether there is such a file or directory; False for a name that no file can have.

    True if this user may not look: opening it then gives the reason.
    """
    try:
        Path(file).stat()
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return True


def write_file(file: str, text: str) -> None:
    """Write a file that the user has named; an error is one line."""
    try:
        Path(file).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise click.ClickException(f"{file}: cannot be written: {reason}") from None


def write(text: str) -> None:
    """Write to standard output and flush. If the reader has closed the pipe, exit without a message."""
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
        raise click.ClickException(f"cannot write the output: {error.strerror}") from None


def _discard_output() -> None:
    """Send the buffer to the null device, so that the flush at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
