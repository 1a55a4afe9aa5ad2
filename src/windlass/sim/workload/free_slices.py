"""This module is an index of slices by free capacity, so that equal slices are tried once."""

from __future__ import annotations

from collections.abc import Iterable

from windlass.core.model.snapshot import Amounts, Demand


class FreeSlices:
    """Every slice with the most of each resource that is free on one of its nodes."""

    def __init__(self) -> None:
        self._free: dict[str, Amounts] = {}
        self._by_free: dict[Amounts, tuple[dict[str, int], dict[str, None]]] = {}
        """What is free, by resource, and who has that."""

    def put(self, slice_id: str, free: Amounts | None) -> None:
        """What a slice offers from now on; None: nothing."""
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
        """Slices on which some of the demand may start. On the others there is not even what the least of it needs."""
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
    """What every waiting task needs at least: where that is not free, none of them can start."""
    least: dict[str, int] | None = None
    for needs in {bundle.needs for demand in demands for bundle in demand.bundles}:
        some = dict(needs)
        least = some if least is None else {kind: min(n, some[kind]) for kind, n in least.items() if kind in some}
    return tuple((least or {}).items())
