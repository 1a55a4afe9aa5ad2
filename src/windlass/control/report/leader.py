"""This module finds the controller that holds the lease, or that held it last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from windlass.control.record.journal_tables import ORDER
from windlass.journal import Journal


@dataclass(frozen=True, slots=True)
class Leader:
    """The controller that leads or led last."""

    holder: str | None
    """None if it released the lease, or if there was never a lease."""
    epoch: int
    alive: bool
    seen_at: float | None
    """When it last wrote a record or renewed the lease; None if never."""

    def instant(self, now: float) -> float:
        """Returns the time of a report: now, or without a controller the time at which it was last seen."""
        return now if self.alive or self.seen_at is None else self.seen_at

    def to_dict(self) -> dict[str, Any]:
        return {"holder": self.holder, "epoch": self.epoch, "alive": self.alive, "seen_at": self.seen_at}


def leader_of(journal: Journal, now: float) -> Leader:
    """Reads the leader from the lease, judged by the local clock."""
    lease = journal.lease()
    written = next((one for one in journal.read(newest_first=True, limit=50) if one.kind != ORDER), None)
    seen = [] if written is None else [written.at]
    if lease is None:
        return Leader(None, 0 if written is None else written.epoch, False, max(seen, default=None))
    seen.append(lease.expires_at - lease.ttl)
    return Leader(lease.holder, lease.epoch, now < lease.expires_at, min(now, max(seen)))
