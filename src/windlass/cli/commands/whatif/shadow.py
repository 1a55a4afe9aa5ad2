"""``windlass shadow`` reports what a shadow controller would have done."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import click

from windlass.cli.commands.start.run.shadow import journal_of_shadow
from windlass.cli.connection.config_option import DEFAULT, load
from windlass.cli.ui.output import exists, write
from windlass.control.shadow import ShadowReport, shadow_report
from windlass.core.model.reasons import plural, seconds
from windlass.journal import JournalError, open_journal

SCHEMA = "windlass.shadow/v1"
MOST = 40
"""The number of actions that are shown; the JSON has all."""


@click.group("shadow")
def command() -> None:
    """Report what a shadow controller (windlass run --shadow) would have done."""


@command.command("report", epilog="Exit status: 0 shown, 1 the configuration or the journal is wrong.")
@click.option(
    "-c",
    "--config",
    "file",
    metavar="FILE",
    default=DEFAULT,
    envvar="WINDLASS_CONFIG",
    show_default=True,
    show_envvar=True,
    help="The configuration of the cluster.",
)
@click.option("--json", "as_json", is_flag=True, help=f"The same as JSON, for programs: {SCHEMA}.")
def report(file: str, as_json: bool) -> None:
    """Report what the shadow controller of a cluster would have done, why, and at what cost.

    \b
    Example:
      windlass run --shadow          (in another terminal)
      windlass shadow report
    """
    location = journal_of_shadow(load(file), file)
    if not exists(location) and "://" not in location:
        click.echo(
            f"there is no journal at {location}. Start a shadow controller: windlass run --shadow {file}", err=True
        )
        sys.exit(1)
    try:
        with open_journal(location, create=False) as journal:
            found = shadow_report(journal)
    except JournalError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    if found is None:
        click.echo(f"{location}: nothing is recorded yet", err=True)
        sys.exit(1)
    write(json.dumps(_data(found), indent=2) + "\n" if as_json else "\n".join(_page(found)) + "\n")


def _data(found: ShadowReport) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "since": found.since,
        "until": found.until,
        "spent": found.spent,
        "planned": found.planned,
        "wishes": [
            {
                "verb": action.would.verb,
                "subject": action.would.subject,
                "count": action.would.count,
                "code": str(action.would.reason.code),
                "why": action.would.reason.why,
                "hourly_cost": action.would.hourly_cost / 10**9,
                "since": action.since,
                "until": action.until,
            }
            for action in found.actions
        ],
    }


def _page(found: ShadowReport) -> Iterator[str]:
    span = seconds(max(1, round(found.until - found.since)))
    yield f"In {span} it would have made {plural(len(found.actions), 'change')}; it has made none."
    yield f"Cost: ${found.spent:.2f} actual, ${found.planned:.2f} under its plans"
    yield ""
    for action in found.actions[:MOST]:
        when, would = time.strftime("%H:%M:%S", time.localtime(action.since)), action.would
        lasted = (
            f"wanted for {seconds(round(action.until - action.since))}"
            if action.until > action.since
            else "wanted once"
        )
        count = f"{would.count} x " if would.count > 1 else ""
        yield f"  {when}  {would.verb:<8} {count}{would.subject}  {would.reason.code}  {would.reason.why} ({lasted})"
    if len(found.actions) > MOST:
        yield f"  and {len(found.actions) - MOST} more: windlass shadow report --json"
    yield ""
    yield "next: windlass plan --live"
