"""Records are numbered without gaps and found by number, kind, subject and time."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Any

from windlass.journal.encoding import check_text, checksum, decode_record, encode_entry
from windlass.journal.protocol import Entry, Record

from .schema import COLUMNS, PAGE, SqlTables


class Records(SqlTables):
    """Appends and reads records."""

    def append(self, entries: Sequence[Entry], *, epoch: int | None) -> int:
        encoded = [encode_entry(entry, index) for index, entry in enumerate(entries)]
        with self._writing() as (session, head):
            if epoch is None:
                epoch = head.epoch
            self._fence(head, epoch)
            if not encoded:
                return head.last_seq
            session.each(
                f"INSERT INTO windlass_records ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(seq, epoch, *row, checksum(seq, epoch, *row)) for seq, row in enumerate(encoded, head.last_seq + 1)],
            )
            last = head.last_seq + len(encoded)
            session.rows("UPDATE windlass_journal SET last_seq = ?", (last,))
        return last

    def last_seq(self) -> int:
        with self._transaction(write=False) as session:
            return self._read_head(session, lock=False).last_seq

    def read(
        self,
        after: int = 0,
        *,
        upto: int | None = None,
        kinds: Collection[str] | None = None,
        subject: str | None = None,
        since: float | None = None,
        until: float | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[Record]:
        if limit is not None and limit < 0:
            raise ValueError(f"limit is {limit}: give 0 or more")
        if isinstance(kinds, str):
            raise ValueError(f"kinds is the text {kinds!r}: give a list, [{kinds!r}]")
        for text in (subject or "", *(kinds or ())):
            check_text(text, "what to look for")
        if since != since or until != until:
            raise ValueError("since and until must be numbers, and not NaN")
        with self._transaction(write=False) as session:
            low, high = max(after, 0), self._read_head(session, lock=False).last_seq
            if since is not None and subject is None:
                # Records of a time span are adjacent, except after clock jumps: the index on time finds
                # their first and last number, and the pages read those in order. "+ 0" keeps the database from
                # scanning the numbers instead until the time fits.
                clause, values = _conditions(since=since, until=until)
                [(first, last)] = session.rows(
                    f"SELECT MIN(seq + 0), MAX(seq + 0) FROM windlass_records WHERE {clause}", values
                )
                low, high = (max(low, first - 1), min(high, last)) if first is not None else (0, 0)
        if upto is not None:
            high = min(high, upto)

        def pages(**columns: Any) -> Iterator[Record]:
            clause, values = _conditions(since=since, until=until, **columns)
            return self._pages(low, high, clause, values, limit, newest_first)

        found: Iterator[Record]
        if kinds is None or subject is not None:
            found = pages(subject=subject, kinds=kinds)
        else:
            # One indexed query per kind, merged: a single query would sort the whole rest for every page.
            parts = [pages(kinds=(kind,)) for kind in sorted(set(kinds))]
            found = heapq.merge(*parts, key=lambda record: record.seq, reverse=newest_first)
        return islice(found, limit)

    def _pages(
        self, low: int, high: int, clause: str, values: list[Any], limit: int | None, newest_first: bool
    ) -> Iterator[Record]:
        left, order = limit, "DESC" if newest_first else "ASC"
        while low < high and left != 0:
            size = PAGE if left is None else min(PAGE, left)
            with self._transaction(write=False) as session:
                rows = session.rows(
                    f"SELECT {COLUMNS} FROM windlass_records"
                    f" WHERE seq > ? AND seq <= ? AND {clause} ORDER BY seq {order} LIMIT ?",
                    (low, high, *values, size),
                )
            for row in rows:
                yield decode_record(row, self.location)
            if len(rows) < size:
                return
            left = None if left is None else left - size
            if newest_first:
                high = rows[-1][0] - 1
            else:
                low = rows[-1][0]


def _conditions(
    *,
    since: float | None = None,
    until: float | None = None,
    subject: str | None = None,
    kinds: Collection[str] | None = None,
) -> tuple[str, list[Any]]:
    """Return a WHERE clause and its values."""
    clauses, values = ["1 = 1"], []
    for clause, value in (("at >= ?", since), ("at < ?", until), ("subject = ?", subject)):
        if value is not None:
            clauses.append(clause)
            values.append(value)
    if kinds is not None:
        clauses.append(f"kind IN ({', '.join('?' * len(kinds))})" if kinds else "1 = 0")
        values += kinds
    return " AND ".join(clauses), values
