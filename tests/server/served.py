"""A cluster whose journal a real HTTP server serves, and a small client that sees every header."""

from __future__ import annotations

import gzip
import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.cli.clusters import Cluster
from windlass.cli.connection.job_progress import job_report, job_rows
from windlass.cli.connection.kubernetes_names import kubernetes_names
from windlass.config import read_config
from windlass.config.server import Listen
from windlass.journal import open_journal
from windlass.server.access.tokens import TokenFile
from windlass.server.api.service import Server
from windlass.server.listener import HttpServer


def two_groups(most: int, idle: int) -> str:
    """A configuration with a cheap group, of so many machines at the most, and a dear one."""
    return f"""
cluster: {{max_hourly_cost: 20}}
groups:
  gpu: {{resources: {{gpu: 8}}, max: {most}, price: 2.0, scale_down: {{idle_timeout: {idle}}}}}
  dear: {{resources: {{gpu: 8}}, max: 1, price: 9.0, scale_down: {{idle_timeout: {idle}}}}}
providers: {{cloud: {{type: simulated}}}}
workload: {{type: simulated}}
journal: journal.db
policy: {{vanish_timeout: 1s}}
"""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)

    @property
    def problem(self) -> str:
        assert self.headers["content-type"] == "application/problem+json", self.body
        return str(self.data["type"]).removeprefix("urn:windlass:problem:")


@dataclass
class Served:
    """A server that runs, and its tokens."""

    cluster: Cluster
    server: Server
    port: int
    secrets: Mapping[str, str] = field(default_factory=dict)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        role: str | None = "viewer",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        sent = dict(headers or {})
        if role is not None:
            sent.setdefault("Authorization", f"Bearer {self.secrets[role]}")
        data = None
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, data, {key: one for key, one in sent.items() if one})
            got = connection.getresponse()
            content = got.read()
            found = {key.lower(): value for key, value in got.getheaders()}
            if found.get("content-encoding") == "gzip":
                content = gzip.decompress(content)
            return Answer(got.status, found, content)
        finally:
            connection.close()

    def get(self, path: str, **more: Any) -> Answer:
        return self.call("GET", f"/api/v1{path}", **more)

    def post(self, path: str, body: Any, **more: Any) -> Answer:
        return self.call("POST", f"/api/v1{path}", body, **{"role": "operator", **more})


@contextmanager
def served(cluster: Cluster, directory: Path, **changes: Any) -> Iterator[Served]:
    """Serve the journal of a cluster on a free port."""
    config = read_config(cluster.config.read_text(encoding="utf-8"), path=cluster.config)
    server_config = replace(
        config.server, **{"listen": Listen(port=0), "token_file": str(directory / "tokens"), **changes}
    )
    tokens = TokenFile(server_config.token_file)
    tokens.create_if_missing()
    with open_journal(config.journal.location, create=False) as journal:
        server = Server(
            journal,
            config.journal.location,
            server_config,
            lambda: config.settings,
            tokens,
            more=lambda: {"jobs": job_rows(config)},
            job=partial(job_report, config),
            names=partial(kubernetes_names, config),
        )
        http_server = HttpServer(server)
        http_server.start()
        try:
            number = http_server.url.rpartition(":")[2]
            port = int(number) if number.isdigit() else 0
            secrets = {str(one.role): one.secret for one in tokens.tokens()}
            yield Served(cluster, server, port, secrets)
        finally:
            http_server.stop()
