"""Engine is the contract of an engine: it carries calls to the slots of nodes and brings back their results.

A node is one host of the pool with one or more slots; a slot is one process that runs one call at a time. A call is a
batch of items, which run one after the other. An engine never places and never retries: the task book decides which
call goes to which slot, and a call whose slot is lost is reported as lost once and not started again. All methods are
called on the pool's event loop; an engine calls its listener on that loop too, in order for each call:
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
    """The engine cannot be used; the text is shown to people and says what to do."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a node reported about itself when it joined."""

    node: str
    slots: int
    python: str
    """Such as ``3.11.9``. A node with another minor version than the pool is refused with a clear message."""
    address: str
    """The address at which other nodes reach it, for gangs."""


@dataclass(frozen=True, slots=True)
class Call:
    """One run of one blob on one slot. A retry is a new call with a new id."""

    id: str
    node: str
    slot: int
    blob: bytes
    """The batch for `runner`; opaque to an engine."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables during the call, such as the rank in a gang."""
    items: int = 1
    """Items in the blob."""


Ending = Literal["done", "lost", "revoked", "killed", "crashed", "broken"]
"""``done``: every item that it kept ran and has a result (which may be an exception of the user's own). ``lost``: its
node went away. ``revoked``: taken back before it began. ``killed``: ended by ``kill``. ``crashed``:
the process of its slot died while it ran; the node stays. ``broken``: it could not be run, or its result could not be
sent back; the detail says why, for people.
"""


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """The outcome of a call."""

    ending: Ending
    results: Sequence[PackedResult] = ()
    """The results of the items that ended after the last ``on_results``, in order."""
    seconds: float = 0.0
    """The seconds that those items took."""
    detail: str = ""
    began: bool = False
    """Whether the first item without a result may have begun. Later items have not begun, so they did not cause the
    failure.
    """


class Listener(Protocol):
    """Receives the events of an engine: the task book."""

    def on_node_joined(self, facts: NodeFacts) -> None:
        """A node has joined, with all its slots."""
        ...

    def on_node_left(self, node: str, why: str) -> None:
        """A node has left, or is so broken that none of its calls will end. Called after ``on_call_ended`` of all its
        calls.
        """
        ...

    def on_node_silent(self, node: str, seconds: float) -> None:
        """A node has sent no heartbeat for ``seconds``, and may hang. It is silent until ``on_node_heard`` or
        ``on_node_left``.
        """
        ...

    def on_node_heard(self, node: str) -> None:
        """A node that was silent sends heartbeats again."""
        ...

    def on_call_began(self, call: str) -> None:
        """The first item of a call runs now."""
        ...

    def on_results(self, call: str, results: Sequence[PackedResult], seconds: float) -> None:
        """The next items have ended, with these results and durations; the item after them runs now."""
        ...

    def on_call_shortened(self, call: str, items: int) -> None:
        """A call keeps only its first ``items`` items. The others were taken back and will not begin."""
        ...

    def on_output(self, call: str, item: int, stream: Stream, line: str) -> None:
        """A line that the item number ``item`` of the call printed."""
        ...

    def on_value(self, call: str, item: int, blob: bytes) -> None:
        """The next value of a generator."""
        ...

    def on_call_ended(self, call: str, outcome: CallOutcome) -> None:
        """A call has ended."""
        ...

    def data_store(self) -> DataStore | None:
        """Return the store of large values, which an engine serves to nodes on other machines; None: there is none, and
        values travel with their tasks."""
        ...

    def on_engine_down(self, why: str) -> None:
        """The engine cannot reach its nodes at the moment. Their calls continue; no new node can join."""
        ...

    def on_engine_up(self) -> None:
        """The engine works again."""
        ...

    def on_engine_lost(self, why: str) -> None:
        """The engine cannot be restarted: no call will end with a result. Called before ``on_call_ended``."""
        ...


@runtime_checkable
class Engine(Protocol):
    """Carries calls."""

    async def start(self, listener: Listener) -> None:
        """Start what the engine itself needs (a scheduler process). Raise ``EngineError`` if that is not possible."""
        ...

    def join(self, node: str, slots: int) -> Join:
        """Return the command that makes a host this node. It has no side effects; the engine must have been started.
        The environment holds the pool's keys, so a provider must hide it from other users of its machines. Calls on the
        pool's own machine run in the working directory of its program.
        """
        ...

    def run(self, call: Call) -> None:
        """Carry a call to its slot. Returns at once. A slot that is busy runs it next, in the order of the calls.

        A call for a node that does not exist, or has left, is ``lost``.
        """
        ...

    def revoke(self, call: str) -> None:
        """Take back the items of a call that have not begun. If none has begun, the call is ``revoked``; if some have,
        it is ``shortened``; if all have, nothing happens.
        """
        ...

    def kill(self, call: str) -> None:
        """End a call even if it runs: then it is ``killed``. The process of its slot may be restarted for that; calls
        behind it on the slot are ``revoked``, and the node stays. A call that has not begun is ``revoked``; one that
        has already ended is unchanged, and no other call is killed in its place.
        """
        ...

    def dismiss(self, node: str) -> None:
        """Order a node to leave: its processes end. Calls that are still there are ``lost``."""
        ...

    def abandon(self, node: str, why: str) -> None:
        """Abandon a node that does not answer: its calls are ``lost`` and it has left at once. Its later messages are
        ignored, and it is ordered to leave if it reconnects.
        """
        ...

    async def close(self) -> None:
        """End all nodes' processes and the engine's own. Nothing is left behind."""
        ...
