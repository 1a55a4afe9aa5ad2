"""This module checks orders that come over HTTP, writes each to the journal once, and reports its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from windlass.control.reconcile.cycle import ORDERS as HEARD
from windlass.control.reconcile.operator_orders import order_in
from windlass.control.record.journal_tables import ORDER
from windlass.control.report.current import read_state
from windlass.control.report.history import life_of
from windlass.control.report.orders import (
    applied_upto,
    frozen_with_orders,
    order_dict,
    order_record,
    undrain_refused,
)
from windlass.control.settings import Settings
from windlass.control.state.fleet import EVERY_GROUP
from windlass.core.model.lifecycle import ENDING
from windlass.core.model.reasons import nearest_names
from windlass.journal import Entry, JournalError, Record
from windlass.server.live.feed import Current, Feed
from windlass.server.problems import Problem

WHAT: Final = ("drain", "undrain", "freeze", "resume")
LONGEST: Final = 500
"""Letters of a comment, a subject or a key."""
LOOKED_BACK: Final = 500
"""Orders that are searched for an idempotency key."""


def checked_order(body: Any, known: Current, frozen: Mapping[str, str]) -> tuple[str, str, str | None]:
    """Reads what, subject and comment of an order; raises a problem if it cannot be carried out.

    ``frozen``: with the orders that the leader has not processed yet.
    """
    mistakes = []
    if not isinstance(body, Mapping):
        raise Problem("invalid", "The body is an object with what and subject.", mistakes=["the body is not an object"])
    what, subject, comment = body.get("what"), body.get("subject"), body.get("comment")
    if what not in WHAT:
        mistakes.append(f"what: must be one of {', '.join(WHAT)}")
    if not isinstance(subject, str) or not subject or len(subject) > LONGEST or not _is_line(subject):
        mistakes.append("subject: must be the name of a slice or group")
    if comment is not None and (not isinstance(comment, str) or len(comment) > LONGEST or not _is_line(comment)):
        mistakes.append(f"comment: must be one line of at most {LONGEST} letters")
    mistakes += [f"{key}: is not known" for key in body if key not in ("what", "subject", "comment")]
    if mistakes:
        raise Problem("invalid", "; ".join(mistakes), mistakes=mistakes)
    assert isinstance(what, str)
    assert isinstance(subject, str)
    _check_subject(what, subject, known, frozen)
    return what, subject, comment or None


def _is_line(text: str) -> bool:
    return text.isprintable()


def _check_subject(what: str, subject: str, known: Current, frozen: Mapping[str, str]) -> None:
    fleet = known.planned.controller_state.fleet
    if what in ("freeze", "resume"):
        settings = known.planned.settings
        left = {one.group for one in fleet.slices.values()}
        groups = {*settings.by_name, *settings.families, *left, *frozen} - {EVERY_GROUP}
        if subject != EVERY_GROUP and subject not in groups:
            raise _unknown(subject, "group", groups)
        if what == "resume":
            _check_frozen(subject, frozen, settings)
        return
    record = fleet.slices.get(subject)
    if record is None:
        raise _unknown(subject, "slice", fleet.slices)
    if record.state in ENDING:
        raise Problem("already-ending", f"{subject} is {record.state}: {record.reason.why}. Nothing is left to do.")
    if what == "undrain" and (refused := undrain_refused(record)) is not None:
        raise Problem("already-ending", f"{subject} cannot be kept: {refused}.")


def _check_frozen(subject: str, frozen: Mapping[str, str], settings: Settings) -> None:
    """A group, a family or a group of it is frozen by its own name; everything, if anything is."""
    if subject == EVERY_GROUP and frozen:
        return
    if not frozen.keys().isdisjoint({subject, *settings.families.get(subject, ())}):
        return
    configured = settings.by_name.get(subject)
    above = [name for name in ("" if configured is None else configured.group.family, EVERY_GROUP) if name in frozen]
    if not above:
        name = "Nothing" if subject == EVERY_GROUP else subject
        raise Problem(
            "not-frozen", f"{name} is {'' if subject == EVERY_GROUP else 'not '}frozen; nothing is to be done."
        )
    whole = "everything is" if above[0] == EVERY_GROUP else f"its family {above[0]} is"
    raise Problem("not-frozen", f"{subject} itself is not frozen; {whole}: resume {above[0]}.")


def _unknown(name: str, what: str, names: Any) -> Problem:
    near = nearest_names(name[:80], names)
    hint = f" Did you mean {' or '.join(near)}?" if near else " GET /api/v1/status lists them."
    return Problem("unknown-name", f"There is no {what} {name}.{hint}", did_you_mean=near)


class Orders:
    """Orders of one journal."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._keys: dict[tuple[str, str], int] = {}

    def give(self, body: Any, by: str, name: str, key: str | None, now: float) -> dict[str, Any]:
        """Writes an order, or finds the one that was given with the same key."""
        known = self._known()
        if key is not None and (len(key) > LONGEST or not _is_line(key) or not key):
            raise Problem("invalid", "Idempotency-Key must be one line of visible text.", mistakes=["Idempotency-Key"])
        if key is not None and (record := self._with_key(name, key)) is not None:
            if not isinstance(body, Mapping) or (body.get("what"), body.get("subject")) != (
                record.data.get("what"),
                record.subject,
            ):
                raise Problem("invalid", "Idempotency-Key: was used for another order.", mistakes=["Idempotency-Key"])
            return self._document(record)
        if isinstance(body, Mapping) and body.get("what") == "drain" and isinstance(body.get("subject"), str):
            self._check_gone(body["subject"], known)
        state, families = known.planned.controller_state, known.planned.settings.families
        what, subject, comment = checked_order(body, known, frozen_with_orders(self._feed.journal, state, families))
        data = {"what": what, "by": by, **({"comment": comment} if comment else {})}
        if key is not None:
            data |= {"key": key, "token": name}
        seq = self._feed.journal.append([Entry(ORDER, subject, now, data)], epoch=None)
        if key is not None:
            self._keys[name, key] = seq
        self._feed.wake()
        record = order_record(self._feed.journal, seq)
        assert record is not None
        return self._document(record)

    def _check_gone(self, subject: str, known: Current) -> None:
        """Raises the right problem for a name that is not in the current state: a slice may have ended."""
        if subject not in known.planned.controller_state.fleet.slices and len(subject) <= LONGEST and _is_line(subject):
            life = life_of(self._feed.journal, subject)
            if life is not None:
                raise Problem("already-ending", f"{subject} is {life.last.state}: see windlass why {subject}.")

    def _with_key(self, name: str, key: str) -> Record | None:
        journal = self._feed.journal
        if (seq := self._keys.get((name, key))) is not None:
            return order_record(journal, seq)
        for record in journal.read(kinds=(ORDER,), newest_first=True, limit=LOOKED_BACK):
            if record.data.get("key") == key and record.data.get("token") == name and order_in(record) is not None:
                return record
        return None

    def one(self, seq: int) -> dict[str, Any]:
        record = order_record(self._feed.journal, seq)
        if record is None:
            raise Problem("unknown-order", f"There is no order with the number {seq}. GET /api/v1/orders lists them.")
        return self._document(record)

    def newest(self, limit: int) -> list[dict[str, Any]]:
        found = self._feed.journal.read(kinds=(ORDER,), newest_first=True, limit=limit)
        return [self._document(record) for record in found if order_in(record) is not None]

    def _document(self, record: Record) -> dict[str, Any]:
        known = self._known()
        heard, state = applied_upto(self._feed.journal), known.planned.controller_state
        if heard > state.applied_orders.get(HEARD, 0):
            # The feed has not read the pass that processed the order yet; only the newer state has the outcome.
            state = read_state(self._feed.journal)
        return order_dict(record, heard, known.leader.alive, state)

    def _known(self) -> Current:
        if self._feed.current is None:
            raise JournalError(self._feed.problem or "the journal was not read yet")
        return self._feed.current
