"""What was worked out last, kept for whoever asks the same again, or nearly the same.

One plan is much like the one before: the same groups, nearly all slices the very same objects. What follows from them
alone may be remembered. That saves time and changes no answer, as long as nobody writes to it; and two threads that
remember at the same time at worst work something out twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress, count, islice
from operator import is_not
from typing import Final, Generic, TypeVar

T = TypeVar("T")

FEW: Final = 32
"""Fewer slices are looked at faster than they are recognized."""

_CHANGED: Final = 10
"""One thing in so many may have changed: with more it is faster to look at all of them."""


class Recent(Generic[T]):
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


def changed_places(before: Sequence[object], after: Sequence[object]) -> list[int] | None:
    """Where ``after`` has another object than ``before``; None: it is of another length, or there are too many."""
    if len(before) != len(after):
        return None
    most = len(after) // _CHANGED
    found = list(islice(compress(count(), map(is_not, before, after)), most + 1))
    return found if len(found) <= most else None
