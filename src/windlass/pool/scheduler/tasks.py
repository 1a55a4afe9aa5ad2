"""ScheduledTask is a task of the pool: its function and arguments, its needs, and the ticket that gets its result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol

from windlass.core.capacity.node_room import TakenRoom
from windlass.core.model.conditions import Condition
from windlass.core.model.constraints import NO_RULES, Rules
from windlass.core.model.snapshot import Amounts
from windlass.pool.errors import TaskError
from windlass.pool.transport.serialization import Arguments, PackedResult, RawResult, Shared

SLOTS: Final = "slots"
"""The resource of which every task takes one; a node has as many as it runs tasks at once."""

LOST_RETRIES: Final = 3
"""How often a task without ``retries`` runs again after lost nodes. It never does after its own exception."""
CRASH_RETRIES: Final = 1
"""How often a task without ``retries`` runs again after a crash of its process. A second run shows whether the task
itself crashes or something else killed it; with more, a task that crashes after an hour would be reported after a day.
"""


class Ticket(Protocol):
    """Receives the result of a task. Called on the pool's thread; exactly one of ``on_ended`` and ``on_failed`` is
    called.
    """

    def on_began(self) -> None: ...

    def on_ended(self, result: RawResult) -> None: ...

    def on_failed(self, error: TaskError) -> None: ...

    def on_value(self, blob: bytes) -> None: ...


@dataclass(frozen=True, eq=False)
class Kind:
    """What tasks of one batch have in common. Compared by identity."""

    name: str
    """Name of the function, shown to people."""
    function: bytes | Shared
    needs: Amounts
    """Slots included."""
    retries: int | None = None
    """None: `LOST_RETRIES` after lost nodes, `CRASH_RETRIES` after a crash, none after its own exception."""
    timeout: float | None = None
    """Seconds that one run may take."""
    queue_timeout: float | None = None
    """Seconds that a task may wait for its first run."""
    streams: bool = False
    """Whether it is a generator, whose values are passed on one by one."""
    environment: tuple[tuple[str, str], ...] = ()
    where: tuple[Condition, ...] = ()
    """Conditions on the labels of nodes."""
    rules: Rules = NO_RULES
    """Its rules about other tasks on a node or in a domain. Its class is its name."""

    @property
    def budget(self) -> int:
        return LOST_RETRIES if self.retries is None else self.retries

    @property
    def crash_budget(self) -> int:
        return CRASH_RETRIES if self.retries is None else self.retries

    @property
    def batched(self) -> bool:
        """Whether several tasks may share a call: not those with a timeout, a stream or rules."""
        return self.timeout is None and not self.streams and not self.rules.binding


State = Literal["waiting", "placed", "over"]


class ScheduledTask:
    """One task. There may be very many, so attributes that most tasks never set have their default on the class."""

    state: State = "waiting"
    used: int = 0
    """Retries that have been used."""
    crashes: int = 0
    """Runs in which it ended its process."""
    lost_on: frozenset[str] = frozenset()
    alone: bool = False
    """Whether it must be sent alone, because it was in a batch that could not be run."""
    begun: bool = False
    doomed: TaskError | None = None
    """The error with which it must end, also if its run succeeds."""
    gang: Any = None
    """The `gangs.TaskGang` that it is a member of."""
    rank: int = 0
    """Its rank in its gang, or among the nodes."""
    node: str | None = None
    """The only node that may run it."""
    environment: Mapping[str, str] = MappingProxyType({})
    """Environment variables of this task only, in addition to those of its kind."""

    def __init__(
        self, number: int, kind: Kind, arguments: Arguments, ticket: Ticket, since: float, shared: tuple[str, ...] = ()
    ) -> None:
        """``since``: when it was submitted. ``shared``: names of the large values that it needs."""
        self.number, self.kind, self.arguments = number, kind, arguments
        self.ticket, self.since, self.shared = ticket, since, shared

    @property
    def label(self) -> str:
        """The task's name for people."""
        return f"{self.kind.name}#{self.number}"


OnFinished = Callable[[Collection[ScheduledTask]], None]
"""Gets tasks that have ended."""

OnOutput = Callable[[ScheduledTask, str, str], None]
"""Gets every printed line: the task, ``stdout`` or ``stderr``, the line."""


@dataclass(eq=False, slots=True)
class TaskPlacement:
    """A call that was sent to the engine and has not ended."""

    id: str
    node: str
    slot: int
    tasks: list[ScheduledTask]
    """Its items, without those that were taken back."""
    kind: Kind
    finished: int = 0
    """Items that have ended."""
    began_at: float | None = None
    moved_at: float | None = None
    """When the call began, or when its last item ended."""
    taken: TakenRoom | None = None
    """The resources that it holds on the node; None: it waits behind another call and will take over its resources."""
    ending: bool = False
    """Whether the engine was asked to take it back or to end it."""
    early: tuple[PackedResult, ...] = ()
    """The result of a member of a gang that arrived before the end of its call."""

    @property
    def running(self) -> ScheduledTask | None:
        """The task at the front of the slot, begun or about to begin."""
        return self.tasks[self.finished] if self.taken is not None and self.finished < len(self.tasks) else None

    @property
    def queued(self) -> list[ScheduledTask]:
        """Tasks that have not begun and wait behind others on the slot."""
        return self.tasks[self.finished + (self.taken is not None) :]

    @property
    def left(self) -> list[ScheduledTask]:
        """Tasks that have not ended."""
        return self.tasks[self.finished :]
