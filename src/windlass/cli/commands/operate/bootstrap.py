"""``windlass bootstrap print`` prints the script that prepares a machine for an image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from windlass.cli.connection.config_option import CONFIG_OPTION, load
from windlass.cli.connection.open_journal import unknown_name
from windlass.cli.ui.output import write
from windlass.config import Config


@click.group("bootstrap")
def command() -> None:
    """Show how remote machines are prepared."""


@command.command("print", epilog="Exit status: 0 printed, 1 the image is wrong.")
@click.option(
    "--python",
    default=None,
    metavar="VERSION|PATH",
    help="A minor version, or the full path of a Python on the machine.",
)
@click.option("--pip", multiple=True, metavar="REQUIREMENT", help="A requirement for pip. May be repeated.")
@click.option("--apt", multiple=True, metavar="PACKAGE", help="A system package. May be repeated.")
@click.option(
    "--include",
    "includes",
    multiple=True,
    metavar="PATH",
    help="A file or directory that programs can import. May be repeated.",
)
@click.option("--setup", multiple=True, metavar="COMMAND", help="A shell command that runs last. May be repeated.")
@click.option(
    "--needs", multiple=True, metavar="REQUIREMENT", help="A package that the program itself needs. May be repeated."
)
@click.option(
    "--group", default="", metavar="NAME", help="Print the script for the image of this group of the configuration."
)
@CONFIG_OPTION
def print_(
    python: str | None,
    pip: tuple[str, ...],
    apt: tuple[str, ...],
    includes: tuple[str, ...],
    setup: tuple[str, ...],
    needs: tuple[str, ...],
    group: str,
    config_file: str,
) -> None:
    """Print the script that a machine with this image runs.

    It contains no secrets: variables and the package index are in its environment. A machine that has run it skips it
    the next time, by the hash in its second line.

    \b
    Examples:
      windlass bootstrap print --pip numpy --setup 'ulimit -n 65536'
      windlass bootstrap print --group gpu
    """
    from windlass.providers.protocol import InvalidRequest
    from windlass.providers.remote.image import ImageSpec

    given: Mapping[str, Any] = {"python": python, "pip": pip, "apt": apt, "includes": includes, "setup": setup}
    if group:
        if any(given.values()):
            raise click.UsageError("--group names the image of a group; leave out the options that describe an image")
        given = _image_of(load(config_file), group)
    try:
        write(ImageSpec.of(given, needs).script())
    except InvalidRequest as error:
        raise click.ClickException(str(error)) from None


def _image_of(config: Config, name: str) -> Mapping[str, Any]:
    """Return the image of a group or family: its own, else that of its provider."""
    found = [one for one in config.settings.groups if name in (one.group.name, one.group.family)]
    if not found:
        families = [one.name for one in config.settings.cluster.families]
        raise click.ClickException(unknown_name(name, "group", [*families, *config.settings.by_name]))
    one = found[0]
    provided = config.providers[one.provider].settings.get("image")
    return config.images.get(one.group.name) or provided or {}
