"""``windlass bootstrap print``: the script that prepares a machine for an image."""

from __future__ import annotations

import click

from windlass.cli.ui.output import write


@click.group("bootstrap")
def command() -> None:
    """See how machines elsewhere are prepared."""


@command.command("print")
@click.option("--python", default=None, help="A minor version, or the full path of a Python on the machine.")
@click.option("--pip", multiple=True, metavar="REQUIREMENT", help="May be given again.")
@click.option("--apt", multiple=True, metavar="PACKAGE", help="May be given again.")
@click.option("--include", "includes", multiple=True, metavar="PATH", help="May be given again.")
@click.option("--setup", multiple=True, metavar="COMMAND", help="May be given again.")
@click.option("--needs", multiple=True, metavar="REQUIREMENT", help="What the program itself needs.")
def print_(
    python: str | None,
    pip: tuple[str, ...],
    apt: tuple[str, ...],
    includes: tuple[str, ...],
    setup: tuple[str, ...],
    needs: tuple[str, ...],
) -> None:
    """Print the script that a machine with this image runs.

    It holds no secrets: variables and the package index go into its environment. A machine that has run it skips it the
    next time, by the hash in its second line.
    """
    from windlass.providers.protocol import InvalidRequest
    from windlass.providers.remote.image import ImageSpec

    given = {"python": python, "pip": pip, "apt": apt, "includes": includes, "setup": setup}
    try:
        write(ImageSpec.of(given, needs).script())
    except InvalidRequest as error:
        raise click.ClickException(str(error)) from None
