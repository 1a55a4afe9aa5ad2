"""This module finds a port for a server that another program starts a moment later.

A port that the kernel chooses is of the range that it also uses for outgoing connections: a client may take it before
the server listens. The ports here are below that range, and above those that Ray gives to its workers.
"""

from __future__ import annotations

import errno
import random
import socket
from typing import Final

PORTS: Final = range(20_000, 32_000)
_SOURCE: Final = random.SystemRandom()


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port of an address on which no program listens; ``OSError`` for an address of another machine."""
    for _ in range(1000):
        port = _SOURCE.choice(PORTS)
        try:
            with socket.socket() as probe:
                probe.bind((host, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return port
    raise OSError(f"no free port from {PORTS.start} to {PORTS.stop - 1} on {host}")
