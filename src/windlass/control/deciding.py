"""From the book to a snapshot, and from a plan back to the book. Pure.

``snapshot_of`` is what the planner sees: every record, the luck of each group as its availability, what waits.
``decide`` writes a plan's changes into the book as transitions; carrying them out is somebody else's business, and
whether they succeeded is seen by the next fold. While a source is unknown nothing shrinks: of a plan made then, only
what grows or calls back is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from windlass.core.lifecycle import ENDED, State
from windlass.core.plan import Change, Plan
from windlass.core.reasons import Code, Reason
from windlass.core.snapshot import Availability, Cluster, Group, Slice, Snapshot
from windlass.workloads.protocol import WorkloadView

from .records import Book, Luck, Moved, SliceRecord, moved


@dataclass(frozen=True, slots=True)
class BackOff:
    """How bad luck with a provider slows a group down."""

    window: float = 900
    """A failure counts for so many seconds."""
    factor: float = 0.7
    """Each one that counts multiplies the group's health by this."""
    floor: float = 0.05
    """Health never falls below this: one launch at a time is always tried in the end."""
    pause: float = 15
    """Seconds without a launch after a failure, at full health; divided by the health."""


def health(luck: Luck, rules: BackOff, now: float) -> float:
    """Between the floor and 1: how well launches of a group went lately."""
    recent = sum(now - failure.at < rules.window for failure in luck.failures)
    return max(rules.floor, rules.factor**recent)


def availability_of(luck: Luck, rules: BackOff, now: float) -> Availability:
    """What the planner believes of a group's provider."""
    if luck.quota_until is not None and now < luck.quota_until:
        return Availability("quota_exceeded", luck.quota_until, luck.last_error)
    recent = [failure for failure in luck.failures if now - failure.at < rules.window]
    if not recent:
        return Availability()
    until = max(failure.at for failure in recent) + rules.pause / health(luck, rules, now)
    return Availability("backoff", until, f"{len(recent)} failures lately, the last: {luck.last_error}")


def snapshot_of(
    book: Book, view: WorkloadView, groups: Iterable[Group], cluster: Cluster, rules: BackOff, now: float
) -> Snapshot:
    """All that the planner depends on."""
    kinds = {group.name: group for group in groups}
    slices = []
    for record in book.slices.values():
        marked = record.marked_until if record.state == State.READY else None
        slices.append(Slice(record.id, record.group, record.state, record.since, marked, record.nodes))
    held = {record.id for record in book.slices.values() if record.quarantine}
    return Snapshot(
        groups=tuple(
            replace(
                group,
                availability=availability_of(book.luck.get(name, Luck()), rules, now),
                protected=group.protected | held,
            )
            for name, group in kinds.items()
        ),
        slices=tuple(slices),
        demands=view.demands,
        requests=view.requests,
        cluster=cluster,
        now=now,
    )


def decide(
    book: Book, plan: Plan, unknown: tuple[str, ...], new_id: Callable[[str], str], now: float
) -> tuple[Book, tuple[Moved, ...]]:
    """The book with the plan's changes in it."""
    moves: list[Moved] = []
    for launch in plan.launches:
        for _ in range(launch.count):
            record = SliceRecord(new_id(launch.group), launch.group, State.QUEUED, now, launch.reason, launch.reason)
            book = book.with_records(record)
            moves.append(Moved(record.id, None, State.QUEUED, now, launch.reason))
    book = _move_all(book, plan.uncordon, lambda _: State.READY, now, moves)
    for change in plan.unmark:
        book = _marked(book, change.slice, None)
    if unknown:
        return book, tuple(moves)
    book = _end_certified(book, now, moves)
    book = _move_all(book, plan.cancel, _cancelled, now, moves)
    book = _move_all(book, plan.drain, lambda _: State.CORDONED, now, moves)
    for change in plan.mark:
        book = _marked(book, change.slice, change.until)
    return book, tuple(moves)


def _end_certified(book: Book, now: float, moves: list[Moved]) -> Book:
    """Drained slices that nobody called back, and of which the workload says that nothing runs there."""
    for record in sorted(book.slices.values(), key=lambda one: one.id):
        if record.state == State.DRAINING and record.certificate == record.fence and not record.quarantine:
            reason = Reason(record.reason.code, f"acknowledged empty under fence {record.fence}")
            following, move = moved(record, State.TERMINATING, now, reason)
            moves += [move] if move is not None else []
            book = book.with_records(following)
    return book


def _cancelled(record: SliceRecord) -> State:
    return State.TERMINATED if record.state == State.QUEUED else State.TERMINATING


def _move_all(
    book: Book, changes: Iterable[Change], target: Callable[[SliceRecord], State], now: float, moves: list[Moved]
) -> Book:
    for change in changes:
        record = book.slices.get(change.slice)
        if record is None or record.quarantine:
            continue
        state = target(record)
        if state == State.CORDONED:  # a new fence: what was acknowledged before is void
            record = replace(record, fence=record.fence + 1)
        record, move = moved(record, state, now, change.reason)
        if move is not None:
            moves.append(move)
        book = book.with_records(record)
    return book


def _marked(book: Book, slice_id: str, until: float | None) -> Book:
    record = book.slices.get(slice_id)
    return book if record is None else book.with_records(replace(record, marked_until=until))


def requested(book: Book, slice_id: str, now: float) -> tuple[Book, Moved | None]:
    """The provider is about to be asked for a slice: for the first time, or again with the same token."""
    record = book.slices[slice_id]
    again = replace(record, attempts=record.attempts + 1)
    if record.state == State.REQUESTING:
        return book.with_records(again), None
    again, move = moved(again, State.REQUESTING, now, Reason(Code.LAUNCHING, "its turn came: the provider is asked"))
    return book.with_records(again), move


def ended(book: Book) -> tuple[str, ...]:
    """Slices that have come to their end and may be forgotten once that is in the journal."""
    return tuple(sorted(record.id for record in book.slices.values() if record.state in ENDED))
