"""A Memo keeps the tables of the last plans for a caller that plans repeatedly.

One plan is much like the one before: the same groups, nearly all slices identical objects. What follows from them
alone can be used again. That saves time and changes no answer, because nothing in a snapshot can be changed in place
and no plan writes to these tables. Two threads that share a memo at worst compute something twice.
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

    def __call__(self, following: Callable[[T], T | None], made: Callable[[], T]) -> T:
        """The result that follows from the first known one from which some does, else a new one."""
        known = self._known
        for before in known:
            after = following(before)
            if after is not None:
                if after is not known[0]:
                    self._known = (after, *[one for one in known if one is not before])
                return after
        new = made()
        self._known = (new, *known[: self._size - 1])
        return new
