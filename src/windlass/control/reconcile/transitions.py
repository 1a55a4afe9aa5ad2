"""``fold`` applies observations to the states of slices. Pure; the time is an argument.

A source that failed is unknown, and unknown is never zero: a slice whose provider did not answer stays as it is, and
time limits that end a slice do not run while the workload is silent. Every change of state comes from here or from a
plan, is legal by the lifecycle table, and has a reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from types import MappingProxyType
from typing import Any, Final

from windlass.control.observe.observed import PROVIDER, WORKLOAD, Observed, provider_of
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
"""Seconds for which an ended slice is remembered, in case a lagging list shows it again."""

NEVER_LISTED: Final[Mapping[str, float]] = MappingProxyType({})
"""No provider has answered before."""


@dataclass(frozen=True, slots=True)
class Fold:
    """The next fleet, and the transitions that led to it."""

    fleet: Fleet
    moves: tuple[Moved, ...]
    unknown: tuple[str, ...] = field(default=())
    """Sources that did not answer; while there are any, nothing shrinks."""


def fold(
    fleet: Fleet,
    observed: Observed,
    settings: Settings,
    now: float,
    refused: Sequence[Refused] = (),
    touched: Collection[str] | None = None,
    listed_before: Mapping[str, float] = NEVER_LISTED,
) -> Fold:
    """Return the next fleet. ``touched``: slices whose observation changed; None: any may have. ``listed_before``: when
    each provider answered last before this observation, by our clock.
    """
    return _Folding(fleet, observed, settings, now, listed_before).done(refused, touched)


class _Folding:
    """The state of one pass of transitions: records and provider health as they change."""

    def __init__(
        self, fleet: Fleet, observed: Observed, settings: Settings, now: float, listed_before: Mapping[str, float]
    ) -> None:
        self.fleet, self.observed, self.settings, self.now = fleet, observed, settings, now
        self.listed_before = listed_before
        self.policy = settings.policy
        self.silent, self.workload_known = observed.silent, WORKLOAD not in observed.unknown
        self.changed: dict[str, SliceRecord] = {}
        self.provider_health: dict[str, ProviderHealth] = {}
        self.gone = fleet.gone
        listed = observed.instance
        if over := [name for name, one in fleet.gone.items() if now - one.at >= REMEMBERED and name not in listed]:
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
                self._adopt(instance, provider_of(self.observed, self.settings, instance))
        unknown = [f"{PROVIDER}{name}" for name in sorted(self.silent)]
        unknown += [] if self.workload_known else [WORKLOAD]
        provider_health = {**fleet.provider_health, **self.provider_health} if self.provider_health else None
        return Fold(
            fleet.after(self.changed, provider_health=provider_health, gone=self.gone),
            tuple(self.moves),
            tuple(unknown),
        )

    def _due(self) -> list[str]:
        """Return the slices to process although their observation is unchanged: the limit of their state has passed, or
        another timer runs for them. The others wait for a new observation.
        """
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
        """Return the slices that a provider lists and the fleet does not have."""
        listed, known = self.observed.instance, self.fleet.slices
        if touched is None:
            return listed.keys() - known.keys()
        # Slices that were listed before have a record, unless they have ended since.
        return {name for name in (*touched, *(listed.keys() & self.fleet.gone.keys())) if name in listed} - known.keys()

    def _listed(self, name: str) -> Instance | None:
        """Return the instance of a slice in the list of a provider that has answered."""
        found = self._answer_about(name)
        return None if found is None or found.state == "ended" else found

    def _answer_about(self, name: str) -> Instance | None:
        """Return the instance of a slice from a provider that has answered, also one that has ended."""
        found = self.observed.instance.get(name)
        if found is None or (self.silent and provider_of(self.observed, self.settings, found) in self.silent):
            return None
        return found

    def _provider_health(self, group: str) -> ProviderHealth:
        return self.provider_health.get(group) or self.fleet.provider_health.get(group) or ProviderHealth()

    def _group(self, name: str) -> Group | None:
        configured = self.settings.by_name.get(name)
        return configured.group if configured is not None else None

    def _acknowledgement(self, record: SliceRecord) -> Acknowledgement | None:
        """Return the workload's acknowledgement for a slice, of any fence."""
        return self.observed.acknowledgement.get(record.id) if self.workload_known else None

    def _running(self, record: SliceRecord) -> int | None:
        """Return the running tasks from the acknowledgement of the current fence; None: there is no such
        acknowledgement.
        """
        ack = self._acknowledgement(record)
        return ack.running if ack is not None and ack.epoch == record.fence and not ack.refused else None

    # -- one record ---------------------------------------------------------------------------------------------------

    def _sight(self, record: SliceRecord) -> SliceObservation:
        ack, shown = self._acknowledgement(record), self._answer_about(record.id)
        ended = shown is not None and shown.state == "ended"
        return SliceObservation(
            instance=None if ended else shown,
            provider_known=record.provider not in self.silent,
            nodes=self.observed.nodes_of.get(record.id, ()) if self.workload_known else (),
            workload_known=self.workload_known,
            running=self._running(record),
            refused=ack.refused if ack is not None and ack.epoch == record.fence else "",
            final=ack is not None and ack.final and not ack.refused,
            ended=ended,
            ended_at=shown.ended_at if shown is not None and ended else None,
            started_at=shown.started_at if shown is not None and ended else None,
        )

    def _next(self, record: SliceRecord) -> SliceRecord:
        """Return the record after its observation, with as many transitions as the observation allows."""
        if record.quarantine:
            return record
        sight, group = self._sight(record), self._group(record.group)
        configured = self.settings.by_name.get(record.group)
        listed = configured is not None and (configured.billed_as_listed or configured.group.price is None)
        record = _with_observation(record, sight, group, self.policy, self.now, listed=listed)
        for _ in range(_MOST_STEPS):
            step = next_step(record, sight, group, self.policy, self.now)
            if step is None:
                return record
            record, move = moved(record, step[0], self.now, step[1])
            if move is None:
                return record
            self.moves.append(move)
            if record.state == State.CORDONED:
                sight = self._sight(record)  # an acknowledgement of an earlier cordon
            elif record.state == State.LOST:
                record = record.replace(dead=True, dead_hosts=dead_hosts(sight))
            elif record.state == State.INIT_FAILED:
                record = record.replace(dead_hosts=dead_hosts(sight))
            elif record.state == State.READY:
                # An adopted slice may have been marked by a controller whose journal is lost: its node shows the mark.
                marks = [] if record.joined_at is not None else [one.marked_until for one in sight.nodes]
                until = max((one for one in marks if one is not None), default=None)
                record = record.replace(dead=False, joined_at=record.joined_at or self.now, marked_until=until)
        return record

    def _certified(self, record: SliceRecord) -> SliceRecord:
        """Return the record with the workload's current certificate; whether the slice ends is decided after the plan.
        The certificate is kept, so that `why` can show that the workload reported the slice as empty.
        """
        certificate = None
        if record.state in _WAITING_FOR_WORKLOAD:
            if record.state == State.TERMINATING and record.certified:
                return record
            certificate = record.fence if self._running(record) == 0 else None
        elif record.state in ENDING:
            return record
        return record if certificate == record.certificate else record.replace(certificate=certificate)

    # -- provider health -----------------------------------------------------------------------------------------------

    def _learn(self, before: SliceRecord, after: SliceRecord, moves: list[Moved]) -> None:
        """Update the provider health of a group from the transitions of a record. A machine that crashes does not
        count.
        """
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
        throttled, asked_at = refusal.code == Code.RATE_LIMITED, record.since
        target = State.QUEUED if throttled else State.LAUNCH_FAILED if refusal.certain else State.TERMINATING
        record, move = moved(record, target, self.now, Reason(refusal.code, refusal.why))
        if move is not None:
            self.moves.append(move)
        if throttled and record.bill_from is not None and record.bill_from >= asked_at:
            record = record.replace(bill_from=None)  # this call bought nothing, and no earlier one may have
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
        """Adopt an instance that has our tag but no record; terminate it again if it was ended before while empty."""
        before = self.gone.get(instance.slice_id)
        if before is not None:
            self.gone = {name: one for name, one in self.gone.items() if name != instance.slice_id}
        again = before is not None and before.certified
        why = "found at the provider with our tag and without a record"
        reason = Reason(Code.LEAKED, "listed again after it was ended" if again else why)
        group = self._group(instance.group)
        price = instance.price if instance.price is not None else (group.price or 0) if group else 0
        # Its bill begins in `_with_observation`, like that of every listed slice.
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
            **self._bill_before(before, instance, provider),
        )
        self.moves.append(Moved(record.id, None, State.BOOTING, self.now, reason))
        if again:
            record, move = moved(record, State.TERMINATING, self.now, reason)
            self.moves += [move] if move is not None else []
        self.changed[record.id] = self._certified(self._next(record))

    def _bill_before(self, before: Gone | None, instance: Instance, provider: str) -> dict[str, Any]:
        """Return the billing fields of an adopted slice. One that was given up and is listed again was never gone, so
        the time in between is billed. One that started before the period in which ends are remembered may have been
        billed already: it is billed for that period only. One that the last list did not show is new: if its start time
        is earlier, the list was late by at most ``vanish_timeout``, or the provider's clock is behind ours.
        """
        if before is not None:
            return {
                "seen": before.seen,
                "bill_from": before.bill_from,
                "billed_us": before.billed_us if before.bill_from is not None else 0,
                "started_at": before.started_at if before.bill_from is not None else None,
            }
        if instance.started_at is None:
            return {}
        earliest = self.listed_before.get(provider, -inf) - self.policy.vanish_timeout
        if instance.started_at < earliest:
            return {"bill_from": earliest}
        if instance.started_at < self.now - REMEMBERED:
            return {"seen": True, "bill_from": self.now - REMEMBERED}
        return {}


_FAILED = frozenset({State.LAUNCH_FAILED, State.LAUNCH_TIMEOUT, State.INIT_FAILED})
"""States of a failed launch or boot."""
_WAITING_FOR_WORKLOAD = frozenset({State.DRAINING, State.TERMINATING})
_MOST_STEPS = len(State)
"""Most transitions of one record in a pass."""


def _with_observation(
    record: SliceRecord, sight: SliceObservation, group: Group | None, policy: Policy, now: float, *, listed: bool
) -> SliceRecord:
    """Return the record with its current observation. Nodes that are not visible keep their last values and count as
    unhealthy. ``listed``: the price that the provider lists is the one that is billed.
    """
    changes: dict[str, object] = {}
    if sight.instance is not None:
        changes = _when_listed(record, sight.instance, now, at_its_price=listed)
    elif sight.provider_known:
        changes = _when_absent(record, sight, now)
    elif record.absent_since is not None and not record.is_empty and sight.shows_life(record):
        # Not observed now, and its work is seen. Two lists without it, with a long gap in between, do not prove that it
        # was missing all the time; so it is billed on, too.
        changes = {"absent_since": None}
        if record.bill_from is not None:
            changes |= {"billed_since": record.bill_from, "bill_from": None}
    if sight.workload_known:
        changes |= _from_workload(record, sight, group, now)
    if record.leaving is None and record.state not in ENDING:
        leaving = _must_leave(record, sight, policy, now)
        if leaving is not None:
            changes["leaving"] = leaving
    return record.replace(**changes) if changes else record


def _when_listed(record: SliceRecord, instance: Instance, now: float, *, at_its_price: bool) -> dict[str, object]:
    """Return the changes of a record whose machine the provider lists. ``at_its_price``: it is billed at the price in
    the list.
    """
    changes: dict[str, object] = {}
    if not record.seen:
        changes["seen"] = True
    if record.absent_since is not None:
        changes["absent_since"] = None
    if record.billed_since is None:
        changes |= _bill_begins(record, instance, now)
        if not record.seen and at_its_price and instance.price is not None:
            changes["price"] = instance.price
    return changes


def _when_absent(record: SliceRecord, sight: SliceObservation, now: float) -> dict[str, object]:
    """Return the changes of a record whose machine is not in the provider's list."""
    changes: dict[str, object] = {}
    if record.billed_since is not None:
        billed = round(now * 10**6) - round(record.billed_since * 10**6)
        changes |= {"billed_since": None, "bill_from": now, "billed_us": record.billed_us + billed}
    if sight.ended and (record.billed_since is not None or record.bill_from is not None):
        changes["bill_from"] = None
    if sight.ended_at is not None and record.ended_at is None:
        changes["ended_at"] = sight.ended_at
        if record.started_at is None and sight.started_at is not None:
            # It started and ended between two lists, or the lists do not show when. Both times are by one clock: ours
            # may be wrong.
            changes["started_at"] = sight.started_at
    if record.absent_since is None and (record.seen or record.state in ENDING):
        changes["absent_since"] = now
    return changes


def _from_workload(record: SliceRecord, sight: SliceObservation, group: Group | None, now: float) -> dict[str, object]:
    """Return the changes of a record that follow from the workload's view of its nodes."""
    changes: dict[str, object] = {}
    nodes = _nodes(record, sight)
    if nodes != record.nodes:
        changes["nodes"] = nodes
    unwell = record.joined_at is not None and not sight.whole(group) and sight.instance is not None
    if unwell != (record.unwell_since is not None):
        changes["unwell_since"] = now if unwell else None
        if not unwell and record.leaving is not None and record.leaving.code == Code.UNHEALTHY:
            changes["leaving"] = None
    if sight.final != record.final and (sight.final or record.state not in RECALLABLE):
        changes["final"] = sight.final
    return changes


def _bill_begins(record: SliceRecord, instance: Instance, now: float) -> dict[str, object]:
    """Return the billing fields of a record when a list shows its machine for the first time, or again. The provider's
    start time is clamped between the order and the list, in case its clock is off.
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
    """Return why a slice that has joined must be drained although its machine still exists."""
    if record.joined_at is None:
        return None
    if why := next((node.leaving for node in sight.nodes if node.leaving), ""):
        return Reason(Code.MANUAL, why)
    if why := next((node.repair for node in sight.nodes if node.repair), ""):
        return Reason(Code.UNHEALTHY, why)
    taken_at = sight.instance.preempted_at if sight.instance is not None else None
    if taken_at is not None:
        return Reason(Code.PREEMPTED, f"the provider preempts it in {seconds(max(0, round(taken_at - now)))}")
    unwell = 0.0 if record.unwell_since is None else now - record.unwell_since
    if unwell >= policy.unhealthy_timeout:
        return Reason(Code.UNHEALTHY, f"incomplete or unhealthy in the workload for {seconds(unwell)}")
    return None


def _ended_as(record: SliceRecord, now: float) -> Gone:
    return Gone(
        now,
        record.certified,
        record.group,
        record.failed or record.state,
        record.bill_from,
        record.billed_us,
        record.started_at,
        record.seen,
    )


def ended(fleet: Fleet) -> tuple[str, ...]:
    """Return the slices that have ended and may be removed once that is in the journal."""
    return tuple(sorted([record.id for record in fleet.activity.active.values() if record.state in ENDED]))


def forgotten(fleet: Fleet, now: float) -> Fleet:
    """Return the fleet without the ended slices; their end is remembered for a while."""
    over = ended(fleet)
    if not over:
        return fleet
    gone = {name: _ended_as(fleet.slices[name], now) for name in over}
    return fleet.after({}, over, gone={**fleet.gone, **gone})
