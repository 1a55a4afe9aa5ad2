"""RayDriver starts Ray's head, runs an actor for each slot, and has a connection to each node. It is a separate
process:

    WINDLASS_RAY_HUB='{"pool": 123, ...}' python -m windlass.pool.engines.ray.driver

A slot's next call is sent when the one before it has ended. So a waiting call is taken back here, and killing one call
never kills the next. The driver ends when the pool's process ends in any way.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import ray
from ray.exceptions import RayActorError, RayError

from windlass._free_port import free_port
from windlass.pool.transport.data_store import sweep
from windlass.pool.transport.process_session import ProcessSession, session_directory, stop_event
from windlass.pool.transport.tls import Credentials, tls_context

from .messages import HUB, frame, read_message, resource_of, watch_over
from .node import ray_command
from .slot import CONCURRENCY, RaySlot

_OUTPUT_KEPT: Final = 500
"""Characters of the head's last output that are reported."""
_LEAVING: Final = 10.0
"""Seconds for nodes to leave."""
_PATIENCE: Final = 180.0
_BEAT: Final = 0.5
"""Seconds between two heartbeats to the pool, and between two checks whether the head still runs."""


@dataclass(slots=True)
class _Call:
    id: str
    items: int
    blob: bytes
    environment: dict[str, str]
    began: bool = False
    sent: bool = False
    """Whether it was sent to the slot's process."""
    revoked: bool = False
    """Whether it was taken back before it was sent."""


@dataclass(slots=True)
class _Slot:
    number: int
    actor: Any = None
    ready: bool = False
    running: _Call | None = None
    killing: bool = False
    waiting: deque[_Call] = field(default_factory=deque)


@dataclass(slots=True)
class _Node:
    name: str
    facts: dict[str, Any]
    line: asyncio.StreamWriter
    slots: list[_Slot]
    joined: bool = False
    why: str = ""
    tasks: set[asyncio.Future[Any]] = field(default_factory=set)


class RayDriver:
    """Connects the pool and Ray."""

    def __init__(self, pool: asyncio.StreamWriter, directory: str, path: tuple[str, ...]) -> None:
        self._pool, self._directory, self._path = pool, directory, path
        self._nodes: dict[str, _Node] = {}
        self._dismissed: set[str] = set()
        self._changed = asyncio.Event()

    # -- orders of the pool -----------------------------------------------------------------------------------------

    async def handle_commands(self, reader: asyncio.StreamReader) -> None:
        """Handle orders until the pool closes the connection."""
        with suppress(asyncio.IncompleteReadError):
            while True:
                match await read_message(reader):
                    case ("run", call, node, slot, items, blob, environment):
                        self._run(node, slot, _Call(call, items, blob, environment))
                    case ("revoke", call):
                        self._revoke(call)
                    case ("kill", call):
                        self._kill(call)
                    case ("dismiss", node):
                        self._dismissed.add(node)
                        self._leave(node)
                    case ("abandon", node, why):
                        self._dismissed.add(node)
                        self._abandon(node, why)
                    case ("close",):
                        return

    def _run(self, name: str, number: int, call: _Call) -> None:
        node = self._nodes.get(name)
        if node is None or not node.joined:
            self._end(call, "lost", f"there is no node {name}")
        else:
            node.slots[number].waiting.append(call)
            self._next(node, node.slots[number])

    def _revoke(self, call: str) -> None:
        for node, slot in self._slots():
            for one in [one for one in slot.waiting if one.id == call]:
                slot.waiting.remove(one)
                self._end(one, "revoked")
            running = slot.running
            if running is not None and running.id == call:
                if not running.sent:
                    running.revoked = True
                elif running.items > 1:
                    self._do(node, self._shorten(slot, running))

    async def _shorten(self, slot: _Slot, call: _Call) -> None:
        with suppress(RayError):  # it has died: the end of its call reports it
            kept = await slot.actor.keep_begun.remote(call.id)
            if kept is not None and slot.running is call and kept < call.items:
                call.items = kept
                self._send("call", call.id, "kept", kept)

    def _kill(self, call: str) -> None:
        for _, slot in self._slots():
            if slot.running is not None and slot.running.id == call:
                if not slot.killing:
                    slot.killing = True
                    ray.kill(slot.actor)
                return
        self._revoke(call)

    def _abandon(self, name: str, why: str) -> None:
        self._leave(name)
        if name in self._nodes:
            self._nodes[name].why = why
            self._lost(self._nodes[name])

    def _leave(self, node: str) -> None:
        if node in self._nodes:
            self._nodes[node].line.write(b"leave\n")

    async def beat_while(self, session: ProcessSession) -> None:
        """Send heartbeats to the pool until Ray's head has ended; then report why."""
        while not session.ended:
            self._send("alive")
            await asyncio.sleep(_BEAT)
        self._send("dying", f"Ray's head has ended: {session.last_output()[-_OUTPUT_KEPT:]}")
        await self._pool.drain()

    async def close(self) -> None:
        """Order all nodes to leave."""
        for node in self._nodes:
            self._leave(node)
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEAVING):
                while self._nodes:
                    self._changed.clear()
                    await self._changed.wait()
        await self._pool.drain()

    # -- slots ------------------------------------------------------------------------------------------------------

    def _slots(self) -> list[tuple[_Node, _Slot]]:
        return [(node, slot) for node in self._nodes.values() for slot in node.slots]

    async def _start(self, node: _Node, slot: _Slot) -> None:
        """Start the process of a slot. Ray starts it when the node's resource exists."""
        pinned = {"num_cpus": 0, "resources": {resource_of(node.name): 0.001}, "max_restarts": 0}
        slot.ready = False
        actor = ray.remote(RaySlot).options(max_task_retries=0, max_concurrency=CONCURRENCY, **pinned)
        slot.actor = actor.remote(self._directory, self._path)
        try:
            await slot.actor.ready.remote()
        except RayError as error:
            if node.name in self._nodes:
                self._cannot_start(node, slot, error)
            return
        slot.ready = True
        if not node.joined and all(one.ready for one in node.slots):
            node.joined = True
            self._send("joined", *(node.facts[name] for name in ("node", "slots", "python", "address")))
        self._next(node, slot)

    def _next(self, node: _Node, slot: _Slot, *, alive: bool = False) -> None:
        """Send the next call of a slot. ``alive``: the slot's process has just answered."""
        if slot.ready and slot.running is None and slot.waiting:
            slot.running = slot.waiting.popleft()
            self._do(node, self._carry(node, slot, slot.running, alive=alive))

    async def _carry(self, node: _Node, slot: _Slot, call: _Call, *, alive: bool) -> None:
        crashed = ""
        try:
            if not alive:
                await slot.actor.ready.remote()  # a process that died while it was idle has not run this call
            if call.revoked:
                self._end(call, "revoked")
            else:
                call.sent = True
                await self._stream(slot, call)
        except RayActorError as error:
            if slot.killing:
                self._end(call, "killed" if call.sent else "revoked")
            else:
                # Ray may lose the message that it began together with the process.
                call.began = call.sent
                crashed = f"the process of slot {slot.number} died: {str(error).splitlines()[0]}"
                self._end(call, "crashed", crashed)
            for one in slot.waiting:
                self._end(one, "revoked")
            slot.waiting.clear()
        except RayError as error:
            self._end(call, "broken", f"Ray could not run it: {error}")
        slot.running = None
        if slot.killing or crashed:  # also if it had just ended: the actor is dead
            slot.killing = False
            self._do(node, self._start(node, slot))
        else:
            self._next(node, slot, alive=True)

    async def _stream(self, slot: _Slot, call: _Call) -> None:
        """Run a call on its slot, and forward its events."""
        run = slot.actor.carry.options(num_returns="streaming")
        async for one in run.remote(call.id, call.items, call.blob, call.environment):
            what, *message = await one
            call.began = True
            if what in ("done", "broken"):
                self._end(call, what, "".join(message))
                return  # at once: a kill that arrives while the stream ends is too late
            self._send("call", call.id, what, *message)

    def _cannot_start(self, node: _Node, slot: _Slot, error: RayError) -> None:
        """Order a node to leave. The end of its connection shows that nothing runs there."""
        node.why = node.why or f"the process of its slot {slot.number} cannot start: {str(error).splitlines()[0]}"
        self._leave(node.name)

    def _do(self, node: _Node, what: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(what)
        node.tasks.add(task)
        task.add_done_callback(node.tasks.discard)

    # -- nodes ------------------------------------------------------------------------------------------------------

    async def hold_line(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a node until its connection ends."""
        watch_over(writer.get_extra_info("socket"))
        node = None
        with suppress(OSError, ValueError, KeyError):
            facts = json.loads(await reader.readline())
            slots = [_Slot(number) for number in range(facts["slots"])]
            node = self._nodes[facts["node"]] = _Node(facts["node"], facts, writer, slots)
            if node.name in self._dismissed:
                self._leave(node.name)
            for slot in slots:
                self._do(node, self._start(node, slot))
            while word := await reader.readline():
                match json.loads(word):
                    case {"why": why}:
                        node.why = node.why or why
                    case {"beat": _}:
                        self._send("beat", node.name)
        if node is not None and self._nodes.get(node.name) is node:
            self._lost(node)
        writer.close()

    def _lost(self, node: _Node) -> None:
        for task in node.tasks:
            task.cancel()
        del self._nodes[node.name]
        why = node.why or "its host is gone, or was ordered to leave"
        for slot in node.slots:
            for call in (slot.running, *slot.waiting):
                if call is not None:
                    self._end(call, "lost", why)
            if slot.actor is not None:
                ray.kill(slot.actor)
        if node.joined:
            self._send("left", node.name, why)
        self._changed.set()

    def _end(self, call: _Call, ending: str, detail: str = "") -> None:
        self._send("ended", call.id, ending, detail, call.began)

    def _send(self, *message: Any) -> None:
        self._pool.write(frame(*message))


async def serve(parameters: dict[str, Any]) -> None:
    """Run until the pool's process has ended, or orders it to end."""
    over = stop_event(parameters["pool"])
    if over.is_set():
        return
    directory, port = session_directory(), free_port(parameters["host"])
    store = [] if parameters["object_store"] is None else [f"--object-store-memory={parameters['object_store']}"]
    session = ProcessSession(
        ray_command(
            parameters["host"],
            *(
                "start",
                "--head",
                "--block",
                f"--port={port}",
                f"--node-ip-address={parameters['host']}",
                "--num-cpus=0",
            ),
            *("--num-gpus=0", "--include-dashboard=false", "--no-monitor", f"--temp-dir={directory}"),
            *("--disable-usage-stats", *store),
        ),
        os.environ,
        directory,
    )
    try:
        await _until_it_listens(session, parameters["host"], port, over)
        if over.is_set():
            return
        head = f"{parameters['host']}:{port}"
        ray.init(address=head, log_to_driver=False, logging_level="ERROR", _node_ip_address=parameters["host"])
        reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=parameters["pipe"]))
        hub = RayDriver(writer, parameters["directory"], tuple(parameters["path"]))
        security = tls_context(Credentials(**parameters["credentials"]), server=True)
        server = await asyncio.start_server(hub.hold_line, parameters["host"], 0, ssl=security)
        writer.write(frame("ready", head, server.sockets[0].getsockname()[:2]))
        waits = [over.wait(), hub.handle_commands(reader), hub.beat_while(session)]
        await asyncio.wait(map(asyncio.ensure_future, waits), return_when=asyncio.FIRST_COMPLETED)
        if not over.is_set() and not session.ended:
            await hub.close()
    finally:
        session.end()
        sweep()  # large values of a program that was killed
        if os.getppid() != parameters["pool"]:
            from windlass.pool.transport.temp_dirs import (
                sweep_after_kill,  # late: a driver that starts does not wait for it
            )

            sweep_after_kill()
    os._exit(0)  # the driver's own threads have nothing left to do


async def _until_it_listens(session: ProcessSession, host: str, port: int, over: asyncio.Event) -> None:
    async with asyncio.timeout(_PATIENCE):
        while not over.is_set():
            if session.ended:
                raise RuntimeError(f"Ray's head did not start: {session.last_output()}")
            with suppress(OSError):
                _, writer = await asyncio.open_connection(host, port)
                writer.close()
                break
            await asyncio.sleep(0.05)
        # A driver can join only after the head's own node has started.
        while "--block" not in session.last_output() and not over.is_set():
            if session.ended:
                raise RuntimeError(f"Ray's head did not start: {session.last_output()}")
            await asyncio.sleep(0.05)


def main() -> None:
    asyncio.run(serve(json.loads(os.environ.pop(HUB))))


if __name__ == "__main__":
    main()
