"""The service runs passes when something happens, and at the latest after the maximum interval.

It wakes on a change in the workload, a finished call, a deadline, or an order in the journal. A minimum interval keeps
it from spinning. While another controller leads, it stands by, and takes over when that lease has expired.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from math import inf
from typing import TypeVar

from windlass.control.reconcile.pool_settings import OverrideSettings, unchanged_settings
from windlass.journal import Journal, JournalError, JournalUnavailable, JournalVersion
from windlass.providers.protocol import Provider
from windlass.workloads.protocol import Workload

from .controller import Controller, Overtaken, Pass
from .journal_thread import JournalThread, Offload, inline
from .leadership import NotLeading
from .settings import Leadership, Settings

T = TypeVar("T")

ORDERS_EVERY = 0.5
"""Seconds between two checks for new orders; a check reads one row."""
COMPACT_EVERY = 3600.0
STOP_WITHIN = 1.5
"""Seconds that a stop waits for the pass under way, and then for the release of the lease."""
HUNG_WITHIN = 0.2
"""Seconds that a stop waits for the release of the lease if the pass did not end in time: the journal hangs, and the
lease expires anyway.
"""
DEPENDABLE = ("settings",)
"""Kinds of records that are never compacted: without them old decisions cannot be understood."""


class _Stopped(Exception):
    """The service was stopped during a call that takes too long."""


class Service:
    """Keeps a controller running until it is stopped."""

    def __init__(
        self,
        settings: Settings,
        providers: Mapping[str, Provider],
        workload: Workload,
        journal: Journal,
        *,
        leadership: Leadership,
        retention: float,
        now: Callable[[], float],
        steady: Callable[[], float],
        clock_name: str = "",
        on_pass: Callable[[Pass], None] = lambda _: None,
        on_message: Callable[[str], None] = lambda _: None,
        on_lead: Callable[[str], None] | None = None,
        on_alarm: Callable[[str], None] | None = None,
        override_settings: OverrideSettings = unchanged_settings,
        offload: Offload = inline,
    ) -> None:
        """``on_pass`` gets every pass, ``on_message`` every other message for people. ``on_lead`` gets the message that
        it leads, and ``on_alarm`` those about errors that stop its work (default of both: ``on_message``).
        ``clock_name``, ``override_settings`` and ``offload`` as for a controller.
        """
        self._wake, self._stop = asyncio.Event(), asyncio.Event()
        self._on_pass, self._on_message, self._on_lead = on_pass, on_message, on_lead or on_message
        self._on_alarm = on_alarm or on_message
        self._retention, self._journal = retention, journal
        self._reported = ""
        self._changed: asyncio.Task[None] | None = None
        self._compacted_at = -inf  # at once: a controller that restarts often would never compact
        self.controller = Controller(
            settings,
            providers,
            workload,
            journal,
            now=now,
            steady=steady,
            clock_name=clock_name,
            leadership=leadership,
            wake=self._wake.set,
            override_settings=override_settings,
            offload=offload,
        )
        self._offload = offload
        # On a thread of its own, so that other calls do not wait; it yields after every page.
        self._compaction: Offload = offload if offload is inline else JournalThread("journal compaction")
        self._compacting: asyncio.Task[None] | None = None
        self.leading = False

    @property
    def problem(self) -> str:
        """Why nothing is done at the moment; empty otherwise."""
        return self._reported

    def stop(self) -> None:
        """Stop the service; slices keep running."""
        self._stop.set()
        self._wake.set()

    async def reconfigure(self, settings: Settings, providers: Mapping[str, Provider], workload: Workload) -> None:
        """Replace the settings; after ``IncompatibleConfig`` the old ones stay."""
        if self.leading:
            await self.controller.reconfigure(settings, providers, workload)
        else:
            self.controller.settings, self.controller.providers = settings, dict(providers)
            self.controller.workload = workload
        self._forget_change()
        self._wake.set()

    async def run(self) -> None:
        """Lead or stand by, until ``stop``."""
        try:
            while not self._stop.is_set():
                self._wake.clear()  # a wake-up that came while it was leading must not end the stand-by wait
                try:
                    await self._or_stopped(self._offload(self.controller.start))
                except _Stopped:
                    return
                except NotLeading as error:
                    self._report(f"standing by: {error}")
                    await self._sleep(self.controller.leadership.lease / 3)
                except JournalError as error:
                    self._report(f"the journal: {error}", alarm=True)
                    await self._sleep(self.controller.settings.policy.evaluation_interval.max)
                else:
                    await self._lead()
        finally:
            self._forget_change()

    async def _lead(self) -> None:
        self.leading = True
        self._on_lead(f"leading as {self.controller.leadership.holder}")
        self._reported = ""
        watching, release_within = asyncio.create_task(self._watch_orders()), STOP_WITHIN
        try:
            while not self._stop.is_set():
                begun = self.controller.steady()
                self._wake.clear()
                try:
                    self._on_pass(await self._or_stopped(self.controller.tick()))
                    self._report("")
                except _Stopped:
                    release_within = HUNG_WITHIN
                    return
                except NotLeading as error:
                    self._report(f"not leading any more: {error}")
                    return
                except Overtaken as error:
                    self._report(f"stopping: {error}", alarm=True)
                    raise
                except JournalUnavailable as error:
                    text = f"nothing is done, because a write to the journal was not confirmed: {error}"
                    self._report(text, alarm=True)
                    return  # the state is read again from the journal, with what was written or without it
                except JournalVersion as error:
                    self._report(f"not leading any more: {error}", alarm=True)
                    return  # it can no longer write, so the lease expires and the newer version takes over
                except JournalError as error:
                    self._report(f"nothing is done, because the journal cannot be written: {error}", alarm=True)
                except Exception as error:  # noqa: BLE001  # nothing was committed in it; the next may go better
                    self._report(f"a pass failed, please report it: {type(error).__name__}: {error}", alarm=True)
                self._compact()
                await self._pause(begun)
        finally:
            self.leading = False
            watching.cancel()
            if self._compacting is not None:
                self._compacting.cancel()
            # A journal that hangs does not delay the stop: the lease expires.
            with suppress(JournalError, TimeoutError):
                async with asyncio.timeout(release_within):
                    await self.controller.stop()

    # -- waiting ------------------------------------------------------------------------------------------------------

    async def _pause(self, begun: float) -> None:
        """Wait until something happens or is due, and at least for the minimum interval since the pass began."""
        controller = self.controller
        interval = controller.settings.policy.evaluation_interval
        self._listen()
        due = controller.next_deadline()
        left = interval.max if due is None else min(interval.max, due - controller.now())
        await self._sleep(max(0.001, min(left, controller.leading.renews_in)))
        least = begun + interval.min - controller.steady()
        if least > 0 and not self._stop.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(least):
                    await self._stop.wait()

    async def _sleep(self, seconds: float) -> None:
        """Wait until it is woken, or the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    def _listen(self) -> None:
        """Wake up on the workload's next change. Started again after each observation."""
        if self._changed is None or self._changed.done():
            self._changed = asyncio.create_task(self._wait_for_change())

    async def _wait_for_change(self) -> None:
        with suppress(Exception):  # a workload that cannot notify is observed by the clock
            await self.controller.workload.changed()
            self._wake.set()

    def _forget_change(self) -> None:
        if self._changed is not None:
            self._changed.cancel()
            self._changed = None

    async def _watch_orders(self) -> None:
        while True:
            await asyncio.sleep(ORDERS_EVERY)
            with suppress(JournalError):
                if await self._offload(self._journal.last_seq) > self.controller.controller_state.seq:
                    self._wake.set()

    def _compact(self) -> None:
        """Delete records that are no longer needed, from time to time, in parallel with the loop."""
        controller = self.controller
        busy = self._compacting is not None and not self._compacting.done()
        if busy or controller.steady() - self._compacted_at < COMPACT_EVERY:
            return
        self._compacted_at = controller.steady()
        before, live = controller.now() - self._retention, frozenset(controller.controller_state.fleet.slices)
        epoch, journal = controller.leading.epoch, self._journal

        async def compact() -> None:
            with suppress(JournalError):
                await self._compaction(
                    lambda: journal.compact(before, keep_kinds=DEPENDABLE, keep_subjects=live, epoch=epoch)
                )

        self._compacting = asyncio.create_task(compact())

    async def _or_stopped(self, awaited: Awaitable[T]) -> T:
        """Return the result of an awaitable; raise ``_Stopped`` if it takes too long after a stop."""
        task, stop = asyncio.ensure_future(awaited), asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait([task, stop], return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                await asyncio.wait([task], timeout=STOP_WITHIN)
            if not task.done():
                task.cancel()
                await asyncio.wait([task], timeout=0.1)
                raise _Stopped
            return task.result()
        finally:
            stop.cancel()
            if not task.done():
                task.cancel()

    def _report(self, text: str, *, alarm: bool = False) -> None:
        """Report a message once while it stays the same."""
        if text and text != self._reported:
            (self._on_alarm if alarm else self._on_message)(text)
        self._reported = text
