"""The work queue holds each key once: the latest value counts, and failures are retried with back-off."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from windlass.kubernetes_api.api import ApiError

Work = Callable[[], Awaitable[None]]

WORKERS: Final = 8
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0


class WorkQueue:
    """Runs queued work with a few workers. ``may_work`` is checked before each item: a controller that does not lead
    writes nothing."""

    def __init__(self, may_work: Callable[[], bool] = lambda: True) -> None:
        self._may_work = may_work
        self._wanted: dict[str, Work] = {}
        self._under_way: set[str] = set()
        self._failures: dict[str, int] = {}
        self.errors: dict[str, str] = {}
        """The last error of each key that is retried."""
        self._added = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._workers: list[asyncio.Task[None]] = []
        self._timers: set[asyncio.TimerHandle] = set()

    def put(self, key: str, work: Work) -> None:
        """Queue work; it replaces queued work under the same key that has not started."""
        self._wanted[key] = work
        self._idle.clear()
        self._added.set()
        if not self._workers:
            self._workers = [asyncio.create_task(self._work(), name=f"kubernetes writer {n}") for n in range(WORKERS)]

    def drop(self, key: str) -> None:
        """Remove queued work and its retries."""
        self._wanted.pop(key, None)
        self._failures.pop(key, None)
        self.errors.pop(key, None)

    def __contains__(self, key: str) -> bool:
        return key in self._wanted or key in self._under_way

    def __len__(self) -> int:
        return len(self._wanted) + len(self._timers)

    async def settle(self) -> None:
        """Wait until the queue is empty and no work is running."""
        await self._idle.wait()

    async def close(self) -> None:
        for timer in self._timers:
            timer.cancel()
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        self._workers = []

    async def _work(self) -> None:
        while True:
            key = next((one for one in self._wanted if one not in self._under_way), None)
            if key is None:
                if not self._wanted and not self._under_way:
                    self._idle.set()
                self._added.clear()
                await self._added.wait()
                continue
            work = self._wanted.pop(key)
            self._under_way.add(key)
            try:
                if self._may_work():
                    await work()
                self._failures.pop(key, None)
                self.errors.pop(key, None)
            except ApiError as error:
                self._again(key, work, str(error), error.retry_after)
            except Exception as error:  # noqa: BLE001  # one odd object must not end the writer of all others
                self._again(key, work, f"{type(error).__name__}: {error}", 0.0)
            finally:
                self._under_way.discard(key)
                self._added.set()

    def _again(self, key: str, work: Work, why: str, after: float) -> None:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self.errors[key] = why
        pause = max(after, min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failures - 1, 8)))
        self._idle.clear()

        def retry() -> None:
            self._timers.discard(timer)
            if key not in self._wanted and key in self.errors:
                self.put(key, work)

        timer = asyncio.get_running_loop().call_later(pause, retry)
        self._timers.add(timer)
