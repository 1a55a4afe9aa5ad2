"""SavedObjects is a transport that reads the objects of a file which ``kubectl get KINDS -A -o json`` has written.

It answers lists page by page like an API server, and its watches never show a change. So all code that reads a cluster
can also read a file.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from typing import Final

import msgspec

from .api import ApiError, Response
from .objects import Meta, Struct

_BEGINNING: Final = re.compile(rb'\{\s*"apiVersion":\s*"([\w./-]+)",\s*"kind":\s*"(\w+)",')
_IRREGULAR: Final = {"DeviceClass": "deviceclasses"}


class NotSavedObjects(Exception):
    """The file is not a list that kubectl has written; the text says why, and what to do."""


class _Head(Struct, frozen=True):
    kind: str = ""
    api_version: str = ""


class _Named(Struct, frozen=True):
    metadata: Meta


class _SavedList(Struct, frozen=True):
    kind: str = ""
    items: tuple[msgspec.Raw, ...] | None = None


class SavedObjects:
    """A read-only transport for the objects of a file."""

    def __init__(self, data: bytes, *, page: int = 500) -> None:
        """``NotSavedObjects`` if the file is not a list that kubectl has written."""
        self._page = page
        self._lists: dict[str, list[msgspec.Raw]] = {}
        """By the path of the list."""
        if not data[:1000].lstrip().startswith(b"{"):
            raise NotSavedObjects("objects of Kubernetes are read as JSON: save them with kubectl get KINDS -A -o json")
        heads = msgspec.json.Decoder(_Head)
        try:
            saved = msgspec.json.decode(data, type=_SavedList)
            items = (msgspec.Raw(data),) if saved.items is None else saved.items
            for item in items:
                self._lists.setdefault(_path(_first_lines(item) or heads.decode(item)), []).append(item)
        except msgspec.MsgspecError as error:
            raise NotSavedObjects(f"this is not what kubectl get KINDS -A -o json writes: {error}") from None

    def count(self, path: str) -> int:
        """Return how many objects a list has."""
        return len(self._lists.get(path, ()))

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None,  # noqa: ARG002  # the signature of a transport
        content_type: str,  # noqa: ARG002
        timeout: float,  # noqa: ARG002
    ) -> Response:
        if method != "GET":
            raise ApiError(0, "a saved cluster cannot be changed")
        if path not in self._lists and (found := self._object(path)) is not None:
            return Response(200, bytes(found))
        start = int(params.get("continue") or 0)
        items = self._lists.get(path, [])[start : start + self._page]
        more = start + self._page
        following = b'"%d"' % more if more < self.count(path) else b'""'
        start_of_page = b'{"metadata":{"resourceVersion":"1","continue":%b},"items":[' % following
        return Response(200, b"".join((start_of_page, b",".join(items), b"]}")))

    def _object(self, path: str) -> msgspec.Raw | None:
        """Return one object of a namespace, such as ``/apis/apps/v1/namespaces/default/deployments/web``."""
        before, slash, rest = path.partition("/namespaces/")
        parts = rest.split("/")
        if not slash or len(parts) != 3:
            return None
        namespace, plural, name = parts
        for item in self._lists.get(f"{before}/{plural}", ()):
            meta = msgspec.json.decode(item, type=_Named).metadata
            if (meta.namespace, meta.name) == (namespace, name):
                return item
        return None

    async def stream(self, path: str, params: Mapping[str, str], stall: float) -> AsyncIterator[bytes]:  # noqa: ARG002
        yield b""
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Do nothing: no connection is open."""


def _first_lines(item: msgspec.Raw) -> _Head | None:
    """Return the head of an object. kubectl writes it first, so the rest of the object need not be decoded."""
    found = _BEGINNING.match(bytes(memoryview(item)[:200]))
    return _Head(found[2].decode(), found[1].decode()) if found is not None else None


def _path(head: _Head) -> str:
    """Return the path of the list that an object belongs to."""
    if not head.kind or not head.api_version:
        raise NotSavedObjects(
            "an item has no kind: save the objects with kubectl get KINDS -A -o json, which writes the kind of each"
        )
    plural = _IRREGULAR.get(head.kind, f"{head.kind.lower()}s")
    return f"/{'apis' if '/' in head.api_version else 'api'}/{head.api_version}/{plural}"
