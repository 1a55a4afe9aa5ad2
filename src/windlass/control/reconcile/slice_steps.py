"""This module decides the next state of one slice, and why, from what is observed of it. Pure; the time is an
argument.

A slice that is missing from its provider's list is gone when the provider confirms its end, or after
``vanish_timeout``; while the workload still sees its hosts, after ``unhealthy_timeout``.
"""

from __future__ import annotations

from dataclasses import replace

from windlass.control.observe.slice_observation import SliceObservation
from windlass.control.settings import Policy
from windlass.control.state.fleet import SliceRecord
from windlass.core.model.lifecycle import State
from windlass.core.model.reasons import Code, Reason, plural, seconds
from windlass.core.model.snapshot import Group
from windlass.providers.protocol import Host, Instance

LONGEST_OUTPUT = 2000
"""Characters of the output of a dead host that are kept."""
MOST_DEAD_HOSTS = 4
"""Dead hosts of one slice whose output is kept."""


def _death(instance: Instance | None, text: str) -> str:
    """A sentence that a host is dead, and why, if the provider knows."""
    return f"{text}: {instance.trouble}" if instance is not None and instance.trouble else text


def dead_hosts(sight: SliceObservation) -> tuple[Host, ...]:
    """The dead hosts of a slice with what they left behind, bounded: the journal keeps it."""
    hosts = [one for one in (sight.instance.hosts if sight.instance is not None else ()) if not one.running]
    dead = [one for one in hosts if one.exit_code is not None or one.last_output]
    return tuple([replace(one, last_output=one.last_output[-LONGEST_OUTPUT:]) for one in dead[:MOST_DEAD_HOSTS]])


def next_step(
    record: SliceRecord, sight: SliceObservation, group: Group | None, policy: Policy, now: float
) -> tuple[State, Reason] | None:
    """The next state and why, or None when it stays."""
    age, limit = now - record.since, policy.limit_of(record.state) or 0.0
    match record.state:
        case State.REQUESTING:
            if sight.instance is not None:
                return State.BOOTING, Reason(Code.BOOTING, "the provider shows it")
            if age >= limit:
                why = f"asked {plural(record.attempts, 'time')} in {seconds(age)}, and nothing came"
                if sight.provider_known and record.attempts >= policy.tries:
                    return State.LAUNCH_FAILED, Reason(Code.REPLACE_FAILED, why)
                # A call hangs, or the list cannot be had: it may have been bought. It keeps its place and is ended when
                # it comes; its demand is served elsewhere.
                return State.TERMINATING, Reason(Code.REPLACE_FAILED, f"{why}; the provider has not answered")
        case State.BOOTING | State.INITIALIZING:
            return _coming_up(record, sight, group, policy, now)
        case State.READY:
            if sight.final:
                return State.CORDONED, Reason(Code.IDLE, "the workload has ended it under an earlier drain")
            return _lost(record, sight, policy, now)
        case State.CORDONED:
            if not sight.final and (lost := _lost(record, sight, policy, now)):
                return lost
            if sight.running is not None:
                why = f"acknowledged: {plural(sight.running, 'task')} still running"
                return State.DRAINING, Reason(record.reason.code, why)
            if sight.refused:
                if group is None or record.must_go:
                    return State.DRAINING, Reason(record.reason.code, f"its work is waited for: {sight.refused}")
                return State.READY, Reason(Code.DRAIN_ABORTED, sight.refused)
            if age >= limit:
                return State.READY, Reason(Code.DRAIN_ABORTED, f"not acknowledged within {seconds(limit)}")
        case State.DRAINING:
            # A slice that ends after its final drain was released, and is not lost.
            if not sight.final and (lost := _lost(record, sight, policy, now)):
                return lost
            if sight.running and record.marked_until is not None and record.leaving is None and group is not None:
                # Only empty slices are marked. Work has landed there after all: it stays, and is marked no more.
                return State.READY, Reason(Code.DRAIN_ABORTED, f"{plural(sight.running, 'task')} landed there")
            evicted = policy.allow_eviction and record.must_go
            patient = evicted or record.leaving is not None or group is None or record.final
            if age >= limit and not patient and not record.certified:
                return State.READY, Reason(Code.DRAIN_ABORTED, f"still busy after {seconds(limit)}")
        case State.LAUNCH_TIMEOUT | State.INIT_FAILED:
            return State.TERMINATING, record.reason
        case State.LOST:
            if _gone(record, sight, policy, now):
                return State.TERMINATED, Reason(record.reason.code, "confirmed gone by the provider's list")
            if sight.whole(group) and not sight.dead_host:
                return State.READY, Reason(Code.BUSY, "it came back with its work")
            if sight.instance is not None:
                return State.TERMINATING, Reason(record.reason.code, "what is left of it is ended")
        case State.TERMINATING | State.TERMINATE_FAILED:
            if _gone(record, sight, policy, now) and (record.is_empty or not _contradicted(record, sight, policy, now)):
                return State.TERMINATED, Reason(record.reason.code, "confirmed gone by the provider's list")
            if record.state == State.TERMINATING and age >= limit:
                return State.TERMINATE_FAILED, Reason(record.reason.code, f"not gone after {seconds(age)}")
            if record.state == State.TERMINATE_FAILED and age >= _TERMINATE_AGAIN:
                return State.TERMINATING, Reason(record.reason.code, "asked to end once more")
        case _:
            return None
    return None


_TERMINATE_AGAIN = 60.0


def _gone(record: SliceRecord, sight: SliceObservation, policy: Policy, now: float) -> bool:
    """Confirmed gone by the provider, or missing from its list for long enough. One list without it is not enough: a
    page may be lost, a replica may lag."""
    if sight.ended:
        return True
    if not sight.absent or record.absent_since is None or now < unseen_until(record, policy):
        return False
    return now - record.absent_since >= policy.vanish_timeout


def _contradicted(record: SliceRecord, sight: SliceObservation, policy: Policy, now: float) -> bool:
    """Whether the workload sees hosts of a slice that its provider does not list: one of the two is wrong, and as long
    as it may be the list, work that runs there is not given up."""
    if sight.ended or record.absent_since is None or not sight.shows_life(record):
        return False
    return now - record.absent_since < policy.unhealthy_timeout


def unseen_until(record: SliceRecord, policy: Policy) -> float:
    """Until when a requested slice that was never listed may still appear. Lists lag behind launches, and a place that
    is freed too soon is bought twice."""
    if record.seen or record.asked_at is None:
        return 0.0
    return policy.next_attempt(record.since, 1)


def _coming_up(
    record: SliceRecord, sight: SliceObservation, group: Group | None, policy: Policy, now: float
) -> tuple[State, Reason] | None:
    """BOOTING and INITIALIZING: joined, up, gone, or too late."""
    age = now - record.since
    if record.seen and _gone(record, sight, policy, now) and not _contradicted(record, sight, policy, now):
        return State.LOST, Reason(Code.LOST, f"vanished from the provider's list while {record.state}")
    if sight.whole(group):
        return State.READY, Reason(record.started_for.code, "every host has joined")
    if record.state == State.BOOTING:
        up = sight.instance is not None and sight.instance.state == "running"
        if up and sight.instance is not None and all(host.running for host in sight.instance.hosts):
            return State.INITIALIZING, Reason(Code.LAUNCHING, "the machine is up; its hosts have not all joined")
        if up and sight.dead_host:
            return State.LOST, Reason(Code.LOST, _death(sight.instance, "a host of it died before it joined"))
        if sight.provider_known and age >= (policy.limit_of(record.state) or 0):
            return State.LAUNCH_TIMEOUT, Reason(Code.REPLACE_FAILED, f"not up after {seconds(age)}")
    elif sight.dead_host:
        return State.LOST, Reason(Code.LOST, _death(sight.instance, "a host of it died before it joined"))
    elif sight.workload_known and age >= (policy.limit_of(record.state) or 0):
        joined = plural(len(sight.nodes), "host")
        return State.INIT_FAILED, Reason(Code.REPLACE_FAILED, f"{joined} joined after {seconds(age)}")
    return None


def _lost(record: SliceRecord, sight: SliceObservation, policy: Policy, now: float) -> tuple[State, Reason] | None:
    """READY and after: gone or dead without our asking, according to the provider. One dead host of a slice takes all
    of it. What the workload alone does not see may still be at work: that is drained under the fence
    (``_must_leave``)."""
    if sight.lost_node:
        return State.LOST, Reason(Code.LOST, sight.lost_node)
    if _gone(record, sight, policy, now) and not _contradicted(record, sight, policy, now):
        return State.LOST, Reason(Code.LOST, "vanished from the provider's list without our asking")
    if sight.dead_host and sight.instance is not None:
        preempted = sight.instance.preempted_at is not None
        code = Code.PREEMPTED if preempted else Code.LOST
        return State.LOST, Reason(
            code, "the provider takes it away" if preempted else _death(sight.instance, "a host of it is dead")
        )
    return None
