"""Pace decides how many short tasks are sent together, from how long the last ones took.

Sending a batch costs a few milliseconds, independent of its size; so tasks that take less are sent together, as many as
run for about half a second. What is not known is tried one by one, and a batch is never more than eight times the one
before it. A guess that turns out wrong does no lasting harm: tasks of a batch that have not begun are taken back as
soon as another slot is free for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

AIM: Final = 0.5
"""Seconds that a batch should take: within 0.2 to 2 s even when the guess is off by two or four."""
STEP: Final = 8
WEIGHT: Final = 0.3
"""Of the newest batch in the mean."""
LEAST: Final = 0.1
"""Seconds: what would take no longer than this on each slot is shared out in one round. Below it, sending costs more
than a second round gains."""
SHORT: Final = 2.0
"""Seconds: a batch that takes no longer may wait behind another on a slot, so that the slot never waits for it."""
BYTES: Final = 8 << 20
"""Of arguments that travel in one batch at most."""
ROUNDS: Final = 2
"""Batches that each slot should at least get of what waits, so that all end at about the same time."""


UNSEEN: Final = 0.1
"""Seconds for which a task may have ended unseen: results of a batch are collected a few times a second."""
WORTH: Final = 0.05
"""Seconds of work that a slot must have queued before some of it is taken back for a slot that is free."""


@dataclass(slots=True)
class Pace:
    """What is known of the tasks of one kind."""

    mean: float | None = None
    largest: int = 1
    """Tasks of the batch of which most have ended so far."""

    def learn(self, seconds: float, tasks: int, batch: int = 1) -> None:
        """So many tasks have ended, and took so long; ``batch``: with them so many of their batch have."""
        mean = seconds / tasks
        self.mean = mean if self.mean is None else (1 - WEIGHT) * self.mean + WEIGHT * mean
        self.largest = max(self.largest, tasks, batch)

    def estimate(self, running: float = 0.0) -> float | None:
        """Seconds that the next task takes, when one of its kind has run for ``running`` and has not ended."""
        return running or None if self.mean is None else max(self.mean, running, 1e-9)

    def size(self, waiting: int, slots: int, free: int, running: float = 0.0) -> int:
        """Tasks for the next batch, when so many wait for so many slots, of which so many are free now."""
        mean = self.estimate(running)
        if self.mean is None or mean is None:
            return 1
        share = -(-waiting // max(1, free))
        fair = share if share * mean <= LEAST else -(-waiting // (ROUNDS * max(1, slots)))
        return max(1, min(int(AIM / mean), STEP * self.largest, fair))

    def is_short(self, size: int, running: float = 0.0) -> bool:
        """Whether a batch of this size is known to be short."""
        mean = self.estimate(running)
        return self.mean is not None and mean is not None and mean * size <= SHORT
