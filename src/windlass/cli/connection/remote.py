"""This module reads the documents of a remote controller over HTTP, for the pages of the command line."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from .open_journal import stop

TIMEOUT = 20.0


@dataclass(frozen=True)
class Remote:
    """The address of a server, and the token for it."""

    url: str
    token: str

    def get(self, path: str, **params: Any) -> Any:
        query = urllib.parse.urlencode({key: one for key, one in params.items() if one is not None})
        return self._call("GET", f"{path}?{query}" if query else path)

    def post(self, path: str, body: Any, *, unless: str = "") -> Any:
        """Return the answer; None for a problem of the type ``unless``. Other problems end the command."""
        return self._call("POST", path, json.dumps(body).encode(), unless)

    def _request(self, method: str, path: str, body: bytes | None = None) -> urllib.request.Request:
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        return urllib.request.Request(f"{self.url}/api/v1{path}", body, headers, method=method)

    def _call(self, method: str, path: str, body: bytes | None = None, unless: str = "") -> Any:
        try:
            with urllib.request.urlopen(self._request(method, path, body), timeout=TIMEOUT) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            kind, text = _problem(self.url, error)
            if not unless or kind != unless:
                stop(text)
            return None
        except (OSError, ValueError) as error:
            start = "Start a server there: windlass run --serve, or windlass serve"
            stop(f"{self.url} gives no answer: {cause_of(error)}. {start}")

    def events(self, after: int) -> Iterator[dict[str, Any]]:
        """Yield events as they happen, from a record on."""
        request = self._request("GET", f"/stream?topics=events&after={after}")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                for line in answer:
                    if line.startswith(b"data: ") and b'"windlass.pass/v1"' in line:
                        yield from json.loads(line[6:])["events"]
        except urllib.error.HTTPError as error:
            stop(_problem(self.url, error)[1])
        except OSError as error:
            stop(f"{self.url}: the connection is lost: {error}")


def cause_of(error: Exception) -> str:
    """Return why a server could not be reached, such as ``Connection refused``, without numbers and wrappers."""
    reason = getattr(error, "reason", error)
    return str(getattr(reason, "strerror", None) or reason)


def _problem(url: str, error: urllib.error.HTTPError) -> tuple[str, str]:
    """Return the type of a problem and its text."""
    try:
        problem = json.loads(error.read())
        return str(problem.get("type", "")).rpartition(":")[2], f"{url}: {problem.get('detail') or problem['title']}"
    except (ValueError, KeyError, OSError):
        return "", f"{url}: answers {error.code} {error.reason}"


def reachable(remotely: Callable[..., None]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command ``--url`` and ``--token``; with them ``remotely`` is called instead, without a configuration."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @click.option(
            "--url",
            metavar="URL",
            envvar="WINDLASS_URL",
            show_envvar=True,
            help="Ask the server at this address instead.",
        )
        @click.option(
            "--token", metavar="TOKEN", envvar="WINDLASS_TOKEN", show_envvar=True, help="The token for --url."
        )
        @wraps(command)
        def choose(*args: Any, url: str | None, token: str | None, **more: Any) -> Any:
            remote = remote_of(url, token)
            if remote is None:
                return command(*args, **more)
            more.pop("config_file", None)
            return remotely(remote, **more)

        return choose

    return decorate


def remote_of(url: str | None, token: str | None) -> Remote | None:
    if url is None:
        return None
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise click.BadParameter(f"must begin with http:// or https://, is {url!r}", param_hint="--url")
    if not token:
        raise click.UsageError("--url needs a token: give --token, or WINDLASS_TOKEN in the environment")
    return Remote(url.rstrip("/"), token)
