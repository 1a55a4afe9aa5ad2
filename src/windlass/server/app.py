"""The application combines the routes of the API, the pages, health checks and metrics behind the guard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.types import ASGIApp

from .access.guard import AccessRules, RequestGuard
from .api.changing import add_changing
from .api.history import add_history
from .api.reading import add_reading
from .api.service import Server
from .api.session import add_session
from .errors import handle_errors
from .pages import StaticFiles, add_pages


def create_app(server: Server) -> ASGIApp:
    """Builds the whole application with its guard."""

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
    files = StaticFiles()
    handle_errors(app, files.shell)
    add_reading(app, server)
    add_history(app, server)
    add_changing(app, server)
    add_session(app, server)
    add_pages(app, files, server.feed, server.metrics, server.now)
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
