"""This module defines the messages between the four kinds of process of the Dask engine, and their common setup.

    pool ◄────► scheduler ◄────► node link ◄────► slot
                                     ▲
                                 supervisor

                          pool ◄──────────────► node link: large values, if the two are on different machines

Calls and orders go from left to right, their events from right to left, each in order. The scheduler only forwards
messages and stores none, so it can be restarted: the pool resends calls that have not ended, the node link resends
events that were not acknowledged, and both ignore duplicates.
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
SCHEDULER_BEAT: Final = 0.5
"""Seconds between two heartbeats of the scheduler. More often than the pool looks: it looks once in ``BEAT``."""
NODE: Final = "WINDLASS_DASK_NODE"
"""Environment variable of a node: its name and how it reaches the scheduler, as JSON."""
SCHEDULER: Final = "WINDLASS_DASK_SCHEDULER"
"""Environment variable of the scheduler: where it listens and for which pool, as JSON."""
MOST: Final = 1 << 30
"""Bytes of the largest message: a call with its arguments, or its results. The connection's own limit is twice as high.
"""

_SETTINGS: Final[Mapping[str, Any]] = {
    # A server of Dask measures its own process by default. Nothing reads these measurements here.
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.admin.system-monitor.disk": False,
    "distributed.admin.system-monitor.interval": "10 s",
    "distributed.admin.system-monitor.log-length": 1,
    "distributed.worker.profile.enabled": False,
    "distributed.diagnostics.nvml": False,
    # Results are bytes that are already pickled; compressing them costs more than sending them.
    "distributed.comm.compression": False,
}


def set_up() -> None:
    """Configure Dask in a process of Windlass. Never in the pool's process, whose program may use Dask itself."""
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
    """The settings that a node reads from its environment."""

    node: str
    slots: int
    scheduler: str
    path: tuple[str, ...]
    """The module search path of the pool's program; a node on the same machine uses it too."""
    credentials: Credentials | None
    data: str
    """The address for large values, if the pool is on another machine: ``host:port``."""
    unhealthy_timeout: float = 30.0
    """Seconds for which a slot may be stopped."""
    directory: str = ""
    """The working directory of the pool's program, for tasks on the same machine."""

    def arrived(self) -> DaskNodeOrder:
        """Return the settings as they apply on the node's machine: through a tunnel if there is one, and without our
        search path.
        """
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
    """Writes messages to a connection in order; those that arrive during a write are sent together in the next."""

    def __init__(self, comm: Comm) -> None:
        self._comm = comm
        self._messages: list[Any] = []
        self._more = asyncio.Event()
        self._task = asyncio.ensure_future(self._write())

    def send(self, message: Any) -> None:
        self._messages.append(message)
        self._more.set()

    async def _write(self) -> None:
        with suppress(OSError):  # includes CommClosedError: the reader of the connection notices it too
            while True:
                await self._more.wait()
                self._more.clear()
                messages, self._messages = self._messages, []
                if messages:
                    await self._comm.write(messages)

    def stop(self) -> None:
        """Stop writing."""
        self._task.cancel()

    async def close(self) -> None:
        """Write the remaining messages, and close the connection."""
        self.stop()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(2):
                if self._messages:
                    await self._comm.write(self._messages)
        self._comm.abort()
