"""How many short tasks travel together, learned from what the last ones took.

A batch costs a few milliseconds on the way, whatever is in it; so tasks that take less are sent together, as many as
run for about half a second. What is not known is tried one by one, and a batch is never more than eight times the one
before it. A slow one among many quick ones counts for more than its share: whatever is behind it in its batch waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

AIM: Final = 0.5
"""Seconds that a batch should take: within 0.2 to 2 s even when the guess is off by two or four."""
STEP: Final = 8
WEIGHT: Final = 0.3
"""Of the newest batch in the mean."""
FADE: Final = 0.9
"""How fast a slow one is forgotten, batch by batch."""
OUTLIER: Final = 64
"""A task that took so many times the mean counts as the mean does. Less, and every hiccup of a busy machine would count
as a slow task."""
LEAST: Final = 0.05
"""Seconds that a batch should take at the least, also at the end, when little is left to share: below it, sending costs
more than sharing gains."""
SHORT: Final = 2.0
"""Seconds: a batch that takes no longer may wait behind another on a slot, so that the slot never waits for it."""
BYTES: Final = 8 << 20
"""Of arguments that travel in one batch at the most."""
ROUNDS: Final = 2
"""Batches that each slot should at least get of what waits, so that all end at about the same time."""


@dataclass(slots=True)
class Pace:
    """What is known of the tasks of one kind."""

    mean: float | None = None
    slowest: float = 0.0
    largest: int = 1
    """Tasks in the largest batch that has come back."""

    def learn(self, seconds: list[float]) -> None:
        """A batch has come back."""
        if not seconds:
            return
        mean = sum(seconds) / len(seconds)
        self.mean = mean if self.mean is None else (1 - WEIGHT) * self.mean + WEIGHT * mean
        self.slowest = max(FADE * self.slowest, *seconds)
        self.largest = max(self.largest, len(seconds))

    @property
    def guess(self) -> float | None:
        """Seconds that the next one will take, rather too long than too short; None: nobody knows."""
        return None if self.mean is None else max(self.mean, self.slowest / OUTLIER)

    def size(self, waiting: int, slots: int) -> int:
        """Tasks for the next batch, when so many wait for so many slots."""
        guess = self.guess
        if guess is None:
            return 1
        by_time = int(AIM / guess) if guess > 0 else waiting
        fair = max(-(-waiting // (ROUNDS * max(1, slots))), min(waiting, int(LEAST / guess) if guess > 0 else waiting))
        return max(1, min(by_time, STEP * self.largest, fair))

    def is_short(self, size: int) -> bool:
        """Whether a batch of this size is known to be short."""
        guess = self.guess
        return guess is not None and guess * size <= SHORT
