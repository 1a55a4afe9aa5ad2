"""This module makes the plan that would follow a draft, and takes over its decisions where they are better.

While demand waits for its launches, each plan places it again, task by task, on all that is there by then: also on
slices that were launched for a ``min`` or a ``spare``, and on slices that were called back. So the next plan may need
fewer slices than this one launches, or serve more with others. It would then cancel launches of this plan, or launch
once more. To avoid both, the next plan is made in advance, over a snapshot in which the launches of the draft are
queued. What it keeps and what it would buy is launched now: if it is better, or if it cancels launches of the draft and
serves no less. It may then cost more than the draft, but the draft followed by it would cost still more.

That can only help where minimums are held or slices are called back: everything else is placed in the next plan as in
this one (``candidate_plans``). Drafts with many slices are not compared, because that takes as long as another plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from windlass.core.capacity.room import Bools
from windlass.core.demand import in_order
from windlass.core.model.lifecycle import RECALLABLE, State
from windlass.core.model.reasons import Code
from windlass.core.model.snapshot import Slice, Snapshot
from windlass.core.placement.gang_attempt import tasks_of
from windlass.core.placement.minimums import hold_spares, raise_to_min, surplus

from .copied_decisions import copy_decisions
from .draft_worth import leaves_ready, worth_with_minimums
from .plan_draft import DraftOptions, PlanDraft, Purchase
from .purchase_search import Serve, name_owners

SLICES: Final = 2000
"""With more slices, launches included, a draft is not compared with the next plan: with 1,000 nodes and 50 shapes that
takes about 50 ms."""

ROUNDS: Final = 3
"""How often the decisions of the next plan are taken over. The resulting draft has a next plan too, so there must be a
bound."""

LAST: Final = "\U0010ffff"
"""The ids of launches begin with it, so that they sort after all others."""


def with_next_decisions(draft: PlanDraft, decide: Callable[[Snapshot], PlanDraft], opened: Serve) -> PlanDraft:
    """Returns a draft that launches what the next plan would keep, or the draft itself.

    ``decide`` makes the draft of the next plan.
    """
    for _ in range(ROUNDS):
        if not draft.purchases or len(draft.slices) + draft.limits.bought > SLICES:
            break
        back = _called_back(draft)
        if not back and not any(scope.min or scope.spare for scope in draft.snapshot_tables.scopes):
            break
        after = _after(draft, back)
        following = decide(after.snapshot)
        unused = surplus(following, State.QUEUED) | following.released.keys()
        cancels = any(position >= len(after.kept) for position in unused)
        other = _taking_over(draft, after, following, opened) if cancels or following.purchases else None
        if other is None or leaves_ready(other):
            break
        mine, theirs = worth_with_minimums(draft), worth_with_minimums(other)
        if theirs[0] > mine[0] or (theirs >= mine and not cancels):
            break
        draft = other
    return draft


@dataclass(frozen=True, slots=True)
class _After:
    """The snapshot after a draft is carried out, while its launches are queued and the demand still waits."""

    snapshot: Snapshot
    kept: list[int]
    """The position in the draft of each slice that is still there; the launches come after them."""
    cancelled: frozenset[int]
    """Queued slices that are gone."""
    ending: frozenset[int]
    """Launches that are cancelled in REQUESTING: they take no demand, but still count for the limits."""


def _called_back(draft: PlanDraft) -> set[int]:
    """Returns slices being released, or marked for it, that the draft calls back."""
    used = ((p, draft.slices[p]) for p in draft.used())
    back = {p for p, one in used if one.state in RECALLABLE or one.marked_until is not None}
    return back | draft.recalled.keys()


def _after(draft: PlanDraft, back: set[int]) -> _After:
    """Returns the snapshot that the next pass would plan if nothing but this draft happened. ``back``: the slices that
    the draft calls back."""
    queued = frozenset(p for p in draft.released if draft.slices[p].state == State.QUEUED)
    cancelled = queued | surplus(draft, State.QUEUED)
    ending = surplus(draft, State.REQUESTING)
    kept, slices = list[int](), list[Slice]()
    for position, item in enumerate(draft.slices):
        if position in cancelled:
            continue
        if position in back:
            item = replace(item, state=State.READY, marked_until=None)
        elif position in ending:
            item = replace(item, state=State.TERMINATING)
        kept.append(position)
        slices.append(item)
    names = [draft.groups[one.group].name for one in draft.purchases for _ in range(one.slices)]
    slices += [Slice(f"{LAST}{at:09}", name, State.QUEUED, draft.now) for at, name in enumerate(names)]
    return _After(replace(draft.snapshot, slices=tuple(slices)), kept, cancelled, ending)


def _taking_over(draft: PlanDraft, after: _After, following: PlanDraft, opened: Serve) -> PlanDraft | None:
    """Returns a draft of the same snapshot with the decisions of the one that follows it.

    It launches what the demand and the requests use there; minimums are served afterwards as usual. None: a limit
    forbids it, or it would launch and cancel slices of one group.
    """
    count = len(after.kept)
    cancelled = after.cancelled | {after.kept[p] for p in following.options.cancelled if p < count}
    options = DraftOptions(gangs_as_singles=following.options.gangs_as_singles, cancelled=cancelled)
    other = opened(draft.snapshot_tables, options)
    place = np.full(len(following.slices) + following.limits.bought, -1, np.int64)
    place[:count] = after.kept
    placed = following.placed()
    shift = count - len(draft.slices)
    for one in (*(replace(one, position=one.position + shift) for one in draft.purchases), *following.purchases):
        for code, positions in _needed(one, placed, following.requested).items():
            if other.limits.headroom(one.group, gang=True) < len(positions):
                return None
            owner = ""  # named below
            if code == Code.REQUEST:
                owner = one.owner if one.code == code else _request_on(other, one.group)
            new = other.buy(one.group, len(positions), code, owner, one.choice if one.code == code else None)
            place[positions] = new.position + np.arange(len(positions))
    copy_decisions(following, other, place, {*after.cancelled, *after.ending})
    other.recalled = {**draft.recalled, **other.recalled}
    raise_to_min(other)
    hold_spares(other)
    if {other.group_of(p) for p in cancelled} & {one.group for one in other.purchases}:
        return None
    name_owners(other)
    return other


def _needed(purchase: Purchase, placed: Bools, requested: set[int]) -> dict[Code, list[int]]:
    """Returns the slices of a purchase that demand or a request uses, by the reason for which they are launched."""
    by_code: dict[Code, list[int]] = {}
    for position in range(purchase.position, purchase.position + purchase.slices):
        if position in requested and (purchase.code == Code.REQUEST or not placed[position]):
            by_code.setdefault(Code.REQUEST, []).append(position)
        elif placed[position]:
            by_code.setdefault(Code.DEMAND, []).append(position)
    return by_code


def _request_on(draft: PlanDraft, group: int) -> str:
    """Returns the first request that a slice of the group could hold a part of."""
    fresh = draft.group_table.fresh
    for request in in_order(draft.snapshot.requests, draft.largest):
        for one in () if request.mistake else tasks_of(draft, request):
            allowed, _ = draft.eligibility.answers(one.selector)
            if allowed[draft.profiles[group]] and fresh.capacity(one.need)[group]:
                return request.id
    return ""
