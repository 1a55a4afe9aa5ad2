"""The planner makes several candidate plans where that can help, and keeps the best one.

The basic order is: priority after priority, gang after gang, then shape after shape, task by task on existing nodes,
then buy. It misses three things:

- A slice that is bought for a gang could serve other demand too. So members of gangs that may go anywhere are first
  treated as single tasks; if everything is served that way, every gang is complete.
- A slice that is bought for one priority could be shared with another. Where new slices alone serve all demand, no
  task comes before another, and all priorities are bought for together if that costs less.
- Free slices, ready or in flight ("stock"), can be used better. A plan packs its purchases by its strategy. One pass
  later the same slices are in flight, the demand still waits, and placing it task by task may pack it worse than the
  purchase did, so more would be bought. So when a plan buys although there is stock, a second candidate ignores the
  stock first, and then uses it in place of the purchases. With the demand of the pass before, this gives the purchases
  of the pass before, and nothing is bought twice. A third candidate takes the tightest node first, ready or in flight;
  a fourth, where spares are held, uses them last. None is made where no fewer slices could suffice
  (``buying/lower_bound``).

One plan must not launch what the next one cancels. Two rules serve that here, and ``next_plan`` a third:

- Slices for a ``min`` are bought before all others. Where those that are bought later count for it too, the draft is
  made again with fewer slices for the ``min``.
- A launch is cancelled only if it would not be bought again. Placed task by task, demand may use other slices in flight
  than the plan that bought them for it: a spare, for example, which cannot be replaced at the max of its group. So when
  launches are surplus, other candidates are made: one ignores all launches that could be cancelled, and then uses them
  in place of its purchases, and is taken if it is no worse and fewer launches are surplus; one uses spares last; one
  takes the tightest node first. These two are taken if they are better.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain

import numpy as np

from windlass.core.buying.lower_bound import fewest_slices
from windlass.core.capacity.room import Ints
from windlass.core.model.lifecycle import IN_FLIGHT, PROGRESS, State
from windlass.core.model.reasons import Code
from windlass.core.model.snapshot import Gang, Snapshot
from windlass.core.placement.minimums import missing, surplus, unneeded_for_min
from windlass.core.tables.planner_memo import PlannerMemo
from windlass.core.tables.snapshot_tables import SnapshotTables

from .copied_decisions import copy_decisions
from .draft_worth import is_whole, leaves_ready, worth, worth_with_minimums
from .plan_draft import DraftOptions, PlanDraft
from .purchase_search import Serve, cheaper_set

_NEAREST = (State.READY, *PROGRESS)


def stock_of(draft: PlanDraft) -> dict[int, list[int]]:
    """Returns for each group the positions of its whole free slices, the nearest first."""
    stock: dict[int, list[int]] = {}
    for position in draft.snapshot_tables.not_busy:
        item, group = draft.slices[position], draft.group_of(position)
        if group is None or position in draft.released or draft.groups[group].frozen:
            continue  # a frozen slice could not be bought again, so it stays what it is
        idle = item.state == State.READY and item.marked_until is None and not draft.busy(position) and item.healthy
        if item.state in IN_FLIGHT or (idle and _looks_like_its_group(draft, position, group)):
            stock.setdefault(group, []).append(position)
    for positions in stock.values():
        positions.sort(key=lambda p: (_NEAREST.index(draft.slices[p].state), p))
    return stock


def _looks_like_its_group(draft: PlanDraft, position: int, group: int) -> bool:
    kind, profile = draft.groups[group], draft.profiles[group]
    nodes = draft.slices[position].nodes
    same = (not n.labels or draft.eligibility.node_profile(kind, n.labels, profile) == profile for n in nodes)
    return len(nodes) == kind.hosts and all(same)


def best_draft(
    snapshot: Snapshot, served: Serve, opened: Serve, memo: PlannerMemo, *, search: bool = True
) -> PlanDraft:
    """Returns the draft that serves the hardest demand, then costs the least, then buys the fewest nodes.

    ``search``: small inputs with gangs are also served on cheaper sets of new slices.
    """
    snapshot_tables = SnapshotTables(snapshot, memo)
    best = _best_purchases(snapshot_tables, served, opened, DraftOptions(), search=search)
    return _keeping_launches(best, served, opened, search=search)


def _best_purchases(
    snapshot_tables: SnapshotTables,
    served: Serve,
    opened: Serve,
    options: DraftOptions,
    *,
    search: bool,
    merge: bool = True,
) -> PlanDraft:
    """Returns the best of the candidates that differ in what they buy."""
    best = _first_draft(snapshot_tables, served, options, search=search, merge=merge)
    stock = stock_of(best) if best.purchases else {}
    above_limit = any(best.group_of(position) is not None for position in best.released)
    if not stock or above_limit or _cannot_be_beaten(best):
        return best

    def bare(rest: SnapshotTables, merge: bool) -> PlanDraft:
        return _first_draft(rest, served, _EVERY_ROW, search=search, merge=merge)

    unbought = _as_if_unbought(snapshot_tables, stock, bare, opened)
    plain = replace(best.options, priorities_as_one=False, ahead=())
    others = [replace(plain, ignore_tiers=True)]
    if any(scope.spare for scope in snapshot_tables.scopes):
        others.append(replace(plain, spares_last=True))
    for other in (unbought, *(served(snapshot_tables, options) for options in others)):
        if other is None or not is_whole(other) or worth_with_minimums(other) >= worth_with_minimums(best):
            continue
        if not leaves_ready(other) and not unneeded_for_min(other):
            best = other
    return best


CANCELLED = (State.QUEUED, State.REQUESTING)
"""The states in which a launch that nothing needs is cancelled."""


def _keeping_launches(best: PlanDraft, served: Serve, opened: Serve, *, search: bool) -> PlanDraft:
    """Returns a draft that needs more of the launches in flight, where a plan without them would buy them again."""
    snapshot = best.snapshot
    if not snapshot.demands and not snapshot.requests:
        return best  # for a min or a spare one slice is as good as another
    unneeded = surplus(best, *CANCELLED)
    if not unneeded or any(best.group_of(position) is not None for position in best.released):
        return best
    stock = {
        group: [p for state in reversed(CANCELLED) for p in best.snapshot_tables.of(group, state)]
        for group, kind in enumerate(best.groups)
        if not kind.frozen
    }

    def bare(rest: SnapshotTables, merge: bool) -> PlanDraft:
        return _best_purchases(rest, served, opened, _EVERY_ROW, search=search, merge=merge)

    unbought = _as_if_unbought(best.snapshot_tables, stock, bare, opened)
    plain = replace(best.options, priorities_as_one=False, ahead=())
    others = (replace(plain, spares_last=True), replace(plain, ignore_tiers=True))
    for other in (unbought, *(served(best.snapshot_tables, options) for options in others)):
        if other is None or not is_whole(other) or leaves_ready(other):
            continue
        mine, theirs = worth_with_minimums(best), worth_with_minimums(other)
        if theirs < mine or (other is unbought and theirs == mine and surplus(other, *CANCELLED) < unneeded):
            best = other
    return best


def without_queued_surplus(draft: PlanDraft, served: Serve) -> PlanDraft:
    """Returns the plan without the queued slices that it would cancel anyway, if something else needs their places:
    demand, a request, a ``min`` or a ``spare``."""
    waits = any(draft.decisions.unserved) or draft.decisions.waiting_requests
    if not waits and not missing(draft):
        return draft
    cancelled = surplus(draft, State.QUEUED)
    if not cancelled:
        return draft
    other = served(draft.snapshot_tables, replace(draft.options, cancelled=cancelled))
    groups = {draft.group_of(position) for position in cancelled}
    if not is_whole(other) or any(purchase.group in groups for purchase in other.purchases):
        return draft
    return other if worth_with_minimums(other) < worth_with_minimums(draft) else draft


def _first_draft(
    snapshot_tables: SnapshotTables, served: Serve, options: DraftOptions, *, search: bool, merge: bool = True
) -> PlanDraft:
    """Returns the best draft that places demand on existing slices before it buys.

    Gangs that may go anywhere are served as single tasks if that serves everything, else in the strict order. Gangs
    that need a node for each member are also served as single tasks, if that costs less. ``merge``: demands of
    different priorities are bought for together, if that costs less.
    """
    best = None
    gangs = snapshot_tables.demands.gangs
    if any(gang.gang == Gang.ANY for gang in gangs):
        as_singles = served(snapshot_tables, replace(options, gangs_as_singles=frozenset({Gang.ANY})))
        best = as_singles if is_whole(as_singles) else None
    best = best or served(snapshot_tables, options)
    best = _without_unneeded_min(best, served)
    merge = merge and _may_mix(best) and len({one.priority for one in best.snapshot.demands}) > 1
    spread = [gang for gang in gangs if gang.gang == Gang.SPREAD]
    together = replace(options, gangs_as_singles=frozenset({Gang.ANY, Gang.SPREAD}))
    tried = []
    if 0 < len(spread) <= FEW_GANGS and best.strategy == "cheapest" and _buys_for_singles(best):
        tried.append(together)
        if merge:
            tried.append(replace(together, priorities_as_one=True))
    if merge and (any(best.decisions.unserved) or _buys_for_priorities(best)):
        tried.append(replace(best.options, priorities_as_one=True))
    for other in tried:
        draft = served(snapshot_tables, other)
        if is_whole(draft) and not (other.priorities_as_one and draft.used()) and worth(draft) < worth(best):
            best = draft
    cheaper = cheaper_set(best, served, as_one=merge, any_order=_may_mix(best)) if search else None
    if cheaper is not None and worth(cheaper) < worth(best):
        best = cheaper
    return best


def _without_unneeded_min(best: PlanDraft, served: Serve) -> PlanDraft:
    """Returns a draft that buys fewer slices for a ``min``, where purchases that come later count for it too."""
    other, scopes = best, best.snapshot_tables.scopes
    while fewer := unneeded_for_min(other):
        counts = dict(other.options.fewer_min)
        counts |= {at: min(scopes[at].min, counts.get(at, 0) + count) for at, count in fewer.items()}
        fewer_min = tuple(sorted(counts.items()))
        if fewer_min == other.options.fewer_min:
            break
        other = served(best.snapshot_tables, replace(best.options, fewer_min=fewer_min))
        if not is_whole(other) or worth_with_minimums(other) > worth_with_minimums(best):
            break
        if worth_with_minimums(other) < worth_with_minimums(best):
            best = other  # else other slices took their place, and the next round leaves more to them
    return best


FEW_GANGS = 8
"""Up to this many gangs of single hosts are also bought for together with the single tasks: each adds a constraint."""


FEW_SLICES = 100
"""Up to this many slices are bought for all priorities together. Where more are bought, few of them could be shared."""


def _buys_for_singles(draft: PlanDraft) -> bool:
    """Whether something is bought for single tasks besides a gang: only then can they share it."""
    gangs = {gang.id for gang, _ in draft.decisions.served_gangs}
    owners = {purchase.owner for purchase in draft.purchases}
    return bool(owners & gangs) and bool(owners - gangs)


def _may_mix(draft: PlanDraft) -> bool:
    """Whether demand waits for new slices alone: if all of it is served, none comes before another."""
    if draft.strategy != "cheapest" or not 0 < draft.limits.bought <= FEW_SLICES or draft.used():
        return False
    # A limit may leave the better alternative to some of them only.
    return not any(one.any_of or any(bundle.any_of for bundle in one.bundles) for one in draft.snapshot.demands)


def _buys_for_priorities(draft: PlanDraft) -> bool:
    """Whether slices are bought for several priorities: only then can tasks of different priorities share one."""
    owners = {purchase.owner for purchase in draft.purchases if purchase.code == Code.DEMAND}
    return len({one.priority for one in draft.snapshot.demands if one.id in owners}) > 1


def _cannot_be_beaten(draft: PlanDraft) -> bool:
    """Whether nothing waits and every candidate must buy as many slices, none of which is cheaper or has fewer
    hosts."""
    if any(draft.decisions.unserved) or draft.decisions.waiting_requests:
        return False
    price, hosts = int(draft.price.min()), int(draft.hosts.min())
    if any(draft.price[one.group] > price or draft.hosts[one.group] > hosts for one in draft.purchases):
        return False
    tasks = ((shape.need, shape.count) for shape, _ in draft.decisions.served_shapes)
    fewest = fewest_slices(draft.snapshot_tables.rows.room.free, draft.totals * draft.hosts[:, None], tasks)
    return draft.limits.bought <= fewest


_EVERY_ROW = DraftOptions(offer_every_purchase=True)


def _as_if_unbought(
    snapshot_tables: SnapshotTables,
    stock: dict[int, list[int]],
    bare: Callable[[SnapshotTables, bool], PlanDraft],
    opened: Serve,
) -> PlanDraft | None:
    """Serves without the stock, then uses the stock in place of purchases; None if a limit forbids it.

    ``bare`` returns the draft without the stock. Demands of different priorities may be bought for together, unless one
    of them could start at once.
    """
    hidden = sorted(chain.from_iterable(stock.values()))
    rest = np.delete(np.arange(len(snapshot_tables.slices)), hidden)
    slices = tuple(map(snapshot_tables.slices.__getitem__, rest.tolist()))
    without = replace(snapshot_tables.snapshot, slices=slices)
    tables = SnapshotTables(without, snapshot_tables.memo, snapshot_tables.demands)
    other = bare(tables, True)
    draft = _with_stock(other, snapshot_tables, stock, rest, opened)
    if draft is None or not other.options.priorities_as_one:
        return draft
    if not any(draft.slices[p].state == State.READY for p in draft.used()):
        return draft
    return _with_stock(bare(tables, False), snapshot_tables, stock, rest, opened)


def _with_stock(
    other: PlanDraft, snapshot_tables: SnapshotTables, stock: dict[int, list[int]], rest: Ints, opened: Serve
) -> PlanDraft | None:
    """Returns a draft that was made without the stock, with the stock in place of purchases.

    ``rest``: the positions of its slices in the whole snapshot.
    """
    # Gangs that were treated as single tasks have classes of their own: both drafts must count the same ones.
    draft = opened(snapshot_tables, DraftOptions(gangs_as_singles=other.options.gangs_as_singles))
    place = np.zeros(len(other.slices) + other.limits.bought, np.int64)
    place[: len(other.slices)] = rest
    left = {group: list(positions) for group, positions in stock.items()}
    for purchase in other.purchases:
        reused = left.get(purchase.group, [])[: purchase.slices]
        left[purchase.group] = left.get(purchase.group, [])[purchase.slices :]
        place[purchase.position : purchase.position + len(reused)] = reused
        more = purchase.slices - len(reused)
        if more:
            if draft.limits.headroom(purchase.group, gang=True) < more:
                return None
            bought = draft.buy(purchase.group, more, purchase.code, purchase.owner, purchase.choice, purchase.tasks)
            start = purchase.position + len(reused)
            place[start : start + more] = bought.position + np.arange(more)
    copy_decisions(other, draft, place, set(chain.from_iterable(stock.values())))
    return draft
