"""Saved states, and the compaction that they make possible.

A restart reads the newest state that can be read and the records after it. So old records may go once two states cover
them: if the newer one is found damaged later, the older still has every record after it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from typing import Any

from .encoding import decode_state, digest, encode, finite
from .protocol import JournalCorrupt
from .tables import PAGE, Head, Session, SqlTables


class States(SqlTables):
    """Saving, finding the newest that can be read, and deleting what no restart needs."""

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

    def latest_state(self) -> tuple[int, Mapping[str, Any]] | None:
        with self._transaction(write=False) as session:
            head = self._read_head(session, lock=False)
            newest = next(self._readable_states(session, head), None)
        if newest is None and head.compacted_to:
            raise self._stateless(head)
        return newest

    def oldest_state(self) -> tuple[int, Mapping[str, Any]] | None:
        with self._transaction(write=False) as session:
            head = self._read_head(session, lock=False)
            [(left,)] = session.rows("SELECT COUNT(*) FROM windlass_records WHERE seq <= ?", (head.compacted_to,))
            if left == head.compacted_to:
                return None
            oldest = None
            for oldest in self._readable_states(session, head):  # noqa: B007  # the newest first
                pass
        if oldest is None:
            raise self._stateless(head)
        return oldest

    def _stateless(self, head: Head) -> JournalCorrupt:
        return JournalCorrupt(
            f"no saved state of the journal {self.location} can be read, and the records up to {head.compacted_to} "
            "are compacted. Restore the journal from a backup; or move it away and start with a new one, which "
            "adopts what the provider shows."
        )

    def _readable_states(self, session: Session, head: Head) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """The newest first. One at a time, for a state can be large."""
        below = head.last_seq + 1
        while found := session.rows(
            "SELECT seq, digest, state FROM windlass_states WHERE seq < ? AND seq >= ? ORDER BY seq DESC LIMIT 1",
            (below, head.compacted_to),
        ):
            [(below, expected, text)] = found
            state = decode_state(below, text, expected)
            if state is not None:
                yield below, state

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
            covering = [seq for seq, _ in islice(self._readable_states(session, head), 2)]
            if len(covering) < 2:
                return 0
            covered = covering[1]
            # The states below are of no use from here on, even when the kill comes before the first record is deleted.
            session.rows("DELETE FROM windlass_states WHERE seq < ?", (covered,))
            session.rows("UPDATE windlass_journal SET compacted_to = ?", (covered,))
        deleted, done = 0, 0
        while True:
            with self._writing() as (session, head):
                if epoch is not None:
                    self._fence(head, epoch)
                rows = session.rows(
                    "SELECT seq, subject FROM windlass_records"
                    f" WHERE seq > ? AND seq <= ? AND {clause} ORDER BY seq LIMIT ?",
                    (done, covered, *values, PAGE),
                )
                doomed = [(seq,) for seq, subject in rows if not kept(subject)]
                if doomed:
                    session.each("DELETE FROM windlass_records WHERE seq = ?", doomed)
            deleted += len(doomed)
            if len(rows) < PAGE:
                break
            done = rows[-1][0]
        if deleted:
            self._give_back_space()
        return deleted
