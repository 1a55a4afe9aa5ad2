"""A Reflector mirrors a list of the API server in memory by a watch.

A reflector lists page by page, then watches from that resourceVersion. Bookmarks move its place forward while nothing
changes. When its place is too old (410), or the connection breaks, it lists again and reports only the differences.
Between attempts it waits, longer each time, with jitter, and as long as the server's Retry-After says. A watch that is
silent for longer than bookmarks usually take may be dead, but a server sends no bookmarks for a kind of which nothing
has changed since it started: a new watch is opened at the same place at once, and shows which it is.

``synced`` says whether what is mirrored is current: it is False before the first list and from the moment a connection
breaks until the next one is established. A list that is not synced is unknown, never empty.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from .api import Api, ApiError, WatchSilent
from .objects import ApiStatus, Meta, Versioned, WatchLine

K = TypeVar("K")
V = TypeVar("V")

STALL: Final = 90.0
"""Seconds without a line after which a new watch is opened: servers send a bookmark about every minute."""
OPENING: Final = 15.0
"""Seconds within which a server must accept a watch."""
SESSION: Final = 300
"""Seconds after which the server ends a watch; the next one continues from the same resourceVersion."""
PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 15.0


@dataclass(frozen=True, slots=True)
class ObjectChange(Generic[V]):
    """One difference: ``before`` is None for a new object, ``after`` is None for a deleted one."""

    key: str
    before: V | None
    after: V | None


class Reflector(Generic[K, V]):
    """Mirrors one list. ``convert`` makes the value that is kept from the decoded object; None leaves it out."""

    def __init__(
        self,
        api: Api,
        path: str,
        kind: type[K],
        convert: Callable[[K], V | None],
        *,
        on_change: Callable[[ObjectChange[V]], None] = lambda _: None,
        on_synced: Callable[[], None] = lambda: None,
        params: Mapping[str, str] | None = None,
        optional: bool = False,
        remedy: str = "",
        stall: float = STALL,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """``optional``: a kind that the server does not have counts as an empty list. ``remedy``: what to do about a
        server that does not have the kind."""
        self._api, self.path, self._kind, self._convert = api, path, kind, convert
        self._on_change, self._on_synced = on_change, on_synced
        self._params, self._optional, self._stall, self._jitter = dict(params or {}), optional, stall, jitter
        self._remedy = remedy
        self.store: dict[str, V] = {}
        self._versions: dict[str, int] = {}
        self.synced, self.error = False, f"{path}: not listed yet"
        self.lists, self.restarts = 0, 0
        self._version = ""

    async def run(self) -> None:
        """Mirror the list until cancelled."""
        failures = 0
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
                failures = 0
            except WatchSilent:
                failures = 0
            except ApiError as error:
                failures = await self._recover(error, failures)

    async def _recover(self, error: ApiError, failures: int) -> int:
        """Record the error and wait; return the number of failures in a row."""
        was_synced, self.synced = self.synced, False
        failures = 1 if was_synced else failures + 1
        self.restarts += 1
        absent = error.is_missing and self._remedy
        self.error = f"{self.path}: {f'the server does not have it: {self._remedy}' if absent else error}"
        if error.is_gone:
            self._version = ""
            if failures <= 1:
                return failures
        elif error.is_missing and self._optional:
            self._gone_kind(was_synced)
        elif error.status == 400:
            self._version = ""  # the server does not know this version, as after a restore of its database
        pause = min(LONGEST_PAUSE, PAUSE * 2 ** min(failures - 1, 10)) * (0.5 + self._jitter())
        if error.is_missing and self._optional:
            pause = LONGEST_PAUSE
        await asyncio.sleep(max(pause, error.retry_after))
        return failures

    def _gone_kind(self, was_synced: bool) -> None:
        """Mirror a kind that the server does not have as an empty list."""
        self._version = ""
        for key in list(self.store):
            self._drop(key)
        self.synced, self.error = True, ""
        if not was_synced:
            self._on_synced()

    async def _list(self) -> None:
        items, version = await self._api.list_pages(self.path, self._kind, self._params)
        seen = set()
        for item in items:
            seen.add(self._take(item))
        for key in self.store.keys() - seen:
            self._drop(key)
        self._version = version
        self.lists += 1
        self._mark_synced()

    def _mark_synced(self) -> None:
        self.error = ""
        if not self.synced:
            self.synced = True
            self._on_synced()

    async def _watch(self) -> None:
        params = {
            **self._params,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(round(SESSION * (0.75 + self._jitter() / 2))),
        }
        async with self._api.watch(self.path, params, self._stall) as lines:
            try:
                async with asyncio.timeout(OPENING):
                    await anext(lines, b"")
            except TimeoutError:
                raise ApiError(0, f"the watch was not accepted within {OPENING:g} s") from None
            self._mark_synced()
            async for line in lines:
                self._read(line)

    def _read(self, line: bytes) -> None:
        event = self._api.decode(line, WatchLine)
        if event.type == "ERROR":
            status = self._api.decode(event.object, ApiStatus)
            after = status.details.retry_after_seconds if status.details else 0
            raise ApiError(status.code, status.message, status.reason, after)
        if event.type == "BOOKMARK":
            self._version = self._api.decode(event.object, Versioned).metadata.resource_version
            return
        item = self._api.decode(event.object, self._kind)
        meta = _meta(item)
        self._version = meta.resource_version
        if event.type == "DELETED":
            self._drop(_key(meta))
        else:
            self._take(item)

    def learn(self, item: K) -> None:
        """Store an object from the answer to our own write, before the watch shows it. An answer may come after the
        watch has shown that the object was deleted: it is not stored then."""
        meta = _meta(item)
        shown = self._version and int(meta.resource_version or 0) <= int(self._version)
        if not shown or _key(meta) in self.store:
            self._take(item)

    def _take(self, item: K) -> str:
        meta = _meta(item)
        key = _key(meta)
        version = int(meta.resource_version or 0)
        if version < self._versions.get(key, 0):
            return key  # an answer to a write was newer
        value = self._convert(item)
        if value is None:
            self._drop(key)
            return key
        self._versions[key] = version
        before = self.store.get(key)
        if before != value:
            self.store[key] = value
            self._on_change(ObjectChange(key, before, value))
        return key

    def _drop(self, key: str) -> None:
        before = self.store.pop(key, None)
        self._versions.pop(key, None)
        if before is not None:
            self._on_change(ObjectChange(key, before, None))


def _meta(item: Any) -> Meta:
    return item.metadata  # type: ignore[no-any-return]


def _key(meta: Meta) -> str:
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
