"""Plain values: small, unchangeable, and the same on both sides whoever unpickles them.

They travel as they are, in the one pickle of their batch. Anything else has a pickle of its own, made when it is sent
and opened when it is needed: so no two items share an object that one of them may change, and what cannot be unpickled
spoils its own item and no other.
"""

from __future__ import annotations

from collections.abc import Iterable
from sys import getsizeof
from typing import Any, Final

LONGEST: Final = 512
"""Bytes of all plain values of an item, pickled, at the most: whoever counts bytes may count so many for it."""
_SMALL: Final = LONGEST // 2
"""The same as Python counts them in memory, where a letter that takes two bytes in a pickle may take one."""
TYPES: Final = frozenset({int, float, bool, str, bytes, type(None)})
"""Of all plain values; those of them that are small are plain."""


def is_plain(value: Any) -> bool:
    return type(value) in TYPES and getsizeof(value) <= _SMALL


def are_plain(values: Iterable[Any]) -> bool:
    """Whether all of them are, and are small together."""
    room = _SMALL
    for value in values:
        if type(value) not in TYPES:
            return False
        room -= getsizeof(value)
    return room >= 0
