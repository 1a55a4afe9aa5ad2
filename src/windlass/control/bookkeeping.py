"""The book in the journal: what a change of the book is as entries, and the book that entries add up to.

A record is written whole whenever it changes, so the newest entry about a slice is its record. What the workload shows
of its nodes is not written: it is seen again at the first look after a restart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from windlass.core.lifecycle import State
from windlass.core.reasons import Code, Reason
from windlass.journal import Entry, Journal

from .records import Book, Failure, Luck, SliceRecord

SLICE, LUCK, FORGOTTEN = "slice", "luck", "forgotten"


def entries_between(before: Book, after: Book, at: float) -> Iterator[Entry]:
    """What must be written so that ``recovered`` gives the later book."""
    for name, record in sorted(after.slices.items()):
        old = before.slices.get(name)
        if old is None or _without_sight(old) != _without_sight(record):
            yield Entry(SLICE, name, at, record_data(record))
    for name in sorted(before.slices.keys() - after.slices.keys()):
        yield Entry(FORGOTTEN, name, at, {})
    for group, luck in sorted(after.luck.items()):
        if before.luck.get(group) != luck:
            yield Entry(LUCK, group, at, luck_data(luck))


def _without_sight(record: SliceRecord) -> SliceRecord:
    return replace(record, nodes=())


def recovered(journal: Journal) -> Book:
    """The book as it was committed last."""
    start = journal.latest_state()
    seq, book = (0, Book()) if start is None else (start[0], book_from(start[1]))
    slices, luck = dict(book.slices), dict(book.luck)
    for record in journal.read(after=seq, kinds=(SLICE, LUCK, FORGOTTEN)):
        if record.kind == SLICE:
            slices[record.subject] = record_from(record.data)
        elif record.kind == LUCK:
            luck[record.subject] = luck_from(record.data)
        else:
            slices.pop(record.subject, None)
    return Book(slices, luck)


def book_data(book: Book) -> dict[str, Any]:
    """The whole book, for a saved state."""
    return {
        "slices": [record_data(record) for _, record in sorted(book.slices.items())],
        "luck": {group: luck_data(luck) for group, luck in sorted(book.luck.items())},
    }


def book_from(data: Mapping[str, Any]) -> Book:
    records = [record_from(one) for one in data["slices"]]
    return Book(
        {record.id: record for record in records}, {group: luck_from(one) for group, one in data["luck"].items()}
    )


def record_data(record: SliceRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "group": record.group,
        "state": str(record.state),
        "since": record.since,
        "started_for": _reason_data(record.started_for),
        "reason": _reason_data(record.reason),
        "attempts": record.attempts,
        "seen": record.seen,
        "marked_until": record.marked_until,
        "fence": record.fence,
        "certificate": record.certificate,
        "missing_since": record.missing_since,
        "quarantine": record.quarantine,
    }


def record_from(data: Mapping[str, Any]) -> SliceRecord:
    return SliceRecord(
        **{
            **data,
            "state": State(data["state"]),
            "started_for": _reason_from(data["started_for"]),
            "reason": _reason_from(data["reason"]),
        }
    )


def _reason_data(reason: Reason) -> dict[str, str]:
    return {"code": str(reason.code), "why": reason.why}


def _reason_from(data: Mapping[str, str]) -> Reason:
    return Reason(Code(data["code"]), data["why"])


def luck_data(luck: Luck) -> dict[str, Any]:
    return {
        "failures": [{"at": failure.at, "code": str(failure.code)} for failure in luck.failures],
        "quota_until": luck.quota_until,
        "last_error": luck.last_error,
    }


def luck_from(data: Mapping[str, Any]) -> Luck:
    failures = tuple(Failure(one["at"], Code(one["code"])) for one in data["failures"])
    return Luck(failures, data["quota_until"], data["last_error"])
