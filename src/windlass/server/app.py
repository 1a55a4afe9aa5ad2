"""The application: every route of the API, the pages, health and metrics.

Routes are thin: each asks the feed, or makes a document with `windlass.control.report`, and sends it. What takes long
runs in a thread, so that no request waits for another.
"""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from fastapi import FastAPI, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.types import ASGIApp

from windlass._version import __version__
from windlass.config.server import ServerConfig
from windlass.control.report.accounts import By, accounts
from windlass.control.report.events import EventLine
from windlass.control.settings import Settings
from windlass.journal import Journal

from . import documents, openapi
from .arguments import body_of, instant, number, one_of, whole
from .errors import handle_errors
from .feed import Current, Feed, encoded
from .guard import API, COOKIE, AccessRules, RequestGuard
from .metrics import Metrics
from .orders import Orders
from .pages import add_pages
from .problems import Problem
from .stream import TOPICS, Broadcast
from .tokens import SESSION_SECONDS, Token, TokenFile
from .what_if import WhatIf

SMALL: Final = 1000
"""Bytes below which an answer is not compressed."""
DOCTOR_EVERY: Final = 10.0


@dataclass
class Server:
    """All that the routes use."""

    journal: Journal
    location: str
    """Of the journal: what a replay opens."""
    config: ServerConfig
    settings: Callable[[], Settings]
    tokens: TokenFile
    doctor: Callable[[], dict[str, Any]] | None = None
    """Makes the document of ``windlass doctor``."""
    more: Callable[[], Mapping[str, Any]] = dict
    """What the command line adds to a status document, such as the jobs of a queue."""
    now: Callable[[], float] = time.time
    feed: Feed = field(init=False)
    streams: Broadcast = field(init=False)
    metrics: Metrics = field(init=False)
    orders: Orders = field(init=False)
    what_if: WhatIf = field(init=False)
    started: float = field(init=False)
    used_links: set[str] = field(default_factory=set)
    on_records: list[Callable[[list[Any]], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.feed = Feed(
            self.journal,
            self.settings,
            keep=self.config.stream_passes,
            now=self.now,
            more=self.more,
            on_message=lambda message: self.streams.publish(message),
            on_records=self._records,
        )
        self.streams = Broadcast(self.feed, self.config.max_streams)
        self.metrics = Metrics(self.feed, self.journal, self.location)
        self.metrics.streams = lambda: len(self.streams.readers)
        self.metrics.resyncs = lambda: self.streams.resyncs
        self.orders = Orders(self.feed)
        self.what_if = WhatIf(self.location, self.config.what_if_timeout)
        self.started = self.now()
        self._doctor: tuple[float, dict[str, Any]] | None = None
        self._doctor_turn = asyncio.Lock()

    def _records(self, records: list[Any]) -> None:
        self.metrics.add(records)
        for call in self.on_records:
            call(records)

    def current(self) -> Current:
        if self.feed.current is None:
            raise Problem("journal-unavailable", f"The journal cannot be read: {self.feed.problem}", retry_after=5)
        return self.feed.current

    async def at(self, instant: float | None) -> Current:
        if instant is None:
            return self.current()
        self.current()
        return await asyncio.to_thread(self.feed.at, instant)

    async def checkup(self) -> dict[str, Any]:
        """The doctor's document, made at most once in a while."""
        async with self._doctor_turn:
            if self._doctor is None or time.monotonic() - self._doctor[0] > DOCTOR_EVERY:
                if self.doctor is None:
                    raise Problem("not-found", "This server has no configuration to check.")
                self._doctor = (time.monotonic(), await asyncio.to_thread(self.doctor))
            return self._doctor[1]


def create_app(server: Server) -> ASGIApp:
    """The whole application, guarded."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        server.streams.attach()
        server.feed.start()
        await asyncio.to_thread(server.metrics.catch_up)
        try:
            yield
        finally:
            server.streams.close()
            await server.what_if.close()
            await asyncio.to_thread(server.feed.stop)

    app = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None, title="Windlass")
    handle_errors(app)
    _reading(app, server)
    _history(app, server)
    _changing(app, server)
    _session(app, server)
    add_pages(app, server.feed, server.metrics, server.now)
    config = server.config
    rules = AccessRules(
        hosts=frozenset({config.listen.name.lower(), *config.allowed_hosts}),
        origins=frozenset(config.allowed_origins),
        secure=config.cert is not None,
        behind_proxy=config.behind_proxy,
        metrics_open=config.metrics == "open",
        write_rate=config.write_rate,
    )
    guard = RequestGuard(
        app, server.tokens, rules, seq=lambda: server.feed.seq, now=server.now, on_answer=server.metrics.answered
    )
    app.state.guard = guard
    return guard


# -- answers -------------------------------------------------------------------------------------------------------


def _answer(request: Request, document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return _sent(request, encoded(document), None, status, headers)


def _sent(
    request: Request, body: bytes, gzipped: bytes | None, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    more = {"Vary": "Accept-Encoding", **(headers or {})}
    if len(body) > SMALL and "gzip" in request.headers.get("accept-encoding", ""):
        packed = gzip.compress(body, 5, mtime=0) if gzipped is None else gzipped
        return Response(packed, status, {**more, "Content-Encoding": "gzip"}, "application/json")
    return Response(body, status, more, "application/json")


def _token(request: Request) -> Token:
    token: Token | None = request.state.token
    if token is None:
        raise Problem("unauthenticated", "Send a token as Authorization: Bearer TOKEN, or log in at /login.")
    return token


# -- routes that read ----------------------------------------------------------------------------------------------


def _reading(app: FastAPI, server: Server) -> None:
    @app.get(f"{API}/status")
    async def status(request: Request, at: str | None = None) -> Response:
        asked = instant("at", at)
        known = await server.at(asked)
        if asked is not None:
            return _sent(request, known.body, None)
        tag = f'"{known.seq}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        packed = known.gzipped if "gzip" in request.headers.get("accept-encoding", "") else None
        return _sent(request, known.body, packed, headers={"ETag": tag})

    def table(name: str) -> None:
        @app.get(f"{API}/{name}", name=name)
        async def rows(
            request: Request,
            group: str | None = None,
            state: str | None = None,
            code: str | None = None,
            q: str | None = None,
            sort: str | None = None,
            limit: str | None = None,
            cursor: str | None = None,
            at: str | None = None,
        ) -> Response:
            known = await server.at(instant("at", at))
            many = whole("limit", limit, 1, documents.MOST, 500)
            scope = {"group": group, "state": state, "code": code, "text": q, "sort": sort}
            page = documents.listed(documents.rows_of(name, known), **scope, limit=many, cursor=cursor)
            return _answer(request, page, headers={} if at else {"ETag": f'"{known.seq}"'})

    for name in ("groups", "slices", "demands", "nodes"):
        table(name)

    @app.get(f"{API}/why")
    async def why(request: Request, name: str | None = None, at: str | None = None) -> Response:
        if not name or len(name) > 500 or "\0" in name:
            raise Problem("invalid", "name: which slice, demand or group?", mistakes=["name: is required"])
        asked = instant("at", at)

        def answer() -> dict[str, Any]:
            question = server.feed.question(name, asked)
            if not question.kinds:
                near = question.near_names()
                hint = f" Did you mean {' or '.join(near)}?" if near else " GET /api/v1/status lists the names."
                raise Problem(
                    "unknown-name", f"There is no slice, demand or group {name[:80]}.{hint}", did_you_mean=near
                )
            return question.to_dict()

        server.current()
        return _answer(request, await asyncio.to_thread(answer))

    @app.get(f"{API}/plan")
    async def plan(request: Request) -> Response:
        known = server.current()
        return _answer(request, await asyncio.to_thread(known.picture.plan.to_dict), headers={"ETag": f'"{known.seq}"'})

    @app.get(f"{API}/settings")
    async def settings(request: Request) -> Response:
        return _answer(request, documents.settings(server.current()))

    @app.get(f"{API}/doctor")
    async def doctor(request: Request) -> Response:
        return _answer(request, await server.checkup())

    @app.get(f"{API}/openapi.json")
    async def described(request: Request) -> Response:
        return _answer(request, openapi.document())

    @app.get(f"{API}/version")
    async def version(request: Request) -> Response:
        return _answer(request, {"version": __version__, "schema_versions": openapi.SCHEMA_VERSIONS})


def _history(app: FastAPI, server: Server) -> None:
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

        scope = {
            "after": number("after", after),
            "before": number("before", before),
            "since": instant("since", since),
            "until": instant("until", until),
            "subject": subject,
            "wanted": wanted,
            "limit": whole("limit", limit, 1, documents.MOST, 100),
        }
        server.current()
        return _answer(request, await asyncio.to_thread(lambda: documents.events(server.feed, **scope)))  # type: ignore[arg-type]

    @app.get(f"{API}/stream")
    async def stream(request: Request, topics: str | None = None, after: str | None = None) -> Response:
        asked = frozenset((topics or "status,events").split(","))
        if not asked or asked - TOPICS:
            text = f"topics: some of {', '.join(sorted(TOPICS))}, with commas"
            raise Problem("invalid", f"{text}.", mistakes=[text])
        server.current()
        last = request.headers.get("last-event-id") or after
        messages = server.streams.stream(asked, number("after", last), _token(request).role)
        first = await anext(messages)  # a stream too many is an answer, not a broken stream

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
        page = await asyncio.to_thread(documents.lanes, server.feed, begin or 0.0, end, group, q, many, cursor)
        return _answer(request, page)

    @app.get(f"{API}/series")
    async def series(
        request: Request, since: str | None = None, until: str | None = None, points: str | None = None
    ) -> Response:
        begin, end = window(since, until, None)
        many = whole("points", points, 2, 10_000, 400)
        server.current()
        return _answer(request, await asyncio.to_thread(lambda: server.feed.timeline().series(begin, end, many)))

    @app.get(f"{API}/accounts")
    async def spent(
        request: Request, by: str | None = None, since: str | None = None, until: str | None = None
    ) -> Response:
        rows: Any = one_of("by", by, ("group", "job", "account"), "group")
        begin, end = window(since, until, None)
        kind: By = rows
        known = server.current()
        last = end if until is not None else known.leader.instant(end)
        if begin is not None and begin > last:
            begin = last
        return _answer(request, await asyncio.to_thread(accounts, server.journal, kind, begin, last))


# -- routes that change --------------------------------------------------------------------------------------------


def _changing(app: FastAPI, server: Server) -> None:
    @app.post(f"{API}/orders")
    async def give(request: Request) -> Response:
        token, body = _token(request), await body_of(request)
        address = request.client.host if request.client is not None else "a socket"
        by = f"{token.name} ({token.role}) over http from {address}"
        key = request.headers.get("idempotency-key")
        server.current()
        made = await asyncio.to_thread(server.orders.give, body, by, token.name, key, server.now())
        return _answer(request, made, 202, {"Location": f"{API}/orders/{made['seq']}"})

    @app.get(f"{API}/orders")
    async def orders(request: Request, limit: str | None = None) -> Response:
        server.current()
        found = await asyncio.to_thread(server.orders.newest, whole("limit", limit, 1, 1000, 50))
        return _answer(request, {"schema": "windlass.orders/v1", "orders": found})

    @app.get(f"{API}/orders/{{seq}}")
    async def order(request: Request, seq: str) -> Response:
        server.current()
        if not seq.isascii() or not seq.isdigit() or len(seq) > 18:
            raise Problem("unknown-order", "The number of an order is a whole number.")
        return _answer(request, await asyncio.to_thread(server.orders.one, int(seq)))

    @app.post(f"{API}/what-if")
    async def start(request: Request) -> Response:
        replay = server.what_if.start(await body_of(request))
        return _answer(request, {"id": replay.id}, 202, {"Location": f"{API}/what-if/{replay.id}"})

    @app.get(f"{API}/what-if/{{name}}")
    async def replay(request: Request, name: str) -> Response:
        return _answer(request, server.what_if.get(name).to_dict())

    @app.delete(f"{API}/what-if/{{name}}")
    async def end(name: str) -> Response:
        server.what_if.end(name)
        return Response(status_code=204)


def _session(app: FastAPI, server: Server) -> None:
    def with_session(response: Response, token: Token) -> Response:
        secure = server.config.cert is not None or server.config.behind_proxy
        value = server.tokens.session(token, server.now())
        flags: Literal["strict"] = "strict"
        response.set_cookie(
            COOKIE, value, max_age=SESSION_SECONDS, httponly=True, samesite=flags, secure=secure, path="/"
        )
        return response

    @app.post(f"{API}/session")
    async def enter(request: Request) -> Response:
        body = await body_of(request)
        secret = body.get("token") if isinstance(body, dict) else None
        if not isinstance(secret, str) or not secret:
            raise Problem("invalid", "token: is required, as text.", mistakes=["token: is required"])
        address = request.client.host if request.client is not None else "local"
        token = request.app.state.guard.checked(secret, address)
        return with_session(Response(status_code=204), token)

    @app.delete(f"{API}/session")
    async def leave() -> Response:
        response = Response(status_code=204)
        response.delete_cookie(COOKIE, path="/")
        return response

    @app.get(f"{API}/whoami")
    async def whoami(request: Request) -> Response:
        token = _token(request)
        return _answer(request, {"name": token.name, "role": token.role})

    @app.get("/open")
    async def follow_link(code: str = "") -> Response:
        found = server.tokens.in_link(code, server.now())
        if found is None or found[1] in server.used_links or found[2] < server.started - 1:
            return RedirectResponse("/login?why=link", 303)
        server.used_links.add(found[1])
        return with_session(RedirectResponse("/", 303), found[0])
