"""This module compares drafts: which one serves more, misses fewer minimums and costs less, and which one is valid."""

from __future__ import annotations

import numpy as np

from windlass.core.capacity.eligibility import alternative
from windlass.core.model.lifecycle import RECALLABLE, State
from windlass.core.model.quantities import ACCELERATORS
from windlass.core.model.snapshot import Demand, Gang
from windlass.core.placement.gang_attempt import tasks_of
from windlass.core.placement.gangs import holds_gang
from windlass.core.placement.minimums import missing

from .plan_draft import PlanDraft, Served


def worth(draft: PlanDraft) -> tuple[list[int], int, int, int]:
    """Sort key: the better draft first."""
    waiting = [len(draft.decisions.waiting_requests), *draft.decisions.unserved]
    return (
        waiting if any(waiting) else [],  # with gangs as single tasks the order differs, but nothing waits
        later_alternatives(draft),
        sum((draft.groups[one.group].price or 0) * one.slices for one in draft.purchases),
        sum(draft.groups[one.group].hosts * one.slices for one in draft.purchases),
    )


def worth_with_minimums(draft: PlanDraft) -> tuple[list[int], int, int, int, int]:
    """Sort key: the same, but what misses less of a ``min`` or a ``spare`` comes before what costs less."""
    waiting, later, cost, nodes = worth(draft)
    return waiting, missing(draft), later, cost, nodes


def later_alternatives(draft: PlanDraft) -> int:
    """Returns how many alternatives of ``any_of`` all tasks on new slices passed over, in sum.

    Existing slices do not count: they are used before anything is bought, whichever alternative they meet.
    """
    served = [(shape.selector, one.runs) for shape, one in draft.decisions.served_shapes]
    for gang, one in draft.decisions.served_gangs:
        if gang.any_of or any(bundle.any_of for bundle in gang.bundles):
            tasks = enumerate(tasks_of(draft, gang))
            served += [(of.selector, [run for run in one.runs if run.tasks == index]) for index, of in tasks]
    if not any(selector[3] for selector, _ in served):
        return 0
    groups = np.zeros(draft.limits.bought, np.int64)
    for purchase in draft.purchases:
        start = purchase.position - len(draft.slices)
        groups[start : start + purchase.slices] = purchase.group
    passed = 0
    for selector, runs in served:
        if selector[3]:
            later = alternative(draft.eligibility.answers(selector)[1])
            for run in runs:
                new = run.positions >= len(draft.slices)
                bought = groups[run.positions[new] - len(draft.slices)]
                passed += int((later[draft.profile_index[bought]] * run.counts[new]).sum())
    return passed


def is_whole(draft: PlanDraft) -> bool:
    """Whether no gang was split, and none waits for work of a lower priority: if gangs were treated as single tasks, or
    all priorities as one, that is certain only if nothing waits."""
    merged = draft.options.gangs_as_singles or draft.options.priorities_as_one
    return not merged or not any(draft.decisions.unserved)


def leaves_ready(draft: PlanDraft) -> bool:
    """Whether a task waits for a boot although a free ready slice that the plan leaves idle could run it.

    A slice with accelerators does not count for a task that needs none.
    """
    placed = draft.placed()
    idle = [
        p
        for p in draft.snapshot_tables.not_busy
        if draft.slices[p].state == State.READY
        and draft.slices[p].marked_until is None
        and not placed[p]
        and p not in draft.released
        and draft.is_whole_and_free(p)
    ]
    if not idle:
        return False
    offers, devices = draft.offers, list(draft.kinds.devices)
    rows = np.isin(offers.position, idle) & offers.open
    accelerated = offers.room.total[:, devices].any(axis=1)
    ready = np.array([item.state == State.READY or item.state in RECALLABLE for item in draft.slices], np.bool_)

    def waits(served: Served, tasks: int | None = None) -> bool:
        """Whether some of the tasks are placed on a slice that is not ready. ``tasks``: only those of this index."""
        runs = [run.positions for run in served.runs if tasks is None or run.tasks == tasks]
        places = np.concatenate(runs) if runs else np.zeros(0, np.int64)
        existing = places[places < len(ready)]
        return len(existing) < len(places) or not ready[existing].all()

    late = [(shape.need, shape.selector) for shape, served in draft.decisions.served_shapes if waits(served)]
    for gang, served in draft.decisions.served_gangs:
        if gang.gang in (Gang.ANY, Gang.SPREAD):
            tasks = enumerate(tasks_of(draft, gang))
            late += [(one.need, one.selector) for index, one in tasks if waits(served, index)]
        elif waits(served) and holds_gang(draft, gang, rows if _needs_accelerator(gang) else rows & ~accelerated):
            return True
    return any(
        bool((rows & (offers.capacity(need, selector) > 0) & (bool(need.whole or need.shares) | ~accelerated)).any())
        for need, selector in late
    )


def _needs_accelerator(gang: Demand) -> bool:
    return any(name in ACCELERATORS for bundle in gang.bundles for name, _ in bundle.needs)
