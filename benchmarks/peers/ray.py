"""Ray's autoscaler (v2), by its documentation, its code and what was measured of it.

- It looks every 5 s (``AUTOSCALER_UPDATE_INTERVAL_S``).
- What waits is laid on the nodes that are there and on their way. For the rest it chooses one new node after the
  other: every node type is filled with as much of what is left as fits, and the best score wins: no GPU wasted on work
  that needs none, more kinds of resource used, the higher least utilization over the kinds, the higher mean. Prices
  are not known to it.
- Pacing: of one type at most as many are launched at a look as there are of it already (``upscaling_speed`` 1.0), at
  least 1; over all types at most 10 requests are under way at once (``max_concurrent_launches``).
- A node that is idle for 5 minutes (``idle_timeout_minutes``) ends.

Kinder than the system: what waits is packed again in each pass, so nothing that was queued and is not wanted any more
is launched; a node that ends takes no demand.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from windlass.core.model.lifecycle import COUNTED, State
from windlass.core.model.plan import Plan

from .filling import Filled, eligible, filled, price_order
from .peer import Scanning, Sight, as_plan


@dataclass
class Ray(Scanning):
    every: float = 5.0
    idle_timeout: float = 300.0
    upscaling_speed: float = 1.0
    max_concurrent_launches: int = 10

    def look(self, sight: Sight) -> tuple[Plan, float | None]:
        wanted = self._wanted(sight)
        launch = self._paced(sight, wanted)
        idle = {item.id: item.idle_since(sight.now) + self.idle_timeout for item in sight.empty()}
        over = [name for name, until in idle.items() if until <= sight.now]
        limits = [until for until in idle.values() if until > sight.now]
        if launch != wanted or (over and launch):
            limits.append(sight.now + self.every)
        return as_plan(sight.snapshot, launch, over), min(limits, default=None)

    def _wanted(self, sight: Sight) -> Counter[str]:
        """New nodes of each type, chosen one after the other; equal choices as one."""
        waiting, draft = sight.unplaced, sight.draft
        left, may, order = [one.count for one in waiting], eligible(sight, waiting), price_order(sight)
        found: Counter[str] = Counter()
        while any(left):
            tried = [one for group in order if (one := filled(sight, group, waiting, left, may)).tasks]
            if not tried:
                break
            best = max(tried, key=lambda one: _score(sight, one))  # of equals the first, that is the cheapest
            # The same node wins again as long as there is as much left of all that it took.
            times = min(many // some for many, some in zip(left, best.taken, strict=True) if some)
            found[draft.groups[best.group].name] += times
            left = [many - some * times for many, some in zip(left, best.taken, strict=True)]
        return found

    def _paced(self, sight: Sight, wanted: Counter[str]) -> Counter[str]:
        there = Counter(item.group for item in sight.snapshot.slices if item.state in COUNTED)
        asked = sum(item.state in (State.QUEUED, State.REQUESTING) for item in sight.snapshot.slices)
        room, launch = max(0, self.max_concurrent_launches - asked), Counter[str]()
        for name, count in sorted(wanted.items()):
            some = min(count, max(1, int(self.upscaling_speed * there[name])), room)
            launch[name] += some
            room -= some
        return +launch


def _score(sight: Sight, one: Filled) -> tuple[bool, int, float, float]:
    names, total, used = sight.draft.kinds.names, one.room.total[0], one.used()
    shares = [used[column] / total[column] for column in range(len(names)) if total[column]]
    gpu = sight.draft.kinds.column.get("gpu")
    wasted = gpu is not None and total[gpu] > 0 and not used[gpu]
    return not wasted, sum(share > 0 for share in shares), min(shares), sum(shares) / len(shares)
