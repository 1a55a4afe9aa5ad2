"""This module opens an SSH connection to a machine, checks its host key, and turns failures into readable errors.

The host key must be known before the first connection: from a ``known_hosts`` file, or because we made the key and gave
it to the machine. There is no way to turn the check off.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import asyncssh

CONNECT_LIMIT: Final = 10.0
KEEPALIVE: Final = 5.0
KEEPALIVES: Final = 3
"""Unanswered keepalives after which a connection counts as lost, so within 20 s."""
_LONGEST_TEXT: Final = 300
_LOGIN: Final = re.compile(r"://[^/@\s]{1,1000}@")
"""The name and password in a URL, such as that of a requirement."""


class Unreachable(Exception):
    """No connection to a machine, with the reason. ``kind``: ``silent``, ``host-key`` or ``auth``."""

    def __init__(self, text: str, kind: str = "silent") -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Login:
    """The address, user and keys for an SSH connection."""

    address: str
    port: int = 22
    user: str = ""
    key_file: str = ""
    known_hosts: str = ""
    """The path of a file; empty: ``~/.ssh/known_hosts``."""
    host_key: str = ""
    """The machine's public key; if it is given, ``known_hosts`` is not read."""

    @property
    def name(self) -> str:
        at = f"{self.user}@" if self.user else ""
        return f"{at}{self.address}" + ("" if self.port == 22 else f":{self.port}")


async def connect(login: Login, limit: float = CONNECT_LIMIT) -> asyncssh.SSHClientConnection:
    """Open a connection; raise ``Unreachable`` with the reason if that fails."""
    options: dict[str, Any] = {
        "known_hosts": _known_hosts(login),
        "config": [],
        "keepalive_interval": KEEPALIVE,
        "keepalive_count_max": KEEPALIVES,
        "login_timeout": limit,
        "connect_timeout": limit,
        "agent_forwarding": False,
        "password": None,
        "preferred_auth": "publickey",
    }
    if login.user:
        options["username"] = login.user
    if login.key_file:
        options |= {"client_keys": [str(Path(login.key_file).expanduser())], "agent_path": None}
    try:
        async with asyncio.timeout(limit):
            return await asyncssh.connect(login.address, login.port, **options)
    except asyncssh.HostKeyNotVerifiable as error:
        why = "its host key is not the one that Windlass gave it"
        if not login.host_key:
            why = f"its host key is not in {_known_hosts_path(login)}; add it there, from a source that you trust"
        raise Unreachable(f"{login.name}: {why}", "host-key") from error
    except asyncssh.PermissionDenied as error:
        raise Unreachable(
            f"{login.name}: it refuses our key ({plain(error)}); put the public key of "
            f"{login.key_file or 'your SSH agent'} into its authorized_keys",
            "auth",
        ) from error
    except asyncssh.KeyImportError as error:
        raise Unreachable(
            f"{login.name}: key_file {login.key_file} cannot be used as a private key ({plain(error)}); give one "
            "without a passphrase, or leave key_file out and use the SSH agent",
            "auth",
        ) from error
    except TimeoutError as error:
        raise Unreachable(f"{login.name}: no answer within {limit:g} s") from error
    except (OSError, asyncssh.Error, ValueError) as error:
        raise Unreachable(f"{login.name}: {_in_words(error, login)}") from error


def _in_words(error: Exception, login: Login) -> str:
    """Describe for people why a connection failed."""
    match error:
        case ConnectionRefusedError():
            return f"it refuses connections on port {login.port}; check that its SSH server runs there"
        case socket.gaierror():
            return f"its name cannot be resolved ({plain(error.strerror)}); check the address"
        case FileNotFoundError() | PermissionError() if error.filename:
            return f"{error.filename} cannot be read ({error.strerror}); check key_file"
        case OSError() if error.errno:
            return os.strerror(error.errno).lower()
    return plain(error) or type(error).__name__


def _known_hosts(login: Login) -> asyncssh.SSHKnownHosts:
    if login.host_key:
        return asyncssh.import_known_hosts(f"* {login.host_key}\n")
    path = _known_hosts_path(login)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Unreachable(
            f"{login.name}: {path} cannot be read ({error.strerror}); it must have the machine's host key before the "
            "first connection: get the key from a source that you trust",
            "host-key",
        ) from error
    return asyncssh.import_known_hosts(text)


def _known_hosts_path(login: Login) -> Path:
    return Path(login.known_hosts or "~/.ssh/known_hosts").expanduser()


def plain(text: object, longest: int = _LONGEST_TEXT) -> str:
    """Make untrusted text printable: one line, no control characters, limited length."""
    words = " ".join(_LOGIN.sub("://***@", str(text)[: 4 * longest]).split())
    words = "".join(one for one in words if one.isprintable())
    return words if len(words) <= longest else words[: longest - 1] + "…"


def plain_lines(text: object, longest: int = 2000) -> str:
    """Make a machine's output printable: its last lines, without control characters."""
    lines = ["".join(c for c in line if c.isprintable()) for line in _LOGIN.sub("://***@", str(text)).splitlines()]
    return "\n".join(line for line in lines if line.strip())[-longest:]


def redacted(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    return text
