"""This module defines the errors of the API: problem+json (RFC 9457) with a sentence that says what to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

TITLES: Final = {
    "bad-cursor": (400, "The cursor is not valid"),
    "bad-time": (400, "The time is not valid"),
    "unauthenticated": (401, "A token is needed"),
    "forbidden": (403, "This role may not do that"),
    "origin-refused": (403, "Changes from this origin are refused"),
    "host-refused": (403, "This host name is not served"),
    "unknown-name": (404, "There is no such name"),
    "unknown-order": (404, "There is no such order"),
    "not-found": (404, "There is no such address"),
    "already-ending": (409, "It is already ending"),
    "not-frozen": (409, "It is not frozen"),
    "too-old": (410, "The journal does not reach back so far"),
    "too-large": (413, "The request is too large"),
    "not-json": (415, "The request is not JSON"),
    "invalid": (422, "The request is not valid"),
    "rate-limited": (429, "Too many requests"),
    "too-many-streams": (503, "Too many streams"),
    "journal-unavailable": (503, "The journal cannot be used"),
    "method-not-allowed": (405, "This method is not allowed here"),
    "internal": (500, "The server failed"),
}
"""The status and title of every problem, by name."""

MEDIA_TYPE: Final = "application/problem+json"


class Problem(Exception):
    """A request that cannot be answered, with what to do about it."""

    def __init__(self, name: str, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any) -> None:
        super().__init__(detail)
        self.name, self.detail, self.headers, self.more = name, detail, dict(headers or {}), more

    @property
    def status(self) -> int:
        return TITLES[self.name][0]

    def to_dict(self) -> dict[str, Any]:
        status, title = TITLES[self.name]
        return {
            "type": f"urn:windlass:problem:{self.name}",
            "title": title,
            "status": status,
            "detail": self.detail,
            **{key: value for key, value in self.more.items() if value},
        }

    def response(self) -> Response:
        headers = dict(self.headers)
        if self.name == "unauthenticated":
            headers.setdefault("WWW-Authenticate", "Bearer")
        if "retry_after" in self.more:
            headers.setdefault("Retry-After", str(max(1, round(self.more["retry_after"]))))
        return Response(json.dumps(self.to_dict()), self.status, headers, MEDIA_TYPE)
