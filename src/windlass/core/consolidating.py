"""Consolidation: work that would fit elsewhere for less money.

A ready slice with work goes when all of its work fits on other running slices (that always pays), or on one cheaper
new slice (that pays if an hour's saving is more than the new slice costs while it boots). The least used first, one
move per plan and group. What the running work asked for is not known any more, so its place must look the same to any
condition it may have had: the labels of its group at the least, and no taint of its own. What ran on one node stays
together on one node.
"""

from __future__ import annotations

import numpy as np

from .draft import Draft
from .lowering import used_share
from .market import filled_slice
from .offers import READY_TIER
from .quantities import format_money
from .reasons import Code, Reason, seconds
from .releasing import Release
from .room import Need
from .snapshot import Group


def consolidate(release: Release) -> None:
    """At most one move for each group that allows it."""
    draft = release.draft
    receiving: set[int] = set()
    for group, kind in enumerate(draft.groups):
        if not (kind.scale_down and kind.scale_down.consolidate) or kind.price is None or release.launching[group]:
            continue
        busy = [p for p in release.ready(group) if draft.busy[p] and p not in receiving and not release.is_pinned(p)]
        busy = [p for p in busy if draft.slices[p].marked_until is None and release.floor(p) is None]
        tried: set[tuple[tuple[tuple[str, int], ...], ...]] = set()
        for position in sorted(busy, key=lambda p: (used_share(draft, p), draft.slices[p].id)):
            work = tuple(sorted(node.used for node in draft.slices[position].nodes if node.busy))
            if work in tried:
                continue
            tried.add(work)
            if _onto_running(release, position, receiving) or _onto_cheaper(release, position):
                break


def _work(draft: Draft, position: int) -> list[Need]:
    """What must move: for each node with work, all that it uses."""
    return [Need.of(dict(node.used), draft.kinds) for node in draft.slices[position].nodes if node.busy]


def _alike(old: Group, new: Group) -> bool:
    """Whether work that runs on ``old`` may run on ``new``, whatever it asked for."""
    labels = new.node_labels()
    same = all(labels.get(key) == value for key, value in old.node_labels().items())
    return same and all(taint in old.taints for taint in new.taints)


def _onto_running(release: Release, position: int, receiving: set[int]) -> bool:
    draft, offers = release.draft, release.draft.offers
    group = draft.group_of[position]
    assert group is not None
    alike = np.array([_alike(draft.groups[group], other) for other in draft.groups], np.bool_)
    may = offers.open & (offers.tier == READY_TIER) & (offers.position != position) & alike[offers.group]
    may &= np.array([_stays(release, int(p), position) for p in offers.position], np.bool_)
    mark, targets = offers.mark(), []
    for need in _work(draft, position):
        rows = np.flatnonzero(may & (offers.room.capacity(need) > 0))
        if not len(rows):
            offers.undo(mark)
            return False
        best = int(rows[np.lexsort((rows, offers.room.left_share(need, rows)))[0]])
        offers.room.take(need, np.array([best]), np.ones(1, np.int64))
        targets.append(int(offers.position[best]))
    names = ", ".join(sorted({draft.slices[p].id for p in targets}))
    saved = format_money(draft.groups[group].price or 0)
    why = f"its work fits on {names}, which runs anyway: saves {saved}/h"
    if not release.release(position, Reason(Code.CONSOLIDATE, why)):
        offers.undo(mark)
        return False
    receiving.update(targets)
    return True


def _stays(release: Release, target: int, source: int) -> bool:
    """Whether a slice is still here when the work has moved; an idle one that would go anyway saves nothing."""
    draft = release.draft
    if target >= len(draft.slices) or target in draft.released or not draft.slices[target].healthy:
        return False
    if draft.busy[target] or release.placed[target]:
        return True
    kind, old = draft.groups[draft.group_of[target] or 0], draft.groups[draft.group_of[source] or 0]
    goes_anyway = kind.scale_down is not None and kind.scale_down.idle_timeout is not None
    return not goes_anyway or (kind.price is not None and kind.price < (old.price or 0))


def _onto_cheaper(release: Release, position: int) -> bool:
    draft = release.draft
    group = draft.group_of[position]
    assert group is not None
    old = draft.groups[group]
    work = [(need, 1) for need in _work(draft, position)]
    found = []
    for other, new in enumerate(draft.groups):
        if new.price is None or release.wanted[other] or draft.ledger.headroom(other) < 1 or not _alike(old, new):
            continue
        saving = (old.price or 0) - new.price
        pays = saving * 3600 > new.price * new.boot_seconds
        if pays and filled_slice(draft.kinds, draft.totals[other], new.hosts, work) is not None:
            found.append((new.price, new.rank, other, saving))
    if not found:
        return False
    _, _, other, saving = min(found)
    new = draft.groups[other]
    why = (
        f"its work fits on one new {new.name}: {format_money(new.price or 0)}/h instead of "
        f"{format_money(old.price or 0)}/h saves {format_money(saving)}/h, boot of {seconds(new.boot_seconds)} counted"
    )
    if not release.release(position, Reason(Code.CONSOLIDATE, why)):
        return False
    draft.buy(other, 1, Code.CONSOLIDATE, draft.slices[position].id)
    return True
