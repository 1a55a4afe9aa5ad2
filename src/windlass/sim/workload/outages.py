"""An Outage is an interval in which a node of the simulated workload is invisible or unhealthy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import Final

from windlass.sim.cloud.machines import LiveHost
from windlass.sim.faults.catalogue import FaultKind, FaultSet
from windlass.workloads.protocol import WorkNode

KINDS: Final[tuple[FaultKind, ...]] = ("heartbeat-lost", "unwell")
SOON: Final = 1200.0
"""Seconds after the join of its host within which an outage begins, on average."""


@dataclass(frozen=True, slots=True)
class Outage:
    """An outage of one node."""

    kind: FaultKind
    begins: float
    ends: float


class Outages:
    """Future and current outages, at most one per node."""

    def __init__(self) -> None:
        self._of_node: dict[str, Outage] = {}
        self._turns: list[tuple[float, str]] = []
        """The start and the end of each outage: (time, node)."""

    def __bool__(self) -> bool:
        return bool(self._of_node)

    def draw(self, host: LiveHost, fault_set: FaultSet, now: float) -> None:
        """Draw whether and when a node becomes invisible or unhealthy."""
        if not fault_set.faults:
            return
        for kind in KINDS:
            fault = fault_set.occurs(kind, now, host.id, now, group=host.group)
            if fault is not None:
                begins = now + fault_set.chance.wait(SOON, kind, host.id, now)
                self._of_node[host.id] = Outage(kind, begins, begins + fault.seconds)
                for at in (begins, begins + fault.seconds):
                    heappush(self._turns, (at, host.id))
                return

    def on(self, node: str, now: float) -> FaultKind | None:
        """Return the current outage of a node."""
        outage = self._of_node.get(node) if self._of_node else None
        return outage.kind if outage is not None and outage.begins <= now < outage.ends else None

    def visible(self, nodes: Iterable[WorkNode], fault_set: FaultSet, now: float) -> tuple[WorkNode, ...]:
        """Return the nodes as visible under faults: some are invisible, some are listed twice."""
        shown = []
        for node in nodes:
            if self.on(node.id, now) != "heartbeat-lost":
                shown.append(node)
            if fault_set.occurs("joins-twice", now, node.id):
                shown.append(node)
        return tuple(shown)

    @property
    def next_turn(self) -> float:
        return self._turns[0][0] if self._turns else inf

    def turned(self, now: float) -> Iterator[str]:
        """Yield the nodes for which an outage has begun or ended by now."""
        while self.next_turn <= now:
            yield heappop(self._turns)[1]

    def forget(self, node: str) -> None:
        self._of_node.pop(node, None)

    def end_all(self) -> list[str]:
        """Stop all outages; return the affected nodes."""
        nodes = list(self._of_node)
        self._of_node.clear()
        return nodes
