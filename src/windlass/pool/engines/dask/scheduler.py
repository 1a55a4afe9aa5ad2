"""This program is the scheduler: a server on Dask's encrypted connections between the pool and its nodes.

    WINDLASS_DASK_SCHEDULER='{"pool": 123, ...}' python -m windlass.pool.engines.dask.scheduler

It prints its address as one line on stdout. It ends when the pool's process ends in any way, and then orders the nodes
to leave. It decides nothing and unpickles nothing: the pool's task book decides which call goes where. It stores only
which node is on which connection, so it can be restarted at any time.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress
from tempfile import TemporaryDirectory
from typing import Any, Final

from distributed.comm import Comm
from distributed.core import Server, Status

from windlass.pool.transport.data_store import sweep
from windlass.pool.transport.process_session import stop_event
from windlass.pool.transport.tls import Credentials

from . import messages as dask_messages
from .messages import SCHEDULER, SCHEDULER_BEAT, OrderedWriter

_PARTING: Final = 0.5
"""Seconds for the last orders to the nodes."""


class MessageServer(Server):  # type: ignore[misc, unused-ignore]
    """Forwards orders to nodes and events to the pool."""

    def __init__(self, secret: str, **options: Any) -> None:
        """``secret``: known only to the pool; nodes have certificates too and must not give orders."""
        self._secret = secret
        self._pool: OrderedWriter | None = None
        self._nodes: dict[str, OrderedWriter] = {}
        self._missed: list[Any] = []
        """Messages of nodes that arrived before the pool was connected."""
        super().__init__({"windlass_pool": self.hold_pool, "windlass_node": self.hold_node}, **options)

    async def hold_pool(self, comm: Comm, secret: str) -> Status:
        """Serve the pool until its connection ends."""
        if secret != self._secret:
            comm.abort()
            return Status.dont_reply
        self._pool = OrderedWriter(comm)
        self._send("hello")
        for message in self._missed:
            self._pool.send(message)
        self._missed = []
        with suppress(OSError):  # CommClosedError is one
            while True:
                for node, order in await comm.read():
                    if node in self._nodes:
                        self._nodes[node].send(order)
        return Status.dont_reply

    async def hold_node(
        self, comm: Comm, node: str, slots: int, python: str, address: str, lives: dict[str, int]
    ) -> Status:
        """Serve a node until its connection ends."""
        writer = self._nodes[node] = OrderedWriter(comm)
        self._send("node", node, slots, python, address, lives)
        with suppress(OSError):  # CommClosedError is one
            while True:
                self._send("events", node, await comm.read())
        writer.stop()
        if self._nodes.get(node) is writer:
            del self._nodes[node]
            self._send("node-gone", node)
        return Status.dont_reply

    def _send(self, *message: Any) -> None:
        if self._pool is None:
            self._missed.append(message)
        else:
            self._pool.send(message)

    async def beat(self) -> None:
        """Send heartbeats to the pool."""
        while True:
            if self._pool is not None:
                self._pool.send(("beat",))
            await asyncio.sleep(SCHEDULER_BEAT)

    async def part(self) -> None:
        """Order all nodes to leave."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PARTING):
                for writer in self._nodes.values():
                    writer.send({"leave": True})
                await asyncio.gather(*(writer.close() for writer in self._nodes.values()))


async def serve(parameters: dict[str, Any]) -> None:
    """Run until the pool's process has ended, or orders it to end."""
    ended = stop_event(parameters["pool"])
    if ended.is_set():
        return
    credentials = Credentials(**parameters["credentials"]) if parameters["credentials"] else None
    security = dask_messages.security_of(credentials)
    with TemporaryDirectory(prefix="windlass-scheduler-") as scratch:  # Dask makes one that nothing here uses
        server = MessageServer(
            parameters["secret"],
            connection_args=security.get_connection_args("scheduler"),
            connection_limit=4,
            local_directory=scratch,
            needs_workdir=False,
        )
    protocol = "tcp" if credentials is None else "tls"
    await server.listen(
        f"{protocol}://{parameters['host']}:{parameters['port']}", **security.get_listen_args("scheduler")
    )
    sys.stdout.write(f"{server.address}\n")
    sys.stdout.flush()
    beating = asyncio.ensure_future(server.beat())
    await ended.wait()
    beating.cancel()
    await server.part()
    sweep()  # large values of a program that was killed
    if os.getppid() != parameters["pool"]:
        from windlass.pool.transport.temp_dirs import (
            sweep_after_kill,  # late: a scheduler that starts does not wait for it
        )

        sweep_after_kill()
    os._exit(0)  # nothing needs to be cleaned up


def main() -> None:
    dask_messages.set_up()
    asyncio.run(serve(json.loads(os.environ.pop(SCHEDULER))))


if __name__ == "__main__":
    main()
