"""The planner makes several candidate plans where that can help, and keeps the best one.

The basic order is: gang after gang, then shape after shape, task by task on existing nodes, then buy. It misses two
things:

- A slice that is bought for a gang could serve other demand too. So members of gangs that may go anywhere are first
  treated as single tasks; if everything is served that way, every gang is complete.
- Free slices, ready or in flight ("stock"). A plan packs its purchases by its strategy. One pass later the same slices
  are in flight, the demand still waits, and placing it task by task may pack it worse than the purchase did, so more
  would be bought. So when a plan buys although there is stock, a second candidate ignores the stock first, and then
  uses it in place of the purchases. With the demand of the pass before, this gives the purchases of the pass before,
  and nothing is bought twice. A third candidate takes the tightest node first, ready or in flight. Neither is made
  where no fewer slices could suffice (``buying/lower_bound``).

One plan must not launch what the next one cancels. Two rules ensure that:

- Slices for a ``min`` are bought before all others. Where those that are bought later count for it too, the draft is
  made again with fewer slices for the ``min``.
- A launch is cancelled only if it would not be bought again. Placed task by task, demand may use other slices in flight
  than the plan that bought them for it: a spare, for example, which cannot be replaced at the max of its group. So when
  launches are surplus, a candidate ignores all launches that could be cancelled, and then uses them in place of its
  purchases. It is taken if it is no worse and fewer launches are surplus.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from windlass.core.buying.lower_bound import fewest_slices
from windlass.core.capacity.room import Ints
from windlass.core.model.lifecycle import IN_FLIGHT, PROGRESS, State
from windlass.core.model.snapshot import Gang, Snapshot
from windlass.core.placement.gang_attempt import tasks_of
from windlass.core.placement.minimums import free_slices, missing, unneeded_for_min
from windlass.core.tables.planner_memo import PlannerMemo
from windlass.core.tables.snapshot_tables import SnapshotTables

from .plan_draft import DraftOptions, PlanDraft, Served
from .purchase_search import cheaper_set

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


Serve = Callable[[SnapshotTables, DraftOptions], PlanDraft]


def best_draft(
    snapshot: Snapshot, served: Serve, opened: Serve, memo: PlannerMemo, *, search: bool = True
) -> PlanDraft:
    """Returns the draft that serves the hardest demand, then costs the least, then buys the fewest nodes.

    ``search``: small inputs with gangs are also served on cheaper sets of new slices.
    """
    snapshot_tables = SnapshotTables(snapshot, memo)
    best = _best_purchases(snapshot_tables, served, opened, search=search)
    return _keeping_launches(best, served, opened, search=search)


def _best_purchases(snapshot_tables: SnapshotTables, served: Serve, opened: Serve, *, search: bool) -> PlanDraft:
    """Returns the best of the candidates that differ in what they buy."""
    best, options = _first_draft(snapshot_tables, served, DraftOptions(), search=search)
    stock = stock_of(best) if best.purchases else {}
    above_limit = any(best.group_of(position) is not None for position in best.released)
    if not stock or above_limit or _cannot_be_beaten(best):
        return best
    unbought = _as_if_unbought(snapshot_tables, stock, served, opened, search=search)
    for other in (unbought, served(snapshot_tables, replace(options, ignore_tiers=True, ahead=()))):
        if other is None or not _is_whole(other) or _worth(other) >= _worth(best):
            continue
        if not _leaves_ready(other) and not unneeded_for_min(other):
            best = other
    return best


CANCELLED = (State.QUEUED, State.REQUESTING)
"""The states in which a launch that nothing needs is cancelled."""


def _keeping_launches(best: PlanDraft, served: Serve, opened: Serve, *, search: bool) -> PlanDraft:
    """Returns a draft that needs more of the launches in flight, where a plan without them would buy them again."""
    snapshot = best.snapshot
    if not snapshot.demands and not snapshot.requests:
        return best  # for a min or a spare one slice is as good as another
    surplus = _surplus(best, *CANCELLED)
    if not surplus or any(best.group_of(position) is not None for position in best.released):
        return best
    stock = {
        group: [p for state in reversed(CANCELLED) for p in best.snapshot_tables.of(group, state)]
        for group, kind in enumerate(best.groups)
        if not kind.frozen
    }
    other = _as_if_unbought(best.snapshot_tables, stock, served, opened, search=search)
    if other is None or not _is_whole(other) or _leaves_ready(other):
        return best
    if _worth_with_minimums(other) > _worth_with_minimums(best):
        return best
    return other if _surplus(other, *CANCELLED) < surplus else best


def without_queued_surplus(draft: PlanDraft, served: Serve) -> PlanDraft:
    """Returns the plan without the queued slices that it would cancel anyway, if less demand waits then."""
    if not any(draft.decisions.unserved):
        return draft
    cancelled = _surplus(draft, State.QUEUED)
    if not cancelled:
        return draft
    other = served(draft.snapshot_tables, replace(draft.options, cancelled=cancelled))
    groups = {draft.group_of(position) for position in cancelled}
    if not _is_whole(other) or any(purchase.group in groups for purchase in other.purchases):
        return draft
    return other if _worth(other) < _worth(draft) else draft


def _surplus(draft: PlanDraft, *states: State) -> frozenset[int]:
    """Returns slices in flight, in some states, that no demand, minimum or request needs."""
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


def _first_draft(
    snapshot_tables: SnapshotTables, served: Serve, options: DraftOptions, *, search: bool
) -> tuple[PlanDraft, DraftOptions]:
    """Treats gangs that may go anywhere as single tasks if that serves everything, else follows the strict order; gangs
    that need a node for each member are treated so too, where that costs less."""
    best = None
    if any(demand.gang == Gang.ANY for demand in snapshot_tables.snapshot.demands):
        as_singles = served(snapshot_tables, replace(options, gangs_as_singles=frozenset({Gang.ANY})))
        best = as_singles if _is_whole(as_singles) else None
    best = best or served(snapshot_tables, options)
    best = _without_unneeded_min(best, served)
    spread = [demand for demand in snapshot_tables.snapshot.demands if demand.gang == Gang.SPREAD]
    if 0 < len(spread) <= FEW_GANGS and best.strategy == "cheapest" and _buys_for_singles(best):
        as_singles = served(snapshot_tables, replace(options, gangs_as_singles=frozenset({Gang.ANY, Gang.SPREAD})))
        if _is_whole(as_singles) and _worth(as_singles) < _worth(best):
            best = as_singles
    if search and (cheaper := cheaper_set(best, served)) is not None and _worth(cheaper) < _worth(best):
        best = cheaper
    return best, best.options


def _without_unneeded_min(best: PlanDraft, served: Serve) -> PlanDraft:
    """Leaves a ``min`` to purchases that come later, where these count for it too."""
    while fewer := unneeded_for_min(best):
        before = dict(best.options.fewer_min)
        fewer_min = tuple(sorted((before | {at: before.get(at, 0) + count for at, count in fewer.items()}).items()))
        other = served(best.snapshot_tables, replace(best.options, fewer_min=fewer_min))
        if not _is_whole(other) or _worth_with_minimums(other) >= _worth_with_minimums(best):
            break
        best = other
    return best


FEW_GANGS = 8
"""Up to this many gangs of single hosts are also bought for together with the single tasks: each adds a constraint."""


def _buys_for_singles(draft: PlanDraft) -> bool:
    """Whether something is bought for single tasks besides a gang: only then can they share it."""
    gangs = {gang.id for gang, _ in draft.decisions.served_gangs}
    owners = {purchase.owner for purchase in draft.purchases}
    return bool(owners & gangs) and bool(owners - gangs)


def _leaves_ready(draft: PlanDraft) -> bool:
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
    ready = np.array([item.state == State.READY for item in draft.slices], np.bool_)

    def waits(served: Served, tasks: int | None = None) -> bool:
        runs = [run.positions for run in served.runs if tasks is None or run.tasks == tasks]
        places = np.concatenate(runs) if runs else np.zeros(0, np.int64)
        here = places[places < len(ready)]
        return len(here) < len(places) or not ready[here].all()

    found = [(shape.need, shape.selector) for shape, served in draft.decisions.served_shapes if waits(served)]
    for gang, served in draft.decisions.served_gangs:
        if gang.gang == Gang.ANY:
            tasks = enumerate(tasks_of(draft, gang))
            found += [(one.need, one.selector) for index, one in tasks if waits(served, index)]
    return any(
        bool((rows & (offers.capacity(need, selector) > 0) & (bool(need.whole or need.shares) | ~accelerated)).any())
        for need, selector in found
    )


def _is_whole(draft: PlanDraft) -> bool:
    """Whether no gang was split: if gangs were treated as single tasks, that is certain only if nothing waits."""
    return not draft.options.gangs_as_singles or not any(draft.decisions.unserved)


def _worth(draft: PlanDraft) -> tuple[list[int], int, int]:
    """Sort key: the better draft first."""
    waiting = [len(draft.decisions.waiting_requests), *draft.decisions.unserved]
    return (
        waiting if any(waiting) else [],  # with gangs as single tasks the order differs, but nothing waits
        sum((draft.groups[one.group].price or 0) * one.slices for one in draft.purchases),
        sum(draft.groups[one.group].hosts * one.slices for one in draft.purchases),
    )


def _worth_with_minimums(draft: PlanDraft) -> tuple[list[int], int, int, int]:
    """Sort key: the same, but what misses less of a ``min`` or a ``spare`` comes before what costs less."""
    waiting, cost, nodes = _worth(draft)
    return waiting, missing(draft), cost, nodes


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


def _as_if_unbought(
    snapshot_tables: SnapshotTables,
    stock: dict[int, list[int]],
    served: Serve,
    opened: Serve,
    *,
    search: bool,
) -> PlanDraft | None:
    """Serves without the stock, then uses the stock in place of purchases; None if a limit forbids it."""
    slices = snapshot_tables.slices
    hidden = {position for positions in stock.values() for position in positions}
    rest = np.delete(np.arange(len(slices)), sorted(hidden))
    bare = replace(snapshot_tables.snapshot, slices=tuple(map(slices.__getitem__, rest.tolist())))
    other, options = _first_draft(
        SnapshotTables(bare, snapshot_tables.memo), served, DraftOptions(offer_every_purchase=True), search=search
    )
    # Gangs that were treated as single tasks have classes of their own: both drafts must count the same ones.
    draft = opened(snapshot_tables, DraftOptions(gangs_as_singles=options.gangs_as_singles))
    place = np.zeros(len(other.slices) + other.limits.bought, np.int64)
    place[: len(other.slices)] = rest
    left = {group: list(positions) for group, positions in stock.items()}
    for purchase in other.purchases:
        here = left.get(purchase.group, [])[: purchase.slices]
        left[purchase.group] = left.get(purchase.group, [])[purchase.slices :]
        place[purchase.position : purchase.position + len(here)] = here
        more = purchase.slices - len(here)
        if more:
            if draft.limits.headroom(purchase.group, gang=True) < more:
                return None
            bought = draft.buy(purchase.group, more, purchase.code, purchase.owner, purchase.choice, purchase.tasks)
            start = purchase.position + len(here)
            place[start : start + more] = bought.position + np.arange(more)
    _copy_decisions(other, draft, place, hidden)
    return draft


def _copy_decisions(other: PlanDraft, draft: PlanDraft, place: Ints, hidden: set[int]) -> None:
    """Copies the decisions of ``other``, with its slices renamed by ``place``."""
    draft.decisions = other.decisions.moved(place)
    draft.requested = {int(place[p]) for p in other.requested}
    draft.recalled = {int(place[p]): code for p, code in other.recalled.items()}
    offers, source = draft.offers, other.offers
    kept = ~np.isin(offers.position, np.array(sorted(hidden), np.int64))
    count = int(kept.sum())
    offers.tier[kept] = source.tier[:count]
    offers.room.put(np.flatnonzero(kept), source.room.rows(np.arange(count)))
    if offers.classes is not None and source.classes is not None:
        offers.classes.put(np.flatnonzero(kept), source.classes, np.arange(count))
    new = np.arange(count, len(source))
    target = place[source.position[new]]
    in_stock = target < len(draft.slices)
    rows_of: dict[int, list[int]] = {}
    for row in np.flatnonzero(~kept).tolist():
        rows_of.setdefault(int(offers.position[row]), []).append(row)
    loaded = [rows_of[int(position)].pop(0) for position in target[in_stock]]
    if loaded:
        offers.room.put(np.array(loaded), source.room.rows(new[in_stock]))
        if offers.classes is not None and source.classes is not None:
            offers.classes.put(np.array(loaded), source.classes, new[in_stock])
    rest = new[~in_stock]
    offers.adopt(source, rest, target[~in_stock])
