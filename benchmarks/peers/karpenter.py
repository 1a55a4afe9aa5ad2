"""Karpenter, by its documentation and its default settings.

- Pods that fit nowhere are gathered until no new one has come for 1 s, for 10 s at the most (``batch-idle-duration``,
  ``batch-max-duration``).
- A batch is packed, the largest pod first, onto nodes that are there or come, then onto new ones. A new node is not of
  a type yet: pods are added to it as long as at least one type could hold them all. When nothing more fits, it is
  launched as the cheapest type that holds what it has. So what comes together is put on few large nodes.
- Consolidation (``WhenEmptyOrUnderutilized``, ``consolidateAfter: 0s``): every 10 s it looks for nodes that are empty,
  or whose pods fit on others, or on others and one cheaper node; 15 s later it looks again and, if that still holds,
  acts. Without marks (``evicts``) one node at a time is deleted or replaced so, and its jobs start again. Jobs that run
  carry ``karpenter.sh/do-not-disrupt``, which its documentation advises for batch jobs: a node with such a pod is not
  a candidate, so what is left is that empty nodes go.

Kinder than the system: disruption budgets (10 % of the nodes at a time) do not hold empty nodes back; a node that
waiting work will use is never taken for empty.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from windlass.core.capacity.room import Room
from windlass.core.model.plan import Plan
from windlass.core.model.snapshot import Snapshot

from .filling import eligible, price_order
from .moving import cheaper, moved
from .peer import TICK, Peer, Sight, Unplaced, as_plan, seen

GIVES_UP = 600.0
"""Seconds after which a replacement that did not come is not waited for any more."""


@dataclass(frozen=True, slots=True)
class Disruption:
    """A node whose pods are to move, and the group of the node that is bought for them, if one is."""

    node: str
    replacement: str | None
    acts: float
    given_up: float
    launched: bool = False


@dataclass
class Karpenter(Peer):
    batch_idle: float = 1.0
    batch_max: float = 10.0
    poll: float = 10.0
    validation: float = 15.0
    consolidate_after: float = 0.0
    evicts: bool = False
    """Jobs are not marked as such that must stay."""
    _opened: float | None = field(default=None, init=False)
    """When the batch was opened; None: there is none."""
    _newest: float = field(default=0.0, init=False)
    """When the last new pod came into it."""
    _gathered: frozenset[str] = field(default=frozenset(), init=False)
    _disrupting: Disruption | None = field(default=None, init=False)

    def __call__(self, snapshot: Snapshot) -> Plan:
        sight = seen(snapshot)
        launch, closes = self._provision(sight)
        over, again = self._empty(sight)
        if self.evicts and not launch and not over and not sight.snapshot.demands:
            launch, over, again = self._consolidated(sight, again)
        if over and launch:
            again = sight.now + self.poll
        self.due = min((at for at in (closes, again) if at is not None), default=None)
        return as_plan(snapshot, launch, over)

    def _provision(self, sight: Sight) -> tuple[dict[str, int], float | None]:
        """What is launched now, and when the batch closes."""
        if not sight.unplaced:
            self._opened, self._gathered = None, frozenset()
            return {}, None
        pods = frozenset(name for one in sight.unplaced for name, _ in one.shape.members)
        if self._opened is None:
            self._opened = self._newest = sight.now
        elif pods - self._gathered:
            self._newest = sight.now
        self._gathered |= pods
        closes = min(self._newest + self.batch_idle, self._opened + self.batch_max)
        if sight.now < closes - TICK:
            return {}, closes
        self._opened, self._gathered = None, frozenset()
        return packed(sight), None

    def _empty(self, sight: Sight) -> tuple[list[str], float | None]:
        """Nodes that were found empty at a poll and still are when they are looked at again."""
        times = {}
        for item in sight.empty():
            if self._disrupting is not None and item.group == self._disrupting.replacement:
                continue  # it was bought for what is about to move
            since = item.idle_since(sight.now) + self.consolidate_after
            found_at = -(-since // self.poll) * self.poll
            times[item.id] = found_at + self.validation
        over = [name for name, at in times.items() if at <= sight.now + TICK]
        return over, min((at for name, at in times.items() if name not in over), default=None)

    def _consolidated(self, sight: Sight, again: float | None) -> tuple[dict[str, int], list[str], float | None]:
        """The next step of moving one node's pods: found, launched for if they need another node, and moved."""
        plan = self._disrupting
        if plan is None or sight.now > plan.given_up:
            self._disrupting = plan = self._found(sight)
            if plan is None:
                return {}, [], again
        waits = plan.acts if again is None else min(again, plan.acts)
        if sight.now < plan.acts - TICK:
            return {}, [], waits
        candidate = next((item for item in sight.ready() if item.id == plan.node and item.busy), None)
        if candidate is None:
            self._disrupting = None
            return {}, [], sight.now + self.poll
        if plan.replacement is None:
            self._disrupting = None
            still = moved(sight, candidate, ()) is not None
            return {}, [candidate.id] if still else [], sight.now + self.poll
        if not plan.launched:
            self._disrupting = replace(plan, launched=True)
            return {plan.replacement: 1}, [], again
        if any(item.group == plan.replacement for item in sight.empty()):
            self._disrupting = None
            return {}, [candidate.id], sight.now + self.poll
        return {}, [], again

    def _found(self, sight: Sight) -> Disruption | None:
        """The node with the fewest pods that can be deleted, or else be replaced by a cheaper one."""
        busy = [item for item in sight.ready() if item.busy and item.id not in sight.awaited]
        busy.sort(key=lambda item: (sum(node.tasks for node in item.nodes), item.id))
        acts = -(-sight.now // self.poll) * self.poll + self.validation
        for item in busy:
            if moved(sight, item, ()) is not None:
                return Disruption(item.id, None, acts, acts + GIVES_UP)
        for item in busy:
            if group := cheaper(sight, item):
                return Disruption(item.id, group, acts, acts + GIVES_UP)
        return None


def packed(sight: Sight) -> dict[str, int]:
    """The nodes that one batch is launched on."""
    waiting = sorted(sight.unplaced, key=_largest_first)
    may, order = eligible(sight, waiting), price_order(sight)
    left = [one.count for one in waiting]
    launch: dict[str, int] = {}
    while any(left):
        taken, options = _one_node(sight, waiting, left, may)
        if not options:
            left = [0 if not any(may[index]) else many for index, many in enumerate(left)]
            continue
        cheapest = next(group for group in order if group in options)
        times = min(many // some for many, some in zip(left, taken, strict=True) if some)
        name = sight.draft.groups[cheapest].name
        launch[name] = launch.get(name, 0) + times
        left = [many - some * times for many, some in zip(left, taken, strict=True)]
    return launch


def _largest_first(one: Unplaced) -> tuple[int, int, int, str]:
    """By cpu, then memory; a pod that needs a GPU before one that does not, or it would find the node full."""
    needs = dict(one.shape.needs)
    return -needs.get("gpu", 0), -needs.get("cpu", 0), -needs.get("memory", 0), one.shape.members[0][0]


def _one_node(
    sight: Sight, waiting: list[Unplaced], left: list[int], may: list[list[bool]]
) -> tuple[list[int], set[int]]:
    """As many pods as one type can hold together, and the types that hold them all."""
    room = Room.fresh(sight.draft.kinds, sight.draft.totals)
    options = np.ones(len(sight.draft.groups), np.bool_)
    taken, any_taken = [0] * len(waiting), False
    for index, one in enumerate(waiting):
        if not left[index]:
            continue
        fits = np.where(options & np.array(may[index]), room.capacity(one.shape.need), 0)
        some = min(left[index], int(fits.max(initial=0)))
        if not some:
            continue
        holds = np.flatnonzero(fits >= some)
        room.take(one.shape.need, holds, np.full(len(holds), some, np.int64))
        options = np.zeros_like(options)
        options[holds] = True
        taken[index], any_taken = some, True
    return taken, set(np.flatnonzero(options).tolist()) if any_taken else set()
