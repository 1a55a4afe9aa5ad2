"""Why each slice stays: exactly one reason, the weightiest that holds."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import lru_cache

import numpy as np

from .draft import Draft
from .lifecycle import ENDING, IN_FLIGHT, RECALLABLE, State
from .plan import Change
from .reasons import Code, Reason, plural, seconds
from .releasing import Release


def kept(release: Release, moved: Collection[int]) -> Iterator[Change]:
    """Every slice that is neither released, called back, marked nor unmarked by this plan, and why it stays."""
    draft = release.draft
    placed = set(np.flatnonzero(release.placed).tolist())
    for position, item in enumerate(draft.slices):
        if position in moved:
            continue
        if draft.busy[position] and item.state == State.READY and position not in placed:
            yield _busy(item.id, item.tasks)
        else:
            yield Change(item.id, _reason_to_stay(release, position))


@lru_cache(maxsize=20_000)
def _busy(slice_id: str, tasks: int) -> Change:
    """By far the most of a large cluster, and the same in one plan after the other."""
    return Change(slice_id, Reason(Code.BUSY, f"{plural(tasks, 'task')} running"))


def _reason_to_stay(release: Release, position: int) -> Reason:
    draft, item, group = release.draft, release.draft.slices[position], release.draft.group_of[position]
    if item.state in ENDING:
        return Reason(Code.ENDING, f"{item.state}: it is on its way out or gone")
    if item.state in RECALLABLE:
        return Reason(Code.DRAINING, f"{item.state}: it takes no new work and ends when it is empty")
    assert group is not None  # slices of a removed group are released
    kind = draft.groups[group]
    if release.placed[position]:
        return Reason(Code.PLACED, "demand is placed on it in this plan" + _beside_work(draft, position))
    if draft.busy[position]:
        return _busy(item.id, item.tasks).reason
    if item.id in kind.protected:
        return Reason(Code.PROTECTED, f"{kind.name} names it as protected")
    if position in release.held:
        return Reason(Code.GANG_HELD, f"held for gang {release.held[position]}, which cannot start whole yet")
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
        return Reason(Code.NOT_WORTH_IT, "a node of it is unhealthy: replacing it is not a matter of scaling down")
    if release.launching[group]:
        return Reason(Code.NOT_WORTH_IT, f"this plan launches {kind.name}: none is released at the same time")
    return Reason(Code.NOT_WORTH_IT, f"no rule of {kind.name} asks for its release")


def _beside_work(draft: Draft, position: int) -> str:
    tasks = draft.slices[position].tasks
    return f", beside {plural(tasks, 'running task')}" if tasks else ""


def _in_flight(release: Release, position: int) -> Reason:
    floor = release.floor(position)
    if floor is not None:
        return floor
    state = release.draft.slices[position].state
    return Reason(Code.LAUNCHING, f"{state}: nobody needs it now; once ready it falls under the idle rules")
