"""Operators send orders through the journal: freeze, resume, drain and undrain.

An order is a journal entry that any user with access may append. No controller needs to run for that, and the journal
keeps who asked for what and when. The leader applies it in its next pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from windlass.control.record.journal_tables import ORDER
from windlass.control.state.fleet import Fleet, SliceRecord, moved
from windlass.core.model.lifecycle import ENDING, RECALLABLE, State
from windlass.core.model.reasons import Code, Reason
from windlass.journal import Entry, Journal, Record

What = Literal["freeze", "resume", "drain", "undrain"]


@dataclass(frozen=True, slots=True)
class Order:
    """One order: about a group (or ``*``, all of them), or about a slice."""

    what: What
    subject: str
    by: str


def give(journal: Journal, order: Order, now: float) -> int:
    """Append an order to the journal and return its number."""
    return journal.append([Entry(ORDER, order.subject, now, {"what": order.what, "by": order.by})], epoch=None)


def orders_after(journal: Journal, heard: int) -> list[tuple[int, Order]]:
    """Orders that were not applied yet, each with its number. A malformed one is skipped."""
    return [(record.seq, order) for record in journal.read(heard, kinds=(ORDER,)) if (order := order_in(record))]


def order_in(record: Record) -> Order | None:
    """The order in a record; None: it is malformed."""
    data: Any = record.data
    if data.get("what") not in ("freeze", "resume", "drain", "undrain"):
        return None
    return Order(data["what"], record.subject, str(data.get("by", "somebody")))


def _called_back(record: SliceRecord, by: str, now: float) -> SliceRecord:
    """Back to READY, if it was being released."""
    if record.state not in RECALLABLE:
        return record
    following, _ = moved(record, State.READY, now, Reason(Code.MANUAL, f"{by} took the drain back"))
    return following


def apply_orders(fleet: Fleet, orders: Iterable[Order], now: float) -> Fleet:
    """The fleet after the orders."""
    for order in orders:
        frozen, record = dict(fleet.frozen), fleet.slices.get(order.subject)
        match order.what:
            case "freeze":
                fleet = fleet.after({}, frozen={**frozen, order.subject: order.by})
            case "resume":
                frozen.pop(order.subject, None)
                fleet = fleet.after({}, frozen=frozen)
            case "drain" if record is not None and record.state not in ENDING:
                leaving = Reason(Code.MANUAL, f"{order.by} asked to drain it")
                fleet = fleet.with_records(record.replace(leaving=leaving))
            case "undrain" if record is not None and record.leaving is not None and record.state not in ENDING:
                if record.leaving.code == Code.MANUAL and not record.final:
                    fleet = fleet.with_records(_called_back(record.replace(leaving=None), order.by, now))
            case _:
                continue
    return fleet
