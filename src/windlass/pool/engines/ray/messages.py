"""This module defines the messages between the processes of the Ray engine.

    pool ── pipe ──► driver: Ray's head, and the owner of its actors ──► an actor for each slot
                      ▲
                      └──────── line ◄── node      the sign that it lives, and the order to leave

The pool's own process does not load Ray, so its program may have a Ray of its own, and several pools do not meet.
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from windlass.pool.transport.tls import Credentials

from .loopback import SINGLE_MACHINE, is_loopback

NODE: Final = "WINDLASS_RAY_NODE"
"""In the environment of a node: which node it is, and how it reaches the driver, as JSON."""
HUB: Final = "WINDLASS_RAY_HUB"
"""In the environment of the driver: where to listen, and for whom, as JSON."""
DATA: Final = "WINDLASS_RAY_DATA"
"""In the environment of the slots of a node on another machine: the file with its `DataAccess`."""
_SIZE: Final = 8


@dataclass(frozen=True, slots=True)
class RayNodeOrder:
    """What a node reads from its environment."""

    node: str
    slots: int
    head: str
    """Address of Ray's head."""
    line: tuple[str, int]
    token: str
    path: tuple[str, ...]
    """Where the pool's program finds its modules; a node on the same machine finds them there too."""
    object_store: int | None
    credentials: Credentials
    unhealthy_timeout: float = 30.0
    """Seconds for which a process of Ray may be stopped."""
    data: str = ""
    """Where large values are fetched and sent, if the pool is on another machine: ``host:port``."""

    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> RayNodeOrder:
        data = json.loads(text)
        data |= {"path": tuple(data["path"]), "line": tuple(data["line"])}
        data["credentials"] = Credentials(**data["credentials"])
        return cls(**data)


def resource_of(node: str) -> str:
    """What only this node has: an actor that needs some of it runs there."""
    return f"windlass-{node}"


def ray_environment(token: str, path: tuple[str, ...], host: str) -> Mapping[str, str]:
    """For every process of the cluster. Without a token, anyone who reaches a port of Ray's could run code. ``host``:
    the address of this machine in it."""
    return {
        **os.environ,
        **(SINGLE_MACHINE if is_loopback(host) else {}),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": token,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DEDUP_LOGS": "0",
        "PYTHONPATH": os.pathsep.join((*path, os.environ.get("PYTHONPATH", ""))).strip(os.pathsep),
    }


def watch_over(connection: socket.socket) -> None:
    """Have the kernel notice within half a minute that the other machine has gone silent."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, 10),
        (socket.TCP_KEEPINTVL, 5),
        (socket.TCP_KEEPCNT, 4),
        (socket.TCP_USER_TIMEOUT, 30_000),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def frame(*words: Any) -> bytes:
    """Pack a message between the pool and its driver: plain values and bytes. Values of the user are bytes."""
    text = pickle.dumps(words, protocol=pickle.HIGHEST_PROTOCOL)
    return len(text).to_bytes(_SIZE, "little") + text


async def words_from(reader: asyncio.StreamReader) -> tuple[Any, ...]:
    """``asyncio.IncompleteReadError`` when the other side is gone."""
    size = int.from_bytes(await reader.readexactly(_SIZE), "little")
    words: tuple[Any, ...] = pickle.loads(await reader.readexactly(size))
    return words
