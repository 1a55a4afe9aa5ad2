"""This module writes checkpoints, and compacts the journal as far as they allow.

A restart reads the newest readable checkpoint and the records after it; a question about the past reads the newest one
before that instant. Old records can be deleted once a checkpoint covers them that is itself older than the retention,
and another one after it: if the newer turns out to be damaged, the older still has every record after it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from windlass.journal.encoding import decode_state, digest, encode, finite
from windlass.journal.protocol import JournalCorrupt

from .schema import PAGE, DatabaseSession, Head, SqlTables


class States(SqlTables):
    """Saves checkpoints, finds the newest readable one, and deletes records that no restart needs."""

    def save_state(self, seq: int, state: Mapping[str, Any], *, epoch: int | None = None) -> None:
        text = encode(state, "state")
        with self._writing() as (session, head):
            if epoch is not None:
                self._fence(head, epoch)
            if not head.compacted_to <= seq <= head.last_seq:
                raise ValueError(
                    f"a state up to record {seq} cannot be saved: the journal {self.location} has records "
                    f"{head.compacted_to + 1} to {head.last_seq}"
                )
            session.rows("DELETE FROM windlass_states WHERE seq = ?", (seq,))
            session.rows(
                "INSERT INTO windlass_states (seq, digest, state) VALUES (?, ?, ?)", (seq, digest(seq, text), text)
            )

    def latest_state(self, before: float | None = None) -> tuple[int, Mapping[str, Any]] | None:
        limit = None if before is None else finite(before, "before")
        with self._transaction(write=False) as session:
            head = self._read_head(session, lock=False)
            below = None if limit is None else self._first_since(session, limit)
            newest = next(self._readable_states(session, head, below), None)
        if newest is None and before is None and head.compacted_to:
            raise self._stateless(head)
        return newest

    def oldest_state(self) -> tuple[int, Mapping[str, Any]] | None:
        with self._transaction(write=False) as session:
            head = self._read_head(session, lock=False)
            [(left,)] = session.rows("SELECT COUNT(*) FROM windlass_records WHERE seq <= ?", (head.compacted_to,))
            if left == head.compacted_to:
                return None
            oldest = next(self._readable_states(session, head, newest_first=False), None)
        if oldest is None:
            raise self._stateless(head)
        return oldest

    def _stateless(self, head: Head) -> JournalCorrupt:
        return JournalCorrupt(
            f"no saved state of the journal {self.location} can be read, and the records up to {head.compacted_to} "
            "are compacted. Restore the journal from a backup; or move it away and start with a new one, which "
            "adopts what the provider shows."
        )

    def _first_since(self, session: DatabaseSession, instant: float) -> int | None:
        """Return the number of the first record at that time or later."""
        found = session.rows("SELECT seq FROM windlass_records WHERE at >= ? ORDER BY at, seq LIMIT 1", (instant,))
        return found[0][0] if found else None

    def _readable_states(
        self, session: DatabaseSession, head: Head, below: int | None = None, *, newest_first: bool = True
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield the checkpoints below that number, fetched one at a time, because a state can be large."""
        numbers = session.rows(
            "SELECT seq FROM windlass_states WHERE seq >= ? AND seq < ? "
            f"ORDER BY seq {'DESC' if newest_first else 'ASC'}",
            (head.compacted_to, head.last_seq + 1 if below is None else below),
        )
        for (seq,) in numbers:
            for expected, text in session.rows("SELECT digest, state FROM windlass_states WHERE seq = ?", (seq,)):
                state = decode_state(seq, text, expected)
                if state is not None:
                    yield seq, state

    def compact(
        self,
        before: float,
        *,
        keep_kinds: Collection[str] = (),
        keep_subjects: Collection[str] | Callable[[str], bool] = (),
        epoch: int | None = None,
    ) -> int:
        limit = finite(before, "before")
        if isinstance(keep_kinds, str) or isinstance(keep_subjects, str):
            raise ValueError("keep_kinds and keep_subjects are lists: put the one name into a list")
        kept = keep_subjects if callable(keep_subjects) else frozenset(keep_subjects).__contains__
        clause, values = "at < ?", [limit, *keep_kinds]
        if keep_kinds:
            clause += f" AND kind NOT IN ({', '.join('?' * len(keep_kinds))})"
        with self._writing() as (session, head):
            if epoch is not None:
                self._fence(head, epoch)
            newest = next((seq for seq, _ in self._readable_states(session, head)), 0)
            first = self._first_since(session, limit)
            below = newest if first is None else min(newest, first)
            covered = next((seq for seq, _ in self._readable_states(session, head, below)), None)
            if covered is None:
                return 0
            # Older checkpoints are useless from here on, even if a kill comes before the first record is deleted.
            session.rows("DELETE FROM windlass_states WHERE seq < ?", (covered,))
            session.rows("UPDATE windlass_journal SET compacted_to = ?", (covered,))
        deleted, done = 0, 0
        while True:
            with self._writing() as (session, head):
                if epoch is not None:
                    self._fence(head, epoch)
                rows = session.rows(
                    "SELECT seq, subject FROM windlass_records"
                    f" WHERE seq > ? AND seq < ? AND {clause} ORDER BY seq LIMIT ?",
                    (done, covered, *values, PAGE),  # its last record stays: it has the time of the state
                )
                doomed = [(seq,) for seq, subject in rows if not kept(subject)]
                if doomed:
                    session.each("DELETE FROM windlass_records WHERE seq = ?", doomed)
            deleted += len(doomed)
            if len(rows) < PAGE:
                break
            done = rows[-1][0]
            time.sleep(0.001)  # let a writer in another thread run between two pages
        if deleted:
            self._give_back_space()
        return deleted
