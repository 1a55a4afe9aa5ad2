"""The server object holds what the routes use: the feed of one journal, its streams, metrics, orders and replays."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from windlass.config.server import ServerConfig
from windlass.control.settings import Settings
from windlass.journal import Journal
from windlass.server.access.tokens import TokenFile
from windlass.server.live.feed import Current, Feed
from windlass.server.live.stream import Broadcast
from windlass.server.metrics import Metrics
from windlass.server.problems import Problem

from .orders import Orders
from .what_if import WhatIf

HISTORIES: Final = 2
"""How many documents about the past are made at the same time."""
DOCTOR_EVERY: Final = 10.0
"""A document of the doctor is reused for this many seconds."""


@dataclass
class Server:
    """Everything that the routes use."""

    journal: Journal
    location: str
    """The location of the journal, which a replay opens."""
    config: ServerConfig
    settings: Callable[[], Settings]
    tokens: TokenFile
    doctor: Callable[[], dict[str, Any]] | None = None
    """Makes the document of ``windlass doctor``."""
    more: Callable[[], Mapping[str, Any]] = dict
    """What the command line adds to a status document, such as the jobs of a queue."""
    job: Callable[[str], dict[str, Any] | None] = lambda _: None
    """Returns a job of the workload by name, with its tasks and how the failed ones ended; None if there is none."""
    names: Callable[[str], list[str]] = lambda name: [name]
    """Returns the names that an object may have in the journal, likeliest first: pods and nodes have others there."""
    now: Callable[[], float] = time.time
    feed: Feed = field(init=False)
    streams: Broadcast = field(init=False)
    metrics: Metrics = field(init=False)
    orders: Orders = field(init=False)
    what_if: WhatIf = field(init=False)
    started: float = field(init=False)
    used_links: set[str] = field(default_factory=set)
    on_records: list[Callable[[list[Any]], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.feed = Feed(
            self.journal,
            self.settings,
            keep=self.config.stream_passes,
            now=self.now,
            more=self.more,
            on_message=lambda message: self.streams.publish(message),
            on_records=self._records,
        )
        self.streams = Broadcast(self.feed, self.config.max_streams)
        self.metrics = Metrics(self.feed, self.journal, self.location)
        self.metrics.streams = lambda: len(self.streams.readers)
        self.metrics.resyncs = lambda: self.streams.resyncs
        self.orders = Orders(self.feed)
        self.what_if = WhatIf(self.location, self.config.what_if_timeout)
        self.started = self.now()
        self._doctor: tuple[float, dict[str, Any]] | None = None
        self._doctor_turn = asyncio.Lock()
        self._history = asyncio.Semaphore(HISTORIES)

    def _records(self, records: list[Any]) -> None:
        self.metrics.add(records)
        for call in self.on_records:
            call(records)

    def current(self) -> Current:
        if self.feed.current is None:
            raise Problem("journal-unavailable", f"The journal cannot be read: {self.feed.problem}", retry_after=5)
        return self.feed.current

    async def at(self, instant: float | None) -> Current:
        if instant is None:
            return self.current()
        self.current()
        return await asyncio.to_thread(self.feed.at, instant)

    async def history(self, make: Callable[[], Any]) -> Any:
        """Makes a document that may take seconds; only a few at a time, so that other answers find a free thread."""
        async with self._history:
            return await asyncio.to_thread(make)

    async def checkup(self) -> dict[str, Any]:
        """Returns the document of the doctor, which is made at most once in 10 seconds."""
        async with self._doctor_turn:
            if self._doctor is None or time.monotonic() - self._doctor[0] > DOCTOR_EVERY:
                if self.doctor is None:
                    raise Problem("not-found", "This server has no configuration to check.")
                self._doctor = (time.monotonic(), await asyncio.to_thread(self.doctor))
            return self._doctor[1]
