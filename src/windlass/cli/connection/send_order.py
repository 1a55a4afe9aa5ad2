"""Sends an order of an operator through the journal and waits for the leader to carry it out."""

from __future__ import annotations

import getpass
import json
import os
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from windlass.cli.ui.output import write
from windlass.cli.ui.pages import next_steps, plain
from windlass.control.reconcile.cycle import ORDERS
from windlass.control.reconcile.operator_orders import Order, What, give
from windlass.control.record.controller_state import ControllerState
from windlass.control.record.journal_tables import IS
from windlass.control.report.current import read_state
from windlass.control.report.leader import leader_of
from windlass.journal import Journal

from .remote import Remote

SCHEMA: Final = "windlass.order/v1"
PATIENCE: Final = 3.0
"""Seconds to wait for the leader: it looks for orders twice a second."""


def operator() -> str:
    """Who gives the order: ``user@host``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


@dataclass(frozen=True, slots=True)
class OrderOutcome:
    """What became of an order."""

    what: What
    subject: str
    by: str
    heard: bool | None
    """None: there was nothing to ask for."""
    text: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "what": self.what,
            "subject": self.subject,
            "by": self.by,
            "heard": self.heard,
            "outcome": self.text,
        }


def nothing_to_do(what: What, subject: str, text: str) -> OrderOutcome:
    return OrderOutcome(what, subject, operator(), None, text)


def ordered(
    journal: Journal, what: What, subjects: Iterable[str], became: Callable[[ControllerState], str], wish: str
) -> OrderOutcome:
    """Record orders, wait until the leader has read them, and return the state after that.

    ``wish``: the order in words, for an order that no controller has read yet.
    """
    by, names = operator(), list(subjects)
    numbers = [give(journal, Order(what, name, by), time.time()) for name in names]
    if not leader_of(journal, time.time()).alive:
        text = f"no controller runs: {wish} as soon as one does"
        return OrderOutcome(what, names[0], by, False, text)
    deadline = time.monotonic() + PATIENCE
    while (heard := _heard(journal) >= numbers[-1]) is False and time.monotonic() < deadline:
        time.sleep(0.05)
    if heard:
        return OrderOutcome(what, names[0], by, True, became(read_state(journal)))
    text = f"the controller has not answered within {PATIENCE:g} s: {wish} at its next pass"
    return OrderOutcome(what, names[0], by, False, text)


def ordered_remotely(remote: Remote, what: What, subject: str) -> OrderOutcome:
    """Give an order to a remote controller, and wait for it as for one through the journal."""
    given = remote.post("/orders", {"what": what, "subject": subject})
    deadline = time.monotonic() + PATIENCE
    while not given["heard"] and time.monotonic() < deadline:
        time.sleep(0.1)
        given = remote.get(f"/orders/{given['seq']}")
    return OrderOutcome(what, subject, given["by"], given["heard"], given["outcome"])


def _heard(journal: Journal) -> int:
    """Up to which number the leader has heard orders."""
    for record in journal.read(subject=ORDERS, kinds=("heard",), newest_first=True, limit=1):
        return int(record.data[IS])
    return 0


def print_outcome(outcome: OrderOutcome, as_json: bool, *steps: str) -> None:
    if as_json:
        write(json.dumps(outcome.to_dict(), indent=2) + "\n")
    else:
        write(plain([outcome.text, next_steps(*steps)]))
