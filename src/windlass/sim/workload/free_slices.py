"""This module is an index of slices by free capacity, so that equal slices are tried once."""

from __future__ import annotations

from collections.abc import Iterable

from windlass.core.model.snapshot import Amounts, Demand


class FreeSlices:
    """Index of slices by the largest free amount of each resource on one node."""

    def __init__(self) -> None:
        self._free: dict[str, Amounts] = {}
        self._by_free: dict[Amounts, tuple[dict[str, int], dict[str, None]]] = {}
        """Slices by free amount, for each resource."""

    def put(self, slice_id: str, free: Amounts | None) -> None:
        """Set what a slice offers; None: nothing."""
        before = self._free.pop(slice_id, None)
        if before is not None:
            _, alike = self._by_free[before]
            del alike[slice_id]
            if not alike:
                del self._by_free[before]
        if free is not None:
            self._free[slice_id] = free
            if free not in self._by_free:
                self._by_free[free] = dict(free), {}
            self._by_free[free][1][slice_id] = None

    def with_room(self, demands: Iterable[Demand]) -> list[str]:
        """Return the slices on which some demand may start; the others have less than the smallest task needs."""
        if not self._by_free:
            return []
        least, found = _least(demands), list[str]()
        for free, slices in self._by_free.values():
            for kind, some in least:
                if free.get(kind, 0) < some:
                    break
            else:
                found += slices
        return found


def _least(demands: Iterable[Demand]) -> Amounts:
    """Return the smallest needs over all waiting tasks: where they are not free, no task can start."""
    least: dict[str, int] | None = None
    for needs in {bundle.needs for demand in demands for bundle in demand.bundles}:
        some = dict(needs)
        least = some if least is None else {kind: min(n, some[kind]) for kind, n in least.items() if kind in some}
    return tuple((least or {}).items())
