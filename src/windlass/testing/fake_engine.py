"""FakeEngine runs calls in the pool's own event loop, without processes, for quick tests and virtual time.

It implements the whole contract of an engine, and adds actions for tests:

    engine = FakeEngine(seconds=lambda call: 3.0)  # the duration of each item of a call by the loop's clock; default 0
    join = engine.join("n-1", slots=2)
    engine.arrive(join)          # the host runs its join command: the node joins (after ``join_seconds``)
    engine.hold_joins = True     # no node joins until ``release_joins()``
    engine.hold(call_id)         # this call begins, and does not end until ``release(call_id)``
    engine.lose("n-1")           # the host is gone, as after kill -9
    engine.crash(call_id)        # the process of its slot dies
    engine.silence("n-1")        # the host hangs until ``wake("n-1")``

The function of an item runs when the item begins, or when its call is released; its end is reported after its
duration. A function that blocks blocks the loop.
"""

from __future__ import annotations

import asyncio
import pickle
import platform
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVarTuple

from windlass.pool.engines.protocol import Call, CallOutcome, EngineError, Listener, NodeFacts
from windlass.pool.transport.runner import Runner, Stream
from windlass.pool.transport.serialization import pack_batch, pack_result
from windlass.workloads.protocol import Join

Ts = TypeVarTuple("Ts")

PROGRAM: Final = "windlass-fake-node"
"""The command of a join. No host can run it; ``arrive`` accepts it."""


@dataclass(eq=False, slots=True)
class _Running:
    """A call with a slot."""

    call: Call
    limit: int
    """The number of items that it may run."""
    delivered: int = 0
    result: bytes = b""
    """Of the item that runs."""
    timer: asyncio.Handle | None = None
    """The timer that reports the end of its item; None while the call is held."""


@dataclass(eq=False, slots=True)
class _FakeSlot:
    runner: Runner
    running: _Running | None = None
    waiting: deque[Call] = field(default_factory=deque)


@dataclass(frozen=True, slots=True)
class _EventSink:
    """Reports events of a call in the next loop iteration, so that the listener's own output is not captured."""

    listener: Listener
    call: str
    number: int
    """Of the item that runs."""

    def on_output(self, item: int, stream: Stream, line: str) -> None:
        asyncio.get_running_loop().call_soon(self.listener.on_output, self.call, self.number + item, stream, line)

    def on_value(self, item: int, blob: bytes) -> None:
        asyncio.get_running_loop().call_soon(self.listener.on_value, self.call, self.number + item, blob)


class FakeEngine:
    """Runs calls itself, in the event loop."""

    def __init__(
        self,
        *,
        seconds: Callable[[Call], float] = lambda _: 0.0,
        join_seconds: float = 0.0,
        python: str = platform.python_version(),
    ) -> None:
        """``python``: the Python version that nodes report."""
        self.hold_joins = False
        self.joining: list[str] = []
        """The nodes that have arrived and not joined yet."""
        self._seconds, self._join_seconds, self._python = seconds, join_seconds, python
        self._listener: Listener | None = None
        self._closed = False
        self._nodes: dict[str, list[_FakeSlot]] = {}
        self._arrivals: dict[str, int] = {}
        """The slots of every node that has arrived."""
        self._held: set[str] = set()
        self._silent: dict[str, list[tuple[Callable[..., object], tuple[Any, ...]]]] = {}
        """The nodes that hang, and the events that they will report when they wake up."""

    # -- the contract -----------------------------------------------------------------------------------------------

    async def start(self, listener: Listener) -> None:
        self._listener = listener

    def join(self, node: str, slots: int) -> Join:
        return Join((PROGRAM, node, str(slots)))

    def run(self, call: Call) -> None:
        if call.node not in self._nodes:
            self._soon(self._tell_end, call, CallOutcome("lost", detail=f"there is no node {call.node}"))
            return
        self._nodes[call.node][call.slot].waiting.append(call)
        self._soon(self._turn, call.node, call.slot)

    def revoke(self, call: str) -> None:
        found = self._find(call)
        if found is None:
            return
        running = found.running
        if running is None or running.call.id != call:
            self._take_back(found, lambda waiting: waiting.id == call)
        elif running.delivered + 1 < running.limit:
            running.limit = running.delivered + 1
            self._soon(self._say, running.call.node, self._events.on_call_shortened, call, running.limit)

    def kill(self, call: str) -> None:
        found = self._find(call)
        if found is None:
            return
        if found.running is None or found.running.call.id != call:
            self._take_back(found, lambda waiting: waiting.id == call)
            return
        self._end_slot(found, CallOutcome("killed", began=True))

    def dismiss(self, node: str) -> None:
        self._soon(self._leave, node, "it was dismissed")

    def abandon(self, node: str, why: str) -> None:
        self._silent.pop(node, None)
        self._leave(node, why)

    async def close(self) -> None:
        for node in list(self._nodes):
            self._leave(node, "the engine was closed")
        self._closed = True

    # -- actions for tests ------------------------------------------------------------------------------------------

    def arrive(self, join: Join) -> None:
        """Let a host run its join command."""
        program, node, slots = join.command
        if program != PROGRAM:
            raise EngineError(f"{program} is not the command of a node of this engine")
        self._arrivals[node] = int(slots)
        self.joining.append(node)
        if not self.hold_joins:
            asyncio.get_running_loop().call_later(self._join_seconds, self._joined, node)

    def release_joins(self) -> None:
        """Let the held nodes join."""
        self.hold_joins = False
        for node in list(self.joining):
            self._soon(self._joined, node)

    def hold(self, call: str) -> None:
        """Keep a call from ending, whenever it begins, until it is released."""
        self._held.add(call)

    def release(self, call: str) -> None:
        self._held.discard(call)
        found = self._find(call)
        if found is not None and found.running is not None and found.running.call.id == call:
            self._soon(self._perform, found, found.running)

    def crash(self, call: str, why: str = "the process of its slot ended with code 1") -> None:
        """Kill the process of the call's slot and start it again at once; the node stays."""
        found = self._find(call)
        if found is not None and found.running is not None and found.running.call.id == call:
            self._end_slot(found, CallOutcome("crashed", detail=why, began=True))

    def silence(self, node: str, seconds: float = 5.0) -> None:
        """Make the host hang: it sends no heartbeats."""
        self._silent[node] = []
        self._soon(self._events.on_node_silent, node, seconds)

    def wake(self, node: str) -> None:
        """Let the host continue and report its delayed events."""
        late = self._silent.pop(node, [])
        if node in self._nodes:
            self._events.on_node_heard(node)
        for step, words in late:
            self._say(node, step, *words)

    def go_down(self, why: str = "its scheduler died") -> None:
        self._events.on_engine_down(why)

    def come_up(self) -> None:
        self._events.on_engine_up()

    def be_lost(self, why: str = "its scheduler died") -> None:
        """Kill the engine with its nodes; it does not restart."""
        self._events.on_engine_lost(why)
        for node in list(self._nodes):
            self._leave(node, why)

    def lose(self, node: str, why: str = "its host died") -> None:
        """Kill the host with all of its calls, also before it has joined."""
        if node in self.joining:
            self.joining.remove(node)
        self._soon(self._leave, node, why)

    # -- execution --------------------------------------------------------------------------------------------------

    def _soon(self, step: Callable[[*Ts], object], *args: *Ts) -> None:
        """Run a step later, never within the pool's own call: a real engine does not answer before it returns."""
        asyncio.get_running_loop().call_soon(step, *args)

    @property
    def _events(self) -> Listener:
        if self._listener is None:
            raise EngineError("the engine has not been started; call start() first")
        return self._listener

    def _joined(self, node: str) -> None:
        if node in self.joining and not self._closed:
            self.joining.remove(node)
            slots = self._arrivals[node]
            self._nodes[node] = [_FakeSlot(Runner()) for _ in range(slots)]
            self._events.on_node_joined(NodeFacts(node, slots, self._python, "127.0.0.1"))

    def _say(self, node: str, step: Callable[[*Ts], object], *words: *Ts) -> None:
        """Report an event of a node to the listener, unless the node hangs or is gone."""
        if node in self._silent:
            self._silent[node].append((step, words))
        elif node in self._nodes:
            step(*words)

    def _turn(self, node: str, number: int) -> None:
        slots = self._nodes.get(node)
        if slots is None:
            return
        slot = slots[number]
        if slot.running is None and slot.waiting:
            call = slot.waiting.popleft()
            running = slot.running = _Running(call, call.items)
            self._say(node, self._events.on_call_began, call.id)
            if call.id not in self._held:
                self._perform(slot, running)

    def _perform(self, slot: _FakeSlot, running: _Running) -> None:
        """Run the next item, and report its end later."""
        if slot.running is not running or running.timer is not None:
            return
        call = running.call

        def ended(_item: int, delivered: object) -> bool:
            running.result = pack_result(delivered)
            return False

        try:
            limit, function, items, place, name = pickle.loads(call.blob)
            blob = pack_batch(
                function, [items[running.delivered]], limit=limit, place=place, call=f"{name}_{running.delivered}"
            )
            slot.runner.execute(blob, _EventSink(self._events, call.id, running.delivered), call.environment, ended)
        except Exception as error:  # noqa: BLE001  # a blob that is none
            slot.running = None
            outcome = CallOutcome("broken", detail=f"the call could not be run: {error}", began=True)
            self._soon(self._say, call.node, self._tell_end, call, outcome)
            self._soon(self._turn, call.node, call.slot)
            return
        loop = asyncio.get_running_loop()
        running.timer = loop.call_later(self._item_seconds(call, running.delivered), self._finish, slot, running)

    def _item_seconds(self, call: Call, item: int) -> float:
        """Return the duration of an item; override it for different durations."""
        del item
        return self._seconds(call)

    def _finish(self, slot: _FakeSlot, running: _Running) -> None:
        """Report the end of the call's item."""
        call, running.timer = running.call, None
        took = self._item_seconds(call, running.delivered)
        running.delivered += 1
        if running.delivered < running.limit:
            self._say(call.node, self._events.on_results, call.id, (running.result,), took)
            self._perform(slot, running)
            return
        slot.running = None
        outcome = CallOutcome("done", (running.result,), took, began=True)
        self._say(call.node, self._tell_end, call, outcome)
        self._turn(call.node, call.slot)

    def _end_slot(self, slot: _FakeSlot, outcome: CallOutcome) -> None:
        """Replace the process of a slot."""
        running = self._clear(slot)
        if running is not None:
            self._end_soon(running.call, outcome)
        self._take_back(slot, lambda _: True)

    def _end_soon(self, call: Call, outcome: CallOutcome) -> None:
        if call.node in self._silent:
            self._silent[call.node].append((self._tell_end, (call, outcome)))
        else:
            self._soon(self._tell_end, call, outcome)

    def _clear(self, slot: _FakeSlot) -> _Running | None:
        running, slot.running = slot.running, None
        if running is not None and running.timer is not None:
            running.timer.cancel()
        return running

    def _find(self, call: str) -> _FakeSlot | None:
        for slots in self._nodes.values():
            for slot in slots:
                there = [one.id for one in slot.waiting]
                if call in there or (slot.running is not None and slot.running.call.id == call):
                    return slot
        return None

    def _take_back(self, slot: _FakeSlot, which: Callable[[Call], bool]) -> None:
        taken = [call for call in slot.waiting if which(call)]
        slot.waiting = deque(call for call in slot.waiting if not which(call))
        for call in taken:
            self._end_soon(call, CallOutcome("revoked"))

    def _leave(self, node: str, why: str) -> None:
        slots = self._nodes.pop(node, None)
        if slots is None:
            return
        for slot in slots:
            running = self._clear(slot)
            if running is not None:
                self._tell_end(running.call, CallOutcome("lost", detail=why, began=True))
            for call in slot.waiting:
                self._tell_end(call, CallOutcome("lost", detail=why))
        self._events.on_node_left(node, why)

    def _tell_end(self, call: Call, outcome: CallOutcome) -> None:
        self._held.discard(call.id)
        self._events.on_call_ended(call.id, outcome)
