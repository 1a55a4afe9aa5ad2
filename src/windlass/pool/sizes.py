"""How many nodes a pool may have: ``4``, ``(2, 16)`` or ``Nodes(2, 4, 16)``."""

from __future__ import annotations

from dataclasses import dataclass

from .checking import is_whole
from .errors import BadPool

MOST = 100_000
"""Nodes. More is a typing error."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """At least ``min`` nodes, at the most ``max``, and ``desired`` to begin with."""

    min: int
    desired: int
    max: int

    def __post_init__(self) -> None:
        for name in ("min", "desired", "max"):
            value = getattr(self, name)
            if not is_whole(value, 0, MOST):
                raise BadPool(f"nodes: {name} must be a whole number from 0 to {MOST}, is {value!r}")
        if self.max < 1:
            raise BadPool("nodes: max must be at least 1: a pool without nodes can run nothing")
        if not self.min <= self.max:
            raise BadPool(
                f"nodes: min is {self.min} and max is {self.max}; the smaller number comes first: "
                f"nodes=({self.max}, {self.min})?"
            )
        if not self.min <= self.desired <= self.max:
            raise BadPool(f"nodes: desired must lie between {self.min} and {self.max}, is {self.desired}")

    @classmethod
    def of(cls, given: int | tuple[int, int] | Nodes) -> Nodes:
        """From any of the ways to write it."""
        if isinstance(given, Nodes):
            return given
        if isinstance(given, tuple | list):
            if len(given) != 2:
                raise BadPool(
                    f"nodes: {given!r} has {len(given)} numbers; give (min, max), or Nodes(min, desired, max)"
                )
            return cls(given[0], given[0], given[1])
        return cls(given, given, given)
