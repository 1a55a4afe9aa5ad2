"""This module exports metrics for Prometheus: gauges from the last status, counters from the journal's records.

Counters are made from the journal at the start, so they do not fall with a restart. There is a series per group at
most: from the 200th group on they are counted together.
"""

from __future__ import annotations

import threading
import time
from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest

from windlass._version import __version__
from windlass.control.record.costs import Account
from windlass.control.record.journal_tables import IS, LAUNCH, MISTAKE, ORDER, REFUSED
from windlass.control.report.events import ALARMS, passes
from windlass.control.report.headline import COMING, LIMITS, MARKET, NEVER
from windlass.control.report.history import refused_group
from windlass.core.model.lifecycle import ENDED, State
from windlass.core.model.reasons import Code
from windlass.journal import Journal, JournalError, Record

from .live.feed import Feed

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
MOST_GROUPS: Final = 200
OTHER: Final = "_other"
STATES: Final = tuple(str(state) for state in State if state not in ENDED)
WAITING: Final = tuple(sorted({str(code) for code in LIMITS | MARKET | NEVER | COMING | {Code.UNKNOWN_INPUT}}))
BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
BOOT_BUCKETS: Final = (1, 5, 10, 30, 60, 120, 180, 300, 600, 1200, 1800)
LAUNCHED: Final = ("DEMAND", "MIN", "SPARE")
REFUSED_FOR: Final = ("STOCKOUT", "QUOTA")
RELEASED: Final = ("IDLE", "MANUAL")
LOST_BY: Final = ("LOST", "PREEMPTED")
"""The codes of counters that are exported as 0 from the start."""
WHAT: Final = ("drain", "undrain", "freeze", "resume")
SIZE_EVERY: Final = 300.0
"""A database is asked for its size at most once in this many seconds."""
ACCOUNTS: Final = ("work", "booting", "idle", "spare", "draining", "ending")


class JournalTally:
    """Counts over the whole journal, updated with each new record."""

    def __init__(self) -> None:
        self.seq = 0
        self.passes = 0
        self.launches: Counts[tuple[str, str]] = Counts()
        self.refusals: Counts[tuple[str, str]] = Counts()
        self.releases: Counts[tuple[str, str]] = Counts()
        self.lost: Counts[tuple[str, str]] = Counts()
        self.orders: Counts[str] = Counts()
        self.alarms: Counts[str] = Counts()
        self.boots: dict[str, list[float]] = {}
        self.last_pass: float | None = None
        self._asked: dict[str, float] = {}
        self._state: dict[str, str] = {}

    def add(self, records: list[Record]) -> None:
        for together in passes(one for one in records if one.seq > self.seq):
            if together[0].kind != ORDER:
                self.passes += 1
                self.last_pass = together[-1].at
            for record in together:
                self._count(record)
            self.seq = together[-1].seq

    def _count(self, record: Record) -> None:
        data: Any = record.data
        match record.kind:
            case kind if kind == LAUNCH:
                self.launches[record.subject, data["code"]] += data["count"]
            case kind if kind == REFUSED:
                self.refusals[refused_group(record), data["code"]] += 1
                self.alarms["refused"] += 1
            case kind if kind == ORDER:
                self.orders[str(data.get("what"))] += 1
            case kind if kind == MISTAKE:
                self.alarms["mistake"] += 1
            case "trouble" if IS in data:
                self.alarms["trouble"] += 1
            case "slice":
                self._slice(record.subject, data.get(IS))

    def _slice(self, name: str, value: Any) -> None:
        if value is None:
            self._state.pop(name, None)
            self._asked.pop(name, None)
            return
        state, group, code = value["state"], value["group"], value["reason"]["code"]
        if value.get("asked_at") is not None:
            self._asked[name] = value["asked_at"]
        if self._state.get(name) == state:
            return
        self._state[name] = state
        if state == State.READY and name in self._asked:
            self.boots.setdefault(group, []).append(max(0.0, value["since"] - self._asked.pop(name)))
        elif state == State.TERMINATING:
            self.releases[group, code] += 1
        elif state == State.LOST:
            self.lost[group, code] += 1
        if state in ALARMS or state == State.TERMINATE_FAILED:
            self.alarms[state] += 1


class Metrics:
    """The metrics of one server, in a separate registry, so that a process can have several servers."""

    def __init__(self, feed: Feed, journal: Journal, location: str) -> None:
        self._feed, self._journal, self._location = feed, journal, location
        self._sized: tuple[float, int] | None = None
        self.registry = CollectorRegistry()
        self.tally = JournalTally()
        self._lock = threading.Lock()
        build = Gauge("windlass_build_info", "The version of Windlass.", ["version"], registry=self.registry)
        build.labels(__version__).set(1)
        self.requests = Counter(
            "windlass_http_requests", "Answers of the server.", ["route", "method", "status"], registry=self.registry
        )
        self.request_seconds = Histogram(
            "windlass_http_request_seconds", "How long an answer took.", ["route"], registry=self.registry
        )
        self.notifications = Counter(
            "windlass_notifications", "Webhooks that were sent or not.", ["outcome"], registry=self.registry
        )
        for outcome in ("sent", "failed", "dropped", "repeated"):
            self.notifications.labels(outcome)
        self.pass_seconds = Histogram(
            "windlass_pass_seconds", "How long a pass of the loop took.", buckets=BUCKETS, registry=self.registry
        )
        self.append_seconds = Histogram(
            "windlass_append_seconds", "How long a commit to the journal took.", buckets=BUCKETS, registry=self.registry
        )
        self.source_seconds = Histogram(
            "windlass_source_seconds",
            "How long a source took to answer.",
            ["source"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.streams: Callable[[], int] = lambda: 0
        self.resyncs: Callable[[], int] = lambda: 0
        self.pass_age: Callable[[], float | None] = lambda: None
        """Seconds since the last pass of a leading controller in this process; None if there is none."""
        self.registry.register(_Collector(self))

    def catch_up(self) -> None:
        """Counts the records of the journal; ``add`` counts later ones."""
        with self._lock:
            self.tally.add(list(self._journal.read(self.tally.seq)))

    def add(self, records: list[Record]) -> None:
        with self._lock:
            if records and records[0].seq > self.tally.seq + 1:
                self.tally.add(list(self._journal.read(self.tally.seq)))
            else:
                self.tally.add(records)

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        self.requests.labels(route, method, str(status)).inc()
        if not route.endswith("/stream"):
            self.request_seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        return bytes(generate_latest(self.registry))  # type: ignore[no-untyped-call]

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            yield from self._of_journal()
        current = self._feed.current
        if current is not None:
            yield from _of_status(current.document)
            yield _costs(current.accounts, self._groups())
            problems = current.document["troubles"]
            up = GaugeMetricFamily("windlass_source_up", "Whether a source answers.", labels=["source"])
            providers = sorted({one.provider for one in current.planned.settings.groups})
            for source in ("workload", *(f"provider {name}" for name in providers)):
                up.add_metric([source], 0 if source in problems else 1)
            yield up
        yield GaugeMetricFamily("windlass_streams", "Streams that are open.", value=self.streams())
        resyncs = CounterMetricFamily("windlass_stream_resyncs", "Readers that had to load everything again.")
        resyncs.add_metric([], self.resyncs())
        yield resyncs

    def _of_journal(self) -> Iterator[Metric]:
        tally = self.tally
        total = CounterMetricFamily("windlass_passes", "Passes of the loop that changed something.")
        total.add_metric([], tally.passes)
        yield total
        age = self.pass_age()
        last = tally.last_pass if age is None else time.time() - age
        if last is not None:
            yield GaugeMetricFamily("windlass_last_pass_timestamp_seconds", "When the last pass was.", value=last)
        for name, text, counts, usual in (
            ("windlass_launches", "Slices that were launched.", tally.launches, LAUNCHED),
            ("windlass_refusals", "Launches that a provider refused.", tally.refusals, REFUSED_FOR),
            ("windlass_releases", "Slices that were released.", tally.releases, RELEASED),
            ("windlass_lost", "Slices that were lost.", tally.lost, LOST_BY),
        ):
            family = CounterMetricFamily(name, text, labels=["group", "code"])
            zeros = {(group, code): 0.0 for group in self._groups() for code in usual}
            for (group, code), count in _folded({**zeros, **counts}).items():
                family.add_metric([group, code], count)
            yield family
        orders = CounterMetricFamily("windlass_orders", "Orders of operators.", labels=["what"])
        for what in WHAT:
            orders.add_metric([what], tally.orders[what])
        yield orders
        alarms = CounterMetricFamily("windlass_alarms", "Alarms.", labels=["kind"])
        for kind in sorted({"refused", "trouble", "mistake", *map(str, ALARMS), *tally.alarms}):
            alarms.add_metric([kind], tally.alarms[kind])
        yield alarms
        yield _boots({**{group: [] for group in self._groups()}, **tally.boots})
        try:
            health = self._journal_size()
        except JournalError:
            return
        yield GaugeMetricFamily("windlass_journal_records", "Records in the journal.", value=health[0])
        yield GaugeMetricFamily("windlass_journal_bytes", "Size of the journal.", value=health[1])

    def _groups(self) -> list[str]:
        """Returns the groups of the settings; their counters are exported as 0 before the first event."""
        current = self._feed.current
        return [] if current is None else [one["name"] for one in current.document["groups"]]

    def _journal_size(self) -> tuple[int, int]:
        oldest = next(self._journal.read(limit=1), None)
        records = 0 if oldest is None else self._journal.last_seq() - oldest.seq + 1
        files = [Path(self._location), Path(f"{self._location}-wal")]
        if files[0].is_file():
            return records, sum(one.stat().st_size for one in files if one.is_file())
        if self._sized is None or time.monotonic() - self._sized[0] > SIZE_EVERY:
            self._sized = (time.monotonic(), self._journal.health().size)
        return records, self._sized[1]


class _Collector:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return self._metrics.collect()


def _kept_groups(groups: Iterable[str]) -> set[str]:
    """Returns the groups that have series of their own; the others are counted together."""
    names = sorted(set(groups))
    return set(names[: MOST_GROUPS - 1] if len(names) >= MOST_GROUPS else names)


def _folded(counts: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """Returns counts by group and code; groups beyond the limit are summed."""
    kept = _kept_groups(group for group, _ in counts)
    found: dict[tuple[str, str], float] = defaultdict(float)
    for (group, code), count in counts.items():
        found[group if group in kept else OTHER, code] += count
    return dict(sorted(found.items()))


def _boots(boots: Mapping[str, list[float]]) -> Metric:
    family = HistogramMetricFamily("windlass_boot_seconds", "From the call to READY.", labels=["group"])
    kept, together = _kept_groups(boots), dict[str, list[float]]()
    for group, times in sorted(boots.items()):
        together.setdefault(group if group in kept else OTHER, []).extend(times)
    for group, times in together.items():
        counts = [(str(float(limit)), sum(one <= limit for one in times)) for limit in BOOT_BUCKETS]
        family.add_metric([group], [*counts, ("+Inf", len(times))], sum(times))
    return family


def _costs(accounts: Mapping[str, Account], groups: Iterable[str]) -> Metric:
    family = CounterMetricFamily("windlass_cost_dollars", "What was spent so far.", labels=["group", "account"])
    counts = {(group, kind): 0.0 for group in groups for kind in ACCOUNTS}
    counts |= {(group, kind): one.dollars(kind) for group, one in accounts.items() for kind in ACCOUNTS}
    for (group, kind), amount in _folded(counts).items():
        family.add_metric([group, kind], amount)
    return family


def _of_status(status: Mapping[str, Any]) -> Iterator[Metric]:
    leader = status["leader"]
    yield GaugeMetricFamily("windlass_leading", "Whether a controller leads.", value=int(leader["alive"]))
    yield GaugeMetricFamily(
        "windlass_epoch", "The number of the leader, which grows with each change of leader.", value=leader["epoch"]
    )
    rows = _groups(status)
    slices = GaugeMetricFamily("windlass_slices", "Slices by state.", labels=["group", "state"])
    counts = Counts((_group_of(one["group"], rows), one["state"]) for one in status["slices"])
    for group in rows:
        for state in STATES:
            slices.add_metric([group, state], counts[group, state])
    yield slices
    for name, text, key in (
        ("windlass_slices_busy", "Slices that run tasks.", "busy"),
        ("windlass_slices_limit", "The largest number of slices allowed.", "max"),
        ("windlass_group_available", "Whether one more slice can be launched now.", "available"),
        ("windlass_hourly_cost_dollars", "What the slices cost an hour.", "hourly_cost"),
    ):
        family = GaugeMetricFamily(name, text, labels=["group"])
        for group, row in rows.items():
            family.add_metric([group], row[key])
        yield family
    ceiling = status["summary"]["ceiling"]
    if ceiling is not None:
        yield GaugeMetricFamily("windlass_hourly_cost_ceiling_dollars", "The cost ceiling.", value=ceiling)
    waiting = GaugeMetricFamily("windlass_waiting_tasks", "Tasks that wait.", labels=["code"])
    tasks = Counts[str]()
    for demand in status["demands"]:
        for part in demand["parts"]:
            tasks[part["code"] or str(Code.LAUNCHING)] += part["tasks"]
    for code in sorted({*WAITING, *tasks}):
        waiting.add_metric([code], tasks[code])
    yield waiting
    since = status["summary"]["oldest_wait_since"]
    oldest = 0.0 if since is None else max(0.0, status["at"] - since)
    yield GaugeMetricFamily("windlass_oldest_wait_seconds", "How long the oldest task waits.", value=oldest)


def _groups(status: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the rows of groups for metrics; groups beyond the limit are summed."""
    found: dict[str, dict[str, Any]] = {}
    many = len(status["groups"]) >= MOST_GROUPS
    for index, one in enumerate(status["groups"]):
        name = OTHER if many and index >= MOST_GROUPS - 1 else one["name"]
        row = found.setdefault(name, {"busy": 0, "max": 0, "available": 0, "hourly_cost": 0.0})
        row["busy"] += one["busy"]
        row["max"] += one["max"] or 0
        row["available"] = max(row["available"], int(one["next"]["code"] is None))
        row["hourly_cost"] += one["hourly_cost"]
    return found


def _group_of(name: str, rows: Mapping[str, Any]) -> str:
    return name if name in rows else OTHER
