"""DemandTable sorts the demand of a snapshot once, for all drafts that are made from it."""

from __future__ import annotations

from windlass.core.demand import Alike, Level, alike, levels
from windlass.core.model.snapshot import Demand, Gang, Snapshot

from .groups import GroupTable


class DemandTable:
    """The demand of a snapshot: what can be served, and what cannot."""

    def __init__(self, snapshot: Snapshot, group_table: GroupTable) -> None:
        self._group_table, mistakes = group_table, False
        self._levels: dict[tuple[frozenset[Gang], tuple[str, ...], bool], tuple[Level, ...]] = {}
        self._able: list[Alike] = []
        self.gangs: list[Demand] = []
        """All gangs, also those that cannot be served."""
        self.invalid: list[tuple[Demand, str]] = []
        """Demands that no machine could run, each with its mistake."""
        self.held: list[Demand] = []
        """Demands that no machine would help, according to their workload."""
        self.late_gangs: list[Demand] = []
        """Gangs past their deadline, which are no longer served."""
        self.different: list[Demand] = []
        """All demand, but of demands that differ only in their ids and times perhaps only one."""
        for demand, ids in alike(snapshot.demands):
            gang = demand.gang
            self.different.append(demand)
            if gang is not None:
                self.gangs.append(demand)
            if demand.mistake:
                mistakes = True
            elif demand.held:
                self.held.append(demand)
            elif gang is not None and demand.deadline is not None and snapshot.now >= demand.deadline:
                self.late_gangs.append(demand)
            else:
                self._able.append((demand, ids))
        if mistakes:
            self.invalid = [(one, mistake) for one in snapshot.demands if (mistake := one.mistake)]

    def in_order(
        self, gangs_as_singles: frozenset[Gang], classes: tuple[str, ...], *, as_one: bool
    ) -> tuple[Level, ...]:
        """Returns the demand that can be served, by priority; for the arguments see ``levels``."""
        key = gangs_as_singles, classes, as_one
        if key not in self._levels:
            table = self._group_table
            self._levels[key] = levels(
                self._able,
                table.kinds,
                table.largest,
                gangs_as_singles=gangs_as_singles,
                classes=classes,
                as_one=as_one,
            )
        return self._levels[key]
