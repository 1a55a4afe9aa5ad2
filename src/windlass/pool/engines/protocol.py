"""The contract of an engine: it carries calls to the slots of nodes and brings back what came of them.

A node is one host of the pool with one or more slots; a slot is one process that runs one call at a time. A call is a
batch of items, which run one after the other. An engine never chooses and never repeats: the task book says which call
goes to which slot, and a call whose slot is lost is reported as lost, once, and is never started again by the engine.
All methods are called on the pool's event loop; an engine calls its listener on that loop too, in order for each call:
``on_call_began``, then output, values, results and ``on_call_shortened``, then ``on_call_ended``. Exactly one
``on_call_ended`` comes for every call that was given to ``run``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from windlass.pool.transport.data_store import DataStore
from windlass.pool.transport.runner import Stream
from windlass.pool.transport.serialization import PackedResult
from windlass.workloads.protocol import Join


class EngineError(Exception):
    """The engine cannot be used; its text is shown to people and says what to do."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a node reported about itself when it joined."""

    node: str
    slots: int
    python: str
    """Such as ``3.11.9``. A node whose minor version is not the pool's own is refused with a clear message."""
    address: str
    """Where other nodes reach it; a gang's head is found by it."""


@dataclass(frozen=True, slots=True)
class Call:
    """One run of one blob on one slot. A retry is a new call with a new id."""

    id: str
    node: str
    slot: int
    blob: bytes
    """What `runner` understands; an engine does not look inside."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Set for the time of the call, such as the rank in a gang."""
    items: int = 1
    """Items in the blob."""


Ending = Literal["done", "lost", "revoked", "killed", "crashed", "broken"]
"""``done``: every item that it kept ran and has a result (which may be an exception of the user's own). ``lost``: its
node went away. ``revoked``: taken back before it began. ``killed``: ended because ``kill`` asked for it. ``crashed``:
the process of its slot died while it ran; the node stays. ``broken``: it could not be run or its result could not be
brought back; the detail says why, for people."""


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """What came of a call."""

    ending: Ending
    results: Sequence[PackedResult] = ()
    """What `runner` gave for each item that ended after the last ``on_results``, in order."""
    seconds: float = 0.0
    """What those items took."""
    detail: str = ""
    began: bool = False
    """Whether the first item without a result may have begun. Items after it have not: they are not what failed."""


class Listener(Protocol):
    """Is called when something happens: the task book."""

    def on_node_joined(self, facts: NodeFacts) -> None:
        """All slots of a node are there."""
        ...

    def on_node_left(self, node: str, why: str) -> None:
        """The node is gone, or so broken that none of its calls will end. Comes after ``on_call_ended`` of them all."""
        ...

    def on_node_silent(self, node: str, seconds: float) -> None:
        """The node has sent no heartbeat for so long, and may hang. It is silent until ``on_node_heard`` or
        ``on_node_left``."""
        ...

    def on_node_heard(self, node: str) -> None:
        """A node that was silent sends heartbeats again."""
        ...

    def on_call_began(self, call: str) -> None:
        """Its first item runs now."""
        ...

    def on_results(self, call: str, results: Sequence[PackedResult], seconds: float) -> None:
        """The next items have ended, with these results, and took so long; the one after them runs now."""
        ...

    def on_call_shortened(self, call: str, items: int) -> None:
        """The call keeps only so many items, its first ones. The others were taken back and will not begin."""
        ...

    def on_output(self, call: str, item: int, stream: Stream, line: str) -> None:
        """A line that the item number ``item`` of the call printed."""
        ...

    def on_value(self, call: str, item: int, blob: bytes) -> None:
        """The next value of a generator."""
        ...

    def on_call_ended(self, call: str, outcome: CallOutcome) -> None:
        """It is over."""
        ...

    def data_store(self) -> DataStore | None:
        """Return the store of large values, which an engine serves to nodes on other machines; None: there is none, and
        values travel with their tasks."""
        ...

    def on_engine_down(self, why: str) -> None:
        """The engine cannot reach its nodes for the moment. Calls go on there; no new node can join."""
        ...

    def on_engine_up(self) -> None:
        """The engine works again."""
        ...

    def on_engine_lost(self, why: str) -> None:
        """The engine will not come back: no call will end with a result any more. Comes before ``on_call_ended``."""
        ...


@runtime_checkable
class Engine(Protocol):
    """Carries calls."""

    async def start(self, listener: Listener) -> None:
        """Bring up what the engine itself needs (a scheduler process). ``EngineError`` if that is not possible."""
        ...

    def join(self, node: str, slots: int) -> Join:
        """What a host must run to become this node. Pure, once the engine has been started. Its environment holds the
        keys to the pool: a provider keeps it from other users of its machines."""
        ...

    def run(self, call: Call) -> None:
        """Carry a call to its slot. Returns at once. A slot that is busy runs it next, in the order of the calls.

        A call for a node that is not there, or not any more, is ``lost``.
        """
        ...

    def revoke(self, call: str) -> None:
        """Take back its items that have not begun. If none has, it is ``revoked``; if some have, it is ``shortened``;
        if all have, nothing happens."""
        ...

    def kill(self, call: str) -> None:
        """End it even if it runs: it is ``killed`` then. The process of its slot may go for that and come back; calls
        behind it on the slot are ``revoked``, the node stays. One that has not begun is ``revoked``; one that has ended
        by then is left as it is, and no other call is hit in its place."""
        ...

    def dismiss(self, node: str) -> None:
        """The node is not wanted any more: it leaves, its processes end. Calls still there are ``lost``."""
        ...

    def abandon(self, node: str, why: str) -> None:
        """Give a node up that does not answer: its calls are ``lost`` and it has ``left`` at once. Whatever it says
        later is ignored, and it is ordered to leave if it comes back."""
        ...

    async def close(self) -> None:
        """End all nodes' processes and the engine's own. Nothing is left behind."""
        ...
