"""These routes show what happened: events, the stream of passes, lanes, series and accounts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import Response, StreamingResponse

from windlass.control.report.accounts import By, accounts
from windlass.control.report.events import EventLine
from windlass.server.access.guard import API
from windlass.server.live.stream import TOPICS
from windlass.server.problems import Problem

from . import documents
from .answers import answer, token_of
from .arguments import instant, number, one_of, whole
from .service import Server


def add_history(app: FastAPI, server: Server) -> None:
    @app.get(f"{API}/events")
    async def events(
        request: Request,
        after: str | None = None,
        before: str | None = None,
        since: str | None = None,
        until: str | None = None,
        subject: str | None = None,
        kind: str | None = None,
        code: str | None = None,
        alarm: str | None = None,
        limit: str | None = None,
    ) -> Response:
        alarms = one_of("alarm", alarm, ("true", "false", "1", "0"), "")

        def wanted(line: EventLine) -> bool:
            fits = (kind is None or line.kind == kind) and (code is None or line.code == code)
            return fits and (not alarms or line.alarm == (alarms in ("true", "1")))

        page = partial(
            documents.events,
            server.feed,
            after=number("after", after),
            before=number("before", before),
            since=instant("since", since),
            until=instant("until", until),
            subject=subject,
            wanted=wanted,
            limit=whole("limit", limit, 1, documents.MOST, 100),
        )
        server.current()
        return answer(request, await asyncio.to_thread(page))

    @app.get(f"{API}/stream")
    async def stream(request: Request, topics: str | None = None, after: str | None = None) -> Response:
        asked = frozenset((topics or "status,events").split(","))
        if not asked or asked - TOPICS:
            text = f"topics: some of {', '.join(sorted(TOPICS))}, with commas"
            raise Problem("invalid", f"{text}.", mistakes=[text])
        server.current()
        last = request.headers.get("last-event-id") or after
        messages = server.streams.stream(asked, number("after", last), token_of(request).role)
        first = await anext(messages)  # the limit of streams is reported as an answer, before the stream begins

        async def whole_stream() -> AsyncIterator[bytes]:
            yield first
            async for one in messages:
                yield one

        headers = {"X-Accel-Buffering": "no"}
        return StreamingResponse(whole_stream(), media_type="text/event-stream", headers=headers)

    def window(since: str | None, until: str | None, length: float | None) -> tuple[float | None, float]:
        end = instant("until", until)
        last = server.now() if end is None else end
        begin = instant("since", since)
        if begin is not None and begin > last:
            raise Problem("bad-time", "since: must not be after until.")
        return (last - length if begin is None and length is not None else begin), last

    @app.get(f"{API}/lanes")
    async def lanes(
        request: Request,
        since: str | None = None,
        until: str | None = None,
        group: str | None = None,
        q: str | None = None,
        limit: str | None = None,
        cursor: str | None = None,
    ) -> Response:
        begin, end = window(since, until, 3600.0)
        many = whole("limit", limit, 1, documents.MOST, 1000)
        server.current()
        page = await server.history(lambda: documents.lanes(server.feed, begin or 0.0, end, group, q, many, cursor))
        return answer(request, page)

    @app.get(f"{API}/series")
    async def series(
        request: Request, since: str | None = None, until: str | None = None, points: str | None = None
    ) -> Response:
        begin, end = window(since, until, None)
        many = whole("points", points, 2, 10_000, 400)
        server.current()
        return answer(request, await server.history(lambda: server.feed.timeline().series(begin, end, many)))

    @app.get(f"{API}/accounts")
    async def spent(
        request: Request, by: str | None = None, since: str | None = None, until: str | None = None
    ) -> Response:
        rows: Any = one_of("by", by, ("group", "job", "account"), "group")
        begin, end = window(since, until, None)
        kind: By = rows
        server.current()
        return answer(request, await server.history(lambda: accounts(server.journal, kind, begin, end)))
