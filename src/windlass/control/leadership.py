"""Leadership holds the leader lease on the journal.

Expiry is measured with the monotonic clock, from before the request was sent, so the remaining time is never
overestimated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from windlass.journal import Fenced, Journal, LeaseLost

from .settings import Leadership

PROMPT = 0.5
"""Seconds within which the database must answer so that its clock can be compared with ours."""


class NotLeading(Exception):
    """Another controller has the lease."""


class Leading:
    """The leader lease of this process. Raises ``NotLeading`` while another controller has it."""

    def __init__(
        self, journal: Journal, leadership: Leadership, now: Callable[[], float], steady: Callable[[], float]
    ) -> None:
        self._journal, self._now, self._steady = journal, now, steady
        self.shared_clock: float | None = None
        """Seconds by which the clock of the database, which all controllers share, is ahead of our steady clock. None:
        there is no such clock, or it has not answered promptly yet.
        """
        asked_at = steady()
        lease = journal.acquire(leadership.holder, leadership.lease, self._lease_time())
        if lease is None:
            other = journal.lease()
            raise NotLeading(f"{other.holder} leads" if other else "another controller leads")
        self._lease = lease
        self._count_from(asked_at)

    @property
    def epoch(self) -> int:
        """The fencing epoch. Every append and every changing call to a provider carries it."""
        return self._lease.epoch

    def leads(self) -> bool:
        """Whether the lease is still valid; checked before every outside call. Measured by the steady clock from before
        the request, so that neither a clock that is set nor a slow database extends it.
        """
        return self._steady() < self._until

    def time_stopped(self, elapsed: float) -> float:
        """Return ``elapsed``, the time between two passes, if this process must have been stopped in it, else 0.

        A leader makes a pass at every renewal of its lease, so it does not wait for the whole lease.
        """
        return elapsed if elapsed > self._lease.ttl else 0.0

    @property
    def renews_in(self) -> float:
        """Seconds until the lease is to be renewed."""
        return max(0.0, self._renew_at - self._steady())

    @property
    def is_due(self) -> bool:
        """Whether it is time to renew the lease."""
        return self._steady() >= self._renew_at

    def renew(self) -> None:
        """Renew the lease if it is time."""
        asked_at = self._steady()
        if asked_at < self._renew_at:
            return
        with self.writing():
            self._lease = self._journal.renew(self._lease, self._lease_time())
        self._count_from(asked_at)

    def release(self) -> None:
        """Release the lease, so that another controller need not wait until it expires."""
        self._journal.release(self._lease)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A context for writes under the epoch: a refusal by the journal becomes ``NotLeading``."""
        try:
            yield
        except (Fenced, LeaseLost) as error:
            raise NotLeading(str(error)) from error

    def _lease_time(self) -> float | None:
        return None if self._journal.own_clock else self._now()

    def _count_from(self, asked_at: float) -> None:
        self._until, self._renew_at = asked_at + self._lease.ttl, asked_at + self._lease.ttl / 3
        answered_at = self._steady()
        if self._journal.own_clock and answered_at - asked_at <= PROMPT:
            self.shared_clock = self._lease.expires_at - self._lease.ttl - (asked_at + answered_at) / 2
