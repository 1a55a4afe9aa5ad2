"""Credentials of a kubeconfig that run out while a controller runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from windlass.kubernetes_api import connection
from windlass.kubernetes_api.api import Api, ApiError
from windlass.kubernetes_api.connection import HttpTransport

PATH = "/api/v1/nodes"


class Guarded:
    """An API server that takes one token at a time."""

    def __init__(self) -> None:
        self.token = "first"
        self.refused = 0
        self.url = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_get(PATH, self._answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            self.refused += 1
            return web.json_response({"kind": "Status", "message": "Unauthorized", "code": 401}, status=401)
        if "watch" in request.query:
            return web.Response(body=b'{"type": "BOOKMARK", "object": {}}\n')
        return web.json_response({"kind": "NodeList", "metadata": {"resourceVersion": "7"}, "items": []})


def kubeconfig(home: Path, url: str, user: dict[str, Any]) -> str:
    data = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": url}}],
        "users": [{"name": "here", "user": user}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "here"}}],
    }
    file = home / "kubeconfig"
    file.write_text(json.dumps(data))
    return str(file)


def printing_program(home: Path) -> dict[str, Any]:
    """A user whose token a program prints, as on the large clouds."""
    answer = '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "%s"}}'
    program = home / "get-token"
    program.write_text(f"#!/bin/sh\nprintf '{answer}' \"$(cat {home}/token)\"\n")
    program.chmod(0o755)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(program), "args": []}}


def token_file(home: Path) -> dict[str, Any]:
    return {"tokenFile": str(home / "token")}


@pytest.mark.parametrize("user", [printing_program, token_file])
def test_a_token_that_has_run_out_is_read_again(user: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "RENEWAL", 0.0)

    async def story() -> None:
        server, token = Guarded(), tmp_path / "token"
        token.write_text("first")
        async with server.running():
            transport = HttpTransport(kubeconfig(tmp_path, server.url, user(tmp_path)))
            api = Api(transport)
            try:
                assert (await api.list_pages(PATH, dict))[1] == "7"
                token.write_text("second")
                server.token = "second"
                assert (await api.list_pages(PATH, dict))[1] == "7"
                assert server.refused == 1
                token.write_text("third")
                server.token = "third"
                with pytest.raises(ApiError, match="Unauthorized"):
                    [line async for line in transport.stream(PATH, {"watch": "true"}, 10)]
                lines = [line async for line in transport.stream(PATH, {"watch": "true"}, 10)]
                assert lines[0] == b""
                assert b"BOOKMARK" in lines[1]
            finally:
                await api.close()

    asyncio.run(story())


def test_credentials_that_stay_refused_are_not_read_again_at_every_call(tmp_path: Path) -> None:
    async def story() -> None:
        server = Guarded()
        (tmp_path / "token").write_text("wrong")
        user = printing_program(tmp_path)
        program = Path(user["exec"]["command"])
        program.write_text(f"{program.read_text()}echo ran >> {tmp_path}/runs\n")
        async with server.running():
            api = Api(HttpTransport(kubeconfig(tmp_path, server.url, user)))
            try:
                for _ in range(5):
                    with pytest.raises(ApiError, match="Unauthorized"):
                        await api.list_pages(PATH, dict)
            finally:
                await api.close()
        assert (tmp_path / "runs").read_text().splitlines() == ["ran"]

    asyncio.run(story())
