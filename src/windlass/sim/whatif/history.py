"""HistoryReader reads the history of a journal: its cost, how long work waited, what was launched and stopped.

Journals of real and simulated controllers are read by the same code, pass by pass, so that both can be compared. Times
are those of the passes: what happens between two is seen at the second.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

from windlass.control.record.controller_state import SETTINGS, ControllerState
from windlass.control.record.costs import KINDS, UNBILLED, charged
from windlass.control.record.journal_tables import IS, REFUSED
from windlass.control.record.state_reader import StateReader, with_nodes
from windlass.control.settings import Settings
from windlass.control.state.fleet import SliceRecord
from windlass.core.model.lifecycle import ENDING, IN_FLIGHT, State
from windlass.core.model.snapshot import Amounts, Demand
from windlass.journal import Entry, Record
from windlass.sim.trace.metrics import Sample, Spent, percentile
from windlass.workloads.protocol import WorkNode

from .durations import RecordedDurations
from .tasks import PassChanges, RecordedTask

CURVE = 2000
"""Points of a curve; more than a picture shows."""


@dataclass(frozen=True, slots=True)
class RecordedHistory(Spent):
    """The metrics of a time span. The wait of a task is from its arrival until it starts; one that still waits at the
    end has waited until then.
    """

    tasks: int
    """That arrived."""
    waiting: int
    """Of these, still waiting at the end."""
    launches: int
    """Slices that were launched or adopted."""
    stops: int
    """Slices that ended or were ending."""
    refused: int
    """Launches that were refused."""


class HistoryReader:
    """Computes metrics from the records of a journal, pass by pass, from a state up to a time."""

    def __init__(self, start: ControllerState, since: float, until: float) -> None:
        self.since, self.until = since, until
        self.tasks: list[RecordedTask] = []
        self.demands: dict[str, Demand] = {}
        """Every demand, as it was first seen."""
        self.samples: list[Sample] = []
        self._lengths = RecordedDurations(self.tasks)
        self._start, self._at = start, since
        self._tables = StateReader()
        self._tables.tables = {kind: dict(table) for kind, table in start.tables().items()}
        self._waiting: dict[str, dict[Amounts, deque[RecordedTask]]] = {}
        self._launched: set[str] = set()
        self._bought: set[str] = set()
        self._stopped: set[str] = set()
        self._refused = 0
        self._node_seconds = self._busy_seconds = self._dollars = 0.0
        self._doing: dict[str, Counter[str]] = {}
        """The activity of the nodes of each slice that is paid for."""
        self._billed: set[str] = set()
        self._capacity: Counter[str] = Counter()
        self._prices: dict[str, int] = {}
        self._cost = 0
        """Their sum."""
        self._nodes: dict[str, dict[str, WorkNode]] = {}
        """By slice."""
        for node in start.observed.node.values():
            self._nodes.setdefault(node.slice_id, {})[node.id] = node
        self._lengths.begin(start.observed.node.values(), since)
        for name in start.fleet.slices:
            self._weigh(name)
        for name in start.observed.demand:
            self._queue(name, since)

    def add(self, at: float, records: Iterable[Record | Entry]) -> None:
        """Add the records of one pass."""
        before = self._at
        self._pass_time(at)
        demands, slices, nodes = dict[str, None](), dict[str, None](), dict[str, WorkNode | None]()
        gone: list[str] = []
        for one in records:
            if one.kind == "node":
                nodes.setdefault(one.subject, self._tables.tables["node"].get(one.subject))
            elif one.kind == "slice":
                slices[one.subject] = None
                if IS not in one.data:
                    gone.append(one.subject)
            elif one.kind == "demand":
                demands[one.subject] = None
            self._refused += one.kind == REFUSED
            self._tables.add(Record(0, 0, one.kind, one.subject, one.at, one.data))
        changed = tuple((was, self._tables.tables["node"].get(name)) for name, was in nodes.items())
        for was, now in changed:
            slices[self._show(was, now)] = None
        for name in slices:
            self._weigh(name)
        queued = [self._queue(name, self._at) for name in demands]
        arrived, started = ([task for pair in queued for task in pair[side]] for side in (0, 1))
        self._lengths.follow(PassChanges(self._at, before, tuple(arrived), tuple(started), changed, tuple(gone)))

    def done(self) -> RecordedHistory:
        """Process all records up to the end."""
        self._pass_time(self.until)
        self._lengths.finish(self.until)
        controller_state = self.controller_state()
        now = charged(controller_state.account, controller_state.fleet, controller_state.stay, self.until)
        start = charged(self._start.account, self._start.fleet, self._start.stay, self.since)
        spent = {
            kind: sum(one.dollars(kind) for one in now.values()) - sum(one.dollars(kind) for one in start.values())
            for kind in KINDS
        }
        waits = sorted(
            (self.until if task.started is None else task.started) - task.arrived
            for task in self.tasks
            if not task.withdrawn
        )
        return RecordedHistory(
            hours=(self.until - self.since) / 3600,
            # A journal of shadow mode has no accounts: the cost is that of all observed slices.
            dollars=sum(spent.values()) if controller_state.account else self._dollars,
            accounts=spent,
            node_hours=self._node_seconds / 3600,
            utilization=self._busy_seconds / self._node_seconds if self._node_seconds else 0.0,
            wait_p50=percentile(waits, 0.5),
            wait_p95=percentile(waits, 0.95),
            wait_max=waits[-1] if waits else 0.0,
            tasks=len(waits),
            waiting=sum(task.started is None for task in self.tasks),
            launches=len(self._launched),
            stops=len(self._stopped),
            refused=self._refused,
        )

    def controller_state(self) -> ControllerState:
        """Return the current state."""
        return with_nodes(self._tables.controller_state())

    def _pass_time(self, upto: float) -> None:
        """Charge the time up to now to the current activity."""
        now = min(upto, self.until)
        span = max(0.0, now - self._at)
        self._node_seconds += self._capacity.total() * span
        self._busy_seconds += self._capacity["busy"] * span
        cost = self._cost / 10**9
        self._dollars += cost * span / 3600
        offset = self._at - self.since
        if span and (not self.samples or offset - self.samples[-1].at >= (self.until - self.since) / CURVE):
            waiting = sum(len(queue) for queues in self._waiting.values() for queue in queues.values())
            running = sum(node.tasks for nodes in self._nodes.values() for node in nodes.values())
            self.samples.append(Sample(offset, waiting, running, dict(self._capacity), cost))
        self._at = max(self._at, now)

    def _queue(self, name: str, at: float) -> tuple[list[RecordedTask], list[RecordedTask]]:
        """Count the tasks of a demand that have arrived and that have started since the last pass."""
        demand: Demand | None = self._tables.tables["demand"].get(name)
        new = name not in self.demands
        if demand is not None and new:
            self.demands[name] = demand
        wanted: Counter[Amounts] = Counter()
        for bundle in demand.bundles if demand is not None else ():
            wanted[bundle.needs] += bundle.count
        since = demand.since if demand is not None and demand.since is not None and new else at
        queues = self._waiting.setdefault(name, {})
        arrived, started = list[RecordedTask](), list[RecordedTask]()
        for needs in {**queues, **wanted}:
            queue = queues.setdefault(needs, deque())
            while len(queue) > wanted[needs]:
                task = queue.popleft()
                task.started = at
                started.append(task)
            while len(queue) < wanted[needs]:
                queue.append(RecordedTask(name, needs, min(at, max(float(since), self.since))))
                arrived.append(queue[-1])
        self.tasks += arrived
        return arrived, started

    def _show(self, was: WorkNode | None, now: WorkNode | None) -> str:
        """Record the current state of a node; return its slice."""
        if was is not None:
            self._nodes.get(was.slice_id, {}).pop(was.id, None)
        if now is not None:
            self._nodes.setdefault(now.slice_id, {})[now.id] = now
        known = now or was
        assert known is not None
        return known.slice_id

    def _weigh(self, name: str) -> None:
        """Recount a slice: the activity of its nodes, its cost, and whether it was launched or stopped."""
        record: SliceRecord | None = self._tables.tables["slice"].get(name)
        self._capacity.subtract(self._doing.pop(name, Counter()))
        self._cost -= self._prices.pop(name, 0)
        if (record is None or record.state in ENDING) and name in self._bought:
            self._stopped.add(name)
        if record is None:
            return
        if (record.asked_at is not None or record.seen) and name not in self._start.fleet.slices:
            self._launched.add(name)
        if record.seen:
            self._bought.add(name)
        if record.state in UNBILLED or (record.billed_since is None and record.bill_from is not None):
            self._billed.discard(name)
            return
        settings: Settings | None = self._tables.tables["settings"].get(SETTINGS)
        configured = settings.by_name.get(record.group) if settings is not None else None
        here = self._nodes.get(name, {}).values()
        hosts = configured.group.hosts if configured is not None else max(1, len(here))
        if record.billed_since is not None and name not in self._billed:
            # It has cost money since its order, or since a list missed it, as the bill says.
            self._billed.add(name)
            self._node_seconds += max(0.0, self._at - max(self.since, record.billed_since)) * hosts
        busy = min(hosts, sum(node.tasks > 0 for node in here))
        if record.state in IN_FLIGHT:
            doing = Counter({"booting": hosts})
        else:
            doing = Counter({"busy": busy, "idle" if record.state == State.READY else "leaving": hosts - busy})
        self._doing[name], self._prices[name] = doing, record.price
        self._cost += record.price
        self._capacity.update(doing)
