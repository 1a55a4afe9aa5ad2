"""This module opens one SSH connection to a machine, with host keys that are known beforehand, and readable errors.

``known_hosts`` is a file, or the public key that we gave the machine. There is no way to turn the check off.
"""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import asyncssh

CONNECT_LIMIT: Final = 10.0
KEEPALIVE: Final = 5.0
KEEPALIVES: Final = 3
"""Unanswered ones after which a connection counts as lost: a machine that went silent is noticed within 20 s."""
_LONGEST_TEXT: Final = 300


class Unreachable(Exception):
    """A machine that does not let us in, with the reason in words. ``kind``: ``silent``, ``host-key`` or ``auth``."""

    def __init__(self, text: str, kind: str = "silent") -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Login:
    """How to get onto a machine."""

    address: str
    port: int = 22
    user: str = ""
    key_file: str = ""
    known_hosts: str = ""
    """A file; empty: the user's own."""
    host_key: str = ""
    """The machine's public key, where it is known without ``known_hosts``, which it then replaces."""

    @property
    def name(self) -> str:
        at = f"{self.user}@" if self.user else ""
        return f"{at}{self.address}" + ("" if self.port == 22 else f":{self.port}")


async def connect(login: Login, limit: float = CONNECT_LIMIT) -> asyncssh.SSHClientConnection:
    """An open connection; ``Unreachable`` with the reason otherwise."""
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
        remedy = "check the machine's key by another way, and put the line into known_hosts; it is never taken unseen"
        raise Unreachable(
            f"{login.name}: its host key is not the one that is known ({plain(error)}); {remedy}", "host-key"
        ) from error
    except asyncssh.PermissionDenied as error:
        raise Unreachable(
            f"{login.name}: it refuses our key ({plain(error)}); put the public key of "
            f"{login.key_file or 'your SSH agent'} into its authorized_keys",
            "auth",
        ) from error
    except asyncssh.KeyImportError as error:
        raise Unreachable(f"{login.name}: {login.key_file} is no private key: {plain(error)}", "auth") from error
    except TimeoutError as error:
        raise Unreachable(f"{login.name}: no answer within {limit:g} s") from error
    except (OSError, asyncssh.Error, ValueError) as error:
        raise Unreachable(f"{login.name}: {_in_words(error, login)}") from error


def _in_words(error: Exception, login: Login) -> str:
    """Why no connection came about, for people."""
    match error:
        case ConnectionRefusedError():
            return f"it refuses connections on port {login.port}; is its SSH server running?"
        case socket.gaierror():
            return f"its name is not known ({plain(error.strerror)}); check the address"
        case FileNotFoundError() | PermissionError() if error.filename:
            return f"{error.filename} cannot be read ({error.strerror})"
        case OSError() if error.errno:
            return os.strerror(error.errno).lower()
    return plain(error) or type(error).__name__


def _known_hosts(login: Login) -> asyncssh.SSHKnownHosts:
    if login.host_key:
        return asyncssh.import_known_hosts(f"* {login.host_key}\n")
    path = Path(login.known_hosts or "~/.ssh/known_hosts").expanduser()
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Unreachable(
            f"{login.name}: {path} cannot be read ({error.strerror}); the host key must be known before the first "
            "connection",
            "host-key",
        ) from error
    return asyncssh.import_known_hosts(text)


def plain(text: object, longest: int = _LONGEST_TEXT) -> str:
    """Text from outside, for people: one line, no control characters, not too long."""
    words = " ".join(str(text)[: 4 * longest].split())
    words = "".join(one for one in words if one.isprintable())
    return words if len(words) <= longest else words[: longest - 1] + "…"


def plain_lines(text: object, longest: int = 2000) -> str:
    """Output of a machine, for people: its last lines, without control characters."""
    lines = ["".join(c for c in line if c.isprintable()) for line in str(text)[-4 * longest :].splitlines()]
    return "\n".join(line for line in lines if line.strip())[-longest:]


def redacted(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    return text


def owner_only(path: Path) -> None:
    """Make a file that only its owner can read, empty."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
