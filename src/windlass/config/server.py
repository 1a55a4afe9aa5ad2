"""This module declares the settings ``server:`` and ``notify:``, of the HTTP server and of notifications."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Final
from urllib.parse import urlsplit

from windlass.core.model.reasons import nearest_name
from windlass.scenario.declarations import REQUIRED
from windlass.scenario.reader import Path, shown
from windlass.setting_types import Duration, Flag, Name, OneOf, Place, Section, Setting, SubSection, Whole, Words

_ORIGIN: Final = re.compile(r"https?://[^/\s]+")
ALARMS: Final = ("alarm", "ceiling", "unknown", "terminate_failed", "breach", "frozen")
"""The subjects of notifications."""

TLS: Final = Section(
    "tls",
    (
        Setting("cert", Place(), None, "", "The certificate chain, as PEM.", absent="no TLS"),
        Setting("key", Place(), None, "", "Its private key, as PEM.", absent="no TLS"),
    ),
)
SERVER: Final = Section(
    "server",
    (
        Setting("enabled", Flag(), False, "", "Whether `windlass run` serves the API and the dashboard."),
        Setting(
            "listen",
            Name(),
            "127.0.0.1:7878",
            "",
            "`HOST:PORT`, `[::1]:PORT` or `unix:PATH`. An address other than loopback needs `tls` or `behind_proxy`.",
        ),
        Setting(
            "token_file",
            Place(),
            ".windlass/tokens",
            "",
            "The file with the tokens, one per line: `ROLE TOKEN NAME`. The first start creates it (mode 0600) with "
            "one operator and one viewer. A server reads it again when it changes.",
        ),
        Setting(
            "allowed_hosts",
            Words(),
            None,
            "",
            "Names that the `Host` header may have, in addition to the listen address.",
            "none",
        ),
        Setting(
            "allowed_origins",
            Words(),
            None,
            "",
            "Origins that may send changes, in addition to the server's own.",
            "none",
        ),
        SubSection("tls", TLS, "Serve over TLS."),
        Setting(
            "behind_proxy",
            Flag(),
            False,
            "",
            "TLS ends at a proxy: `X-Forwarded-Proto` is trusted, and cookies are sent over TLS only.",
        ),
        Setting(
            "metrics",
            OneOf(("token", "open")),
            "token",
            "",
            "Who may read `/metrics`: `token` (requests with a token) or `open` (everyone).",
        ),
        Setting(
            "write_rate", Whole(low=1), 60, "per minute", "The highest number of changes per minute with one token."
        ),
        Setting(
            "max_streams",
            Whole(low=1, high=100_000),
            256,
            "",
            "The highest number of open event streams. Another request gets status 503.",
        ),
        Setting(
            "stream_passes",
            Whole(low=1),
            1000,
            "passes",
            "How many passes are kept for readers of the stream that reconnect.",
        ),
        Setting("what_if_timeout", Duration(low=1), "5m", "s", "The time limit of one what-if replay."),
    ),
)
NOTIFY: Final = Section(
    "notify[]",
    (
        Setting("url", Name(), REQUIRED, "", "The `http` or `https` URL that notifications are posted to."),
        Setting(
            "on",
            Words(),
            None,
            "",
            "The subjects to send: `alarm`, `ceiling`, `unknown`, `terminate_failed`, `breach`, `frozen`.",
            "all of them",
        ),
        Setting(
            "secret_env",
            Name(),
            None,
            "",
            "The environment variable with the key that signs each notification (HMAC-SHA256).",
            "not signed",
        ),
        Setting("name", Name(), None, "", "Its name in metrics and logs.", "its host"),
    ),
)


class BadListen(ValueError):
    """An address that no server can listen on; the message says what is valid."""


@dataclass(frozen=True, slots=True)
class Listen:
    """The address that a server listens on."""

    host: str = "127.0.0.1"
    port: int = 7878
    path: str = ""
    """The path of a Unix socket; empty for TCP."""

    @property
    def is_loopback(self) -> bool:
        if self.path or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def name(self) -> str:
        """The host as in a URL, without the port."""
        return f"[{self.host}]" if ":" in self.host else self.host

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path else f"{self.name}:{self.port}"


def parse_listen(text: str) -> Listen:
    """Parse ``HOST:PORT``, ``[::1]:PORT`` or ``unix:PATH``."""
    if text.startswith("unix:"):
        if len(text) == len("unix:"):
            raise BadListen("must have a path after unix:, such as unix:/run/windlass.sock")
        return Listen(path=text.removeprefix("unix:"))
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535 or not host:
        raise BadListen("must be HOST:PORT, [::1]:PORT or unix:PATH, such as 127.0.0.1:7878")
    if host.startswith("[") != host.endswith("]") or (":" in host and not host.startswith("[")):
        raise BadListen("must have an IPv6 address in brackets, such as [::1]:7878")
    return Listen(host.strip("[]"), int(port))


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The settings of the server."""

    listen: Listen = Listen()
    token_file: str = ".windlass/tokens"
    enabled: bool = False
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    cert: str | None = None
    key: str | None = None
    behind_proxy: bool = False
    metrics: str = "token"
    write_rate: int = 60
    max_streams: int = 256
    stream_passes: int = 1000
    what_if_timeout: float = 300.0

    def mistake(self) -> str | None:
        """Explain why these settings are not safe to serve with; None if they are."""
        if not self.listen.is_loopback and self.cert is None and not self.behind_proxy:
            return (
                f"{self.listen} is reachable from other machines: it needs tls, or behind_proxy: true where TLS ends "
                "at a proxy; or listen on 127.0.0.1"
            )
        return None


@dataclass(frozen=True, slots=True)
class Webhook:
    """One receiver of notifications."""

    url: str
    on: frozenset[str]
    secret_env: str | None
    name: str


# -- reading -------------------------------------------------------------------------------------------------------

Wrong = Callable[[Path, str], None]
"""Reports one mistake with its place."""


def read_server(found: Mapping[str, Any], home: FilePath, wrong: Wrong) -> ServerConfig:
    """Make the server's settings from the values of its section."""
    at: Path = ("server",)
    listen = Listen()
    if found["listen"]:
        try:
            listen = parse_listen(found["listen"])
        except BadListen as error:
            wrong((*at, "listen"), f"{error}; is {shown(found['listen'])}")
    tls = found["tls"]
    if (tls["cert"] is None) != (tls["key"] is None):
        missing = "key" if tls["key"] is None else "cert"
        wrong((*at, "tls", missing), "is required: TLS needs both cert and key")
    if listen.path and not FilePath(listen.path).is_absolute():
        listen = Listen(path=str(home / listen.path))
    config = ServerConfig(
        **{
            **{key: one for key, one in found.items() if key not in ("tls", "listen")},
            "listen": listen,
            "cert": tls["cert"],
            "key": tls["key"],
            "allowed_hosts": tuple(one.lower() for one in found["allowed_hosts"] or ()),
            "allowed_origins": tuple(found["allowed_origins"] or ()),
        }
    )
    for index, one in enumerate(config.allowed_origins):
        if one and not _ORIGIN.fullmatch(one):
            wrong((*at, "allowed_origins", index), f"must be such as https://windlass.example.org, is {shown(one)}")
    for index, one in enumerate(config.allowed_hosts):
        if "/" in one or " " in one:
            wrong((*at, "allowed_hosts", index), f"must be a name such as windlass.example.org, is {shown(one)}")
    if (mistake := config.mistake()) is not None:
        wrong((*at, "listen"), mistake)
    return config


def read_webhook(at: Path, found: Mapping[str, Any], wrong: Wrong) -> Webhook:
    """Make a webhook from the values of its section."""
    url = found["url"] or ""
    parts = urlsplit(url)
    if url and (parts.scheme not in ("http", "https") or not parts.hostname):
        wrong((*at, "url"), f"must begin with http:// or https:// and name a host, is {shown(url)}")
    if parts.username or parts.password:
        wrong((*at, "url"), "must not have a password in it: sign with secret_env instead")
    for index, one in enumerate(found["on"] or ()):
        if one and one not in ALARMS:
            meant = nearest_name(one[:80], ALARMS)
            hint = f"did you mean {meant}?" if meant else f"there are {', '.join(ALARMS)}"
            wrong((*at, "on", index), f"is {shown(one)}; {hint}")
    if (variable := found["secret_env"]) and not variable.isidentifier():
        wrong((*at, "secret_env"), f"must be the name of an environment variable, is {shown(variable)}")
    on = frozenset(found["on"] or ALARMS)
    return Webhook(url, on, found["secret_env"], found["name"] or parts.hostname or "")
