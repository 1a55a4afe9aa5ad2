"""This module measures a simulated run: its cost, how long work waited, and curves over time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from windlass.control.record.controller_state import ControllerState
from windlass.control.record.costs import KINDS
from windlass.control.settings import Settings
from windlass.control.state.fleet import SliceRecord
from windlass.core.model.lifecycle import COSTLY, IN_FLIGHT, State
from windlass.sim.check.fleet_totals import FleetTotals
from windlass.sim.run.simulation import Simulation, SimulationResult
from windlass.sim.run.virtual_loop import EPOCH
from windlass.sim.workload.jobs import Job

CAPACITY = ("busy", "idle", "booting", "leaving")
"""Activities of a node that is paid for."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The cluster at one instant."""

    at: float
    """Seconds from the start."""
    waiting: int
    """Tasks."""
    running: int
    capacity: dict[str, int]
    """Number of nodes by activity."""
    cost: float
    """Dollars per hour."""


class _Part(NamedTuple):
    """The part of one slice in the capacity: busy nodes, the activity of the others, and the price."""

    busy: int
    otherwise: str
    others: int
    price: int


class Capacity:
    """Nodes by activity, and their cost, updated incrementally."""

    def __init__(self) -> None:
        self.nodes = dict.fromkeys(CAPACITY, 0)
        self.cost = 0
        """Nanodollars per hour."""
        self._slices: Mapping[str, SliceRecord] = {}
        self._settings: Settings | None = None
        self._parts: dict[str, _Part] = {}

    def follow(self, followed: FleetTotals, settings: Settings) -> Collection[str]:
        """Update to the current slices; return the names of the changed ones."""
        if settings is not self._settings:  # a group may have another number of hosts now
            self._settings, self._slices = settings, {}
            self._parts, self.nodes, self.cost = {}, dict.fromkeys(CAPACITY, 0), 0
        slices = followed.slices
        changed, gone = followed.since(self._slices)
        for name in gone:
            if (part := self._parts.pop(name, None)) is not None:
                self._count(part, -1)
        for name in changed:
            old, part = self._parts.pop(name, None), _part(slices[name], settings)
            if part is not None:
                self._parts[name] = part
            if part != old:
                if old is not None:
                    self._count(old, -1)
                if part is not None:
                    self._count(part, 1)
        self._slices = slices
        return changed

    def _count(self, part: _Part, more: int) -> None:
        self.nodes["busy"] += more * part.busy
        self.nodes[part.otherwise] += more * part.others
        self.cost += more * part.price


def _part(record: SliceRecord, settings: Settings) -> _Part | None:
    """Return the part of one slice; None: it costs nothing."""
    if record.state not in COSTLY:
        return None
    configured, busy = settings.by_name.get(record.group), record.busy_nodes
    hosts = configured.group.hosts if configured is not None else max(1, len(record.nodes))
    if record.state in IN_FLIGHT:
        return _Part(0, "booting", hosts, record.price)
    return _Part(busy, "idle" if record.state == State.READY else "leaving", hosts - busy, record.price)


@dataclass
class Gauge:
    """Samples a simulation; pass it as its ``watch``."""

    every: float
    """Minimum seconds between two samples."""
    samples: list[Sample] = field(default_factory=list)
    node_seconds: float = 0.0
    busy_seconds: float = 0.0
    launched: set[str] = field(default_factory=set)
    controller_state: ControllerState = field(default_factory=ControllerState)
    """The last observed state."""
    _since: float = 0.0
    _capacity: Capacity = field(default_factory=Capacity)

    def __call__(self, engine: Simulation) -> None:
        now = engine.now() - EPOCH
        nodes = self._capacity.nodes
        self.node_seconds += sum(nodes.values()) * (now - self._since)
        self.busy_seconds += nodes["busy"] * (now - self._since)
        self._since = now
        if engine.leaders:
            controller_state = engine.leaders[0].controller.controller_state
            if controller_state is not self.controller_state:
                self.controller_state = controller_state
                self.launched.update(self._capacity.follow(engine.checker.followed, engine.settings))
        if not self.samples or now - self.samples[-1].at >= self.every:
            self.samples.append(self._sample(engine, now))

    def _sample(self, engine: Simulation, now: float) -> Sample:
        waiting = sum(demand.count for demand in engine.workload.waiting)
        nodes, cost = dict(self._capacity.nodes), self._capacity.cost / 10**9
        return Sample(now, waiting, engine.workload.running, nodes, cost)


@dataclass(frozen=True, slots=True)
class Spent:
    """The cost of a time span, and the waits in it."""

    hours: float
    dollars: float
    accounts: dict[str, float]
    node_hours: float
    utilization: float
    """The share of node-hours with work."""
    wait_p50: float
    wait_p95: float
    wait_max: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Measures(Spent):
    """The metrics of a run. The wait of a job is from its arrival until the last of its tasks has started."""

    jobs: int
    finished: int
    launches: int
    lost_to_preemption: int
    """Tasks that ended because the cloud took their machine."""
    lost_hours: float
    """Task-hours that these tasks had run, and had to run again."""
    evicted: int
    """Tasks that were evicted because the policy allows it."""
    killed_by_us: int
    """Must be 0."""
    passes: int
    decisions: int
    """Changes of state."""
    waiting: dict[str, str] = field(default_factory=dict)
    """Why each job that waits at the end cannot start."""
    breaches: tuple[str, ...] = ()


def measures(engine: Simulation, run: SimulationResult, gauge: Gauge, jobs: Iterable[Job]) -> Measures:
    """Return the metrics of a completed run."""
    work, accounts = engine.workload, gauge.controller_state.account.values()
    lost = [one for one in work.interrupted if one.how != "evicted"]
    arrivals = {job.id: job.arrives + EPOCH for job in jobs}
    waits = sorted(at - arrivals[name] for name, at in work.all_started.items() if name in arrivals)
    return Measures(
        hours=run.seconds / 3600,
        dollars=sum(account.dollars() for account in accounts),
        accounts={kind: sum(account.dollars(kind) for account in accounts) for kind in KINDS},
        node_hours=gauge.node_seconds / 3600,
        utilization=gauge.busy_seconds / gauge.node_seconds if gauge.node_seconds else 0.0,
        wait_p50=percentile(waits, 0.5),
        wait_p95=percentile(waits, 0.95),
        wait_max=waits[-1] if waits else 0.0,
        jobs=len(arrivals),
        finished=len(work.finished.keys() & arrivals.keys()),
        launches=len(gauge.launched),
        lost_to_preemption=sum(one.run.count for one in lost),
        lost_hours=sum(one.run.count * (one.at - one.run.started) for one in lost) / 3600,
        evicted=sum(one.run.count for one in work.interrupted if one.how == "evicted"),
        killed_by_us=sum(breach.invariant == "S1" for breach in run.breaches),
        passes=run.passes,
        decisions=run.actions,
        waiting={name: f"{one.reason.code}: {one.reason.why}" for name, one in gauge.controller_state.waiting.items()},
        breaches=tuple(str(breach) for breach in run.breaches),
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return a percentile of sorted values; 0 when there are none."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
