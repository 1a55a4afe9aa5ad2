"""This module chooses which slices to release when a limit was lowered.

Queued slices go first, then requesting, booting, initializing, then ready ones by least used share, longest idle,
highest id. The limits are applied in this order: the ``max`` of each group, of each family, ``max_nodes`` over all
groups, the cost limit. Under the limits of a family and of the cost the more expensive goes first among equals. Slices
that are ending already need no decision. Protected slices and those of a frozen group are never chosen, and a limit
over several groups never goes below the ``min`` of one of them, or of a family. Chosen slices take no demand in this
plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from windlass.core.model.lifecycle import IN_FLIGHT, OFFERING, PROGRESS, State
from windlass.core.model.quantities import format_money
from windlass.core.model.reasons import Code, Reason
from windlass.core.plan_draft import PlanDraft

_LAST_COME: tuple[State, ...] = (*reversed(PROGRESS), State.READY)


def lower_to_limits(draft: PlanDraft) -> None:
    """Releases slices above a limit, and slices of removed groups."""
    _removed_groups(draft)
    _above_max(draft)
    cluster = draft.snapshot.cluster
    if cluster.max_nodes is not None:
        why = f"the cluster's max is {cluster.max_nodes} nodes"
        _above(draft, cluster.max_nodes, lambda group: draft.groups[group].hosts, why, expensive_first=False)
    if cluster.max_hourly_cost is not None:
        why = f"the cost ceiling is {format_money(cluster.max_hourly_cost)}/h"
        _above(draft, cluster.max_hourly_cost, lambda g: draft.groups[g].price or 0, why, expensive_first=True)


def _removed_groups(draft: PlanDraft) -> None:
    for position in draft.snapshot_tables.of(None, *OFFERING) if draft.snapshot_tables.slices_without_group else ():
        why = f"its group {draft.slices[position].group} is not configured any more"
        draft.release(position, Reason(Code.GROUP_REMOVED, why))


def _above_max(draft: PlanDraft) -> None:
    for scope in draft.snapshot_tables.scopes:
        live = sum(draft.live_count(group) for group in scope.groups)
        if live <= scope.max:
            continue
        why = f"{scope} has {live} machines, its max is {scope.max}"
        if scope.family:
            _above(draft, scope.max, lambda _: 1, why, expensive_first=True, groups=scope.groups)
            continue
        victims = _open_to_release(draft, draft.live(scope.groups[0]))
        for position in sorted(victims, key=release_order(draft))[: live - scope.max]:
            draft.release(position, Reason(Code.OVER_MAX, why))


def _above(
    draft: PlanDraft,
    limit: int,
    weight: Callable[[int], int],
    why: str,
    *,
    expensive_first: bool,
    groups: Sequence[int] | None = None,
) -> None:
    """Releases over several groups (default: all) until the sum of the weights is within the limit."""
    live = [draft.live_count(group) for group in range(len(draft.groups))]
    groups = range(len(draft.groups)) if groups is None else groups
    excess = sum(weight(group) * live[group] for group in groups) - limit
    if excess <= 0:
        return
    scopes, scopes_of = draft.snapshot_tables.scopes, draft.snapshot_tables.scopes_of
    above_min = [sum(live[group] for group in scope.groups) - scope.min for scope in scopes]
    everyone = [position for group in groups for position in draft.live(group)]
    for position in sorted(
        _open_to_release(draft, everyone), key=release_order(draft, expensive_first=expensive_first)
    ):
        group = draft.group_of(position)
        assert group is not None
        if excess <= 0:
            return
        if weight(group) and all(above_min[scope] > 0 for scope in scopes_of[group]):
            draft.release(position, Reason(Code.OVER_MAX, why))
            for scope in scopes_of[group]:
                above_min[scope] -= 1
            excess -= weight(group)


def _open_to_release(draft: PlanDraft, positions: Sequence[int]) -> list[int]:
    """Returns those that may be released, of positions that all belong to some group."""
    kinds = [draft.groups[draft.group_of(p) or 0] for p in positions]
    return [
        p
        for p, kind in zip(positions, kinds, strict=True)
        if not kind.frozen and draft.slices[p].id not in kind.protected
    ]


def release_order(draft: PlanDraft, *, expensive_first: bool = False) -> Callable[[int], tuple[object, ...]]:
    """Sort key: the first to be released first."""

    def key(position: int) -> tuple[object, ...]:
        item = draft.slices[position]
        group = draft.group_of(position) or 0
        price = -(draft.groups[group].price or 0) if expensive_first else 0
        if item.state in IN_FLIGHT:
            return _LAST_COME.index(item.state), 0, 0, price, descending(item.id)
        idle = float("inf") if draft.busy(position) else item.idle_since(draft.now)
        return _LAST_COME.index(State.READY), used_share(draft, position), idle, price, descending(item.id)

    return key


def used_share(draft: PlanDraft, position: int) -> Fraction:
    """Returns how much of a slice is used: the mean over its group's kinds."""
    item, group = draft.slices[position], draft.group_of(position)
    if group is None:
        return Fraction(0)
    kind = draft.groups[group]
    totals = {name: amount * kind.hosts for name, amount in kind.resources if amount}
    used = dict.fromkeys(totals, 0)
    for node in item.nodes:
        for name, amount in node.used:
            if name in used:
                used[name] += amount
    shares = [Fraction(used[name], totals[name]) for name in totals]
    return sum(shares, Fraction(0)) / len(shares) if shares else Fraction(0)


class _Descending(str):
    """Text that sorts in reverse order."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)


def descending(text: str) -> str:
    """Returns the text as a sort key that puts the highest id first."""
    return _Descending(text)
