"""This module releases slices by utilization: ``low_utilization``, and ``utilization`` targets with marks."""

from __future__ import annotations

import numpy as np

from windlass.core.capacity.room import Ints
from windlass.core.model.lifecycle import State
from windlass.core.model.plan import Change
from windlass.core.model.quantities import ACCELERATORS
from windlass.core.model.reasons import Code, Reason, plural, seconds
from windlass.core.model.snapshot import UtilizationTarget
from windlass.core.plan_draft import PlanDraft

from .candidates import Release
from .over_limit import descending


def counted_resource(resources: dict[str, int]) -> str | None:
    """Returns the resource by which the use of a group is measured: its accelerator, else cpu, else its first by
    name."""
    present = [name for name in (*ACCELERATORS, "cpu", *sorted(resources)) if resources.get(name)]
    return present[0] if present else None


def used_by_slice(draft: PlanDraft, resource: str) -> Ints:
    """Returns how much of a resource each slice of the snapshot uses, placements of this plan included."""
    offers, column = draft.offers, draft.kinds.column[resource]
    result = np.zeros(len(draft.slices) + draft.limits.bought, np.int64)
    np.add.at(result, offers.position, offers.room.total[:, column] - offers.room.free[:, column])
    for position in draft.snapshot_tables.not_busy:
        for node in draft.slices[position].nodes:
            if not node.healthy:  # it offers nothing, so it has no row in the table, but its work counts
                result[position] += dict(node.used).get(resource, 0)
    return result


def release_low_utilization(release: Release) -> None:
    """Releases slices when nothing waits and little is used: keeps what the work needs and a few more."""
    draft = release.draft
    for group, kind in enumerate(draft.groups):
        rule = kind.scale_down.low_utilization if kind.scale_down else None
        resource = counted_resource(dict(kind.resources)) if rule else None
        if rule is None or resource is None or release.wanted[group]:
            continue
        ready = draft.snapshot_tables.with_work(group, State.READY)
        ready = [p for p in ready if p not in draft.released or draft.released[p].code != Code.OVER_MAX]
        if not ready:
            continue
        slots = dict(kind.resources)[resource] * kind.hosts
        used = int(used_by_slice(draft, resource)[ready].sum())
        share = f"{100 * used / (slots * len(ready)):.0f} % of {kind.name}'s {resource} is used"
        limit = f"{float(100 * rule.below):g} %"
        if used * rule.below.denominator >= rule.below.numerator * slots * len(ready):
            _note(release, ready, Reason(Code.NOT_WORTH_IT, f"{share}, not below {limit}"))
            continue
        keep = -(-used // slots) + rule.keep
        left = release.ready(group)
        victims = [p for p in left if not release.is_pinned(p)]
        victims.sort(key=lambda p: (draft.busy(p), descending(draft.slices[p].id)))
        why = f"{share}, below {limit}, enough: {plural(keep, 'machine')}"
        excess = len(left) - keep
        for position in victims:
            if excess <= 0:
                break
            excess -= release.release(position, Reason(Code.LOW_UTILIZATION, why))
        _note(release, left, Reason(Code.NOT_WORTH_IT, why))


def _note(release: Release, positions: list[int], reason: Reason) -> None:
    for position in positions:
        if position not in release.draft.released:
            release.stays.setdefault(position, reason)


def release_by_utilization(release: Release) -> None:
    """Removes marks from busy and needed slices, drains slices whose mark has expired, and sets new marks.

    In a frozen group only demand removes a mark.
    """
    for position in sorted(release.draft.snapshot_tables.final):
        _drain_final(release, position)
    for group, kind in enumerate(release.draft.groups):
        rule = kind.scale_down.utilization if kind.scale_down else None
        if rule is not None and not kind.frozen:
            _approach_target(release, group, rule)
            continue
        for position in _marked(release, group):
            if position in release.placed:
                release.unmarks[position] = Reason(Code.DEMAND, "demand is placed on it")
            elif not kind.frozen:
                release.unmarks[position] = Reason(Code.NO_RULE, f"{kind.name} has no utilization rule any more")


def _drain_final(release: Release, position: int) -> None:
    """Drains a slice whose mark has expired and cannot be undone by its workload, whatever the utilization is."""
    draft = release.draft
    item, group = draft.slices[position], draft.group_of(position)
    if item.state != State.READY or item.marked_until is None or group is None or draft.groups[group].frozen:
        return
    if item.id in draft.groups[group].protected or position in draft.released:
        return
    if draft.now >= item.marked_until:
        draft.released[position] = Reason(Code.LOW_UTILIZATION, "its mark is due, and its workload cannot take it back")


def _marked(release: Release, group: int) -> list[int]:
    draft = release.draft
    ready = draft.snapshot_tables.of(group, State.READY)
    marked = [p for p in ready if draft.slices[p].marked_until is not None and p not in draft.released]
    return [p for p in marked if p not in draft.snapshot_tables.final]


def _approach_target(release: Release, group: int, rule: UtilizationTarget) -> None:
    draft, kind = release.draft, release.draft.groups[group]
    ready, marked = release.ready(group), _marked(release, group)
    in_use = _in_use(release, ready, rule.resource)
    enough = max(100 * in_use // rule.percent, in_use + rule.spare_nodes)
    want = max(0, len(ready) - enough)
    numbers = f"{in_use} of {len(ready)} {kind.name} in use, {rule.percent} % wanted, enough: {enough}"
    for position in marked:
        if reason := _work_on(release, position):
            release.unmarks[position] = reason
    marked = [p for p in marked if p not in release.unmarks]
    marked.sort(key=lambda p: (-(draft.slices[p].marked_until or 0), draft.slices[p].id))
    for position in marked[: max(0, len(marked) - want)]:
        release.unmarks[position] = Reason(Code.NOT_WORTH_IT, numbers)
    marked = [p for p in marked if p not in release.unmarks]
    if release.launching[group]:
        return
    for position in marked:
        until = draft.slices[position].marked_until
        if until is not None and draft.now >= until and not release.is_pinned(position):
            release.release(
                position, Reason(Code.LOW_UTILIZATION, f"{numbers}; its delay of {seconds(rule.delay)} is over")
            )
    room = [want - len(marked)]
    for scope in (release.scopes[at] for at in release.scopes_of[group]):
        going = [p for member in scope.groups for p in _marked(release, member) if p not in release.unmarks]
        going += [p for p in release.marks if draft.group_of(p) in scope.groups]
        room.append(release.live_in(scope) - scope.min - len(going))
        room.append(release.free_in(scope) - scope.spare - sum(release.is_free(p) for p in going))
    empty = [p for p in ready if release.is_free(p) and not release.is_pinned(p) and p not in marked]
    empty = [p for p in empty if p not in release.unmarks]
    empty.sort(key=lambda p: (draft.slices[p].idle_since(draft.now), descending(draft.slices[p].id)))
    for position in empty[: max(0, min(room))]:
        release.marks[position] = draft.now + rule.delay
        release.mark_reasons[position] = Reason(Code.LOW_UTILIZATION, numbers)
    _note(release, ready, Reason(Code.NOT_WORTH_IT, numbers))


def _in_use(release: Release, ready: list[int], resource: str | None) -> int:
    """Returns how many of the slices are in use; ``resource`` names what counts as use."""
    draft = release.draft
    if resource is None or resource not in draft.kinds.column:
        return sum(draft.busy(p) or p in release.placed for p in ready)
    return int((used_by_slice(draft, resource)[ready] > 0).sum())


def _work_on(release: Release, position: int) -> Reason | None:
    """Returns why a marked slice is needed again."""
    draft = release.draft
    item, group = draft.slices[position], draft.group_of(position)
    if position in release.placed:
        return Reason(Code.DEMAND, "demand is placed on it")
    if draft.busy(position):
        return Reason(Code.BUSY, f"it got work: {plural(item.tasks, 'task')}")
    if position in draft.requested:
        return Reason(Code.REQUESTED_CAPACITY, "a standing request needs its room")
    if group is not None and item.id in draft.groups[group].protected:
        return Reason(Code.PROTECTED, "it is protected")
    return None


def marks_of(release: Release) -> tuple[list[Change], list[Change]]:
    """Returns the marks to set and to remove, by slice id."""
    slices = release.draft.slices
    marks = [Change(slices[p].id, release.mark_reasons[p], until) for p, until in release.marks.items()]
    unmarks = [Change(slices[p].id, reason) for p, reason in release.unmarks.items()]
    return sorted(marks, key=lambda c: c.slice), sorted(unmarks, key=lambda c: c.slice)
