"""Where processes listen, by what the kernel says."""

from __future__ import annotations

import ipaddress
import re
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

Address = tuple[str, int]


def addresses(pids: Iterable[int]) -> set[Address]:
    """(address, port) of every TCP socket on which one of these processes listens."""
    sockets = set()
    for pid in pids:
        with suppress(OSError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    sockets.update(re.findall(r"^socket:\[(\d+)\]$", str(entry.readlink())))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in sockets:
                address, _, port = fields[1].partition(":")
                found.add((_address(address), int(port, 16)))
    return found


def _address(text: str) -> str:
    words = [struct.pack("=I", int(text[start : start + 8], 16)) for start in range(0, len(text), 8)]
    found = ipaddress.ip_address(b"".join(words))
    mapped = getattr(found, "ipv4_mapped", None)
    return str(mapped or found)


def answers_http(address: Address) -> bool:
    """Whether a browser would get a page there."""
    with suppress(OSError), socket.create_connection(address, timeout=5) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        connection.settimeout(2)
        return connection.recv(5) == b"HTTP/"
    return False
