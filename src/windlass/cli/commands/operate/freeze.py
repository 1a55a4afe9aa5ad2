"""``windlass freeze`` stops buying and releasing machines, in one group or in all."""

from __future__ import annotations

from collections.abc import Mapping

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
from windlass.control.record.controller_state import ControllerState
from windlass.control.report.current import read_state
from windlass.control.report.orders import frozen_with_orders, shown_subject
from windlass.control.state.fleet import EVERY_GROUP


def _remotely(remote: Remote, group: str | None, as_json: bool) -> None:
    subject = group or EVERY_GROUP
    outcome = _frozen_already(subject, remote.get("/status")["frozen"])
    _print(outcome or ordered_remotely(remote, "freeze", [subject]), group, as_json)


@click.command("freeze", epilog="Exit status: 0 the group is frozen, or will be; 1 there is no such group.")
@reachable(_remotely)
@configured
@click.argument("group", metavar="[GROUP]", required=False)
@click.option("--json", "as_json", is_flag=True, help=f"The result as JSON, for programs: {SCHEMA}.")
def command(config: Config, group: str | None, as_json: bool) -> None:
    """Stop buying and releasing machines of GROUP (a group or a family), or of all groups, until windlass resume.

    Running work continues, and waiting work is still placed on existing machines. The order is stored in the journal,
    so it survives a restart.

    \b
    Examples:
      windlass freeze gpu
      windlass freeze
    """
    subject = group or EVERY_GROUP
    with opened(config) as journal:
        controller_state = read_state(journal)
        known = groups_of(config, controller_state)
        if group is not None and group not in known:
            stop(unknown_name(group, "group", known))
        outcome = _frozen_already(subject, frozen_with_orders(journal, controller_state, config.settings.families))
        if outcome is None:
            outcome = ordered(journal, "freeze", [subject])
    _print(outcome, group, as_json)


def _frozen_already(subject: str, frozen: Mapping[str, str]) -> OrderOutcome | None:
    by = frozen.get(subject)
    return (
        None if by is None else nothing_to_do("freeze", subject, f"{shown_subject(subject)} is frozen already, by {by}")
    )


def _print(outcome: OrderOutcome, group: str | None, as_json: bool) -> None:
    undo = f"windlass resume {group}" if group else "windlass resume"
    print_outcome(outcome, as_json, "windlass status", undo)


def groups_of(config: Config, controller_state: ControllerState) -> set[str]:
    """Return the groups and families of the configuration, and removed groups that still have machines."""
    left = {record.group for record in controller_state.fleet.slices.values()}
    frozen = {name for name in controller_state.fleet.frozen if name != EVERY_GROUP}
    return {*config.settings.by_name, *config.settings.families, *left, *frozen}
