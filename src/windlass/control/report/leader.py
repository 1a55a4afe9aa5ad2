"""This document names the controller that holds the lease, or that held it last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from windlass.control.record.journal_tables import ORDER
from windlass.journal import Journal


@dataclass(frozen=True, slots=True)
class Leader:
    """The controller that leads, or led last."""

    holder: str | None
    """None: it gave the lease back, or there never was one."""
    epoch: int
    alive: bool
    seen_at: float | None
    """When it last showed itself; None: never."""

    def instant(self, now: float) -> float:
        """What a report is as of: without a controller the countdowns stand where they stood when it was last seen."""
        return now if self.alive or self.seen_at is None else self.seen_at

    def to_dict(self) -> dict[str, Any]:
        return {"holder": self.holder, "epoch": self.epoch, "alive": self.alive, "seen_at": self.seen_at}


def leader_of(journal: Journal, now: float) -> Leader:
    """The leader by the lease, as far as it can be seen by our clock."""
    lease = journal.lease()
    written = next((one for one in journal.read(newest_first=True, limit=50) if one.kind != ORDER), None)
    seen = [] if written is None else [written.at]
    if lease is None:
        return Leader(None, 0 if written is None else written.epoch, False, max(seen, default=None))
    seen.append(lease.expires_at - lease.ttl)
    return Leader(lease.holder, lease.epoch, now < lease.expires_at, min(now, max(seen)))
