"""These routes change something: they take orders of operators, and start and end replays."""

from __future__ import annotations

import asyncio

from fastapi import FastAPI, Request
from starlette.responses import Response

from windlass.server.access.guard import API
from windlass.server.problems import Problem

from .answers import answer, token_of
from .arguments import body_of, whole
from .service import Server


def add_changing(app: FastAPI, server: Server) -> None:
    @app.post(f"{API}/orders")
    async def give(request: Request) -> Response:
        token, body = token_of(request), await body_of(request)
        address = request.client.host if request.client is not None else "a socket"
        by = f"{token.name} ({token.role}) over http from {address}"
        key = request.headers.get("idempotency-key")
        server.current()
        made = await asyncio.to_thread(server.orders.give, body, by, token.name, key, server.now())
        return answer(request, made, 202, {"Location": f"{API}/orders/{made['seq']}"})

    @app.get(f"{API}/orders")
    async def orders(request: Request, limit: str | None = None) -> Response:
        server.current()
        found = await asyncio.to_thread(server.orders.newest, whole("limit", limit, 1, 1000, 50))
        return answer(request, {"schema": "windlass.orders/v1", "orders": found})

    @app.get(f"{API}/orders/{{seq}}")
    async def order(request: Request, seq: str) -> Response:
        server.current()
        if not seq.isascii() or not seq.isdigit() or len(seq) > 18:
            raise Problem("unknown-order", "The number of an order is a whole number.")
        return answer(request, await asyncio.to_thread(server.orders.one, int(seq)))

    @app.post(f"{API}/what-if")
    async def start(request: Request) -> Response:
        replay = server.what_if.start(await body_of(request))
        return answer(request, {"id": replay.id}, 202, {"Location": f"{API}/what-if/{replay.id}"})

    @app.get(f"{API}/what-if/{{name}}")
    async def replay(request: Request, name: str) -> Response:
        return answer(request, server.what_if.get(name).to_dict())

    @app.delete(f"{API}/what-if/{{name}}")
    async def end(name: str) -> Response:
        server.what_if.end(name)
        return Response(status_code=204)
