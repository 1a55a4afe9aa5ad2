"""A status file per node shows that its agent is alive, and its error when the database cannot be written.

    DIRECTORY/nodes/NODE      the agent's error, padded to a fixed size; its modification time is a heartbeat

The file gets its full size when the agent joins and is only overwritten in place afterwards. That needs no disk space,
so it works on a full disk, where a write to the database fails. The agent keeps the file open, so it also works while
the directory is missing.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

SIZE: Final = 1024


class StatusFile:
    """The open status file of one node. Errors of this file are ignored."""

    def __init__(self, directory: Path, node: str) -> None:
        self._path = _path(directory, node)
        self._handle: int | None = None
        self._text = ""
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._overwrite()

    def report(self, problem: str) -> None:
        """Write a heartbeat and the error."""
        self._text = problem
        with suppress(OSError):
            self._overwrite()

    def clear(self) -> None:
        """Clear the error: the database has the heartbeat again."""
        if self._text:
            self.report("")

    def remove(self) -> None:
        with suppress(OSError):
            self._path.unlink()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _overwrite(self) -> None:
        if self._handle is not None:
            text = self._text.encode()[:SIZE].decode(errors="ignore").encode()
            os.pwrite(self._handle, text.ljust(SIZE), 0)


def read_status(directory: Path, node: str) -> tuple[float, str] | None:
    """Return when a node's status file was last written, and its error; None: there is no such file."""
    try:
        with _path(directory, node).open("rb") as file:
            return os.fstat(file.fileno()).st_mtime, file.read(SIZE).decode(errors="replace").strip()
    except OSError:
        return None


def _path(directory: Path, node: str) -> Path:
    return directory / "nodes" / node.replace("%", "%25").replace("/", "%2F")
