"""The order document shows an order of an operator and its outcome."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from windlass.control.reconcile.cycle import ORDERS
from windlass.control.reconcile.operator_orders import apply_orders, order_in, orders_after
from windlass.control.record.controller_state import SETTINGS, ControllerState
from windlass.control.record.journal_tables import IS, ORDER
from windlass.control.state.fleet import EVERY_GROUP, SliceRecord
from windlass.core.model.lifecycle import ENDING
from windlass.core.model.reasons import Code, plural
from windlass.journal import Journal, Record

SCHEMA: Final = "windlass.order/v1"


def applied_upto(journal: Journal) -> int:
    """Returns the number up to which the leader has processed orders."""
    for record in journal.read(subject=ORDERS, kinds=("heard",), newest_first=True, limit=1):
        return int(record.data[IS])
    return 0


def frozen_with_orders(
    journal: Journal, state: ControllerState, families: Mapping[str, Collection[str]]
) -> Mapping[str, str]:
    """Returns what will be frozen once the leader has processed all orders, with the user who froze it."""
    orders = [order for _, order in orders_after(journal, state.applied_orders.get(ORDERS, 0))]
    return apply_orders(state.fleet, orders, state.at, families).frozen if orders else state.fleet.frozen


def order_record(journal: Journal, seq: int) -> Record | None:
    """Returns the order with a number; None if there is none."""
    if seq < 1:
        return None
    record = next(journal.read(seq - 1, upto=seq, kinds=(ORDER,), limit=1), None)
    return None if record is None or order_in(record) is None else record


def order_dict(record: Record, heard: int, led: bool, controller_state: ControllerState) -> dict[str, Any]:
    """Returns the order document; the outcome follows from the current state."""
    order = order_in(record)
    assert order is not None
    known = record.seq <= heard
    return {
        "schema": SCHEMA,
        "seq": record.seq,
        "at": record.at,
        "what": order.what,
        "subject": order.subject,
        "by": order.by,
        "comment": record.data.get("comment"),
        "heard": known,
        "outcome": outcome_text(controller_state, order.what, order.subject)
        if known
        else pending_text(order.what, [order.subject], led),
    }


def shown_subject(subject: str) -> str:
    return "everything" if subject == EVERY_GROUP else subject


def intent_text(what: str, subjects: Sequence[str]) -> str:
    """Describes what orders will do."""
    names = ", ".join(map(shown_subject, subjects))
    return {
        "drain": f"{names} will be drained",
        "undrain": f"the order to drain {names} will be withdrawn",
        "freeze": f"{names} will be frozen",
        "resume": f"{names} will be resumed",
    }[what]


def pending_text(what: str, subjects: Sequence[str], led: bool) -> str:
    """Describes orders that no leader has processed yet."""
    text = intent_text(what, subjects)
    return f"{text} at the next pass" if led else f"no controller runs: {text} as soon as one does"


def undrain_refused(record: SliceRecord) -> str | None:
    """Describes why an order to drain a slice cannot be withdrawn; None if it can, or if there is no such order."""
    if record.state in ENDING:
        return f"it is too late: {record.id} is {record.state}"
    if record.final:
        return (
            f"the drain of {record.id} cannot be withdrawn: in its workload it is final, and ends it when it is empty"
        )
    if record.leaving is not None and record.leaving.code != Code.MANUAL:
        return f"{record.id} is being released for another reason than an order: {record.leaving.why}"
    return None


def outcome_text(controller_state: ControllerState, what: str, subject: str) -> str:
    """Describes the outcome of a processed order from the current state of its subject."""
    settings, frozen = controller_state.settings.get(SETTINGS), controller_state.fleet.frozen
    members = () if settings is None else settings.families.get(subject, ())
    by = next((frozen[name] for name in (subject, *members) if name in frozen), None)
    match what:
        case "freeze":
            if subject not in frozen:
                return f"{shown_subject(subject)} was frozen, and was resumed by another user"
            return f"{shown_subject(subject)} is frozen by {by}: nothing is launched or released"
        case "resume":
            if by is not None:
                return f"{shown_subject(subject)} was frozen again by another user"
            every = frozen.get(EVERY_GROUP)
            more = "" if every is None else f", but everything is frozen by {every}: windlass resume"
            return f"{shown_subject(subject)} is resumed{more}"
        case _:
            return _of_slice(controller_state, what, subject)


def _of_slice(controller_state: ControllerState, what: str, subject: str) -> str:
    record = controller_state.fleet.slices.get(subject)
    gone = record is None or record.state in ENDING
    state = "gone" if record is None else str(record.state)
    if what == "undrain":
        refused = None if record is None or gone else undrain_refused(record)
        return f"it was too late: {subject} is {state}" if gone else refused or f"{subject} stays; it is {state}"
    if record is None or record.state in ENDING:
        return f"{subject} was empty, and is {state}"
    if record.leaving is None or record.leaving.code != Code.MANUAL:
        return f"{subject} stays; it is {state}: the order was withdrawn"
    tasks = sum(node.tasks for node in record.nodes)
    waits = (
        f"{plural(tasks, 'task')} running there, and it is released when none is left"
        if tasks
        else "nothing runs there"
    )
    return f"{subject} takes no new work ({state}); {waits}"
