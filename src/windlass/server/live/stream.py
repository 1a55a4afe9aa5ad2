"""This module streams messages as server-sent events. Each reader has a small, bounded queue."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from windlass.server.problems import Problem

from .feed import Feed, PassMessage, resync

PLACES: Final = 64
"""The length of a reader's queue; a slower reader must load the status again."""
PING: Final = 15.0
"""Seconds without a message after which a comment is sent, so that a reader sees that the connection works."""
TOPICS: Final = frozenset({"status", "events"})


class Subscription:
    """One reader."""

    def __init__(self, topics: frozenset[str]) -> None:
        self.topics = topics
        self.waiting: deque[PassMessage] = deque()
        self.lost = False
        """Whether the reader was too slow."""
        self.upto = 0
        """The last record that the reader has; messages up to it are not sent again."""
        self.sent_at = 0.0
        """When something was last sent, by the clock of the event loop."""
        self.news = asyncio.Event()

    def put(self, message: PassMessage) -> bool:
        """Queues a message; returns False if the queue was full: it is then emptied, and the reader is lost."""
        if self.lost or self.has(message):
            return True
        if len(self.waiting) >= PLACES:
            self.waiting.clear()
            self.lost = True
        else:
            self.waiting.append(message)
        self.news.set()
        return not self.lost

    def has(self, message: PassMessage) -> bool:
        """Whether the reader has all of a message; one about changes by time alone has no records of its own."""
        return message.seq <= self.upto and message.after < message.seq


class Broadcast:
    """All readers of one feed, in one event loop."""

    def __init__(self, feed: Feed, most: int) -> None:
        self.feed, self.most = feed, most
        self.readers: set[Subscription] = set()
        self.resyncs = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = asyncio.Event()

    def attach(self) -> None:
        """Receives messages in the running event loop from now on."""
        self._loop = asyncio.get_running_loop()
        self._ping(self._loop)

    def close(self) -> None:
        """Ends every stream."""
        self._closed.set()
        for reader in self.readers:
            reader.news.set()

    def publish(self, message: PassMessage) -> None:
        """Hands a message to all readers; called in the thread of the feed."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._give, message)

    def _give(self, message: PassMessage) -> None:
        for reader in self.readers:
            if not reader.put(message):
                self.resyncs += 1

    def _ping(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wakes the readers that got nothing for a while. One timer for all: a time limit per wait would cost more."""
        if not self._closed.is_set():
            for reader in self.readers:
                if loop.time() - reader.sent_at >= PING:
                    reader.news.set()
            loop.call_later(1.0, self._ping, loop)

    async def stream(self, topics: frozenset[str], after: int | None, role: str) -> AsyncIterator[bytes]:
        """Yields the messages of one reader, from a record on."""
        if len(self.readers) >= self.most:
            raise Problem(
                "too-many-streams",
                f"{self.most} streams are open, which is server.max_streams. Close one, or raise the limit.",
                retry_after=5,
            )
        reader = Subscription(topics)
        self.readers.add(reader)
        try:
            yield self.feed.hello(role)
            async for one in self._missed(reader, after):
                yield one
            loop = asyncio.get_running_loop()
            reader.sent_at = loop.time()
            while not self._closed.is_set():
                if reader.waiting:
                    reader.sent_at = loop.time()
                    yield reader.waiting.popleft().sent(topics)
                elif reader.lost:
                    yield resync(self.feed.seq, "too slow")
                    return
                elif loop.time() - reader.sent_at >= PING:
                    reader.sent_at = loop.time()
                    yield b": ping\n\n"
                else:
                    reader.news.clear()
                    await reader.news.wait()
        finally:
            self.readers.discard(reader)

    async def _missed(self, reader: Subscription, after: int | None) -> AsyncIterator[bytes]:
        """Yields the messages after the last record of a reader, or tells it to load everything again."""
        if after is None:
            return
        found = await asyncio.to_thread(self.feed.after, after)
        if found is None:
            self.resyncs += 1
            yield resync(self.feed.seq, "too old")
            return
        upto = max((one.seq for one in found), default=after)
        for one in found:
            yield one.sent(reader.topics) if one.after >= after else one.body(reader.topics, after)
        # Messages that were queued meanwhile, or are published later, must not be sent twice.
        reader.upto = upto
        reader.waiting = deque(one for one in reader.waiting if not reader.has(one))
