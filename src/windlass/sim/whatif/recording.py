"""A recording is the work and the provider behaviour of a journal, ready to be rerun under other settings.

What the journal does not say is assumed, and every assumption is listed with its numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import mean, median

from windlass.control.reconcile.operator_orders import Order
from windlass.control.record.controller_state import SETTINGS
from windlass.control.record.journal_tables import ORDER
from windlass.control.record.state_reader import recovered, with_nodes
from windlass.control.replay import beginning, passes_of, without_gaps
from windlass.control.settings import Settings
from windlass.core.model.reasons import plural, seconds
from windlass.core.model.snapshot import Amounts, Bundle, Demand
from windlass.journal import Journal, Record
from windlass.sim.trace.metrics import Sample
from windlass.sim.workload.jobs import Job

from .history import HistoryReader, RecordedHistory
from .provider_rates import ProviderRates
from .tasks import RecordedTask

PARTS = 8
"""Most jobs for the tasks of one demand that ran for different times; each has the mean duration of its part."""
ALIKE = 1.1
"""Tasks whose durations differ by less than this factor become one job."""
UNKNOWN_LENGTH = 300.0
"""Assumed duration of a task when none was ever seen to end."""


@dataclass(frozen=True, slots=True)
class Recording:
    """The work and the provider behaviour in a time span of a journal."""

    since: float
    until: float
    happened: RecordedHistory
    samples: Sequence[Sample]
    jobs: tuple[Job, ...]
    """Arrivals count from ``since``."""
    requests: tuple[Demand, ...]
    odds: ProviderRates
    settings: Settings
    """The settings in force at the end."""
    assumptions: tuple[str, ...]
    """Assumptions about the work and the start; those about the provider depend on the settings, and come from
    ``all_assumptions``.
    """

    def all_assumptions(self, settings: Settings) -> tuple[str, ...]:
        """Return all assumptions of a model under these settings."""
        return (*self.assumptions, *_provider_assumptions(self.odds, settings), *ALWAYS)


ALWAYS = (
    "A task starts as soon as it fits somewhere, by the planner's own rule; one that loses its machine starts again.",
    "Prices do not change, sources always answer, and operators give no orders.",
)


def recording_of(journal: Journal, since: float | None = None) -> Recording | None:
    """Read a whole journal, or the part after a time; None: it has fewer than two passes. ``Unreadable`` as for a
    replay.
    """
    start, _, seq = beginning(journal, since)
    if since is not None and start.at < since:
        start = with_nodes(recovered(journal, until=since))
        seq = start.seq
    first, last = (_outermost(journal, seq, newest=newest) for newest in (False, True))
    if first is None or last is None or last.at <= first.at:
        return None
    began, until = (start.at if seq else first.at), last.at
    since = began if since is None else max(began, since)
    orders: list[tuple[int, Order]] = []
    history, odds = HistoryReader(start, since, until), ProviderRates(dict(start.fleet.slices))
    configured = 0
    for one in passes_of(without_gaps(journal.read(seq), seq), orders):
        configured += sum(record.kind == "settings" for record in one.records)
        odds.add(one.records)
        history.add(one.at, one.records)
    happened, tasks = history.done(), history.tasks
    controller_state = history.controller_state()
    settings = controller_state.settings.get(SETTINGS)
    if settings is None:
        return None
    known = _Known(tasks)
    requests = tuple(replace(one, since=None, deadline=None) for one in controller_state.observed.request.values())
    return Recording(
        since=since,
        until=until,
        happened=happened,
        samples=history.samples,
        jobs=tuple(_jobs(tasks, history.demands, known, since)),
        requests=requests,
        odds=odds,
        settings=settings,
        assumptions=tuple(
            _work_assumptions(tasks, len(start.fleet.slices), configured - (not seq), len(orders), len(requests))
        ),
    )


def _outermost(journal: Journal, after: int, *, newest: bool) -> Record | None:
    """Return the first or the last record that a controller wrote."""
    return next((one for one in journal.read(after, newest_first=newest) if one.kind != ORDER), None)


# -- jobs ----------------------------------------------------------------------------------------------------------


class _Known:
    """Durations of tasks by kind, for tasks whose duration is unknown."""

    def __init__(self, tasks: Iterable[RecordedTask]) -> None:
        self._of: dict[object, list[float]] = {}
        for task in tasks:
            if task.end_seen and task.started is not None and task.ended is not None and not task.lost:
                for key in ((task.demand, task.needs), task.needs, None):
                    self._of.setdefault(key, []).append(task.ended - task.started)

    def length(self, task: RecordedTask) -> float:
        if task.started is not None and task.ended is not None:
            return task.ended - task.started
        for key in ((task.demand, task.needs), task.needs, None):
            if key in self._of:
                return mean(self._of[key])
        return UNKNOWN_LENGTH


def _jobs(tasks: Sequence[RecordedTask], demands: dict[str, Demand], known: _Known, since: float) -> Iterator[Job]:
    """Group tasks of one demand that arrived together into jobs of about equal duration."""
    together: dict[tuple[str, float], list[RecordedTask]] = {}
    for task in tasks:
        if not task.withdrawn and not task.lost:
            together.setdefault((task.demand, task.came), []).append(task)
    times: dict[str, int] = {}
    for (name, arrived), many in together.items():
        demand = demands.get(name, Demand(name, ()))
        deadline = None if demand.deadline is None else demand.deadline - since
        for part in [many] if demand.gang is not None else _parts(many, known):
            number = times[name] = times.get(name, 0) + 1
            bundles: dict[Amounts, int] = {}
            for task in part:
                bundles[task.needs] = bundles.get(task.needs, 0) + 1
            one = replace(
                demand,
                id=name if number == 1 else f"{name} ({number})",
                bundles=tuple(Bundle(needs, count) for needs, count in sorted(bundles.items())),
                since=None,
                deadline=deadline,
            )
            yield Job(one, max(0.0, arrived - since), max(0.001, mean(known.length(task) for task in part)))


def _parts(tasks: Sequence[RecordedTask], known: _Known) -> Iterator[list[RecordedTask]]:
    """Return a job of tasks with about equal duration and equal needs."""
    by_needs: dict[Amounts, list[tuple[float, int, RecordedTask]]] = {}
    for number, task in enumerate(tasks):
        by_needs.setdefault(task.needs, []).append((known.length(task), number, task))
    for many in by_needs.values():
        many.sort(key=lambda one: one[:2])
        pieces = 1 if many[-1][0] <= ALIKE * many[0][0] else min(PARTS, len(many))
        edges = [len(many) * index // pieces for index in range(pieces + 1)]
        for low, high in pairwise(edges):
            yield [task for _, _, task in many[low:high]]


# -- what is assumed -----------------------------------------------------------------------------------------------


def _work_assumptions(
    tasks: Sequence[RecordedTask], slices: int, reconfigured: int, orders: int, requests: int
) -> Iterator[str]:
    kept = [task for task in tasks if not task.withdrawn and not task.lost]
    yield f"The same work arrives: {plural(len(kept), 'task')}, at the same times and with the same needs."
    seen = sum(task.end_seen for task in kept)
    yield (
        f"How long a task runs is derived from the usage of nodes between observations: {plural(seen, 'task')} "
        f"{'was' if seen == 1 else 'were'} followed to the end."
    )
    if unseen := sum(task.unseen for task in kept):
        yield f"{plural(unseen, 'task')} never waited and are known only by the usage of nodes: they may run anywhere."
    if running := sum(task.started is not None and not task.end_seen for task in kept):
        yield f"{_still(running, 'ran')} when the journal ends: assumed to run just as long."
    if waiting := sum(task.started is None for task in kept):
        yield f"{_still(waiting, 'waited')} when the journal ends: assumed to run as long as others of the kind."
    if withdrawn := sum(task.withdrawn for task in tasks):
        yield f"{plural(withdrawn, 'task')} disappeared without being seen to run: left out."
    if slices:
        yield f"The model starts without machines; in the journal there {_were(slices, 'machine')}, with work on them."
    if reconfigured > 0:
        yield f"The settings were changed {plural(reconfigured, 'time')}; the recorded ones are those at the end."
    if orders:
        yield f"{plural(orders, 'order')} of operators {'is' if orders == 1 else 'are'} not given in the model."
    if requests:
        yield f"{plural(requests, 'standing request')} of the end {'holds' if requests == 1 else 'hold'} all the time."


def _provider_assumptions(odds: ProviderRates, settings: Settings) -> Iterator[str]:
    for group in (one.group for one in settings.groups):
        name, known = group.name, odds.groups.get(group.name)
        if known is not None and known.boots:
            boots = sorted(known.boots)
            low, middle, high = (seconds(round(one, 1)) for one in (boots[0], median(boots), boots[-1]))
            span = low if low == high else f"{low} to {high}, median {middle}"
            yield f"{name}: boots in a random one of the recorded times: {plural(len(boots), 'boot')}, {span}."
        else:
            yield f"{name}: no boot was recorded, so it takes its boot_seconds, {seconds(group.boot_seconds)}."
    faults = [fault for fault in odds.faults() if fault.groups and min(fault.groups) in settings.by_name]
    for fault in faults:
        (name,) = fault.groups or ("",)
        yield f"{name}: {_FAULTS[fault.kind]} in {100 * fault.rate:.0f} % of all cases, at random."
    if not faults:
        yield "No launch is refused and no machine is lost, as in the journal."


_FAULTS = {
    "stock-out": "a launch is refused because there is no stock",
    "quota": "a launch is refused by the quota",
    "throttled": "a launch is throttled",
    "boot-never": "a machine never comes up",
    "preempted": "a machine is preempted or dies",
}


def _still(count: int, verb: str) -> str:
    return f"{plural(count, 'task')} still {verb}"


def _were(count: int, noun: str) -> str:
    return f"{'was' if count == 1 else 'were'} {plural(count, noun)}"
