"""This module searches what would place the waiting demand, beside the feed."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

from windlass.control.report.current import PlannedState
from windlass.core.model.plan import Unblock, Waiting
from windlass.core.model.snapshot import Snapshot
from windlass.core.planner import unblocks_of

UNBLOCKS_FOR: Final = 30.0
"""Unblocks are reused for this many seconds while the waiting demand does not change."""
FEW: Final = 50
"""With at most this many waiting demands, a message waits a moment for their unblocks."""
SOON: Final = 0.1
BUSY_SHARE: Final = 10
"""Making the status again without records takes at most this fraction (1/n) of the time."""
SEARCH_SHARE: Final = 30
"""Searching unblocks takes at most this fraction (1/n) of the time: a search with many waiting demands slows passes and
messages while it lasts."""
KEPT: Final = 8
"""The unblocks of this many single demands are kept."""


class UnblockSearch:
    """Searches what would place the waiting demand. It needs many plans, so it runs in a thread, and not every pass."""

    def __init__(self, on_found: Callable[[], None]) -> None:
        self.found: Mapping[str, tuple[Unblock, ...]] = {}
        self._on_found = on_found
        self._key: object = None
        self._at, self._took = -1e9, 0.0
        self._search: threading.Thread | None = None
        self._asked: OrderedDict[str, tuple[object, float, tuple[Unblock, ...]]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, planned: PlannedState, *, wait: bool) -> Mapping[str, tuple[Unblock, ...]]:
        """Returns the known unblocks, and starts a search if it is due. ``wait``: waits for its end."""
        waiting = planned.plan.waiting
        if not waiting:
            return {}
        key, age = (tuple(map(_codes, waiting)), id(planned.settings)), time.monotonic() - self._at
        if self._search is None and age > SEARCH_SHARE * self._took and (key != self._key or age > UNBLOCKS_FOR):
            self._key = key
            search = threading.Thread(target=self._run, args=(planned,), name="windlass-unblocks", daemon=True)
            self._search = search
            search.start()
            if wait or len(waiting) <= FEW:
                search.join(None if wait else SOON)
        known = {one.demand for one in waiting}
        return {name: unblocks for name, unblocks in self.found.items() if name in known}

    def of_one(self, snapshot: Snapshot, waiting: Waiting) -> tuple[Unblock, ...]:
        """Returns the unblocks of one demand; reused for a while, because an open panel asks every second."""
        key, now = _codes(waiting), time.monotonic()
        with self._lock:
            known = self._asked.get(waiting.demand)
            if known is not None and known[0] == key and now - known[1] < UNBLOCKS_FOR:
                return known[2]
            found = unblocks_of(snapshot, waiting)
            self._asked[waiting.demand] = (key, now, found)
            while len(self._asked) > KEPT:
                self._asked.popitem(last=False)
            return found

    def _run(self, planned: PlannedState) -> None:
        began = time.monotonic()
        try:
            self.found = planned.plan.unblocks
        finally:
            self._at = time.monotonic()
            self._took = self._at - began
            self._search = None
        if self._took > SOON:
            self._on_found()


def _codes(waiting: Waiting) -> tuple[object, ...]:
    return waiting.demand, waiting.count, tuple((name, reason.code) for name, reason in waiting.groups.items())
