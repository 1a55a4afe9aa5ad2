"""This module passes the token and the TLS files of a Ray cluster to workers.

A worker on another machine gets the token in its environment, which providers do not store. The local provider stores
the environment of its hosts on disk, so a worker on this machine gets the path of a file instead: the user's token
file, or one that only this user can read and that is removed with the worker.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from windlass.workloads.protocol import WorkloadError

TOKEN: Final = "RAY_AUTH_TOKEN"
TOKEN_PATH: Final = "RAY_AUTH_TOKEN_PATH"
MODE: Final = "RAY_AUTH_MODE"
_TLS: Final = {"ca_file": "RAY_TLS_CA_CERT", "cert": "RAY_TLS_SERVER_CERT", "key": "RAY_TLS_SERVER_KEY"}


@dataclass(frozen=True, slots=True)
class RayCredentials:
    """The token of a cluster, the file that it came from, and the TLS files."""

    token: str = ""
    """Empty: none is sent."""
    token_file: str | None = None
    tls: Mapping[str, str | None] | None = None

    def __repr__(self) -> str:
        return f"RayCredentials(token={'...' if self.token else None}, token_file={self.token_file!r}, tls={self.tls})"

    def environment(self, private_file: Path | None) -> dict[str, str]:
        """Return the environment variables of one worker. ``private_file``: the path for a token file on this machine;
        None: the worker is on another machine."""
        found = {MODE: "token" if self.token else "disabled"}
        if self.token and private_file is None:
            found[TOKEN] = self.token
        elif self.token:
            found[TOKEN_PATH] = str(Path(self.token_file).resolve() if self.token_file else self._written(private_file))
        given = {_TLS[key]: path for key, path in (self.tls or {}).items() if path and key in _TLS}
        return found | ({"RAY_USE_TLS": "1", **given} if given else {})

    def _written(self, path: Path | None) -> Path:
        """Write the token to a new file that only this user can read."""
        assert path is not None
        try:
            path.unlink(missing_ok=True)
            # O_EXCL: never write to a file or link that another user has put there.
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(self.token)
        except OSError as error:
            raise WorkloadError(
                f"the token for workers cannot be written to {path}: {error.strerror}; give token_file"
            ) from error
        return path


def read_token(file: str | None, environment: Mapping[str, str]) -> tuple[str, str | None]:
    """Return the token and the file that it was read from. ``file``: ``token_file`` of the configuration. An empty
    token means that there is none."""
    if file is None and environment.get(TOKEN):
        return environment[TOKEN].strip(), None
    path = file or environment.get(TOKEN_PATH)
    if not path:
        return "", None
    return Path(path).read_text(encoding="utf-8").strip(), path
