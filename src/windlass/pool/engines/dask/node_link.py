"""The line of a node to the scheduler: a process of its own, so that orders get through whatever the slots do.

It says which node this is, passes on what the scheduler orders (kill a call, leave), and fetches what is shared, once
for all slots. The connection itself is the sign of life: when it is gone the line ends, and with it the node; and for
the scheduler the node is gone. TCP's own probes notice a machine that went silent within half a minute.
"""

from __future__ import annotations

import asyncio
import json
import platform
import socket
from contextlib import suppress
from typing import Any, Final

from distributed.comm import Comm
from distributed.comm.addressing import get_address_host
from distributed.core import connect, rpc

from windlass.pool.transport.shared_memory import memory_file

from .messages import DaskNodeOrder, security_of
from .slot import FORGET

_CHUNK: Final = 64 << 20
_PATIENCE: Final = 60.0
"""Seconds within which the scheduler must answer."""


class NodeLink:
    """Between the node, its slots and the scheduler."""

    def __init__(self, order: DaskNodeOrder, node: socket.socket) -> None:
        self._order, self._node = order, node
        self._arguments = security_of(order.credentials).get_connection_args("worker")
        self._shared: dict[str, asyncio.Future[int]] = {}
        self._slots: set[socket.socket] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def hold(self) -> None:
        """Until the scheduler is gone, or the node is."""
        comm = await connect(self._order.scheduler, timeout=_PATIENCE, **self._arguments)
        address = get_address_host(comm.local_address)
        hello = {"node": self._order.node, "slots": self._order.slots, "python": platform.python_version()}
        await comm.write({"op": "windlass_line", "reply": False, "address": address, **hello})
        ways = [asyncio.create_task(way) for way in (self._from_scheduler(comm), self._from_node(comm))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await comm.close()

    async def _from_scheduler(self, comm: Comm) -> None:
        with suppress(OSError):  # CommClosedError is one: the scheduler is gone
            while True:
                self._obey(await comm.read())

    def _obey(self, message: dict[str, Any]) -> None:
        if "forget" in message:
            name = message["forget"]
            self._shared.pop(name, None)
            for slot in self._slots:
                _send(slot, FORGET + name.encode())
        else:
            _send(self._node, json.dumps(message).encode())

    async def _from_node(self, comm: Comm) -> None:
        """A slot's new line, or a word for the scheduler, until the node leaves."""
        while True:
            await _readable(self._node)
            text, handles, _, _ = socket.recv_fds(self._node, 1 << 16, 1)
            if handles:
                slot = socket.socket(fileno=handles[0])
                slot.setblocking(False)
                self._slots.add(slot)
                self._keep(self._serve(slot))
            elif text:
                await comm.write(json.loads(text))
            else:
                return

    async def _serve(self, slot: socket.socket) -> None:
        """Give a slot what it asks for until it is gone."""
        while True:
            await _readable(slot)
            try:
                name = slot.recv(1 << 16).decode()
            except OSError:
                name = ""
            if not name:
                self._slots.discard(slot)
                slot.close()
                return
            try:
                handle = await self._have(name)
            except (OSError, LookupError) as error:
                self._shared.pop(name, None)
                _send(slot, f"what is shared as {name} could not be fetched: {error}".encode())
            else:
                _send(slot, b"+", handle)

    def _have(self, name: str) -> asyncio.Future[int]:
        if name not in self._shared:
            self._shared[name] = asyncio.ensure_future(self._fetched(name))
        return self._shared[name]

    async def _fetched(self, name: str) -> int:
        chunks: list[bytes] = []
        async with rpc(self._order.scheduler, connection_args=self._arguments, timeout=_PATIENCE) as scheduler:
            size, offset = -1, 0
            while offset != size:
                size, chunk = await scheduler.windlass_shared(name=name, offset=offset, length=_CHUNK)
                if chunk is None:
                    raise LookupError("nobody shares it")
                chunks.append(chunk)
                offset += len(chunk)
        return memory_file(chunks)

    def _keep(self, coroutine: Any) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _send(to: socket.socket, text: bytes, *handles: int) -> None:
    try:
        socket.send_fds(to, [text], handles)
    except OSError:
        return  # it is gone, and with it the need


async def _readable(source: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(source, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(source)
