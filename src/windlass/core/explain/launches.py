"""This module explains why a slice is bought, and why from this group and not from another.

The strategies keep, for each choice, the sort key by which the candidates were compared; this module turns it into a
sentence. A group that was no candidate gets its first blocker, as for demand that waits.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from itertools import accumulate
from operator import itemgetter, neg

import numpy as np

from windlass.core.capacity.limits import LimitScope, probing
from windlass.core.capacity.room import Ints, Need
from windlass.core.model.reasons import Code, Reason, plural
from windlass.core.model.snapshot import selector_of
from windlass.core.placement.gang_attempt import tasks_of
from windlass.core.plan_draft import PlacedRun, PlanDraft, Purchase

from .waiting import Explainer

SHOWN_DEMANDS = 2
"""Largest number of demands that the reason of a launch names."""


def tasks_on_new(draft: PlanDraft) -> dict[int, dict[str, int]]:
    """Returns the tasks placed on each purchase, by demand; a purchase is identified by the position of its first
    slice.

    Members of a shape are assigned in order, as in ``placements``, but only tasks on new slices are counted.
    """
    found: dict[int, dict[str, int]] = {}
    if not draft.purchases:
        return found
    starts = np.array(sorted(purchase.position for purchase in draft.purchases), np.int64)

    def deal(members: Sequence[tuple[str, int]], runs: Sequence[PlacedRun]) -> None:
        if len(members) == 1:  # all tasks belong to one demand: no need to count slice by slice
            for first, count in _by_purchase(draft, starts, runs).items():
                _add(found.setdefault(first, {}), {members[0][0]: count})
            return
        ends: list[int] = []
        for first, begin, end in _pieces(draft, starts, runs):
            ends = ends or list(accumulate(map(itemgetter(1), members)))
            head, tail = bisect_right(ends, begin), bisect_left(ends, end)
            mine = found.setdefault(first, {})
            if head == tail:
                _add(mine, {members[head][0]: end - begin})
                continue
            _add(mine, {members[head][0]: ends[head] - begin})
            _add(mine, _by_name(members[head + 1 : tail]))
            _add(mine, {members[tail][0]: end - ends[tail - 1]})

    for gang, served in draft.decisions.served_gangs:
        for index, tasks in enumerate(tasks_of(draft, gang)):
            deal([(gang.id, tasks.count)], [run for run in served.runs if run.tasks == index])
    for shape, served in draft.decisions.served_shapes:
        deal(shape.members, served.runs)
    return found


def _by_purchase(draft: PlanDraft, starts: Ints, runs: Sequence[PlacedRun]) -> dict[int, int]:
    """Returns how many of the tasks are on each purchase."""
    if not runs:
        return {}
    positions = np.concatenate([run.positions for run in runs])
    new = positions >= len(draft.slices)
    purchases = np.searchsorted(starts, positions[new], "right") - 1
    counts = np.bincount(purchases, np.concatenate([run.counts for run in runs])[new]).astype(np.int64)
    found = np.flatnonzero(counts)
    return dict(zip(starts[found].tolist(), counts[found].tolist(), strict=True))


def _pieces(draft: PlanDraft, starts: Ints, runs: Iterable[PlacedRun]) -> Iterator[tuple[int, int, int]]:
    """Yields what is placed on new slices: (purchase, first task, task after the last), counted over all runs.

    Consecutive tasks on one purchase are one piece, however many slices they are on.
    """
    before = 0
    for run in runs:
        ends = before + np.cumsum(run.counts)
        new = run.positions >= len(draft.slices)
        if new.any():
            firsts = starts[np.searchsorted(starts, run.positions[new], "right") - 1]
            begins, ends_of_new = (ends - run.counts)[new], ends[new]
            breaks = np.flatnonzero((firsts[1:] != firsts[:-1]) | (begins[1:] != ends_of_new[:-1]))
            heads, tails = np.append(0, breaks + 1), np.append(breaks, len(firsts) - 1)
            pieces = (firsts[heads].tolist(), begins[heads].tolist(), ends_of_new[tails].tolist())
            yield from zip(*pieces, strict=True)
        before += int(run.counts.sum())


def _by_name(members: Sequence[tuple[str, int]]) -> dict[str, int]:
    """Returns the tasks of members by demand; a demand with several equal bundles is several members."""
    found = dict(members)
    if len(found) < len(members):
        found = dict.fromkeys(found, 0)
        for name, count in members:
            found[name] += count
    return found


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    """Adds counts by name. Names are nearly always new: then they are added at once."""
    if total.keys().isdisjoint(more):
        total.update(more)
        return
    for name, count in more.items():
        total[name] = total.get(name, 0) + count


def demands_of(run: Sequence[Purchase], placed: Mapping[int, Mapping[str, int]]) -> dict[str, int]:
    """Returns the tasks, by demand, for which the slices of a run of purchases are bought.

    A request, or a gang for which a slice is bought ahead, has no task on it yet and counts as 0.
    """
    total: dict[str, int] = {}
    for purchase in run:
        if purchase.code in (Code.REQUEST, Code.PROBE, Code.DEMAND) and purchase.owner:
            total.setdefault(purchase.owner, 0)
        _add(total, placed.get(purchase.position, {}))
    if 0 in total.values() and any(total.values()):
        # Equal demands were bought for under the name of one of them, which may have no task there.
        ahead = {purchase.owner for purchase in run if purchase.code in (Code.REQUEST, Code.PROBE)}
        return {name: count for name, count in total.items() if count or name in ahead}
    return total


def launch_reason(draft: PlanDraft, run: Sequence[Purchase], demands: Mapping[str, int]) -> Reason:
    """Returns why slices are bought, for a run of purchases with one code."""
    first, kind = run[0], draft.groups[run[0].group]
    if probing(kind.availability, draft.now):
        whom = f", ahead of the others that gang {first.owner} needs" if first.code == Code.PROBE else ""
        return Reason(Code.PROBE, f"one launch tests whether {kind.name} is available again{whom}")
    match first.code:
        case Code.MIN:
            scope = _scope(draft, first)
            why = f"{scope} keeps at least {plural(scope.min, 'machine')}"
        case Code.SPARE:
            scope = _scope(draft, first)
            why = f"{scope} keeps {plural(scope.spare, 'free machine')} ready beyond demand"
        case Code.REQUEST:
            why = f"the standing request {first.owner} needs room"
        case Code.CONSOLIDATE:
            why = f"the work of {first.owner} costs less here"
        case _:
            why = f"no room was left for {_tasks_of(demands)}"
    return Reason(first.code, why)


def _scope(draft: PlanDraft, purchase: Purchase) -> LimitScope:
    """Returns the group or the family that a slice is bought for."""
    own, *family = draft.snapshot_tables.scopes_of[purchase.group]
    return draft.snapshot_tables.scopes[family[0] if purchase.owner and family else own]


def _tasks_of(demands: Mapping[str, int]) -> str:
    """Returns ``3 tasks of train and 12 tasks of 4 more demands``, the most tasks first."""
    largest = nsmallest(SHOWN_DEMANDS, zip(map(neg, demands.values()), demands, strict=True))
    parts = [f"{plural(-count, 'task')} of {name}" for count, name in largest]
    rest = sum(demands.values()) + sum(count for count, _ in largest)
    if rest:
        parts.append(f"{plural(rest, 'task')} of {plural(len(demands) - SHOWN_DEMANDS, 'more demand')}")
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def passed_over(draft: PlanDraft, explain: Explainer, purchase: Purchase) -> dict[str, Reason]:
    """Returns for each other group why it was not taken for this purchase; empty where there was no choice."""
    by_limit = purchase.code in (Code.CONSOLIDATE, Code.MIN, Code.SPARE)
    owner = None if by_limit else draft.demand_named(purchase.owner)
    if owner is None:
        return {}
    if purchase.code == Code.PROBE:
        reasons = explain.gang(owner, draft.offers).groups
        return {name: reason for name, reason in reasons.items() if name != draft.groups[purchase.group].name}
    keys = purchase.choice.keys if purchase.choice else {}
    bundle = owner.bundles[0]
    blockers = explain.single(bundle.needs, Need.of(dict(bundle.needs), draft.kinds), selector_of(owner), lost=True)
    result = {}
    for index, group in enumerate(draft.groups):
        if index != purchase.group:
            result[group.name] = blockers.get(group.name) or _lost(draft, explain, purchase, index, keys)
    return result


def _lost(
    draft: PlanDraft, explain: Explainer, purchase: Purchase, other: int, keys: dict[int, tuple[float, ...]]
) -> Reason:
    """Returns why a group was not taken that was a candidate."""
    winner, loser = draft.groups[purchase.group], draft.groups[other]
    if loser.fallback and not winner.fallback and winner.family == loser.family:
        why = f"it is a fallback of family {loser.family}, and {winner.name} is available"
        return Reason(Code.LOWER_RANK, why)
    if draft.strategy == "cheapest":
        prices = f"{explain.prices[other]} a machine, {explain.prices[purchase.group]} for {winner.name}"
        if draft.snapshot.cluster.apart is not None and sum(count for _, count in purchase.tasks) == 1:
            return Reason(Code.DEARER, f"a task alone would cost more with it ({prices})")
        return Reason(Code.DEARER, f"the remaining work would cost more with it ({prices})")
    if draft.strategy == "rank":
        ranks = f"rank {loser.rank}, {winner.name} has rank {winner.rank}"
        return Reason(
            Code.LOWER_RANK,
            ranks
            if loser.rank != winner.rank
            else f"{ranks}: preferences, then what is already chosen, then the name decide",
        )
    return Reason(Code.WORSE_SCORE, _first_difference(keys.get(purchase.group), keys.get(other), winner.name))


_SCORES = (
    "{winner} meets more preferences",
    "nothing placed would use its accelerator",
    "{winner} uses more kinds of resource",
    "{theirs:.0%} of its least used resource would be used, {ours:.0%} on {winner}",
    "{theirs:.0%} used in the mean, {ours:.0%} on {winner}",
    "{winner} has the lower rank",
    "{winner} is cheaper",
)


def _first_difference(ours: tuple[float, ...] | None, theirs: tuple[float, ...] | None, winner: str) -> str:
    if ours is None or theirs is None:
        return f"{winner} was the better fit"
    for sentence, mine, other in zip(_SCORES, ours, theirs, strict=False):
        if mine != other:
            return sentence.format(winner=winner, ours=-mine, theirs=-other)
    return f"as good as {winner}, which comes first by name"
