"""Fleet holds one record for every slice and the provider health of every group.

A record changes state only through ``moved``, which checks the table of legal transitions. An illegal one leaves the
record where it is and quarantines it with a reason, so one odd record never stops the loop.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from windlass.core.model.cached import cached_attribute
from windlass.core.model.lifecycle import ENDING, OFFERING, RECALLABLE, State, is_legal
from windlass.core.model.plan import Launch
from windlass.core.model.reasons import Code, Reason
from windlass.core.model.snapshot import Node, Slice, idle_since
from windlass.providers.protocol import Host
from windlass.workloads.protocol import WorkNode

from .active_slices import ActiveSlices
from .diff import updated
from .fast_replace import FastReplace


@dataclass(frozen=True, slots=True)
class Refused:
    """A launch that the provider refused."""

    slice_id: str
    code: Code
    """STOCKOUT, QUOTA, RATE_LIMITED (throttled: asked again later), or UNKNOWN_INPUT for anything else."""
    why: str
    retry_after: float = 0
    """Seconds for which the provider asks not to be called."""
    certain: bool = True
    """Whether nothing was bought. If False, a machine may still appear, and is ended then."""


@dataclass(frozen=True, slots=True)
class Bought:
    """The ids of slices that a plan launches for one reason, and why no other group was chosen."""

    ids: tuple[str, ...]
    launch: Launch


@dataclass(frozen=True)
class SliceRecord(FastReplace):
    """The record of one slice. Values derived from a record are cached: most records stay the same from one pass to the
    next.
    """

    id: str
    """Never used again: the token of its launch and its tag at the provider."""
    group: str
    provider: str
    state: State
    since: float
    """When it entered the state."""
    started_for: Reason
    """Why it was launched, or adopted."""
    reason: Reason
    """Why it is in this state."""
    price: int = 0
    """Nanodollars per hour, when it was bought."""
    hosts: int = 1
    """Number of ordered hosts (of an adopted slice: listed hosts); counts when its group is no longer configured."""
    asked_at: float | None = None
    """When it was first requested from the provider."""
    attempts: int = 0
    """Number of launch calls."""
    seen: bool = False
    """Whether the provider's list has ever shown it."""
    marked_until: float | None = None
    fence: int = 0
    """Epoch of its current cordon; acknowledgements of older ones are void."""
    certificate: int | None = None
    """The fence for which the workload acknowledged that nothing runs there. Without it no live machine is ended."""
    joined_at: float | None = None
    """When all of its hosts had joined the workload for the first time."""
    absent_since: float | None = None
    """Since when it is missing from its provider's list."""
    unwell_since: float | None = None
    """Since when the workload does not see all of its hosts as healthy, although it did."""
    dead: bool = False
    """Whether a host is gone, so that its work is lost in any case: it is ended without a certificate."""
    leaving: Reason | None = None
    """Why it must leave in any case: an operator's order, a preemption notice, bad health. New demand does not uncordon
    it, and its running work has no time limit.
    """
    final: bool = False
    """Whether its cordon cannot be lifted: it takes no new work and ends when its work has ended."""
    billed_since: float | None = None
    """Start of the current billed interval; None: it is not billed now."""
    bill_from: float | None = None
    """Start of billing if its provider lists it: the time of the order, or since when it was missing."""
    dead_hosts: tuple[Host, ...] = ()
    """Hosts that were dead when it was lost, with their exit codes and last output."""
    failed: State | None = None
    """How it failed, if it did: the last of LAUNCH_FAILED, LAUNCH_TIMEOUT, INIT_FAILED and LOST that it was in."""
    ended_at: float | None = None
    """When it ended according to its provider: it is billed until then, not until the observation."""
    started_at: float | None = None
    """When it started according to its provider. The final bill is the time from here to ``ended_at``."""
    billed_us: int = 0
    """Microseconds that were billed before ``billed_since``."""
    quarantine: str = ""
    """Why the controller does not act on it; empty: it acts."""
    nodes: tuple[Node, ...] = field(default=(), compare=False, metadata={"kept": False})
    """Its nodes as last seen in the workload; not stored, because they are observed again after a restart."""

    @property
    def certified(self) -> bool:
        """Whether the workload has confirmed for the current fence that nothing runs there."""
        return self.certificate is not None and self.certificate == self.fence

    @property
    def is_empty(self) -> bool:
        """Whether ending it can no longer lose work."""
        return self.dead or self.certified

    @property
    def must_go(self) -> bool:
        """Whether it is drained because it must leave, not to save money: only then may its work be ended."""
        return self.leaving is not None or self.reason.code not in SAVING

    @cached_attribute
    def steady(self) -> bool:
        """Whether it is busy and healthy and no timer runs: only a new observation can change that."""
        return (
            self.state is State.READY
            and not self.fence
            and not self.quarantine
            and self.absent_since is None
            and self.unwell_since is None
            and self.leaving is None
            and self.marked_until is None
            and self.billed_since is not None
            and self.busy_nodes > 0
            and all(node.healthy for node in self.nodes)
        )

    @property
    def idle_since(self) -> float:
        """Since when all of its nodes are idle (meaningless while one is busy)."""
        return idle_since(self.nodes, self.since)

    @cached_attribute
    def busy_nodes(self) -> int:
        return sum([node.busy for node in self.nodes])

    @cached_attribute
    def price_at_work(self) -> int:
        """The part of its price for busy nodes."""
        return self.price * self.busy_nodes // len(self.nodes) if self.nodes else 0

    @cached_attribute
    def planned_with(self) -> Slice:
        """The slice for the planner. A slice that must leave, or whose cordon is final, offers no capacity: it counts
        as ending.
        """
        leaving = self.leaving is not None and self.state in OFFERING | RECALLABLE
        state = State.TERMINATING if leaving else self.state
        marked = self.marked_until if self.state == State.READY else None
        return Slice(self.id, self.group, state, self.since, marked, self.nodes, final=self.final)


FAILURES: Final = frozenset({State.LAUNCH_FAILED, State.LAUNCH_TIMEOUT, State.INIT_FAILED, State.LOST})
"""States of a slice that failed to start, or was lost."""
SAVING: Final = frozenset({Code.IDLE, Code.GANG_RELEASED, Code.LOW_UTILIZATION, Code.CONSOLIDATE})
"""Reasons that only save money. They never justify ending work, which would then be paid for twice."""


def seen_nodes(nodes: Iterable[WorkNode]) -> tuple[Node, ...]:
    """Return the nodes for the planner, by id, from the workload's view."""
    in_order = sorted(nodes, key=lambda one: one.id)
    return tuple(
        [Node(one.id, one.used, one.tasks, one.idle_since, one.labels, one.healthy, one.classes) for one in in_order]
    )


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed launch, boot or slice. It lowers the health of its group for a while."""

    at: float
    code: Code


@dataclass(frozen=True, slots=True)
class ProviderHealth:
    """The history of launches and failures of one group."""

    failures: tuple[Failure, ...] = ()
    succeeded_at: float | None = None
    """When a machine last started."""
    quota_until: float | None = None
    last_error: str = ""
    paced_until: float = 0
    """The time up to which the launch rate is used up."""
    boots: tuple[float, ...] = ()
    """Seconds from the call to READY, of the last few launches."""
    ends: tuple[float, ...] = ()
    """Seconds from the terminate call to the confirmed end, of the last few."""


@dataclass(frozen=True, slots=True)
class Gone:
    """A slice that was confirmed gone, remembered in case a lagging list shows it again."""

    at: float
    certified: bool
    """Whether we ended it while empty: if it is listed again, it is ended again. Otherwise it may run work, and is
    adopted.
    """
    group: str = ""
    state: State = State.TERMINATED
    """How it ended: TERMINATED, or the state in which it failed."""
    bill_from: float | None = None
    """Start of billing if its provider lists it again: the time of the order, or since when it was missing. None: its
    provider has confirmed its end.
    """
    billed_us: int = 0
    """Microseconds that were billed."""
    started_at: float | None = None
    """When it started according to its provider."""
    seen: bool = True
    """Whether its provider ever listed it."""


@dataclass(frozen=True)
class Fleet:
    """Every record, and the provider health of every group. Values are replaced, never mutated."""

    slices: Mapping[str, SliceRecord] = field(default_factory=dict)
    provider_health: Mapping[str, ProviderHealth] = field(default_factory=dict)
    gone: Mapping[str, Gone] = field(default_factory=dict)
    frozen: Mapping[str, str] = field(default_factory=dict)
    """Frozen groups and families, in which nothing is launched or released, with the user who froze them; ``*``: all.
    """

    def is_frozen(self, group: str, family: str = "") -> bool:
        return bool(self.frozen) and self.frozen_by(group, family) is not None

    def frozen_by(self, group: str, family: str = "") -> str | None:
        """Return the user who froze a group, its family or everything; None: it is not frozen."""
        found = (self.frozen.get(name) for name in (group, family, EVERY_GROUP) if name)
        return next((by for by in found if by is not None), None)

    @property
    def has_joined(self) -> bool:
        """Whether a host of some slice has joined the workload."""
        return any(record.joined_at is not None for record in self.slices.values())

    @cached_attribute
    def activity(self) -> ActiveSlices:
        """The index of active slices and the totals of the steady ones."""
        return ActiveSlices.of(self.slices.values())

    @cached_attribute
    def planned_with(self) -> Mapping[str, Slice]:
        """The slices for the planner."""
        return {name: record.planned_with for name, record in self.slices.items()}

    def after(
        self,
        records: Mapping[str, SliceRecord],
        over: Collection[str] = (),
        *,
        provider_health: Mapping[str, ProviderHealth] | None = None,
        gone: Mapping[str, Gone] | None = None,
        frozen: Mapping[str, str] | None = None,
    ) -> Fleet:
        """Return the fleet with new, changed and removed records and other changed fields; the same object if nothing
        changed.
        """
        provider_health = self.provider_health if provider_health is None else provider_health
        gone = self.gone if gone is None else gone
        frozen = self.frozen if frozen is None else frozen
        same = not records and not over
        if same and provider_health is self.provider_health and gone is self.gone and frozen is self.frozen:
            return self
        slices = self.slices if same else updated(self.slices, records, over)
        following = Fleet(slices, provider_health, gone, frozen)
        # Cached values are updated, which is cheaper than computing them again.
        if "activity" in self.__dict__:
            following.__dict__["activity"] = self.activity if same else self.activity.after(self.slices, records, over)
        if "planned_with" in self.__dict__:
            planned = self.planned_with
            if not same:
                planned = {**planned, **{name: record.planned_with for name, record in records.items()}}
                for name in over:
                    planned.pop(name, None)
            following.__dict__["planned_with"] = planned
        return following

    def with_records(self, *records: SliceRecord) -> Fleet:
        return self.after({record.id: record for record in records})


EVERY_GROUP = "*"


def by_clock(fleet: Fleet, jump: float, step: float = 0.0, unobserved: float = 0.0) -> Fleet:
    """Return the fleet after the clock was set by ``jump`` seconds, or after nothing was observed for so long.

    The start times of absence move by it, so that only observed time counts. Otherwise a clock that jumps ahead would
    make a slice that was missing for a moment count as dead. ``step``: by how much of that the clock was set. The times
    of the bill move by it alone: time without observation is billed, too. ``unobserved``: how long the leader was
    stopped. That matters only for slices that still may have work.
    """
    changed = {}
    for name, record in fleet.slices.items() if jump or step or unobserved else ():
        times = {"absent_since": record.absent_since, "unwell_since": record.unwell_since}
        if not record.seen and record.asked_at is not None:
            times |= {"since": record.since, "asked_at": record.asked_at}
        by = jump if record.state in ENDING else jump + unobserved
        moved_on = {key: at + by for key, at in times.items() if at is not None} if by else {}
        if step:
            bill = {"billed_since": record.billed_since, "bill_from": record.bill_from}
            moved_on |= {key: at + step for key, at in bill.items() if at is not None}
        if moved_on:
            changed[name] = record.replace(**moved_on)
    gone = None
    if step and any(one.bill_from is not None for one in fleet.gone.values()):
        gone = {
            name: one if one.bill_from is None else replace(one, bill_from=one.bill_from + step)
            for name, one in fleet.gone.items()
        }
    return fleet.after(changed, gone=gone)


@dataclass(frozen=True, slots=True)
class Moved:
    """A change of state, and why."""

    slice_id: str
    source: State | None
    """None: the record is new."""
    target: State
    at: float
    reason: Reason


def moved(record: SliceRecord, target: State, at: float, reason: Reason) -> tuple[SliceRecord, Moved | None]:
    """Return the record in its next state; if the table has no such edge, the record is quarantined in its current
    state.
    """
    if not is_legal(record.state, target):
        why = f"{record.state} cannot become {target}: {reason.why}"
        return record.replace(quarantine=record.quarantine or why), None
    changes: dict[str, Any] = {"state": target, "since": at, "reason": reason}
    if target in FAILURES:
        changes["failed"] = target
    if target == State.READY:
        changes |= {"marked_until": None, "failed": None}
    elif target == State.TERMINATING and not record.certified:
        # The workload may have placed work there, or may do so when a host joins late: it must be cordoned first.
        changes |= {"fence": record.fence + 1, "certificate": None, "absent_since": None}
    elif target == State.TERMINATING:
        changes["absent_since"] = None
    elif target == State.CORDONED:
        changes |= {"fence": record.fence + 1, "certificate": None}
    return record.replace(**changes), Moved(record.id, record.state, target, at, reason)
