"""NodeRoom tracks the free room of one node task by task, by the planner's fit rule, without numpy.

The rule is that of `windlass.core.capacity.room`: ordinary resources add up; a need below one accelerator takes a share
of one device, the fullest that still has room for it; a need of one or more takes whole free devices. Queue agents and
the pool use this version because they start in milliseconds and ask about one node at a time, and because tasks also
leave. A property test holds both implementations together. This module must
not import numpy or dataclasses: an agent that loads them starts three times slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from windlass.core.model.quantities import ACCELERATORS, DEVICE

if TYPE_CHECKING:
    from windlass.core.model.snapshot import Amounts

Devices = tuple[tuple[str, int, int], ...]
"""(accelerator, number of the device, thousandths of it)."""


def fits_empty(total: Amounts, needs: Amounts) -> bool:
    """Return whether a task fits on a node with nothing on it."""
    has = dict(total)
    return all(amount <= has.get(name, 0) for name, amount in needs)


class TakenRoom(NamedTuple):
    """The room that one task occupies on a node."""

    needs: Amounts
    devices: Devices = ()

    def environment(self) -> dict[str, str]:
        """Return the environment variables that name the task's devices."""
        numbers: dict[str, list[str]] = {}
        for name, device, _ in self.devices:
            numbers.setdefault(name, []).append(str(device))
        variables = {f"WINDLASS_{name.upper()}": ",".join(devices) for name, devices in numbers.items()}
        if "gpu" in numbers:
            variables["CUDA_VISIBLE_DEVICES"] = variables["WINDLASS_GPU"]
        return variables


class NodeRoom:
    """The free resources and devices of one node."""

    def __init__(self, total: Amounts, running: Sequence[tuple[Amounts, int]] = ()) -> None:
        self.total = total
        self._free = {name: amount for name, amount in total if name not in ACCELERATORS}
        self._devices = {
            name: [DEVICE] * (amount // DEVICE) + [amount % DEVICE] * bool(amount % DEVICE)
            for name, amount in total
            if name in ACCELERATORS
        }
        # Largest first packs shares well. If one does not fit this way, the node counts as full: never too much.
        for needs, count in sorted(running, key=lambda one: max(dict(one[0]).get(n, 0) for n in ACCELERATORS))[::-1]:
            if self.take_many(needs, count) < count:
                self._free, self._devices = dict.fromkeys(self._free, 0), {name: [] for name in self._devices}
                break

    def take(self, needs: Amounts) -> TakenRoom | None:
        """Reserve room for a task; None if it does not fit, and then nothing changes."""
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
        taken = TakenRoom(needs, tuple(devices))
        self._move(taken, -1)
        return taken

    def take_many(self, needs: Amounts, most: int) -> int:
        """Reserve room for up to ``most`` equal tasks and return how many fit."""
        taken = 0
        while taken < most and self.take(needs) is not None:
            taken += 1
        return taken

    def give(self, taken: TakenRoom) -> None:
        """Free the room of a task that has left."""
        self._move(taken, 1)

    def _pick(self, name: str, amount: int) -> list[tuple[str, int, int]] | None:
        free = self._devices[name]
        if amount < DEVICE:
            able = [(left, number) for number, left in enumerate(free) if left >= amount]
            return [(name, min(able)[1], amount)] if able else None
        whole = [number for number, left in enumerate(free) if left == DEVICE]
        wanted = -(-amount // DEVICE)
        return [(name, number, DEVICE) for number in whole[:wanted]] if len(whole) >= wanted else None

    def _move(self, taken: TakenRoom, sign: int) -> None:
        for name, amount in taken.needs:
            if name in self._free:
                self._free[name] += sign * amount
        for name, number, amount in taken.devices:
            self._devices[name][number] += sign * amount

    def used(self) -> Amounts:
        """Return what is taken."""
        free = self._free | {name: sum(left) for name, left in self._devices.items()}
        return tuple(sorted((name, amount - free[name]) for name, amount in self.total if amount != free[name]))
