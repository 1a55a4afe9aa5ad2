"""KillingProxy forwards calls to an API server and kills the client at one of its writes."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

_ANY_CERTIFICATE = ssl.create_default_context()
_ANY_CERTIFICATE.check_hostname = False
_ANY_CERTIFICATE.verify_mode = ssl.CERT_NONE
_FORWARDED = ("authorization", "content-type", "accept", "user-agent")


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore the broken connections of a client that was killed."""


class KillingProxy:
    """Forwards a number of writes and calls ``kill`` at the next one.

    Every other time that write is forwarded and only its answer is lost. Writes of Leases do not count: a client makes
    them all the time.
    """

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url).netloc
        self._lock = threading.Lock()
        self._left = 0
        self._kill: Callable[[], None] = lambda: None
        self.kills = 0
        self.at: list[str] = []
        """The writes at which the client was killed."""
        self._server = _Server(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def arm(self, writes: int, kill: Callable[[], None]) -> None:
        with self._lock:
            self._left, self._kill = writes, kill

    def kubeconfig(self, theirs: Path, place: Path) -> Path:
        """Write a kubeconfig for the same account that goes through the proxy."""
        data = json.loads(theirs.read_text())
        data["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{self._server.server_address[1]}"}
        place.write_text(json.dumps(data))
        return place

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _action(self, method: str, path: str) -> str:
        """What to do at a write: nothing, or kill the client before or after it."""
        if method == "GET" or "/leases" in path:
            return ""
        with self._lock:
            self._left -= 1
            if self._left >= 0:
                return ""
            if self._left < -1:
                return "before"  # a concurrent call of the client that was just killed
            self.kills += 1
            self.at.append(f"{method} {path}")
            return "after" if self.kills % 2 == 0 else "before"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

            def _forward(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                action = proxy._action(self.command, self.path)
                if action == "before":
                    proxy._kill()
                    self.close_connection = True
                    return
                headers = {key: value for key, value in self.headers.items() if key.lower() in _FORWARDED}
                calling = http.client.HTTPSConnection(proxy._target, context=_ANY_CERTIFICATE, timeout=400)
                try:
                    calling.request(self.command, self.path, body or None, headers)
                    answer = calling.getresponse()
                    if action == "after":
                        answer.read()
                        proxy._kill()
                        self.close_connection = True
                        return
                    self._answer(answer)
                except (OSError, http.client.HTTPException):
                    self.close_connection = True
                finally:
                    calling.close()

            def _answer(self, answer: http.client.HTTPResponse) -> None:
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.headers.get("Content-Type", "application/json"))
                if "watch=true" not in self.path:
                    data = answer.read()
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                    return
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                while data := answer.read1(65536):
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _forward  # noqa: N815

        return Handler
