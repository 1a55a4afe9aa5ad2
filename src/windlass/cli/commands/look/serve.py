"""``windlass serve`` serves the dashboard and the API from the journal alone."""

from __future__ import annotations

import sys

import click

from windlass.cli.connection.config_option import configured
from windlass.cli.connection.open_journal import config_file, stop, why_closed
from windlass.cli.connection.serve import LISTEN, announce, served, server_config
from windlass.config import Config
from windlass.journal import JournalError


@click.command("serve", epilog="Exit status: 0 stopped by Ctrl-C or SIGTERM, 1 it cannot serve.")
@configured
@LISTEN
@click.option("--json", "as_json", is_flag=True, help="Print the address as JSON.")
def command(config: Config, listen: str | None, as_json: bool) -> None:
    """Serve the dashboard and the API of a cluster from its journal.

    It can run next to a controller, on a standby computer, or for a stopped cluster. Orders go through the journal, as
    those of the command line do. Stop it with Ctrl-C.

    \b
    Examples:
      windlass serve
      windlass serve --listen 127.0.0.1:8080
    """
    server = server_config(config, listen)
    try:
        with served(config, server, lambda: config.settings, config_file()) as http:
            announce(http.url, as_json)
            http.run()
    except JournalError as error:
        stop(why_closed(config, error))
    sys.exit(0)
