"""NodeLink connects a node to the scheduler. It is a separate process, so that it receives orders also while slots are
busy. It sends calls to the slots, one at a time each, reads the results of finished items from their pages, takes back
items that have not begun, and forwards heartbeats of the supervisor. Every event has a number and is kept until the
pool has acknowledged it. When the connection breaks, the link tries to reconnect for a while, because the scheduler may
have been restarted; slots continue meanwhile. If that fails, the link ends, and with it the node.
"""

from __future__ import annotations

import asyncio
import json
import platform
import socket
import sys
import time
from collections import OrderedDict, deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from distributed.comm import Comm
from distributed.comm.addressing import get_address_host
from distributed.core import connect

from windlass.pool.transport.data_store import DataStore
from windlass.pool.transport.data_transfer import DataClient
from windlass.pool.transport.framing import FrameBuffer, frame_of
from windlass.pool.transport.slot_page import SETTLING, SlotPage

from .messages import DaskNodeOrder, OrderedWriter, security_of

CONNECTING: Final = 60.0
"""Seconds for the first connection."""
RECONNECTING: Final = 90.0
"""Seconds for the reconnection: longer than the pool waits for a scheduler that hangs while it starts."""
_ATTEMPT: Final = 5.0
"""Seconds of one attempt. Within one, Dask doubles the pauses between its own: a longer attempt would still pause when
the scheduler is back.
"""
_PAUSE: Final = 0.2
_FIRST_LOOK: Final = 0.004
_LAST_LOOK: Final = 0.05
"""Seconds between two checks for results of batches, when a slot has just begun to work and later."""
_KNOWN: Final = 10_000
"""Number of call ids that are remembered, so that a call that is resent does not run twice."""


@dataclass(slots=True)
class _LinkCall:
    id: str
    items: int
    blob: bytes
    environment: dict[str, str]
    revoked: bool = False
    """Whether its items are taken back as soon as it has begun."""


@dataclass(eq=False, slots=True)
class _LinkSlot:
    number: int
    life: int
    process: socket.socket
    page: SlotPage
    frames: FrameBuffer = field(default_factory=FrameBuffer)
    running: _LinkCall | None = None
    waiting: deque[_LinkCall] = field(default_factory=deque)
    pause: float = _FIRST_LOOK
    """Seconds until the next check for results; it grows until the slot has nothing to do."""


class NodeLink:
    """Connects the slots of a node, its supervisor and the scheduler."""

    def __init__(self, order: DaskNodeOrder, supervisor: socket.socket) -> None:
        self._order, self._supervisor = order, supervisor
        self._arguments = security_of(order.credentials).get_connection_args("worker")
        self._slots: dict[int, _LinkSlot] = {}
        self._early: dict[int, list[_LinkCall]] = {}
        """Calls for slots whose process has not started yet."""
        self._data = DataClient(order.data, order.credentials)
        self._store: DataStore | None = None
        """The client for values and results, if the pool is on another machine."""
        self._wanted: dict[str, list[_LinkSlot]] = {}
        """Slots that wait for a value."""
        self._known: OrderedDict[str, None] = OrderedDict()
        self._number = 0
        self._events: deque[tuple[int, tuple[Any, ...]]] = deque()
        """Events that were not acknowledged."""
        self._writer: OrderedWriter | None = None
        self._whole = asyncio.Event()
        self._tasks: set[asyncio.Future[Any]] = set()

    async def hold(self) -> None:
        """Run until the scheduler or the node is gone."""
        node = asyncio.create_task(self._from_supervisor())
        scheduler = asyncio.create_task(self._connected())
        done, _ = await asyncio.wait([node, scheduler], return_when=asyncio.FIRST_COMPLETED)
        for error in [one.exception() for one in done]:
            if error is not None:
                self._report_end(f"its link to the pool failed: {type(error).__name__}: {error}")
        scheduler.cancel()
        if self._writer is not None:
            await self._writer.close()
        self._data.close()
        if self._store is not None:
            self._store.close()

    # -- the scheduler ------------------------------------------------------------------------------------------------

    async def _connected(self) -> None:
        await self._whole.wait()
        patience = CONNECTING
        while True:
            comm = await self._connect(patience)
            if comm is None:
                self._report_end(f"it could not reach the pool for {patience:g} s")
                return
            with suppress(OSError):  # CommClosedError is one
                hello = {"node": self._order.node, "slots": self._order.slots, "python": platform.python_version()}
                address = get_address_host(comm.local_address)
                lives = {str(slot.number): slot.life for slot in self._slots.values()}
                await comm.write({"op": "windlass_node", "reply": False, "address": address, "lives": lives, **hello})
                while True:
                    for order in await comm.read():
                        self._handle_orders(comm, order)
            self._writer = None
            patience = RECONNECTING

    def _report_end(self, why: str) -> None:
        """Report why the node ends: to the pool, if it can be reached, and in the node's log."""
        self._send("why", why)
        sys.stderr.write(f"windlass: {self._order.node} ends: {why}\n")
        sys.stderr.flush()

    async def _connect(self, patience: float) -> Comm | None:
        until = time.monotonic() + patience
        while time.monotonic() < until:
            with suppress(OSError):
                return await connect(self._order.scheduler, timeout=_ATTEMPT, **self._arguments)
            await asyncio.sleep(_PAUSE)
        return None

    def _handle_orders(self, comm: Comm, order: dict[str, Any]) -> None:
        match order:
            case {"resume": number}:
                self._forget(number)
                self._writer = OrderedWriter(comm)
                for event in self._events:
                    self._writer.send(event)
            case {"ack": number}:
                self._forget(number)
            case {"run": call, "slot": slot, "items": items, "blob": blob, "environment": environment}:
                self._run(slot, _LinkCall(call, items, bytes(blob), environment))
            case {"revoke": call}:
                self._revoke(call)
            case {"kill": call}:
                self._kill(call)
            case {"leave": _}:
                self._order_supervisor({"leave": True})

    def _forget(self, number: int) -> None:
        while self._events and self._events[0][0] <= number:
            self._events.popleft()

    def _send(self, *message: Any) -> None:
        self._number += 1
        event = self._number, message
        self._events.append(event)
        if self._writer is not None:
            self._writer.send(event)

    # -- calls --------------------------------------------------------------------------------------------------------

    def _run(self, number: int, call: _LinkCall) -> None:
        if call.id in self._known:
            return
        self._known[call.id] = None
        if len(self._known) > _KNOWN:
            self._known.popitem(last=False)
        slot = self._slots.get(number)
        if slot is None:  # its process has died, and the next one has not started yet
            self._early.setdefault(number, []).append(call)
        else:
            slot.waiting.append(call)
            self._next(slot)

    def _next(self, slot: _LinkSlot) -> None:
        if slot.running is None and slot.waiting:
            call = slot.running = slot.waiting.popleft()
            self._keep(self._hand(slot, frame_of((call.id, call.items, call.blob, call.environment))))
            call.blob = b""

    async def _hand(self, slot: _LinkSlot, frame: bytes) -> None:
        with suppress(OSError):  # it has died: the supervisor reports it
            await asyncio.get_running_loop().sock_sendall(slot.process, frame)

    def _revoke(self, call: str) -> None:
        for early in self._early.values():
            for one in [one for one in early if one.id == call]:
                early.remove(one)
                self._send("revoked", call)
        for slot in self._slots.values():
            for one in [one for one in slot.waiting if one.id == call]:
                slot.waiting.remove(one)
                self._send("revoked", call)
            if slot.running is not None and slot.running.id == call:
                self._shorten(slot, slot.running)

    def _shorten(self, slot: _LinkSlot, call: _LinkCall) -> None:
        """Take back the items of a running call that have not begun."""
        if slot.running is not call:
            return
        call.revoked = True  # if it has not begun, it is shortened when it has
        if slot.page.call == call.id:
            slot.page.lower()
            asyncio.get_running_loop().call_later(SETTLING, self._shortened, slot, call)

    def _shortened(self, slot: _LinkSlot, call: _LinkCall) -> None:
        if slot.running is call and self._slots.get(slot.number) is slot:
            kept = slot.page.kept()
            if kept < call.items:
                call.items = kept
                self._send("kept", call.id, kept)

    def _kill(self, call: str) -> None:
        for slot in self._slots.values():
            if slot.running is not None and slot.running.id == call:
                self._order_supervisor({"kill": call, "slot": slot.number, "life": slot.life})
                return
        self._revoke(call)

    # -- slots --------------------------------------------------------------------------------------------------------

    def _read(self, slot: _LinkSlot) -> None:
        """Handle the messages of a slot."""
        while True:
            try:
                some = slot.process.recv(1 << 18)
            except BlockingIOError:
                return
            except OSError:
                some = b""
            if not some:
                asyncio.get_running_loop().remove_reader(slot.process)
                return
            for message in slot.frames.feed(some):
                self._handle(slot, *message)

    def _handle(self, slot: _LinkSlot, kind: str, call: str, *message: Any) -> None:
        match kind:
            case "began":
                self._send("began", call)
                if slot.running is not None and slot.running.revoked:
                    self._shorten(slot, slot.running)
                if slot.running is not None and slot.running.items > 1:
                    self._look_later(slot, slot.running)
            case "fetch":
                self._fetch(slot, call)
            case "place":
                self._keep(self._hand(slot, frame_of(tuple(self._own_store().place))))
            case "put":
                self._keep(self._put(slot, call, message[0]))
            case "results":
                self._collect(slot)
                seconds, entry = message
                self._passed(slot.running, seconds, entry)
            case "over":
                seconds, broken = message
                self._send("over", call, seconds, slot.page.take()[1], broken)
                slot.running = None
                if not slot.waiting:
                    slot.pause = _FIRST_LOOK
                self._next(slot)
            case _:
                self._send(kind, call, *message)

    def _look_later(self, slot: _LinkSlot, call: _LinkCall) -> None:
        asyncio.get_running_loop().call_later(slot.pause, self._look, slot, call)

    def _look(self, slot: _LinkSlot, call: _LinkCall) -> None:
        if slot.running is call and self._slots.get(slot.number) is slot:
            self._collect(slot)
            slot.pause = min(2 * slot.pause, _LAST_LOOK)
            self._look_later(slot, call)

    def _collect(self, slot: _LinkSlot) -> None:
        self._passed(slot.running, *slot.page.take())

    def _passed(self, call: _LinkCall | None, seconds: float, results: bytes) -> None:
        if call is not None and results:
            self._send("results", call.id, seconds, results)

    def _died(self, number: int, life: int, how: str, killed: str) -> None:
        """Handle the end of a slot's process, after its last messages."""
        slot = self._slots.get(number)
        if slot is None or slot.life != life:
            return
        self._read(slot)
        del self._slots[number]
        asyncio.get_running_loop().remove_reader(slot.process)
        call = slot.running
        if call is not None:
            if slot.page.last_call == call.id:
                how = f"the process of slot {number} {how}"
                self._send("died", call.id, *slot.page.take(), call.items, how, killed == call.id)
            else:
                self._send("revoked", call.id)
        for one in slot.waiting:
            self._send("revoked", one.id)
        slot.process.close()
        slot.page.close()

    # -- shared values ------------------------------------------------------------------------------------------------

    def _own_store(self) -> DataStore:
        if self._store is None:
            self._store = DataStore(cache=True)
        return self._store

    def _fetch(self, slot: _LinkSlot, name: str) -> None:
        """Fetch a value that a slot needs from the pool's machine."""
        path = self._own_store().known(name)
        if path is not None and Path(path).exists():
            self._keep(self._hand(slot, frame_of((path, ""))))
        else:
            self._wanted.setdefault(name, []).append(slot)
            if len(self._wanted[name]) == 1:
                self._keep(self._bring(name))

    async def _bring(self, name: str) -> None:
        try:
            path = await asyncio.to_thread(self._data.fetch, name, self._own_store())
            answer = path or "", "no task and no handle of the program holds it"
        except OSError as error:
            answer = "", str(error)
        for slot in self._wanted.pop(name, ()):
            await self._hand(slot, frame_of(answer))

    async def _put(self, slot: _LinkSlot, name: str, path: str) -> None:
        """Send a large result of a slot to the pool's machine."""
        try:
            answer = await asyncio.to_thread(self._data.send, name, path), ""
        except OSError as error:
            answer = "", str(error)
        await self._hand(slot, frame_of(answer))

    # -- the supervisor -----------------------------------------------------------------------------------------------

    async def _from_supervisor(self) -> None:
        while True:
            await _readable(self._supervisor)
            text, handles, _, _ = socket.recv_fds(self._supervisor, 1 << 16, 4)
            if not text:
                return
            match json.loads(text):
                case {"slot": slot, "life": life}:
                    self._adopt(slot, life, handles)
                case {"gone": slot, "life": life, "how": how, "killed": killed}:
                    self._died(slot, life, how, killed)
                case {"why": why}:
                    self._send("why", why)
                case {"beat": _}:
                    if self._writer is not None:
                        self._writer.send((0, ("beat",)))

    def _adopt(self, number: int, life: int, handles: list[int]) -> None:
        process = socket.socket(fileno=handles[0])
        process.setblocking(False)
        slot = self._slots[number] = _LinkSlot(number, life, process, SlotPage(*handles[1:]))
        asyncio.get_running_loop().add_reader(process, self._read, slot)
        slot.waiting.extend(self._early.pop(number, ()))
        self._next(slot)
        if len(self._slots) == self._order.slots:
            self._whole.set()

    def _order_supervisor(self, order: dict[str, Any]) -> None:
        with suppress(OSError):
            self._supervisor.send(json.dumps(order).encode())

    def _keep(self, coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _readable(source: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(source, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(source)
