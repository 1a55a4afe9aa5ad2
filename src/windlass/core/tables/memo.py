"""What was worked out last, kept for whoever asks the same again, or nearly the same.

One plan is much like the one before: the same groups, nearly all slices identical objects. What follows from them
alone may be remembered. That saves time and changes no answer, as long as nobody writes to it; and two threads that
remember at the same time at worst work something out twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Memo(Generic[T]):
    """The last few answers, the newest first."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._known: tuple[T, ...] = ()

    def __call__(self, following: Callable[[T], T | None], made: Callable[[], T]) -> T:
        """What follows from the first known answer from which something does, else what is made anew."""
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
