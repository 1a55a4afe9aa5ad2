"""``windlass init`` writes a first configuration file with comments."""

from __future__ import annotations

import os
from pathlib import Path

import click

from windlass.cli.connection.config_option import DEFAULT
from windlass.cli.ui.output import write

FIRST_FILE = """\
# The machines that this cluster may buy, and the work that it buys them for.
#
#   check this file    windlass config check {file}
#   every setting      windlass config reference
#   for your editor    windlass config schema > windlass.schema.json
# yaml-language-server: $schema=windlass.schema.json

cluster:
  max_hourly_cost: 12           # dollars per hour; nothing is bought beyond this

groups:                         # the kinds of machine that can be bought, by name
  worker:
    resources: {{cpu: 2, memory: 4Gi}}  # of one machine
    min: 0                      # machines that are kept even when nothing waits
    max: 4                      # machines at most
    price: 3.00                 # dollars per hour for one machine
    scale_down:
      idle_timeout: 5m          # a machine without work for this long is released

providers:                      # where the machines come from
  here: {{type: local}}           # processes on this computer

workload: {{type: queue}}         # what runs on them: commands of `windlass submit`
"""


@click.command("init", epilog="Exit status: 0 the file is written, 1 it cannot be written.")
@click.argument("file", metavar="[FILE]", default=DEFAULT, type=click.Path(dir_okay=False))
@click.option("--force", is_flag=True, help="Replace an existing file.")
def command(file: str, force: bool) -> None:
    """Write a first configuration with comments to FILE (windlass.yaml).

    With this file, the controller starts up to four machines, which are processes on this computer, for the commands
    that you submit.

    \b
    Example:
      windlass init
      windlass run
    """
    path = Path(file)
    text = FIRST_FILE.format(file=file)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if force else os.O_EXCL)
        with os.fdopen(os.open(path, flags, 0o644), "w", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise click.ClickException(f"{file} exists already; windlass init --force {file} replaces it") from None
    except OSError as error:
        raise click.ClickException(f"{file} cannot be written: {error.strerror or error}") from None
    with_file = "" if file == DEFAULT else f" -c {file}"
    write(
        f"{file} is written.\n"
        f"next: windlass run{'' if file == DEFAULT else ' ' + file}\n"
        f"      windlass submit{with_file} -- echo hello     (in another terminal)\n"
    )
