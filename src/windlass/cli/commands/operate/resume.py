"""``windlass resume`` undoes a freeze."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import click

from windlass.cli.connection.config_option import configured
from windlass.cli.connection.open_journal import opened, stop, unknown_name
from windlass.cli.connection.remote import Remote, reachable
from windlass.cli.connection.send_order import (
    SCHEMA,
    OrderOutcome,
    nothing_to_do,
    ordered,
    ordered_remotely,
    print_outcome,
)
from windlass.config import Config
from windlass.control.report.current import read_state
from windlass.control.report.orders import frozen_with_orders
from windlass.control.state.fleet import EVERY_GROUP

from .freeze import groups_of


def _remotely(remote: Remote, group: str | None, as_json: bool) -> None:
    status = remote.get("/status")
    families = {one["name"]: one["groups"] for one in status["families"]}
    # A status does not show a freeze that no leader has processed yet. The server counts it.
    subjects = _resumable(group, status["frozen"], families) or [group or EVERY_GROUP]
    outcome = ordered_remotely(remote, "resume", subjects, not_frozen=_nothing_frozen(group))
    print_outcome(outcome, as_json, "windlass status", "windlass events --follow")


@click.command("resume", epilog="Exit status: 0 the group is resumed, or will be; 1 it cannot be.")
@reachable(_remotely)
@configured
@click.argument("group", metavar="[GROUP]", required=False)
@click.option("--json", "as_json", is_flag=True, help=f"The result as JSON, for programs: {SCHEMA}.")
def command(config: Config, group: str | None, as_json: bool) -> None:
    """Undo windlass freeze for GROUP (a group or a family), or for everything that is frozen.

    \b
    Examples:
      windlass resume gpu
      windlass resume
    """
    with opened(config) as journal:
        controller_state = read_state(journal)
        frozen = frozen_with_orders(journal, controller_state, config.settings.families)
        known = groups_of(config, controller_state)
        if group is not None and group not in known:
            stop(unknown_name(group, "group", known))
        subjects = _resumable(group, frozen, config.settings.families)
        outcome = ordered(journal, "resume", subjects) if subjects else _nothing_frozen(group)
    print_outcome(outcome, as_json, "windlass status", "windlass events --follow")


def _resumable(group: str | None, frozen: Mapping[str, str], families: Mapping[str, Collection[str]]) -> list[str]:
    """Returns the names to resume; stops with a message if the freeze is that of the family or of everything."""
    if group is None:
        return sorted(frozen)
    if not frozen.keys().isdisjoint({group, *families.get(group, ())}):
        return [group]
    family = next((name for name, members in families.items() if group in members and name in frozen), None)
    if family is not None:
        stop(f"{group} is frozen with its family {family}, by {frozen[family]}: windlass resume {family}")
    if EVERY_GROUP in frozen:
        stop(
            f"{group} is frozen with all other groups, by {frozen[EVERY_GROUP]}: resume everything with "
            "windlass resume, and freeze the other groups again"
        )
    return []


def _nothing_frozen(group: str | None) -> OrderOutcome:
    return nothing_to_do("resume", group or EVERY_GROUP, f"{group or 'nothing'} is {'not ' if group else ''}frozen")
