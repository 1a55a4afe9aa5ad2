"""Fleet holds one record for every slice and the provider health of every group.

A record changes state only through ``moved``, which checks the table of legal transitions. An illegal one leaves the
record where it is and quarantines it with a reason, so one odd record never stops the loop.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from windlass.core.model.cached import cached_attribute
from windlass.core.model.lifecycle import OFFERING, RECALLABLE, State, is_legal
from windlass.core.model.plan import Launch
from windlass.core.model.reasons import Code, Reason
from windlass.core.model.snapshot import Node, Slice, idle_since
from windlass.providers.protocol import Host
from windlass.workloads.protocol import WorkNode

from .active_slices import ActiveSlices
from .diff import note_change
from .fast_replace import FastReplace


@dataclass(frozen=True, slots=True)
class Refused:
    """A launch that the provider answered with an error."""

    slice_id: str
    code: Code
    """STOCKOUT, QUOTA, RATE_LIMITED (throttled: asked again later), or UNKNOWN_INPUT for anything else."""
    why: str
    retry_after: float = 0
    """Seconds that the provider wants to be left alone."""
    certain: bool = True
    """False: it may have been bought all the same, so what may come is ended."""


@dataclass(frozen=True, slots=True)
class Bought:
    """Slices that a plan launches for one reason, by their ids, and why no other group was taken."""

    ids: tuple[str, ...]
    launch: Launch


@dataclass(frozen=True)
class SliceRecord(FastReplace):
    """All that is known of one slice. What follows from a record alone is worked out once: most stay as they are from
    one pass to the next."""

    id: str
    """Unique for ever: the token of its launch and its tag at the provider."""
    group: str
    provider: str
    """Who sold it."""
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
    """How many were ordered, or show of one that was adopted: they count when its group is not configured any more."""
    asked_at: float | None = None
    """When the provider was first asked for it."""
    attempts: int = 0
    """How often the provider was asked for it."""
    seen: bool = False
    """Whether the provider's list has ever shown it."""
    marked_until: float | None = None
    fence: int = 0
    """Number of its current cordon; acknowledgements of older ones are void."""
    certificate: int | None = None
    """The fence for which the workload says that nothing runs there: without it no machine that lives is ended."""
    joined_at: float | None = None
    """When all of its hosts were first in the workload."""
    absent_since: float | None = None
    """Since when its provider's list does not show it, although it did."""
    unwell_since: float | None = None
    """Since when the workload has not seen all of its hosts healthy, although it had."""
    dead: bool = False
    """A host of it is gone, so nothing that runs there can be saved: it is ended without a certificate."""
    leaving: Reason | None = None
    """Why it must leave in any case: an operator's order, a preemption notice, bad health. No demand calls it back, and
    its work is waited for without a limit."""
    final: bool = False
    """Its cordon cannot be taken back: it ends when its work has ended, and takes no other."""
    billed_since: float | None = None
    """From when on it is billed without a gap; None: it is not billed now."""
    bill_from: float | None = None
    """From when on it will be billed if its provider shows it: when it was ordered, or when it went missing."""
    dead_hosts: tuple[Host, ...] = ()
    """Hosts that were dead when it was lost, with their exit codes and last lines: the machine itself is removed."""
    failed: State | None = None
    """How it failed, if it did: the last of LAUNCH_FAILED, LAUNCH_TIMEOUT, INIT_FAILED and LOST that it was in."""
    ended_at: float | None = None
    """When its provider says that it ended: it is billed until then, not until that was observed."""
    started_at: float | None = None
    """When it started by its provider's clock. With ``ended_at`` it gives the time that is billed in the end."""
    billed_us: int = 0
    """Microseconds that were billed before ``billed_since``."""
    quarantine: str = ""
    """Why the controller leaves it alone; empty: it does not."""
    nodes: tuple[Node, ...] = field(default=(), compare=False, metadata={"kept": False})
    """Its nodes as last seen in the workload; seen again after a restart, so not kept."""

    @property
    def certified(self) -> bool:
        """Whether the workload has confirmed for the current fence that nothing runs there."""
        return self.certificate is not None and self.certificate == self.fence

    @property
    def is_empty(self) -> bool:
        """Whether no work can be lost there any more."""
        return self.dead or self.certified

    @property
    def must_go(self) -> bool:
        """Whether it is drained because it must go, and not only to save money: only then may its work be ended."""
        return self.leaving is not None or self.reason.code not in SAVING

    @cached_attribute
    def quiet(self) -> bool:
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
        """Since when nothing runs on any of its nodes (meaningless while one is busy)."""
        return idle_since(self.nodes, self.since)

    @cached_attribute
    def busy_nodes(self) -> int:
        return sum([node.busy for node in self.nodes])

    @cached_attribute
    def price_at_work(self) -> int:
        """What of its price is paid for nodes that have work."""
        return self.price * self.busy_nodes // len(self.nodes) if self.nodes else 0

    @cached_attribute
    def planned_with(self) -> Slice:
        """What the planner sees. A slice that must leave, or that cannot be called back, offers nothing any more,
        whatever waits: to the planner it is as good as ending."""
        leaving = self.leaving is not None and self.state in OFFERING | RECALLABLE
        state = State.TERMINATING if leaving else self.state
        marked = self.marked_until if self.state == State.READY else None
        return Slice(self.id, self.group, state, self.since, marked, self.nodes, final=self.final)


FAILURES: Final = frozenset({State.LAUNCH_FAILED, State.LAUNCH_TIMEOUT, State.INIT_FAILED, State.LOST})
"""States of a slice that failed to start, or was lost."""
SAVING: Final = frozenset({Code.IDLE, Code.GANG_RELEASED, Code.LOW_UTILIZATION, Code.CONSOLIDATE})
"""Reasons that only save money. Ending work for them would mean paying for it twice, or for ever if it cannot run
elsewhere."""


def seen_nodes(nodes: Iterable[WorkNode]) -> tuple[Node, ...]:
    """Nodes as the planner reads them, from what a workload shows of them, by id."""
    in_order = sorted(nodes, key=lambda one: one.id)
    return tuple(
        [Node(one.id, one.used, one.tasks, one.idle_since, one.labels, one.healthy, one.classes) for one in in_order]
    )


@dataclass(frozen=True, slots=True)
class Failure:
    """A launch, boot or slice that went wrong: it counts against its group for a while."""

    at: float
    code: Code


@dataclass(frozen=True, slots=True)
class ProviderHealth:
    """What is remembered of a group's provider."""

    failures: tuple[Failure, ...] = ()
    succeeded_at: float | None = None
    """When a machine of it came up last."""
    quota_until: float | None = None
    last_error: str = ""
    paced_until: float = 0
    """By when the launches that were asked for would be spread evenly at the launch rate."""
    boots: tuple[float, ...] = ()
    """How long the last few took from the call to READY, in seconds."""
    ends: tuple[float, ...] = ()
    """How long the last few took from the order to end until they were confirmed gone, in seconds."""


@dataclass(frozen=True, slots=True)
class Gone:
    """A slice that was confirmed gone a while ago, in case a list that lags shows it again."""

    at: float
    certified: bool
    """We ended it, empty; what shows again is ended again. Else it may hold work, and is taken over."""
    group: str = ""
    state: State = State.TERMINATED
    """How it ended: TERMINATED, or the state in which it failed."""


@dataclass(frozen=True)
class Fleet:
    """Every record, and the provider health of every group. Values are replaced, never changed."""

    slices: Mapping[str, SliceRecord] = field(default_factory=dict)
    provider_health: Mapping[str, ProviderHealth] = field(default_factory=dict)
    gone: Mapping[str, Gone] = field(default_factory=dict)
    frozen: Mapping[str, str] = field(default_factory=dict)
    """Groups and families in which nothing is launched or released, each with who said so; ``*`` stands for all."""

    def is_frozen(self, group: str, family: str = "") -> bool:
        return bool(self.frozen) and self.frozen_by(group, family) is not None

    def frozen_by(self, group: str, family: str = "") -> str | None:
        """Who froze a group, its family or everything; None: it is not frozen."""
        found = (self.frozen.get(name) for name in (group, family, EVERY_GROUP) if name)
        return next((by for by in found if by is not None), None)

    @cached_attribute
    def activity(self) -> ActiveSlices:
        """The index of active slices and the totals of the steady ones."""
        return ActiveSlices.of(self.slices.values())

    @cached_attribute
    def planned_with(self) -> Mapping[str, Slice]:
        """What the planner sees of each slice."""
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
        """The fleet with records that are new or have changed, without those that have ended, and with whatever else is
        given; the same one if nothing is."""
        provider_health = self.provider_health if provider_health is None else provider_health
        gone = self.gone if gone is None else gone
        frozen = self.frozen if frozen is None else frozen
        same = not records and not over
        if same and provider_health is self.provider_health and gone is self.gone and frozen is self.frozen:
            return self
        slices = self.slices
        if not same:
            slices = {**slices, **records}
            for name in over:
                slices.pop(name, None)
            note_change(self.slices, slices, records, over)
        following = Fleet(slices, provider_health, gone, frozen)
        # What was computed already is copied, which is cheaper than computing it again.
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


def by_clock(fleet: Fleet, jump: float, step: float = 0.0) -> Fleet:
    """The fleet after the clock was set by ``jump`` seconds, or after nothing was observed for so long.

    The times from which a slice is given up without a word from the workload move along: only time in which it was
    really watched counts against it. A clock that leaps ahead would else make dead what was out of sight for a moment.
    ``step``: by how much of that the clock was set. The times of the bill move by it alone: time without observation is
    billed, too.
    """
    changed = {}
    for name, record in fleet.slices.items() if jump or step else ():
        times = {"absent_since": record.absent_since, "unwell_since": record.unwell_since}
        if not record.seen and record.asked_at is not None:
            times |= {"since": record.since, "asked_at": record.asked_at}
        moved_on = {key: at + jump for key, at in times.items() if at is not None}
        if step:
            bill = {"billed_since": record.billed_since, "bill_from": record.bill_from}
            moved_on |= {key: at + step for key, at in bill.items() if at is not None}
        if moved_on:
            changed[name] = record.replace(**moved_on)
    return fleet.after(changed)


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
    """The record in its next state; quarantined where it is if the table has no such edge."""
    if not is_legal(record.state, target):
        why = f"{record.state} cannot become {target}: {reason.why}"
        return record.replace(quarantine=record.quarantine or why), None
    changes: dict[str, Any] = {"state": target, "since": at, "reason": reason}
    if target in FAILURES:
        changes["failed"] = target
    if target == State.READY:
        changes |= {"marked_until": None, "failed": None}
    elif target == State.TERMINATING and not record.certified:
        # Work that the workload has placed there, or will place when a host joins late, must learn of the end first.
        changes |= {"fence": record.fence + 1, "certificate": None, "absent_since": None}
    elif target == State.TERMINATING:
        changes["absent_since"] = None
    elif target == State.CORDONED:
        changes |= {"fence": record.fence + 1, "certificate": None}
    return record.replace(**changes), Moved(record.id, record.state, target, at, reason)
