"""DataServer and DataClient carry the files of large values between machines, directly between a node and the program.

The server runs in the pool's program, and serves the files of its `DataStore`. The client runs in the node's link
process: it fetches the values that tasks need, once each, and sends large results. A file is copied in pieces from file
to file, so neither side ever holds a whole one in memory. Both sides present a certificate of the pool.

A request is a line of JSON, and so is an answer; the bytes of a file follow the line that announces them:

    {"get": NAME}              {"size": N} and N bytes, or {"gone": true}
    {"put": NAME, "size": N}   and N bytes; then {"path": PATH} or {"error": TEXT}

A broken transfer is repeated from its beginning, and its partial file is removed.
"""

from __future__ import annotations

import json
import logging
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol, TypeVar, cast

from .data_store import DataStore
from .tls import Credentials, tls_context

log = logging.getLogger(__name__)

PIECE: Final = 1 << 20
"""Bytes in memory for each transfer."""
PATIENCE: Final = 20.0
"""Seconds for which a broken transfer is tried again."""
_PAUSE: Final = 0.2
_SILENCE: Final = 60.0
"""Seconds without a byte after which a connection is given up."""
_RESULT: Final = re.compile(r"[ry]-[A-Za-z0-9_-]{1,200}\Z")
"""Allowed names of results: a node cannot choose a path."""
_LONGEST: Final = 1 << 16
T = TypeVar("T")


class DataServer:
    """Serves the files of one pool."""

    def __init__(self, store: DataStore, host: str, credentials: Credentials | None) -> None:
        """``host``: the address to listen on. Without ``credentials`` nothing is encrypted."""
        self._store = store
        self._context = None if credentials is None else tls_context(credentials, server=True)
        self._listening = socket.create_server((host, 0))
        self.port: int = self._listening.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, name="windlass data", daemon=True).start()

    def close(self) -> None:
        """End all connections."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listening.close()
        with self._lock:
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), name="windlass data", daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        with self._lock:
            self._open.add(plain)
        try:
            plain.settimeout(_SILENCE)
            connection = plain if self._context is None else self._context.wrap_socket(plain, server_side=True)
            connection.settimeout(None)  # an idle connection waits for the next request
            with self._lock:
                self._open.discard(plain)
                self._open.add(connection)
            with connection, _stream(connection) as stream:
                while request := _line(stream):
                    connection.settimeout(_SILENCE)
                    self._answer(request, stream)
                    connection.settimeout(None)
        except (OSError, ValueError, KeyError) as error:
            log.debug("a connection for large values ended: %s", error)
        finally:
            plain.close()
            with self._lock:
                self._open = {one for one in self._open if one.fileno() >= 0}

    def _answer(self, request: dict[str, Any], stream: BinaryIO) -> None:
        match request:
            case {"get": str(name)}:
                self._send(name, stream)
            case {"put": str(name), "size": int(size)} if _RESULT.match(name):
                try:
                    path = _receive(self._store, name, size, stream)
                except _NoRoom as error:
                    _write_message(stream, {"error": f"there is no room for it: {error}"})
                    raise OSError("no room") from error  # the rest of the file is still in the connection
                _write_message(stream, {"path": path})
            case _:
                raise ValueError(f"{request!r} is no request")

    def _send(self, name: str, stream: BinaryIO) -> None:
        path = self._store.known(name)
        with ExitStack() as stack:
            try:
                file = stack.enter_context(Path(path or "/nowhere").open("rb"))
            except OSError:
                _write_message(stream, {"gone": True})
            else:
                _send_file(stream, file, {})


class ValueReceiver(Protocol):
    """Stores the files of values that come from the pool."""

    def receive(self, name: str, size: int, pieces: Iterable[bytes]) -> str:
        """Write a value that arrives in pieces; return the path of its file."""
        ...


class DataClient:
    """Fetches and sends files for one node. Its methods block, and may be called on several threads."""

    def __init__(self, address: str, credentials: Credentials | None, patience: float = PATIENCE) -> None:
        host, _, port = address.rpartition(":")
        self._address, self._patience = (host, int(port)), patience
        self._context = None if credentials is None else tls_context(credentials, server=False)
        self._idle: list[BinaryIO] = []
        self._lock = threading.Lock()

    def fetch(self, name: str, store: ValueReceiver) -> str | None:
        """Fetch a value; return the path of its file, or None if the pool no longer has it."""

        def once(stream: BinaryIO) -> str | None:
            _write_message(stream, {"get": name})
            answer = _line(stream)
            return None if answer.get("gone") else _receive(store, name, answer["size"], stream)

        return self._tried(once)

    def send(self, name: str, path: str) -> str:
        """Send a file to the pool; return its path there. Raise ``OSError`` if that is not possible."""

        def once(stream: BinaryIO) -> dict[str, Any]:
            with Path(path).open("rb") as file:
                _send_file(stream, file, {"put": name})
            return _line(stream)

        answer = self._tried(once)
        if "path" not in answer:
            raise OSError(answer.get("error", "the pool did not take it"))
        return str(answer["path"])

    def _tried(self, once: Callable[[BinaryIO], T]) -> T:
        """Make a transfer on an idle or a new connection; repeat it while connections break."""
        until = time.monotonic() + self._patience
        while True:
            try:
                with self._lock:
                    stream = self._idle.pop() if self._idle else None
                stream = stream or self._connected()
                try:
                    answer = once(stream)
                except BaseException:
                    with suppress(OSError):
                        stream.close()
                    raise
            except _NoRoom:
                raise
            except (OSError, EOFError, ValueError, KeyError) as error:
                if time.monotonic() > until:
                    raise OSError(f"the pool cannot be reached for large values: {error}") from error
                time.sleep(_PAUSE)
            else:
                with self._lock:
                    self._idle.append(stream)
                return answer

    def _connected(self) -> BinaryIO:
        plain = socket.create_connection(self._address, timeout=_SILENCE)
        try:
            connection = plain if self._context is None else self._context.wrap_socket(plain)
        except BaseException:
            plain.close()
            raise
        with connection:
            return _stream(connection)  # the socket is closed with its file

    def close(self) -> None:
        with self._lock:
            for stream in self._idle:
                with suppress(OSError):
                    stream.close()
            self._idle = []


def _stream(connection: socket.socket) -> BinaryIO:
    return cast(BinaryIO, connection.makefile("rwb"))


class _NoRoom(OSError):
    """The file cannot be written here."""


def _write_message(stream: BinaryIO, message: dict[str, Any]) -> None:
    stream.write(json.dumps(message).encode() + b"\n")
    stream.flush()


def _line(stream: BinaryIO) -> dict[str, Any]:
    """Return the next line; empty at the end of the stream."""
    text = stream.readline(_LONGEST)
    found: dict[str, Any] = json.loads(text) if text else {}
    return found


def _send_file(stream: BinaryIO, file: BinaryIO, message: dict[str, Any]) -> None:
    left = file.seek(0, 2)
    file.seek(0)
    stream.write(json.dumps({**message, "size": left}).encode() + b"\n")
    while left:
        piece = file.read(min(PIECE, left))
        if not piece:
            raise OSError("the file became shorter while it was sent")
        stream.write(piece)
        left -= len(piece)
    stream.flush()


def _receive(store: ValueReceiver, name: str, size: int, stream: BinaryIO) -> str:
    """Write incoming bytes to a file of the store; return its path."""

    def pieces() -> Any:
        left = size
        while left:
            piece = stream.read(min(PIECE, left))
            if not piece:
                raise ConnectionError("the connection ended in the middle of a file")
            left -= len(piece)
            yield piece

    try:
        return store.receive(name, size, pieces())
    except (ConnectionError, ssl.SSLError, TimeoutError):
        raise
    except OSError as error:
        raise _NoRoom(str(error)) from error
