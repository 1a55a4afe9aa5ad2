"""A Plan lists what to do about a snapshot, and why, item by item.

It is plain data. Equal launches are one ``Launch`` with a count, equal tasks one shape with a count. The lists that
name every single slice and demand (``placements``, ``keep``) and the suggestions for waiting demand (``unblocks``) are
computed when they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any

from .cached import cached_attribute
from .quantities import dollars
from .reasons import Reason, seconds
from .snapshot import Choose, Seconds

SCHEMA = "windlass.plan/v1"


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a slice of the snapshot, or the reason why it stays."""

    slice: str
    reason: Reason
    until: Seconds | None = None
    """For a mark: the time of release."""
    gang: str = ""
    """The gang for which the slice is held, if any."""

    def to_dict(self) -> dict[str, Any]:
        until = {} if self.until is None else {"until": self.until}
        return {"slice": self.slice, **until, "code": str(self.reason.code), "why": self.reason.why}


@dataclass(frozen=True, slots=True)
class Launch:
    """``count`` new slices of one group, named ``new:GROUP:first`` and following, bought for one reason."""

    group: str
    first: int
    count: int
    reason: Reason
    hourly_cost: int = 0
    """Nanodollars per hour for all of them."""
    passed_over: Mapping[str, Reason] = field(default_factory=dict)
    """Why each other group was not taken."""
    demands: Mapping[str, int] = field(default_factory=dict)
    """Tasks that these slices are bought for, by demand or standing request."""

    def names(self) -> list[str]:
        return [f"new:{self.group}:{index}" for index in range(self.first, self.first + self.count)]

    def to_dict(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "first": self.first,
            "count": self.count,
            "code": str(self.reason.code),
            "why": self.reason.why,
            "hourly_cost": dollars(self.hourly_cost),
            "passed_over": _reasons(self.passed_over),
            "demands": dict(sorted(self.demands.items())),
        }


@dataclass(frozen=True, slots=True)
class Placement:
    """``count`` tasks of a demand on one slice, of the snapshot or new."""

    demand: str
    count: int
    on: str
    bundle: int | None = None
    """The bundle of a gang, by its index in the list."""

    def to_dict(self) -> dict[str, Any]:
        bundle = {} if self.bundle is None else {"bundle": self.bundle}
        return {"demand": self.demand, "count": self.count, "on": self.on, **bundle}


@dataclass(frozen=True, slots=True)
class Unblock:
    """One change with which the demand would be placed, at the time of the plan."""

    change: str
    """For people: ``max of a100 8 -> 9``."""
    set: tuple[tuple[tuple[str, ...], Any], ...]
    """The same for programs: paths in the scenario file and their new values."""
    hourly_cost: int
    """Nanodollars per hour that it would add."""
    buys: tuple[tuple[str, int], ...] = ()
    """Slices that it would add, by group."""
    places: tuple[tuple[str, int], ...] = ()
    """Tasks that it would place, by demand: its cost is for all of them."""
    parts: tuple[str, ...] = ()
    """The sentence of each setting in ``set``; ``change`` joins them."""

    def to_dict(self) -> dict[str, Any]:
        settings = [{"path": list(path), "value": value} for path, value in self.set]
        return {"change": self.change, "set": settings, "hourly_cost": dollars(self.hourly_cost)}


@dataclass(frozen=True, slots=True)
class Waiting:
    """Tasks of a demand (or a standing request) that cannot be placed, and the blocker in each group."""

    demand: str
    count: int
    reason: Reason
    groups: Mapping[str, Reason]
    waited: Seconds | None = None
    """How long it has waited, where that is known."""

    @property
    def why(self) -> str:
        """Returns the sentence for people: how long it has waited, and the reason."""
        return f"{self.waiting_time}: {self.reason.why}" if self.waited is not None else self.reason.why

    @property
    def waiting_time(self) -> str:
        """Returns how long it has waited; less than a second is no time to report."""
        if self.waited is None:
            return ""
        return f"waits {seconds(self.waited)}" if self.waited >= 1 else "waits"


@dataclass(frozen=True, slots=True)
class HourlyCost:
    """Nanodollars per hour before and after."""

    now: int
    planned: int


@dataclass(frozen=True)
class Plan:
    """The answer of the planner.

    Every slice of the snapshot is in exactly one of cancel, drain, uncordon, mark, unmark, keep; every task of every
    demand is exactly once in ``placements`` or ``waiting``.
    """

    now: Seconds
    strategy: Choose
    launches: tuple[Launch, ...]
    cancel: tuple[Change, ...]
    drain: tuple[Change, ...]
    uncordon: tuple[Change, ...]
    mark: tuple[Change, ...]
    unmark: tuple[Change, ...]
    stays: tuple[Change, ...]
    """Reasons of slices in ``keep`` that are not simply ready and busy."""
    waiting: tuple[Waiting, ...]
    hourly_cost: HourlyCost
    mistakes: tuple[str, ...]
    _busy: Callable[[], tuple[Change, ...]] = field(repr=False, compare=False)
    _placements: Callable[[], tuple[Placement, ...]] = field(repr=False, compare=False)
    _unblocks: Callable[[], Mapping[str, tuple[Unblock, ...]]] = field(repr=False, compare=False)

    @cached_attribute
    def launch(self) -> dict[str, int]:
        """Returns the slices to launch, by group."""
        counts: dict[str, int] = {}
        for item in self.launches:
            counts[item.group] = counts.get(item.group, 0) + item.count
        return dict(sorted(counts.items()))

    @cached_attribute
    def group_of_new(self) -> dict[str, str]:
        """Returns the group of each slice to launch, by its name in the placements."""
        return {name: item.group for item in self.launches for name in item.names()}

    @cached_attribute
    def keep(self) -> tuple[Change, ...]:
        """Every slice that stays, and why: those of ``stays``, and the busy ones."""
        return tuple(sorted((*self.stays, *self._busy()), key=attrgetter("slice")))

    @cached_attribute
    def placements(self) -> tuple[Placement, ...]:
        """The placements, by demand and target."""
        return self._placements()

    @cached_attribute
    def unblocks(self) -> Mapping[str, tuple[Unblock, ...]]:
        """For each demand that waits: changes that would place it, the smallest first."""
        return self._unblocks()

    def __eq__(self, other: object) -> bool:
        """Whether two plans make the same changes to every slice, for the same reasons."""
        if not isinstance(other, Plan):
            return NotImplemented
        return self._compared() == other._compared()

    def _compared(self) -> tuple[object, ...]:
        return (*(getattr(self, one.name) for one in fields(self) if one.compare), self.keep)

    @property
    def changes(self) -> bool:
        """Whether the plan changes anything."""
        return bool(self.launches or self.cancel or self.drain or self.uncordon or self.mark or self.unmark)

    def to_dict(self) -> dict[str, Any]:
        """Returns the answer of ``windlass plan --json``."""
        return {
            "schema": SCHEMA,
            "now": self.now,
            "strategy": self.strategy,
            "launch": dict(self.launch),
            "launches": [item.to_dict() for item in self.launches],
            "cancel": [item.to_dict() for item in self.cancel],
            "drain": [item.to_dict() for item in self.drain],
            "uncordon": [item.to_dict() for item in self.uncordon],
            "mark": [item.to_dict() for item in self.mark],
            "unmark": [item.to_dict() for item in self.unmark],
            "placements": [item.to_dict() for item in self.placements],
            "waiting": [
                {
                    "demand": item.demand,
                    "count": item.count,
                    "code": str(item.reason.code),
                    "why": item.why,
                    "groups": _reasons(item.groups),
                    "unblocks": [unblock.to_dict() for unblock in self.unblocks.get(item.demand, ())],
                }
                for item in self.waiting
            ],
            "keep": [item.to_dict() for item in self.keep],
            "hourly_cost": {"now": dollars(self.hourly_cost.now), "planned": dollars(self.hourly_cost.planned)},
            "mistakes": list(self.mistakes),
        }


def _reasons(reasons: Mapping[str, Reason]) -> dict[str, dict[str, str]]:
    return {name: {"code": str(reason.code), "why": reason.why} for name, reason in sorted(reasons.items())}
