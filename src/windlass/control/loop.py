"""The loop: observe, fold, plan, decide, commit, act.

One tick reads the workload and every provider at once, each within its time limit; folds what was seen into the book;
plans; writes the changes to the journal in one transaction, before anything is done; and starts the outside calls that
the new book asks for, without waiting for them. The lease is renewed before each commit: a controller that has lost it
writes nothing, starts no call, and stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TypeVar

from windlass.core.lifecycle import State
from windlass.core.plan import Plan
from windlass.core.planner import plan
from windlass.core.snapshot import Cluster, Group
from windlass.journal import Fenced, Journal, Lease, LeaseLost
from windlass.providers.protocol import Provider, ProviderError
from windlass.workloads.protocol import Workload, WorkloadError

from .acting import Actuator
from .bookkeeping import book_data, entries_between, recovered
from .deciding import BackOff, decide, ended, requested, snapshot_of
from .folding import Fold, Seen, TimeLimits, fold
from .records import Book

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Settings:
    """What a controller is told."""

    groups: tuple[Group, ...]
    provider_of: Mapping[str, str]
    """The provider of each group."""
    default_provider: str
    """Where slices of a group that is not configured any more are looked for."""
    cluster: Cluster = field(default_factory=Cluster)
    limits: TimeLimits = field(default_factory=TimeLimits)
    back_off: BackOff = field(default_factory=BackOff)
    observe_timeout: float = 10
    launches_at_once: int = 20
    """Launch calls under way at the same time."""
    lease: float = 15
    holder: str = "controller"
    save_every: int = 100
    """Ticks between saved states: a restart reads no more than what came after the last one."""


class NotLeading(Exception):
    """Another controller has the lease."""


@dataclass(frozen=True, slots=True)
class Tick:
    """What one pass of the loop saw and did; for status and for tests."""

    fold: Fold
    plan: Plan | None
    """None: the workload did not answer, and without it nothing can be planned."""
    book: Book


class Controller:
    """Runs the loop on one journal. Nothing but the journal is needed to go on after a crash."""

    def __init__(
        self,
        settings: Settings,
        providers: Mapping[str, Provider],
        workload: Workload,
        journal: Journal,
        now: Callable[[], float],
    ) -> None:
        self.settings = settings
        self.providers, self.workload, self.journal, self.now = providers, workload, journal, now
        self._groups = {group.name: group for group in settings.groups}
        self._ticks = count(1)

    def start(self) -> None:
        """Take the lease and read the book; ``NotLeading`` while another controller leads."""
        lease = self.journal.acquire(self.settings.holder, self.settings.lease, self.now())
        if lease is None:
            raise NotLeading(f"another controller leads: {self.journal.lease()}")
        self.lease: Lease = lease
        self.book = recovered(self.journal)
        self._numbers = count(self.journal.last_seq() + 1)
        self.actuator = Actuator(self.providers, self.workload, self._provider_of, lease.epoch, self._leads, self.now)

    def _provider_of(self, group: str) -> str:
        return self.settings.provider_of.get(group, self.settings.default_provider)

    def _leads(self) -> bool:
        """Whether the lease has not run out: asked before every outside call."""
        return self.now() < self.lease.expires_at

    def _new_id(self, group: str) -> str:
        """Unique for ever: no two epochs are the same, and no number is used twice in one."""
        return f"{group}-{self.lease.epoch}-{next(self._numbers)}"

    async def tick(self) -> Tick:
        """One pass: observe, fold, plan, decide, commit, act."""
        seen = await self._observe()
        now = self.now()
        folded = fold(self.book, seen, self._groups, self._provider_of, self.settings.limits, now)
        book, planned = folded.book, None
        if seen.view is not None:
            snapshot = snapshot_of(
                book, seen.view, self.settings.groups, self.settings.cluster, self.settings.back_off, now
            )
            planned = plan(snapshot)
            book, _ = decide(book, planned, folded.unknown, self._new_id, now)
        book = self._ask(book, now)
        self._commit(book, now)
        self.actuator.start(book, self._groups)
        return Tick(folded, planned, book)

    # -- observe -----------------------------------------------------------------------------------------------------

    async def _observe(self) -> Seen:
        names = sorted(self.providers)
        lists = asyncio.gather(*(self._within_limit(self.providers[name].list()) for name in names))
        view, instances = await asyncio.gather(self._within_limit(self.workload.observe()), lists)
        refused, self.actuator.refused = tuple(self.actuator.refused), []
        return Seen(dict(zip(names, instances, strict=True)), view, refused)

    async def _within_limit(self, call: Awaitable[T]) -> T | None:
        """The answer, or None for "unknown"."""
        try:
            async with asyncio.timeout(self.settings.observe_timeout):
                return await call
        except (ProviderError, WorkloadError, TimeoutError):
            return None

    # -- decide and commit -------------------------------------------------------------------------------------------

    def _ask(self, book: Book, now: float) -> Book:
        """Queued launches whose turn has come are asked for; unanswered ones again, with the same token."""
        asking = [record for record in book.slices.values() if record.state == State.REQUESTING]
        room = self.settings.launches_at_once - sum(self.actuator.launching(record.id) for record in asking)
        limits = self.settings.limits
        for record in sorted(asking, key=lambda one: (one.since, one.id)):
            due = record.since + limits.requesting * record.attempts / limits.tries
            if now >= due and record.attempts < limits.tries and not self.actuator.launching(record.id):
                book, _ = requested(book, record.id, now)
                room -= 1
        queued = (record for record in book.slices.values() if record.state == State.QUEUED)
        for record in sorted(queued, key=lambda one: (one.since, one.id))[: max(0, room)]:
            if record.group in self._groups:
                book, _ = requested(book, record.id, now)
        return book

    def _commit(self, book: Book, now: float) -> None:
        """Write what changed, in one transaction, under the lease. ``NotLeading`` when it is another's."""
        try:
            self.lease = self.journal.renew(self.lease, now)
            seq = self.journal.append(list(entries_between(self.book, book, now)), epoch=self.lease.epoch)
            gone = ended(book)
            if gone:
                kept = replace(book, slices={name: r for name, r in book.slices.items() if name not in gone})
                seq = self.journal.append(list(entries_between(book, kept, now)), epoch=self.lease.epoch)
                book = kept
            if next(self._ticks) % self.settings.save_every == 0:
                self.journal.save_state(seq, book_data(book), epoch=self.lease.epoch)
        except (Fenced, LeaseLost) as error:
            raise NotLeading(str(error)) from error
        self.book = book

    async def stop(self) -> None:
        """Stop acting and give the lease back. Slices live on."""
        await self.actuator.close()
        self.journal.release(self.lease)
