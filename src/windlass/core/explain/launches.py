"""This module explains why a slice is bought, and why from this group and not from another.

The strategies keep, for each choice, the sort key by which the candidates were compared; this module turns it into a
sentence. A group that was no candidate gets its first blocker, as for demand that waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import nsmallest
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


def demands_of(draft: PlanDraft, launches: Sequence[Sequence[Purchase]]) -> list[dict[str, int]]:
    """Returns for each launch, given as its purchases, the tasks for which its slices are bought, by demand.

    A request, or a gang for which a slice is bought ahead, has no task on it yet and counts as 0.
    """
    found = list(map(_by_name, _tasks_on_new(draft, launches)))
    for demands, launch in zip(found, launches, strict=True):
        # Equal demands were bought for under the name of one of them, which may have no task there.
        codes = (Code.REQUEST, Code.PROBE) if demands else (Code.REQUEST, Code.PROBE, Code.DEMAND)
        for purchase in launch:
            if purchase.owner and purchase.code in codes:
                demands.setdefault(purchase.owner, 0)
    return found


def _tasks_on_new(draft: PlanDraft, launches: Sequence[Sequence[Purchase]]) -> list[list[tuple[str, int]]]:
    """Returns for each launch the tasks placed on it, as (demand, tasks); a demand may be there more than once.

    Members of a shape are assigned in order, as in ``placements``, but only tasks on new slices are counted.
    """
    found: list[list[tuple[str, int]]] = [[] for _ in launches]
    if not launches:
        return found
    launch_of = {purchase.position: index for index, launch in enumerate(launches) for purchase in launch}
    starts = np.array(sorted(launch_of), np.int64)
    numbers = np.array([launch_of[position] for position in sorted(launch_of)], np.int64)

    def deal(members: Sequence[tuple[str, int]], runs: Sequence[PlacedRun]) -> None:
        positions = np.concatenate([run.positions for run in runs] or [starts[:0]])
        new = positions >= len(draft.slices)
        if not new.any():
            return
        counts = np.concatenate([run.counts for run in runs])
        on = numbers[np.searchsorted(starts, positions[new], "right") - 1]
        if len(members) == 1:  # all tasks belong to one demand: only their number matters
            total = np.bincount(on, counts[new]).astype(np.int64)
            for launch in np.flatnonzero(total).tolist():
                found[launch].append((members[0][0], int(total[launch])))
            return
        ends = np.cumsum(counts)
        last = np.cumsum(np.fromiter(map(itemgetter(1), members), np.int64, len(members)))
        for launch, begin, end in _pieces(on, (ends - counts)[new], ends[new]):
            head, tail = np.searchsorted(last, (begin, end - 1), "right").tolist()
            mine = found[launch]
            if head == tail:
                mine.append((members[head][0], end - begin))
                continue
            mine.append((members[head][0], int(last[head]) - begin))
            mine += members[head + 1 : tail]
            mine.append((members[tail][0], end - int(last[tail - 1])))

    for gang, served in draft.decisions.served_gangs:
        for index, tasks in enumerate(tasks_of(draft, gang)):
            deal([(gang.id, tasks.count)], [run for run in served.runs if run.tasks == index])
    for shape, served in draft.decisions.served_shapes:
        deal(shape.members, served.runs)
    return found


def _pieces(launches: Ints, begins: Ints, ends: Ints) -> Iterator[tuple[int, int, int]]:
    """Yields (launch, first task, task after the last): consecutive tasks on one launch are one piece, however many
    slices they are on."""
    breaks = np.flatnonzero((launches[1:] != launches[:-1]) | (begins[1:] != ends[:-1]))
    heads, tails = np.append(0, breaks + 1), np.append(breaks, len(launches) - 1)
    return zip(launches[heads].tolist(), begins[heads].tolist(), ends[tails].tolist(), strict=True)


def _by_name(tasks: Sequence[tuple[str, int]]) -> dict[str, int]:
    """Returns the tasks by demand, without demands that have none."""
    found = dict(tasks)
    if len(found) < len(tasks):  # names are nearly always different: then no count is added to another
        found = dict.fromkeys(found, 0)
        for name, count in tasks:
            found[name] += count
    return {name: count for name, count in found.items() if count} if 0 in found.values() else found


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
