"""The Dask engine: the pool's side of it.

Dask carries, and decides nothing. A slot is a Dask worker with one thread; a call is a Dask task that may run on that
one worker only, is never retried and never stolen. What becomes of it comes back by events. Where Dask would do more
than it is told, it is kept from it:

- A task of a worker that went away would be started again, or wait for ever for a worker that never comes. Here its
  call is lost, the task is released, and the slot itself refuses a call of another life than its own.
- Cancelling a task does not say whether it had begun, and does not stop it. Here the slot itself says whether a call
  could still be taken back, and a call that runs is killed by the node, with the process of its slot.
- Retiring a worker would start its running task elsewhere. Here no worker is ever retired: the book stops placing calls
  on a node, and dismisses it when it is empty.

`dask_words` has the picture of who talks to whom. All connections are encrypted, and both sides show a certificate that
was made for this pool.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
import tempfile
import warnings
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from typing import IO, Any, Final

from distributed import Client, Future

from windlass.pool.engines.protocol import Call, CallOutcome, EngineError, Listener, NodeFacts
from windlass.pool.transport.process_session import program
from windlass.pool.transport.shared_memory import memory_file
from windlass.pool.transport.tls import Credentials, make_credentials
from windlass.workloads.protocol import Join

from .messages import GATHERING, MOST, NODE, SCHEDULER, TOPIC, DaskNodeOrder, parts_of, security_of, worker_name
from .scheduler import KEY
from .slot import LONGEST_ID, carry

log = logging.getLogger(__name__)

_STARTING: Final = 60.0
"""Seconds within which the scheduler's process must listen."""
_AGAIN: Final = 0.05
"""Seconds after which the first event is sent again: it may have been there before those who listen."""
_LEAVING: Final = 6.0
"""Seconds for nodes to leave: they give their processes two, and their line two."""
_HALF_DEAD: Final = 10.0
"""Seconds within which a node of which a slot died must be gone."""
_LARGE: Final = 1 << 20
"""Bytes from which on Dask might warn of a large graph, which is none."""


@dataclass(slots=True)
class _Carried:
    """A call on its way."""

    call: Call
    future: Future | None = None
    """The task; None while the slot is not there."""
    began: bool = False


@dataclass(slots=True)
class _Slot:
    life: int = 0
    address: str = ""
    """Of its worker; empty while it is not there."""
    calls: dict[str, _Carried] = field(default_factory=dict)
    """In the order in which they run."""
    killing: str = ""
    """The call that is being killed, with the process."""


@dataclass(slots=True)
class _Node:
    slots: dict[int, _Slot] = field(default_factory=dict)
    facts: NodeFacts | None = None
    joined: bool = False


class DaskEngine:
    """Carries calls by Dask."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        contact: str | None = None,
        python: str = sys.executable,
        encrypted: bool = True,
    ) -> None:
        """``host``, ``port``: where the scheduler listens; 0: any free port. Nodes on other machines need an address
        that they can reach. ``contact``: how nodes get there, such as ``10.0.0.7`` or ``10.0.0.7:8786``, if that is
        not where it listens. ``python``: the interpreter on the nodes. Without ``encrypted`` anybody who reaches the
        port can run code as you: for a loopback of your own at most."""
        self._host, self._port, self._contact, self._python = host, port, contact, python
        self._encrypted = encrypted
        self._node_credentials: Credentials | None = None
        self._listener: Listener | None = None
        self._scheduler = ""
        self._process: asyncio.subprocess.Process | None = None
        self._errors: IO[bytes] | None = None
        self._client: Client | None = None
        self._to_hub: socket.socket | None = None
        self._nodes: dict[str, _Node] = {}
        self._places: dict[str, _Slot] = {}
        """The slot of every call that has not ended."""
        self._dismissed: set[str] = set()
        self._number = 0
        self._closing = False
        self._connected = asyncio.Event()
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Future[Any]] = set()

    # -- beginning and end ------------------------------------------------------------------------------------------

    async def start(self, listener: Listener) -> None:
        self._listener = listener
        mine = None
        if self._encrypted:
            mine, self._node_credentials = await asyncio.to_thread(make_credentials, "pool", "node")
        self._to_hub, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        told = {
            "pool": os.getpid(),
            "host": self._host,
            "port": self._port,
            "shared": theirs.fileno(),
            "credentials": mine and asdict(mine),
        }
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the engine
        self._process = await asyncio.create_subprocess_exec(
            *program(sys.executable, "windlass.pool.engines.dask.scheduler"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, SCHEDULER: json.dumps(told)},
            pass_fds=(theirs.fileno(),),
            start_new_session=True,  # Ctrl-C is for the pool, which ends everything in order
        )
        theirs.close()
        try:
            async with asyncio.timeout(_STARTING):
                assert self._process.stdout is not None
                self._scheduler = (await self._process.stdout.readline()).decode().strip()
                if not self._scheduler:
                    raise EngineError(f"the Dask scheduler did not start: {self._last_words()}")
                await self._connect(mine)
        except OSError as error:  # TimeoutError is one
            words = f"{type(error).__name__} {error} {self._last_words()}"
            await self.close()
            raise EngineError(f"the Dask scheduler cannot be reached: {words}") from error
        except BaseException:
            await self.close()
            raise
        self._do(self._watch(self._process))

    async def _connect(self, credentials: Credentials | None) -> None:
        """Come back when the first event has come: from then on none is missed."""
        self._client = await Client(
            self._scheduler,
            asynchronous=True,
            security=security_of(credentials),
            set_as_default=False,
            name="windlass",
        )
        self._client.scheduler_comm.interval = GATHERING
        self._client.subscribe_topic(TOPIC, lambda event: self._hear(*event[1]))
        while not self._connected.is_set():
            await self._client.log_event(TOPIC, ["hello"])
            with suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN):
                    await self._connected.wait()

    def _last_words(self) -> str:
        if self._errors is None or self._errors.closed:
            return ""
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace").strip()[-2000:]

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        if not self._closing:
            why = f"the Dask scheduler's process ended with code {code}"
            log.error("%s: %s", why, self._last_words())
            self._closing = True
            for node in list(self._nodes):
                self._lost(node, why)

    async def close(self) -> None:
        self._closing = True
        if self._client is not None and self._process is not None and self._process.returncode is None:
            for node in self._nodes:
                self._order(node, {"leave": True})
            with suppress(TimeoutError):
                async with asyncio.timeout(_LEAVING):
                    while self._nodes:
                        self._changed.clear()
                        await self._changed.wait()
        for node in list(self._nodes):
            self._lost(node, "the engine was closed")
        if self._client is not None:
            with suppress(Exception):  # whatever Dask thinks of it
                await self._client.close(timeout=2)
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.terminate()
            try:
                async with asyncio.timeout(5):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        for task in list(self._tasks):
            task.cancel()
        for thing in (self._to_hub, self._errors):
            if thing is not None:
                thing.close()

    # -- the contract -----------------------------------------------------------------------------------------------

    def join(self, node: str, slots: int) -> Join:
        order = DaskNodeOrder(node, slots, self._contact_address(), tuple(sys.path), self._node_credentials)
        return Join(program(self._python, "windlass.pool.engines.dask.node"), {NODE: order.text()})

    def share(self, name: str, blob: bytes) -> None:
        handle = memory_file((blob,))
        try:
            self._share(name, handle)
        finally:
            os.close(handle)

    def unshare(self, name: str) -> None:
        self._share(name)

    def run(self, call: Call) -> None:
        too_long = len(call.blob) > MOST or len(call.id.encode()) > LONGEST_ID
        node = self._nodes.get(call.node)
        if node is None or not node.joined or self._closing:
            self._soon(call.id, CallOutcome("lost", detail=f"there is no node {call.node}"))
        elif too_long:
            size = f"{len(call.blob):,} bytes with its arguments; {MOST:,} can be carried"
            self._soon(
                call.id, CallOutcome("broken", detail=f"the call is {size}. Share what is large, or read it there")
            )
        else:
            slot = node.slots[call.slot]
            carried = slot.calls[call.id] = _Carried(call)
            self._places[call.id] = slot
            if slot.address:
                self._submit(slot, carried)

    def revoke(self, call: str) -> None:
        slot = self._places.get(call)
        if slot is not None and not slot.calls[call].began:
            self._do(self._revoked(slot, call))

    def kill(self, call: str) -> None:
        slot = self._places.get(call)
        if slot is not None:
            self._do(self._killed(slot, call))

    def dismiss(self, node: str) -> None:
        self._dismissed.add(node)
        self._order(node, {"leave": True})

    # -- how it goes ------------------------------------------------------------------------------------------------

    @property
    def _told(self) -> Listener:
        if self._listener is None:
            raise EngineError("the engine has not been started; call start() first")
        return self._listener

    def _contact_address(self) -> str:
        if not self._scheduler:
            raise EngineError("the engine has not been started; call start() first")
        if self._contact is None:
            return self._scheduler
        scheme, port = self._scheduler.partition("://")[0], self._scheduler.rpartition(":")[2]
        return f"{scheme}://{self._contact}" + ("" if ":" in self._contact else f":{port}")

    def _share(self, name: str, *handles: int) -> None:
        if self._to_hub is None:
            raise EngineError("the engine has not been started; call start() first")
        socket.send_fds(self._to_hub, [name.encode()], handles)

    def _submit(self, slot: _Slot, carried: _Carried) -> None:
        assert self._client is not None
        call = carried.call
        self._number += 1
        life = worker_name(call.node, call.slot, slot.life)
        with _without_warning() if len(call.blob) > _LARGE else nullcontext():
            carried.future = self._client.submit(
                carry,
                life,
                call.id,
                call.blob,
                dict(call.environment),
                key=KEY + call.id,
                workers=[slot.address],
                allow_other_workers=False,
                retries=0,
                pure=False,
                priority=-self._number,
            )

    async def _revoked(self, slot: _Slot, call: str) -> bool:
        """Whether it could be taken back."""
        assert self._client is not None
        taken = not slot.address or await self._client.scheduler.windlass_revoke(address=slot.address, call=call)
        if taken and call in slot.calls:
            self._end(call, CallOutcome("revoked"))
        return bool(taken)

    async def _killed(self, slot: _Slot, call: str) -> None:
        carried = slot.calls[call]
        if not carried.began and await self._revoked(slot, call):
            return
        if call in slot.calls and not slot.killing:
            slot.killing = call
            self._order(carried.call.node, {"kill": call, "slot": carried.call.slot, "life": slot.life})

    def _order(self, node: str, order: dict[str, Any]) -> None:
        assert self._client is not None
        self._do(self._client.scheduler.windlass_order(node=node, order=order))

    def _do(self, what: Coroutine[Any, Any, Any]) -> None:
        async def quietly() -> None:
            with suppress(OSError):  # the scheduler is gone: the end of its process tells
                await what

        task = asyncio.ensure_future(quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _soon(self, call: str, outcome: CallOutcome) -> None:
        asyncio.get_running_loop().call_soon(self._told.ended, call, outcome)

    # -- what is heard ----------------------------------------------------------------------------------------------

    def _hear(self, kind: str, *words: Any) -> None:
        match kind:
            case "hello":
                self._connected.set()
            case "call":
                self._hear_call(*words)
            case "up":
                self._up(*words)
            case "down":
                self._down(*words)
            case "line":
                node, slots, python, address = words
                self._node(node).facts = NodeFacts(node, slots, python, address)
                self._perhaps_joined(node)
            case "line-gone":
                node, why = words
                self._lost(node, why or "its host is gone, or was told to go")

    def _hear_call(self, call: str, what: str, *words: Any) -> None:
        slot = self._places.get(call)
        if slot is None:
            return  # it has ended for the pool: lost with its node, while this was on its way
        match what:
            case "began":
                slot.calls[call].began = True
                self._told.began(call)
            case "said":
                self._told.said(call, *words)
            case "yielded":
                self._told.yielded(call, *words)
            case "done":
                self._end(call, CallOutcome("done", words[0], began=True))
            case "broken":
                self._end(call, CallOutcome("broken", detail=words[0], began=slot.calls[call].began))

    def _node(self, node: str) -> _Node:
        if node in self._dismissed or self._closing:
            self._order(node, {"leave": True})
        return self._nodes.setdefault(node, _Node())

    def _perhaps_joined(self, name: str) -> None:
        node = self._nodes[name]
        up = [slot for slot in node.slots.values() if slot.address]
        if node.facts is not None and not node.joined and len(up) == node.facts.slots and name not in self._dismissed:
            node.joined = True
            self._told.joined(node.facts)

    def _up(self, name: str, address: str) -> None:
        node, number, life = parts_of(name)
        slot = self._node(node).slots.setdefault(number, _Slot())
        slot.life, slot.address = life, address
        for carried in slot.calls.values():
            self._submit(slot, carried)
        self._perhaps_joined(node)

    def _down(self, name: str, address: str) -> None:
        node, number, _ = parts_of(name)
        known = self._nodes.get(node)
        if known is None or number not in known.slots or known.slots[number].address != address:
            return
        slot = known.slots[number]
        slot.address = ""
        if slot.killing:
            for call in list(slot.calls):
                carried = slot.calls[call]
                self._end(call, CallOutcome("killed" if call == slot.killing else "revoked", began=carried.began))
            slot.killing = ""
        else:
            # The node ends by itself, and its line with it. Only then is it certain that nothing runs there any more.
            asyncio.get_running_loop().call_later(_HALF_DEAD, self._half_dead, node, known)

    def _half_dead(self, node: str, known: _Node) -> None:
        if self._nodes.get(node) is known:
            self._order(node, {"leave": True})
            self._lost(node, "one of its slots died, and it did not leave")

    def _lost(self, name: str, why: str) -> None:
        node = self._nodes.pop(name, None)
        if node is None:
            return
        for slot in node.slots.values():
            for call, carried in list(slot.calls.items()):
                self._end(call, CallOutcome("lost", detail=why, began=carried.began))
        if node.joined:
            self._told.left(name, why)
        elif not self._closing and name not in self._dismissed:
            log.warning("node %s went before it had joined: %s", name, why)
        self._dismissed.discard(name)
        self._changed.set()

    def _end(self, call: str, outcome: CallOutcome) -> None:
        slot = self._places.pop(call)
        carried = slot.calls.pop(call)
        if slot.killing == call and outcome.ending != "killed":
            slot.killing = ""
        if carried.future is not None:
            carried.future.release()
        self._told.ended(call, outcome)


@contextmanager
def _without_warning() -> Iterator[None]:
    """A call with a large argument is no graph that its user could make smaller."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sending large graph")
        yield
