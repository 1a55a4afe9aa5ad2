"""DaskEngine carries calls from the pool to slots over Dask's encrypted connections.

Dask decides nothing: a scheduler process forwards messages, and the pool's task book decides which call goes to which
slot. Large values of nodes on other machines go directly between node and program (`data_transfer`). `messages` has the
diagram of the processes. What can fail, and what happens then:

- A slot: the node starts it again; the call that ran there has crashed, and the node stays.
- A node: its connection breaks, its calls are lost.
- A node that hangs: its heartbeats stop, and the listener learns of the silence; it decides when to abandon the node.
- The scheduler: it is started again at the same address, nodes connect again, and calls go on. If that does not succeed
  the engine is lost. A scheduler that hangs sends no heartbeats, and is ended first.

All connections are encrypted, and both sides present a certificate that was created for this pool.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from importlib.metadata import version
from typing import Any, Final

from distributed.comm import Comm

from windlass.pool.engines.protocol import Call, CallOutcome, EngineError, Listener, NodeFacts
from windlass.pool.transport.data_transfer import DataServer
from windlass.pool.transport.process_session import program
from windlass.pool.transport.slot_page import LONGEST_ID
from windlass.pool.transport.tls import Credentials, make_credentials
from windlass.pool.transport.working_directory import working_directory
from windlass.workloads.protocol import Join

from .calls import CarriedCall, EngineNode, new_results
from .messages import BEAT, MOST, NODE, DaskNodeOrder, OrderedWriter
from .scheduler_process import STARTING, SchedulerProcess

log = logging.getLogger(__name__)

_LEAVING: Final = 6.0
"""Seconds for nodes to leave: they wait two for their processes, and two for their link."""

_SILENT: Final = 5.0
"""Seconds without a heartbeat, which comes every second, after which a node counts as silent; less if the pool's
``unhealthy_timeout`` is shorter.
"""

_REJOINING: Final = 20.0
"""Seconds within which nodes must be back after the scheduler was started again."""

_RESTARTING: Final = 15.0
"""Seconds that a scheduler has at least to start again: on a busy machine it takes several."""

_RESTARTS: Final = 5

_RESTART_WINDOW: Final = 60.0
"""How many restarts of the scheduler are allowed, within how many seconds; after more the engine is lost."""

_LAST_MESSAGES: Final = 2.0
"""Seconds for the last messages of a scheduler that has ended. They are in memory already."""

_UNACKNOWLEDGED: Final = 500
"""Number of events of a node that are acknowledged at once, not at the next second."""


def requirements() -> tuple[str, ...]:
    """Return the packages that a node needs in addition to this one, in the versions that are installed here."""
    return tuple(f"{name}=={version(name)}" for name in ("distributed", "cloudpickle"))


class DaskEngine:
    """Carries calls over Dask's connections."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        contact: str | None = None,
        python: str = sys.executable,
        encrypted: bool = True,
        unhealthy_timeout: float = 30.0,
    ) -> None:
        """``host``, ``port``: where the scheduler listens; 0: any free port. Nodes on other machines need an address
        that they can reach. ``contact``: the address that nodes use, such as ``10.0.0.7`` or ``10.0.0.7:8786``, if it
        differs. ``python``: the interpreter on the nodes. Without ``encrypted`` every user who reaches the port can run
        code as you: use it only on a private loopback. ``unhealthy_timeout``: seconds after which a node ends a slot of
        its own that is stopped.
        """
        self._host, self._port, self._contact, self._python = host, port, contact, python
        self._encrypted, self._unhealthy_timeout = encrypted, unhealthy_timeout
        self._directory = working_directory()
        self._silent_after = max(2 * BEAT, min(_SILENT, unhealthy_timeout))
        self._hung_after = max(_SILENT, unhealthy_timeout)
        self._restarting = min(STARTING, max(_RESTARTING, unhealthy_timeout))
        self._silence = 0.0
        """Seconds since the last message of the scheduler."""
        self._silent = False
        """Whether the listener was told of its silence."""
        self._credentials: Credentials | None = None
        self._node_credentials: Credentials | None = None
        self._listener: Listener | None = None
        self._scheduler: SchedulerProcess | None = None
        self._writer: OrderedWriter | None = None
        self._data: DataServer | None = None
        self._nodes: dict[str, EngineNode] = {}
        self._places: dict[str, EngineNode] = {}
        """The node of every call that has not ended."""
        self._unwanted: set[str] = set()
        """Nodes that were dismissed, abandoned or lost: one that reconnects is ordered to leave."""
        self._deaths: deque[float] = deque()
        self._closing = self._lost = False
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Future[Any]] = set()

    # -- beginning and end ------------------------------------------------------------------------------------------

    async def start(self, listener: Listener) -> None:
        self._listener = listener
        if self._encrypted:
            self._credentials, self._node_credentials = await asyncio.to_thread(make_credentials, "pool", "node")
        self._scheduler = SchedulerProcess(self._host, self._port, self._credentials)
        try:
            store = listener.data_store()
            if store is not None:
                self._data = DataServer(store, self._host, self._credentials)
            await self._launch(STARTING)
        except BaseException:
            await self.close()
            raise
        self._do(self._watch_heartbeats())

    async def _launch(self, timeout: float) -> None:
        """Start a scheduler and connect to it."""
        scheduler = self._running_scheduler
        messages = await scheduler.start(timeout)
        self._silence, self._silent = 0.0, False
        process, comm = scheduler.process, scheduler.comm
        assert process is not None
        assert comm is not None
        self._writer = OrderedWriter(comm)
        reading = self._do(self._read_messages(comm, messages))
        self._do(self._watch_scheduler(process, reading))

    async def _watch_scheduler(self, process: asyncio.subprocess.Process, reading: asyncio.Future[None]) -> None:
        """Start the scheduler again when its process has ended. ``reading``: reads its messages."""
        code = await process.wait()
        # Its last messages first: a node that one of them reports as connected is not connected to the next scheduler.
        await asyncio.wait([reading], timeout=_LAST_MESSAGES)
        if self._closing:
            return
        why = f"the Dask scheduler's process ended with code {code}"
        if self._silence >= self._hung_after:
            why = f"the Dask scheduler did not answer for {self._silence:.0f} s and was ended"
        words = self._running_scheduler.last_output()
        log.warning("%s and is started again%s", why, f". Its last output: {words}" if words else "")
        if self._writer is not None:
            self._writer.stop()
        self._writer = None
        for name, node in self._nodes.items():
            node.connected = False
            self._hear(name, node)  # its heartbeats cannot arrive now; its silence is counted from its reconnection
        self._events.on_engine_down(f"{why}; it is being started again")
        while True:
            now = time.monotonic()
            self._deaths.append(now)
            while now - self._deaths[0] > _RESTART_WINDOW:
                self._deaths.popleft()
            if len(self._deaths) > _RESTARTS:
                words = self._running_scheduler.last_output()
                often = f"{why}, {_RESTARTS} times within {_RESTART_WINDOW:g} s"
                self._lose_engine(f"{often}. Its last output: {words}" if words else often)
                return
            try:
                await self._launch(self._restarting)
            except EngineError as error:
                log.warning("the Dask scheduler could not be started again: %s", error)
                await asyncio.sleep(1.0)
                continue
            break
        self._events.on_engine_up()
        current = self._running_scheduler.running
        await asyncio.sleep(_REJOINING)
        if current is not None and self._running_scheduler.running is current:  # else: another restart
            for name in [name for name, node in self._nodes.items() if not node.connected]:
                self._lose(name, "it did not reconnect after the scheduler was restarted")

    def _lose_engine(self, why: str) -> None:
        log.error("the engine is lost: %s", why)
        self._lost = True
        self._events.on_engine_lost(why)
        for node in list(self._nodes):
            self._lose(node, why)

    async def close(self) -> None:
        self._closing = True
        reachable = self._scheduler is not None and self._scheduler.running is not None and not self._silent
        if self._writer is not None and reachable:
            for node in self._nodes:
                self._order(node, {"leave": True})
            with suppress(TimeoutError):
                async with asyncio.timeout(_LEAVING):
                    while any(node.connected and not node.silent for node in self._nodes.values()):
                        self._changed.clear()
                        await self._changed.wait()
        for node in list(self._nodes):
            self._lose(node, "the engine was closed")
        if self._writer is not None:
            self._writer.stop()
        if self._scheduler is not None:
            await self._scheduler.close()
        for task in list(self._tasks):
            task.cancel()
        if self._data is not None:
            self._data.close()

    # -- the contract -----------------------------------------------------------------------------------------------

    def join(self, node: str, slots: int) -> Join:
        address = self._contact_address()
        host = address.partition("://")[2]
        data = f"{host.rpartition(':')[0]}:{self._data.port if self._data is not None else 0}"
        order = DaskNodeOrder(
            node,
            slots,
            address,
            tuple(sys.path),
            self._node_credentials,
            data,
            self._unhealthy_timeout,
            self._directory,
        )
        return Join(
            program(self._python, "windlass.pool.engines.dask.node"),
            {NODE: order.text()},
            reach=(host, data) if self._data is not None else (host,),
            requirements=requirements(),
        )

    def run(self, call: Call) -> None:
        node = self._nodes.get(call.node)
        if node is None or self._closing or self._lost:
            self._soon(call.id, CallOutcome("lost", detail=f"there is no node {call.node}"))
        elif len(call.blob) > MOST or len(call.id.encode()) > LONGEST_ID:
            size = f"{len(call.blob):,} bytes with its arguments; {MOST:,} can be carried"
            why = f"the call is {size}. Send large values with pool.put, or read them on the node"
            self._soon(call.id, CallOutcome("broken", detail=why))
        else:
            carried = node.calls[call.id] = CarriedCall(call)
            self._places[call.id] = node
            self._send_call(carried)

    def revoke(self, call: str) -> None:
        self._order_call(call, "revoke")

    def kill(self, call: str) -> None:
        self._order_call(call, "kill")

    def dismiss(self, node: str) -> None:
        self._unwanted.add(node)
        self._order(node, {"leave": True})

    def abandon(self, node: str, why: str) -> None:
        self._order(node, {"leave": True})
        self._lose(node, why)

    # -- internals --------------------------------------------------------------------------------------------------

    @property
    def _events(self) -> Listener:
        if self._listener is None:
            raise EngineError("the engine has not been started; call start() first")
        return self._listener

    def _contact_address(self) -> str:
        scheduler = self._running_scheduler
        if self._contact is None:
            return scheduler.address
        scheme = scheduler.address.partition("://")[0]
        return f"{scheme}://{self._contact}" + ("" if ":" in self._contact else f":{scheduler.port}")

    @property
    def _running_scheduler(self) -> SchedulerProcess:
        if self._scheduler is None:
            raise EngineError("the engine has not been started; call start() first")
        return self._scheduler

    def _send_call(self, carried: CarriedCall) -> None:
        call = carried.call
        order = {"run": call.id, "slot": call.slot, "items": call.items, "blob": call.blob}
        self._order(call.node, {**order, "environment": dict(call.environment)})

    def _order_call(self, call: str, what: str) -> None:
        node = self._places.get(call)
        if node is not None:
            node.calls[call].ordered = what
            self._order(node.facts.node, {what: call})

    def _order(self, node: str, order: dict[str, Any]) -> None:
        """Send an order to a node. Without a scheduler it is lost: calls and requests about them are sent again when
        the node reconnects.
        """
        if self._writer is not None:
            self._writer.send((node, order))

    def _do(self, what: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
        task = asyncio.ensure_future(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _soon(self, call: str, outcome: CallOutcome) -> None:
        asyncio.get_running_loop().call_soon(self._events.on_call_ended, call, outcome)

    async def _watch_heartbeats(self) -> None:
        """Count the seconds without a heartbeat. A pause of this program itself counts for little. While the scheduler
        is silent its nodes cannot be heard.
        """
        before = time.monotonic()
        while True:
            await asyncio.sleep(BEAT)
            passed, before = min(time.monotonic() - before, 2 * BEAT), time.monotonic()
            if self._writer is None:
                continue
            heard, self._silence = not self._silence, self._silence + passed
            if not heard:
                self._check_scheduler()
                continue
            for name, node in list(self._nodes.items()):
                if not node.connected:
                    continue
                node.silence += passed
                if node.silence >= self._silent_after and not node.silent:
                    node.silent = True
                    self._events.on_node_silent(name, node.silence)
                self._acknowledge(name, node)

    def _check_scheduler(self) -> None:
        process = self._running_scheduler.running
        if self._silence >= self._hung_after and process is not None:
            process.kill()  # it is restarted as after any other end
        elif self._silence >= _SILENT and not self._silent:
            self._silent = True
            why = f"the Dask scheduler has not answered for {self._silence:.0f} s"
            self._events.on_engine_down(f"{why}; it is ended and started again after {self._hung_after:g} s")

    def _acknowledge(self, name: str, node: EngineNode) -> None:
        if node.event > node.acknowledged:
            node.acknowledged = node.event
            self._order(name, {"ack": node.event})

    # -- messages of nodes ------------------------------------------------------------------------------------------

    async def _read_messages(self, comm: Comm, messages: list[Any]) -> None:
        with suppress(OSError):  # includes CommClosedError: the end of the scheduler's process is noticed elsewhere
            while True:
                for message in messages:
                    try:
                        self._handle(*message)
                    except Exception:  # a listener that fails must not stop all others
                        log.exception("a message of the Dask engine was not understood")
                messages = await comm.read()
                self._silence = 0.0
                if self._silent:
                    self._silent = False
                    self._events.on_engine_up()

    def _handle(self, kind: str, *message: Any) -> None:
        match kind:
            case "node":
                self._here(*message)
            case "events":
                self._handle_node(*message)
            case "node-gone":
                (name,) = message
                known = self._nodes.get(name)
                self._lose(name, (known and known.why) or "its host is gone, or was ordered to leave")

    def _here(self, name: str, slots: int, python: str, address: str, _lives: object) -> None:
        """Handle a node that has connected or reconnected."""
        node = self._nodes.get(name)
        if node is None and (name in self._unwanted or self._closing or self._lost):
            self._order(name, {"leave": True})
            return
        new = node is None
        if node is None:
            node = self._nodes[name] = EngineNode(NodeFacts(name, slots, python, address))
        node.connected, node.silence = True, 0.0
        self._order(name, {"resume": node.event})
        if name in self._unwanted:
            self._order(name, {"leave": True})
        for carried in node.calls.values():
            self._send_call(carried)
            if carried.ordered:
                self._order(name, {carried.ordered: carried.call.id})
        if new:
            self._events.on_node_joined(node.facts)

    def _handle_node(self, name: str, events: list[tuple[int, tuple[Any, ...]]]) -> None:
        node = self._nodes.get(name)
        if node is None:
            return  # it was abandoned: its calls ran on other nodes
        self._hear(name, node)
        for number, message in events:
            if number > node.event:
                node.event = number
                self._handle_event(node, *message)
        if node.event - node.acknowledged > _UNACKNOWLEDGED:
            self._acknowledge(name, node)

    def _hear(self, name: str, node: EngineNode) -> None:
        node.silence = 0.0
        if node.silent:
            node.silent = False
            self._events.on_node_heard(name)

    def _handle_event(self, node: EngineNode, kind: str, *message: Any) -> None:
        if kind == "why":
            node.why = node.why or message[0]
            return
        call, *rest = message
        carried = node.calls.get(call)
        if carried is None:
            return  # it has ended for the pool
        match kind:
            case "began":
                carried.began = True
                self._events.on_call_began(call)
            case "said":
                self._events.on_output(call, *rest)
            case "yielded":
                self._events.on_value(call, *rest)
            case "results":
                results, seconds = new_results(carried, *rest)
                if results:
                    self._events.on_results(call, results, seconds)
            case "kept":
                self._events.on_call_shortened(call, rest[0])
            case "revoked":
                self._end(call, CallOutcome("revoked"))
            case "over":
                *finished, broken = rest
                results, seconds = new_results(carried, *finished)
                if broken:
                    self._end(call, CallOutcome("broken", results, seconds, broken, began=True))
                else:
                    self._end(call, CallOutcome("done", results, seconds, began=True))
            case "died":
                *finished, items, how, killed = rest
                results, seconds = new_results(carried, *finished)
                if carried.finished >= items:
                    self._end(call, CallOutcome("done", results, seconds, began=True))
                else:
                    self._end(call, CallOutcome("killed" if killed else "crashed", results, seconds, how, began=True))

    def _lose(self, name: str, why: str) -> None:
        node = self._nodes.pop(name, None)
        if node is None:
            return
        if node.calls and not self._closing:
            log.warning("node %s was lost while %d calls ran there: %s", name, len(node.calls), why)
        self._unwanted.add(name)
        for call, carried in list(node.calls.items()):
            self._end(call, CallOutcome("lost", detail=why, began=carried.began))
        self._events.on_node_left(name, why)
        self._changed.set()

    def _end(self, call: str, outcome: CallOutcome) -> None:
        del self._places.pop(call).calls[call]
        self._events.on_call_ended(call, outcome)
