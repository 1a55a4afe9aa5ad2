"""The contract of an engine: it carries calls to the slots of nodes and brings back what came of them.

A node is one host of the pool with one or more slots; a slot is one process that runs one call at a time. An engine
never chooses and never repeats: the book says which call goes to which slot, and a call whose slot is lost is reported
as lost, once, and is never started again by the engine. All methods are called on the pool's event loop; what an engine
has to tell it tells its listener, on that loop too, in order for each call: began, said and yielded, ended. Exactly one
``ended`` comes for every call that was given to ``run``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from windlass.pool.transport.runner import Stream
from windlass.workloads.protocol import Join


class EngineError(Exception):
    """The engine cannot be used; its text is shown to people and says what to do."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a node told about itself when it joined."""

    node: str
    slots: int
    python: str
    """Such as ``3.11.9``. A node whose minor version is not the pool's own is refused by the book with a clear word."""
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
    shared: tuple[str, ...] = ()
    """Names of blobs given to ``share`` that the call needs: they come to each node once."""


Ending = Literal["done", "lost", "revoked", "killed", "broken"]
"""``done``: it ran and there is a result (which may be an exception of the user's own). ``lost``: its slot or node went
away. ``revoked``: taken back before it began. ``killed``: ended because ``kill`` asked for it. ``broken``: it could not
be run or its result could not be brought back; the detail says why, for people."""


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """What came of a call."""

    ending: Ending
    result: bytes = b""
    """What `runner` gave back, when it is ``done``."""
    detail: str = ""
    began: bool = False
    """Whether it may have begun: a call that has not is nobody's failure."""


class Listener(Protocol):
    """Whoever wants to know: the book."""

    def joined(self, facts: NodeFacts) -> None:
        """All slots of a node are there."""
        ...

    def left(self, node: str, why: str) -> None:
        """The node is gone, or so broken that none of its calls will end. Told after the ``ended`` of its calls. A node
        of which one slot died is gone: its other slots are ended by the engine."""
        ...

    def began(self, call: str) -> None:
        """It runs now."""
        ...

    def said(self, call: str, item: int, stream: Stream, line: str) -> None:
        """A line that the item number ``item`` of the call printed."""
        ...

    def yielded(self, call: str, item: int, blob: bytes) -> None:
        """The next value of a generator."""
        ...

    def ended(self, call: str, outcome: CallOutcome) -> None:
        """It is over."""
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

    def share(self, name: str, blob: bytes) -> None:
        """Have a blob ready that several calls need; it travels to each node that needs it, once. A name stands for the
        same bytes for as long as the engine lives."""
        ...

    def unshare(self, name: str) -> None:
        """No call needs it any more."""
        ...

    def run(self, call: Call) -> None:
        """Carry a call to its slot. Returns at once. A slot that is busy runs it next, in the order of the calls.

        A call for a node that is not there, or not any more, is ``lost``.
        """
        ...

    def revoke(self, call: str) -> None:
        """Take it back if it has not begun; if it has, nothing happens. Its ``ended`` tells."""
        ...

    def kill(self, call: str) -> None:
        """End it even if it runs: it is ``killed`` then. The process of its slot may go for that and come back; calls
        behind it on the slot are ``revoked``, the node stays. One that has not begun is ``revoked``; one that has ended
        by then is left as it is, and no other call is hit in its place."""
        ...

    def dismiss(self, node: str) -> None:
        """The node is not wanted any more: it leaves, its processes end. Calls still there are ``lost``."""
        ...

    async def close(self) -> None:
        """End all nodes' processes and the engine's own. Nothing is left behind."""
        ...
