"""This module reads and checks every row of the journal, and the state of the database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from windlass.journal.encoding import decode_record
from windlass.journal.protocol import JournalCorrupt, JournalHealth

from .checkpoints import States
from .schema import COLUMNS, PAGE


class Health(States):
    """Checks the journal and reports every damaged or missing record, not only the first."""

    def health(self) -> JournalHealth:
        problems: list[str] = []
        try:
            problems += self._integrity()
        except JournalCorrupt as error:
            problems.append(str(error))
        with self._transaction(write=False) as session:
            head = self._read_head(session, lock=False)
            [(stored,)] = session.rows("SELECT COUNT(*) FROM windlass_states")
            states = sum(1 for _ in self._readable_states(session, head))
        records, oldest, previous, gaps = 0, None, 0, []
        try:
            for row in self._raw_rows(head.last_seq):
                try:
                    record = decode_record(row, self.location)
                    oldest = oldest or record
                except JournalCorrupt as error:
                    problems.append(str(error))
                if row[0] > previous + 1:
                    gaps.append(row[0])
                records, previous = records + 1, row[0]
            if previous < head.last_seq:
                gaps.append(head.last_seq + 1)
        except JournalCorrupt as error:  # the table itself cannot be read any further
            problems.append(str(error))
        with self._transaction(write=False) as session:
            # A compaction may have gone on meanwhile.
            compacted_to = self._read_head(session, lock=False).compacted_to
        problems += [f"records are missing before {seq}" for seq in gaps if seq > compacted_to + 1]
        if stored > states:
            problems.append(f"{stored - states} of {stored} saved states cannot be read")
        if compacted_to and not states:
            problems.append("no saved state can be read, and old records are compacted: a restart is not possible")
        return JournalHealth(
            location=self.location,
            size=self._size(),
            records=records,
            last_seq=head.last_seq,
            oldest_seq=oldest.seq if oldest else None,
            oldest_at=oldest.at if oldest else None,
            schema_version=head.schema_version,
            epoch=head.epoch,
            holder=head.holder,
            states=states,
            problems=tuple(problems),
        )

    def _raw_rows(self, high: int) -> Iterator[Any]:
        low = 0
        while True:
            with self._transaction(write=False) as session:
                rows = session.rows(
                    f"SELECT {COLUMNS} FROM windlass_records WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
                    (low, high, PAGE),
                )
            yield from rows
            if len(rows) < PAGE:
                return
            low = rows[-1][0]
