"""Shadow mode observes and plans like the loop, and records what it would do. Nothing here can act.

It runs next to the autoscaler in use, with a journal of its own. The table ``would`` holds the actions of the current
plan, and ``spending`` the dollars per hour as they are and as they would be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from windlass.control.observe.observer import Observer
from windlass.control.reconcile.planner_input import fold_and_plan, observed_now
from windlass.control.reconcile.transitions import forgotten
from windlass.control.reconcile.workload_groups import with_workload_groups
from windlass.control.record.controller_state import SETTINGS, ControllerState, ShadowAction, Spending
from windlass.control.record.journal_tables import IS, entries_between, stays_after, waiting_after
from windlass.control.record.state_reader import recovered
from windlass.control.state.codec import from_plain, to_plain
from windlass.core.model.plan import Plan
from windlass.core.planner import plan
from windlass.core.tables.planner_memo import PlannerMemo
from windlass.journal import Entry, Journal
from windlass.providers.protocol import Provider
from windlass.workloads.protocol import Workload

from .leadership import Leading
from .settings import Leadership, Settings

STILL_THERE = 60.0
"""Seconds after which it records that nothing changed."""


class Shadow:
    """A controller that observes and plans but makes no calls."""

    def __init__(
        self,
        settings: Settings,
        providers: Mapping[str, Provider],
        workload: Workload,
        journal: Journal,
        *,
        now: Callable[[], float],
        steady: Callable[[], float],
        leadership: Leadership,
    ) -> None:
        self.settings, self.journal, self.now = settings, journal, now
        self._settings = settings
        self._planner = partial(plan, memo=PlannerMemo())
        self._leading = Leading(journal, leadership, now, steady)
        self.controller_state = recovered(journal)
        self._observer = Observer(providers, workload, lambda: settings.policy.observe_timeout, steady)
        self._observer.known(self.controller_state.observed)

    async def tick(self) -> tuple[Entry, ...]:
        """Observe, fold, plan, and record the changes."""
        self._leading.renew()
        before = self.controller_state
        observation = await self._observer.observe()
        if observation.work is not None:
            self._settings = with_workload_groups(self.settings, observation.work.shown.groups)
        settings = self._settings
        now = self.now()
        observed = observed_now(before, observation, settings)
        made = fold_and_plan(before.fleet, observed, settings, now, planner=self._planner)
        after = replace(
            before,
            fleet=forgotten(made.fold.fleet, now),
            observed=observed,
            settings=before.settings if before.settings.get(SETTINGS) == settings else {SETTINGS: settings},
        )
        answer = made.plan
        if answer is not None:
            shrinks = not made.fold.unknown
            after = replace(
                after,
                waiting=waiting_after(before.waiting, answer),
                stay=stays_after(before.stay, answer),
                would=_alike(before.would, dict(_would(answer, shrinks=shrinks))),
                spending={SETTINGS: Spending(answer.hourly_cost.now, answer.hourly_cost.planned)},
            )
        return self._write(before, after, now)

    def _write(self, before: ControllerState, after: ControllerState, now: float) -> tuple[Entry, ...]:
        entries = tuple(entries_between(before, after, now))
        if not entries and now - before.at < STILL_THERE:
            return ()
        entries = entries or tuple(_still(after, now))
        with self._leading.writing():
            seq = self.journal.append(entries, epoch=self._leading.epoch)
        self.controller_state = replace(after, at=now, seq=seq)
        return entries

    async def stop(self) -> None:
        """Record the end of the observed time, and release the lease."""
        await self._observer.close()
        self.journal.append(tuple(_still(self.controller_state, self.now())), epoch=self._leading.epoch)
        self._leading.release()


def _still(controller_state: ControllerState, now: float) -> Iterator[Entry]:
    """Record that nothing changed, so that the journal shows for how long it observed."""
    for subject, spending in controller_state.spending.items():
        yield Entry("spending", subject, now, {IS: to_plain(spending)})


def _would(answer: Plan, *, shrinks: bool) -> Iterator[tuple[str, ShadowAction]]:
    """Return the actions of a plan, by verb and subject. While a source is unknown nothing would be released."""
    for launch in answer.launches:
        name = f"launch {launch.group} {launch.reason.code}"
        yield name, ShadowAction("launch", launch.group, launch.count, launch.reason, launch.hourly_cost)
    for change in answer.uncordon:
        yield f"uncordon {change.slice}", ShadowAction("uncordon", change.slice, 1, change.reason)
    for change in answer.cancel if shrinks else ():
        yield f"cancel {change.slice}", ShadowAction("cancel", change.slice, 1, change.reason)
    for change in answer.drain if shrinks else ():
        yield f"drain {change.slice}", ShadowAction("drain", change.slice, 1, change.reason)


def _alike(before: Mapping[str, ShadowAction], after: dict[str, ShadowAction]) -> dict[str, ShadowAction]:
    """Keep the old entry where only the numbers in its sentence changed."""
    for name, would in after.items():
        old = before.get(name)
        if old is not None and (old.count, old.reason.code) == (would.count, would.reason.code):
            after[name] = old
    return after


# -- what came of it -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlannedAction:
    """An action that shadow mode would have taken, and for how long it was planned."""

    would: ShadowAction
    since: float
    until: float


@dataclass(frozen=True, slots=True)
class ShadowReport:
    """The report of shadow mode: what it observed and what it would have done."""

    since: float
    until: float
    actions: tuple[PlannedAction, ...]
    spent: float
    """Dollars that were spent."""
    planned: float
    """Dollars that would have been spent if each plan had taken effect at once and until the next one."""


def shadow_report(journal: Journal) -> ShadowReport | None:
    """Read the report from the journal of shadow mode; None: it has observed nothing yet."""
    open_: dict[str, tuple[ShadowAction, float]] = {}
    actions: list[PlannedAction] = []
    spent = planned = 0.0
    rate, at, first, last = Spending(0, 0), 0.0, None, 0.0
    for record in journal.read():
        first, last = record.at if first is None else first, record.at
        if record.kind == "would":
            if record.subject in open_:
                would, since = open_.pop(record.subject)
                actions.append(PlannedAction(would, since, record.at))
            if IS in record.data:
                open_[record.subject] = (from_plain(ShadowAction, record.data[IS]), record.at)
        elif record.kind == "spending" and IS in record.data:
            hours = (record.at - at) / 3600 if at else 0.0
            spent, planned = spent + hours * rate.now / 10**9, planned + hours * rate.planned / 10**9
            rate, at = Spending(record.data[IS]["now"], record.data[IS]["planned"]), record.at
    if first is None:
        return None
    hours = (last - at) / 3600 if at else 0.0
    actions += [PlannedAction(would, since, last) for would, since in open_.values()]
    return ShadowReport(
        first,
        last,
        tuple(sorted(actions, key=lambda action: (action.since, action.would.verb, action.would.subject))),
        spent + hours * rate.now / 10**9,
        planned + hours * rate.planned / 10**9,
    )
