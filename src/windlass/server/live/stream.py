"""Server-sent events: each reader has a few places for messages that it has not taken yet, and no more."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from windlass.server.problems import Problem

from .feed import Feed, PassMessage, resync

PLACES: Final = 64
"""Messages that wait for one reader; a slower one must load the status again."""
PING: Final = 15.0
"""Seconds of silence after which a comment shows a reader that the connection lives."""
TOPICS: Final = frozenset({"status", "events"})


class Subscription:
    """One reader."""

    def __init__(self, topics: frozenset[str]) -> None:
        self.topics = topics
        self.waiting: deque[bytes] = deque()
        self.lost = False
        """Whether it was too slow."""
        self.news = asyncio.Event()

    def put(self, message: PassMessage) -> bool:
        """Give it a message; False: it has no place left, and gets none of those that waited."""
        if self.lost:
            return True
        if len(self.waiting) >= PLACES:
            self.waiting.clear()
            self.lost = True
        else:
            self.waiting.append(message.sent(self.topics))
        self.news.set()
        return not self.lost


class Broadcast:
    """All readers of one feed, in one event loop."""

    def __init__(self, feed: Feed, most: int) -> None:
        self.feed, self.most = feed, most
        self.readers: set[Subscription] = set()
        self.resyncs = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = asyncio.Event()

    def attach(self) -> None:
        """Take messages in the running loop from now on."""
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """End every stream."""
        self._closed.set()
        for reader in self.readers:
            reader.news.set()

    def publish(self, message: PassMessage) -> None:
        """Called in the thread of the feed."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._give, message)

    def _give(self, message: PassMessage) -> None:
        for reader in self.readers:
            if not reader.put(message):
                self.resyncs += 1

    async def stream(self, topics: frozenset[str], after: int | None, role: str) -> AsyncIterator[bytes]:
        """The messages of one reader, from a record on."""
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
            while not self._closed.is_set():
                while reader.waiting:
                    yield reader.waiting.popleft()
                if reader.lost:
                    yield resync(self.feed.seq, "too slow")
                    return
                reader.news.clear()
                try:
                    await asyncio.wait_for(reader.news.wait(), PING)
                except TimeoutError:
                    yield b": ping\n\n"
        finally:
            self.readers.discard(reader)

    async def _missed(self, reader: Subscription, after: int | None) -> AsyncIterator[bytes]:
        """What was sent after the record that a reader had last, or that it must load everything again."""
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
        # What came in meanwhile and was in there already must not be sent twice.
        reader.waiting = deque(one for one in reader.waiting if _number(one) > upto)


def _number(message: bytes) -> int:
    return int(message[4 : message.index(b"\n")])
