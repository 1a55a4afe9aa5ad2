"""This module gives exactly one reason for each slice that is kept: the most important one that applies."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from windlass.core.model.lifecycle import ENDING, IN_FLIGHT, RECALLABLE, State
from windlass.core.model.plan import Change
from windlass.core.model.reasons import Code, Reason, plural, seconds
from windlass.core.plan_draft import PlanDraft
from windlass.core.scale_down.candidates import Release

_GOING: Final = {
    **{state: Reason(Code.ENDING, f"{state}: it is ending or gone") for state in ENDING},
    **{
        state: Reason(Code.DRAINING, f"{state}: it takes no new work and ends when it is empty") for state in RECALLABLE
    },
}
_COMING: Final = {
    state: Reason(Code.LAUNCHING, f"{state}: nothing needs it now; when it is ready, the idle rules apply")
    for state in IN_FLIGHT
}


def kept(release: Release, moved: Collection[int]) -> Iterator[Change]:
    """Returns the reason for every slice that this plan keeps and that is not plainly busy."""
    slices = release.draft.slices
    for position in sorted({*release.draft.snapshot_tables.not_busy, *release.placed}):
        if position in moved:
            continue
        item = slices[position]
        if item.state in _GOING:
            yield Change(item.id, _GOING[item.state])
        elif not _is_plainly_busy(release, position):
            reason = _reason_to_stay(release, position)
            gang = release.held[position] if reason.code is Code.GANG_HELD else ""
            yield Change(item.id, reason, gang=gang)


def busy(release: Release, moved: Collection[int]) -> tuple[Change, ...]:
    """Returns the plainly busy slices: most slices of a large cluster."""
    slices = release.draft.slices
    return tuple(
        Change(item.id, busy_reason(item.tasks))
        for position, item in enumerate(slices)
        if position not in moved and _is_plainly_busy(release, position)
    )


def busy_reason(tasks: int) -> Reason:
    """Returns the reason of a slice that is ready, has work and is in none of the plan's other lists."""
    return Reason(Code.BUSY, f"{plural(tasks, 'task')} running")


def _is_plainly_busy(release: Release, position: int) -> bool:
    """Whether a slice is ready and has work that was there before this plan."""
    draft = release.draft
    return draft.busy(position) and draft.slices[position].state == State.READY and position not in release.placed


def _reason_to_stay(release: Release, position: int) -> Reason:
    draft, item, group = release.draft, release.draft.slices[position], release.draft.group_of(position)
    assert group is not None  # slices of a removed group are released
    kind = draft.groups[group]
    if position in release.placed:
        return Reason(Code.PLACED, "demand is placed on it in this plan" + _beside_work(draft, position))
    if item.id in kind.protected:
        return Reason(Code.PROTECTED, f"it is listed in protected of {kind.name}")
    if position in release.held:
        return Reason(Code.GANG_HELD, f"held for gang {release.held[position]}, which cannot start yet")
    if position in draft.requested:
        return Reason(Code.REQUESTED_CAPACITY, "a standing request needs its room")
    if kind.frozen:
        return Reason(Code.FROZEN, f"{kind.name} is frozen: nothing of it is released until it is resumed")
    if item.marked_until is not None and position not in release.unmarks:
        rest = seconds(max(0, item.marked_until - draft.now))
        return Reason(Code.MARKED, f"marked: it is released in {rest} unless it is needed")
    if item.state in IN_FLIGHT:
        return release.stays.get(position) or _in_flight(release, position)
    if kind.scale_down is None:
        return Reason(Code.NO_RULE, f"idle, and {kind.name} has no scale_down rule")
    stays = release.stays.get(position)
    if stays is not None and stays.code == Code.NOT_IDLE_LONG_ENOUGH:
        return stays
    floor = release.floor(position) or stays
    if floor is not None:
        return floor
    if not item.healthy:
        return Reason(
            Code.NOT_WORTH_IT, "one of its nodes is unhealthy: the controller replaces it, no release rule does"
        )
    if release.launching[group]:
        return Reason(Code.NOT_WORTH_IT, f"this plan launches {kind.name}: none is released at the same time")
    return Reason(Code.NOT_WORTH_IT, f"no rule of {kind.name} releases it")


def _beside_work(draft: PlanDraft, position: int) -> str:
    tasks = draft.slices[position].tasks
    return f", beside {plural(tasks, 'running task')}" if tasks else ""


def _in_flight(release: Release, position: int) -> Reason:
    floor = release.floor(position)
    if floor is not None:
        return floor
    return _COMING[release.draft.slices[position].state]
