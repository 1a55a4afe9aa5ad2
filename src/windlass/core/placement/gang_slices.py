"""This module places gangs on whole slices, one member per host, on one slice or on several of one group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from windlass.core.capacity.eligibility import alternative
from windlass.core.capacity.offers import Offers
from windlass.core.capacity.room import Ints
from windlass.core.model.reasons import Code
from windlass.core.model.snapshot import Demand
from windlass.core.plan_draft import PlanDraft, Served

from .gang_attempt import Load, Tasks, Try, best_group, try_of
from .host_matching import match

Chunk = list[tuple[int, int]]
"""The part of a gang that goes on one slice: (index of the tasks in the gang's order, count)."""


def slices_for(size: int, hosts: int) -> int | None:
    """Returns how many slices a gang of this size takes; None if it cannot be divided into whole slices."""
    if size <= hosts:
        return 1
    return size // hosts if size % hosts == 0 else None


def _chunks(tasks: Tasks, per_slice: int) -> list[Chunk]:
    """Returns the tasks of a gang in parts of ``per_slice``, one part for each slice."""
    result: list[Chunk] = []
    part: Chunk = []
    room = per_slice
    for index, one in enumerate(tasks):
        count = one.count
        while count:
            some = min(count, room)
            part.append((index, some))
            count, room = count - some, room - some
            if not room:
                result.append(part)
                part, room = [], per_slice
    return [*result, part] if part else result


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A slice that takes a part of a gang, with the rows of each kind of task of that part."""

    position: int
    chunk: Chunk
    rows: list[list[int]]


def on_whole_slices(attempt: Try) -> Served | None:
    """Places the gang on slices of one group, existing ones first, and buys the rest; None if no group can hold it."""
    draft, table = attempt.draft, attempt.table
    fresh = draft.group_table.fresh
    fits = np.minimum.reduce([fresh.capacity(one.need) for one in attempt.tasks])
    allowed = np.logical_and.reduce([attempt.allowed_groups(one) for one in attempt.tasks])
    options: dict[int, tuple[int, Load]] = {}
    running: dict[int, list[_Loaded]] = {}
    for group, kind in enumerate(draft.groups):
        slices = slices_for(attempt.size, kind.hosts)
        if slices is None:
            continue
        chunks = _chunks(attempt.tasks, min(attempt.size, kind.hosts))
        running[group] = _usable_slices(attempt, group, chunks)
        new = slices - len(running[group])
        may_buy = fits[group] and allowed[group]
        if new == 0 or (may_buy and draft.limits.headroom(group, gang=True) >= new):
            options[group] = (new, [(attempt.tasks[index], count) for index, count in chunks[0]])
    while options:
        fewest = min(new for new, _ in options.values())
        usable = options if fewest == 0 else _earliest_alternative(attempt, options)
        fewest = min(new for new, _ in usable.values())
        # Under ``cheapest`` dollars decide, not slices: one slice may hold four members and another only one.
        by_cost = fewest > 0 and draft.strategy == "cheapest"
        near = {group: option for group, option in usable.items() if by_cost or option[0] == fewest}
        tier = {group: max((int(table.tier[one.rows[0][0]]) for one in running[group]), default=0) for group in near}
        nearest = min(tier.values())
        best = best_group(attempt, {group: near[group] for group in near if by_cost or tier[group] == nearest})
        assert best is not None
        checkpoint = draft.checkpoint(*attempt.tables())
        served = _take_whole_slices(attempt, best, running[best], near[best][0])
        if served is not None:
            return served
        draft.rollback(checkpoint)
        del options[best]
    return None


def _earliest_alternative(attempt: Try, options: dict[int, tuple[int, Load]]) -> dict[int, tuple[int, Load]]:
    """Returns the groups that meet the earliest alternative of ``any_of``: it comes before fewer slices."""
    of = dict(zip(options, alternative(attempt.penalty(list(options), attempt.tasks)).tolist(), strict=True))
    first = min(of.values())
    return {group: option for group, option in options.items() if of[group] == first}


def _take_whole_slices(attempt: Try, group: int, running: list[_Loaded], new: int) -> Served | None:
    draft, table, served = attempt.draft, attempt.table, Served()
    hosts = draft.groups[group].hosts
    placed: list[tuple[int, Ints]] = []
    for slice_ in running:
        placed += [(index, np.array(on)) for (index, _), on in zip(slice_.chunk, slice_.rows, strict=True)]
    if new:
        attempt.buy(group, new, min(attempt.size, hosts))
        first = len(table) - new * hosts
        chunks = _chunks(attempt.tasks, min(attempt.size, hosts))[len(running) :]
        for number, chunk in enumerate(chunks):
            host = first + number * hosts
            for index, count in chunk:
                placed.append((index, np.arange(host, host + count)))
                host += count
    if attempt.has_rules:
        in_order = [(attempt.tasks[index], rows, np.ones(len(rows), np.int64)) for index, rows in placed]
        if not attempt.rules_hold(in_order):
            return None
    for index, rows in placed:
        one, ones = attempt.tasks[index], np.ones(len(rows), np.int64)
        table.room.take(one.need, rows, ones)
        attempt.count_on(one, rows, ones)
        served.add(table.position[rows], ones, rows, index)
    return served


def take_on_own_hosts(attempt: Try, first: int, load: Sequence[tuple[int, int]], times: int, hosts: int) -> None:
    """Places the load on each of ``times`` slices whose rows start at ``first``, one task per host."""
    host = 0
    for index, count in load:
        offsets = np.arange(host, host + count)
        rows = (first + np.arange(times)[:, None] * hosts + offsets[None, :]).ravel()
        attempt.table.room.take(attempt.tasks[index].need, rows, np.ones(len(rows), np.int64))
        attempt.count_on(attempt.tasks[index], rows, np.ones(len(rows), np.int64))
        host += count


def _usable_slices(attempt: Try, group: int, chunks: list[Chunk]) -> list[_Loaded]:
    """Returns slices of the group that can take the next part, one task per host, the nearest and tightest first."""
    table = attempt.table
    found: list[_Loaded] = []
    capacity = [table.capacity(one.need, one.selector) for one in attempt.tasks]
    rows = np.flatnonzero((table.group == group) & np.logical_or.reduce([c > 0 for c in capacity]))
    if not len(rows):
        return []
    _, unmet = table.eligibility.answers(attempt.tasks[0].selector)
    left = table.room.left_share(attempt.tasks[0].need, rows)
    by_slice: dict[int, list[int]] = {}
    for index, position in enumerate(table.position[rows].tolist()):
        by_slice.setdefault(position, []).append(index)
    order = sorted(
        by_slice,
        key=lambda p: (
            int(table.tier[rows[by_slice[p][0]]]),
            int(unmet[table.profile[rows[by_slice[p]]]].max()),
            float(left[by_slice[p]].mean()),
            p,
        ),
    )
    for position in order:
        if len(found) == len(chunks):
            break
        chunk = chunks[len(found)]
        hosts = rows[by_slice[position]]
        matched = match([count for _, count in chunk], [capacity[index][hosts] > 0 for index, _ in chunk])
        if matched is None:
            continue
        places = [hosts[some].tolist() for some in matched]
        if attempt.has_rules and not attempt.rules_hold(
            [
                (attempt.tasks[index], np.array(on), np.ones(len(on), np.int64))
                for (index, _), on in zip(chunk, places, strict=True)
            ]
        ):
            continue
        found.append(_Loaded(position, chunk, places))
    return found


def slices_missing(draft: PlanDraft, table: Offers, demand: Demand, group: int) -> int:
    """Returns the new slices of one group that a gang of whole slices needs besides existing ones that it could use."""
    hosts = draft.groups[group].hosts
    attempt, slices = try_of(draft, table, demand, Code.DEMAND), slices_for(demand.count, hosts)
    assert slices is not None
    return slices - len(_usable_slices(attempt, group, _chunks(attempt.tasks, min(attempt.size, hosts))))


def usable_positions(attempt: Try) -> set[int]:
    """Returns slices that could take a part of the gang now."""
    positions = set[int]()
    for group, kind in enumerate(attempt.draft.groups):
        if slices_for(attempt.size, kind.hosts):
            chunks = _chunks(attempt.tasks, min(attempt.size, kind.hosts))
            positions |= {one.position for one in _usable_slices(attempt, group, chunks)}
    return positions
