"""The lifecycle of a slice is one table; every other set of states is derived from it.

Each state says whether it takes demand, is in flight, costs money, how long it may last and what happens then. Each
legal transition names its cause. There is no transition from READY to TERMINATING: a slice that may hold work is always
cordoned and drained first. Which states count as live, in flight or costly is computed from the table, never listed a
second time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal


class State(StrEnum):
    """The state of a slice. The order is that of a life without failures, then the failures."""

    __hash__ = str.__hash__  # the hash of an enum is ten times as slow, and differs from that of the equal text

    QUEUED = "queued"
    REQUESTING = "requesting"
    BOOTING = "booting"
    INITIALIZING = "initializing"
    READY = "ready"
    CORDONED = "cordoned"
    DRAINING = "draining"
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    LAUNCH_FAILED = "launch_failed"
    LAUNCH_TIMEOUT = "launch_timeout"
    INIT_FAILED = "init_failed"
    LOST = "lost"
    TERMINATE_FAILED = "terminate_failed"


@dataclass(frozen=True, slots=True)
class StateFacts:
    """The properties of one state."""

    meaning: str
    takes_demand: Literal["yes", "by uncordon", "no"] = "no"
    in_flight: bool = False
    costs: bool = False
    limit: float | None = None
    """Seconds that the state may last by default; None: no limit."""
    limit_setting: str = ""
    """The setting of the policy that replaces the default; empty: there is none."""
    after_limit: State | None = None
    """The next state when the limit has passed."""
    ray: str | None = None
    """The name that Ray uses for the state, where there is one."""


@dataclass(frozen=True, slots=True)
class Transition:
    """A legal change of state and what causes it."""

    source: State
    target: State
    cause: str


TABLE: Final = MappingProxyType(
    {
        State.QUEUED: StateFacts(
            "decided, but not requested yet because of launch rate or concurrency",
            takes_demand="yes",
            in_flight=True,
            ray="QUEUED",
        ),
        State.REQUESTING: StateFacts(
            "requested from the provider; not in its list yet",
            takes_demand="yes",
            in_flight=True,
            costs=True,
            limit=600,
            limit_setting="requesting_timeout",
            after_limit=State.LAUNCH_FAILED,
            ray="REQUESTED",
        ),
        State.BOOTING: StateFacts(
            "the provider lists it; the machine is not up yet",
            takes_demand="yes",
            in_flight=True,
            costs=True,
            limit=900,
            limit_setting="boot_timeout",
            after_limit=State.LAUNCH_TIMEOUT,
            ray="ALLOCATED",
        ),
        State.INITIALIZING: StateFacts(
            "the machine is up; not all of its hosts have joined the workload",
            takes_demand="yes",
            in_flight=True,
            costs=True,
            limit=900,
            limit_setting="initializing_timeout",
            after_limit=State.INIT_FAILED,
            ray="RAY_INSTALLING",
        ),
        State.READY: StateFacts(
            "all hosts have joined the workload, with their accelerators",
            takes_demand="yes",
            costs=True,
            ray="RAY_RUNNING",
        ),
        State.CORDONED: StateFacts(
            "takes no new work; waits until the workload acknowledges this",
            takes_demand="by uncordon",
            costs=True,
            limit=60,
            limit_setting="cordon_timeout",
            after_limit=State.READY,
            ray="RAY_STOP_REQUESTED",
        ),
        State.DRAINING: StateFacts(
            "the workload has acknowledged the cordon; waits for running work",
            takes_demand="by uncordon",
            costs=True,
            limit=3600,
            limit_setting="drain_timeout",
            after_limit=State.READY,
            ray="RAY_STOPPING",
        ),
        State.TERMINATING: StateFacts(
            "the provider was called to end it",
            costs=True,
            limit=300,
            limit_setting="terminate_timeout",
            after_limit=State.TERMINATE_FAILED,
        ),
        State.TERMINATED: StateFacts("the provider confirmed that it is gone"),
        State.LAUNCH_FAILED: StateFacts(
            "the provider refused the launch (stock-out, quota, other)", ray="ALLOCATION_FAILED"
        ),
        State.LAUNCH_TIMEOUT: StateFacts(
            "the machine did not boot in time",
            costs=True,
            limit=0,
            after_limit=State.TERMINATING,
            ray="ALLOCATION_TIMEOUT",
        ),
        State.INIT_FAILED: StateFacts(
            "its hosts did not join in time",
            costs=True,
            limit=0,
            after_limit=State.TERMINATING,
            ray="RAY_INSTALL_FAILED",
        ),
        State.LOST: StateFacts(
            "it ended or died, and Windlass had not ended it (preempted, crashed)",
            costs=True,
            limit=0,
            after_limit=State.TERMINATING,
        ),
        State.TERMINATE_FAILED: StateFacts(
            "it could not be ended", costs=True, limit=60, after_limit=State.TERMINATING, ray="TERMINATION_FAILED"
        ),
    }
)

TRANSITIONS: Final = (
    Transition(State.QUEUED, State.REQUESTING, "requested from the provider"),
    Transition(State.QUEUED, State.TERMINATED, "cancelled before it was requested"),
    Transition(State.REQUESTING, State.BOOTING, "the provider lists it"),
    Transition(State.REQUESTING, State.QUEUED, "throttled: requested again later, with the same token"),
    Transition(State.REQUESTING, State.LAUNCH_FAILED, "the provider refused, or did not list it after three requests"),
    Transition(State.REQUESTING, State.TERMINATING, "cancelled after it was requested"),
    Transition(State.BOOTING, State.INITIALIZING, "the machine is up"),
    Transition(State.BOOTING, State.READY, "all hosts joined before the machine was seen up"),
    Transition(State.BOOTING, State.LAUNCH_TIMEOUT, "not up within the time limit"),
    Transition(State.BOOTING, State.LOST, "missing from the provider's list"),
    Transition(State.BOOTING, State.TERMINATING, "cancelled: nothing needs it"),
    Transition(State.INITIALIZING, State.READY, "every host has joined with the resources of its group"),
    Transition(State.INITIALIZING, State.INIT_FAILED, "not all hosts joined within the time limit"),
    Transition(State.INITIALIZING, State.LOST, "missing from the provider's list"),
    Transition(State.INITIALIZING, State.TERMINATING, "cancelled: nothing needs it"),
    Transition(State.READY, State.CORDONED, "chosen for release: it takes no new work"),
    Transition(State.READY, State.LOST, "a host ended or died, and Windlass had not ended it"),
    Transition(State.CORDONED, State.DRAINING, "the workload acknowledged the current cordon"),
    Transition(State.CORDONED, State.READY, "needed again, or not acknowledged within the time limit"),
    Transition(State.CORDONED, State.LOST, "a host ended or died, and Windlass had not ended it"),
    Transition(
        State.DRAINING, State.TERMINATING, "the workload acknowledged, for the current cordon, that it is empty"
    ),
    Transition(State.DRAINING, State.READY, "needed again, or not empty within the time limit"),
    Transition(State.DRAINING, State.LOST, "a host ended or died, and Windlass had not ended it"),
    Transition(State.LAUNCH_TIMEOUT, State.TERMINATING, "at once: a machine that still starts is ended"),
    Transition(State.INIT_FAILED, State.TERMINATING, "at once"),
    Transition(State.LOST, State.TERMINATING, "what is left of it is ended"),
    Transition(State.LOST, State.TERMINATED, "the provider confirmed that it is gone"),
    Transition(State.LOST, State.READY, "it answers again, with its work: a network failure"),
    Transition(State.TERMINATING, State.TERMINATED, "the provider confirmed that it is gone"),
    Transition(State.TERMINATING, State.TERMINATE_FAILED, "not gone within the time limit, or the provider refused"),
    Transition(State.TERMINATE_FAILED, State.TERMINATING, "retried forever, with an alarm"),
    Transition(State.TERMINATE_FAILED, State.TERMINATED, "the provider confirmed that it is gone"),
)

LEGAL: Final = frozenset((edge.source, edge.target) for edge in TRANSITIONS)
ENDED: Final = frozenset(State) - {edge.source for edge in TRANSITIONS}
"""Confirmed gone: it no longer counts for anything."""
IN_FLIGHT: Final = frozenset(state for state, facts in TABLE.items() if facts.in_flight)
OFFERING: Final = frozenset(state for state, facts in TABLE.items() if facts.takes_demand == "yes")
"""In flight or ready: what counts as a slice of its group for ``min`` and ``spare``."""
RECALLABLE: Final = frozenset(state for state, facts in TABLE.items() if facts.takes_demand == "by uncordon")
"""Being released, but an uncordon brings it back."""
ENDING: Final = frozenset(State) - OFFERING - RECALLABLE
"""Offers no room, and never will again."""
COSTLY: Final = frozenset(state for state, facts in TABLE.items() if facts.costs)
COUNTED: Final = frozenset(State) - ENDED
"""What limits count: from QUEUED until confirmed gone."""

PROGRESS: Final = tuple(state for state in reversed(State) if state in IN_FLIGHT)
"""States in flight, the furthest along first."""


def is_legal(source: State, target: State) -> bool:
    """Whether a slice may change from one state to the other."""
    return (source, target) in LEGAL


def reachable(source: State) -> frozenset[State]:
    """Returns every state that a slice in ``source`` can still reach."""
    found: set[State] = set()
    border = [source]
    while border:
        here = border.pop()
        border += [edge.target for edge in TRANSITIONS if edge.source == here and edge.target not in found]
        found |= {edge.target for edge in TRANSITIONS if edge.source == here}
    return frozenset(found)
