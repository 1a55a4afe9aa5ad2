"""``windlass freeze``: nothing is bought or released any more, in a group or at all."""

from __future__ import annotations

from functools import partial

import click

from windlass.cli.connection.config_option import configured
from windlass.cli.connection.open_journal import opened, stop, unknown_name
from windlass.cli.connection.remote import Remote, reachable
from windlass.cli.connection.send_order import SCHEMA, nothing_to_do, ordered, ordered_remotely, print_outcome
from windlass.config import Config
from windlass.control.record.controller_state import ControllerState
from windlass.control.report.current import read_state
from windlass.control.state.fleet import EVERY_GROUP


def _remotely(remote: Remote, group: str | None, as_json: bool) -> None:
    undo = f"windlass resume {group}" if group else "windlass resume"
    print_outcome(ordered_remotely(remote, "freeze", group or EVERY_GROUP), as_json, "windlass status", undo)


@click.command("freeze", epilog="Exit status: 0 it is frozen, or will be; 1 there is no such group.")
@reachable(_remotely)
@configured
@click.argument("group", metavar="[GROUP]", required=False)
@click.option("--json", "as_json", is_flag=True, help=f"What became of it as JSON, for programs: {SCHEMA}.")
def command(config: Config, group: str | None, as_json: bool) -> None:
    """Buy and release nothing of GROUP, a group or a family of groups, or of any group, until windlass resume.

    Work that runs goes on, and work is still placed on what is there. The order is kept in the journal, over restarts.

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
        by = controller_state.fleet.frozen.get(subject)
        if by is not None:
            outcome = nothing_to_do("freeze", subject, f"{called(subject)} is frozen already, by {by}")
        else:
            wish = f"{called(subject)} will be frozen"
            outcome = ordered(journal, "freeze", [subject], partial(_became, subject=subject), wish)
    undo = f"windlass resume {group}" if group else "windlass resume"
    print_outcome(outcome, as_json, "windlass status", undo)


def _became(controller_state: ControllerState, subject: str) -> str:
    by = controller_state.fleet.frozen.get(subject)
    if by is None:
        return f"{called(subject)} was frozen, and was resumed at once by another operator"
    return f"{called(subject)} is frozen by {by}: nothing is bought or released"


def called(subject: str) -> str:
    return "everything" if subject == EVERY_GROUP else subject


def groups_of(config: Config, controller_state: ControllerState) -> set[str]:
    """Groups and families of the configuration, and groups that something is still left of."""
    left = {record.group for record in controller_state.fleet.slices.values()}
    frozen = {name for name in controller_state.fleet.frozen if name != EVERY_GROUP}
    return {*config.settings.by_name, *config.settings.families, *left, *frozen}
