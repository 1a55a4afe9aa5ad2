"""``windlass events`` prints the events of the journal as sentences."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

from windlass.cli.connection.config_option import configured
from windlass.cli.connection.open_journal import opened
from windlass.cli.connection.remote import Remote, reachable
from windlass.cli.ui.instants import read_instant
from windlass.cli.ui.output import write
from windlass.cli.ui.pages import next_steps, plain
from windlass.config import Config
from windlass.control.report.events import SCHEMA, EventLine, earlier_events, later_events
from windlass.journal import Journal

LIMIT: Final = 50
EVERY: Final = 0.3
"""Seconds between two checks for new records. A check reads one row."""


def _remotely(
    remote: Remote, follow: bool, since: float | None, subject: str | None, limit: int | None, as_json: bool
) -> None:
    limit = LIMIT if limit is None and since is None else limit
    page = remote.get("/events", since=since, subject=subject, limit=min(5000, limit or 5000))
    found = page["events"] if limit is None else page["events"][max(0, len(page["events"]) - limit) :]
    for one in found:
        write(_shown(_line(one), as_json))
    if follow:
        try:
            for one in remote.events(page["next"]):
                if subject is None or subject in one["subjects"]:
                    write(_shown(_line(one), as_json))
        except KeyboardInterrupt:
            return
    elif not as_json:
        _end(bool(found), subject)


def _line(one: Mapping[str, Any]) -> EventLine:
    """Return an event that was received over HTTP."""
    known = (one["at"], one["kind"], one["code"] or "", one["text"], tuple(one["subjects"]), one["alarm"])
    return EventLine(*known, seq=one["seq"], epoch=one["epoch"])


@click.command(
    "events", epilog="Exit status: 0 printed, or stopped by Ctrl-C; 1 the configuration or journal is wrong."
)
@reachable(_remotely)
@configured
@click.option("-f", "--follow", is_flag=True, help="Print new events as they happen, until Ctrl-C.")
@click.option(
    "--since",
    callback=read_instant,
    metavar="TIME",
    help="Print only events since this time: 14:02, 2026-03-01T14:02, '10m ago'.",
)
@click.option("--subject", metavar="NAME", help="Print only events of this job, machine or group.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=0),
    help=f"Print only the last N events.  [default: {LIMIT}; with --since all]",
)
@click.option("--json", "as_json", is_flag=True, help=f"One JSON object per line, for programs: {SCHEMA}.")
def command(
    config: Config, follow: bool, since: float | None, subject: str | None, limit: int | None, as_json: bool
) -> None:
    """Print events with their reasons, the oldest first.

    Events are launches, changes of a machine's state, jobs that start or stop waiting, problems, and orders of
    operators.

    \b
    Examples:
      windlass events --follow
      windlass events --since '1h ago' --subject gpu
      windlass events --limit 1000 --json | jq 'select(.alarm)'
    """
    if limit is None and since is None:
        limit = LIMIT
    with opened(config) as journal:
        upto = journal.last_seq()
        found = _last(journal, upto, since, subject, limit)
        for line in found:
            write(_shown(line, as_json))
        if follow:
            try:
                for line in _following(journal, upto, subject):
                    write(_shown(line, as_json))
            except KeyboardInterrupt:
                return
    if not as_json:
        _end(bool(found), subject)


def _end(found: bool, subject: str | None) -> None:
    """Print that there are no events, and what to do next."""
    if not found:
        click.echo(f"no events{f' of {subject}' if subject else ''}", err=True)
    about = f" --subject {subject}" if subject else ""
    steps = [f"windlass why {subject}"] if subject else []
    write(plain([next_steps(f"windlass events --follow{about}", *steps, "windlass status")]))


def _last(journal: Journal, upto: int, since: float | None, subject: str | None, limit: int | None) -> list[EventLine]:
    """Return the last lines, the oldest first."""
    found: list[EventLine] = []
    for _, together in earlier_events(journal, upto, since=since, subject=subject):
        if limit is not None and len(found) >= limit:
            break
        found += reversed(together)
    return (found if limit is None else found[:limit])[::-1]


def _following(journal: Journal, seq: int, subject: str | None) -> Iterator[EventLine]:
    """Yield new lines without end."""
    while True:
        time.sleep(EVERY)
        upto = journal.last_seq()
        if upto > seq:
            for together in later_events(journal, seq, upto, subject=subject):
                yield from together
            seq = upto


def _shown(line: EventLine, as_json: bool) -> str:
    if as_json:
        return json.dumps(line.document()) + "\n"
    from windlass.cli.commands.start.run import shown

    return shown(line) + "\n"
