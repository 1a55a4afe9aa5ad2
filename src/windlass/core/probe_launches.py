"""A probe launch buys one slice ahead of a gang whose group was in back-off.

When the back-off of a group is over, one slice in flight at a time shows whether its provider has capacity again. A
single task can be that launch. A gang that needs several slices of the group cannot, because it starts whole or not at
all, and would wait until the failures are forgotten. So one slice is bought ahead of it. The gang is not placed, and
waits with BACKOFF as before; the slice is held for it like any other that its members would use
(``docs/decisions/008``). When the slice is ready, the group is available, and the rest is bought at once.

Nothing is bought ahead unless the group is the only obstacle of the gang, and unless the next plan would hold the
slice: a plan must not release what the plan before launched.
"""

from __future__ import annotations

from windlass.core.capacity.limits import probing
from windlass.core.explain.waiting import Explainer
from windlass.core.model.lifecycle import IN_FLIGHT
from windlass.core.model.reasons import Code
from windlass.core.model.snapshot import Demand
from windlass.core.placement.gang_holding import holds_what_it_would_use, members_places
from windlass.core.placement.gangs import serve_whole

from .plan_draft import PlanDraft


def send_ahead(draft: PlanDraft) -> None:
    """Buys one slice for every gang that waits only for a group whose back-off is over."""
    if not any(_tries(draft, group) and draft.limits.headroom(group) for group in range(len(draft.groups))):
        return
    for gang in draft.decisions.waiting_gangs:
        group = _wanted(draft, gang)
        if group is not None and draft.limits.headroom(group):
            _buy_one(draft, gang, group)


def _tries(draft: PlanDraft, group: int) -> bool:
    return probing(draft.groups[group].availability, draft.now)


def _wanted(draft: PlanDraft, gang: Demand) -> int | None:
    """Returns the group in back-off that the gang would first be bought from if it were available.

    None: that would not help, or a slice that the gang would use is already in flight.
    """
    if any(_is_tried(draft, place) for place in members_places(draft, gang)):
        return None
    limits, before, bought = draft.limits, draft.checkpoint(draft.offers), len(draft.purchases)
    limits.trusting = True
    served = serve_whole(draft, draft.offers, gang, Code.DEMAND)
    limits.trusting = False
    groups = [purchase.group for purchase in draft.purchases[bought:]]
    if served is not None:
        draft.rollback(before)
    return next((group for group in groups if _tries(draft, group)), None)


def _is_tried(draft: PlanDraft, place: int) -> bool:
    """Whether the slice at this position shows, when it is ready, that its group is available again."""
    if place >= len(draft.slices):
        return any(one.position == place and _tries(draft, one.group) for one in draft.purchases)
    group = draft.group_of(place)
    return group is not None and draft.slices[place].state in IN_FLIGHT and _tries(draft, group)


def _buy_one(draft: PlanDraft, gang: Demand, group: int) -> None:
    before = draft.checkpoint(draft.offers)
    purchase = draft.buy(group, 1, Code.PROBE, gang.id)
    draft.offer(purchase, draft.offers)
    waiting = Explainer(draft).gang(gang, draft.offers)
    if purchase.position not in members_places(draft, gang) or not holds_what_it_would_use(draft, gang, waiting):
        draft.rollback(before)
