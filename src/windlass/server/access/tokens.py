"""Tokens, sessions and login links decide who may see the cluster, and who may change it.

The token file has one line a token, `ROLE TOKEN NAME`, mode 0600. A session is a signed cookie: its key is the token
itself, so it outlives a restart of the server and ends when the token is revoked. A login link is signed the same way,
is good for 60 seconds and works once.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

Role = Literal["operator", "viewer"]
PREFIXES: Final[dict[Role, str]] = {"operator": "wlo_", "viewer": "wlv_"}
SESSION_SECONDS: Final = 12 * 3600
LINK_SECONDS: Final = 60
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


class TokenError(Exception):
    """The token file cannot be used; the message says why and how to fix it."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token: the role of its owner, and the name under which orders are recorded."""

    role: Role
    secret: str
    name: str

    def __repr__(self) -> str:
        return f"Token({self.role}, {self.name})"


def new_token(role: Role, name: str) -> Token:
    return Token(role, PREFIXES[role] + secrets.token_urlsafe(24), name)


class TokenFile:
    """The tokens of a file, which is read again when it changes."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._stamp: tuple[int, int, int] | None = None
        self._tokens: tuple[Token, ...] = ()

    def create_if_missing(self) -> bool:
        """Writes a file with one operator and one viewer if there is none; returns whether it did."""
        if self.path.exists():
            self.tokens()
            return False
        self._write((new_token("operator", "operator"), new_token("viewer", "viewer")))
        return True

    def tokens(self) -> tuple[Token, ...]:
        """Returns all tokens of the current file; none if the file does not exist."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            self._stamp, self._tokens = None, ()
            return ()
        stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        if stamp != self._stamp:
            if found.st_mode & 0o077:
                raise TokenError(f"{self.path}: others can read the tokens in it. Run: chmod 600 {self.path}")
            self._tokens, self._stamp = self._read(), stamp
        return self._tokens

    def _read(self) -> tuple[Token, ...]:
        found: dict[str, Token] = {}
        for number, line in enumerate(self.path.read_text(encoding="utf-8").splitlines(), 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            words = line.split(maxsplit=2)
            place = f"{self.path}:{number}"
            if len(words) != 3:
                raise TokenError(f"{place}: a line is ROLE TOKEN NAME")
            role, secret, name = words
            if role not in PREFIXES:
                raise TokenError(f"{place}: {role} is not a role: write operator or viewer")
            if not secret.startswith(PREFIXES[role]) or len(secret) < 20:
                raise TokenError(
                    f"{place}: the token of a {role} begins with {PREFIXES[role]} and has 20 letters or more"
                )
            if name in found:
                raise TokenError(f"{place}: the name {name} is given twice")
            found[name] = Token(role, secret, name)
        return tuple(found.values())

    def create(self, role: Role, name: str) -> Token:
        """Adds a token; raises an error if the name is taken or invalid."""
        if not NAME.fullmatch(name):
            raise TokenError(f"{name!r} is not a valid name: letters, digits and . _ @ - only, at most 64")
        there = self.tokens()
        if any(one.name == name for one in there):
            raise TokenError(f"there is a token named {name} already: revoke it first, or take another name")
        token = new_token(role, name)
        self._write((*there, token))
        return token

    def revoke(self, name: str) -> Token:
        there = self.tokens()
        for one in there:
            if one.name == name:
                self._write(other for other in there if other.name != name)
                return one
        raise TokenError(f"there is no token named {name}; there are {', '.join(one.name for one in there) or 'none'}")

    def _write(self, tokens: Iterable[Token]) -> None:
        """Replaces the whole file, so that no reader sees half of it and other users can never read it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.writelines(f"{one.role} {one.secret} {one.name}\n" for one in tokens)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)
        self._stamp = None

    def with_secret(self, secret: str) -> Token | None:
        """Returns the token with this secret. All tokens are compared in constant time, so that timing reveals
        nothing."""
        given, found = secret.encode(), None
        for one in self.tokens():
            if hmac.compare_digest(one.secret.encode(), given):
                found = one
        return found

    def named(self, name: str) -> Token | None:
        return next((one for one in self.tokens() if one.name == name), None)

    # -- sessions and links ---------------------------------------------------------------------------------------

    def session(self, token: Token, now: float) -> str:
        """Returns the value of a session cookie."""
        return _signed(token, "session", int(now) + SESSION_SECONDS, "-")

    def in_session(self, value: str, now: float) -> Token | None:
        """Returns the token of a session cookie; None if it has expired, is forged, or its token is revoked."""
        found = self._checked(value, "session", now)
        return None if found is None else found[0]

    def link_code(self, token: Token, now: float) -> str:
        """Returns the code of a login link, which is valid once and for a minute."""
        return _signed(token, "link", int(now) + LINK_SECONDS, secrets.token_urlsafe(12))

    def in_link(self, code: str, now: float) -> tuple[Token, str, float] | None:
        """Returns the token of a login code, the number of the code, and when it was made."""
        found = self._checked(code, "link", now)
        return None if found is None else (found[0], found[2], found[1] - LINK_SECONDS)

    def _checked(self, value: str, purpose: str, now: float) -> tuple[Token, float, str] | None:
        parts = value.split(".")
        if len(parts) != 4 or not parts[1].isascii() or not parts[1].isdigit() or len(parts[1]) > 12:
            return None
        try:
            name = base64.urlsafe_b64decode(parts[0].encode()).decode()
        except ValueError:
            return None
        token = self.named(name)
        if token is None:
            return None
        expected = _signed(token, purpose, int(parts[1]), parts[2])
        if not hmac.compare_digest(expected.encode(), value.encode()) or now >= int(parts[1]):
            return None
        return token, float(parts[1]), parts[2]


def _signed(token: Token, purpose: str, until: int, number: str) -> str:
    name = base64.urlsafe_b64encode(token.name.encode()).decode()
    text = f"{purpose}.{token.role}.{name}.{until}.{number}"
    signature = hmac.new(token.secret.encode(), text.encode(), hashlib.sha256).digest()
    return f"{name}.{until}.{number}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"
