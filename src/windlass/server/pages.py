"""Pages, static files, health checks and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from fastapi import FastAPI, Request
from starlette.responses import Response

from .live.feed import Feed
from .metrics import CONTENT_TYPE, Metrics
from .problems import Problem

STATIC: Final = Path(__file__).parent / "static"
PAGES: Final = ("/", "/groups", "/slices", "/demand", "/decisions", "/cost", "/what-if")
TYPES: Final = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
}
LATE: Final = 3
"""The last pass may be so many times the longest interval old."""
RENEWAL: Final = 15.0
"""Seconds that a quiet leader of another process may take longer to show itself: it does when it renews its lease."""


def add_pages(app: FastAPI, feed: Feed, metrics: Metrics, now: Callable[[], float]) -> None:
    shell = (STATIC / "index.html").read_bytes()
    html = "text/html; charset=utf-8"

    @app.get("/login")
    async def login() -> Response:
        return Response(shell, media_type=html)

    async def page() -> Response:
        return Response(shell, media_type=html)

    for path in PAGES:
        app.get(path, name=f"page {path}")(page)

    @app.get("/static/{path:path}")
    async def file(request: Request, path: str) -> Response:
        place = (STATIC / path).resolve()
        if not place.is_relative_to(STATIC.resolve()) or not place.is_file() or place.suffix not in TYPES:
            raise Problem("not-found", "There is no such file.")
        stat = place.stat()
        tag = f'"{stat.st_mtime_ns:x}-{stat.st_size:x}"'
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(place.read_bytes(), headers=headers, media_type=TYPES[place.suffix])

    @app.get("/healthz")
    async def healthz() -> Response:
        return Response("ok\n", media_type="text/plain")

    @app.get("/readyz")
    async def readyz() -> Response:
        why = not_ready(feed, now(), metrics.pass_age())
        return Response("ok\n" if why is None else f"{why}\n", 200 if why is None else 503, media_type="text/plain")

    @app.get("/metrics")
    async def numbers() -> Response:
        return Response(await asyncio.to_thread(metrics.text), headers={"Content-Type": CONTENT_TYPE})


def not_ready(feed: Feed, now: float, pass_age: float | None) -> str | None:
    """Why the server is not ready; None: it is. ``pass_age``: in seconds, if a controller in this process leads."""
    current = feed.current
    if feed.problem is not None or current is None:
        return "the journal cannot be read"
    leader = current.leader
    late = f"the controller leads, but its last pass is older than {LATE} times evaluation_interval.max"
    longest = LATE * current.picture.settings.policy.evaluation_interval.max
    if pass_age is not None:
        return late if pass_age > longest else None
    if leader.alive and leader.seen_at is not None and now - leader.seen_at > longest + RENEWAL:
        return late
    return None
