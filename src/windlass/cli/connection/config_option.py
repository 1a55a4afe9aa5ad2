"""This module adds ``--config`` to a command, and reads the configuration or reports every mistake in it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from windlass.cli.ui.mistakes import refuse
from windlass.cli.ui.output import content, exists
from windlass.config import Config, ConfigError, read_config

DEFAULT = "windlass.yaml"


def load(file: str) -> Config:
    """Read a configuration; print its mistakes to standard error and exit with status 1."""
    if file != "-" and not exists(file):
        given = "name another file with -c FILE" if file == DEFAULT else "check the name"
        click.echo(f"there is no {file}; write a first one with windlass init, or {given}", err=True)
        sys.exit(1)
    text = content(file)
    try:
        return read_config(text, path=file)
    except ConfigError as error:
        refuse(error, file, text)


CONFIG_OPTION = click.option(
    "-c",
    "--config",
    "config_file",
    metavar="FILE",
    default=DEFAULT,
    envvar="WINDLASS_CONFIG",
    show_default=True,
    show_envvar=True,
    help="The configuration of the cluster.",
)


def configured(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the option ``-c FILE``, and the configuration as its first argument."""

    @CONFIG_OPTION
    @wraps(command)
    def with_config(config_file: str, *args: Any, **more: Any) -> Any:
        return command(load(config_file), *args, **more)

    return with_config
