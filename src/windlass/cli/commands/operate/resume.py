"""``windlass resume``: go on after a freeze."""

from __future__ import annotations

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
from windlass.control.state.fleet import EVERY_GROUP

from .freeze import called, groups_of


def _remotely(remote: Remote, group: str | None, as_json: bool) -> None:
    outcome = ordered_remotely(remote, "resume", group or EVERY_GROUP)
    print_outcome(outcome, as_json, "windlass status", "windlass events --follow")


@click.command("resume", epilog="Exit status: 0 it is resumed, or will be; 1 it cannot be.")
@reachable(_remotely)
@configured
@click.argument("group", metavar="[GROUP]", required=False)
@click.option("--json", "as_json", is_flag=True, help=f"What became of it as JSON, for programs: {SCHEMA}.")
def command(config: Config, group: str | None, as_json: bool) -> None:
    """Launch and release again in GROUP, a group or a family of groups; without it, in everything that was frozen.

    \b
    Examples:
      windlass resume gpu
      windlass resume
    """
    with opened(config) as journal:
        controller_state = read_state(journal)
        frozen, known = controller_state.fleet.frozen, groups_of(config, controller_state)
        if group is not None and group not in known:
            stop(unknown_name(group, "group", known))
        members = config.settings.families.get(group or "", ())
        wanted = [] if frozen.keys().isdisjoint({group, *members}) else [group or ""]
        sold = config.settings.by_name.get(group or "")
        if sold is not None and not wanted and sold.group.family in frozen:
            family = sold.group.family
            stop(f"{group} is frozen because its family {family} is, by {frozen[family]}: windlass resume {family}")
        if group is not None and not wanted and EVERY_GROUP in frozen:
            stop(
                f"{group} is frozen because everything is, by {frozen[EVERY_GROUP]}: resume everything with "
                "windlass resume, and freeze the groups that must not go on"
            )
        subjects = sorted(frozen) if group is None else wanted
        outcome: OrderOutcome
        if not subjects:
            name = group or EVERY_GROUP
            outcome = nothing_to_do("resume", name, f"{group or 'nothing'} is {'not ' if group else ''}frozen")
        else:
            names = ", ".join(called(subject) for subject in subjects)
            wish = f"{names} will be resumed"
            outcome = ordered(journal, "resume", subjects, lambda after: _became(after, subjects), wish)
    print_outcome(outcome, as_json, "windlass status", "windlass events --follow")


def _became(controller_state: ControllerState, subjects: list[str]) -> str:
    still = [called(subject) for subject in subjects if subject in controller_state.fleet.frozen]
    if still:
        return f"{', '.join(still)} was frozen again by another user"
    text = f"{', '.join(called(subject) for subject in subjects)} is resumed"
    if EVERY_GROUP in controller_state.fleet.frozen:
        text += f", but everything is frozen by {controller_state.fleet.frozen[EVERY_GROUP]}: windlass resume"
    return text
