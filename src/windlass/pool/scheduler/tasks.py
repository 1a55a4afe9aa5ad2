"""ScheduledTask is a task of the pool: what it runs, what it needs, and the ticket that gets its result."""

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
"""The resource of which every task takes one, and a node has as many as it runs at once."""

LOST_RETRIES: Final = 3
"""How often a task is run again that asked for no retries: for nodes that were lost only, never for its own errors."""


class Ticket(Protocol):
    """Waits for a task. Called on the pool's own thread; exactly one of ``on_ended`` and ``on_failed`` comes."""

    def on_began(self) -> None: ...

    def on_ended(self, result: RawResult) -> None: ...

    def on_failed(self, error: TaskError) -> None: ...

    def on_value(self, blob: bytes) -> None: ...


@dataclass(frozen=True, eq=False)
class Kind:
    """What tasks have in common that may travel together. Compared by identity."""

    name: str
    """Of the function, for people; waiting tasks are shown under it."""
    function: bytes | Shared
    needs: Amounts
    """Slots included."""
    retries: int | None = None
    """None: run again for lost nodes only, a few times."""
    timeout: float | None = None
    """Seconds that one run may take."""
    queue_timeout: float | None = None
    """Seconds that it may wait for its first run."""
    streams: bool = False
    """A generator: its values are passed on as they come."""
    environment: tuple[tuple[str, str], ...] = ()
    where: tuple[Condition, ...] = ()
    """On the labels of the nodes that may run it."""
    rules: Rules = NO_RULES
    """What it asks of the tasks around it. Its class is its name."""

    @property
    def budget(self) -> int:
        return LOST_RETRIES if self.retries is None else self.retries

    @property
    def batched(self) -> bool:
        """Whether several may share a call: not those that are timed, streamed or limited one by one."""
        return self.timeout is None and not self.streams and not self.rules.binding


State = Literal["waiting", "placed", "over"]


class ScheduledTask:
    """One of them. There may be many, so what most never have is kept on the class."""

    state: State = "waiting"
    used: int = 0
    """Of its retries."""
    lost_on: frozenset[str] = frozenset()
    alone: bool = False
    """It was in a batch that could not be run: from now on it is sent alone."""
    begun: bool = False
    doomed: TaskError | None = None
    """The error with which it must end, also if its run succeeds."""
    gang: Any = None
    """The `gangs.Gang` that it is a member of."""
    rank: int = 0
    """In its gang, or among the nodes."""
    node: str | None = None
    """The only node that may run it."""
    environment: Mapping[str, str] = MappingProxyType({})
    """Set for this task only, in addition to the environment of its kind."""

    def __init__(
        self, number: int, kind: Kind, arguments: Arguments, ticket: Ticket, since: float, shared: tuple[str, ...] = ()
    ) -> None:
        """``since``: when it was submitted. ``shared``: names of the large values that it needs."""
        self.number, self.kind, self.arguments = number, kind, arguments
        self.ticket, self.since, self.shared = ticket, since, shared

    @property
    def label(self) -> str:
        """Which one, for people."""
        return f"{self.kind.name}#{self.number}"


OnFinished = Callable[[Collection[ScheduledTask]], None]
"""Told of tasks that are over."""

OnOutput = Callable[[ScheduledTask, str, str], None]
"""Told every line: the task, ``stdout`` or ``stderr``, the line."""


@dataclass(eq=False, slots=True)
class TaskPlacement:
    """A call that was given to the engine and has not ended."""

    id: str
    node: str
    slot: int
    tasks: list[ScheduledTask]
    """Its items; those that were taken back are not there any more."""
    kind: Kind
    finished: int = 0
    """Items that have ended."""
    began_at: float | None = None
    moved_at: float | None = None
    """When it began, or its last item ended."""
    taken: TakenRoom | None = None
    """Its room on the node; None: it waits there behind another call, whose room it will have."""
    ending: bool = False
    """Whether the engine was asked to take it back or to end it."""
    early: tuple[PackedResult, ...] = ()
    """Of a member of a gang: its result, if that came before its end."""

    @property
    def running(self) -> ScheduledTask | None:
        """The task that has the slot, begun or about to."""
        return self.tasks[self.finished] if self.taken is not None and self.finished < len(self.tasks) else None

    @property
    def queued(self) -> list[ScheduledTask]:
        """Tasks that have not begun and wait for others on the slot."""
        return self.tasks[self.finished + (self.taken is not None) :]

    @property
    def left(self) -> list[ScheduledTask]:
        """Tasks that have not ended."""
        return self.tasks[self.finished :]
