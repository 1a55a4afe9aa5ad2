"""``reconcile`` is one pass as a pure function: it applies observations, plans, applies the plan and starts launches.

The loop calls it with live inputs and `replay` with recorded ones, so the same journal and settings give the same
entries, byte for byte. Everything that a decision depends on is in ``Inputs`` and in the journal: observations in their
tables, the rest in a ``pass`` entry, which is written where a value is not the default.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from windlass.control.observe.observed import Observed
from windlass.control.record.controller_state import SETTINGS, ControllerState
from windlass.control.record.costs import backdated, charged, opened, refunded
from windlass.control.record.journal_tables import (
    PASS,
    entries_between,
    entries_of,
    happened_once,
    passed_through,
    phases_between,
    stays_after,
    waiting_after,
)
from windlass.control.settings import Settings
from windlass.control.state.fleet import Bought, Fleet, Refused, by_clock
from windlass.core.model.plan import Plan
from windlass.core.model.reasons import Code
from windlass.core.model.snapshot import Snapshot
from windlass.core.planner import plan
from windlass.journal import Entry

from .apply_plan import decide
from .launch_queue import ask
from .operator_orders import Order, apply_orders
from .planner_input import fold_and_plan
from .transitions import NEVER_LISTED, Fold, forgotten

ORDERS: Final = "orders"
JUMP: Final = "jump"
UNOBSERVED: Final = "unobserved"
CALLING: Final = "calling"
STEP: Final = "step"
LAST_PASS: Final = "last_pass"
"""Keys of an entry ``pass``."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """All inputs of one pass."""

    now: float
    settings: Settings
    observed: Observed
    """The observations; for unknown sources the last valid ones."""
    jump: float = 0.0
    """Seconds by which the clock was set since the last pass. In the first pass of a leader: the time without one."""
    unobserved: float = 0.0
    """Seconds since the last pass in which this leader was stopped, so that it observed nothing."""
    orders: Sequence[tuple[int, Order]] = ()
    """New orders of operators, each with its number."""
    refused: tuple[Refused, ...] = ()
    calling: Collection[str] = ()
    """Slices whose launch call is under way."""
    mistakes: tuple[str, ...] = ()
    """New errors in the workload's answer."""
    takeover_step: float = 0.0
    """In the first pass of a leader: seconds by which the clock was set since the last pass of the previous leader."""
    last_pass: float | None = None
    """When the last pass observed, by the present clock. None: there was none."""
    clock: Mapping[str, float] | None = None
    """The new table ``clock``; None: unchanged."""
    mark: Mapping[str, Any] = field(default_factory=dict)
    """Further data for the ``pass`` entry; the first pass of a leader has its version."""

    @property
    def step(self) -> float:
        """Seconds by which the clock was set, in the first pass of a leader too."""
        return self.takeover_step if self.mark else self.jump


@dataclass(frozen=True, slots=True)
class ReconcileResult:
    """The result of a pass."""

    fold: Fold
    snapshot: Snapshot | None
    """The planner's input. None: the workload did not answer, and without it nothing can be planned."""
    plan: Plan | None
    after: ControllerState
    """The state after the entries are written; its ``seq`` is still the old one."""
    entries: tuple[Entry, ...]
    """Entries to write before any call. Empty: nothing changed."""


def reconcile(
    before: ControllerState,
    inputs: Inputs,
    new_id: Callable[[str], str],
    planner: Callable[[Snapshot], Plan] | None = None,
) -> ReconcileResult:
    """Apply observations, plan, apply the plan, start launches, and return the entries to write. ``planner``: another
    planner for comparisons.
    """
    now, settings = inputs.now, inputs.settings
    orders = [order for _, order in inputs.orders]
    fleet = by_clock(before.fleet, inputs.jump, inputs.step, inputs.unobserved)
    fleet = apply_orders(fleet, orders, now, settings.families)
    touched = _touched(before, inputs)
    made = fold_and_plan(
        fleet,
        inputs.observed,
        settings,
        now,
        refused=inputs.refused,
        touched=touched,
        listed_before=_listed_before(before, inputs.last_pass),
        planner=planner or plan,
    )
    folded, snapshot, planned = made.fold, made.snapshot, made.plan
    fleet, waiting, stay = folded.fleet, before.waiting, before.stay
    bought, moves = tuple[Bought, ...](), folded.moves
    if planned is not None:
        decision = decide(fleet, planned, settings, folded.unknown, new_id, now)
        fleet, bought, moves = decision.fleet, decision.bought, (*moves, *decision.moves)
        waiting, stay = waiting_after(waiting, planned), stays_after(stay, planned)
    fleet, calling = _asked(fleet, inputs)
    after = before.replace(
        fleet=fleet,
        observed=inputs.observed,
        waiting=waiting,
        stay=stay,
        settings=before.settings if before.settings.get(SETTINGS) is settings else {SETTINGS: settings},
        applied_orders={ORDERS: inputs.orders[-1][0]} if inputs.orders else before.applied_orders,
        clock=before.clock if inputs.clock is None else inputs.clock,
    )
    once = (
        *passed_through(moves, fleet),
        *happened_once(bought, inputs.refused, inputs.mistakes, fleet, now),
        *phases_between(before.observed.instance, inputs.observed.instance, now),
    )
    after, changes = _kept(before, after, now, inputs.step, news=bool(once))
    if not changes and not once:
        return ReconcileResult(folded, snapshot, planned, before, ())
    adopted = any(move.source is None and move.reason.code == Code.LEAKED for move in folded.moves)
    marked = _marked(before, inputs, calling, inputs.last_pass if adopted else None)
    return ReconcileResult(folded, snapshot, planned, after, (*marked, *once, *changes))


def _touched(before: ControllerState, inputs: Inputs) -> Collection[str] | None:
    """Return the slices whose observation changed since the last pass. None (any slice) when settings, clock, operator
    orders or source health changed.
    """
    usual = before.settings.get(SETTINGS) is inputs.settings and not (inputs.jump or inputs.unobserved or inputs.orders)
    if not usual or before.observed.unknown or inputs.observed.unknown:
        return None
    # Slices that the last decision moved were not checked in their new state: the acknowledgement may already exist.
    decided = [name for name, one in before.fleet.activity.active.items() if one.since >= before.at]
    return inputs.observed.touched_since(before.observed).union(decided)


def _listed_before(before: ControllerState, last_pass: float | None) -> Mapping[str, float]:
    """Return when each provider answered last, for those that answered in the last pass."""
    settings = before.settings.get(SETTINGS)
    if settings is None or last_pass is None:
        return NEVER_LISTED
    return dict.fromkeys({one.provider for one in settings.groups} - before.observed.silent, last_pass)


def _asked(fleet: Fleet, inputs: Inputs) -> tuple[Fleet, Collection[str]]:
    """Return the fleet with the launches that start now, and the calls under way if they had an effect."""
    asked = ask(fleet, inputs.settings, inputs.calling, inputs.now)
    if inputs.calling:
        otherwise = ask(fleet, inputs.settings, (), inputs.now)
        if asked is otherwise or (
            asked.provider_health == otherwise.provider_health and asked.activity.active == otherwise.activity.active
        ):
            return asked, ()
    return asked, inputs.calling


def _kept(
    before: ControllerState, after: ControllerState, now: float, step: float, *, news: bool
) -> tuple[ControllerState, tuple[Entry, ...]]:
    """Return the state without ended slices and with its time charged, and the entries for all changes."""
    changes = entries_between(before, after, now)
    fleet = forgotten(after.fleet, now)
    if fleet is not after.fleet:
        changes += entries_of("slice", after.fleet.slices, fleet.slices, now)
        changes += entries_of("gone", after.fleet.gone, fleet.gone, now)
    if not changes and not news:
        return before, ()
    # Time is charged to the old state, and only when something changes.
    account = opened(charged(before.account, before.fleet, before.stay, now, step), fleet, now)
    account = backdated(account, before.fleet.slices, fleet.slices, now)
    account = refunded(account, before.fleet.slices, after.fleet.slices, now, step)
    changes += entries_of("account", before.account, account, now)
    return after.replace(fleet=fleet, account=account, at=now), tuple(changes)


def _marked(
    before: ControllerState, inputs: Inputs, calling: Collection[str], last_pass: float | None
) -> tuple[Entry, ...]:
    """Return the ``pass`` entry; none when it would be empty: entries with another time belong to another pass."""
    data: dict[str, Any] = dict(inputs.mark)
    if inputs.jump:
        data[JUMP] = inputs.jump
    if inputs.unobserved:
        data[UNOBSERVED] = inputs.unobserved
    if calling:
        data[CALLING] = sorted(calling)
    if inputs.takeover_step:
        data[STEP] = inputs.takeover_step
    if last_pass is not None:
        data[LAST_PASS] = last_pass
    return (Entry(PASS, SETTINGS, inputs.now, data),) if data or inputs.now == before.at else ()
