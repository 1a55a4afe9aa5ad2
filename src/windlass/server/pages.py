"""These routes serve pages, static files, health checks and metrics."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
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
PLAIN_SCRIPTS: Final = frozenset({"retry.js", "theme.js"})
"""The classic scripts of the page; all others are modules."""
SMALL: Final = 1000
"""Smaller files are not compressed, in bytes."""
LATE: Final = 3
"""The server is not ready if the last pass is older than this many times the longest interval."""
RENEWAL: Final = 15.0
"""Extra seconds for an idle leader in another process, which is seen only when it renews its lease."""


class StaticFiles:
    """The files of the dashboard, read and compressed once.

    The pages name them by an address with the digest of all files in it, so that a browser keeps them for good and asks
    for them again only when one of them has changed. By their plain address they are asked for each time.
    """

    def __init__(self, root: Path = STATIC) -> None:
        places = (place for place in sorted(root.rglob("*")) if place.is_file() and place.suffix in TYPES)
        self.files = {place.relative_to(root).as_posix(): place.read_bytes() for place in places}
        digest = hashlib.sha256()
        for name, body in self.files.items():
            digest.update(f"{name} {len(body)}\n".encode() + body)
        self.digest = digest.hexdigest()[:16]
        self._packed = {name: gzip.compress(body, 6, mtime=0) for name, body in self.files.items() if len(body) > SMALL}
        self.shell = self._shell()

    def _shell(self) -> bytes:
        """Returns the page that loads all others. All modules are named in it, so that they are fetched at once and not
        one import after the other.
        """
        page = self.files["index.html"].decode().replace('"/static/', f'"/static/{self.digest}/')
        modules = [name for name in self.files if name.endswith(".js") and name not in PLAIN_SCRIPTS]
        links = [f'<link rel="modulepreload" href="/static/{self.digest}/{name}">\n' for name in modules]
        return page.replace("</head>", f"{''.join(links)}</head>").encode()

    def answer(self, request: Request, path: str) -> Response:
        stamp, _, rest = path.partition("/")
        lasting = stamp == self.digest
        name = rest if lasting else path
        body = self.files.get(name)
        if body is None:
            raise Problem("not-found", "There is no such file.")
        tag = f'"{self.digest}"'
        headers = {
            "ETag": tag,
            "Cache-Control": "public, max-age=31536000, immutable" if lasting else "no-cache",
            "Vary": "Accept-Encoding",
        }
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        packed = self._packed.get(name) if "gzip" in request.headers.get("accept-encoding", "") else None
        if packed is not None:
            headers["Content-Encoding"] = "gzip"
        media_type = TYPES[name[name.rindex(".") :]]
        return Response(body if packed is None else packed, headers=headers, media_type=media_type)


def add_pages(app: FastAPI, files: StaticFiles, feed: Feed, metrics: Metrics, now: Callable[[], float]) -> None:
    html = "text/html; charset=utf-8"

    @app.get("/login")
    async def login() -> Response:
        return Response(files.shell, media_type=html)

    async def page() -> Response:
        return Response(files.shell, media_type=html)

    for path in PAGES:
        app.get(path, name=f"page {path}")(page)

    @app.get("/static/{path:path}")
    async def file(request: Request, path: str) -> Response:
        return files.answer(request, path)

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
    """Returns why the server is not ready; None if it is. ``pass_age``: in seconds, if a controller in this process
    leads."""
    current = feed.current
    if feed.problem is not None or current is None:
        return "the journal cannot be read"
    leader = current.leader
    late = f"the controller leads, but its last pass is older than {LATE} times evaluation_interval.max"
    longest = LATE * current.planned.settings.policy.evaluation_interval.max
    if pass_age is not None:
        return late if pass_age > longest else None
    if leader.alive and leader.seen_at is not None and now - leader.seen_at > longest + RENEWAL:
        return late
    return None
