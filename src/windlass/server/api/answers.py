"""This module sends documents as JSON, and compresses large ones."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from typing import Any, Final

from fastapi import Request
from starlette.responses import Response

from windlass.server.access.tokens import Token
from windlass.server.live.feed import encoded
from windlass.server.problems import Problem

SMALL: Final = 1000
"""Smaller answers are not compressed, in bytes."""


def answer(request: Request, document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return sent(request, encoded(document), None, status, headers)


def sent(
    request: Request, body: bytes, gzipped: bytes | None, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    more = {"Vary": "Accept-Encoding", **(headers or {})}
    if len(body) > SMALL and "gzip" in request.headers.get("accept-encoding", ""):
        packed = gzip.compress(body, 5, mtime=0) if gzipped is None else gzipped
        return Response(packed, status, {**more, "Content-Encoding": "gzip"}, "application/json")
    return Response(body, status, more, "application/json")


def has_tag(request: Request, tag: str) -> bool:
    """Whether the client has the document with this ETag. It may name several, and a proxy that compresses answers
    marks each as weak."""
    named = request.headers.get("if-none-match", "").split(",")
    return any(one.strip().removeprefix("W/") in (tag, "*") for one in named)


def of_now(request: Request, document: Any, seq: int) -> Response:
    """Sends a current document with its record number as ETag; 304 to a client that has it."""
    tag = f'"{seq}"'
    if has_tag(request, tag):
        return Response(status_code=304, headers={"ETag": tag})
    return answer(request, document, headers={"ETag": tag})


def token_of(request: Request) -> Token:
    token: Token | None = request.state.token
    if token is None:
        raise Problem("unauthenticated", "Send a token as Authorization: Bearer TOKEN, or log in at /login.")
    return token
