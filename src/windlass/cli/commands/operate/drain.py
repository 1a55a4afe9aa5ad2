"""``windlass drain`` empties a machine and releases it, without ending running work."""

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
from windlass.control.reconcile.operator_orders import What
from windlass.control.record.controller_state import SETTINGS
from windlass.control.report.current import read_state
from windlass.control.report.history import life_of
from windlass.control.report.orders import undrain_refused
from windlass.control.state.fleet import SliceRecord
from windlass.core.model.lifecycle import ENDING


def _remotely(remote: Remote, slice_id: str, undo: bool, as_json: bool) -> None:
    outcome = ordered_remotely(remote, "undrain" if undo else "drain", [slice_id])
    print_outcome(outcome, as_json, *_steps(outcome, slice_id, undo))


_EXIT = "Exit status: 0 the machine is drained, or will be; 1 there is no such machine, or --undo is refused."


@click.command("drain", epilog=_EXIT)
@reachable(_remotely)
@configured
@click.argument("slice_id", metavar="MACHINE")
@click.option("--undo", is_flag=True, help="Withdraw the order, if the machine is not being ended yet. Not with Ray.")
@click.option("--json", "as_json", is_flag=True, help=f"The result as JSON, for programs: {SCHEMA}.")
def command(config: Config, slice_id: str, undo: bool, as_json: bool) -> None:
    """Place no new work on MACHINE, wait for its running work, and release it.

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
                stop(f"{slice_id} is {life.last.state} already; windlass why {slice_id} shows the reason")
            stop(unknown_name(slice_id, "machine", controller_state.fleet.slices))
        if undo and (refused := undrain_refused(record)) is not None:
            stop(refused)
        said = _undone_already(record) if undo else _drained_already(record)
        what: What = "undrain" if undo else "drain"
        outcome = ordered(journal, what, [slice_id]) if said is None else nothing_to_do(what, slice_id, said)
        settings = controller_state.settings.get(SETTINGS)
        final = record.final or (settings is not None and settings.final_cordons)
    print_outcome(outcome, as_json, *_steps(outcome, slice_id, undo, final=final))


def _steps(outcome: OrderOutcome, slice_id: str, undo: bool, *, final: bool = False) -> list[str]:
    """``final``: the workload cannot undo a drain."""
    found = [f"windlass why {slice_id}"]
    if not undo and outcome.heard is not None and not final:
        found.append(f"windlass drain --undo {slice_id}")
    return [*found, f"windlass events --follow --subject {slice_id}"]


def _drained_already(record: SliceRecord) -> str | None:
    if record.state in ENDING:
        return f"{record.id} is {record.state} already: {record.reason.why}"
    if record.leaving is not None:
        return f"{record.id} is {record.state} and is being released already: {record.leaving.why}"
    return None


def _undone_already(record: SliceRecord) -> str | None:
    return f"there is no order to drain {record.id}; it is {record.state}" if record.leaving is None else None
