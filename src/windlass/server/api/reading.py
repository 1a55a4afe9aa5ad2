"""These routes show the cluster now or at an earlier time."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import Response

from windlass._version import __version__
from windlass.server.access.guard import API
from windlass.server.problems import Problem

from . import documents, openapi
from .answers import answer, has_tag, of_now, sent
from .arguments import past, whole
from .service import Server


def add_reading(app: FastAPI, server: Server) -> None:
    @app.get(f"{API}/status")
    async def status(request: Request, at: str | None = None) -> Response:
        asked = past("at", at, server.now())
        known = await server.at(asked)
        if asked is not None:
            return sent(request, await asyncio.to_thread(lambda: known.body), None)
        tag = f'"{known.seq}"'
        if has_tag(request, tag):
            return Response(status_code=304, headers={"ETag": tag})
        wants_gzip = "gzip" in request.headers.get("accept-encoding", "")
        # Encoded once for all clients, in a thread, so that the event loop goes on serving streams.
        body, packed = await asyncio.to_thread(lambda: (known.body, known.gzipped if wants_gzip else None))
        return sent(request, body, packed, headers={"ETag": tag})

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
            known = await server.at(past("at", at, server.now()))
            many = whole("limit", limit, 1, documents.MOST, 500)
            scope = {"group": group, "state": state, "code": code, "text": q, "sort": sort}
            page = documents.listed(documents.rows_of(name, known), **scope, limit=many, cursor=cursor)
            return answer(request, page) if at else of_now(request, page, known.seq)

    for name in ("groups", "slices", "demands", "nodes"):
        table(name)

    @app.get(f"{API}/why")
    async def why(request: Request, name: str | None = None, at: str | None = None) -> Response:
        if not name or len(name) > 500 or "\0" in name:
            raise Problem("invalid", "name: which job, machine or group?", mistakes=["name: is required"])
        asked = past("at", at, server.now())

        server.current()
        return answer(request, await asyncio.to_thread(answered, server, name, asked))

    @app.get(f"{API}/plan")
    async def plan(request: Request) -> Response:
        known = server.current()
        return of_now(request, await asyncio.to_thread(known.planned.plan.to_dict), known.seq)

    @app.get(f"{API}/settings")
    async def settings(request: Request) -> Response:
        return answer(request, documents.settings(server.current()))

    @app.get(f"{API}/doctor")
    async def doctor(request: Request) -> Response:
        return answer(request, await server.checkup())

    @app.get(f"{API}/openapi.json")
    async def described(request: Request) -> Response:
        return answer(request, openapi.document())

    @app.get(f"{API}/version")
    async def version(request: Request) -> Response:
        return answer(request, {"version": __version__, "schema_versions": openapi.SCHEMA_VERSIONS})


def answered(server: Server, name: str, at: float | None) -> dict[str, Any]:
    """Returns the document of ``windlass why``, with the job of that name if the workload has jobs."""
    job = server.job(name) if at is None else None
    questions = [server.feed.question(one, at) for one in server.names(name)]
    asked = next((one for one in questions if one.kinds), questions[0])
    if not asked.kinds and job is None:
        near = asked.near_names()
        hint = f" Did you mean {' or '.join(near)}?" if near else " The status lists all names."
        raise Problem("unknown-name", f"There is no job, machine or group {name[:80]}.{hint}", did_you_mean=near)
    return asked.to_dict() | {"job": job}
