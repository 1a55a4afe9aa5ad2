"""This module starts the HTTP server of a configuration, together with a controller or alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windlass._extras import install_command
from windlass.config import Config
from windlass.config.server import BadListen, ServerConfig, parse_listen
from windlass.control.settings import Settings
from windlass.journal import Journal, open_journal

from .job_progress import job_report
from .kubernetes_names import kubernetes_names
from .open_journal import stop

if TYPE_CHECKING:
    from windlass.server.listener import HttpServer

LISTEN = click.option("--listen", metavar="HOST:PORT", help="The address to listen on, instead of server.listen.")


def server_config(config: Config, listen: str | None) -> ServerConfig:
    """Return the settings of the server with the options of the command; unsafe ones end it with one line."""
    found = config.server
    if listen is not None:
        try:
            found = replace(found, listen=parse_listen(listen))
        except BadListen as error:
            raise click.BadParameter(f"{error}; is {listen!r}", param_hint="--listen") from error
    if (mistake := found.mistake()) is not None:
        stop(f"--listen: {mistake}")
    return found


@contextmanager
def served(
    config: Config,
    server: ServerConfig,
    settings: Callable[[], Settings],
    config_file: str,
    journal: Journal | None = None,
) -> Iterator[HttpServer]:
    """Return a server that is ready to start. ``journal`` is given if it cannot be opened a second time."""
    try:
        from windlass.server.access.tokens import TokenError, TokenFile
        from windlass.server.api.service import Server
        from windlass.server.listener import CannotListen, HttpServer
        from windlass.server.notify import Notifier
    except ModuleNotFoundError as error:
        stop(f"the server needs more packages ({error.name} is missing): {install_command('server')}")
    with ExitStack() as stack:
        location = config.journal.location
        if location != ":memory:" or journal is None:
            journal = stack.enter_context(open_journal(location, create=False))
        tokens = TokenFile(server.token_file)
        try:
            if tokens.create_if_missing():
                click.echo(f"tokens: {server.token_file} was made, with one operator and one viewer", err=True)
            made = Server(
                journal,
                location,
                server,
                settings,
                tokens,
                doctor=_doctor(config, config_file),
                more=_jobs(config),
                job=partial(job_report, config),
                names=partial(kubernetes_names, config),
            )
            http = HttpServer(made)
        except (TokenError, CannotListen, OSError) as error:
            stop(str(error))
        if config.notify:
            state = Path(server.token_file).with_name("notify.json")
            count = made.metrics.notifications.labels
            notifier = Notifier(journal, config.notify, state, on_outcome=lambda outcome: count(outcome).inc())
            made.on_records.append(lambda _: notifier.wake())
            for one in config.notify:
                if one.secret_env is not None and not os.environ.get(one.secret_env):
                    click.echo(
                        f"notify: {one.name}: {one.secret_env} is not set in the environment, so nothing can be signed "
                        "and nothing is sent there. Set it and start again.",
                        err=True,
                    )
            notifier.start()
            stack.callback(notifier.stop)
        yield http


def _jobs(config: Config) -> Callable[[], dict[str, Any]]:
    def rows() -> dict[str, Any]:
        from windlass.cli.connection.job_progress import job_rows

        return {"jobs": job_rows(config)}

    return rows


def _doctor(config: Config, config_file: str) -> Callable[[], dict[str, Any]]:
    def document() -> dict[str, Any]:
        from windlass.cli.commands.look.doctor import checked

        return checked(config, config_file)

    return document


def announce(url: str, as_json: bool) -> None:
    """Print one line with the address."""
    import json

    text = json.dumps({"kind": "serving", "url": url}) if as_json else f"dashboard: {url} (windlass open)"
    click.echo(text, err=True)
    sys.stderr.flush()
