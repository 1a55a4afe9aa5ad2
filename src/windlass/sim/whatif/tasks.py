"""A RecordedTask is a task as a journal shows it: when it arrived, started and ended, as far as visible."""

from __future__ import annotations

from dataclasses import dataclass

from windlass.core.model.snapshot import Amounts
from windlass.workloads.protocol import WorkNode


@dataclass(eq=False, slots=True)
class RecordedTask:
    """One task, from its arrival on. Of equal tasks of a demand the one that came first starts first."""

    demand: str
    needs: Amounts
    arrived: float
    started: float | None = None
    ended: float | None = None
    end_seen: bool = False
    """Whether its end was seen; otherwise it still ran at the end of the journal."""
    withdrawn: bool = False
    """Whether it disappeared without being seen to run."""
    unseen: bool = False
    """Whether it was never seen to wait: only its usage of a node is known."""
    lost: bool = False
    """Whether its machine was lost, and it waited again."""
    again: RecordedTask | None = None
    """The lost task that this one repeats."""

    @property
    def came(self) -> float:
        """When the work first arrived."""
        return self.arrived if self.again is None else self.again.came


@dataclass(frozen=True, slots=True)
class PassChanges:
    """The changes of one pass, as input for the tracking of tasks."""

    at: float
    before: float
    """Time of the pass before."""
    arrived: tuple[RecordedTask, ...]
    started: tuple[RecordedTask, ...]
    nodes: tuple[tuple[WorkNode | None, WorkNode | None], ...]
    """Nodes that changed: before and after."""
    gone: tuple[str, ...]
    """Slices that have ended."""
