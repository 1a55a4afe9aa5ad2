"""Room: what is free on one node, by the rule of the planner (`windlass.core.room`), without numpy.

An agent starts in milliseconds and asks about one node at a time, so the rule is told here once more, in plain Python;
a test holds the two against each other. Accelerators are devices: a need below one device takes a share of ONE device,
a need from one on takes whole free devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from windlass.core.quantities import ACCELERATORS, DEVICE

if TYPE_CHECKING:
    from windlass.core.snapshot import Amounts


class Room:
    """What is free on a node, by the planner's rule: a need below one device takes a share of ONE device."""

    def __init__(self, resources: Amounts, running: Sequence[tuple[Amounts, int]]) -> None:
        self._free = {name: amount for name, amount in resources if name not in ACCELERATORS}
        self._devices = {
            name: sorted([DEVICE] * (amount // DEVICE) + [amount % DEVICE] * bool(amount % DEVICE))
            for name, amount in resources
            if name in ACCELERATORS
        }
        # The largest first, which packs shares well. Were one not to fit so, the node has no room: never too much.
        for needs, count in sorted(running, key=lambda one: max(dict(one[0]).get(n, 0) for n in ACCELERATORS))[::-1]:
            if self.take(needs, count) < count:
                self._free, self._devices = {}, {}

    def take(self, needs: Amounts, most: int) -> int:
        """Put up to ``most`` tasks there; how many fit."""
        taken = 0
        while taken < most and all(self._fits(name, amount) for name, amount in needs):
            for name, amount in needs:
                self._put(name, amount)
            taken += 1
        return taken

    def _fits(self, name: str, amount: int) -> bool:
        if name not in self._devices:
            return self._free.get(name, 0) >= amount
        if amount < DEVICE:
            return self._devices[name][-1] >= amount if self._devices[name] else False
        return self._devices[name].count(DEVICE) * DEVICE >= amount

    def _put(self, name: str, amount: int) -> None:
        if name not in self._devices:
            self._free[name] -= amount
            return
        devices = self._devices[name]
        while amount > 0:
            share = min(amount, DEVICE)
            devices.append(devices.pop(next(at for at, free in enumerate(devices) if free >= share)) - share)
            devices.sort()
            amount -= share
