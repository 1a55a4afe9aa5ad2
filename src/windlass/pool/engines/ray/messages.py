"""This module defines the messages between the processes of the Ray engine.

    pool ── pipe ──► driver: Ray's head, and the owner of its actors ──► an actor for each slot
                      ▲
                      └──────── line ◄── node      heartbeats to the driver, and the order to leave

The pool's own process does not load Ray, so its program may use Ray itself, and several pools do not interfere.
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
"""Environment variable of a node: its name and how it reaches the driver, as JSON."""
HUB: Final = "WINDLASS_RAY_HUB"
"""Environment variable of the driver: where it listens and for which pool, as JSON."""
DATA: Final = "WINDLASS_RAY_DATA"
"""Environment variable of slots on another machine: the path of the node's `DataAccess`."""
_SIZE: Final = 8


@dataclass(frozen=True, slots=True)
class RayNodeOrder:
    """The settings that a node reads from its environment."""

    node: str
    slots: int
    head: str
    """Address of Ray's head."""
    line: tuple[str, int]
    token: str
    path: tuple[str, ...]
    """The module search path of the pool's program; a node on the same machine uses it too."""
    object_store: int | None
    credentials: Credentials
    unhealthy_timeout: float = 30.0
    """Seconds for which a process of Ray may be stopped."""
    data: str = ""
    """The address for large values, if the pool is on another machine: ``host:port``."""

    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> RayNodeOrder:
        data = json.loads(text)
        data |= {"path": tuple(data["path"]), "line": tuple(data["line"])}
        data["credentials"] = Credentials(**data["credentials"])
        return cls(**data)


def resource_of(node: str) -> str:
    """Return the name of a Ray resource that only this node has, so that an actor which needs it runs there."""
    return f"windlass-{node}"


def ray_environment(token: str, path: tuple[str, ...], host: str) -> Mapping[str, str]:
    """Return the environment variables of every process of the cluster. Without a token, every user who reaches a port
    of Ray could run code. ``host``: the address of this machine in the cluster.
    """
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
    """Set TCP keep-alive, so that the kernel notices within half a minute when the other machine is unreachable."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, 10),
        (socket.TCP_KEEPINTVL, 5),
        (socket.TCP_KEEPCNT, 4),
        (socket.TCP_USER_TIMEOUT, 30_000),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def frame(*message: Any) -> bytes:
    """Pack a message between the pool and its driver: plain values and bytes. Values of the user are bytes."""
    text = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return len(text).to_bytes(_SIZE, "little") + text


async def read_message(reader: asyncio.StreamReader) -> tuple[Any, ...]:
    """Read the next message; ``asyncio.IncompleteReadError`` if the other side is gone."""
    size = int.from_bytes(await reader.readexactly(_SIZE), "little")
    message: tuple[Any, ...] = pickle.loads(await reader.readexactly(size))
    return message
