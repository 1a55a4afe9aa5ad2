"""A wake-up socket lets one process of the queue wake another.

It is a datagram socket in the queue's directory, one per listener, to which a byte is sent when something changed:
two controllers may listen, and a hundred agents. It is reached through /proc/self/fd, because the path of a socket may
have 107 bytes only and that of a directory more; a short place under /tmp would not be found by a process with another
TMPDIR. It carries no data: the process that it wakes reads the file. So nothing is lost with it, and where there
are no sockets everything works by the clock.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

AGENTS: Final = "agents"
"""Learn of what they must do: work to claim, tasks to end."""
WATCHERS: Final = "watchers"
"""Learn of everything that an observation would show."""


class WakeupSocket:
    """A socket that becomes readable when something changed. ``WATCHERS`` learn of everything, ``AGENTS`` of what
    concerns them."""

    def __init__(self, directory: Path, who: str) -> None:
        """OSError where there are no such sockets, or no such directory."""
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
        """Drop the bytes that have come so far."""
        with suppress(BlockingIOError):
            while True:
                self._socket.recv(16)

    def close(self) -> None:
        self._socket.close()
        with suppress(OSError):
            self.path.unlink()


def wake_all(directory: Path, who: str) -> None:
    """Wake every such listener; the socket of a dead one is removed. Without listeners nothing happens."""
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
                    continue  # gone just now, or so full that it will be heard anyway


@contextmanager
def _short(directory: Path) -> Iterator[str]:
    """A path of few bytes for a directory, for as long as it is needed."""
    handle = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}"
    finally:
        os.close(handle)
