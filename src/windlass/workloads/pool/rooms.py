"""The free room of one node of the pool, given and taken task by task, by the planner's rule of what fits.

The rule itself is `windlass.core.room`'s: ordinary resources add up; a need below one accelerator is a share of ONE
device, and goes to the fullest that still has room; a need from one on takes whole free devices. Here it is kept for a
node at work, where tasks also leave, and which device each of them has is known, so that it can be told.
"""

from __future__ import annotations

from dataclasses import dataclass

from windlass.core.quantities import ACCELERATORS, DEVICE
from windlass.core.snapshot import Amounts, amounts

Devices = tuple[tuple[str, int, int], ...]
"""(accelerator, number of the device, thousandths of it)."""


def fits_empty(total: Amounts, needs: Amounts) -> bool:
    """Whether a task fits on a node with nothing on it."""
    has = dict(total)
    return all(amount <= has.get(name, 0) for name, amount in needs)


@dataclass(frozen=True, slots=True)
class Taken:
    """What a task has of a node."""

    needs: Amounts
    devices: Devices = ()

    def environment(self) -> dict[str, str]:
        """How the task is told which devices it has."""
        numbers: dict[str, list[str]] = {}
        for name, device, _ in self.devices:
            numbers.setdefault(name, []).append(str(device))
        told = {f"WINDLASS_{name.upper()}": ",".join(devices) for name, devices in numbers.items()}
        if "gpu" in numbers:
            told["CUDA_VISIBLE_DEVICES"] = told["WINDLASS_GPU"]
        return told


class Room:
    """What is free on one node."""

    def __init__(self, total: Amounts) -> None:
        self.total = total
        self._free = {name: amount for name, amount in total if name not in ACCELERATORS}
        self._devices = {name: [DEVICE] * (amount // DEVICE) for name, amount in total if name in ACCELERATORS}

    def take(self, needs: Amounts) -> Taken | None:
        """Room for a task, or None and nothing is changed."""
        devices: list[tuple[str, int, int]] = []
        for name, amount in needs:
            if not amount:
                continue
            if name in self._devices:
                found = self._pick(name, amount)
                if found is None:
                    return None
                devices += found
            elif self._free.get(name, 0) < amount:
                return None
        taken = Taken(needs, tuple(devices))
        self._move(taken, -1)
        return taken

    def give(self, taken: Taken) -> None:
        """The task has left."""
        self._move(taken, 1)

    def _pick(self, name: str, amount: int) -> list[tuple[str, int, int]] | None:
        free = self._devices[name]
        if amount < DEVICE:
            able = [(left, number) for number, left in enumerate(free) if left >= amount]
            return [(name, min(able)[1], amount)] if able else None
        whole = [number for number, left in enumerate(free) if left == DEVICE]
        wanted = amount // DEVICE
        return [(name, number, DEVICE) for number in whole[:wanted]] if len(whole) >= wanted else None

    def _move(self, taken: Taken, sign: int) -> None:
        for name, amount in taken.needs:
            if name in self._free:
                self._free[name] += sign * amount
        for name, number, amount in taken.devices:
            self._devices[name][number] += sign * amount

    def used(self) -> Amounts:
        """What is taken."""
        free = self._free | {name: sum(left) for name, left in self._devices.items()}
        return amounts({name: amount - free[name] for name, amount in self.total if amount != free[name]})
