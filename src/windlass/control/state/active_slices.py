"""The roll: of all slices, those that something may happen to by itself; the others are at work, and only counted.

Most slices of a large cluster are ready, healthy and busy, in one pass after the other. No clock runs for them and no
call is due, so a step that looks for clocks and calls goes over those that are astir, and what the others cost is a sum
for each group. A roll is brought along from book to book by what has changed, never by how much is there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .fleet import SliceRecord


@dataclass(frozen=True, slots=True)
class AtWork:
    """The slices of a group that are at work and nothing else, together."""

    slices: int = 0
    price: int = 0
    """Nanodollars per hour."""
    work: int = 0
    """What of it is paid for nodes that have work."""

    def and_(self, record: SliceRecord, sign: int) -> AtWork:
        return AtWork(self.slices + sign, self.price + sign * record.price, self.work + sign * record.price_at_work)


NOBODY: Final = AtWork()


@dataclass(frozen=True, slots=True)
class Roll:
    """Who is astir, and who is at work."""

    astir: Mapping[str, SliceRecord]
    at_work: Mapping[str, AtWork]
    """By group; none that has no such slice."""

    @staticmethod
    def of(records: Iterable[SliceRecord]) -> Roll:
        return Roll({}, {}).after({}, {record.id: record for record in records})

    def after(
        self, before: Mapping[str, SliceRecord], changed: Mapping[str, SliceRecord], over: Collection[str] = ()
    ) -> Roll:
        """The roll once these records have changed or are new and those are over; ``before``: what they were."""
        astir, at_work = dict(self.astir), dict(self.at_work)
        for name in (*changed, *over):
            old = before.get(name)
            if old is not None and old.quiet:
                at_work[old.group] = at_work[old.group].and_(old, -1)
                if not at_work[old.group].slices:
                    del at_work[old.group]
            else:
                astir.pop(name, None)
        for name, new in changed.items():
            if new.quiet:
                at_work[new.group] = at_work.get(new.group, NOBODY).and_(new, 1)
            else:
                astir[name] = new
        return Roll(astir, at_work)
