"""This module defines the messages between the four kinds of process of the Dask engine, and their common setup.

    pool ◄────► scheduler ◄────► node link ◄────► slot
                                     ▲
                                 supervisor

                          pool ◄──────────────► node link: large values, if the two are on different machines

Calls and orders go from left to right, what becomes of them from right to left, each in order. The scheduler only
passes messages on and remembers nothing of them, so it can be started again: the pool sends calls again that have not
ended, the node link sends events again that were not acknowledged, and both ignore what they know already.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import dask
from distributed.comm import Comm
from distributed.security import Security

from windlass.pool.transport.tls import Credentials
from windlass.providers.remote.tunnels import is_remote, tunnels

BEAT: Final = 1.0
"""Seconds between two heartbeats of a node."""
NODE: Final = "WINDLASS_DASK_NODE"
"""In the environment of a node: which node it is, and how it gets to the scheduler, as JSON."""
SCHEDULER: Final = "WINDLASS_DASK_SCHEDULER"
"""In the environment of the scheduler: where to listen, and for whom, as JSON."""
MOST: Final = 1 << 30
"""Bytes of the largest message: a call with its arguments, or its results. The wire itself ends at twice as much."""

_SETTINGS: Final[Mapping[str, Any]] = {
    # Nodes give heartbeats of our own, from a process that runs no user code.
    "distributed.scheduler.worker-ttl": None,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.scheduler.idle-timeout": None,
    # The last so many events of a topic would be kept, with the results that are in them.
    "distributed.admin.low-level-log-length": 0,
    "distributed.admin.log-length": 100,
    "distributed.admin.large-graph-warning-threshold": "1 TiB",
    "distributed.admin.tick.limit": "1 hour",
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.admin.system-monitor.disk": False,
    "distributed.admin.system-monitor.interval": "10 s",
    "distributed.admin.system-monitor.log-length": 1,
    "distributed.worker.profile.enabled": False,
    "distributed.worker.use-file-locking": False,
    "distributed.worker.multiprocessing-method": "spawn",
    "distributed.diagnostics.nvml": False,
    "distributed.comm.compression": False,
}


def set_up() -> None:
    """In a process of our own: Dask as we use it. Never in the pool's, whose program may have a Dask of its own."""
    dask.config.set(_SETTINGS)
    logging.getLogger("distributed").setLevel(logging.CRITICAL)


def security_of(credentials: Credentials | None) -> Security:
    if credentials is None:
        return Security(require_encryption=False)
    sides = {
        f"tls_{role}_{part}": getattr(credentials, name)
        for role in ("client", "scheduler", "worker")
        for part, name in (("cert", "certificate"), ("key", "key"))
    }
    return Security(tls_ca_file=credentials.authority, require_encryption=True, **sides)


@dataclass(frozen=True, slots=True)
class DaskNodeOrder:
    """What a node reads from its environment."""

    node: str
    slots: int
    scheduler: str
    path: tuple[str, ...]
    """Where the pool's program finds its modules; a node on the same machine finds them there too."""
    credentials: Credentials | None
    data: str
    """Where large values are fetched and sent, if the pool is on another machine: ``host:port``."""
    unhealthy_timeout: float = 30.0
    """Seconds for which a slot may be stopped."""

    def arrived(self) -> DaskNodeOrder:
        """As it is on the machine where the node is: through a tunnel if there is one, and without our own path."""
        if not is_remote():
            return self
        scheme, _, address = self.scheduler.partition("://")
        ways = tunnels()
        scheduler = f"{scheme}://{ways.get(address, address)}"
        return replace(self, scheduler=scheduler, data=ways.get(self.data, self.data), path=())

    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> DaskNodeOrder:
        data = json.loads(text)
        data["path"] = tuple(data["path"])
        data["credentials"] = data["credentials"] and Credentials(**data["credentials"])
        return cls(**data)


class OrderedWriter:
    """Writes messages to a connection in order; those that come while one is written go together as the next."""

    def __init__(self, comm: Comm) -> None:
        self._comm = comm
        self._messages: list[Any] = []
        self._more = asyncio.Event()
        self._task = asyncio.ensure_future(self._write())

    def send(self, message: Any) -> None:
        self._messages.append(message)
        self._more.set()

    async def _write(self) -> None:
        with suppress(OSError):  # CommClosedError is one: the reader of the connection notices it too
            while True:
                await self._more.wait()
                self._more.clear()
                messages, self._messages = self._messages, []
                if messages:
                    await self._comm.write(messages)

    def stop(self) -> None:
        """Write nothing any more."""
        self._task.cancel()

    async def close(self) -> None:
        """Write what is left, and close the connection."""
        self.stop()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(2):
                if self._messages:
                    await self._comm.write(self._messages)
        self._comm.abort()
