"""``windlass open`` opens the dashboard in a browser, without typing a token."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
import webbrowser

import click

from windlass.cli.connection.config_option import configured
from windlass.cli.connection.open_journal import stop
from windlass.cli.connection.remote import cause_of
from windlass.cli.ui.output import write
from windlass.config import Config


@click.command("open", epilog="Exit status: 0 the link is made, 1 no server runs there.")
@configured
@click.option("--print", "only_print", is_flag=True, help="Print the link instead of opening a browser.")
@click.option(
    "--url", metavar="URL", envvar="WINDLASS_URL", help="The address of the server, if it is not server.listen."
)
def command(config: Config, only_print: bool, url: str | None) -> None:
    """Open the dashboard through a link that works once, for 60 seconds.

    \b
    Examples:
      windlass open
      windlass open --print
    """
    from windlass.server.access.tokens import TokenError, TokenFile

    if config.server.listen.path and url is None:
        stop("the server listens on a socket, which no browser opens; give server.listen an address")
    base = (url or f"{'https' if config.server.cert else 'http'}://{config.server.listen}").rstrip("/")
    if url is None:
        _check(base)
    try:
        tokens = TokenFile(config.server.token_file)
        found = [one for one in tokens.tokens() if one.role == "operator"] or list(tokens.tokens())
        if not found:
            stop(f"there are no tokens in {config.server.token_file} yet: start windlass run --serve first")
        link = f"{base}/open?code={tokens.link_code(found[0], time.time())}"
    except (TokenError, OSError) as error:
        stop(str(error))
    if only_print or not webbrowser.open(link):
        write(f"{link}\n")


def _check(base: str) -> None:
    """End the command with a message if no server runs at the address."""
    try:
        with urllib.request.urlopen(f"{base}/healthz", timeout=3):
            return
    except urllib.error.HTTPError:
        return
    except OSError as error:
        stop(f"no server runs at {base} ({cause_of(error)}). Start one: windlass run --serve, or windlass serve")
