"""This module reads the history of one slice or demand from the journal, in the order of time.

It reads the records about that subject, so it also covers slices and demands that no longer exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from windlass.control.record.journal_tables import IS, LAUNCH, REFUSED
from windlass.control.state.codec import from_plain
from windlass.control.state.fleet import SliceRecord
from windlass.core.model.lifecycle import State
from windlass.core.model.plan import Waiting
from windlass.core.model.reasons import Reason
from windlass.core.model.snapshot import Demand
from windlass.journal import Journal, Record


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """A state that a slice entered, with the reason."""

    at: float
    state: State
    reason: Reason


@dataclass(frozen=True, slots=True)
class SliceHistory:
    """The history of a slice, as far as the journal reaches back."""

    last: SliceRecord
    """The last recorded state of the slice."""
    steps: tuple[HistoryStep, ...]
    born: float
    """When its first record was written."""
    forgotten: float | None
    """When its record was closed, after the provider confirmed its end."""
    must_go: tuple[float, Reason] | None
    """Since when it must be released even if demand waits, and why."""
    certified: tuple[float, int] | None
    """When the workload acknowledged that it was empty, and with which fence."""
    launch: Record | None = None
    """The record of its launch; None if the slice was adopted or the record was compacted."""
    refused: tuple[Record, ...] = ()

    @property
    def draining(self) -> HistoryStep | None:
        """The last step in which it was cordoned, with the reason for its release."""
        return next((step for step in reversed(self.steps) if step.state == State.CORDONED), None)


def life_of(journal: Journal, slice_id: str, until: float | None = None) -> SliceHistory | None:
    """Returns the history of a slice up to an instant; None if the journal has no such slice."""
    records = list(journal.read(subject=slice_id, kinds=("slice", REFUSED), until=until))
    states = [record for record in records if record.kind == "slice" and IS in record.data]
    if not states:
        return None
    steps: list[HistoryStep] = []
    must_go: tuple[float, Reason] | None = None
    certified: tuple[float, int] | None = None
    known = [(record.at, from_plain(SliceRecord, record.data[IS])) for record in states]
    for at, one in known:
        if not steps or (steps[-1].state, steps[-1].at) != (one.state, one.since):
            steps.append(HistoryStep(one.since, one.state, one.reason))
        must_go = None if one.leaving is None else must_go or (at, one.leaving)
        certified = None if not one.certified else certified or (at, one.fence)
    closed = [record.at for record in records if record.kind == "slice" and IS not in record.data]
    born = known[0][0]
    return SliceHistory(
        last=known[-1][1],
        steps=tuple(steps),
        born=born,
        forgotten=closed[-1] if closed and closed[-1] >= known[-1][0] else None,
        must_go=must_go,
        certified=certified,
        launch=_launch_of(journal, slice_id, known[0][1].group, born),
        refused=tuple(record for record in records if record.kind == REFUSED),
    )


def _launch_of(journal: Journal, slice_id: str, group: str, born: float) -> Record | None:
    """Finds the launch of a slice, which was written in the same pass as its first record."""
    for record in journal.read(subject=group, kinds=(LAUNCH,), since=born, limit=20):
        data: Any = record.data
        if slice_id in data.get("slices", ()):
            return record
    return None


@dataclass(frozen=True, slots=True)
class Wait:
    """The last period in which a demand existed."""

    demand: Demand
    """The demand as it was last observed."""
    since: float
    until: float | None
    """When the demand ended; None if it still exists."""
    reasons: tuple[tuple[float, Waiting | None], ...]
    """Why it found no place, at each change of the reason; None from when it had a place."""


def wait_of(journal: Journal, demand: str, until: float | None = None) -> Wait | None:
    """Returns the last wait of a demand or a standing request; None if the journal has no such demand."""
    found: Wait | None = None
    for record in journal.read(subject=demand, kinds=("demand", "request", "waiting"), until=until):
        found = _after(found, record)
    return found


def _after(wait: Wait | None, record: Record) -> Wait | None:
    there, data = IS in record.data, record.data.get(IS)
    if record.kind == "waiting":
        if wait is None:
            return None
        reason = from_plain(Waiting, data) if there else None
        return Wait(wait.demand, wait.since, wait.until, (*wait.reasons, (record.at, reason)))
    if not there:
        return None if wait is None else Wait(wait.demand, wait.since, record.at, wait.reasons)
    demand = from_plain(Demand, data)
    if wait is None or wait.until is not None:
        return Wait(demand, float(record.at if demand.since is None else demand.since), None, ())
    return Wait(demand, wait.since, None, wait.reasons)


def launches_for(journal: Journal, demand: str, wait: Wait) -> tuple[Record, ...]:
    """Returns the launches for a demand while it waited. Old versions did not record the demands of a launch."""
    until = None if wait.until is None else wait.until + 1
    found = journal.read(kinds=(LAUNCH,), since=wait.since - 1, until=until)
    return tuple(record for record in found if demand in record.data.get("demands", ()))


def refusals_of(journal: Journal, group: str, limit: int, until: float | None = None) -> tuple[Record, ...]:
    """Returns the last launches of a group that its provider refused, newest first."""
    found: list[Record] = []
    for record in journal.read(kinds=(REFUSED,), until=until, newest_first=True, limit=100 * limit):
        if refused_group(record) == group:
            found.append(record)
        if len(found) == limit:
            break
    return tuple(found)


def refused_group(record: Record) -> str:
    """Returns the group of a refused launch. Old versions recorded it only in the id: ``GROUP-STAMP-NUMBER``."""
    return str(record.data.get("group") or record.subject.rsplit("-", 2)[0])
