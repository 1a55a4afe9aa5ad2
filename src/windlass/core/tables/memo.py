"""A Memo keeps the tables of the last plans for a caller that plans repeatedly.

Consecutive plans have the same groups, and nearly all slices are identical objects, so tables that follow from them
alone can be reused. That saves time and changes no answer, because a snapshot is immutable and no plan writes to these
tables. Two threads that share a memo may at worst compute something twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Memo(Generic[T]):
    """The last few results, the newest first."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._known: tuple[T, ...] = ()

    def __call__(self, update: Callable[[T], T | None], build: Callable[[], T]) -> T:
        """Tries to update each known result in turn; builds a new one if none can be updated."""
        known = self._known
        for before in known:
            after = update(before)
            if after is not None:
                if after is not known[0]:
                    self._known = (after, *[one for one in known if one is not before])
                return after
        new = build()
        self._known = (new, *known[: self._size - 1])
        return new
