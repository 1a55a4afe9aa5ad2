"""Two simple ways to buy machines, as a yardstick: what most autoscalers do is between them and an optimizer.

Both go through the pods largest first and put each on the first open machine with room (GPUs are devices: a share of
one lies on one). They differ in which machine is opened when none has room:

- ``cheapest_type``: the cheapest type that holds this pod.
- ``best_value_type``: the type where the pod takes the fewest dollars' worth: its largest share of any one resource
  times the price. That counts on others to fill the rest.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from .shared_data import MachineType, Pods

Choice = Callable[[Pods, MachineType], float]
"""What a type is worth for a pod; the lowest is taken."""

DEVICE = 1000


def cheapest_type(_: Pods, kind: MachineType) -> float:
    return kind.price


def best_value_type(pods: Pods, kind: MachineType) -> float:
    gpu = pods.gpu / (kind.gpus * DEVICE) if kind.gpus else 0
    return kind.price * max(pods.cpu / kind.cpu, pods.memory / kind.memory, gpu)


def first_fit_decreasing(work: tuple[Pods, ...], kinds: tuple[MachineType, ...], choice: Choice) -> list[MachineType]:
    """The machines that are bought."""
    largest = max(kind.cpu for kind in kinds), max(kind.memory for kind in kinds), max(kind.gpus for kind in kinds)

    def size(pods: Pods) -> float:
        return max(pods.cpu / largest[0], pods.memory / largest[1], pods.gpu / (largest[2] * DEVICE))

    machines = _Machines(sum(pods.count for pods in work), largest[2])
    bought: list[MachineType] = []
    for pods in sorted(work, key=lambda one: (-size(one), -one.gpu, -one.cpu, -one.memory)):
        kind = min((one for one in kinds if pods.may_run_on(one)), key=lambda one: (choice(pods, one), one.name))
        at = 0
        for _ in range(pods.count):
            # What was full for an equal pod is still full.
            at = machines.first_with_room(pods, at)
            if at == len(bought):
                machines.open(at, kind)
                bought.append(kind)
            machines.put(at, pods)
    return bought


class _Machines:
    """What is free on the machines that were opened."""

    def __init__(self, most: int, devices: int) -> None:
        self.cpu: npt.NDArray[np.int64] = np.zeros(most, np.int64)
        self.memory: npt.NDArray[np.int64] = np.zeros(most, np.int64)
        self.gpu: npt.NDArray[np.int64] = np.zeros((most, devices), np.int64)
        self.model = np.full(most, "", dtype=object)
        self.opened = 0

    def open(self, at: int, kind: MachineType) -> None:
        self.cpu[at], self.memory[at], self.model[at] = kind.cpu, kind.memory, kind.model
        self.gpu[at, : kind.gpus] = DEVICE
        self.opened = at + 1

    def first_with_room(self, pods: Pods, start: int) -> int:
        """The first from ``start`` on; the number of opened ones when there is none."""
        part = slice(start, self.opened)
        fits = (self.cpu[part] >= pods.cpu) & (self.memory[part] >= pods.memory)
        if 0 < pods.gpu < DEVICE:
            fits &= (self.gpu[part] >= pods.gpu).any(axis=1)
        elif pods.gpu:
            fits &= (self.gpu[part] == DEVICE).sum(axis=1) >= pods.gpu // DEVICE
        if pods.models:
            fits &= np.isin(self.model[part].astype(str), pods.models)
        found = np.flatnonzero(fits)
        return start + int(found[0]) if len(found) else self.opened

    def put(self, at: int, pods: Pods) -> None:
        self.cpu[at] -= pods.cpu
        self.memory[at] -= pods.memory
        free = self.gpu[at]
        if 0 < pods.gpu < DEVICE:
            # On the fullest device that has room, so that others stay whole.
            with_room = np.flatnonzero(free >= pods.gpu)
            free[with_room[free[with_room].argmin()]] -= pods.gpu
        elif pods.gpu:
            free[np.flatnonzero(free == DEVICE)[: pods.gpu // DEVICE]] = 0
