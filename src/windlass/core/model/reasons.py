"""This module defines the reason codes, which the command line, the API, logs and events share, and the type Reason.

A code never changes its meaning. A ``Reason`` is a code and a sentence with the numbers in it. Which codes may answer
which question is data here, so that a test can check every answer of a plan.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from .cached import cached_attribute


class Code(StrEnum):
    """Every reason code."""

    __hash__ = str.__hash__  # the hash of an enum is ten times as slow, and differs from that of the equal text

    # Demand
    DEMAND = "DEMAND"
    NO_SHAPE_FITS = "NO_SHAPE_FITS"
    TOO_SMALL = "TOO_SMALL"
    NO_LABEL_MATCH = "NO_LABEL_MATCH"
    NOT_TOLERATED = "NOT_TOLERATED"
    INVALID_DEMAND = "INVALID_DEMAND"
    UNKNOWN_INPUT = "UNKNOWN_INPUT"
    # Gangs
    APART = "APART"
    SPREAD = "SPREAD"
    TOGETHER = "TOGETHER"
    GANG_SHAPE = "GANG_SHAPE"
    GANG_FORMING = "GANG_FORMING"
    GANG_HELD = "GANG_HELD"
    GANG_RELEASED = "GANG_RELEASED"
    # Limits
    AT_MAX = "AT_MAX"
    MAX_NODES = "MAX_NODES"
    BUDGET = "BUDGET"
    RATE_LIMITED = "RATE_LIMITED"
    OVER_MAX = "OVER_MAX"
    FROZEN = "FROZEN"
    NOT_TAKEN = "NOT_TAKEN"
    # What the cloud can give
    STOCKOUT = "STOCKOUT"
    QUOTA = "QUOTA"
    BACKOFF = "BACKOFF"
    PROBE = "PROBE"
    LAUNCHING = "LAUNCHING"
    BOOTING = "BOOTING"
    # Why another group was taken
    WORSE_SCORE = "WORSE_SCORE"
    DEARER = "DEARER"
    LOWER_RANK = "LOWER_RANK"
    # Floors
    MIN = "MIN"
    SPARE = "SPARE"
    REQUEST = "REQUEST"
    REQUESTED_CAPACITY = "REQUESTED_CAPACITY"
    # A slice's life
    REPLACE_LOST = "REPLACE_LOST"
    REPLACE_FAILED = "REPLACE_FAILED"
    MANUAL = "MANUAL"
    IDLE = "IDLE"
    SURPLUS = "SURPLUS"
    LOW_UTILIZATION = "LOW_UTILIZATION"
    CONSOLIDATE = "CONSOLIDATE"
    UNHEALTHY = "UNHEALTHY"
    LOST = "LOST"
    PREEMPTED = "PREEMPTED"
    LEAKED = "LEAKED"
    GROUP_REMOVED = "GROUP_REMOVED"
    DRAINING = "DRAINING"
    MARKED = "MARKED"
    ENDING = "ENDING"
    NO_RULE = "NO_RULE"
    BUSY = "BUSY"
    PLACED = "PLACED"
    YOUNG = "YOUNG"
    NOT_IDLE_LONG_ENOUGH = "NOT_IDLE_LONG_ENOUGH"
    PROTECTED = "PROTECTED"
    DRAIN_ABORTED = "DRAIN_ABORTED"
    NOT_WORTH_IT = "NOT_WORTH_IT"


def _codes(names: str) -> frozenset[Code]:
    return frozenset(Code(name) for name in names.split())


WHY_DEMAND_WAITS: Final = _codes(
    "LAUNCHING BOOTING NO_SHAPE_FITS NO_LABEL_MATCH NOT_TOLERATED GANG_SHAPE GANG_FORMING AT_MAX MAX_NODES STOCKOUT "
    "APART SPREAD TOGETHER "
    "QUOTA BACKOFF BUDGET RATE_LIMITED UNKNOWN_INPUT INVALID_DEMAND FROZEN NOT_TAKEN"
)
WHY_GROUP_PASSED_OVER: Final = _codes(
    "APART SPREAD TOGETHER "
    "FROZEN RATE_LIMITED TOO_SMALL NO_LABEL_MATCH NOT_TOLERATED GANG_SHAPE AT_MAX MAX_NODES STOCKOUT QUOTA BACKOFF "
    "BUDGET WORSE_SCORE DEARER LOWER_RANK"
)
WHY_SLICE_STARTS: Final = _codes("DEMAND MIN SPARE REQUEST REPLACE_LOST REPLACE_FAILED PROBE CONSOLIDATE MANUAL")
WHY_SLICE_STOPS: Final = _codes(
    "IDLE SURPLUS LOW_UTILIZATION OVER_MAX CONSOLIDATE GANG_RELEASED UNHEALTHY LOST PREEMPTED LEAKED GROUP_REMOVED "
    "MANUAL"
)
WHY_SLICE_STAYS: Final = _codes(
    "DRAINING MARKED ENDING LAUNCHING NO_RULE BUSY PLACED MIN SPARE REQUESTED_CAPACITY GANG_HELD YOUNG "
    "NOT_IDLE_LONG_ENOUGH PROTECTED DRAIN_ABORTED NOT_WORTH_IT UNKNOWN_INPUT FROZEN"
)

NEAREST: Final = (
    Code.FROZEN,
    Code.RATE_LIMITED,
    Code.BACKOFF,
    Code.STOCKOUT,
    Code.QUOTA,
    Code.AT_MAX,
    Code.MAX_NODES,
    Code.BUDGET,
    Code.GANG_SHAPE,
    Code.APART,
    Code.SPREAD,
    Code.TOGETHER,
    Code.NOT_TOLERATED,
    Code.NO_LABEL_MATCH,
    Code.TOO_SMALL,
)
"""Blockers of groups, the nearest to being removed first: a demand waits with the first that any group has.

A frozen group needs only one command of its operator, so it comes before what only time or the provider can change.
"""

TRANSIENT: Final = frozenset({Code.RATE_LIMITED, Code.BACKOFF, Code.STOCKOUT, Code.QUOTA})
"""Blockers that end with time. A frozen group does not: it waits for its operator."""

IMPOSSIBLE: Final = frozenset({Code.TOO_SMALL, Code.NO_LABEL_MATCH, Code.NOT_TOLERATED, Code.GANG_SHAPE})
"""Blockers that hold even on an empty cluster without limits."""

CONSTRAINTS: Final = frozenset({Code.APART, Code.SPREAD, Code.TOGETHER})
"""Constraints between tasks, which may hold there too."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A stable code, and a sentence with its numbers."""

    code: Code
    why: str


class ComputedReasons(Mapping[str, Reason]):
    """Reasons by group that are computed when they are first read: with hundreds of groups most are never read."""

    def __init__(self, compute: Callable[[], Mapping[str, Reason]]) -> None:
        self._compute = compute

    @cached_attribute
    def _reasons(self) -> Mapping[str, Reason]:
        return self._compute()

    def __getitem__(self, name: str) -> Reason:
        return self._reasons[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._reasons)

    def __len__(self) -> int:
        return len(self._reasons)

    def __repr__(self) -> str:
        return repr(dict(self))


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Returns the known name that was probably meant, if one is similar enough."""
    return next(iter(nearest_names(name, known)), None)


def nearest_names(name: str, known: Iterable[str]) -> list[str]:
    """Returns known names that may have been meant, the most similar first."""
    return difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.6)


def plural(count: int, noun: str) -> str:
    """Formats ``1 slice``, ``3 slices``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def seconds(amount: float) -> str:
    """Formats a duration: ``45 s``, ``6 min``, ``2 h 5 min``; short ones keep their seconds."""
    if 0 < amount < 1:
        return f"{amount:.1g} s"
    if amount < 300:
        return f"{round(amount, 0 if amount >= 10 else 1):g} s"
    minutes = int(amount // 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"
