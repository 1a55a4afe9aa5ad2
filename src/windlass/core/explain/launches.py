"""Why a slice is bought, and why from this group and not from another.

The strategies keep, for each choice, the key by which the candidates were compared; here it is put into words. A group
that was no candidate at all is told its first hindrance, as for demand that waits.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.core.capacity.limits import probing
from windlass.core.capacity.room import Need
from windlass.core.model.quantities import format_money
from windlass.core.model.reasons import Code, Reason, plural
from windlass.core.model.snapshot import selector_of
from windlass.core.plan_draft import PlanDraft, Purchase

from .waiting import Explainer

SHOWN_DEMANDS = 2
"""A reason to launch names so many demands."""


def launch_reason(draft: PlanDraft, run: Sequence[Purchase]) -> Reason:
    """Why slices are bought, for a run of purchases with one code."""
    first, kind = run[0], draft.groups[run[0].group]
    if probing(kind.availability, draft.now):
        whom = f", ahead of the others that gang {first.owner} needs" if first.code == Code.PROBE else ""
        return Reason(Code.PROBE, f"one launch tries whether {kind.name} can be had again{whom}")
    match first.code:
        case Code.MIN:
            why = f"{kind.name} keeps at least {plural(kind.min, 'slice')}"
        case Code.SPARE:
            why = f"{kind.name} holds {plural(kind.spare, 'free slice')} ready beyond demand"
        case Code.REQUEST:
            why = f"the standing request {first.owner} needs room"
        case Code.CONSOLIDATE:
            why = f"the work of {first.owner} costs less here"
        case _:
            why = f"no room was left for {_tasks_on(run)}"
    return Reason(first.code, why)


def _tasks_on(run: Sequence[Purchase]) -> str:
    """``3 tasks of train and 12 tasks of 4 more demands``: what the bought slices are for, the most tasks first."""
    totals: dict[str, int] = {}
    for purchase in run:
        for name, count in purchase.tasks:
            totals[name] = totals.get(name, 0) + count * purchase.slices
    ordered = sorted(totals.items(), key=lambda item: (-item[1], item[0]))
    told = [f"{plural(count, 'task')} of {name}" for name, count in ordered[:SHOWN_DEMANDS]]
    rest = sum(count for _, count in ordered[SHOWN_DEMANDS:])
    if rest:
        told.append(f"{plural(rest, 'task')} of {plural(len(ordered) - SHOWN_DEMANDS, 'more demand')}")
    return " and ".join(filter(None, (", ".join(told[:-1]), told[-1])))


def passed_over(draft: PlanDraft, explain: Explainer, purchase: Purchase) -> dict[str, Reason]:
    """For each other group, why it was not taken for this purchase; empty where there was no choice."""
    owner = None if purchase.code == Code.CONSOLIDATE else draft.demand_named(purchase.owner)
    if owner is None:
        return {}
    if purchase.code == Code.PROBE:
        reasons = explain.gang(owner, draft.offers).groups
        return {name: reason for name, reason in reasons.items() if name != draft.groups[purchase.group].name}
    keys = purchase.choice.keys if purchase.choice else {}
    bundle = owner.bundles[0]
    hindrances = explain.single(bundle.needs, Need.of(dict(bundle.needs), draft.kinds), selector_of(owner), lost=True)
    result = {}
    for index, group in enumerate(draft.groups):
        if index != purchase.group:
            result[group.name] = hindrances.get(group.name) or _lost(draft, purchase, index, keys)
    return result


def _lost(draft: PlanDraft, purchase: Purchase, other: int, keys: dict[int, tuple[float, ...]]) -> Reason:
    """A group that could have been taken and was not."""
    winner, loser = draft.groups[purchase.group], draft.groups[other]
    if draft.strategy == "cheapest":
        prices = f"{format_money(loser.price or 0)}/h a slice, {format_money(winner.price or 0)}/h for {winner.name}"
        if draft.snapshot.cluster.apart is not None and sum(count for _, count in purchase.tasks) == 1:
            return Reason(Code.DEARER, f"a task alone would cost more with it ({prices})")
        return Reason(Code.DEARER, f"all that is left would cost more with it ({prices})")
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
