"""This module counts partitions of devices, which share counters such as the memory slices of a GPU.

A partition is a device of its own in the API. It consumes amounts of the counters of its counter set, and can be
allocated while all of them suffice. The scheduler takes the first device in the order of the ResourceSlice that fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Final, Protocol

Counter = tuple[str, str, str, str]
"""Driver, pool, counter set and name."""
CounterAmounts = tuple[tuple[Counter, Decimal], ...]
NO_COUNTERS: Final[Mapping[Counter, Decimal]] = {}


class Partition(Protocol):
    """A device that may consume counters."""

    @property
    def counters(self) -> CounterAmounts: ...


def suffice(counters: Mapping[Counter, Decimal], amounts: CounterAmounts) -> bool:
    """Whether the counters suffice for one more device."""
    return all(counters.get(name, Decimal(0)) >= amount for name, amount in amounts)


def consumed(counters: Mapping[Counter, Decimal], devices: Iterable[Partition]) -> dict[Counter, Decimal]:
    """Return the counters that are left after devices were allocated."""
    left = dict(counters)
    for one in devices:
        for name, amount in one.counters:
            left[name] = left.get(name, Decimal(0)) - amount
    return left


def allocatable(counters: Mapping[Counter, Decimal], devices: Iterable[Partition]) -> int:
    """Return how many of the devices can be allocated together, taken in their order."""
    left, found = dict(counters), 0
    for one in devices:
        if suffice(left, one.counters):
            left, found = consumed(left, [one]), found + 1
    return found
