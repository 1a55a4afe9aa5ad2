"""The book: one record for every slice, and what is remembered of each group's luck with its provider.

A record changes its state only through ``moved``, which knows the table of legal transitions: an illegal one leaves the
record where it is and quarantines it, with the reason, so that one odd record never stops the loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from windlass.core.lifecycle import State, is_legal
from windlass.core.reasons import Code, Reason
from windlass.core.snapshot import Node


@dataclass(frozen=True, slots=True)
class SliceRecord:
    """All that is known of one slice."""

    id: str
    """Unique for ever: the token of its launch and its tag at the provider."""
    group: str
    state: State
    since: float
    """When it entered the state."""
    started_for: Reason
    """Why it was launched, or adopted."""
    reason: Reason
    """Why it is in this state."""
    attempts: int = 0
    """How often the provider was asked for it."""
    seen: bool = False
    """Whether the provider's list has ever shown it."""
    marked_until: float | None = None
    fence: int = 0
    """Number of its current cordon; acknowledgements of older ones are void."""
    certificate: int | None = None
    """The fence for which the workload says that nothing runs there: without it a slice that was READY never ends."""
    nodes: tuple[Node, ...] = ()
    """Its nodes as last seen in the workload."""
    missing_since: float | None = None
    """Since when none of its nodes shows in the workload, although the provider shows the slice."""
    quarantine: str = ""
    """Why nobody touches it any more; empty when all is well."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A launch, boot or slice that went wrong: it counts against its group for a while."""

    at: float
    code: Code


@dataclass(frozen=True, slots=True)
class Luck:
    """What is remembered of a group's provider."""

    failures: tuple[Failure, ...] = ()
    quota_until: float | None = None
    last_error: str = ""


@dataclass(frozen=True, slots=True)
class Book:
    """Every record, and the luck of every group. Values are replaced, never changed."""

    slices: Mapping[str, SliceRecord] = field(default_factory=lambda: MappingProxyType({}))
    luck: Mapping[str, Luck] = field(default_factory=lambda: MappingProxyType({}))

    def with_records(self, *records: SliceRecord) -> Book:
        return replace(self, slices={**self.slices, **{record.id: record for record in records}})

    def with_luck(self, group: str, luck: Luck) -> Book:
        return replace(self, luck={**self.luck, group: luck})


@dataclass(frozen=True, slots=True)
class Moved:
    """A change of state, as it goes into the journal."""

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
        return replace(record, quarantine=record.quarantine or why), None
    following = replace(record, state=target, since=at, reason=reason)
    if target == State.READY:
        following = replace(following, marked_until=None)
    return following, Moved(record.id, record.state, target, at, reason)
