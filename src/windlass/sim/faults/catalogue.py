"""The catalogue lists the faults of a simulation; each has a rate, a time window and a target.

A fault is plain data; a fault set is a list of them. ``rate`` is per occasion: per launch, per list, per machine, per
cordon; for external faults (``HOURLY``) per hour. Permanent faults of a machine (its boot, its hosts) are decided when
it is launched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final, Literal, get_args

from windlass.sim.random_source import RandomSource

FaultKind = Literal[
    # launch
    "stock-out",  # refused: InsufficientCapacity, in the zones named
    "quota",  # refused: QuotaExceeded
    "throttled",  # refused: Throttled, retry after ``seconds``
    "launch-lost",  # the answer is lost: an error is raised, and the machine comes all the same
    "launch-hangs",  # the machine comes, the call never returns
    "created-fewer",  # a slice of several hosts comes without one of them
    "created-twice",  # two machines under one tag: the provider ends the younger when it sees it
    "wrong-type",  # it comes with half of what was ordered
    "price-changed",  # machines bought from now on cost up to twice as much or half (hourly)
    # list
    "list-fails",  # raises
    "list-hangs",  # never answers
    "list-stale",  # returns its last answer again
    "page-lost",  # some machines are missing for ``seconds`` at a time
    "new-missing",  # a new machine is not listed for ``seconds``
    "ended-shown",  # an ended machine is listed as ending for ``seconds`` more
    # boot
    "boot-never",  # stays pending
    "boot-slow",  # takes ten times as long to boot
    "never-joins",  # up, but no host joins the workload
    "host-missing",  # one host does not join
    "no-accelerator",  # joins without its accelerators
    "joins-twice",  # a host shows twice in the workload
    "restarts",  # missing for ``seconds``, then back under the same id without its work
    # run
    "preempted",  # preempted after ``seconds`` of running on average, announced ``notice`` seconds before
    "zone-preempted",  # all preemptible machines of a zone at once (hourly)
    "heartbeat-lost",  # a node is invisible for ``seconds``; its work goes on
    "unwell",  # a node is reported as unhealthy for ``seconds``; its work goes on
    "slow-node",  # work takes five times as long there
    # drain
    "work-lands",  # a task starts between cordon and acknowledgement
    "ack-late",  # the acknowledgement comes ``seconds`` later
    "ack-lost",  # it never comes
    "ack-doubled",  # reported twice
    "drain-hangs",  # the cordon call never returns
    "cordon-hangs",  # the cordon takes effect, and the call never returns
    "work-never-ends",  # a task runs for ``seconds`` more than it should
    # terminate
    "terminate-fails",  # raises
    "terminate-slow",  # takes ``seconds``
    "terminate-hangs",  # the call never returns, and nothing is ended by it
    "hand-deleted",  # a user ends a machine in the console (hourly)
    "hand-created",  # a user makes a machine with our tag (hourly)
    # controller
    "killed",  # killed before or after a journal write or an outside call, and restarted
    "two-leaders",  # a second controller believes that the first is gone (hourly)
    "clock-jumps",  # the controller's clock is ``seconds`` off for a while, forwards or backwards (hourly)
    "journal-full",  # nothing can be written for ``seconds`` (hourly)
    "journal-lost",  # the result of a write is unknown
    "reconfigured",  # other limits, or a removed group, while launches are in flight (hourly)
    "torn-record",  # killed during a journal write, which must leave nothing
    "newer-version",  # a newer version migrates the journal's tables under the leader (hourly)
    "stopped",  # stopped after a pass for ``seconds``, as with SIGSTOP, and continued (hourly)
    "older-version",  # an older version is started on a newer journal, next to the leader or in its place (hourly)
    "overtaken",  # its calls to providers are held up until a second controller has taken over (hourly)
    # input
    "observe-fails",  # the workload does not answer
    "observe-hangs",  # never answers
    "demand-absent",  # reports no demand
    "demand-doubled",  # reports each demand twice
    "demand-reordered",
    "demand-negative",
    "demand-nan",
    "demand-poisoned",  # one entry is not a demand
    "demand-burst",  # 100,000 tasks, gone at the next observation
    "demand-impossible",  # tasks that fit in no group
]

KINDS: Final = frozenset(get_args(FaultKind))
HOURLY: Final = frozenset(
    {
        "price-changed",
        "zone-preempted",
        "hand-deleted",
        "hand-created",
        "two-leaders",
        "clock-jumps",
        "journal-full",
        "reconfigured",
        "newer-version",
        "older-version",
        "stopped",
        "overtaken",
    }
)
"""External faults; the rate is how often in an hour."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: its rate, time window and target."""

    kind: FaultKind
    rate: float = 1.0
    start: float = -inf
    end: float = inf
    """Active from ``start`` until before ``end``."""
    groups: frozenset[str] | None = None
    zones: frozenset[str] | None = None
    """None: all of them."""
    seconds: float = 30.0
    notice: float = 0.0


@dataclass(frozen=True, slots=True)
class FaultSet:
    """The faults of one run, and their random source."""

    faults: tuple[Fault, ...]
    chance: RandomSource
    struck: dict[str, int] = field(default_factory=dict, compare=False)
    """How often each kind was applied."""
    by_kind: Mapping[str, tuple[tuple[int, Fault], ...]] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, faults: Iterable[Fault], chance: RandomSource, struck: dict[str, int] | None = None) -> FaultSet:
        many = tuple(faults)
        kinds: dict[str, tuple[tuple[int, Fault], ...]] = {}
        for index, fault in enumerate(many):
            kinds[fault.kind] = (*kinds.get(fault.kind, ()), (index, fault))
        return cls(many, chance, {} if struck is None else struck, kinds)

    def occurs(self, kind: FaultKind, now: float, *name: object, group: str = "", zone: str = "") -> Fault | None:
        """Return the first fault of a kind that applies on this occasion. The name of an occasion must be unique."""
        for index, fault in self.by_kind.get(kind, ()):
            if (
                fault.start <= now < fault.end
                and (fault.groups is None or group in fault.groups)
                and (fault.zones is None or zone in fault.zones)
                and self.chance.happens(fault.rate, "fault", index, kind, *name)
            ):
                self.struck[kind] = self.struck.get(kind, 0) + 1
                return fault
        return None

    def external_faults(self, start: float, end: float) -> list[tuple[float, Fault]]:
        """Return the hourly faults between two times, in order."""
        found = []
        for index, fault in enumerate(self.faults):
            if fault.kind not in HOURLY or fault.rate <= 0:
                continue
            at, number = max(start, fault.start), 0
            while True:
                at += self.chance.wait(3600 / fault.rate, "hourly", index, number)
                number += 1
                if at >= min(end, fault.end):
                    break
                found.append((at, fault))
        return sorted(found, key=lambda one: (one[0], one[1].kind))
