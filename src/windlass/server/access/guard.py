"""The guard checks every request before a route sees it: host, origin, token, role, rate and size.

One ASGI layer around the whole application, so that no route can be added that is not guarded. It also puts the
security headers on every answer.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from windlass.server.problems import Problem

from .tokens import Token, TokenError, TokenFile

COOKIE: Final = "windlass_session"
API: Final = "/api/v1"
OPEN_PATHS: Final = frozenset(
    {"/healthz", "/readyz", "/login", "/open", f"{API}/openapi.json", f"{API}/version", f"{API}/session"}
)
"""Paths that need no token; static files need none either."""
READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
OPERATOR_PATHS: Final = (f"{API}/orders",)
LARGEST_BODY: Final = 64 * 1024
WRONG_TOKENS: Final = 10
MINUTE: Final = 60.0
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


class Redirected(Exception):
    """A page was requested without a session: the browser is redirected to the login."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address


@dataclass(frozen=True)
class AccessRules:
    """The settings of a guard."""

    hosts: frozenset[str]
    """Names without a port that `Host` may contain, besides loopback."""
    origins: frozenset[str] = frozenset()
    """Origins besides our own that may send changes."""
    secure: bool = False
    """Whether browsers connect over TLS."""
    behind_proxy: bool = False
    metrics_open: bool = False
    write_rate: int = 60


class Window:
    """Counts the events of the last minute by name."""

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self.most, self._clock = most, clock
        self._times: dict[str, deque[float]] = {}

    def left(self, name: str) -> float:
        """Returns the seconds until one more is allowed; 0 if it is allowed now."""
        times = self._recent(name)
        return 0.0 if len(times) < self.most else times[0] + MINUTE - self._clock()

    def count(self, name: str) -> None:
        self._recent(name).append(self._clock())

    def _recent(self, name: str) -> deque[float]:
        if len(self._times) > 10_000:  # without this, entries of addresses seen once would accumulate
            self._times = {
                key: times for key, times in self._times.items() if times and times[-1] > self._clock() - MINUTE
            }
        times = self._times.setdefault(name, deque())
        while times and times[0] <= self._clock() - MINUTE:
            times.popleft()
        return times


@dataclass
class RequestGuard:
    """The ASGI layer around the application."""

    app: ASGIApp
    tokens: TokenFile
    rules: AccessRules
    seq: Callable[[], int] = lambda: 0
    now: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic
    on_answer: Callable[[str, str, int, float], None] = lambda *_: None
    """Called with the route, method, status and duration of every answer."""
    _wrong: Window = field(init=False)
    _writes: Window = field(init=False)

    def __post_init__(self) -> None:
        self._wrong = Window(WRONG_TOKENS, self.clock)
        self._writes = Window(self.rules.write_rate, self.clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, started, inner = self.clock(), 500, False, as_get(scope)

        async def sending(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                status, started = message["status"], True
                self._put_headers(MutableHeaders(scope=message), scope["path"])
            await send(message)

        try:
            try:
                self._check(scope)
                receive = limited(receive, Headers(scope=scope))
                await self.app(inner, receive, sending)
            except Problem as problem:
                await problem.response()(scope, receive, sending)
            except Redirected as elsewhere:
                await RedirectResponse(elsewhere.address, 303)(scope, receive, sending)
            except asyncio.CancelledError:  # the server stops and waits no longer for this answer
                if not started:
                    stops = Problem("journal-unavailable", "The server stops. Try again in a moment.", retry_after=1)
                    await stops.response()(scope, receive, sending)
        finally:
            self.on_answer(route_of(inner), scope["method"], status, self.clock() - began)

    def _put_headers(self, headers: MutableHeaders, path: str) -> None:
        for name, value in HEADERS.items():
            headers.setdefault(name, value)
        if not path.startswith("/static/"):
            headers.setdefault("Cache-Control", "no-store")
        if path.startswith(API):
            headers.setdefault("Windlass-Seq", str(self.seq()))
        if self.rules.secure:
            headers.setdefault("Strict-Transport-Security", "max-age=31536000")

    # -- the checks, in order -------------------------------------------------------------------------------------

    def _check(self, scope: Scope) -> None:
        headers, method, path = Headers(scope=scope), scope["method"], scope["path"]
        host = headers.get("host", "")
        self._check_host(host)
        if not is_page_or_file(path) and method not in READING:
            self._check_origin(headers, host)
        address = (scope.get("client") or ("local",))[0]
        scope["state"]["token"] = token = self._token(headers, address, path)
        if self._is_open(path):
            return
        if token is None and is_page_or_file(path) and path != "/metrics" and method in READING:
            raise Redirected(login_address(path, scope["query_string"].decode("latin-1")))
        if token is None:
            raise Problem(
                "unauthenticated",
                "Send a token as Authorization: Bearer TOKEN, or log in at /login. "
                "Tokens come from: windlass token create --role viewer --name NAME",
            )
        if method not in READING:
            self._check_change(token, path)

    def _is_open(self, path: str) -> bool:
        return path in OPEN_PATHS or path.startswith("/static/") or (path == "/metrics" and self.rules.metrics_open)

    def _check_host(self, host: str) -> None:
        name = host_name(host)
        if name not in LOOPBACK and name not in self.rules.hosts:
            raise Problem(
                "host-refused",
                "This server does not answer to the name in the Host header. "
                "Add it to server.allowed_hosts in the configuration if it is one of ours.",
            )

    def _check_origin(self, headers: Headers, host: str) -> None:
        origin = headers.get("origin")
        if origin is None:
            if bearer(headers) is None and COOKIE in headers.get("cookie", ""):
                raise Problem("origin-refused", "A change that comes with a cookie needs our own Origin header.")
            return
        scheme = "https" if self._is_secure(headers) else "http"
        if origin not in {f"{scheme}://{host}", *self.rules.origins}:
            raise Problem(
                "origin-refused",
                "Changes are taken from our own pages only. Add the origin to server.allowed_origins to allow it.",
            )

    def _is_secure(self, headers: Headers) -> bool:
        if self.rules.behind_proxy and (forwarded := headers.get("x-forwarded-proto")):
            return forwarded.split(",")[0].strip() == "https"
        return self.rules.secure

    def _token(self, headers: Headers, address: str, path: str) -> Token | None:
        """Returns the token of a request; None if it carries none."""
        try:
            secret = bearer(headers)
            if secret is not None:
                return self.checked(secret, address)
            value = cookie(headers)
            return None if value is None else self.tokens.in_session(value, self.now())
        except TokenError as error:
            if self._is_open(path):
                return None
            raise Problem("unauthenticated", f"The token file cannot be used: {error}") from error

    def checked(self, secret: str, address: str) -> Token:
        """Returns the token with this secret; a wrong secret is counted against the client's address."""
        if (left := self._wrong.left(address)) > 0:
            raise Problem("rate-limited", "Too many wrong tokens: wait a minute.", retry_after=left)
        token = self.tokens.with_secret(secret)
        if token is None:
            self._wrong.count(address)
            raise Problem("unauthenticated", "The token is not known here, or was revoked. Ask for a new one.")
        return token

    def _check_change(self, token: Token, path: str) -> None:
        if path.startswith(OPERATOR_PATHS) and token.role != "operator":
            raise Problem("forbidden", f"{token.name} is a {token.role}; this needs the token of an operator.")
        if (left := self._writes.left(token.name)) > 0:
            raise Problem(
                "rate-limited", f"At most {self.rules.write_rate} changes a minute: try again then.", retry_after=left
            )
        self._writes.count(token.name)


def as_get(scope: Scope) -> Scope:
    """Returns a HEAD request as a GET request; the HTTP server leaves out the body. A stream would never end."""
    if scope["method"] == "HEAD" and not scope["path"].endswith("/stream"):
        return {**scope, "method": "GET"}
    return scope


def limited(receive: Receive, headers: Headers) -> Receive:
    """Reads a request body; raises a problem if it exceeds the limit."""
    length, read = headers.get("content-length", "0"), 0
    if length.isdigit() and int(length) > LARGEST_BODY:
        raise Problem("too-large", f"A request may have {LARGEST_BODY // 1024} KiB.")

    async def receiving() -> Message:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        if read > LARGEST_BODY:
            raise Problem("too-large", f"A request may have {LARGEST_BODY // 1024} KiB.")
        return message

    return receiving


def bearer(headers: Headers) -> str | None:
    """Returns the token of an Authorization header."""
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" and secret.strip() else None


def cookie(headers: Headers) -> str | None:
    """Returns the value of our session cookie."""
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return None
    return None if found is None else found.value


def host_name(host: str) -> str:
    """Returns a Host header without its port, in lower case."""
    text = host.strip().lower()
    if text.startswith("["):
        return text.partition("]")[0] + "]"
    return text.partition(":")[0]


def login_address(path: str, query: str) -> str:
    """Returns the login address for a page that was requested without a session."""
    there = f"{path}?{query}" if query else path
    return "/login" if there == "/" else f"/login?to={quote(there, safe='')}"


def is_page_or_file(path: str) -> bool:
    return path.startswith("/static/") or not path.startswith(API)


def route_of(scope: Any) -> str:
    """Returns the route of a request for metrics; never a name that the client chose."""
    route = scope.get("route")
    found: str | None = getattr(route, "path", None)
    return found or "other"
