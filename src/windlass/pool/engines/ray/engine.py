"""RayEngine sends calls to the process that drives Ray. `messages` has a diagram of the processes. Between machines,
Ray's own traffic is protected by a token and is not encrypted, so use a private network. The connections of the nodes
to the driver are encrypted, with certificates created for the pool.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import socket
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from typing import IO, Any, Final

from windlass.pool.engines.protocol import Call, CallOutcome, EngineError, Listener, NodeFacts
from windlass.pool.transport.data_transfer import DataServer
from windlass.pool.transport.process_session import program, sweep_sessions
from windlass.pool.transport.tls import Credentials, make_credentials
from windlass.pool.transport.working_directory import working_directory
from windlass.workloads.protocol import Join

from .loopback import is_loopback
from .messages import HUB, NODE, RayNodeOrder, frame, ray_environment, read_message

log = logging.getLogger(__name__)

_STARTING: Final = 240.0
"""Seconds for the start of Ray's head; it takes 6 on a machine that is not busy."""
_LEAVING: Final = 20.0
_SILENT: Final = 5.0
"""Seconds without a heartbeat, which comes every second, after which a node counts as silent; less if the pool's
``unhealthy_timeout`` is shorter.
"""


_HUNG: Final = 30.0
"""Seconds without a message of the driver after which it is ended; more if ``unhealthy_timeout`` is longer. No call
survives its end.
"""


class RayEngine:
    """Carries calls by Ray."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        python: str = sys.executable,
        object_store: int | None = None,
        unhealthy_timeout: float = 30.0,
    ) -> None:
        """``host``: the address of this machine that nodes reach. ``python``: the interpreter on the nodes.
        ``object_store``: bytes that each node keeps for shared data and large results; None: Ray's default, which is a
        third of the memory. ``unhealthy_timeout``: seconds after which a node ends a process of Ray that is stopped.
        """
        self._host, self._python, self._object_store = host, python, object_store
        self._unhealthy_timeout = unhealthy_timeout
        self._silent_after = max(2.0, min(_SILENT, unhealthy_timeout))
        self._hung_after = max(_HUNG, unhealthy_timeout)
        self._silence = 0.0
        """Seconds since the last message of the driver."""
        self._silent = False
        """Whether the listener was told of its silence."""
        self._why_lost = "the process that drives Ray has ended"
        self._listener: Listener | None = None
        self._node_credentials: Credentials | None = None
        self._head = ""
        self._token = secrets.token_hex(32)
        self._line = ("", 0)
        self._process: asyncio.subprocess.Process | None = None
        self._errors: IO[bytes] | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reader_task: asyncio.Future[None] | None = None
        self._nodes: dict[str, float] = {}
        """Seconds of silence of each node."""
        self._seconds: dict[str, float] = {}
        """Seconds that each call has taken so far."""
        self._closing = False
        self._data: DataServer | None = None
        """Serves large values to nodes on other machines."""
        self._watching: asyncio.Future[None] | None = None
        self._calls: dict[str, bool] = {}
        """Whether each call that has not ended has begun."""

    async def start(self, listener: Listener) -> None:
        self._listener = listener
        mine, self._node_credentials = await asyncio.to_thread(make_credentials, "pool", "node")
        store = listener.data_store()
        if store is not None and not is_loopback(self._host):
            self._data = DataServer(store, self._host, mine)
        ours, theirs = socket.socketpair()
        parameters = {
            "pool": os.getpid(),
            "host": self._host,
            "pipe": theirs.fileno(),
            "directory": working_directory(),
            "path": sys.path,
            "object_store": self._object_store,
            "credentials": asdict(mine),
        }
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the engine
        self._process = await asyncio.create_subprocess_exec(
            *program(sys.executable, "windlass.pool.engines.ray.driver"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=self._errors,
            stderr=self._errors,
            env={**ray_environment(self._token, tuple(sys.path), self._host), HUB: json.dumps(parameters)},
            pass_fds=(theirs.fileno(),),
            start_new_session=True,  # Ctrl-C is for the pool, which ends everything in order
        )
        theirs.close()
        self._reader, self._writer = await asyncio.open_connection(sock=ours)
        try:
            async with asyncio.timeout(_STARTING):
                _, self._head, line = await read_message(self._reader)
                self._line = (line[0], line[1])
        except (asyncio.IncompleteReadError, TimeoutError) as error:
            message = self._last_output()
            await self.close()
            raise EngineError(f"Ray did not start: {message}") from error
        self._reader_task = asyncio.ensure_future(self._read_messages(self._reader))
        self._watching = asyncio.ensure_future(self._watch_heartbeats())

    async def close(self) -> None:
        self._closing = True
        if self._watching is not None:
            self._watching.cancel()
        with suppress(EngineError, OSError):
            self._send("close")
        if self._process is not None:
            await self._end_driver(self._process)
        if self._reader_task is not None:
            await self._reader_task
        await asyncio.to_thread(sweep_sessions)  # if the driver was killed together with its guard
        if self._writer is not None:
            self._writer.close()
        if self._data is not None:
            self._data.close()
        if self._errors is not None:
            self._errors.close()

    async def _end_driver(self, process: asyncio.subprocess.Process) -> None:
        if self._reader_task is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LEAVING):
                    await process.wait()
                    return
        if process.returncode is None:
            process.kill()  # its guard ends the other processes
        await process.wait()
        if self._reader_task is None and self._reader is not None:  # it was starting, and did not read the order
            with suppress(TimeoutError, OSError):
                async with asyncio.timeout(_LEAVING):
                    await self._reader.read()  # until the guard has ended, too

    # -- the contract -----------------------------------------------------------------------------------------------

    def join(self, node: str, slots: int) -> Join:
        if self._node_credentials is None or not self._head:
            raise EngineError("the engine has not been started; call start() first")
        order = RayNodeOrder(
            node,
            slots,
            self._head,
            self._line,
            self._token,
            tuple(sys.path),
            self._object_store,
            self._node_credentials,
            self._unhealthy_timeout,
            f"{self._host}:{self._data.port}" if self._data is not None else "",
        )
        return Join(
            program(self._python, "windlass.pool.engines.ray.node"),
            {NODE: order.text()},
            requirements=tuple(f"{name}=={version(name)}" for name in ("ray", "cloudpickle")),
        )

    def run(self, call: Call) -> None:
        if self._reader_task is None or self._reader_task.done():
            ended = CallOutcome("lost", detail="the engine is closed")
            asyncio.get_running_loop().call_soon(self._events.on_call_ended, call.id, ended)
            return
        self._calls[call.id] = False
        self._send("run", call.id, call.node, call.slot, call.items, call.blob, dict(call.environment))

    def revoke(self, call: str) -> None:
        if call in self._calls:
            self._send("revoke", call)

    def kill(self, call: str) -> None:
        if call in self._calls:
            self._send("kill", call)

    def dismiss(self, node: str) -> None:
        self._send("dismiss", node)

    def abandon(self, node: str, why: str) -> None:
        self._send("abandon", node, why)

    # -- internals --------------------------------------------------------------------------------------------------

    @property
    def _events(self) -> Listener:
        if self._listener is None:
            raise EngineError("the engine has not been started; call start() first")
        return self._listener

    def _send(self, *message: Any) -> None:
        if self._writer is None:
            raise EngineError("the engine has not been started; call start() first")
        if not self._writer.is_closing():
            self._writer.write(frame(*message))

    async def _read_messages(self, reader: asyncio.StreamReader) -> None:
        """Handle the driver's messages until it ends; then all calls are lost."""
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                message = await read_message(reader)
                self._silence = 0.0
                try:
                    if self._silent:
                        self._silent = False
                        self._events.on_engine_up()
                    self._handle(*message)
                except Exception:  # a failing listener must not stop the reader
                    log.exception("a message of the Ray engine could not be handled")
        why = self._why_lost
        if not self._closing:
            self._events.on_engine_lost(why)
        for call in list(self._calls):
            self._events.on_call_ended(call, CallOutcome("lost", detail=why, began=self._calls.pop(call)))
        for node in sorted(self._nodes):
            self._events.on_node_left(node, why)
        self._nodes.clear()

    def _handle(self, kind: str, *message: Any) -> None:
        match kind:
            case "dying":
                (self._why_lost,) = message
            case "joined":
                self._nodes[message[0]] = 0.0
                self._events.on_node_joined(NodeFacts(*message))
            case "left":
                self._nodes.pop(message[0], None)
                self._events.on_node_left(*message)
            case "beat":
                self._beat(*message)
            case "ended":
                call, ending, detail, began = message
                self._seconds.pop(call, None)
                if self._calls.pop(call, None) is not None:
                    self._events.on_call_ended(call, CallOutcome(ending, detail=detail, began=began))
            case "call":
                self._handle_call(*message)

    def _beat(self, node: str) -> None:
        silence = self._nodes.get(node)
        if silence is not None:
            self._nodes[node] = 0.0
            if silence >= self._silent_after:
                self._events.on_node_heard(node)

    async def _watch_heartbeats(self) -> None:
        """Count the seconds without a heartbeat. A pause of this program itself counts for little. While the driver is
        silent its nodes cannot be heard.
        """
        before = time.monotonic()
        while True:
            await asyncio.sleep(1.0)
            passed, before = min(time.monotonic() - before, 2.0), time.monotonic()
            heard, self._silence = not self._silence, self._silence + passed
            if not heard:
                self._check_driver()
                continue
            for node, silence in list(self._nodes.items()):
                self._nodes[node] = silence + passed
                if silence < self._silent_after <= silence + passed:
                    self._events.on_node_silent(node, silence + passed)

    def _check_driver(self) -> None:
        process = self._process
        if self._silence >= self._hung_after and process is not None and process.returncode is None:
            self._why_lost = f"the process that drives Ray did not answer for {self._silence:.0f} s and was ended"
            process.kill()  # its guard ends the other processes
        elif self._silence >= _SILENT and not self._silent:
            self._silent = True
            why = f"the process that drives Ray has not answered for {self._silence:.0f} s"
            self._events.on_engine_down(f"{why}; it is ended after {self._hung_after:g} s, and all tasks fail")

    def _handle_call(self, call: str, what: str, *message: Any) -> None:
        if call not in self._calls:
            return  # it has ended for the pool
        match what:
            case "began":
                self._calls[call] = True
                self._events.on_call_began(call)
            case "said":
                self._events.on_output(call, *message)
            case "yielded":
                self._events.on_value(call, *message)
            case "kept":
                self._events.on_call_shortened(call, *message)
            case "results":
                seconds, results = message
                took = seconds - self._seconds.get(call, 0.0)
                self._seconds[call] = seconds
                self._events.on_results(call, results, max(0.0, took))

    def _last_output(self) -> str:
        if self._errors is None or self._errors.closed:
            return ""
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace").strip()[-2000:]
