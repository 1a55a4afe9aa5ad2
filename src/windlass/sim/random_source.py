"""RandomSource gives named random numbers from one seed; a draw under one name does not change the draws of another."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class RandomSource:
    """Draws by name: the same seed and the same name give the same number, in any order of calls."""

    seed: int | str

    def _dice(self, *name: object) -> Random:
        return Random("|".join(map(str, (self.seed, *name))))

    def happens(self, rate: float, *name: object) -> bool:
        return rate >= 1 or (rate > 0 and self._dice(*name).random() < rate)

    def around(self, median: float, sigma: float, *name: object) -> float:
        """Draw from a log-normal: most values near the median, a few much larger. ``sigma`` 0: always the median."""
        return median * math.exp(sigma * self._dice(*name).gauss(0, 1)) if sigma else median

    def wait(self, mean: float, *name: object) -> float:
        """Draw the time until the next event of a constant rate."""
        return -mean * math.log(1 - self._dice(*name).random())

    def pick(self, count: int, *name: object) -> int:
        return self._dice(*name).randrange(count)
