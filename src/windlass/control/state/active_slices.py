"""ActiveSlices tracks the slices that have a pending timer or call. Steady slices are only counted per group.

Most slices of a large cluster are ready, healthy and busy for many passes. No timer runs for them and no call is due,
so a pass iterates over the active ones and uses sums for the rest. The index is updated by what changed, so a pass
costs O(changed), not O(fleet).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .fleet import SliceRecord


@dataclass(frozen=True, slots=True)
class SteadyTotals:
    """Totals over the steady slices of a group."""

    slices: int = 0
    price: int = 0
    """Nanodollars per hour."""
    work: int = 0
    """The part of it for busy nodes."""

    def and_(self, record: SliceRecord, sign: int) -> SteadyTotals:
        return SteadyTotals(
            self.slices + sign, self.price + sign * record.price, self.work + sign * record.price_at_work
        )


NO_SLICES: Final = SteadyTotals()


@dataclass(frozen=True, slots=True)
class ActiveSlices:
    """The active slices, and totals of the steady ones."""

    active: Mapping[str, SliceRecord]
    steady: Mapping[str, SteadyTotals]
    """Totals by group; groups without steady slices are absent."""

    @staticmethod
    def of(records: Iterable[SliceRecord]) -> ActiveSlices:
        return ActiveSlices({}, {}).after({}, {record.id: record for record in records})

    def after(
        self, before: Mapping[str, SliceRecord], changed: Mapping[str, SliceRecord], over: Collection[str] = ()
    ) -> ActiveSlices:
        """Return the index after these records were changed or added and those ended; ``before``: the old records."""
        active, steady = dict(self.active), dict(self.steady)
        for name in (*changed, *over):
            old = before.get(name)
            if old is not None and old.steady:
                steady[old.group] = steady[old.group].and_(old, -1)
                if not steady[old.group].slices:
                    del steady[old.group]
            else:
                active.pop(name, None)
        for name, new in changed.items():
            if new.steady:
                steady[new.group] = steady.get(new.group, NO_SLICES).and_(new, 1)
            else:
                active[name] = new
        return ActiveSlices(active, steady)
