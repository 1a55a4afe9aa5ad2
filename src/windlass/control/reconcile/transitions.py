"""``fold`` applies observations to the states of slices. Pure; the time is an argument.

A source that failed is unknown, and unknown is never zero: a slice whose provider did not answer stays as it is, and
time limits that end a slice do not run while the workload is silent. Every change of state comes from here or from a
plan, is legal by the lifecycle table, and has a reason.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from windlass.control.observe.observed import PROVIDER, WORKLOAD, Observed, seller_of
from windlass.control.observe.slice_observation import SliceObservation
from windlass.control.settings import Policy, Settings
from windlass.control.state.fleet import (
    Failure,
    Fleet,
    Gone,
    Moved,
    ProviderHealth,
    Refused,
    SliceRecord,
    moved,
    seen_nodes,
)
from windlass.core.model.lifecycle import ENDED, ENDING, RECALLABLE, State
from windlass.core.model.reasons import Code, Reason, seconds
from windlass.core.model.snapshot import Group, Node
from windlass.providers.protocol import Instance
from windlass.workloads.protocol import Acknowledgement

from .provider_health import ended_after, over_quota, record_failure, succeeded, throttle_until
from .slice_steps import dead_hosts, next_step

REMEMBERED = 3600.0
"""Seconds for which a slice that is gone is remembered, in case a list that lags shows it again."""


@dataclass(frozen=True, slots=True)
class Fold:
    """The next fleet, and the transitions that led to it."""

    fleet: Fleet
    moves: tuple[Moved, ...]
    unknown: tuple[str, ...] = field(default=())
    """Sources that did not answer; nothing shrinks while there are any."""


def fold(
    fleet: Fleet,
    observed: Observed,
    settings: Settings,
    now: float,
    refused: Sequence[Refused] = (),
    touched: Collection[str] | None = None,
) -> Fold:
    """The next fleet. ``touched``: slices whose observation changed since the last one; None: any may have."""
    return _Folding(fleet, observed, settings, now).done(refused, touched)


class _Folding:
    """The state of one pass of transitions: records and provider health as they change."""

    def __init__(self, fleet: Fleet, observed: Observed, settings: Settings, now: float) -> None:
        self.fleet, self.observed, self.settings, self.now = fleet, observed, settings, now
        self.policy = settings.policy
        self.silent, self.workload_known = observed.silent, WORKLOAD not in observed.unknown
        self.changed: dict[str, SliceRecord] = {}
        self.provider_health: dict[str, ProviderHealth] = {}
        self.gone = fleet.gone
        if over := [name for name, one in fleet.gone.items() if now - one.at >= REMEMBERED]:
            self.gone = {name: one for name, one in fleet.gone.items() if name not in over}
        self.moves: list[Moved] = []

    def done(self, refused: Sequence[Refused], touched: Collection[str] | None) -> Fold:
        fleet = self.fleet
        for refusal in sorted(refused, key=lambda one: one.slice_id):
            self._refuse(refusal)
        for name in sorted(fleet.slices if touched is None else {*touched, *self.changed, *self._due()}):
            record = self.changed.get(name) or fleet.slices.get(name)
            if record is None:
                continue
            before = len(self.moves)
            following = self._certified(self._next(record))
            if following is not record:
                self.changed[name] = following
                if following.state != record.state:
                    self._learn(record, following, self.moves[before:])
        for name in sorted(self._without_record(touched)):
            if (instance := self._listed(name)) is not None:
                self._adopt(instance, seller_of(self.observed, self.settings, instance))
        unknown = [f"{PROVIDER}{name}" for name in sorted(self.silent)]
        unknown += [] if self.workload_known else [WORKLOAD]
        provider_health = {**fleet.provider_health, **self.provider_health} if self.provider_health else None
        return Fold(
            fleet.after(self.changed, provider_health=provider_health, gone=self.gone),
            tuple(self.moves),
            tuple(unknown),
        )

    def _due(self) -> list[str]:
        """Slices to process although their observation is unchanged: the limit of their state is over, or another timer
        runs for them. The others wait for a new observation."""
        policy, now = self.policy, self.now
        limits = {state: policy.limit_of(state) for state in State}
        over = {state: now - limit for state, limit in limits.items() if limit is not None}
        over |= {State.QUEUED: -inf, State.READY: -inf}
        return [
            name
            for name, one in self.fleet.activity.active.items()
            if one.since <= over.get(one.state, inf)
            or one.absent_since is not None
            or one.unwell_since is not None
            or one.leaving is not None
        ]

    def _without_record(self, touched: Collection[str] | None) -> set[str]:
        """Slices that a provider lists and the fleet does not have."""
        listed, known = self.observed.instance, self.fleet.slices
        if touched is None:
            return listed.keys() - known.keys()
        # What was listed before has a record, unless it has ended since.
        return {name for name in (*touched, *(listed.keys() & self.fleet.gone.keys())) if name in listed} - known.keys()

    def _listed(self, name: str) -> Instance | None:
        """The entry of a slice in the list of a provider that has answered."""
        found = self._answer_about(name)
        return None if found is None or found.state == "ended" else found

    def _answer_about(self, name: str) -> Instance | None:
        """What a provider that has answered says of a slice, also that it has ended."""
        found = self.observed.instance.get(name)
        if found is None or (self.silent and seller_of(self.observed, self.settings, found) in self.silent):
            return None
        return found

    def _provider_health(self, group: str) -> ProviderHealth:
        return self.provider_health.get(group) or self.fleet.provider_health.get(group) or ProviderHealth()

    def _group(self, name: str) -> Group | None:
        sold = self.settings.by_name.get(name)
        return sold.group if sold is not None else None

    def _word(self, record: SliceRecord) -> Acknowledgement | None:
        """What the workload says about the cordon of a slice, of whichever fence."""
        return self.observed.word.get(record.id) if self.workload_known else None

    def _running(self, record: SliceRecord) -> int | None:
        """Tasks that still run there by the workload's word for the current fence; None: there is no such word."""
        word = self._word(record)
        return word.running if word is not None and word.epoch == record.fence and not word.refused else None

    # -- one record ---------------------------------------------------------------------------------------------------

    def _sight(self, record: SliceRecord) -> SliceObservation:
        word, shown = self._word(record), self._answer_about(record.id)
        ended = shown is not None and shown.state == "ended"
        return SliceObservation(
            instance=None if ended else shown,
            provider_known=record.provider not in self.silent,
            nodes=self.observed.nodes_of.get(record.id, ()) if self.workload_known else (),
            workload_known=self.workload_known,
            running=self._running(record),
            refused=word.refused if word is not None and word.epoch == record.fence else "",
            final=word is not None and word.final and not word.refused,
            ended=ended,
            ended_at=shown.ended_at if shown is not None and ended else None,
            started_at=shown.started_at if shown is not None and ended else None,
        )

    def _next(self, record: SliceRecord) -> SliceRecord:
        """The record after what was seen of it, state by state as far as that goes."""
        if record.quarantine:
            return record
        sight, group = self._sight(record), self._group(record.group)
        record = _looked_at(record, sight, group, self.policy, self.now)
        for _ in range(_MOST_STEPS):
            step = next_step(record, sight, group, self.policy, self.now)
            if step is None:
                return record
            record, move = moved(record, step[0], self.now, step[1])
            if move is None:
                return record
            self.moves.append(move)
            if record.state == State.CORDONED:
                sight = self._sight(record)  # what was acknowledged was an earlier cordon
            elif record.state == State.LOST:
                record = record.replace(dead=True, dead_hosts=dead_hosts(sight))
            elif record.state == State.INIT_FAILED:
                record = record.replace(dead_hosts=dead_hosts(sight))
            elif record.state == State.READY:
                # One that was adopted may have been marked by a controller whose journal is lost: its node shows it.
                marks = [] if record.joined_at is not None else [one.marked_until for one in sight.nodes]
                until = max((one for one in marks if one is not None), default=None)
                record = record.replace(dead=False, joined_at=record.joined_at or self.now, marked_until=until)
        return record

    def _certified(self, record: SliceRecord) -> SliceRecord:
        """With the certificate that the workload gives now; whether the slice ends is decided after the plan.

        It is kept until the end, so that `why` can show who said that the slice was empty.
        """
        certificate = None
        if record.state in _WAITING_FOR_A_WORD:
            if record.state == State.TERMINATING and record.certified:
                return record
            certificate = record.fence if self._running(record) == 0 else None
        elif record.state in ENDING:
            return record
        return record if certificate == record.certificate else record.replace(certificate=certificate)

    # -- provider health -----------------------------------------------------------------------------------------------

    def _learn(self, before: SliceRecord, after: SliceRecord, moves: list[Moved]) -> None:
        """What the moves of a record say about its group's provider. A machine that crashes says nothing about it."""
        provider_health, rules = self._provider_health(after.group), self.policy.backoff
        for move in moves:
            taken = move.reason.code == Code.PREEMPTED
            failed = move.target in _FAILED or (move.source, move.target) == (State.REQUESTING, State.TERMINATING)
            if failed or (move.target == State.LOST and (taken or before.joined_at is None)):
                crashed = Code.LOST if move.target == State.LOST else Code.REPLACE_FAILED
                code = Code.PREEMPTED if taken else crashed
                self.provider_health[after.group] = record_failure(
                    provider_health, Failure(self.now, code), move.reason.why, rules
                )
                return
        if after.state == State.TERMINATED and before.state == State.TERMINATING and before.seen:
            self.provider_health[after.group] = ended_after(provider_health, max(0.0, self.now - before.since))
        if after.state == State.READY and before.joined_at is None:
            boot = None if after.asked_at is None else max(0.0, self.now - after.asked_at)
            self.provider_health[after.group] = succeeded(provider_health, self.now, boot)

    def _refuse(self, refusal: Refused) -> None:
        record = self.changed.get(refusal.slice_id) or self.fleet.slices.get(refusal.slice_id)
        if record is None or record.state != State.REQUESTING:
            return
        throttled = refusal.code == Code.RATE_LIMITED
        target = State.QUEUED if throttled else State.LAUNCH_FAILED if refusal.certain else State.TERMINATING
        record, move = moved(record, target, self.now, Reason(refusal.code, refusal.why))
        if move is not None:
            self.moves.append(move)
        self.changed[record.id] = record
        provider_health, rules = self._provider_health(record.group), self.policy.backoff
        if refusal.code == Code.QUOTA:
            self.provider_health[record.group] = over_quota(provider_health, refusal.why, rules, self.now)
        elif throttled:
            self.provider_health[record.group] = throttle_until(provider_health, self.now + refusal.retry_after)
        else:
            self.provider_health[record.group] = record_failure(
                provider_health, Failure(self.now, refusal.code), refusal.why, rules
            )

    # -- adoption -----------------------------------------------------------------------------------------------------

    def _adopt(self, instance: Instance, provider: str) -> None:
        """An instance with our tag and without a record: taken over, or ended once more if it was ended empty."""
        before = self.gone.get(instance.slice_id)
        if before is not None:
            self.gone = {name: one for name, one in self.gone.items() if name != instance.slice_id}
        again = before is not None and before.certified
        why = "found at the provider with our tag and without a record"
        reason = Reason(Code.LEAKED, "shows again after it was ended" if again else why)
        group = self._group(instance.group)
        price = instance.price if instance.price is not None else (group.price or 0) if group else 0
        # One that was billed before and shows again is billed from now on; one that was not, from its start.
        billed = before is not None and before.state != State.LAUNCH_FAILED
        started_at = None if billed or instance.started_at is None else instance.started_at
        record = SliceRecord(
            instance.slice_id,
            instance.group,
            provider,
            State.BOOTING,
            self.now,
            reason,
            reason,
            price,
            hosts=group.hosts if group is not None else max(1, len(instance.hosts)),
            seen=True,
            billed_since=self.now if started_at is None else min(self.now, started_at),
            started_at=started_at,
        )
        self.moves.append(Moved(record.id, None, State.BOOTING, self.now, reason))
        if again:
            record, move = moved(record, State.TERMINATING, self.now, reason)
            self.moves += [move] if move is not None else []
        self.changed[record.id] = self._certified(self._next(record))


_FAILED = frozenset({State.LAUNCH_FAILED, State.LAUNCH_TIMEOUT, State.INIT_FAILED})
"""States that a launch or a boot goes wrong to."""
_WAITING_FOR_A_WORD = frozenset({State.DRAINING, State.TERMINATING})
_MOST_STEPS = len(State)
"""No life has more steps than there are states."""


def _looked_at(
    record: SliceRecord, sight: SliceObservation, group: Group | None, policy: Policy, now: float
) -> SliceRecord:
    """The record with what shows of it; nodes that do not show stay as they last did, and are not healthy."""
    changes: dict[str, object] = {}
    if sight.instance is not None:
        if not record.seen:
            changes["seen"] = True
        if record.absent_since is not None:
            changes["absent_since"] = None
        if record.billed_since is None:
            changes |= _bill_begins(record, sight.instance, now)
    elif sight.provider_known:
        if record.billed_since is not None:
            billed = round(now * 10**6) - round(record.billed_since * 10**6)
            changes |= {"billed_since": None, "bill_from": now, "billed_us": record.billed_us + billed}
        if sight.ended_at is not None and record.ended_at is None:
            changes["ended_at"] = sight.ended_at
            if not record.seen and sight.started_at is not None:  # it came and went between two lists
                changes["started_at"] = sight.started_at
        if record.absent_since is None and (record.seen or record.state in ENDING):
            changes["absent_since"] = now
    elif record.absent_since is not None and not record.is_empty and sight.shows_life(record):
        # Not observed now. Two lists without it, with a long gap between them, do not show that it was always missing.
        changes["absent_since"] = None
    if sight.workload_known:
        nodes = _nodes(record, sight)
        if nodes != record.nodes:
            changes["nodes"] = nodes
        unwell = record.joined_at is not None and not sight.whole(group) and sight.instance is not None
        if unwell != (record.unwell_since is not None):
            changes["unwell_since"] = now if unwell else None
            if not unwell and record.leaving is not None and record.leaving.code == Code.UNHEALTHY:
                changes["leaving"] = None
    if sight.final != record.final and (sight.final or record.state not in RECALLABLE) and sight.workload_known:
        changes["final"] = sight.final
    if record.leaving is None and record.state not in ENDING:
        leaving = _must_leave(record, sight, policy, now)
        if leaving is not None:
            changes["leaving"] = leaving
    return record.replace(**changes) if changes else record


def _bill_begins(record: SliceRecord, instance: Instance, now: float) -> dict[str, object]:
    """What a record says of its bill from the list on that shows its machine: for the first time, or again.

    The time that the provider gives lies between the order and the list, whatever its clock shows.
    """
    begins = now if record.bill_from is None else record.bill_from
    if record.seen or instance.started_at is None:
        return {"billed_since": begins, "bill_from": None}
    begins = min(now, max(instance.started_at, begins) if record.bill_from is not None else instance.started_at)
    return {"billed_since": begins, "bill_from": None, "started_at": instance.started_at}


def _nodes(record: SliceRecord, sight: SliceObservation) -> tuple[Node, ...]:
    shown = seen_nodes(sight.nodes)
    if len(shown) >= len(record.nodes):
        return shown
    here = {node.id: node for node in shown}
    for node in record.nodes:
        here.setdefault(node.id, node if not node.healthy else replace(node, healthy=False))
    return tuple(here[name] for name in sorted(here))


def _must_leave(record: SliceRecord, sight: SliceObservation, policy: Policy, now: float) -> Reason | None:
    """A slice that has joined and must go, although a machine is still there."""
    if record.joined_at is None:
        return None
    if why := next((node.leaving for node in sight.nodes if node.leaving), ""):
        return Reason(Code.MANUAL, why)
    if why := next((node.repair for node in sight.nodes if node.repair), ""):
        return Reason(Code.UNHEALTHY, why)
    taken_at = sight.instance.preempted_at if sight.instance is not None else None
    if taken_at is not None:
        return Reason(Code.PREEMPTED, f"the provider takes it in {seconds(max(0, round(taken_at - now)))}")
    unwell = 0.0 if record.unwell_since is None else now - record.unwell_since
    if unwell >= policy.unhealthy_timeout:
        return Reason(Code.UNHEALTHY, f"not whole and healthy in the workload for {seconds(unwell)}")
    return None


def _ended_as(record: SliceRecord, now: float) -> Gone:
    return Gone(now, record.certified, record.group, record.failed or record.state)


def ended(fleet: Fleet) -> tuple[str, ...]:
    """Slices that have come to their end and may be forgotten once that is in the journal."""
    return tuple(sorted([record.id for record in fleet.activity.active.values() if record.state in ENDED]))


def forgotten(fleet: Fleet, now: float) -> Fleet:
    """The fleet without the slices that have ended; their end is remembered for a while."""
    over = ended(fleet)
    if not over:
        return fleet
    gone = {name: _ended_as(fleet.slices[name], now) for name in over}
    return fleet.after({}, over, gone={**fleet.gone, **gone})
