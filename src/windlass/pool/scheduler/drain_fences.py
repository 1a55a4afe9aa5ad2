"""A Fence of a slice holds the epoch that cordons it, and the epoch up to which every cordon is void."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Fence:
    """Of one slice. A cordon that comes late, or an uncordon of the past, changes nothing."""

    cordon: int = 0
    void: int = 0

    @property
    def up(self) -> bool:
        return self.cordon > self.void

    def raise_to(self, epoch: int) -> None:
        if epoch > self.void:
            self.cordon = max(self.cordon, epoch)

    def lift(self, epoch: int) -> None:
        if epoch >= self.cordon:
            self.void = max(self.void, epoch)
