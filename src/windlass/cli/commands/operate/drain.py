"""``windlass drain``: empty a machine and give it back, without ending what runs there."""

from __future__ import annotations

import click

from windlass.cli.connection.config_option import configured
from windlass.cli.connection.kubernetes_names import slice_of_node
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
from windlass.control.report.history import life_of
from windlass.control.state.fleet import SliceRecord
from windlass.core.model.lifecycle import ENDING
from windlass.core.model.reasons import Code, plural


def _remotely(remote: Remote, slice_id: str, undo: bool, as_json: bool) -> None:
    outcome = ordered_remotely(remote, "undrain" if undo else "drain", slice_id)
    print_outcome(outcome, as_json, *_steps(outcome, slice_id, undo))


@click.command("drain", epilog="Exit status: 0 it is drained, or will be; 1 there is no such machine.")
@reachable(_remotely)
@configured
@click.argument("slice_id", metavar="MACHINE")
@click.option("--undo", is_flag=True, help="Take the order back, as long as the machine is not being ended.")
@click.option("--json", "as_json", is_flag=True, help=f"What became of it as JSON, for programs: {SCHEMA}.")
def command(config: Config, slice_id: str, undo: bool, as_json: bool) -> None:
    """Place nothing new on MACHINE, wait for what runs there, and give it back.

    Windlass waits for running work without a time limit. A machine that its group needs for its min is replaced.

    \b
    Examples:
      windlass drain gpu-3-17
      windlass drain --undo gpu-3-17
      windlass drain node/a100-7      (on Kubernetes: pods are evicted as their disruption budgets allow)
    """
    slice_id = slice_of_node(config, slice_id)
    with opened(config) as journal:
        controller_state = read_state(journal)
        record = controller_state.fleet.slices.get(slice_id)
        if record is None:
            life = life_of(journal, slice_id)
            if life is not None:
                stop(f"{slice_id} is {life.last.state} already; for the reason: windlass why {slice_id}")
            stop(unknown_name(slice_id, "machine", controller_state.fleet.slices))
        said = _undone_already(record) if undo else _drained_already(record)
        if said is not None:
            outcome = nothing_to_do("undrain" if undo else "drain", slice_id, said)
        elif undo:
            outcome = ordered(journal, "undrain", [slice_id], lambda after: _kept(after, slice_id), _stays(slice_id))
        else:
            wish = f"{slice_id} will be drained"
            outcome = ordered(journal, "drain", [slice_id], lambda after: _goes(after, slice_id), wish)
    print_outcome(outcome, as_json, *_steps(outcome, slice_id, undo))


def _steps(outcome: OrderOutcome, slice_id: str, undo: bool) -> list[str]:
    found = [f"windlass why {slice_id}"]
    if not undo and outcome.heard is not None:
        found.append(f"windlass drain --undo {slice_id}")
    return [*found, f"windlass events --follow --subject {slice_id}"]


def _stays(slice_id: str) -> str:
    return f"the order to drain {slice_id} will be taken back"


def _drained_already(record: SliceRecord) -> str | None:
    if record.state in ENDING:
        return f"{record.id} is {record.state} already: {record.reason.why}"
    if record.leaving is not None:
        return f"{record.id} is {record.state} and must go already: {record.leaving.why}"
    return None


def _undone_already(record: SliceRecord) -> str | None:
    if record.state in ENDING:
        return f"it is too late: {record.id} is {record.state}"
    if record.final:
        return f"it cannot be taken back: the workload's drain of {record.id} is final, and ends it when it is empty"
    if record.leaving is None:
        return f"there is no order to drain {record.id}; it is {record.state}"
    if record.leaving.code != Code.MANUAL:
        return f"{record.id} must go, and not by an order: {record.leaving.why}"
    return None


def _goes(controller_state: ControllerState, slice_id: str) -> str:
    record = controller_state.fleet.slices.get(slice_id)
    if record is None or record.state in ENDING:
        return f"{slice_id} was empty, and is {'gone' if record is None else record.state}"
    tasks = sum(node.tasks for node in record.nodes)
    waits = f"{plural(tasks, 'task')} running there, waited for without a limit" if tasks else "nothing runs there"
    return f"{slice_id} takes no new work ({record.state}); {waits}"


def _kept(controller_state: ControllerState, slice_id: str) -> str:
    record = controller_state.fleet.slices.get(slice_id)
    if record is None or record.state in ENDING:
        return f"it was too late: {slice_id} is {'gone' if record is None else record.state}"
    return f"{slice_id} stays; it is {record.state}"
