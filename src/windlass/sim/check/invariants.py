"""The checker verifies the invariants after every step.

It looks at the simulated truth (what the cloud has, what runs), at the state of the controller and at its decisions,
never at how they were made. A breach is data: which invariant, when, and what was seen. Only changes are checked again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from windlass.control.controller import Pass
from windlass.control.record.controller_state import ControllerState
from windlass.control.record.costs import charged
from windlass.control.settings import Settings
from windlass.control.state.diff import NONE, TableDiff, full_diff
from windlass.control.state.fleet import SliceRecord
from windlass.core.model.lifecycle import LEGAL, OFFERING, RECALLABLE, State
from windlass.core.model.plan import Plan
from windlass.core.model.snapshot import Snapshot
from windlass.core.plan_laws import broken_invariants
from windlass.core.planner import plan
from windlass.sim.cloud.machines import Machine
from windlass.sim.cloud.provider import SimulatedProvider
from windlass.sim.workload.jobs import Job
from windlass.sim.workload.workload import SimulatedWorkload

from .fleet_totals import FleetTotals
from .lost_slices import GivenUpSlices, unasked

ADOPTION = 120.0
"""Seconds within which a listed instance must have a record: a pass a minute, and one that failed."""
PATIENCE = 1.0
"""Seconds that a pass may take, however many calls and observations hang."""
GRACE = 900.0
"""Seconds after a limit was lowered in which launches under the old limit may still arrive."""
REPLAN_EVERY = 5
"""One plan in this many is repeated as a check, which costs as much as the pass itself."""
REPLAN_QUIET = 25
"""The same for plans without changes and actions, which are five of six in a swarm."""


@dataclass(frozen=True, slots=True)
class Breach:
    """A violation of an invariant."""

    invariant: str
    at: float
    text: str

    def __str__(self) -> str:
        return f"{self.invariant} at {self.at:.3f}: {self.text}"


class CheckedStep(NamedTuple):
    """One pass, as the checker sees it."""

    now: float
    """The true time."""
    clock: float
    """The time by the controller's clock."""
    settings: Settings
    before: ControllerState
    after: ControllerState
    made: Pass | None
    """None: the pass did not complete."""
    took: float
    failure: str
    leads: bool
    """Whether no newer controller runs: the state of an outdated controller does not count."""
    clock_is_off: bool


class Checker:
    """Checks every step, and keeps what it needs for comparisons."""

    def __init__(
        self,
        settings: Settings,
        clouds: Mapping[str, SimulatedProvider],
        workload: SimulatedWorkload,
        now: Callable[[], float],
        *,
        thorough: bool = True,
        faults: bool = True,
    ) -> None:
        self.clouds, self.workload, self._now, self._thorough = clouds, workload, now, thorough
        self.breaches: list[Breach] = []
        self.actions = 0
        self.unwanted: set[str] = set()
        """Slices that a user made by hand."""
        self._limits: list[tuple[float, Settings]] = [(now(), settings)]
        self._doubled: set[str] = set()
        """Slices with machines at two clouds."""
        self._interrupted = 0
        self.followed = FleetTotals(self._life_of)
        self._shown: set[str] = set()
        """Listed machines that may have no record."""
        self._unrecorded: dict[str, float] = {}
        self._plans: Counter[bool] = Counter()
        """Number of plans, by whether they had anything new to plan."""
        self._planned: Snapshot | None = None
        self._last: ControllerState | None = None
        self._clock_was_off = False
        self._given_up = GivenUpSlices(clouds, faults=faults)
        self._offset: float | None = None
        """Clock error in the last committed pass."""
        self._tried: float | None = None
        """Clock error in a pass that did not complete. Its records may have been written."""

    def settle_for(self, settings: Settings) -> None:
        """Note that the settings changed."""
        self._limits.append((self._now(), settings))

    def recovered(self, controller_state: ControllerState, whole: int) -> None:
        """Check that a starting controller read what was last committed. ``whole``: the number of the last committed
        record.
        """
        last = self._last
        if controller_state.seq != whole:
            self._breach("S12", f"records up to {whole} were committed, and up to {controller_state.seq} are there")
        if last is not None and controller_state.seq == last.seq:
            for kind, table in last.tables().items():
                if controller_state.tables()[kind] != table:
                    self._breach("S12", f"after a restart the table {kind} is another one")
        clock_step = 0.0
        if self._tried is not None and (last is None or controller_state.seq != last.seq):
            clock_step = 0.0 if self._offset is None else self._tried - self._offset
            self._offset = self._tried
        self._tried = None
        # Includes entries that were written although the last controller died before it knew.
        self._follow(controller_state, clock_step=clock_step)
        self._last = None

    def check_step(self, step: CheckedStep) -> bool:
        """Check a step; return whether any slice changed its state in it."""
        before, after = step.before.fleet.slices, step.after.fleet.slices
        differing = changed, gone = NONE if before is after else full_diff(before, after)
        pairs = [(before.get(name), after[name]) for name in changed]
        moves = [(old, new) for old, new in pairs if old is None or old.state is not new.state]
        self.actions += len(moves) + len(gone)
        self._clock_was_off = self._clock_was_off or step.clock_is_off
        if step.failure:
            self._breach("L3", f"the loop raised {step.failure}")
        if step.took > PATIENCE:
            self._breach("L3", f"a pass took {step.took:.1f} s of waiting")
        came = list[str]()
        for cloud in self.clouds.values():
            cloud.step()
            came += cloud.came_lately()
        found: list[Iterable[tuple[str, str]]] = [self._work_lives(step), self._one_of_each(came)]
        if came:
            found.append(self._limits_hold(came))
        if gangs := self.workload.gangs_that_changed():
            found.append(_are_whole(gangs))
        if step.leads:
            complete = step.made is not None and not step.made.fold.unknown
            self._given_up.record_pass(step.now, complete=complete)
            policy = step.settings.policy
            ended = [(before[name], None) for name in gone]
            changes = [*ended, *((old, new) for old, new in moves if old is not None)]
            found += [
                list(self._given_up.given_up(step.now, step.clock, changes, policy)),
                list(self._given_up.replaced(step.now, pairs, policy)),
            ]
            self._given_up.follow(step.now, pairs)
            self._follow(step.after, differing if self.followed.slices is before else None, self._clock_step(step))
            found += [self._known(step, gone), self._accounts_add_up(step)]
            if came:
                known = (before, after, step.after.fleet.gone)
                found.append(unasked(came, known, self.unwanted))
            if gone:
                interval = policy.evaluation_interval.max
                bills = self._given_up.lives_are_billed(step.now, gone, self.followed, interval, self.unwanted)
                found.append(list(bills))
                self._given_up.forget(gone)
            if pairs or self.followed.unproven:
                found.append(self._idle_clocks(pairs))
            if moves:
                found.append(self._moves_are_right(step, moves))
            if step.made is not None:
                found.append(self._plan_is_right(step))
                if step.made.fold.unknown:
                    found.append(self._nothing_shrinks(step, moves))
            self._last = step.after
        for invariant, text in chain.from_iterable(found):
            self._breach(invariant, text)
        return bool(moves or gone)

    def _follow(
        self, controller_state: ControllerState, differing: TableDiff | None = None, clock_step: float = 0.0
    ) -> None:
        """Update to the controller's state. Slices without a record may still be listed."""
        self._shown.update(self.followed.follow(controller_state, differing, clock_step))

    def _clock_step(self, step: CheckedStep) -> float:
        """Return by how much the clock was set between the last committed pass and this one: the truth, not what the
        pass recorded. The last pass may be that of another controller."""
        offset, last = step.clock - step.now, self._offset
        if step.made is None:
            self._tried = offset
            return 0.0
        self._offset = offset
        return 0.0 if last is None else offset - last

    def _breach(self, invariant: str, text: str) -> None:
        self.breaches.append(Breach(invariant, self._now(), text))

    # -- the truth ----------------------------------------------------------------------------------------------------

    def _work_lives(self, step: CheckedStep) -> Iterator[tuple[str, str]]:
        """S1: no work ends because of us, and no slice is ended without the certificate of its current fence. A
        controller that another one has replaced has old records: those of the other one count.
        """
        news = self.workload.interrupted[self._interrupted :]
        self._interrupted += len(news)
        for one in news:
            name = one.run.slice_id
            if one.how == "evicted" and not step.settings.policy.allow_eviction:
                yield "S1", f"{one.run.job} was evicted from {name}"
            if one.how == "node gone" and (why := self._our_doing(name)):
                yield "S1", f"{one.run.job} was killed on {one.run.node}: {why}"
        after, before = (step.after, step.before) if step.leads or self._last is None else (self._last, self._last)
        for cloud in self.clouds.values():
            for ended in cloud.ended_lately():
                record = after.fleet.slices.get(ended.slice_id) or before.fleet.slices.get(ended.slice_id)
                if record is None or not (record.dead or record.certified):
                    known = "no record" if record is None else f"fence {record.fence}, certificate {record.certificate}"
                    yield "S1", f"{ended.slice_id} was ended without a certificate: {known}"

    def _our_doing(self, slice_id: str) -> str:
        for cloud in self.clouds.values():
            if slice_id in cloud.history:
                return "we ended its machine" if cloud.history[slice_id].by == "terminate" else ""
            machine = cloud.living().get(slice_id)
            if machine is not None:
                return "" if machine.away[0] <= self._now() else "we gave it up, and it was alive"
        return ""

    def _limits_hold(self, came: Collection[str]) -> Iterator[tuple[str, str]]:
        """S3: launches never exceed a limit."""
        bought = [name for name in came if name not in self.unwanted and self._machines_of(name)]
        if not bought:
            return
        valid = self._valid(self._now())
        slices, hosts = self._wanted()
        for group in sorted({one.order.group for name in bought for one in self._machines_of(name)}):
            most = max((one.by_name[group].group.max for one in valid if group in one.by_name), default=0)
            if slices[group] > most:
                yield "S3", f"{group} has {slices[group]} slices, its max is {most}"
        limits = [one.cluster.max_nodes for one in valid]
        if None not in limits and hosts > max(one for one in limits if one is not None):
            yield "S3", f"there are {hosts} nodes, the limit is {max(one for one in limits if one is not None)}"
        yield from self._ceiling_holds(valid, slices)

    def _machines_of(self, slice_id: str) -> list[Machine]:
        """Return the live machines with the tag of a slice."""
        return [one for cloud in self.clouds.values() if (one := cloud.living_one(slice_id)) is not None]

    def _wanted(self) -> tuple[Counter[str], int]:
        """Count the live machines that the controller launched: slices by group, and hosts."""
        slices: Counter[str] = Counter()
        hosts = 0
        for cloud in self.clouds.values():
            slices.update(cloud.living_slices)
            hosts += cloud.living_hosts
        for one in [machine for name in self.unwanted for machine in self._machines_of(name)]:
            slices[one.order.group] -= 1
            hosts -= one.shown_hosts
        return slices, hosts

    def _ceiling_holds(self, valid: list[Settings], slices: Counter[str]) -> Iterator[tuple[str, str]]:
        """S3: the cost ceiling by the configured prices; later price changes of the cloud are not covered."""
        ceilings = [one.cluster.max_hourly_cost for one in valid]
        if None in ceilings:
            return
        most = max(one for one in ceilings if one is not None)
        prices = {
            configured.group.name: configured.group.price or 0 for one in reversed(valid) for configured in one.groups
        }
        cost = sum(prices.get(group, 0) * count for group, count in slices.items())
        if cost > most:
            yield "S3", f"there are slices for {cost / 1e9:g} $/h, the ceiling is {most / 1e9:g} $/h"

    def _valid(self, now: float) -> list[Settings]:
        """Return the settings under which machines that arrive now may have been ordered."""
        while len(self._limits) > 1 and self._limits[1][0] < now - GRACE:
            self._limits.pop(0)
        return [settings for _, settings in self._limits]

    def _one_of_each(self, came: Collection[str]) -> Iterator[tuple[str, str]]:
        """S5: one machine for one id. A duplicate made by the cloud may live until it is listed."""
        for cloud in self.clouds.values():
            for name, twin in cloud.twins.items():
                if twin.listed_from < cloud.listed_at:
                    yield "S5", f"there are two machines for {name}"
        if not came and not self._doubled:
            return
        self._doubled = {name for name in (*self._doubled, *came) if len(self._machines_of(name)) > 1}
        for name in sorted(self._doubled):
            yield "S5", f"{name} is there {len(self._machines_of(name))} times"

    # -- what is remembered -------------------------------------------------------------------------------------------

    def _known(self, step: CheckedStep, gone: Collection[str]) -> Iterator[tuple[str, str]]:
        """S4: every listed machine has a record, and no record is removed before its machine is gone."""
        now, fleet = step.now, step.after.fleet
        for cloud in self.clouds.values():
            self._shown.update(cloud.shown_lately())
        if self._shown:
            self._shown = {name for name in self._shown if name not in fleet.slices and self._is_shown(name)}
        if step.made is None or step.made.fold.unknown:
            self._unrecorded = dict.fromkeys(self._unrecorded, now)  # a machine that is not listed cannot be known
        if self._shown or self._unrecorded:
            self._unrecorded = {
                name: self._unrecorded.get(name, now) if self._was_shown(name) else now for name in sorted(self._shown)
            }
        for name, since in self._unrecorded.items():
            if now - since > ADOPTION and step.made is not None:
                yield "S4", f"{name} is at the provider and in no record for {now - since:.0f} s"
        for name in gone:
            record = step.before.fleet.slices[name]
            if name not in fleet.gone and record.state != State.QUEUED:
                yield "S4", f"{name} was {record.state} and is forgotten without a trace"

    def _life_of(self, slice_id: str) -> tuple[float, float] | None:
        """Return when a machine was created and ended, where its cloud reports it."""
        return next((life for one in self.clouds.values() if (life := one.reported_life(slice_id)) is not None), None)

    def _is_shown(self, slice_id: str) -> bool:
        return any(
            cloud.living_one(slice_id) is not None and cloud.is_listed(slice_id) for cloud in self.clouds.values()
        )

    def _was_shown(self, slice_id: str) -> bool:
        return any(cloud.was_shown(slice_id) for cloud in self.clouds.values())

    def _moves_are_right(
        self, step: CheckedStep, moves: list[tuple[SliceRecord | None, SliceRecord]]
    ) -> Iterator[tuple[str, str]]:
        """S2, S10, S13: transitions are legal and have a reason, and no protected slice leaves."""
        groups = step.settings.by_name
        for old, new in moves:
            if old is not None and not _in_one_pass(old, new):
                yield "S10", f"{new.id} went from {old.state} to {new.state}"
            if not (new.reason.why and new.started_for.why):
                yield "S13", f"{new.id} is {new.state} without a reason"
            configured = groups.get(new.group)
            if (
                new.state == State.CORDONED
                and new.leaving is None
                and configured
                and new.id in configured.group.protected
            ):
                yield "S2", f"{new.id} is protected and was cordoned"
        released = {
            new.group
            for old, new in moves
            if old is not None and old.state in OFFERING and new.state == State.CORDONED and new.leaving is None
        }
        for name in sorted(released & groups.keys()):
            group = groups[name].group
            kept = self.followed.offering[name]
            if kept < min(group.min, group.max):
                yield "S2", f"{name} was brought down to {kept} slices, its min is {group.min}"

    def _nothing_shrinks(
        self, step: CheckedStep, moves: list[tuple[SliceRecord | None, SliceRecord]]
    ) -> Iterator[tuple[str, str]]:
        """S6: while a source is unknown nothing is released."""
        assert step.made is not None
        unknown = step.made.fold.unknown
        for old, new in moves:
            if old is None:
                continue
            drained = old.state in RECALLABLE and new.state == State.TERMINATING and not new.dead
            if (old.state in OFFERING and new.state == State.CORDONED) or drained:
                yield "S6", f"{new.id} went from {old.state} to {new.state} while unknown: {', '.join(unknown)}"
        if "workload" in unknown and step.made.plan is not None:
            yield "S6", "a plan was made although the workload had not answered"

    def _idle_clocks(self, pairs: list[tuple[SliceRecord | None, SliceRecord]]) -> Iterator[tuple[str, str]]:
        """S9: idle time matches the tasks that ran, and only work resets it."""
        idle, unproven = self.followed.idle, self.followed.unproven
        for name, one in list(unproven.items()):
            known = [self.workload.idle_since(node) for node in one.nodes]
            if None in known:
                continue
            latest = max(at for at in known if at is not None)
            if one.since > latest + 1e-6:
                yield "S9", f"{name} is idle since {latest:.1f}, and counts from {one.since:.1f}"
            else:
                del unproven[name]  # a node becomes idle again, but never from an earlier time on
        for was, record in pairs:
            if was is None or was.state != State.READY or record.id not in idle:
                continue
            if (
                was.marked_until is not None
                and record.marked_until is not None
                and record.marked_until > was.marked_until
            ):
                yield (
                    "S9",
                    f"{record.id} was marked until {was.marked_until:.1f} and is now until {record.marked_until:.1f}",
                )

    # -- what was decided ---------------------------------------------------------------------------------------------

    def _plan_is_right(self, step: CheckedStep) -> Iterator[tuple[str, str]]:
        """S8, S11, S13: every plan is valid, and the same snapshot in any order gives the same plan."""
        made = step.made
        if made is None or made.plan is None or made.snapshot is None:
            return
        snapshot = made.snapshot
        if self._thorough or _does_something(made.plan) or snapshot.demands:
            yield from broken_invariants(snapshot, made.plan)
        if self._thorough and self._is_its_turn(snapshot, made.plan):
            turned = replace(
                snapshot,
                slices=snapshot.slices[::-1],
                demands=snapshot.demands[::-1],
                requests=snapshot.requests[::-1],
                groups=snapshot.groups[::-1],
            )
            again = plan(turned)
            if again != made.plan or again.placements != made.plan.placements:
                yield "S11", "the same snapshot in another order gives another plan"

    def _is_its_turn(self, snapshot: Snapshot, made: Plan) -> bool:
        """Whether a plan is repeated as a check; less often when only time has passed and there is nothing to do."""
        last, self._planned = self._planned, snapshot
        new = _does_something(made) or last is None or not _differ_by_time_alone(last, snapshot)
        self._plans[new] += 1
        return self._plans[new] % (REPLAN_EVERY if new else REPLAN_QUIET) == 1

    # -- money --------------------------------------------------------------------------------------------------------

    def accounts_total(self) -> int:
        return 0 if self._last is None else sum(account.total for account in self._last.account.values())

    def _accounts_add_up(self, step: CheckedStep) -> Iterator[tuple[str, str]]:
        """S14: the accounts of a group add up to the lifetimes of its slices times their prices."""
        instant, wanted = round(step.after.at * 10**6), self.followed.cost(step.after.at)
        accounts = step.after.account
        if any(account.upto != instant for account in accounts.values()):
            accounts = charged(accounts, step.after.fleet, step.after.stay, step.after.at)
        totals = {group: account.total for group, account in accounts.items()}
        if totals == wanted:
            return
        for group in sorted({*wanted, *totals}):
            total, cost = totals.get(group, 0), wanted.get(group, 0)
            if total != cost:
                yield "S14", f"the accounts of {group} hold {total}, its slices cost {cost}"


def _are_whole(gangs: Iterable[tuple[Job, int]]) -> Iterator[tuple[str, str]]:
    """S7: a gang runs completely or not at all."""
    for job, count in gangs:
        if count not in (0, job.demand.count):
            yield "S7", f"{count} of the {job.demand.count} members of gang {job.id} run"


def _differ_by_time_alone(one: Snapshot, other: Snapshot) -> bool:
    return (
        one.slices == other.slices
        and one.demands == other.demands
        and one.groups == other.groups
        and one.requests == other.requests
        and one.cluster == other.cluster
    )


def _does_something(plan: Plan) -> bool:
    return bool(plan.launches or plan.cancel or plan.drain or plan.uncordon or plan.mark or plan.unmark)


_WITHIN: dict[State, frozenset[State]] = {}


def _in_one_pass(old: SliceRecord, new: SliceRecord) -> bool:
    """Whether legal transitions lead from one state to the other without an unacknowledged end."""
    if new.state == State.TERMINATING and old.state in (State.READY, *RECALLABLE):
        return new.dead or (old.state in RECALLABLE and new.certified)
    if old.state not in _WITHIN:
        found, border = set[State](), {old.state}
        while border:
            border = {target for source, target in LEGAL if source in border} - found
            found |= border
        _WITHIN[old.state] = frozenset(found)
    return new.state in _WITHIN[old.state]
