"""Consolidation releases a slice whose work fits elsewhere for less money.

A ready slice with work is released when all of its work fits on other running slices (that always pays), or on one
cheaper new slice (that pays if an hour's saving is more than the new slice costs while it boots). The least used slice
goes first, with one move per plan and group. The new slice is kept while it is in flight and the old one still has its
work: nothing else needs it then.

The conditions of running work are not known. So its new node must have every label of the old one, and no taint that
the old one lacks. The work of one node stays together on one node, the work of several hosts of one slice stays on as
many hosts of one slice, and work with unknown needs (a task that uses nothing) is not moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from windlass.core.capacity.offers import READY_TIER
from windlass.core.capacity.room import Ints, Need
from windlass.core.model.conditions import Taint
from windlass.core.model.lifecycle import State
from windlass.core.model.quantities import format_money
from windlass.core.model.reasons import Code, Reason, seconds
from windlass.core.model.snapshot import Node
from windlass.core.placement.host_matching import match
from windlass.core.plan_draft import PlanDraft

from .candidates import Release
from .over_limit import used_share

Work = list[tuple[Node, Need]]


def consolidate(release: Release) -> None:
    """Makes at most one move for each group that allows it."""
    draft = release.draft
    receiving: set[int] = set()
    for group, kind in enumerate(draft.groups):
        if not (kind.scale_down and kind.scale_down.consolidate) or kind.price is None or release.launching[group]:
            continue
        busy = [p for p in release.ready(group) if draft.busy(p) and p not in receiving and not release.is_pinned(p)]
        busy = [p for p in busy if draft.slices[p].marked_until is None and release.floor(p) is None]
        tried: set[tuple[object, ...]] = set()
        for position in sorted(busy, key=lambda p: (used_share(draft, p), draft.slices[p].id)):
            work = _work(draft, position)
            alike = tuple(sorted((node.used, tuple(sorted(node.labels.items()))) for node, _ in work))
            if alike in tried or not all(node.used for node, _ in work):
                continue
            tried.add(alike)
            if _onto_running(release, position, work, receiving) or _onto_cheaper(release, position, work, receiving):
                break


def _work(draft: PlanDraft, position: int) -> Work:
    """Returns what must move: each node with work, and its whole use."""
    nodes = (node for node in draft.slices[position].nodes if node.busy)
    return [(node, Need.of(dict(node.used), draft.kinds)) for node in nodes]


def _labels(draft: PlanDraft, position: int, node: Node) -> dict[str, str]:
    return {**draft.groups[draft.group_of(position) or 0].node_labels(), **node.labels}


def _looks_alike(
    old: Mapping[str, str], old_taints: tuple[Taint, ...], new: Mapping[str, str], new_taints: tuple[Taint, ...]
) -> bool:
    """Whether work may move from a node with the old labels and taints to one with the new ones."""
    return all(new.get(key) == value for key, value in old.items()) and all(t in old_taints for t in new_taints)


def _onto_running(release: Release, position: int, work: Work, receiving: set[int]) -> bool:
    draft, offers = release.draft, release.draft.offers
    mark = offers.mark()
    targets = _targets_apart(release, position, work) if len(work) > 1 else _target(release, position, work[0])
    if targets is None:
        return False
    for (_, need), row in zip(work, targets, strict=True):
        offers.room.take(need, np.array([row]), np.ones(1, np.int64))
    places = {int(offers.position[row]) for row in targets}
    names = sorted(draft.slices[place].id for place in places)
    saved = format_money(draft.groups[draft.group_of(position) or 0].price or 0)
    why = f"its work fits on {names[0]}, which runs anyway: saves {saved}/h"
    if not release.release(position, Reason(Code.CONSOLIDATE, why)):
        offers.undo(mark)
        return False
    receiving |= places
    return True


def _rows_for(release: Release, position: int, node: Node, need: Need) -> Ints:
    """Returns rows of other running slices that can take the work of one node."""
    draft, offers = release.draft, release.draft.offers
    fits = offers.open & (offers.tier == READY_TIER) & (offers.position != position)
    rows = np.flatnonzero(fits & (offers.room.capacity(need) > 0))
    old, taints = _labels(draft, position, node), draft.groups[draft.group_of(position) or 0].taints
    may, nodes = [], draft.snapshot_tables.nodes
    for row in rows.tolist():
        place = int(offers.position[row])
        target = nodes[row] if row < len(nodes) else None
        if target is None or not _stays(release, place, position):
            continue
        if node.classes and target.classes:
            continue  # the constraints of running work are not known
        if _looks_alike(old, taints, _labels(draft, place, target), draft.groups[int(offers.group[row])].taints):
            may.append(row)
    return np.array(may, np.int64)


def _target(release: Release, position: int, work: tuple[Node, Need]) -> list[int] | None:
    """Returns the fullest node that takes the work of the one busy node."""
    offers = release.draft.offers
    rows = _rows_for(release, position, *work)
    if not len(rows):
        return None
    return [int(rows[np.lexsort((rows, offers.room.left_share(work[1], rows)))[0]])]


def _targets_apart(release: Release, position: int, work: Work) -> list[int] | None:
    """Returns a host for each busy node, all on one slice: the work may be a gang."""
    offers = release.draft.offers
    rows = [_rows_for(release, position, node, need) for node, need in work]
    places = sorted({int(p) for some in rows for p in offers.position[some]})
    for place in places:
        hosts = np.flatnonzero(offers.position == place)
        matched = match([1] * len(work), [np.isin(hosts, some) for some in rows])
        if matched is not None:
            return [int(hosts[found[0]]) for found in matched]
    return None


def _stays(release: Release, target: int, source: int) -> bool:
    """Whether a slice still exists after the move; moving to an idle one that would be released anyway saves
    nothing."""
    draft = release.draft
    if target >= len(draft.slices) or target in draft.released or not draft.slices[target].healthy:
        return False
    if draft.busy(target) or target in release.placed:
        return True
    group = draft.group_of(target) or 0
    kind, old = draft.groups[group], draft.groups[draft.group_of(source) or 0]
    if any(release.free_in(scope) <= scope.spare for scope in (release.scopes[at] for at in release.scopes_of[group])):
        return False  # it is kept free: work on it would cause another spare to be bought, and the work to move again
    is_released_when_idle = kind.scale_down is not None and kind.scale_down.idle_timeout is not None
    return not is_released_when_idle or (kind.price is not None and kind.price < (old.price or 0))


def _onto_cheaper(release: Release, position: int, work: Work, receiving: set[int]) -> bool:
    draft = release.draft
    group = draft.group_of(position)
    assert group is not None
    old = draft.groups[group]
    found = [
        (new.price or 0, new.rank, other)
        for other, new in enumerate(draft.groups)
        if not release.wanted[other] and draft.limits.headroom(other) >= 1 and _pays(draft, position, work, other)
    ]
    if not found:
        return False
    _, _, other = min(found)
    new = draft.groups[other]
    saving = (old.price or 0) - (new.price or 0)
    why = (
        f"its work fits on one new {new.name}: {format_money(new.price or 0)}/h instead of "
        f"{format_money(old.price or 0)}/h saves {format_money(saving)}/h, boot of {seconds(new.boot_seconds)} counted"
    )
    if not release.release(position, Reason(Code.CONSOLIDATE, why)):
        return False
    launch = _launched_for_min(release, other, receiving)
    if launch is None:
        draft.buy(other, 1, Code.CONSOLIDATE, draft.slices[position].id)
    else:
        receiving.add(launch)
        release.free[other] -= 1
    return True


def _launched_for_min(release: Release, group: int, receiving: set[int]) -> int | None:
    """Returns a slice that this plan launches for a ``min`` and that no demand, spare or request needs: the ``min``
    counts busy slices too, so the next plan would not keep another one for the work that moves."""
    draft, placed = release.draft, release.draft.placed()
    if any(release.free_in(scope) <= scope.spare for scope in (release.scopes[at] for at in release.scopes_of[group])):
        return None
    launched = [one for one in draft.purchases if one.group == group and one.code == Code.MIN]
    places = (p for one in launched for p in range(one.position, one.position + one.slices))
    return next((p for p in places if not placed[p] and p not in draft.requested and p not in receiving), None)


def _pays(draft: PlanDraft, position: int, work: Work, other: int) -> bool:
    """Whether the work of a slice fits on one new slice of another group, and an hour's saving is more than that costs
    while it boots."""
    old, new = draft.groups[draft.group_of(position) or 0], draft.groups[other]
    if new.price is None or len(work) > new.hosts or (new.fallback and old.family == new.family and not old.fallback):
        return False
    if ((old.price or 0) - new.price) * 3600 <= new.price * new.boot_seconds:
        return False
    alike = all(
        _looks_alike(_labels(draft, position, node), old.taints, new.node_labels(), new.taints) for node, _ in work
    )
    return alike and all(draft.group_table.fresh.capacity(need)[other] > 0 for _, need in work)


def keep_for_moves(release: Release) -> None:
    """Keeps launches to which the work of a slice moves that an earlier plan has released for them: one for each."""
    draft = release.draft
    for position in draft.snapshot_tables.recallable:
        group = draft.group_of(position)
        if group is None or not draft.busy(position) or position in draft.recalled or position in release.placed:
            continue
        kind = draft.groups[group]
        if kind.price is None or not (kind.scale_down and kind.scale_down.consolidate):
            continue
        work = _work(draft, position)
        if not all(node.used for node, _ in work):
            continue
        launch = next(_launches_for(release, position, work), None)
        if launch is not None:
            why = f"{draft.slices[launch].state}: the work of {draft.slices[position].id} moves to it"
            release.stays[launch] = Reason(Code.LAUNCHING, why)
            release.take_from_free(launch)


def _launches_for(release: Release, position: int, work: Work) -> Iterator[int]:
    """Yields launches that no demand needs and to which the work of a slice may move: those that no minimum needs
    first, then the cheapest first."""
    draft = release.draft
    found = []
    for other in sorted(range(len(draft.groups)), key=lambda at: (draft.groups[at].price or 0, draft.groups[at].rank)):
        here = [p for state in (State.REQUESTING, State.QUEUED) for p in draft.snapshot_tables.of(other, state)]
        if here and _pays(draft, position, work, other):
            found += [p for p in here if p not in release.stays and not release.is_pinned(p)]
    yield from sorted(found, key=lambda p: release.floor(p) is not None)
