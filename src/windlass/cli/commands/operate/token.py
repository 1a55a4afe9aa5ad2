"""``windlass token`` manages the tokens of people and programs that may see the cluster, or change it."""

from __future__ import annotations

import json
from typing import Literal

import click

from windlass.cli.connection.config_option import configured
from windlass.cli.connection.open_journal import stop
from windlass.cli.ui.output import write
from windlass.config import Config


@click.group("token")
def command() -> None:
    """Create, list and revoke tokens of the server.

    A viewer sees everything; an operator may drain, freeze and resume as well. A server that runs reads the file again
    when it changes.
    """


@command.command(
    "create", epilog="Exit status: 0 the token is created, 1 the name is taken or the file cannot be written."
)
@configured
@click.option("--role", type=click.Choice(["viewer", "operator"]), required=True, help="What its owner may do.")
@click.option("--name", metavar="NAME", required=True, help="The name of its owner; orders are recorded under it.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, for programs: windlass.token/v1.")
def create(config: Config, role: Literal["viewer", "operator"], name: str, as_json: bool) -> None:
    """Create a token and print it. It is shown only once.

    \b
    Example:
      windlass token create --role viewer --name grafana
    """
    from windlass.server.access.tokens import TokenError, TokenFile

    try:
        made = TokenFile(config.server.token_file).create(role, name)
    except (TokenError, OSError) as error:
        stop(str(error))
    document = {"schema": "windlass.token/v1", "name": made.name, "role": made.role, "token": made.secret}
    write(json.dumps(document, indent=2) + "\n" if as_json else f"{made.secret}\n")


@command.command("list", epilog="Exit status: 0 listed, 1 the file cannot be read.")
@configured
@click.option("--json", "as_json", is_flag=True, help="As JSON, for programs: windlass.tokens/v1.")
def list_tokens(config: Config, as_json: bool) -> None:
    """List the names and roles of all tokens; the tokens themselves are not shown."""
    from windlass.server.access.tokens import TokenError, TokenFile

    try:
        found = TokenFile(config.server.token_file).tokens()
    except (TokenError, OSError) as error:
        stop(str(error))
    if as_json:
        rows = [{"name": one.name, "role": one.role} for one in found]
        write(json.dumps({"schema": "windlass.tokens/v1", "tokens": rows}, indent=2) + "\n")
        return
    width = max((len(one.name) for one in found), default=0)
    write("".join(f"{one.name:<{width}}  {one.role}\n" for one in found) or "there are no tokens\n")


@command.command("revoke", epilog="Exit status: 0 the token is revoked, 1 there is no token with this name.")
@configured
@click.argument("name", metavar="NAME")
def revoke(config: Config, name: str) -> None:
    """Revoke the token of NAME, and end its sessions."""
    from windlass.server.access.tokens import TokenError, TokenFile

    try:
        gone = TokenFile(config.server.token_file).revoke(name)
    except (TokenError, OSError) as error:
        stop(str(error))
    write(f"the token of {gone.name} ({gone.role}) is revoked; its sessions have ended\n")
