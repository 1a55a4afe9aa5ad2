"""This module opens the journal of a cluster for reading, and reports a missing journal or an unknown name."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import click

from windlass.cli.ui.output import exists
from windlass.config import Config
from windlass.core.model.reasons import nearest_names
from windlass.journal import Journal, JournalError, open_journal


@contextmanager
def opened(config: Config) -> Iterator[Journal]:
    """Open the journal of a configuration; print one line and exit with status 1 if it is missing or unreadable."""
    try:
        with open_journal(config.journal.location, create=False) as journal:
            yield journal
    except JournalError as error:
        click.echo(why_closed(config, error), err=True)
        sys.exit(1)


def why_closed(config: Config, error: JournalError) -> str:
    """Return the problem of a journal, and its remedy."""
    location = config.journal.location
    if location == ":memory:":
        return "journal: only the controller can read :memory:; give the journal a path to use this command"
    if is_missing(config):
        return (
            f"there is no journal at {location}: no controller has run with this configuration yet. "
            f"Start one with: windlass run {config_file()}"
        )
    return str(error)


def is_missing(config: Config) -> bool:
    """Return whether the journal is a file that does not exist."""
    location = config.journal.location
    return "://" not in location and location != ":memory:" and not exists(location)


def config_file() -> str:
    """Return the configuration file of the command."""
    context = click.get_current_context(silent=True)
    return str(context.params.get("config_file", "CONFIG")) if context is not None else "CONFIG"


def unknown_name(name: str, what: str, known: Iterable[str]) -> str:
    """Return the message for an unknown name, with similar names."""
    names = sorted(known)
    near = nearest_names(name, names)
    if near:
        return f"there is no {what} {name}; did you mean {' or '.join(near)}?"
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return f"there is no {what} {name}; there {'is' if len(names) == 1 else 'are'} {shown or 'none'}"


def stop(text: str) -> NoReturn:
    """Print one line, and exit with status 1."""
    click.echo(text, err=True)
    sys.exit(1)
