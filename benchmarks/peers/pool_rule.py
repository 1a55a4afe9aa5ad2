"""The pool rule: an elastic pool of equal machines with slots, as many Python libraries scale one.

- Queued work with no free slot: nodes for ``ceil((queued + running) / slots)``, at once.
- Nothing runs for 60 s: down to the least, here none.
- Nothing is queued and less than 30 % of the slots are used: down to ``ceil(running / slots) + 1``, but no change
  within 30 s of the last one (``cooldown``).
- Else it stays as it is.

A pool has one kind of machine, so there is a pool for each kind, and a task goes to the pool where it costs least.
Tasks differ in size: each counts as the share of a node that its hardest need takes up, and a node as one. Where
shares add up but tasks do not fit, one more node is asked for, or they would wait for ever. Of the nodes only idle
ones go. Windlass's own pools have equal slots and go by ``windlass.pool.scaling.rule``, whose numbers these are; there
the little use must have lasted for the cooldown, here the last change must be so long ago.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil

from windlass.core.demand import Shape
from windlass.core.model.lifecycle import IN_FLIGHT, State
from windlass.core.model.plan import Plan
from windlass.core.model.snapshot import Amounts, Group, Slice, Snapshot
from windlass.pool.scaling.rule import LITTLE, SPARE, Limits

from .filling import price_order
from .peer import Peer, Sight, as_plan, seen


@dataclass
class PoolRule(Peer):
    cooldown: float = Limits().cooldown
    idle_timeout: float = Limits().idle_timeout
    low: Fraction = Fraction(LITTLE, 100)
    _changed: dict[str, float] = field(default_factory=dict, init=False)
    """When each pool was last resized."""

    def __call__(self, snapshot: Snapshot) -> Plan:
        sight, self.due = seen(snapshot), None
        launch: dict[str, int] = {}
        over: list[str] = []
        queued = self._queued(sight)
        asked = {name for name, many in queued.items() if many}
        slices: dict[str, list[Slice]] = {}
        for item in snapshot.slices:
            slices.setdefault(item.group, []).append(item)
        for group in snapshot.groups:
            mine = slices.get(group.name, [])
            if group.name in asked:
                launch[group.name] = self._grown(group, mine, queued[group.name])
                self._changed[group.name] = sight.now
            elif mine:
                over += self._shrunk(sight, group, mine)
        return as_plan(snapshot, launch, over)

    def _queued(self, sight: Sight) -> dict[str, Fraction]:
        """By pool: the nodes that the tasks without a free slot would fill."""
        found: dict[str, Fraction] = {}
        for one in sight.unplaced:
            group = pool_of(sight, one.shape)
            if group is not None:
                share = share_of(group, one.shape.needs)
                # Whole tasks on whole nodes: three of 0.4 need two nodes, not 1.2.
                nodes = (
                    Fraction(one.count, 1) * share if share > Fraction(1, 2) else Fraction(one.count, int(1 / share))
                )
                found[group.name] = found.get(group.name, Fraction(0)) + max(nodes, share)
        return found

    def _grown(self, group: Group, mine: list[Slice], queued: Fraction) -> int:
        running = sum((_used(group, item) for item in mine if item.state == State.READY), Fraction(0))
        coming = sum(item.state in IN_FLIGHT for item in mine)
        there = coming + sum(item.state == State.READY for item in mine)
        # What is on its way is spoken for: only tasks without a slot there are counted as queued.
        return max(ceil(queued + running + coming) - there, 1)

    def _shrunk(self, sight: Sight, group: Group, mine: list[Slice]) -> list[str]:
        ready = [item for item in mine if item.state == State.READY]
        if not ready or any(item.state in IN_FLIGHT for item in mine):
            return []
        idle = [item for item in ready if not item.busy and item.id not in sight.awaited]
        idle.sort(key=lambda item: item.id, reverse=True)
        running = sum((_used(group, item) for item in ready), Fraction(0))
        if len(idle) == len(ready):
            since = max(item.idle_since(sight.now) for item in ready)
            if sight.now >= since + self.idle_timeout:
                return self._resized(sight, group, idle)
            self._again(float(since) + self.idle_timeout)
        keep = ceil(running) + SPARE
        if running >= self.low * len(ready) or len(ready) <= keep:
            return []
        rests_until = self._changed.get(group.name, float("-inf")) + self.cooldown
        if sight.now < rests_until:
            self._again(rests_until)
            return []
        return self._resized(sight, group, idle[: len(ready) - keep])

    def _resized(self, sight: Sight, group: Group, victims: list[Slice]) -> list[str]:
        if victims:
            self._changed[group.name] = sight.now
        return [item.id for item in victims]

    def _again(self, at: float) -> None:
        self.due = at if self.due is None else min(self.due, at)


def pool_of(sight: Sight, shape: Shape) -> Group | None:
    """The kind of machine on which a task costs least; of equals the smallest machine."""
    may, groups = sight.may_go(shape.selector), sight.draft.groups
    fit = [groups[g] for g in price_order(sight) if may[g] and _fits(groups[g], shape.needs)]
    return min(fit, key=lambda group: round(_cost(group, shape.needs), 3), default=None)


def _cost(group: Group, needs: Amounts) -> float:
    """Dollars per hour for a task on a node that is full of such tasks."""
    return (group.price or 0) / 1e9 / int(1 / share_of(group, needs))


def _fits(group: Group, needs: Amounts) -> bool:
    has = dict(group.resources)
    return all(has.get(name, 0) >= amount for name, amount in needs)


def share_of(group: Group, needs: Amounts) -> Fraction:
    """The part of a node that a task takes up."""
    has = dict(group.resources)
    return max((Fraction(amount, has[name]) for name, amount in needs if amount), default=Fraction(1, 1000))


def _used(group: Group, item: Slice) -> Fraction:
    used: Counter[str] = Counter()
    for node in item.nodes:
        used.update(dict(node.used))
    return (
        share_of(group, tuple(pair for pair in used.items() if pair[0] in dict(group.resources)))
        if used
        else Fraction(0)
    )
