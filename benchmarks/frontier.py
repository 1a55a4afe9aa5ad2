"""Computes the cost-wait frontier of one system, and its cost at another system's wait."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Point:
    """A policy on a trace."""

    name: str
    wait: float
    """The 95th percentile, in seconds."""
    cost: float

    def beats(self, other: Point) -> bool:
        """Return whether this point is better in both cost and wait."""
        return self.cost < other.cost and self.wait < other.wait


def frontier(points: Iterable[Point]) -> list[Point]:
    """Return the points that no other point dominates, sorted by wait."""
    best: list[Point] = []
    for point in sorted(points, key=lambda one: (one.wait, one.cost)):
        if not best or point.cost < best[-1].cost:
            best.append(point)
    return best


def cost_at(points: Sequence[Point], wait: float) -> float | None:
    """What a wait of so many seconds costs: on the line between the two neighbours of the frontier; beyond its last
    point as much as there. None: it was never so fast."""
    line = frontier(points)
    if not line or wait < line[0].wait:
        return None
    for left, right in pairwise(line):
        if left.wait <= wait < right.wait:
            share = (wait - left.wait) / (right.wait - left.wait)
            return left.cost + share * (right.cost - left.cost)
    return line[-1].cost
