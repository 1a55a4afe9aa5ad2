"""Fold: from what was seen to the next book. Pure; the time is an argument.

A source that failed or was late is unknown, and unknown is never zero: a record whose provider did not answer is left
as it is, and time limits that lead to an ending do not run against a silent workload. Every change of state comes
from here or from a plan, is legal by the table, and says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from windlass.core.lifecycle import ENDING, State
from windlass.core.quantities import ACCELERATORS
from windlass.core.reasons import Code, Reason, plural, seconds
from windlass.core.snapshot import Group, Node
from windlass.providers.protocol import Instance
from windlass.workloads.protocol import WorkloadView, WorkNode

from .records import Book, Failure, Luck, Moved, SliceRecord, moved


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """How long each state may last, in seconds."""

    requesting: float = 600
    booting: float = 900
    initializing: float = 900
    cordon: float = 60
    drain: float = 3600
    terminate: float = 300
    retry_terminate: float = 60
    missing: float = 300
    """A running slice none of whose nodes shows in the workload for so long is lost. Not at once: a heartbeat may be
    lost while the work goes on."""
    quota_block: float = 300
    tries: int = 3
    """How often a provider is asked for one slice, with the same token, before it counts as failed."""
    allow_eviction: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """A launch that the provider answered with an error."""

    slice_id: str
    code: Code
    """STOCKOUT, QUOTA, RATE_LIMITED (throttled: asked again later), or UNKNOWN_INPUT for anything else."""
    why: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What was observed since the last fold. None is "unknown", an empty tuple is "nothing"."""

    instances: Mapping[str, Sequence[Instance] | None]
    """By provider."""
    view: WorkloadView | None
    refused: tuple[Refused, ...] = ()


@dataclass(frozen=True, slots=True)
class Fold:
    """The next book and how it came about."""

    book: Book
    moves: tuple[Moved, ...]
    unknown: tuple[str, ...] = field(default=())
    """Sources that did not answer; nothing shrinks while there are any."""


def fold(
    book: Book,
    seen: Seen,
    groups: Mapping[str, Group],
    provider_of: Callable[[str], str],
    limits: TimeLimits,
    now: float,
) -> Fold:
    """The next book."""
    moves: list[Moved] = []
    listed = {one.slice_id: one for instances in seen.instances.values() for one in instances or ()}
    nodes: dict[str, list[WorkNode]] = {}
    for node in seen.view.nodes if seen.view else ():
        nodes.setdefault(node.slice_id, []).append(node)
    for refusal in sorted(seen.refused, key=lambda one: one.slice_id):
        book = _refused(book, refusal, limits, now, moves)
    for record in sorted(book.slices.values(), key=lambda one: one.id):
        known = seen.instances.get(provider_of(record.group)) is not None
        sight = _Sight(listed.get(record.id), known, tuple(nodes.get(record.id, ())), seen.view)
        following = _certified(_next(record, sight, groups.get(record.group), limits, now, moves), sight)
        if following is not record:
            book = book.with_records(following)
        if following.state != record.state and following.state in _BAD_LUCK:
            book = _unlucky(book, record.group, Failure(now, _BAD_LUCK[following.state]), following.reason.why)
    for instance in sorted(listed.values(), key=lambda one: one.slice_id):
        if instance.slice_id not in book.slices:
            book = _adopted(book, instance, groups, now, moves)
    unknown = [f"provider {name}" for name, instances in sorted(seen.instances.items()) if instances is None]
    return Fold(book, tuple(moves), (*unknown, *(() if seen.view else ("workload",))))


_BAD_LUCK = {
    State.LAUNCH_TIMEOUT: Code.REPLACE_FAILED,
    State.INIT_FAILED: Code.REPLACE_FAILED,
    State.LOST: Code.LOST,
}


@dataclass(frozen=True, slots=True)
class _Sight:
    """What was seen of one slice."""

    instance: Instance | None
    provider_known: bool
    nodes: tuple[WorkNode, ...]
    view: WorkloadView | None

    @property
    def gone(self) -> bool:
        return self.provider_known and self.instance is None

    def acknowledged(self, record: SliceRecord) -> int | None:
        """Tasks that still run by the acknowledgement of the current fence; None: not acknowledged."""
        words = [a for a in (self.view.acknowledged if self.view else ()) if a.slice_id == record.id]
        current = [word.running for word in words if word.epoch == record.fence]
        return max(current) if current else None


def _next(
    record: SliceRecord, sight: _Sight, group: Group | None, limits: TimeLimits, now: float, moves: list[Moved]
) -> SliceRecord:
    """The record after what was seen of it, state by state as far as that goes."""
    if record.quarantine:
        return record
    record = _with_nodes(record, sight, now)
    for _ in State:  # no life has more steps than there are states
        step = _step(record, sight, group, limits, now)
        if step is None:
            return record
        record, move = moved(record, step[0], now, step[1])
        if move is None:
            return record
        moves.append(move)
    return record


def _certified(record: SliceRecord, sight: _Sight) -> SliceRecord:
    """With the certificate that the workload gives now; whether the slice ends is decided after the plan.

    It stays beside the record of a slice that is ended, for whoever asks who said that it was empty.
    """
    if record.state in ENDING:
        return record
    certificate = record.fence if record.state == State.DRAINING and sight.acknowledged(record) == 0 else None
    return record if certificate == record.certificate else replace(record, certificate=certificate)


def _with_nodes(record: SliceRecord, sight: _Sight, now: float) -> SliceRecord:
    """The record with its nodes as they show; while none of them does, as they last did, and not healthy."""
    following = replace(record, seen=record.seen or sight.instance is not None)
    if sight.view is not None and sight.nodes:
        nodes = tuple(
            Node(one.id, one.used, one.tasks, one.idle_since, one.labels, one.healthy)
            for one in sorted(sight.nodes, key=lambda one: one.id)
        )
        following = replace(following, nodes=nodes, missing_since=None)
    elif sight.view is not None:
        nodes = tuple(replace(node, healthy=False) for node in record.nodes)
        missing_since = now if record.missing_since is None else record.missing_since
        following = replace(following, nodes=nodes, missing_since=missing_since)
    return record if following == record else following


def _step(
    record: SliceRecord, sight: _Sight, group: Group | None, limits: TimeLimits, now: float
) -> tuple[State, Reason] | None:
    """The next state and why, or None when it stays."""
    age = now - record.since
    match record.state:
        case State.REQUESTING:
            if sight.instance is not None:
                return State.BOOTING, Reason(Code.BOOTING, "the provider shows it")
            if sight.provider_known and age >= limits.requesting and record.attempts >= limits.tries:
                why = f"asked {record.attempts} times in {seconds(age)}, and nothing came"
                return State.LAUNCH_FAILED, Reason(Code.REPLACE_FAILED, why)
        case State.BOOTING | State.INITIALIZING:
            return _coming_up(record, sight, group, limits, age)
        case State.READY:
            return _lost(record, sight, limits, now)
        case State.CORDONED:
            if lost := _lost(record, sight, limits, now):
                return lost
            running = sight.acknowledged(record)
            if running is not None:
                return State.DRAINING, Reason(
                    record.reason.code, f"acknowledged: {plural(running, 'task')} still running"
                )
            if age >= limits.cordon:
                return State.READY, Reason(Code.DRAIN_ABORTED, f"not acknowledged within {seconds(limits.cordon)}")
        case State.DRAINING:
            if lost := _lost(record, sight, limits, now):
                return lost
            if age >= limits.drain and not limits.allow_eviction:
                return State.READY, Reason(Code.DRAIN_ABORTED, f"still busy after {seconds(limits.drain)}")
        case State.LAUNCH_TIMEOUT | State.INIT_FAILED:
            return State.TERMINATING, record.reason
        case State.LOST:
            if sight.gone:
                return State.TERMINATED, Reason(Code.LOST, "confirmed gone by the provider's list")
            if sight.instance is not None and _all_joined(sight, group) and not _dead_host(sight.instance):
                return State.READY, Reason(Code.BUSY, "it came back with its work")
            if sight.instance is not None:
                return State.TERMINATING, Reason(Code.LOST, "what is left of it is ended")
        case State.TERMINATING:
            if sight.gone:
                return State.TERMINATED, Reason(record.reason.code, "confirmed gone by the provider's list")
            if age >= limits.terminate:
                return State.TERMINATE_FAILED, Reason(record.reason.code, f"not gone after {seconds(age)}")
        case State.TERMINATE_FAILED:
            if sight.gone:
                return State.TERMINATED, Reason(record.reason.code, "confirmed gone by the provider's list")
            if age >= limits.retry_terminate:
                return State.TERMINATING, Reason(record.reason.code, "asked to end once more")
        case _:
            return None
    return None


def _coming_up(
    record: SliceRecord, sight: _Sight, group: Group | None, limits: TimeLimits, age: float
) -> tuple[State, Reason] | None:
    """BOOTING and INITIALIZING: joined, up, gone, or too late."""
    if sight.gone and record.seen:
        return State.LOST, Reason(Code.LOST, f"vanished from the provider's list while {record.state}")
    if sight.instance is not None and _all_joined(sight, group):
        return State.READY, Reason(Code.NOT_IDLE_LONG_ENOUGH, "all hosts joined with their accelerators")
    if record.state == State.BOOTING:
        up = sight.instance is not None and sight.instance.state == "running"
        if up and sight.instance is not None and all(host.running for host in sight.instance.hosts):
            return State.INITIALIZING, Reason(Code.LAUNCHING, "the machine is up; its hosts have not all joined")
        if sight.provider_known and age >= limits.booting:
            return State.LAUNCH_TIMEOUT, Reason(Code.REPLACE_FAILED, f"not up after {seconds(age)}")
    elif sight.view is not None and age >= limits.initializing:
        joined = len({node.id for node in sight.nodes})
        return State.INIT_FAILED, Reason(Code.REPLACE_FAILED, f"{plural(joined, 'host')} joined after {seconds(age)}")
    return None


def _all_joined(sight: _Sight, group: Group | None) -> bool:
    """Whether every host is in the workload, healthy, with the accelerators that its group promises."""
    if group is None or len({node.id for node in sight.nodes}) < group.hosts:
        return False
    promised = {name: amount for name, amount in group.resources if name in ACCELERATORS}
    return all(
        node.healthy and (node.present is None or all(dict(node.present).get(k, 0) >= v for k, v in promised.items()))
        for node in sight.nodes
    )


def _dead_host(instance: Instance) -> bool:
    """Whether it is being taken away, or a host died; in a pending one a host that does not run is not up yet."""
    if instance.state == "pending":
        return False
    return instance.state == "ending" or not all(host.running for host in instance.hosts)


def _lost(record: SliceRecord, sight: _Sight, limits: TimeLimits, now: float) -> tuple[State, Reason] | None:
    """READY and after: gone or dead without our asking. One dead host of a slice takes all of it."""
    if sight.gone:
        return State.LOST, Reason(Code.LOST, "vanished from the provider's list without our asking")
    if sight.instance is not None and _dead_host(sight.instance):
        preempted = sight.instance.preempted_at is not None
        code = Code.PREEMPTED if preempted else Code.LOST
        return State.LOST, Reason(code, "the provider takes it away" if preempted else "a host of it is dead")
    missing = 0.0 if record.missing_since is None else now - record.missing_since
    if sight.instance is not None and missing >= limits.missing:
        return State.LOST, Reason(Code.LOST, f"none of its hosts has been in the workload for {seconds(missing)}")
    return None


# -- refusals, luck, adoption --------------------------------------------------------------------------------------


def _refused(book: Book, refusal: Refused, limits: TimeLimits, now: float, moves: list[Moved]) -> Book:
    record = book.slices.get(refusal.slice_id)
    if record is None or record.state != State.REQUESTING:
        return book
    target = State.QUEUED if refusal.code == Code.RATE_LIMITED else State.LAUNCH_FAILED
    record, move = moved(record, target, now, Reason(refusal.code, refusal.why))
    if move is not None:
        moves.append(move)
    book = book.with_records(record)
    if refusal.code == Code.RATE_LIMITED:
        return book
    if refusal.code == Code.QUOTA:
        luck = book.luck.get(record.group, Luck())
        blocked = replace(luck, quota_until=now + limits.quota_block, last_error=refusal.why)
        return book.with_luck(record.group, blocked)
    return _unlucky(book, record.group, Failure(now, refusal.code), refusal.why)


def _unlucky(book: Book, group: str, failure: Failure, why: str) -> Book:
    luck = book.luck.get(group, Luck())
    return book.with_luck(group, replace(luck, failures=(*luck.failures, failure), last_error=why))


def _adopted(book: Book, instance: Instance, groups: Mapping[str, Group], now: float, moves: list[Moved]) -> Book:
    """An instance with our tag and without a record: taken over if its group exists, else on its way out."""
    reason = Reason(Code.LEAKED, "found at the provider with our tag and without a record")
    record = SliceRecord(instance.slice_id, instance.group, State.BOOTING, now, reason, reason, seen=True)
    moves.append(Moved(record.id, None, State.BOOTING, now, reason))
    if instance.group not in groups:
        gone = Reason(Code.GROUP_REMOVED, f"its group {instance.group} is not configured any more")
        record, move = moved(record, State.TERMINATING, now, gone)
        moves += [move] if move is not None else []
    return book.with_records(record)
