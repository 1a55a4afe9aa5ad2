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
class SteadyTotals:
    """The slices of a group that are at work and nothing else, together."""

    slices: int = 0
    price: int = 0
    """Nanodollars per hour."""
    work: int = 0
    """What of it is paid for nodes that have work."""

    def and_(self, record: SliceRecord, sign: int) -> SteadyTotals:
        return SteadyTotals(
            self.slices + sign, self.price + sign * record.price, self.work + sign * record.price_at_work
        )


NOBODY: Final = SteadyTotals()


@dataclass(frozen=True, slots=True)
class ActiveSlices:
    """Who is astir, and who is at work."""

    active: Mapping[str, SliceRecord]
    steady: Mapping[str, SteadyTotals]
    """By group; none that has no such slice."""

    @staticmethod
    def of(records: Iterable[SliceRecord]) -> ActiveSlices:
        return ActiveSlices({}, {}).after({}, {record.id: record for record in records})

    def after(
        self, before: Mapping[str, SliceRecord], changed: Mapping[str, SliceRecord], over: Collection[str] = ()
    ) -> ActiveSlices:
        """The roll once these records have changed or are new and those are over; ``before``: what they were."""
        active, steady = dict(self.active), dict(self.steady)
        for name in (*changed, *over):
            old = before.get(name)
            if old is not None and old.quiet:
                steady[old.group] = steady[old.group].and_(old, -1)
                if not steady[old.group].slices:
                    del steady[old.group]
            else:
                active.pop(name, None)
        for name, new in changed.items():
            if new.quiet:
                steady[new.group] = steady.get(new.group, NOBODY).and_(new, 1)
            else:
                active[name] = new
        return ActiveSlices(active, steady)
