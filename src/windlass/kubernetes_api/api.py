"""This module calls the API server: one method for each verb, raw bytes in and out, errors as ``ApiError``.

Configuration, authentication and TLS are the official client's; decoding is msgspec's. Every write that follows a read
carries the resourceVersion it has read, so that a stale one is refused with 409 instead of undoing another writer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

import msgspec

from .objects import ApiStatus, ListPage

T = TypeVar("T")

PAGE: Final = 500
"""Objects per page, as kubectl: 30,000 pods take sixty calls."""
RETRIES: Final = 3
LONGEST_RETRY: Final = 3.0
"""Seconds: a busy server is asked again within a call when it wants no longer pause; 1.36 answers 429 for a second
after a definition is established."""
JSON: Final = "application/json"
MERGE: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"


class ApiError(Exception):
    """The API server refused, or could not be reached (status 0)."""

    def __init__(self, status: int, message: str, reason: str = "", retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.status, self.reason, self.retry_after = status, reason, retry_after

    @property
    def is_conflict(self) -> bool:
        return self.status == 409

    @property
    def is_missing(self) -> bool:
        return self.status == 404

    @property
    def is_gone(self) -> bool:
        """Whether a resourceVersion or a page is too old."""
        return self.status == 410 or self.reason in ("Expired", "Gone")


class WatchSilent(ApiError):
    """A watch brought nothing for longer than expected: its connection may be dead, or nothing has changed."""

    def __init__(self, path: str, seconds: float) -> None:
        super().__init__(0, f"the watch of {path} was silent for {seconds:g} s")


@dataclass(frozen=True, slots=True)
class Response:
    """An answer as it came."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class Transport(Protocol):
    """Carries requests to an API server, over the network or within the process."""

    async def request(
        self, method: str, path: str, params: Mapping[str, str], body: bytes | None, content_type: str, timeout: float
    ) -> Response:
        """Return the answer with any status; ``ApiError`` with status 0 if there is none."""
        ...

    def stream(self, path: str, params: Mapping[str, str], stall: float) -> AsyncIterator[bytes]:
        """Yield an empty line when the server has taken up a watch, then its lines.

        ``ApiError`` if it is refused or breaks, ``WatchSilent`` if it is silent for ``stall`` seconds.
        """
        ...

    async def close(self) -> None:
        """Close connections."""
        ...


class Api:
    """Makes typed calls through a transport."""

    def __init__(self, transport: Transport, *, timeout: float = 15.0) -> None:
        self._transport, self._timeout = transport, timeout
        self._decoders: dict[Any, Any] = {}

    def decoder(self, kind: Any) -> Any:
        """Return the decoder of a type, made once."""
        found = self._decoders.get(kind)
        if found is None:
            found = self._decoders[kind] = msgspec.json.Decoder(kind)
        return found

    def decode(self, body: bytes | msgspec.Raw, kind: type[T]) -> T:
        """Decode an object; ``ApiError`` if the bytes are not one."""
        try:
            return self.decoder(kind).decode(body)  # type: ignore[no-any-return]
        except msgspec.MsgspecError as error:
            raise ApiError(0, f"the API server's answer is not a {kind.__name__}: {error}") from None

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = JSON,
        timeout: float | None = None,
    ) -> bytes:
        """Return the body of a good answer; ``ApiError`` for any other."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        for attempt in range(RETRIES + 1):
            answer = await self._transport.request(
                method, path, params or {}, data, content_type, timeout or self._timeout
            )
            if answer.status < 400:
                return answer.body
            refused = refusal(answer)
            is_busy = answer.status == 429 and not path.endswith("/eviction")
            if not is_busy or attempt == RETRIES or refused.retry_after > LONGEST_RETRY:
                raise refused
            await asyncio.sleep(refused.retry_after or 1.0)
        raise AssertionError("the last attempt returns or raises")

    async def get(self, path: str, kind: type[T]) -> T:
        return self.decode(await self.call("GET", path), kind)

    async def get_plain(self, path: str) -> dict[str, Any]:
        """Return the whole object as plain data, for a write that must keep every field."""
        return self.decode(await self.call("GET", path), dict[str, Any])

    async def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self.decode(await self.call("POST", path, body), dict[str, Any])

    async def replace(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self.decode(await self.call("PUT", path, body), dict[str, Any])

    async def patch(self, path: str, body: Any, *, content_type: str = MERGE) -> bytes:
        """A merge patch; with ``metadata.resourceVersion`` in it, the server refuses a stale one."""
        return await self.call("PATCH", path, body, content_type=content_type)

    async def delete(self, path: str, *, uid: str = "", resource_version: str = "") -> None:
        """Delete an object, if its uid or resourceVersion is still the given one. A missing object is no error."""
        given = {"uid": uid, "resourceVersion": resource_version}
        preconditions = {key: value for key, value in given.items() if value}
        try:
            await self.call("DELETE", path, {"preconditions": preconditions} if preconditions else None)
        except ApiError as error:
            if not error.is_missing:
                raise

    async def list_pages(
        self, path: str, kind: type[T], params: Mapping[str, str] | None = None, *, page: int = PAGE
    ) -> tuple[list[T], str]:
        """Return all objects of a list, page by page, and the resourceVersion at which the list was read.

        Without a resourceVersion in the parameters the server reads its database, not its cache: what is listed is the
        truth of that instant.
        """
        items: list[T] = []
        query = {**(params or {}), "limit": str(page)}
        while True:
            body = await self.call("GET", path, params=query)
            part = self.decode(body, ListPage[kind])  # type: ignore[valid-type]
            items += part.items or ()
            if not part.metadata.continue_:
                return items, part.metadata.resource_version
            query["continue"] = part.metadata.continue_

    @asynccontextmanager
    async def watch(self, path: str, params: Mapping[str, str], stall: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of a watch; the context manager closes it."""
        lines = self._transport.stream(path, params, stall)
        try:
            yield lines
        finally:
            close = getattr(lines, "aclose", None)
            if close is not None:
                await close()

    async def close(self) -> None:
        await self._transport.close()


def refusal(answer: Response) -> ApiError:
    """Return the error for a refused call, with the server's message."""
    try:
        status = msgspec.json.decode(answer.body, type=ApiStatus)
    except msgspec.MsgspecError:
        status = ApiStatus(message=answer.body[:200].decode(errors="replace").strip())
    header = answer.headers.get("Retry-After", "")
    after = float(header) if header.isdigit() else 0.0
    if not after and status.details is not None:
        after = float(status.details.retry_after_seconds)
    return ApiError(answer.status, status.message or f"HTTP status {answer.status}", status.reason, after)


async def patched(
    api: Api,
    path: str,
    kind: type[T],
    make: Callable[[T], dict[str, Any] | None],
    *,
    subresource: str = "",
    tries: int = 8,
) -> T | None:
    """Read, change and write an object until the write is not stale; None if it is gone or needs no change.

    ``make`` gets the current object and returns a merge patch without metadata.resourceVersion, or None. With a
    ``subresource`` such as ``/status`` the patch goes there.
    """
    for attempt in range(tries):
        try:
            current = await api.get(path, kind)
            body = make(current)
            if body is None:
                return current
            version = current.metadata.resource_version  # type: ignore[attr-defined]
            body = {**body, "metadata": {**body.get("metadata", {}), "resourceVersion": version}}
            return api.decode(await api.patch(f"{path}{subresource}", body), kind)
        except ApiError as error:
            if error.is_missing:
                return None
            if not error.is_conflict or attempt == tries - 1:
                raise
            await asyncio.sleep(0)
    return None
