"""Tasks as a journal shows them: when they arrived, started and ended, as far as visible."""

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
    """Whether its end was seen; else it still ran at the end of the journal."""
    withdrawn: bool = False
    """It went away without being seen to run."""
    unseen: bool = False
    """It was never seen to wait: nodes have it in use, and that is all that is known of it."""
    lost: bool = False
    """Its machine went away under it, and it waited again."""
    again: RecordedTask | None = None
    """The lost one that this is the second try of."""

    @property
    def came(self) -> float:
        """When the work first arrived."""
        return self.arrived if self.again is None else self.again.came


@dataclass(frozen=True, slots=True)
class News:
    """What was new in one pass, for code that follows the tasks."""

    at: float
    before: float
    """The instant of the pass before."""
    arrived: tuple[RecordedTask, ...]
    started: tuple[RecordedTask, ...]
    nodes: tuple[tuple[WorkNode | None, WorkNode | None], ...]
    """Nodes that changed: as they were and as they are."""
    gone: tuple[str, ...]
    """Slices that are over."""
