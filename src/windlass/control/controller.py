"""The controller runs one pass of the loop: observe, reconcile, commit, act.

A pass reads the workload and all providers concurrently, applies the observations, plans, writes every change to the
journal in one transaction, and only then starts the outside calls, without waiting for them. A controller whose lease
has expired starts no call. One that lost its lease to another writes nothing and stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

from windlass._version import __version__
from windlass.control.act.actuator import Actuator
from windlass.control.observe.observer import Observer
from windlass.control.observe.validation import ValidView
from windlass.control.reconcile.cycle import ORDERS, Inputs, ReconcileResult, reconcile
from windlass.control.reconcile.deadlines import next_deadline
from windlass.control.reconcile.operator_orders import orders_after
from windlass.control.reconcile.planner_input import observed_now
from windlass.control.reconcile.pool_settings import EffectiveSettings, OverrideSettings, unchanged_settings
from windlass.control.reconcile.transitions import Fold
from windlass.control.reconcile.workload_groups import with_workload_groups
from windlass.control.record.controller_state import SETTINGS, ControllerState
from windlass.control.record.journal_tables import VERSION, new_slice_id
from windlass.control.record.state_reader import recovered_with_checkpoint, saved, with_nodes
from windlass.control.state.fleet import Refused
from windlass.core.model.lifecycle import ENDING, State
from windlass.core.model.plan import Plan
from windlass.core.model.snapshot import Snapshot
from windlass.core.planner import plan
from windlass.core.tables.planner_memo import PlannerMemo
from windlass.journal import Entry, Journal, JournalVersion
from windlass.providers.protocol import ClusterIdentity, Provider, on_one_machine
from windlass.workloads.protocol import (
    DecidedSlice,
    DecisionListener,
    DecisionReport,
    FinalFenceWorkload,
    PacedWorkload,
    SliceAwareWorkload,
    StoredWorkload,
    Workload,
)

from .journal_thread import Offload, inline
from .leadership import Leading
from .settings import Leadership, Settings

SAVE_AFTER = 1000
"""Minimum number of entries between two checkpoints. A large state is saved after twice its size was written, so that
checkpoints cost no more than entries. A restart reads no more entries than that.
"""
SHARED_CLOCK = "journal"
"""The name of the database's clock in the table ``clock``."""


class Overtaken(Exception):
    """A provider reports a newer controller that this journal does not know; this controller must stop."""


class IncompatibleConfig(Exception):
    """The new settings do not fit the existing slices; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Pass:
    """The observations and results of one pass, for the log and for tests."""

    fold: Fold
    snapshot: Snapshot | None
    """The planner's input. None: the workload did not answer, and without it nothing can be planned."""
    plan: Plan | None
    entries: tuple[Entry, ...]
    """The entries written to the journal."""


@dataclass(frozen=True, slots=True)
class _Abilities:
    """The optional protocols that a workload implements. The checks are slow, so they are made once per workload."""

    workload: Workload
    listener: DecisionListener | None
    paced: PacedWorkload | None
    final: bool
    """Whether its cordons are final."""

    @classmethod
    def of(cls, workload: Workload) -> _Abilities:
        return cls(
            workload,
            workload if isinstance(workload, DecisionListener) else None,
            workload if isinstance(workload, PacedWorkload) else None,
            isinstance(workload, FinalFenceWorkload) and workload.final_fences,
        )


class Controller:
    """Runs the loop on one journal. After a crash the journal alone is enough to continue."""

    def __init__(
        self,
        settings: Settings,
        providers: Mapping[str, Provider],
        workload: Workload,
        journal: Journal,
        *,
        now: Callable[[], float],
        steady: Callable[[], float] | None = None,
        clock_name: str = "",
        leadership: Leadership | None = None,
        wake: Callable[[], None] = lambda: None,
        override_settings: OverrideSettings = unchanged_settings,
        planner: Callable[[Snapshot], Plan] | None = None,
        offload: Offload = inline,
    ) -> None:
        """``now``: the time of day. ``steady``: a monotonic clock that measures the age of the lease and of answers;
        the default is ``now``. ``clock_name``: which clock that is, if it goes on while no controller runs: those
        that name the same clock see whether the time of day was set between them. ``wake`` is called when an
        observation or a call has come back. ``override_settings`` derives the settings of a pass from what was
        observed. ``planner``: another planner, to compare it with ours. ``offload``: how calls to the journal are made,
        which may block."""
        self._offload, self._turn = offload, asyncio.Lock()
        self.settings, self.providers, self.workload, self.journal = settings, dict(providers), workload, journal
        self.now, self.steady, self._clock_name = now, steady or now, clock_name
        self.leadership, self._wake = leadership or Leadership(), wake
        self._override_settings, self._effective = override_settings, EffectiveSettings(settings)
        self._planner = planner or partial(plan, memo=PlannerMemo())
        self.controller_state = ControllerState()
        self._whole: Settings | None = None
        self._entries_since_saved = 0
        self._mistakes: frozenset[str] = frozenset()
        self._paced_settings: tuple[Settings, dict[str, int], Settings] | None = None
        self._known_abilities = _Abilities.of(workload)
        """The workload, and which optional parts of the contract it has."""
        self._observer = self._new_observer()

    # -- leading ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take the lease and read the state; ``NotLeading`` while another controller leads."""
        began = self.steady()
        self.leading = Leading(self.journal, self.leadership, self.now, self.steady)
        try:
            state, checkpoint = recovered_with_checkpoint(self.journal)
            self.controller_state = with_nodes(state)
        except JournalVersion:
            self.leading.release()  # for one that can read it
            raise
        self._observer.known(self.controller_state.observed)
        self._prepare_workload()
        # Entries of earlier leaders count too, so that a series of short-lived leaders still writes checkpoints.
        self._entries_since_saved = state.seq - checkpoint
        self._observed_at = (self.controller_state.at, began)
        self._marked = False
        self._numbers = count(self.journal.last_seq() + 1)
        self._stamp = _base36(abs(int(self.now())))
        leads, epoch = self.leading.leads, self.leading.epoch
        self._bind()
        self.actuator = Actuator(self.providers, self.workload, epoch, self.cluster, leads, self.now, self._wake)
        self.check(self.providers)

    @property
    def cluster(self) -> ClusterIdentity:
        """The name and id of the cluster whose machines this controller manages."""
        return ClusterIdentity(self.settings.cluster.name, self.journal.cluster_id)

    def _bind(self) -> None:
        for provider in self.providers.values():
            provider.bind(self.cluster)

    def _new_id(self, group: str) -> str:
        """Return a slice id that is never used again, even if the journal is lost: it has the cluster id, the second in
        which this controller became leader, and a number that no earlier leader of this journal has used.
        """
        return new_slice_id(group, f"{self.journal.cluster_id}{self._stamp}", next(self._numbers))

    async def stop(self) -> None:
        """Stop observing and acting, and release the lease. Slices keep running."""
        await self._observer.close()
        await self.actuator.close()
        await self._offload(self.leading.release)

    # -- settings -----------------------------------------------------------------------------------------------------

    def check(self, providers: Mapping[str, Provider]) -> None:
        """Raise ``IncompatibleConfig`` if slices would be left without their provider."""
        left: dict[str, int] = {}
        for record in self.controller_state.fleet.slices.values():
            if record.provider not in providers and record.state != State.QUEUED:
                left[record.provider] = left.get(record.provider, 0) + 1
        for provider, slices in sorted(left.items()):
            raise IncompatibleConfig(
                f"providers.{provider}: it still has {slices} of our slices, and cannot be left out: keep it, without "
                "groups if you like, until windlass status shows none of them"
            )

    async def reconfigure(self, settings: Settings, providers: Mapping[str, Provider], workload: Workload) -> None:
        """Replace the settings. Slices of removed groups are drained. After ``IncompatibleConfig`` the old settings
        stay.
        """
        async with self._turn:
            await self._reconfigure(settings, providers, workload)

    async def _reconfigure(self, settings: Settings, providers: Mapping[str, Provider], workload: Workload) -> None:
        self.check(providers)
        await self._observer.close()
        self.settings, self.providers, self.workload = settings, dict(providers), workload
        self._bind()
        self.actuator.providers, self.actuator.workload = self.providers, workload
        self.actuator.cluster = self.cluster
        self._observer = self._new_observer()
        self._observer.known(self.controller_state.observed)
        self._prepare_workload()

    def _prepare_workload(self) -> None:
        """Tell the workload what the journal knows, before it is observed."""
        if isinstance(self.workload, StoredWorkload) and self.controller_state.fleet.has_joined:
            self.workload.expect_state()
        if isinstance(self.workload, SliceAwareWorkload):
            self.workload.expect_slices(self.controller_state.fleet.slices.keys())

    def _new_observer(self) -> Observer:
        return Observer(
            self.providers,
            self.workload,
            lambda: self.settings.policy.observe_timeout,
            self.steady,
            self._wake,
            self._missing,
        )

    def _missing(self, provider: str) -> dict[str, str]:
        """Return the slices of a provider that may have ended, with their groups."""
        return {
            record.id: record.group
            for record in self.controller_state.fleet.activity.active.values()
            if record.provider == provider and (record.absent_since is not None or record.state in ENDING)
        }

    # -- one pass -----------------------------------------------------------------------------------------------------

    async def tick(self) -> Pass:
        """Observe, reconcile, commit, act."""
        async with self._turn:
            return await self._tick()

    async def _tick(self) -> Pass:
        began = self.steady()
        observation = await self._observer.observe()
        if self.actuator.overtaken:
            await self._offload(lambda: self._overtaken(self.actuator.overtaken))
        if self.leading.is_due:
            await self._offload(self.leading.renew)
        applied = self.controller_state.applied_orders.get(ORDERS, 0)
        orders = await self._offload(lambda: orders_after(self.journal, applied))
        before, now = self.controller_state, self.now()
        self._effective = self._with_workload_groups(
            self._override_settings(self.settings, observation.work, before.fleet, now), observation.work
        )
        settings = self._paced(self._effective.settings)
        refused, observed_at = tuple(self.actuator.refused), (now, self.steady())
        jump = self._jumped(observed_at)
        takeover_step = 0.0 if self._marked else self._clock_step(observed_at, before.clock)
        given = Inputs(
            now=now,
            settings=settings,
            observed=observed_now(before, observation, settings, self.actuator.errors),
            jump=jump,
            unobserved=self._unobserved(began, observed_at[1]),
            orders=orders,
            refused=refused,
            calling=self.actuator.launching,
            mistakes=tuple(sorted(set(observation.mistakes) - self._mistakes)),
            takeover_step=takeover_step,
            last_pass=self._last_pass(before, jump, takeover_step),
            clock=self._clock_after(observed_at, before.clock),
            mark={} if self._marked else {VERSION: __version__},
        )
        made = reconcile(before, given, self._new_id, self._planner)
        await self._commit(made)
        self._observed_at = observed_at
        self.actuator.refused = self.actuator.refused[len(refused) :]
        self._mistakes = frozenset(observation.mistakes)
        self.actuator.start(self.controller_state.fleet, settings)
        self._report(made, settings, refused)
        await self._save()
        return Pass(made.fold, made.snapshot, made.plan, made.entries)

    def _with_workload_groups(self, effective: EffectiveSettings, work: ValidView | None) -> EffectiveSettings:
        """Return the settings with the groups that the workload defines; while it does not answer, those of the last
        pass.
        """
        if work is not None:
            whole = with_workload_groups(effective.settings, work.shown.groups)
        else:
            last = self.controller_state.settings.get(SETTINGS)
            more = [one for one in last.groups if one.from_workload] if last is not None else []
            whole = (
                replace(effective.settings, groups=(*effective.settings.groups, *more)) if more else effective.settings
            )
        if whole is effective.settings or self._abilities.listener is None:
            return effective
        # Equal settings stay the same object, so that values derived from them are computed once.
        if self._whole is not None and self._whole == whole:
            whole = self._whole
        self._whole = whole
        return replace(effective, settings=whole)

    def _report(self, made: ReconcileResult, settings: Settings, refused: Sequence[Refused]) -> None:
        """Pass the decision to a workload that shows decisions to its users."""
        listener = self._abilities.listener
        if listener is None:
            return
        slices = {
            name: DecidedSlice(
                name,
                one.group,
                one.state,
                one.since,
                one.leaving or one.reason,
                one.started_for,
                one.marked_until,
                one.fence,
                one.must_go,
            )
            for name, one in self.controller_state.fleet.slices.items()
        }
        refusals = tuple((one.slice_id, one.why) for one in refused)
        codes = {one.slice_id: one.code for one in refused}
        groups = tuple(one.group for one in settings.groups)
        listener.on_decision(DecisionReport(self.now(), groups, slices, made.plan, refusals, codes, made.snapshot))

    def _overtaken(self, error: str) -> None:
        """Raise the error for a provider that knows a newer controller: ``NotLeading`` if that controller has taken
        over this journal, ``Overtaken`` if this journal has never seen it.
        """
        with self.leading.writing():
            self.journal.append((), epoch=self.leading.epoch)
        raise Overtaken(
            f"{error}. The journal knows no such controller, so another journal works on the same machines: this one "
            "is an old copy, or two controllers share a cluster id. This controller stops. Start it with the journal "
            "that is in use, or give this cluster a journal and a name of its own"
        )

    @property
    def _abilities(self) -> _Abilities:
        if self._known_abilities.workload is not self.workload:
            self._known_abilities = _Abilities.of(self.workload)
        return self._known_abilities

    def _paced(self, settings: Settings) -> Settings:
        """Return the settings with properties of the workload: whether its cordons are final, and how many hosts may
        start at once on one machine.
        """
        paced, final = self._abilities.paced, self._abilities.final
        if paced is None and not final:
            return settings
        shared = [name for name, one in self.providers.items() if on_one_machine(one)]
        starting = dict.fromkeys(shared, paced.starts_per_machine) if paced is not None else {}
        if self._paced_settings is None or self._paced_settings[:2] != (settings, starting):
            whole = replace(settings, starting=starting, final_cordons=final)
            self._paced_settings = (settings, starting, whole)
        return self._paced_settings[2]

    def _jumped(self, observed_at: tuple[float, float]) -> float:
        """Return by how much the clock was set since the last pass; in the first pass, the time without a leader."""
        (now, steady), (last_now, last_steady) = observed_at, self._observed_at
        jump = (now - last_now) - (steady - last_steady)
        return jump if abs(jump) >= 1 else 0.0

    def _last_pass(self, before: ControllerState, jump: float, takeover_step: float) -> float | None:
        """Return when the last pass observed, by the present clock. Until this leader has written something: the last
        write, because later passes of the previous leader are not known.
        """
        if self._marked:
            return self._observed_at[0] + jump
        return before.at + takeover_step if before.at else None

    def _unobserved(self, began: float, observed: float) -> float:
        """Return the time since the last pass in which this process was stopped.

        ``began``: when this pass began to observe. That takes no longer than its timeout.
        """
        observing = observed - began - self.settings.policy.observe_timeout
        return self.leading.time_stopped(began - self._observed_at[1]) + self.leading.time_stopped(observing)

    def _ahead(self, observed_at: tuple[float, float]) -> dict[str, float]:
        """Return the seconds by which the time of day is ahead of clocks that other controllers can read too."""
        ahead = observed_at[0] - observed_at[1]
        found = {self._clock_name: ahead} if self._clock_name else {}
        if self.leading.shared_clock is not None:
            found[SHARED_CLOCK] = ahead - self.leading.shared_clock
        return found

    def _clock_step(self, observed_at: tuple[float, float], clock: Mapping[str, float]) -> float:
        """Return by how much the time of day differs from that of the last leader, or was set since its last record.

        Both are compared by a clock that both have read: the steady clock of the same computer, or the clock of the
        database. Without one it is unknown, and 0.
        """
        for name, ahead in self._ahead(observed_at).items():
            if name in clock:
                return ahead - clock[name] if abs(ahead - clock[name]) >= 1 else 0.0
        return 0.0

    def _clock_after(self, observed_at: tuple[float, float], clock: Mapping[str, float]) -> Mapping[str, float]:
        found = self._ahead(observed_at)
        known = all(name in clock and abs(ahead - clock[name]) < 1 for name, ahead in found.items())
        return clock if known else found

    async def _commit(self, made: ReconcileResult) -> None:
        """Write what changed, in one transaction, under the epoch. ``NotLeading`` when a newer one was granted."""
        if not made.entries:
            return
        seq = await self._offload(lambda: self._append(made.entries))
        self.controller_state = made.after.replace(seq=seq)
        self._marked = True
        self._entries_since_saved += len(made.entries)

    def _append(self, entries: Sequence[Entry]) -> int:
        with self.leading.writing():
            return self.journal.append(entries, epoch=self.leading.epoch)

    async def _save(self) -> None:
        """Write a checkpoint if a restart would have to read many entries. Calls for committed entries are started
        before.
        """
        written, state = self._entries_since_saved, self.controller_state
        if written <= SAVE_AFTER or written <= 2 * sum(map(len, state.tables().values())):
            return
        await self._offload(lambda: self._checkpoint(state))
        self._entries_since_saved = 0

    def _checkpoint(self, state: ControllerState) -> None:
        with self.leading.writing():
            self.journal.save_state(state.seq, saved(state), epoch=self.leading.epoch)

    def next_deadline(self) -> float | None:
        """Return when a pass would do something without a new observation, by the clock ``now``."""
        demands = self.controller_state.observed.demand.values()
        due = next_deadline(self.controller_state.fleet, demands, self._effective.settings, self.now())
        again = self.actuator.next_try()
        return min((at for at in (due, again, self._effective.due) if at is not None), default=None)


def _base36(number: int) -> str:
    """Encode a number in base 36: short, and valid in the names of every provider."""
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    text = ""
    while number:
        number, digit = divmod(number, 36)
        text = digits[digit] + text
    return text or "0"
