"""This module releases surplus launches, and slices that have been idle for their timeout."""

from __future__ import annotations

from windlass.core.model.lifecycle import State
from windlass.core.model.reasons import Code, Reason, seconds
from windlass.core.model.snapshot import Seconds
from windlass.core.plan_draft import PlanDraft

from .candidates import Release


def release_surplus(release: Release) -> None:
    """Cancels launches that no demand, minimum or request needs: queued ones first, the highest id first."""
    draft = release.draft
    for group in range(len(draft.groups)):
        for state in (State.QUEUED, State.REQUESTING):
            for position in reversed(draft.snapshot_tables.of(group, state)):
                if not release.is_pinned(position) and position not in release.stays:
                    release.release(position, surplus_reason(draft, position))


def surplus_reason(draft: PlanDraft, position: int) -> Reason:
    item = draft.slices[position]
    return Reason(Code.SURPLUS, f"{item.state}, and no demand, min, spare or request needs another {item.group}")


def release_idle(release: Release) -> None:
    """Releases ready slices without a task for ``idle_timeout``, the longest idle first."""
    draft = release.draft
    for group, kind in enumerate(draft.groups):
        timeout = kind.scale_down.idle_timeout if kind.scale_down else None
        if timeout is None:
            continue
        ready = draft.snapshot_tables.of(group, State.READY)
        idle = [p for p in ready if p not in release.placed and p not in draft.released and not draft.busy(p)]
        too_soon: dict[Seconds, Reason] = {}
        for since, backwards in sorted([(draft.slices[p].idle_since(draft.now), -p) for p in idle]):
            position, span = -backwards, draft.now - since
            if span < timeout:
                if since not in too_soon:
                    rest = seconds(timeout - span)
                    why = f"idle {seconds(span)}, limit {seconds(timeout)}: {rest} to go"
                    too_soon[since] = Reason(Code.NOT_IDLE_LONG_ENOUGH, why)
                release.stays[position] = too_soon[since]
            elif not release.is_pinned(position):
                release.release(position, _idle_reason(release, position, since, timeout))


def _idle_reason(release: Release, position: int, since: Seconds, timeout: Seconds) -> Reason:
    why = f"idle {seconds(release.draft.now - since)}, limit {seconds(timeout)}"
    gang, deadline = release.was_held.get(position, ("", 0))
    if gang and since + timeout <= deadline:
        return Reason(
            Code.GANG_RELEASED,
            f"{why}; held for gang {gang}, whose deadline passed {seconds(release.draft.now - deadline)} ago",
        )
    return Reason(Code.IDLE, why)
