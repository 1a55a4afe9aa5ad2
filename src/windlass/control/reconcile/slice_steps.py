"""This module decides the next state of one slice, and why, from what is observed of it. Pure; the time is an argument.

A slice that is missing from its provider's list is gone when the provider confirms its end, or after
``vanish_timeout``; while the workload still sees its hosts, after ``unhealthy_timeout``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from windlass.control.observe.slice_observation import SliceObservation
from windlass.control.settings import Policy
from windlass.control.state.fleet import SliceRecord
from windlass.core.model.lifecycle import State
from windlass.core.model.reasons import Code, Reason, plural, seconds
from windlass.core.model.snapshot import Group
from windlass.providers.protocol import Host, Instance

LONGEST_OUTPUT = 2000
"""Number of characters of a dead host's output that are kept."""
MOST_DEAD_HOSTS = 4
"""Number of dead hosts per slice whose output is kept."""
_TERMINATE_AGAIN = 60.0
"""Seconds after which a failed end is tried again."""


def _death(instance: Instance | None, text: str) -> str:
    """Return a sentence that a host is dead, and why, if the provider knows."""
    return f"{text}: {instance.trouble}" if instance is not None and instance.trouble else text


def dead_hosts(sight: SliceObservation) -> tuple[Host, ...]:
    """Return the dead hosts of a slice with exit codes and last output, bounded, for the journal."""
    hosts = [one for one in (sight.instance.hosts if sight.instance is not None else ()) if not one.running]
    dead = [one for one in hosts if one.exit_code is not None or one.last_output]
    return tuple([replace(one, last_output=one.last_output[-LONGEST_OUTPUT:]) for one in dead[:MOST_DEAD_HOSTS]])


class Situation(NamedTuple):
    """One slice in one pass: its record, what is observed of it, and the rules in force."""

    record: SliceRecord
    sight: SliceObservation
    group: Group | None
    policy: Policy
    now: float

    @property
    def age(self) -> float:
        """Seconds since the slice entered its state."""
        return self.now - self.record.since

    @property
    def limit(self) -> float:
        """Seconds that the slice may stay in its state."""
        return self.policy.limit_of(self.record.state) or 0.0

    @property
    def is_late(self) -> bool:
        return self.age >= self.limit

    @property
    def is_gone(self) -> bool:
        """Whether the provider confirms the end, or its list has not shown the slice for long enough. One list without
        it is not enough: a page may be lost, a replica may lag.
        """
        record, sight, policy = self.record, self.sight, self.policy
        if sight.ended:
            return True
        if not sight.absent or record.absent_since is None or self.now < unseen_until(record, policy):
            return False
        return self.now - record.absent_since >= policy.vanish_timeout

    @property
    def is_contradicted(self) -> bool:
        """Whether the workload sees hosts of a slice that its provider does not list. One of the two is wrong; while it
        may be the list, running work is not given up.
        """
        record, sight = self.record, self.sight
        if sight.ended or record.absent_since is None or not sight.shows_life(record):
            return False
        return self.now - record.absent_since < self.policy.unhealthy_timeout


Step = tuple[State, Reason] | None
"""The next state of a slice and the reason; None if its state stays."""


def next_step(
    record: SliceRecord, sight: SliceObservation, group: Group | None, policy: Policy, now: float
) -> tuple[State, Reason] | None:
    """Return the next state and the reason, or None when the state stays."""
    step = _STEPS.get(record.state)
    return None if step is None else step(Situation(record, sight, group, policy, now))


def _of_requesting(one: Situation) -> Step:
    if one.sight.instance is not None:
        return State.BOOTING, Reason(Code.BOOTING, "the provider lists it")
    if not one.is_late:
        return None
    attempts = one.record.attempts
    why = f"requested {plural(attempts, 'time')} in {seconds(one.age)}, and no machine was listed"
    if one.sight.provider_known and attempts >= one.policy.tries:
        return State.LAUNCH_FAILED, Reason(Code.REPLACE_FAILED, why)
    # A call hangs, or the list is unknown: the machine may exist. It keeps its place and is ended when it is listed;
    # its demand is served elsewhere.
    return State.TERMINATING, Reason(Code.REPLACE_FAILED, f"{why}; the provider has not answered")


def _of_booting(one: Situation) -> Step:
    if step := _vanished_or_joined(one):
        return step
    instance = one.sight.instance
    if instance is not None and instance.state == "running":
        if all(host.running for host in instance.hosts):
            return State.INITIALIZING, Reason(Code.LAUNCHING, "the machine is up; its hosts have not all joined")
        if one.sight.dead_host:
            return _died_before_it_joined(one)
    if one.sight.provider_known and one.is_late:
        return State.LAUNCH_TIMEOUT, Reason(Code.REPLACE_FAILED, f"not up after {seconds(one.age)}")
    return None


def _of_initializing(one: Situation) -> Step:
    if step := _vanished_or_joined(one):
        return step
    if one.sight.dead_host:
        return _died_before_it_joined(one)
    if one.sight.workload_known and one.is_late:
        joined = plural(len(one.sight.nodes), "host")
        return State.INIT_FAILED, Reason(Code.REPLACE_FAILED, f"{joined} joined after {seconds(one.age)}")
    return None


def _vanished_or_joined(one: Situation) -> Step:
    if one.record.seen and one.is_gone and not one.is_contradicted:
        return State.LOST, Reason(Code.LOST, f"missing from the provider's list while {one.record.state}")
    if one.sight.whole(one.group):
        return State.READY, Reason(one.record.started_for.code, "every host has joined")
    return None


def _died_before_it_joined(one: Situation) -> Step:
    return State.LOST, Reason(Code.LOST, _death(one.sight.instance, "one of its hosts died before it joined"))


def _of_ready(one: Situation) -> Step:
    if one.sight.final:
        return State.CORDONED, Reason(Code.IDLE, "the workload has ended it under an earlier drain")
    return _lost(one)


def _of_cordoned(one: Situation) -> Step:
    record, sight = one.record, one.sight
    if not sight.final and (lost := _lost(one)):
        return lost
    if sight.running is not None:
        running = f"{plural(sight.running, 'task')} still running" if sight.running else "nothing runs there any more"
        why = f"{running}, and nothing new starts there"
        return State.DRAINING, Reason(record.reason.code, why)
    if sight.refused:
        if one.group is None or record.must_go:
            return State.DRAINING, Reason(record.reason.code, f"waiting for its work: {sight.refused}")
        return State.READY, Reason(Code.DRAIN_ABORTED, sight.refused)
    if one.is_late:
        return State.READY, Reason(Code.DRAIN_ABORTED, f"not acknowledged within {seconds(one.limit)}")
    return None


def _of_draining(one: Situation) -> Step:
    record, sight = one.record, one.sight
    # A slice that ends after its final drain counts as released, not as lost.
    if not sight.final and (lost := _lost(one)):
        return lost
    by_choice = record.leaving is None and one.group is not None
    if sight.running and record.marked_until is not None and by_choice:
        # Only empty slices are marked. Work was placed there since, so it stays and is unmarked.
        return State.READY, Reason(Code.DRAIN_ABORTED, f"{plural(sight.running, 'task')} started there")
    evicted = one.policy.allow_eviction and record.must_go
    may_abort = by_choice and not (evicted or record.final or record.certified)
    if one.is_late and may_abort:
        return State.READY, Reason(Code.DRAIN_ABORTED, f"still busy after {seconds(one.limit)}")
    return None


def _of_failed_start(one: Situation) -> Step:
    return State.TERMINATING, one.record.reason


def _of_lost(one: Situation) -> Step:
    if one.is_gone:
        return _confirmed_gone(one)
    if one.sight.whole(one.group) and not one.sight.dead_host:
        return State.READY, Reason(Code.BUSY, "it answers again, with its work")
    if one.sight.instance is not None:
        return State.TERMINATING, Reason(
            one.record.reason.code, f"{one.record.reason.why}; the rest of it is terminated"
        )
    return None


def _of_terminating(one: Situation) -> Step:
    if _has_ended(one):
        return _confirmed_gone(one)
    if one.is_late:
        return State.TERMINATE_FAILED, Reason(one.record.reason.code, f"not gone after {seconds(one.age)}")
    return None


def _of_terminate_failed(one: Situation) -> Step:
    if _has_ended(one):
        return _confirmed_gone(one)
    if one.age >= _TERMINATE_AGAIN:
        return State.TERMINATING, Reason(one.record.reason.code, "terminated again")
    return None


def _has_ended(one: Situation) -> bool:
    return one.is_gone and (one.record.is_empty or not one.is_contradicted)


def _confirmed_gone(one: Situation) -> Step:
    return State.TERMINATED, Reason(one.record.reason.code, "confirmed gone by the provider's list")


def _lost(one: Situation) -> Step:
    """Return LOST for a READY or later slice that its provider reports as gone or dead without a terminate call. One
    dead host makes the whole slice LOST. A slice that only the workload does not see may still run work: it is drained
    under the fence (``transitions._must_leave``).
    """
    sight = one.sight
    if sight.lost_node:
        return State.LOST, Reason(Code.LOST, sight.lost_node)
    if one.is_gone and not one.is_contradicted:
        return State.LOST, Reason(Code.LOST, "missing from the provider's list, although it was not ended")
    if sight.dead_host and sight.instance is not None:
        if sight.instance.preempted_at is not None:
            return State.LOST, Reason(Code.PREEMPTED, "the provider preempts it")
        return State.LOST, Reason(Code.LOST, _death(sight.instance, "one of its hosts is dead"))
    return None


_STEPS: Final[Mapping[State, Callable[[Situation], Step]]] = {
    State.REQUESTING: _of_requesting,
    State.BOOTING: _of_booting,
    State.INITIALIZING: _of_initializing,
    State.READY: _of_ready,
    State.CORDONED: _of_cordoned,
    State.DRAINING: _of_draining,
    State.LAUNCH_TIMEOUT: _of_failed_start,
    State.INIT_FAILED: _of_failed_start,
    State.LOST: _of_lost,
    State.TERMINATING: _of_terminating,
    State.TERMINATE_FAILED: _of_terminate_failed,
}
"""The step function of each state that an observation or a time limit can end."""


def unseen_until(record: SliceRecord, policy: Policy) -> float:
    """Return until when a requested slice that was never listed may still appear. Lists lag behind launches, and a
    place that is freed too soon is bought twice.
    """
    if record.seen or record.asked_at is None:
        return 0.0
    return policy.next_attempt(record.since, 1)
