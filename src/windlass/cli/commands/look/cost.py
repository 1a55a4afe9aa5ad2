"""``windlass cost`` shows what was spent, by group, by job or by account; the rows add up to the bill."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import click
from rich.console import RenderableType
from rich.text import Text

from windlass.cli.connection.config_option import configured
from windlass.cli.connection.open_journal import opened, stop
from windlass.cli.connection.remote import Remote, reachable
from windlass.cli.ui.instants import read_instant
from windlass.cli.ui.output import write
from windlass.cli.ui.pages import clock, headed, money, next_steps, printed
from windlass.config import Config
from windlass.control.record.costs import KINDS
from windlass.control.record.state_reader import TooOld
from windlass.control.report.accounts import SCHEMA, accounts

By = Literal["group", "job", "account"]


def _remotely(remote: Remote, by: By, since: float | None, as_json: bool) -> None:
    _show(remote.get("/accounts", by=by, since=since), as_json)


@click.command("cost", epilog="Exit status: 0 shown, 1 the configuration or the journal is wrong.")
@reachable(_remotely)
@configured
@click.option(
    "--by",
    type=click.Choice(["group", "job", "account"]),
    default="group",
    show_default=True,
    help="What one row is: a group, a job, or an account such as idle.",
)
@click.option(
    "--since",
    callback=read_instant,
    metavar="TIME",
    help="Count only the time since then: 14:02, 2026-03-01T14:02, '10m ago'.",
)
@click.option("--json", "as_json", is_flag=True, help=f"The same as JSON, for programs: {SCHEMA}.")
def command(config: Config, by: By, since: float | None, as_json: bool) -> None:
    """Show what was spent: every second of every machine is in exactly one account.

    The accounts are work, booting, idle, spare (idle and held ready), draining and ending. Work is shared among the
    jobs whose tasks ran there, if the workload reports them.

    \b
    Examples:
      windlass cost
      windlass cost --by job --since '24h ago'
      windlass cost --by account --json | jq .total
    """
    with opened(config) as journal:
        now = time.time()
        try:
            document = accounts(journal, by, since, now)
        except TooOld as error:
            stop(f"--since: {error}, but to {clock(error.since, now)}")
    _show(document, as_json)


def _show(document: Mapping[str, Any], as_json: bool) -> None:
    write(json.dumps(document, indent=2) + "\n" if as_json else printed(_page(document)))


def _page(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    total = document["total"]
    yield Text.assemble(
        (f"{money(total['total'])} ", "bold"),
        f"since {clock(document['since'], document['until'])}, by {document['by']}",
    )
    kinds = [kind for kind in KINDS if total[kind]] if document["by"] != "account" else []
    table = headed(document["by"], *(f"{kind}>" for kind in kinds), "total>")
    for row in document["rows"]:
        table.add_row(row["name"], *(money(row[kind]) for kind in kinds), money(row["total"]))
    table.add_row("sum", *(money(total[kind]) for kind in kinds), money(total["total"]))
    yield table
    if document["difference"]:
        yield Text(f"the rows differ from the bill by {document['difference']} $: please report it", style="red")
    other = "group" if document["by"] == "job" else "job"
    yield next_steps("windlass status", f"windlass cost --by {other}", "windlass events")
