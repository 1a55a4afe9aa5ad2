"""Pace decides how many short tasks are sent in one batch, from the durations of earlier tasks.

Sending a batch costs a few milliseconds, independent of its size; so shorter tasks are sent in batches that run for
about half a second. Tasks of unknown duration are sent one by one, and a batch is never more than eight times as large
as the one before it. A wrong estimate does no lasting harm: tasks of a batch that have not begun are taken back as soon
as another slot is free for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

AIM: Final = 0.5
"""Seconds that a batch should take. It takes 0.2 to 2 s even when the estimate is wrong by a factor of two to four."""
STEP: Final = 8
WEIGHT: Final = 0.3
"""Weight of the newest batch in the mean duration."""
LEAST: Final = 0.1
"""Seconds of work on each slot up to which all waiting tasks are sent in one round: a second round would cost more than
it gains.
"""
SHORT: Final = 2.0
"""Seconds that a batch may take to be queued behind another one on a slot, so that the slot is never idle between them.
"""
BYTES: Final = 8 << 20
"""Most bytes of arguments in one batch."""
ROUNDS: Final = 2
"""Batches that each slot should get of the waiting tasks at least, so that all slots end at about the same time."""
SMALLEST: Final = 0.02
"""Seconds of work that a batch has at least while enough waits: smaller ones cost more than they gain."""
UNSEEN: Final = 0.1
"""Seconds for which the end of a task may be unknown: results of a batch are collected a few times a second."""
WORTH: Final = 0.05
"""Seconds of work that a slot must have queued before some of it is taken back for a slot that is free."""


@dataclass(slots=True)
class Pace:
    """The measured durations of one kind of task."""

    mean: float | None = None
    largest: int = 1
    """Size of the largest batch of which most tasks have ended."""

    def learn(self, seconds: float, tasks: int, batch: int = 1) -> None:
        """Record that ``count`` tasks have ended in ``seconds``; ``batch``: how many of their batch have ended."""
        mean = seconds / tasks
        self.mean = mean if self.mean is None else (1 - WEIGHT) * self.mean + WEIGHT * mean
        self.largest = max(self.largest, tasks, batch)

    def estimate(self, running: float = 0.0) -> float | None:
        """Estimate the seconds of the next task, when one of its kind has run for ``running`` seconds and has not
        ended.
        """
        return running or None if self.mean is None else max(self.mean, running, 1e-9)

    def size(self, waiting: int, slots: int, free: int, running: float = 0.0) -> int:
        """Return the number of tasks in the next batch, from how many wait, how many slots there are, and how many are
        free; ``free`` is 0 for a batch that is queued behind another.
        """
        mean = self.estimate(running)
        if self.mean is None or mean is None:
            return 1
        fair = max(-(-waiting // (ROUNDS * max(1, slots))), int(SMALLEST / mean))
        if free and (share := -(-waiting // free)) * mean <= LEAST:
            fair = share
        return max(1, min(int(AIM / mean), STEP * self.largest, fair, waiting))

    def is_short(self, size: int, running: float = 0.0) -> bool:
        """Return whether a batch of this size is known to be short."""
        mean = self.estimate(running)
        return self.mean is not None and mean is not None and mean * size <= SHORT
