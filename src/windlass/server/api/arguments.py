"""This module reads query parameters and bodies, and reports each mistake as a named problem."""

from __future__ import annotations

import json
import math
import time
from typing import Any, Final

from fastapi import Request

from windlass.server.problems import Problem

AHEAD: Final = 60.0
"""Seconds that the clock of a client may be ahead of ours."""


def instant(name: str, value: str | None) -> float | None:
    """Reads a time from the query, in seconds since 1970."""
    if value is None:
        return None
    try:
        found = float(value)
    except ValueError:
        found = math.nan
    if not math.isfinite(found) or not 0 <= found < 1e11:
        raise Problem("bad-time", f"{name}: must be seconds since 1970, such as {int(time.time())}.")
    return found


def past(name: str, value: str | None, now: float) -> float | None:
    """Reads a time that a document describes: not in the future, apart from a clock that is a little ahead of ours."""
    found = instant(name, value)
    if found is not None and found > now + AHEAD:
        raise Problem("bad-time", f"{name}: is in the future. Leave it out for the current state.")
    return None if found is None else min(found, now)


def whole(name: str, value: str | None, low: int, high: int, default: int) -> int:
    if value is None:
        return default
    if not value.isascii() or not value.isdigit() or not low <= int(value[:20]) <= high:
        text = f"{name}: must be a whole number from {low} to {high}"
        raise Problem("invalid", f"{text}.", mistakes=[text])
    return int(value)


def number(name: str, value: str | None) -> int | None:
    return None if value is None else whole(name, value, 0, 2**62, 0)


def one_of(name: str, value: str | None, known: tuple[str, ...], default: str) -> str:
    if value is None:
        return default
    if value not in known:
        text = f"{name}: must be one of {', '.join(known)}"
        raise Problem("invalid", f"{text}.", mistakes=[text])
    return value


async def body_of(request: Request) -> Any:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem("not-json", "Send the body as JSON, with Content-Type: application/json.")
    try:
        return json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        raise Problem("invalid", "The body is not JSON.", mistakes=["the body is not JSON"]) from error
