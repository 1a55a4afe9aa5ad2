"""The leader lease is one row: who may write, until when, and with which epoch.

Each epoch is given once. Acquiring the lease returns a higher epoch than ever before, in the same transaction that
reads the holder, so two controllers that ask at once never both get it.
"""

from __future__ import annotations

from windlass.journal.encoding import check_holder, finite
from windlass.journal.protocol import Lease, LeaseLost

from .schema import DatabaseSession, SqlTables


class Leases(SqlTables):
    """Acquires, renews and releases the lease."""

    def acquire(self, holder: str, ttl: float, now: float | None) -> Lease | None:
        check_holder(holder)
        length = _positive(ttl)
        with self._writing() as (session, head):
            time = self._time(session, now)
            if head.holder not in (None, holder) and time < head.expires_at:
                if head.expires_at > time + head.ttl:
                    # No lease lasts longer than its ttl, so the clock was set back. The lease counts from the new time
                    # on.
                    session.rows("UPDATE windlass_journal SET expires_at = ?", (time + head.ttl,))
                return None
            lease = Lease(holder, head.epoch + 1, length, time + length)
            self._store(session, lease)
        return lease

    def renew(self, lease: Lease, now: float | None) -> Lease:
        with self._writing() as (session, head):
            if (head.epoch, head.holder) != (lease.epoch, lease.holder):
                raise LeaseLost(
                    f"{lease.holder} has lost its lease on the journal {self.location}: "
                    + (f"{head.holder} leads now" if head.holder else "it was released")
                )
            renewed = Lease(lease.holder, lease.epoch, lease.ttl, self._time(session, now) + lease.ttl)
            self._store(session, renewed)
        return renewed

    def release(self, lease: Lease) -> None:
        with self._writing() as (session, head):
            if (head.epoch, head.holder) == (lease.epoch, lease.holder):
                session.rows("UPDATE windlass_journal SET holder = NULL")

    def lease(self) -> Lease | None:
        with self._transaction(write=False) as session:
            return self._read_head(session, lock=False).lease

    def _store(self, session: DatabaseSession, lease: Lease) -> None:
        session.rows(
            "UPDATE windlass_journal SET epoch = ?, holder = ?, ttl = ?, expires_at = ?",
            (lease.epoch, lease.holder, lease.ttl, lease.expires_at),
        )

    def _time(self, session: DatabaseSession, now: float | None) -> float:
        """Return the time; read after the lock is taken, so that the wait does not shorten the lease."""
        return self._database_time(session) if now is None else finite(now, "now")


def _positive(ttl: float) -> float:
    length = finite(ttl, "ttl")
    if length <= 0:
        raise ValueError(f"ttl is {ttl}: give more than 0 seconds")
    return length
