"""An engine without processes: calls run in the pool's own loop. For quick tests, and for virtual time.

It keeps the whole contract of an engine, and adds hands for a test:

    engine = FakeEngine(seconds=lambda call: 3.0)  # how long a call takes, by the clock of the loop; 0 if not given
    join = engine.join("n-1", slots=2)
    engine.arrive(join)          # the host runs what it was told to: the node joins (after ``join_seconds``)
    engine.hold_joins = True     # nobody joins until ``release_joins()``
    engine.hold(call_id)         # this call begins, and does not end until ``release(call_id)``
    engine.lose("n-1")           # the host is gone, as after kill -9

A call's function runs when the call begins, or when it is released if it is held; its end is told when its seconds are
over. So a function that blocks blocks the loop.
"""

from __future__ import annotations

import asyncio
import platform
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVarTuple

from windlass.pool.engines.protocol import Call, CallOutcome, EngineError, Listener, NodeFacts
from windlass.pool.transport.runner import Runner, Stream
from windlass.workloads.protocol import Join

Ts = TypeVarTuple("Ts")

PROGRAM: Final = "windlass-fake-node"
"""The command of a join, which no host can run: ``arrive`` understands it."""


@dataclass(slots=True)
class _Slot:
    runner: Runner
    running: Call | None = None
    timer: asyncio.Handle | None = None
    """Until its end is told; None while it is held."""
    waiting: deque[Call] = field(default_factory=deque)


@dataclass(frozen=True, slots=True)
class _Telling:
    """What happens in a call, on its way to the listener: later, for a listener that prints must not be caught too."""

    listener: Listener
    call: str

    def said(self, item: int, stream: Stream, line: str) -> None:
        asyncio.get_running_loop().call_soon(self.listener.said, self.call, item, stream, line)

    def yielded(self, item: int, blob: bytes) -> None:
        asyncio.get_running_loop().call_soon(self.listener.yielded, self.call, item, blob)


class FakeEngine:
    """Carries calls nowhere: it runs them itself."""

    def __init__(
        self,
        *,
        seconds: Callable[[Call], float] = lambda _: 0.0,
        join_seconds: float = 0.0,
        python: str = platform.python_version(),
    ) -> None:
        """``python``: the version that nodes say they have."""
        self.hold_joins = False
        self.joining: list[str] = []
        """Nodes that have arrived and not joined yet."""
        self._seconds, self._join_seconds, self._python = seconds, join_seconds, python
        self._listener: Listener | None = None
        self._closed = False
        self._nodes: dict[str, list[_Slot]] = {}
        self._arrivals: dict[str, int] = {}
        """Slots of every node that has arrived."""
        self._shared: dict[str, bytes] = {}
        self._held: set[str] = set()

    # -- the contract -----------------------------------------------------------------------------------------------

    async def start(self, listener: Listener) -> None:
        self._listener = listener

    def join(self, node: str, slots: int) -> Join:
        return Join((PROGRAM, node, str(slots)))

    def share(self, name: str, blob: bytes) -> None:
        self._shared[name] = blob

    def unshare(self, name: str) -> None:
        self._shared.pop(name, None)
        for slots in self._nodes.values():
            for slot in slots:
                slot.runner.forget(name)

    def run(self, call: Call) -> None:
        if call.node not in self._nodes:
            self._soon(self._tell_end, call, CallOutcome("lost", detail=f"there is no node {call.node}"))
            return
        self._nodes[call.node][call.slot].waiting.append(call)
        self._soon(self._turn, call.node, call.slot)

    def revoke(self, call: str) -> None:
        found = self._find(call)
        if found is not None:
            self._take_back(found, lambda waiting: waiting.id == call)

    def kill(self, call: str) -> None:
        found = self._find(call)
        if found is None:
            return
        if found.running is None or found.running.id != call:
            self._take_back(found, lambda waiting: waiting.id == call)
            return
        killed = found.running
        self._clear(found)
        self._soon(self._tell_end, killed, CallOutcome("killed", began=True))
        self._take_back(found, lambda _: True)

    def dismiss(self, node: str) -> None:
        self._soon(self._leave, node, "it was dismissed")

    async def close(self) -> None:
        for node in list(self._nodes):
            self._leave(node, "the engine was closed")
        self._closed = True

    # -- the hands of a test ----------------------------------------------------------------------------------------

    def arrive(self, join: Join) -> None:
        """A host runs what it was told to run."""
        program, node, slots = join.command
        if program != PROGRAM:
            raise EngineError(f"{program} is not the command of a node of this engine")
        self._arrivals[node] = int(slots)
        self.joining.append(node)
        if not self.hold_joins:
            asyncio.get_running_loop().call_later(self._join_seconds, self._joined, node)

    def release_joins(self) -> None:
        """Whoever was held joins."""
        self.hold_joins = False
        for node in list(self.joining):
            self._soon(self._joined, node)

    def hold(self, call: str) -> None:
        """This call, whenever it begins, does not end until it is released."""
        self._held.add(call)

    def release(self, call: str) -> None:
        self._held.discard(call)
        found = self._find(call)
        if found is not None and found.running is not None and found.running.id == call:
            running = found.running
            self._soon(self._perform, found, running)

    def lose(self, node: str, why: str = "its host died") -> None:
        """The host is gone, with all that ran there; also one that has not joined yet."""
        if node in self.joining:
            self.joining.remove(node)
        self._soon(self._leave, node, why)

    # -- how it goes ------------------------------------------------------------------------------------------------

    def _soon(self, step: Callable[[*Ts], object], *args: *Ts) -> None:
        """Never from within a call of the pool's: an engine that answers before it returns hides mistakes."""
        asyncio.get_running_loop().call_soon(step, *args)

    @property
    def _told(self) -> Listener:
        if self._listener is None:
            raise EngineError("the engine has not been started; call start() first")
        return self._listener

    def _joined(self, node: str) -> None:
        if node in self.joining and not self._closed:
            self.joining.remove(node)
            slots = self._arrivals[node]
            self._nodes[node] = [_Slot(Runner(self._shared.__getitem__)) for _ in range(slots)]
            self._told.joined(NodeFacts(node, slots, self._python, "127.0.0.1"))

    def _turn(self, node: str, number: int) -> None:
        slots = self._nodes.get(node)
        if slots is None:
            return
        slot = slots[number]
        if slot.running is None and slot.waiting:
            call = slot.running = slot.waiting.popleft()
            self._told.began(call.id)
            if call.id not in self._held:
                self._perform(slot, call)

    def _perform(self, slot: _Slot, call: Call) -> None:
        if slot.running is not call or slot.timer is not None:
            return
        try:
            result = slot.runner.execute(call.blob, _Telling(self._told, call.id), call.environment)
        except Exception as error:  # noqa: BLE001  # a blob that is none
            outcome = CallOutcome("broken", detail=f"the call could not be run: {error}", began=True)
        else:
            outcome = CallOutcome("done", result, began=True)
        loop = asyncio.get_running_loop()
        slot.timer = loop.call_later(self._seconds(call), self._finish, slot, call, outcome)

    def _finish(self, slot: _Slot, call: Call, outcome: CallOutcome) -> None:
        self._clear(slot)
        self._tell_end(call, outcome)
        self._turn(call.node, call.slot)

    def _clear(self, slot: _Slot) -> None:
        if slot.timer is not None:
            slot.timer.cancel()
        slot.running = slot.timer = None

    def _find(self, call: str) -> _Slot | None:
        for slots in self._nodes.values():
            for slot in slots:
                if any(one.id == call for one in (slot.running, *slot.waiting) if one is not None):
                    return slot
        return None

    def _take_back(self, slot: _Slot, which: Callable[[Call], bool]) -> None:
        taken = [call for call in slot.waiting if which(call)]
        slot.waiting = deque(call for call in slot.waiting if not which(call))
        for call in taken:
            self._soon(self._tell_end, call, CallOutcome("revoked"))

    def _leave(self, node: str, why: str) -> None:
        slots = self._nodes.pop(node, None)
        if slots is None:
            return
        for slot in slots:
            running, waiting = slot.running, list(slot.waiting)
            self._clear(slot)
            if running is not None:
                self._tell_end(running, CallOutcome("lost", detail=why, began=True))
            for call in waiting:
                self._tell_end(call, CallOutcome("lost", detail=why))
        self._told.left(node, why)

    def _tell_end(self, call: Call, outcome: CallOutcome) -> None:
        self._held.discard(call.id)
        self._told.ended(call.id, outcome)
