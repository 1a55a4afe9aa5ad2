"""What can go wrong in the simulation, each with a rate, a window, and whom it meets.

A fault is plain data; a storm is a list of them. ``rate`` is per occasion: per launch, per list, per machine, per
cordon. What happens to a machine for good (its boot, its hosts) is settled when it is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Literal

from .chance import Chance

FaultKind = Literal[
    # launch
    "stock-out",  # refused: InsufficientCapacity, in the zones named
    "quota",  # refused: QuotaExceeded
    "throttled",  # refused: Throttled, retry after ``seconds``
    "launch-lost",  # the answer is lost: an error is raised, and the machine comes all the same
    "launch-hangs",  # the machine comes, the call never returns
    # list
    "list-fails",  # raises
    "list-stale",  # what it said last, once more
    "new-missing",  # a new machine is not listed for ``seconds``
    "ended-shown",  # an ended machine is listed as ending for ``seconds`` more
    # boot
    "boot-never",  # stays pending
    "boot-slow",  # takes ten times as long
    "never-joins",  # up, but no host joins the workload
    "host-missing",  # one host does not join
    "no-accelerator",  # joins without its accelerators
    # run
    "preempted",  # taken after ``seconds`` of running on average, told ``notice`` seconds before
    # terminate
    "terminate-fails",  # raises
    "terminate-slow",  # takes ``seconds``
    # workload
    "work-lands",  # a task starts between cordon and acknowledgement
    "observe-fails",  # the workload cannot be asked
    "ack-late",  # the acknowledgement comes ``seconds`` later
]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong: how often, when, for whom."""

    kind: FaultKind
    rate: float = 1.0
    start: float = -inf
    end: float = inf
    """From ``start`` until before ``end``."""
    groups: frozenset[str] | None = None
    zones: frozenset[str] | None = None
    """None: all of them."""
    seconds: float = 30.0
    notice: float = 0.0


@dataclass(frozen=True, slots=True)
class Storm:
    """The faults of one run, and the chance that decides."""

    faults: tuple[Fault, ...]
    chance: Chance

    @classmethod
    def of(cls, faults: Iterable[Fault], chance: Chance) -> Storm:
        return cls(tuple(faults), chance)

    def strikes(self, kind: FaultKind, now: float, *name: object, group: str = "", zone: str = "") -> Fault | None:
        """The first fault of a kind that strikes on this occasion. The name of an occasion must be its own."""
        for index, fault in enumerate(self.faults):
            if (
                fault.kind == kind
                and fault.start <= now < fault.end
                and (fault.groups is None or group in fault.groups)
                and (fault.zones is None or zone in fault.zones)
                and self.chance.happens(fault.rate, "fault", index, kind, *name)
            ):
                return fault
        return None
