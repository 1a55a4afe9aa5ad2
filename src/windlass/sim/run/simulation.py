"""Simulation runs the production loop on a virtual clock in a simulated world and checks every step.

The clock jumps to the next instant at which anything can happen: a machine boots, a task ends, a deadline of the
controller, the end of its interval. Then the world advances, the controller makes a pass, its calls run, and the
checker verifies. When the hours of the script are over the faults stop and the run continues until nothing happens. By
then everything must be placed and all surplus released; otherwise that is a breach.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any

from windlass.control.act.actuator import Actuator
from windlass.control.controller import Controller, IncompatibleConfig, Pass
from windlass.control.leadership import NotLeading
from windlass.control.record.controller_state import ControllerState
from windlass.control.settings import Leadership, Settings
from windlass.journal import Journal, JournalError, JournalUnavailable, JournalVersion
from windlass.journal.memory import MemoryJournal
from windlass.sim.check.final_state import at_the_end
from windlass.sim.check.invariants import Breach, CheckedStep, Checker
from windlass.sim.cloud.provider import SimulatedProvider
from windlass.sim.faults.catalogue import FaultSet
from windlass.sim.faults.crash_points import WRAPPED, CallLog, CrashingCalls, CrashingJournal, Killed, Lifeline
from windlass.sim.random_source import RandomSource
from windlass.sim.workload.hosts import Joining
from windlass.sim.workload.workload import SimulatedWorkload

from .external_faults import apply_fault
from .script import Script, depends_on_utilization, shifted_faults, shifted_jobs
from .virtual_loop import EPOCH, VirtualLoop, run_virtually

LEASE = 900.0
"""Seconds of the lease: long enough for a pass every five minutes."""
QUIET = 7200.0
"""Seconds without any event or running task after which a run is quiet: longer than any time limit, and than the hour
after which failures of a group expire.
"""
CAP = 14 * 86400.0
"""Seconds after the end of the faults by which a run must be quiet."""


@dataclass
class SimulatedLeader:
    """A running controller, and its clock."""

    controller: Controller
    lifeline: Lifeline
    journal: CrashingJournal
    number: int
    offset: float = 0.0
    """Error of its clock in seconds."""


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The result of a simulation."""

    seed: int | str
    breaches: tuple[Breach, ...]
    seconds: float
    """Virtual seconds."""
    passes: int
    actions: int
    """Number of state transitions of slices."""
    faults: dict[str, int]
    finished: int
    """Number of completed jobs."""
    interrupted: int
    digest: str
    """Hash of the whole run, equal for the same script and code."""
    bill: int
    """The sum of the accounts, in nanodollars per hour times microseconds."""


@dataclass
class Simulation:
    """Runs one script."""

    script: Script
    controller: Callable[..., Controller] = Controller
    """Creates a controller; tests of the checker pass another one."""
    journal: Journal | None = None
    watch: Callable[[Simulation], None] | None = None
    """Called after every step."""
    thorough: bool = True
    """Plan every snapshot twice; doubles the cost."""
    stop_at_breach: bool = True
    leaping: bool = False
    """Skip passes that would see nothing new except the usage of busy nodes or the progress of terminations: for traces
    of months.
    """
    by_clock: bool = True
    """With faults, observe at every interval too and not only on events: some faults cause no event."""
    to_the_end: bool = True
    """Continue after the script's hours until nothing happens, and check the final state."""
    lease: float = LEASE
    cap: float = CAP

    now: Callable[[], float] = field(init=False)
    """The true time."""
    leaders: list[SimulatedLeader] = field(default_factory=list, init=False)
    passes: int = field(default=0, init=False)
    woken: bool = field(default=False, init=False)
    clock_was_off: bool = field(default=False, init=False)
    stop_for: float = field(default=0.0, init=False)
    """Seconds for which the controllers are stopped after the next pass with calls, before the calls begin."""
    overtake_next: bool = field(default=False, init=False)
    """Whether another controller takes over after the next pass with calls to a provider, before the calls arrive."""

    def run(self) -> SimulationResult:
        return run_virtually(self._run())

    # -- the world ----------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        script, loop = self.script, asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self._loop, clock = loop, loop.time
        self.now = clock
        self._loop.set_exception_handler(_ignore_killed)
        self.settings: Settings = script.settings
        self.struck: dict[str, int] = {}
        faults = shifted_faults(script.faults, EPOCH)
        self.fault_set = FaultSet.of(faults, RandomSource(script.seed), self.struck)
        self.store = self.journal if self.journal is not None else MemoryJournal()
        self.log = CallLog(whole=self.store.last_seq())
        self.clouds = {
            name: SimulatedProvider(
                script.all_kinds(),
                now=clock,
                seed=f"{script.seed}-{name}",
                faults=faults,
                quota=script.quota,
                struck=self.struck,
                confirms_ends=script.confirms_ends,
                reports_times=script.reports_times,
            )
            for name in sorted({configured.provider for configured in script.settings.groups})
        }
        for cloud in self.clouds.values():
            cloud.on_change = lambda call, epoch: self.log.check_lease(call, epoch, clock())
        self.workload = SimulatedWorkload(
            [one.group for one in script.settings.groups],
            Joining(list(self.clouds.values())),
            now=clock,
            jobs=shifted_jobs(script.jobs, EPOCH),
            requests=script.requests,
            seed=script.seed,
            faults=faults,
            struck=self.struck,
        )
        self.faults_end = EPOCH + script.hours * 3600
        self.external_faults = self.fault_set.external_faults(EPOCH, self.faults_end)
        self.later: list[tuple[float, Callable[[], None]]] = []
        """Scheduled ends of external faults."""
        self.checker = Checker(
            self.settings, self.clouds, self.workload, clock, thorough=self.thorough, faults=bool(script.faults)
        )
        self.restocked_at = EPOCH
        self.started, self.newest = 0, 0
        self.last_action = EPOCH
        self._start_at = EPOCH
        self._depends_on_use = depends_on_utilization(self.settings)

    def _calm(self) -> None:
        self.fault_set = FaultSet.of((), self.fault_set.chance, self.struck)
        self.external_faults, self.overtake_next = [], False
        for cloud in self.clouds.values():
            cloud.calm()
        self.workload.calm()
        for _, put_right in self.later:
            put_right()
        self.later = []
        for leader in self.leaders:
            leader.offset = 0.0

    def _move_world(self) -> None:
        now = self.now()
        for cloud in self.clouds.values():
            cloud.step()
        if self.script.recordings:
            self._restock(now)
        self.workload.step()
        if self.later:
            for due in [one for one in self.later if one[0] <= now]:
                self.later.remove(due)
                due[1]()
        while self.external_faults and self.external_faults[0][0] <= now:
            _, fault = self.external_faults.pop(0)
            self.struck[fault.kind] = self.struck.get(fault.kind, 0) + 1
            apply_fault(self, fault)

    def _restock(self, now: float) -> None:
        """Set the stock from the recordings; changes between two steps are skipped."""
        for one in self.script.recordings:
            if one.next_change(self.restocked_at - EPOCH) <= now - EPOCH:
                for cloud in self.clouds.values():
                    cloud.restock(one.zone, one.at(now - EPOCH))
        self.restocked_at = now

    # -- controllers --------------------------------------------------------------------------------------------------

    def start_leader(self, *, ahead: float = 0.0, version: int | None = None) -> SimulatedLeader | None:
        """Start a new controller on the same journal; None: another leads, or it died at once. ``ahead``: seconds by
        which its clock is ahead when it acquires the lease. ``version``: the version of its program, if it differs from
        the journal's.
        """
        self.started += 1
        clock, known = self._loop.time, self.log.version if version is None else version
        lifeline = Lifeline(lambda: self.fault_set, clock, self.started)
        journal = CrashingJournal(self.store, lifeline, lambda: self.fault_set, clock, self.log, known)
        leadership = Leadership(f"controller-{1 if not ahead else self.started}", self.lease)
        if self._is_led(leadership.holder, clock() + ahead):
            # Otherwise a controller would be created and refused once a second until the lease of a dead one expires.
            with suppress(JournalError, Killed):
                journal.acquire(leadership.holder, leadership.lease, clock() + ahead)
            return None
        mortal: Callable[[Any], Any] = (
            (lambda one: CrashingCalls(one, lifeline)) if WRAPPED & self.fault_set.by_kind.keys() else lambda one: one
        )
        leader = SimulatedLeader(None, lifeline, journal, self.started, ahead)  # type: ignore[arg-type]  # set below
        leader.controller = self.controller(
            self.settings,
            {name: mortal(cloud) for name, cloud in self.clouds.items()},
            mortal(self.workload),
            journal,
            now=lambda: clock() + leader.offset,
            steady=clock,
            clock_name="simulated",
            leadership=leadership,
            wake=self._wake,
        )
        try:
            leader.controller.start()
        except NotLeading as error:
            self._check_lease(leadership.holder, clock() + ahead, str(error))
            return None
        except (JournalError, Killed):
            return None
        finally:
            leader.offset = 0.0
        self.leaders.append(leader)
        self.newest = leader.number
        self.checker.recovered(leader.controller.controller_state, self.log.whole)
        return leader

    def _check_lease(self, holder: str, now: float, error: str) -> None:
        """S12: a controller gets the lease when that of the last one has expired by its own clock."""
        lease = self.store.lease()
        if not self.store.own_clock and lease is not None and now >= lease.expires_at:
            text = f"{holder} does not get the lease of {lease.holder}, which has run out: {error}"
            self.checker.breaches.append(Breach("S12", self.now(), text))

    def _is_led(self, holder: str, now: float) -> bool:
        """Whether another controller has the lease at this time."""
        lease = None if self.store.own_clock else self.store.lease()
        return lease is not None and lease.holder != holder and now < lease.expires_at

    def _wake(self) -> None:
        self.woken = True

    async def _drop(self, leader: SimulatedLeader, *, killed: bool) -> None:
        """Remove a controller; unless it was killed, it releases the lease."""
        leader.lifeline.dead = leader.lifeline.dead or killed
        self.leaders.remove(leader)
        with suppress(Killed, JournalError):
            await leader.controller.stop()
        self._start_at = self.now() + self.fault_set.chance.wait(20.0, "restart", self.started)

    async def reconfigure(self, settings: Settings) -> None:
        """Replace the settings of the controllers and of the workload."""
        self.settings, self._depends_on_use = settings, depends_on_utilization(settings)
        self.checker.settle_for(settings)
        self.workload.regroup([one.group for one in settings.groups])
        for leader in self.leaders:
            try:
                await leader.controller.reconfigure(settings, leader.controller.providers, leader.controller.workload)
            except IncompatibleConfig:
                continue

    # -- steps --------------------------------------------------------------------------------------------------------

    async def _run(self) -> SimulationResult:
        self._build()
        calm = False
        while True:
            now = self.now()
            if not calm and now >= self.faults_end:
                calm = True
                self._calm()
                self.last_action = now
                if not self.to_the_end:
                    break
            if self.workload.is_busy:
                self.last_action = now
            if calm and (self.is_quiet(now) or now >= self.faults_end + self.cap):
                break
            if self.checker.breaches and self.stop_at_breach:
                break
            await self._step()
            await self._sleep()
        if self.to_the_end and not (self.checker.breaches and self.stop_at_breach):
            self.checker.breaches += at_the_end(self)
        for leader in list(self.leaders):
            await self._drop(leader, killed=False)
        return self._result()

    async def _step(self) -> None:
        self._move_world()
        while self.next_settings:
            await self.reconfigure(self.next_settings.pop(0))
        if not self.leaders and self.now() >= self._start_at:
            self.start_leader()
        for leader in list(self.leaders):
            await self._pass(leader)
        if self.watch is not None:
            self.watch(self)

    next_settings: list[Settings] = field(default_factory=list, init=False)

    async def _pass(self, leader: SimulatedLeader) -> None:
        controller, begun, made = leader.controller, self.now(), None
        before, failure = controller.controller_state, ""
        refused_by = leader.journal.refused_by = self._refusing(controller.leading.epoch)
        if self.overtake_next:
            leader.lifeline.hold_up()
        try:
            made = await controller.tick()
        except Killed:
            await self._drop(leader, killed=True)
        except NotLeading:
            await self._drop(leader, killed=False)
        except (JournalUnavailable, JournalVersion):
            await self._drop(leader, killed=False)
        except JournalError:
            pass
        except Exception as error:  # noqa: BLE001  # a loop that raises is a breach, and the run goes on to report it
            failure = f"{type(error).__name__}: {error}"
            await self._drop(leader, killed=False)
        passed_at = self.now()
        if refused_by and made is not None:
            self.log.late.append(f"a pass under epoch {controller.leading.epoch}, which {refused_by} has refused")
        if self.stop_for and controller.actuator.under_way:
            self._loop.leap(self.stop_for)
            self.stop_for = 0.0
        await self._call(controller.actuator)
        if leader.lifeline.dead and leader in self.leaders:
            await self._drop(leader, killed=True)
        self.passes += 1
        if made is not None and made.fold.moves:
            self.last_action = self.now()
        self._look(leader, before, made, (begun, passed_at), failure)
        if self.overtake_next:
            await self._overtake(leader)

    async def _overtake(self, leader: SimulatedLeader) -> None:
        """Let another controller take over and make a pass with its calls, if calls of this one are held up. They
        arrive after that.
        """
        if leader.lifeline.held_up and leader in self.leaders:
            self.overtake_next = False
            newer = self.start_leader(ahead=2 * self.lease)
            if newer is not None:
                await self._pass(newer)
        leader.lifeline.resume()
        await self._call(leader.controller.actuator)

    def _refusing(self, epoch: int) -> str:
        """Return a provider that has refused a call under this epoch; empty: none has."""
        return next((name for name, cloud in self.clouds.items() if epoch in cloud.refused_epochs), "")

    async def _call(self, actuator: Actuator) -> None:
        """Let calls start and complete."""
        calls, woken = actuator.under_way, self.woken
        if self._loop.is_at_rest() or (not calls and not self.fault_set.faults):
            return
        for _ in range(3):
            await asyncio.sleep(0)
            if not self.fault_set.faults and not actuator.under_way:
                break
        if self._leaps and calls == {"terminate"} and not actuator.under_way and not actuator.errors:
            self.woken = woken  # the end of a terminated machine is an event of its own

    @property
    def _leaps(self) -> bool:
        return self.leaping and not self.fault_set.faults and not self._depends_on_use

    def _look(
        self,
        leader: SimulatedLeader,
        before: ControllerState,
        made: Pass | None,
        span: tuple[float, float],
        failure: str,
    ) -> None:
        """Check a pass. ``span``: its start and end time."""
        clock_is_off = leader.offset != 0
        self.clock_was_off = self.clock_was_off or clock_is_off
        begun, now = span
        step = CheckedStep(
            now=now,
            clock=now + leader.offset,
            settings=leader.controller.settings,
            before=before,
            after=leader.controller.controller_state,
            made=made,
            took=now - begun,
            failure=failure,
            leads=leader.number == self.newest,
            clock_is_off=clock_is_off,
        )
        moved = self.checker.check_step(step)
        self.checker.breaches += [Breach("S12", now, text) for text in self.log.late]
        self.log.late.clear()
        if moved:
            self.last_action = self.now()

    def is_quiet(self, now: float) -> bool:
        return now - self.last_action >= QUIET and bool(self.leaders)

    async def _sleep(self) -> None:
        """Advance the clock to the next time at which something relevant to the controller can happen."""
        due, least = self._next_instant(), self.settings.policy.evaluation_interval.min
        leaping, loop, work = self._leaps, self._loop, self.workload
        while True:
            event = work.next_event() or inf
            pause = max(least, min(due, event) - self.now())
            if loop.is_at_rest(pause):
                loop.leap(pause)
            else:
                await asyncio.sleep(pause)
            if not leaping or self.now() >= due or self.woken:
                return
            work.step()
            if not work.is_as_seen():
                self.last_action = self.now()
                return

    def _next_instant(self) -> float:
        """Return the next time of an event outside the workload."""
        now = self.now()
        instants = [self.faults_end if now < self.faults_end else inf]
        instants += [at for cloud in self.clouds.values() if (at := cloud.next_event()) is not None]
        if self.external_faults or self.later:
            instants += [at for at, _ in (*self.external_faults[:1], *self.later)]
        if self.script.recordings:
            instants += [EPOCH + one.next_change(now - EPOCH) for one in self.script.recordings]
        # Without faults every change is an event, so no polling is needed.
        if self.leaders and self.fault_set.faults and self.by_clock:
            instants.append(now + self.settings.policy.evaluation_interval.max)
        for leader in self.leaders:
            controller = leader.controller
            instants.append(now + controller.leading.renews_in)
            if (due := controller.next_deadline()) is not None:
                instants.append(due - leader.offset)
        if not self.leaders:
            instants.append(max(self._start_at, now + 1))
        if self.woken:
            self.woken = False
            instants.append(now)
        # While work runs that will end, the run cannot be quiet.
        if now >= self.faults_end and not (
            self.leaping and self.workload.is_busy and self.workload.next_event() is not None
        ):
            instants.append(max(now, self.last_action + QUIET))
        return min(instants)

    def _result(self) -> SimulationResult:
        store = self.store
        return SimulationResult(
            seed=self.script.seed,
            breaches=tuple(self.checker.breaches),
            seconds=self.now() - EPOCH,
            passes=self.passes,
            actions=self.checker.actions,
            faults=dict(sorted(self.struck.items())),
            finished=len(self.workload.finished),
            interrupted=len(self.workload.interrupted),
            digest=store.digest if isinstance(store, MemoryJournal) else "",
            bill=self.checker.accounts_total(),
        )


def _ignore_killed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handle an error of an asyncio task: report it, unless it is the simulated death of its controller."""
    if not isinstance(context.get("exception"), Killed):
        loop.default_exception_handler(context)


def simulate(script: Script, **more: Any) -> SimulationResult:
    """Run a script and return its result."""
    return Simulation(script, **more).run()
