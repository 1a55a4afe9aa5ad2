"""This module serves the ``min`` of every group and family, standing requests for room, and ``spare`` slices.

Slices that are being released are called back before anything is bought. Launches for minimums obey every limit and
come before those for demand. ``min`` counts slices, busy or not; ``spare`` counts free ones; a slice may count for
both. A request is for room that must exist, busy or not, so it is packed on total room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from windlass.core.capacity.limits import LimitScope
from windlass.core.capacity.offers import FLIGHT_TIERS, NEW_TIER, Offers
from windlass.core.capacity.room import Bools, Room
from windlass.core.demand import in_order
from windlass.core.model.lifecycle import OFFERING, RECALLABLE, State
from windlass.core.model.reasons import Code
from windlass.core.model.snapshot import Demand, Gang
from windlass.core.plan_draft import PlanDraft, Purchase, Served
from windlass.core.tables.running_classes import class_counts

from .gang_attempt import try_of
from .gangs import place_and_buy, serve_whole


def raise_to_min(draft: PlanDraft, fewer: Mapping[int, int] | None = None) -> None:
    """Calls slices back, then buys, until every group and family has its ``min`` or a limit stops it.

    ``fewer``: by scope, how many are left to purchases that come later.
    """
    for at, scope in enumerate(draft.snapshot_tables.scopes):
        if not scope.min:
            continue
        wanted = scope.min - (fewer.get(at, 0) if fewer else 0)
        missing = wanted - sum(draft.live_count(group) + draft.limits.new[group] for group in scope.groups)
        if missing <= 0:
            continue
        back = [position for group in scope.groups for position in _recallable(draft, group)][:missing]
        _recall(draft, back, Code.MIN)
        for purchase in _buy_in(draft, scope, missing - len(back), Code.MIN):
            draft.offer(purchase, draft.offers)


def unneeded_for_min(draft: PlanDraft) -> dict[int, int]:
    """Returns, by scope, how many slices were bought for its ``min`` that nothing uses and that it does not need,
    because others count for it too."""
    bought = [purchase for purchase in draft.purchases if purchase.code == Code.MIN]
    if not bought:
        return {}
    scopes, scopes_of = draft.snapshot_tables.scopes, draft.snapshot_tables.scopes_of
    placed = draft.placed()
    live = [sum(draft.live_count(g) + draft.limits.new[g] for g in scope.groups) for scope in scopes]
    free = [sum(free_slices(draft, g, placed) for g in scope.groups) if scope.spare else 0 for scope in scopes]
    found = Counter[int]()
    for purchase in bought:
        mine = scopes_of[purchase.group]
        by = mine[-1] if purchase.owner else mine[0]
        for position in range(purchase.position, purchase.position + purchase.slices):
            if placed[position] or position in draft.requested:
                continue
            if any(live[at] <= scopes[at].min or (scopes[at].spare and free[at] <= scopes[at].spare) for at in mine):
                break
            found[by] += 1
            for at in mine:
                live[at], free[at] = live[at] - 1, free[at] - 1
    return found


def surplus(draft: PlanDraft, *states: State) -> frozenset[int]:
    """Returns the slices in these states that no demand, minimum or request needs."""
    if not any(draft.snapshot_tables.of(group, state) for group in range(len(draft.groups)) for state in states):
        return frozenset()
    placed, found = draft.placed(), set[int]()
    scopes = draft.snapshot_tables.scopes
    live = [sum(draft.live_count(group) for group in scope.groups) for scope in scopes]
    free = [sum(free_slices(draft, g, placed) for g in scope.groups) if scope.spare else 0 for scope in scopes]
    for group, kind in enumerate(draft.groups):
        if kind.frozen or draft.limits.new[group]:
            continue
        mine = draft.snapshot_tables.scopes_of[group]
        for position in reversed(draft.snapshot_tables.of(group, *states)):
            kept = position in draft.released or position in draft.requested or placed[position]
            if kept or draft.slices[position].id in kind.protected:
                continue
            if all(live[at] > scopes[at].min and (not scopes[at].spare or free[at] > scopes[at].spare) for at in mine):
                found.add(position)
                for at in mine:
                    live[at], free[at] = live[at] - 1, free[at] - 1
    return frozenset(found)


def missing(draft: PlanDraft) -> int:
    """Returns how many slices are missing for a ``min``, and how many free ones for a ``spare``."""
    scopes = [scope for scope in draft.snapshot_tables.scopes if scope.min or scope.spare]
    if not scopes:
        return 0
    placed, count = draft.placed(), 0
    for scope in scopes:
        count += max(0, scope.min - sum(draft.live_count(g) + draft.limits.new[g] for g in scope.groups))
        if scope.spare:
            count += max(0, scope.spare - sum(free_slices(draft, group, placed) for group in scope.groups))
    return count


def _buy_in(draft: PlanDraft, scope: LimitScope, missing: int, code: Code) -> Iterator[Purchase]:
    """Buys slices of the groups of a scope, as far as the limits allow; the best available group first."""
    for group in draft.buying_order(scope.groups):
        slices = min(missing, draft.limits.headroom(group))
        if slices > 0:
            missing -= slices
            yield draft.buy(group, slices, code, scope.name if scope.family else "")


def buy_ahead(draft: PlanDraft) -> None:
    """Buys the slices of ``options.ahead``, as far as the limits allow. Nothing else is bought for demand then."""
    for group, slices in draft.options.ahead:
        if draft.limits.headroom(group, gang=True) >= slices:
            draft.offer(draft.buy(group, slices, Code.DEMAND), draft.offers)
    draft.limits.closed = True


def _recallable(draft: PlanDraft, group: int) -> list[int]:
    """Returns slices of the group that are being released and may come back, by id."""
    leaving = draft.snapshot_tables.of(group, *RECALLABLE)
    if not leaving:
        return []
    is_open = set(draft.offers.position[draft.offers.open].tolist())
    return [p for p in leaving if p not in draft.recalled and p in is_open]


def _recall(draft: PlanDraft, positions: list[int], code: Code) -> None:
    draft.recalled.update(dict.fromkeys(positions, code))
    draft.offers.tier[np.isin(draft.offers.position, positions)] = 0


# -- spare ---------------------------------------------------------------------------------------------------------


def free_slices(draft: PlanDraft, group: int, placed: Bools) -> int:
    """Returns how many slices of the group, purchases included, have no task and no placement."""
    back = [p for p in draft.recalled if draft.group_of(p) == group]
    here = (p for p in (*draft.snapshot_tables.of(group, *OFFERING), *back) if draft.is_whole_and_free(p))
    free = sum(not placed[p] and p not in draft.released for p in here)
    for purchase in draft.purchases:
        if purchase.group == group:
            free += int((~placed[purchase.position : purchase.position + purchase.slices]).sum())
    return free


def hold_spares(draft: PlanDraft) -> None:
    """Calls slices back, then buys, until every group and family has its free slices beyond demand or a limit stops
    it."""
    for scope in draft.snapshot_tables.scopes:
        if not scope.spare:
            continue
        placed = draft.placed()
        missing = scope.spare - sum(free_slices(draft, group, placed) for group in scope.groups)
        if missing <= 0:
            continue
        leaving = [position for group in scope.groups for position in _recallable(draft, group)]
        back = [p for p in leaving if draft.is_whole_and_free(p) and not placed[p]][:missing]
        _recall(draft, back, Code.SPARE)
        list(_buy_in(draft, scope, missing - len(back), Code.SPARE))


# -- standing requests ---------------------------------------------------------------------------------------------


BUSY_TIER = -1
"""Busy slices hold requested room first, so that idle ones can be released."""
CALL_BACK_TIER = NEW_TIER + 1
"""A slice is called back only after existing and bought slices were used."""


def meet_requests(draft: PlanDraft) -> None:
    """Makes room for every standing request, each whole or not at all."""
    requests = in_order(draft.snapshot.requests, draft.largest)
    if not requests:
        return
    table = draft.decisions.requests_table = _total_room(draft)
    valid = []
    for request in requests:
        if mistake := request.mistake:
            draft.decisions.invalid.append((request, mistake))
        else:
            valid.append(request)
    if not _meet_together(draft, table, valid):
        for request in valid:
            served = serve_whole(draft, table, request, Code.REQUEST)
            if served is None:
                draft.decisions.waiting_requests.append(request)
            else:
                _hold(draft, table, served)


def _meet_together(draft: PlanDraft, table: Offers, requests: list[Demand]) -> bool:
    """Tries to buy for all requests at once: one new slice may serve several of them."""
    if len(requests) < 2 or any(request.gang not in (None, Gang.ANY) for request in requests):
        return False
    tries = [try_of(draft, table, request, Code.REQUEST) for request in requests]
    checkpoint = draft.checkpoint(table, draft.offers)
    if any(one.has_rules for one in tries):
        return False
    served = place_and_buy(tries)
    if served is None:
        draft.rollback(checkpoint)
        return False
    _hold(draft, table, served)
    return True


def _hold(draft: PlanDraft, table: Offers, served: Served) -> None:
    """Keeps the slices that hold requested room; those being released are called back."""
    held = {int(p) for run in served.runs for p in run.positions}
    draft.requested |= held
    here = (p for p in held if p < len(draft.slices))
    back = sorted(p for p in here if draft.slices[p].state not in OFFERING and p not in draft.recalled)
    _recall(draft, back, Code.REQUEST)
    table.tier[np.isin(table.position, back)] = 0


def _total_room(draft: PlanDraft) -> Offers:
    """Returns a table of every healthy node with its total room; the tiers are the order in which requests use them."""
    rows, tiers = draft.snapshot_tables.rows, []
    for position in rows.position.tolist():
        state = draft.slices[position].state
        if draft.busy(position) and state == State.READY:
            tier = BUSY_TIER
        elif state in RECALLABLE and position not in draft.recalled:
            tier = CALL_BACK_TIER
        else:
            tier = FLIGHT_TIERS.get(state, 0)
        tiers.append(tier)
    empty = Room.fresh(draft.kinds, rows.room.total)
    table = Offers(draft.eligibility, replace(rows, tier=np.array(tiers, np.int64), room=empty))
    table.open = np.isin(table.position, draft.offers.position[draft.offers.open])
    if draft.classes:
        # Running tasks may be the requested work itself: requests obey their constraints only among each other.
        table.classes = class_counts(draft.snapshot_tables, draft.classes).emptied()
    for purchase in draft.purchases:
        draft.offer(purchase, table)
    return table
