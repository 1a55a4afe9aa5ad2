"""Operators send orders through the journal: freeze, resume, drain and undrain.

An order is a journal entry that any user with access may append, also while no controller runs. It has the user, the
order and the time. The leader applies it in its next pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from windlass.control.record.journal_tables import ORDER
from windlass.control.state.fleet import EVERY_GROUP, Fleet, SliceRecord, moved
from windlass.core.model.lifecycle import ENDING, RECALLABLE, State
from windlass.core.model.reasons import Code, Reason
from windlass.journal import Entry, Journal, Record

What = Literal["freeze", "resume", "drain", "undrain"]


@dataclass(frozen=True, slots=True)
class Order:
    """One order. Its subject is a group, a family of groups, ``*`` (all groups) or a slice."""

    what: What
    subject: str
    by: str


def give(journal: Journal, order: Order, now: float) -> int:
    """Append an order to the journal and return its number."""
    return journal.append([Entry(ORDER, order.subject, now, {"what": order.what, "by": order.by})], epoch=None)


def orders_after(journal: Journal, after: int) -> list[tuple[int, Order]]:
    """Return the orders after a number, each with its own number. Malformed ones are skipped."""
    return [(record.seq, order) for record in journal.read(after, kinds=(ORDER,)) if (order := order_in(record))]


def order_in(record: Record) -> Order | None:
    """Return the order in a record; None: it is malformed."""
    data: Any = record.data
    if data.get("what") not in ("freeze", "resume", "drain", "undrain"):
        return None
    return Order(data["what"], record.subject, str(data.get("by", "somebody")))


def _called_back(record: SliceRecord, by: str, now: float) -> SliceRecord:
    """Return the record as READY again, if it was draining."""
    if record.state not in RECALLABLE:
        return record
    following, _ = moved(record, State.READY, now, Reason(Code.MANUAL, f"{by} cancelled the drain"))
    return following


def apply_orders(
    fleet: Fleet, orders: Iterable[Order], now: float, families: Mapping[str, Iterable[str]] = MappingProxyType({})
) -> Fleet:
    """Return the fleet after the orders. ``families``: the groups of each family. The name of a family freezes all of
    its groups, and resumes also those that were frozen one by one; ``*`` resumes everything.
    """
    for order in orders:
        frozen, record = dict(fleet.frozen), fleet.slices.get(order.subject)
        match order.what:
            case "freeze":
                fleet = fleet.after({}, frozen={**frozen, order.subject: order.by})
            case "resume":
                resumed = {order.subject, *families.get(order.subject, ())}
                left = {} if order.subject == EVERY_GROUP else frozen
                fleet = fleet.after({}, frozen={name: by for name, by in left.items() if name not in resumed})
            case "drain" if record is not None and record.state not in ENDING:
                leaving = Reason(Code.MANUAL, f"{order.by} asked to drain it")
                fleet = fleet.with_records(record.replace(leaving=leaving))
            case "undrain" if record is not None and record.leaving is not None and record.state not in ENDING:
                if record.leaving.code == Code.MANUAL and not record.final:
                    fleet = fleet.with_records(_called_back(record.replace(leaving=None), order.by, now))
            case _:
                continue
    return fleet
