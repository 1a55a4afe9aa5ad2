"""Cordons records which slices of the simulated workload take no new work, and when that is acknowledged.

Calls may arrive late and in any order. A cordon counts if its epoch is newer than any seen or lifted before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from windlass.workloads.protocol import Acknowledgement


@dataclass(frozen=True, slots=True)
class Cordon:
    """A cordon of a slice, and when the workload acknowledges it."""

    epoch: int
    acknowledged_from: float


class Cordons:
    """Current cordons by slice, and the epochs seen."""

    def __init__(self) -> None:
        self._holding: dict[str, Cordon] = {}
        self._seen: dict[str, int] = {}
        self._voided: dict[str, int] = {}

    def __contains__(self, slice_id: str) -> bool:
        return slice_id in self._holding

    def heeds(self, slice_id: str, epoch: int) -> bool:
        return epoch > max(self._seen.get(slice_id, -1), self._voided.get(slice_id, -1))

    def put(self, slice_id: str, cordon: Cordon) -> None:
        self._seen[slice_id] = cordon.epoch
        self._holding[slice_id] = cordon

    def lift(self, slice_id: str, epoch: int) -> bool:
        """Lift the cordons up to an epoch, including ones that arrive later; return whether there was one."""
        self._voided[slice_id] = max(epoch, self._voided.get(slice_id, -1))
        cordon = self._holding.get(slice_id)
        if cordon is None or cordon.epoch > epoch:
            return False
        del self._holding[slice_id]
        return True

    def holds(self, slice_id: str, epoch: int) -> bool:
        """Whether the current cordon has exactly this epoch."""
        cordon = self._holding.get(slice_id)
        return cordon is not None and cordon.epoch == epoch

    def forget(self, slice_ids: Iterable[str]) -> None:
        for slice_id in slice_ids:
            for known in (self._holding, self._seen, self._voided):
                known.pop(slice_id, None)

    def instants(self) -> list[float]:
        """Return when each is acknowledged; never is infinity."""
        return [cordon.acknowledged_from for cordon in self._holding.values()] if self._holding else []

    def acks(self, now: float, running: Callable[[str], int]) -> tuple[Acknowledgement, ...]:
        """Return the acknowledgements that are due; ``running`` returns the number of tasks on a slice."""
        if not self._holding:
            return ()
        return tuple(
            [
                Acknowledgement(slice_id, cordon.epoch, running(slice_id))
                for slice_id, cordon in sorted(self._holding.items())
                if cordon.acknowledged_from <= now
            ]
        )
