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
    """Buy and release nothing of GROUP, or of any group, until windlass resume.

    Work that runs goes on, and work is still placed on what is there. The order is kept in the journal, over restarts.

    \b
    Examples:
      windlass freeze gpu
      windlass freeze
    """
    subject = group or EVERY_GROUP
    members = members_of(config, subject)
    with opened(config) as journal:
        controller_state = read_state(journal)
        known = groups_of(config, controller_state)
        if group is not None and group not in known and not members:
            stop(unknown_name(group, "group", known))
        subjects = [one for one in members or [subject] if one not in controller_state.fleet.frozen]
        by = controller_state.fleet.frozen.get((members or [subject])[0])
        if not subjects:
            outcome = nothing_to_do("freeze", subject, f"{called(subject)} is frozen already, by {by}")
        else:
            wish = f"{called(subject)} will be frozen"
            became = partial(_became, subject=subject, last=subjects[-1])
            outcome = ordered(journal, "freeze", subjects, became, wish)
    undo = f"windlass resume {group}" if group else "windlass resume"
    print_outcome(outcome, as_json, "windlass status", undo)


def members_of(config: Config, name: str) -> list[str]:
    """The groups of a family; none if there is no such family."""
    return [one.group.name for one in config.settings.groups if one.group.family == name]


def _became(controller_state: ControllerState, subject: str, last: str) -> str:
    by = controller_state.fleet.frozen.get(last)
    if by is None:
        return f"{called(subject)} was frozen, and was resumed at once by another operator"
    return f"{called(subject)} is frozen by {by}: nothing is bought or released"


def called(subject: str) -> str:
    return "everything" if subject == EVERY_GROUP else subject


def groups_of(config: Config, controller_state: ControllerState) -> set[str]:
    """Groups of the configuration, and those that something is still left of."""
    left = {record.group for record in controller_state.fleet.slices.values()}
    return {*config.settings.by_name, *left, *(name for name in controller_state.fleet.frozen if name != EVERY_GROUP)}
