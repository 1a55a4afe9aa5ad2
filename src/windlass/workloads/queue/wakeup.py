"""A wake-up socket lets one process of the queue wake another.

Each listener has a datagram socket in the queue's directory, and gets a byte when something changed. There may be
several controllers and a hundred agents. A socket is opened through /proc/self/fd, because its path is limited to 107
bytes and that of a directory is not; a process with another TMPDIR would not find a short path under /tmp. The byte
carries no data: the process that wakes up reads the file. So a lost byte only causes a delay, and without sockets the
listeners poll.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

AGENTS: Final = "agents"
"""Listeners that get wake-ups for tasks to claim or to end."""
WATCHERS: Final = "watchers"
"""Listeners that get a wake-up for every change."""


class WakeupSocket:
    """A socket that becomes readable when something changed: for ``WATCHERS`` anything, for ``AGENTS`` tasks to claim
    or end.
    """

    def __init__(self, directory: Path, who: str) -> None:
        """Raises OSError where the directory does not exist or sockets are not supported."""
        home = directory / "bells" / who
        for place in (home.parent, home):
            place.mkdir(mode=0o700, exist_ok=True)
        self.path = home / f"{os.getpid()}-{os.urandom(4).hex()}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        try:
            with _short(home) as short:
                self._socket.bind(f"{short}/{self.path.name}")
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def clear(self) -> None:
        """Drop the bytes received so far."""
        with suppress(BlockingIOError):
            while True:
                self._socket.recv(16)

    def close(self) -> None:
        self._socket.close()
        with suppress(OSError):
            self.path.unlink()


def wake_all(directory: Path, who: str) -> None:
    """Wake every listener of a kind; the socket of a dead one is removed."""
    with suppress(OSError), _short(directory / "bells" / who) as home:
        names = os.listdir(home)  # noqa: PTH208 (a path of its own for each would cost more than the ringing)
        if not names:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            for name in names:
                try:
                    sender.sendto(b"1", f"{home}/{name}")
                except ConnectionRefusedError:
                    with suppress(OSError):
                        Path(home, name).unlink()
                except OSError:
                    continue  # removed just now, or full, so that the listener wakes up anyway


@contextmanager
def _short(directory: Path) -> Iterator[str]:
    """A context that gives a short path for a directory."""
    handle = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}"
    finally:
        os.close(handle)
