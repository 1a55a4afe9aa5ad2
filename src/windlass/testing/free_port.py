"""Finds a port for a server of a test.

A port that the kernel chooses is of the range that it also uses for outgoing connections: a client may take it before
the server listens. The ports here are below that range, and above those that Ray gives to its workers.
"""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from typing import Final

PORTS: Final = range(20_000, 32_000)
_SOURCE: Final = random.SystemRandom()


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port of an address on which no program listens."""
    for _ in range(1000):
        port = _SOURCE.choice(PORTS)
        with suppress(OSError), socket.socket() as probe:
            probe.bind((host, port))
            return port
    raise OSError(f"no free port from {PORTS.start} to {PORTS.stop - 1} on {host}")
