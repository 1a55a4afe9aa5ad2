"""This module sends an order of an operator through the journal and waits for the leader to carry it out."""

from __future__ import annotations

import getpass
import json
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from windlass.cli.ui.output import write
from windlass.cli.ui.pages import next_steps, plain
from windlass.control.reconcile.operator_orders import Order, What, give
from windlass.control.report.current import read_state
from windlass.control.report.leader import leader_of
from windlass.control.report.orders import applied_upto, intent_text, outcome_text, pending_text
from windlass.journal import Journal

from .remote import Remote

SCHEMA: Final = "windlass.order/v1"
PATIENCE: Final = 3.0
"""Seconds to wait for the leader, which reads orders twice a second."""


def operator() -> str:
    """Return the name of the operator: ``user@host``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


@dataclass(frozen=True, slots=True)
class OrderOutcome:
    """The result of an order."""

    what: What
    subject: str
    by: str
    heard: bool | None
    """None if there was nothing to order."""
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


def ordered(journal: Journal, what: What, subjects: Sequence[str]) -> OrderOutcome:
    """Record orders, wait until the leader has read them, and describe the state after that."""
    by = operator()
    numbers = [give(journal, Order(what, name, by), time.time()) for name in subjects]
    led = leader_of(journal, time.time()).alive
    deadline = time.monotonic() + PATIENCE
    while (heard := applied_upto(journal) >= numbers[-1]) is False and led and time.monotonic() < deadline:
        time.sleep(0.05)
    state = read_state(journal) if heard else None
    outcomes = [] if state is None else [outcome_text(state, what, name) for name in subjects]
    return _outcome(what, subjects, by, outcomes, led)


def ordered_remotely(
    remote: Remote, what: What, subjects: Sequence[str], *, not_frozen: OrderOutcome | None = None
) -> OrderOutcome:
    """Give orders to a remote controller, and wait for them as for orders through the journal.

    ``not_frozen``: the outcome if the server answers that a subject is not frozen; by default an error.
    """
    unless = "" if not_frozen is None else "not-frozen"
    given = [remote.post("/orders", {"what": what, "subject": name}, unless=unless) for name in subjects]
    if not_frozen is not None and None in given:
        return not_frozen
    led = remote.get("/status")["leader"]["alive"]
    deadline = time.monotonic() + PATIENCE
    while not given[-1]["heard"] and led and time.monotonic() < deadline:
        time.sleep(0.1)
        given = [remote.get(f"/orders/{one['seq']}") for one in given]
    outcomes = [one["outcome"] for one in given] if given[-1]["heard"] else []
    return _outcome(what, subjects, given[-1]["by"], outcomes, led)


def _outcome(what: What, subjects: Sequence[str], by: str, outcomes: Sequence[str], led: bool) -> OrderOutcome:
    """``outcomes``: one for each subject; none if the orders were not processed in time."""
    if outcomes:
        text = "; ".join(outcomes)
    elif led:
        text = f"the controller has not answered within {PATIENCE:g} s: {intent_text(what, subjects)} at its next pass"
    else:
        text = pending_text(what, subjects, led=False)
    return OrderOutcome(what, subjects[0], by, bool(outcomes), text)


def print_outcome(outcome: OrderOutcome, as_json: bool, *steps: str) -> None:
    if as_json:
        write(json.dumps(outcome.to_dict(), indent=2) + "\n")
    else:
        write(plain([outcome.text, next_steps(*steps)]))
