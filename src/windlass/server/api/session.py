"""These routes log in and out: they exchange a token or a login link for a session cookie."""

from __future__ import annotations

from typing import Literal

from fastapi import FastAPI, Request
from starlette.responses import RedirectResponse, Response

from windlass.server.access.guard import API, COOKIE
from windlass.server.access.tokens import SESSION_SECONDS, Token
from windlass.server.problems import Problem

from .answers import answer, token_of
from .arguments import body_of
from .service import Server


def add_session(app: FastAPI, server: Server) -> None:
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
        token = token_of(request)
        return answer(request, {"name": token.name, "role": token.role})

    @app.get("/open")
    async def follow_link(code: str = "") -> Response:
        found = server.tokens.in_link(code, server.now())
        if found is None or found[1] in server.used_links or found[2] < server.started - 1:
            return RedirectResponse("/login?why=link", 303)
        server.used_links.add(found[1])
        return with_session(RedirectResponse("/", 303), found[0])
