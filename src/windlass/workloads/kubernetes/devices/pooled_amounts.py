"""This module counts what different requests take of the same devices: counters of partitions and shared capacity.

A whole GPU and its partitions consume the same counters, and shares of different sizes take the same capacity. If each
request were counted alone, one plan would use both twice. So each amount that several requests take is a resource: a
node offers the sum over its devices, and a request needs the least that any device it selects takes. This never refuses
what the scheduler could allocate. It does not see how requests are distributed over the devices of a node.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Final

from .expressions import DeviceFacts
from .partitions import Counter
from .queries import DeviceKind
from .shares import share_of, totals_of

UNKNOWN: Final = 1 << 40
"""What a new node offers of a counter that neither its template nor another node of its provisioner tells."""
MEBIBYTE: Final = 1 << 20
_NUMBERED: Final = re.compile(r"[-_.]?\d+$")

PoolKey = tuple[str, str]
"""Driver, and the name of a counter without its number, or the qualified name of a capacity."""
Pools = dict[PoolKey, Decimal]


def counters_by_pool(counters: Iterable[tuple[Counter, Decimal]]) -> Pools:
    """Return the sums of counters. Counters such as memory-slice-0 and memory-slice-1 are one amount: which of them a
    partition takes depends on its place on the device.
    """
    found: Pools = {}
    for (driver, _, _, name), amount in counters:
        key = (driver, f"counter {_NUMBERED.sub('', name)}")
        found[key] = found.get(key, Decimal(0)) + amount
    return found


def capacity_by_pool(devices: Iterable[DeviceFacts], which: str) -> Pools:
    """Return the sums of the capacity of devices that can be shared. ``which``: total or left."""
    found: Pools = {}
    for one in devices:
        for name, amount in totals_of(one.shares, which).items() if one.multiple else ():
            found[one.driver, name] = found.get((one.driver, name), Decimal(0)) + amount
    return found


@dataclass
class PooledAmounts:
    """The planner's resources for amounts that several kinds of request take."""

    names: dict[PoolKey, str] = field(default_factory=dict)
    _units: dict[PoolKey, int] = field(default_factory=dict)
    _needs: dict[DeviceKind, Pools] = field(default_factory=dict)

    @staticmethod
    def of(
        kinds: Iterable[DeviceKind], devices: Sequence[DeviceFacts], serves: Callable[[DeviceFacts, DeviceKind], bool]
    ) -> PooledAmounts:
        """``kinds``: those for partitions and shares. ``devices``: all, also equal ones."""
        pooled = PooledAmounts()
        found: dict[DeviceKind, Pools] = {}
        for kind in kinds:
            taken = [_taken(kind, one) for one in devices if serves(one, kind)]
            # A device without known counters, as in a template that names none, says nothing about the others.
            taken = [one for one in taken if one]
            keys = set(taken[0]).intersection(*taken[1:]) if taken else set()
            found[kind] = {key: least for key in keys if (least := min(one[key] for one in taken))}
        for key in sorted({key for one in found.values() for key in one}):
            if sum(key in one for one in found.values()) > 1:
                largest = max(one[key] for one in found.values() if key in one)
                pooled._units[key] = MEBIBYTE if largest >= 10**9 else 1
                pooled.names[key] = f"{key[1]} of {key[0]}" + (" in MiB" if largest >= 10**9 else "")
        pooled._needs = {
            kind: {key: amount for key, amount in one.items() if key in pooled.names} for kind, one in found.items()
        }
        return pooled

    def needs(self, kind: DeviceKind) -> dict[str, int]:
        """Return what one request of a kind takes."""
        return {
            self.names[key]: int((1000 * amount / self._units[key]).to_integral_value(ROUND_FLOOR))
            for key, amount in self._needs.get(kind, {}).items()
        }

    def amounts(self, pools: Mapping[PoolKey, Decimal]) -> dict[str, int]:
        """Return amounts as resources of the planner."""
        return {
            name: int((1000 * pools[key] / self._units[key]).to_integral_value(ROUND_CEILING))
            for key, name in self.names.items()
            if pools.get(key)
        }


def _taken(kind: DeviceKind, device: DeviceFacts) -> Pools:
    """Return what a request of a kind takes of a device."""
    if device.multiple:
        parts = share_of(device.driver, device.shares, kind.capacity)
        return {(device.driver, name): amount for name, amount in parts.items()}
    return counters_by_pool(device.counters)
