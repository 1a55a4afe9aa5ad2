"""The listener serves the application on a socket, in its own thread or in the main thread."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn

from windlass.config.server import Listen, ServerConfig
from windlass.control.controller import Controller

from .api.service import Server
from .app import create_app
from .live.stream import Broadcast
from .timing import measure, measure_sources

PATIENCE = 15.0
"""How many seconds the server has to start or stop."""


class CannotListen(Exception):
    """The server cannot listen on the address; the message says why and how to fix it."""


def check_certificate(cert: str, key: str) -> None:
    """Raises ``CannotListen`` if the files of ``server.tls`` cannot be used."""
    for name, file in (("cert", cert), ("key", key)):
        try:
            Path(file).read_bytes()
        except OSError as error:
            raise CannotListen(f"server.tls.{name}: {file} cannot be read: {error.strerror or error}") from error
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert, key, password="")
    except (OSError, ValueError) as error:
        wanted = "a certificate and its private key without a password, as PEM"
        raise CannotListen(f"server.tls: {cert} and {key} are not {wanted}") from error


def bound(listen: Listen) -> socket.socket:
    """Returns a socket that is bound to the address; only its owner can use a socket of a path."""
    try:
        if listen.path:
            return _bound_path(Path(listen.path))
        family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((listen.host, listen.port))
        made.listen(128)  # a client that connects as soon as the address is printed waits and is not refused
    except OSError as error:
        raise CannotListen(
            f"server.listen: {listen} cannot be used: {error.strerror or error}. "
            "Another process may listen there: choose another port with --listen HOST:PORT"
        ) from error
    return made


def _bound_path(path: Path) -> socket.socket:
    path.parent.mkdir(parents=True, exist_ok=True)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if path.is_socket():
        with suppress(OSError):
            made.connect(str(path))
            made.close()
            raise CannotListen(f"server.listen: unix:{path} is in use by another process")
        path.unlink()
    before = os.umask(0o177)
    try:
        made.bind(str(path))
    finally:
        os.umask(before)
    return made


class _EndingStreams(uvicorn.Server):
    """A uvicorn server that ends all streams before it waits for connections to close: streams never end alone."""

    def __init__(self, streams: Broadcast, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._streams = streams

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._streams.close()
        await super().shutdown(sockets)


class HttpServer:
    """A server that is started and stopped by its owner."""

    def __init__(self, server: Server) -> None:
        config: ServerConfig = server.config
        self._metrics, self._feed = server.metrics, server.feed
        if config.cert is not None and config.key is not None:
            check_certificate(config.cert, config.key)
        self._socket = bound(config.listen)
        self._server = _EndingStreams(
            server.streams,
            uvicorn.Config(
                create_app(server),
                log_level="error",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                lifespan="on",
                timeout_graceful_shutdown=2,
                timeout_keep_alive=30,
                ssl_certfile=config.cert,
                ssl_keyfile=config.key,
            ),
        )
        self.url = _url(config, self._socket)
        self._thread: threading.Thread | None = None

    def measure(self, controller: Controller) -> None:
        """Adds the durations of a controller of this process to the metrics; the feed works between its passes."""
        measure(controller, self._metrics, on_begin=self._feed.pass_begins, on_end=self._feed.pass_ends)

    def measure_sources(self, providers: Mapping[str, Any], workload: Any) -> None:
        """Adds the answer times of sources to the metrics."""
        measure_sources(providers, workload, self._metrics)

    def start(self) -> None:
        """Starts a thread that serves; returns when the server accepts connections."""
        self._thread = threading.Thread(target=self.run, name="windlass-server", daemon=True)
        self._thread.start()
        for _ in range(int(PATIENCE * 50)):
            if self._server.started:
                return
            self._thread.join(0.02)
            if not self._thread.is_alive():
                break
        raise CannotListen("the server did not start; its log has the cause")

    def run(self) -> None:
        """Serves until ``stop`` is called or the main thread gets a signal."""
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(PATIENCE)
        self._socket.close()


def _url(config: ServerConfig, made: socket.socket) -> str:
    """Returns the URL for a browser."""
    if config.listen.path:
        return f"unix:{config.listen.path}"
    host = config.listen.name
    if host in ("0.0.0.0", "[::]"):
        host = config.allowed_hosts[0] if config.allowed_hosts else "127.0.0.1"
    return f"{'https' if config.cert else 'http'}://{host}:{made.getsockname()[1]}"
