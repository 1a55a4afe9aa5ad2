"""Kubernetes' Cluster Autoscaler, by its documentation and its default flags.

- It scans every 10 s (``scan-interval``).
- Scale-up: pods that fit neither on nodes that are there nor on those that come are packed onto new nodes of one node
  group after the other, first fit decreasing; each group that takes any is an option. The expander chooses one option
  a scan: ``least-waste``, the default, the smallest sum of the shares of cpu and of memory left unused. Pods of other
  options wait for the next scan. Prices are not known to it.
- Scale-down: a node is unneeded when less than 50 % of it is used (``scale-down-utilization-threshold``; on a node
  with GPUs only they count) and its pods could run elsewhere. One that was unneeded for 10 minutes
  (``scale-down-unneeded-time``) goes, at most 10 empty ones a scan (``max-empty-bulk-delete``); but nothing goes
  within 10 minutes of a scale-up (``scale-down-delay-after-add``).
- Jobs that run carry ``safe-to-evict: "false"``, the documented mark for work that must not be restarted: then a node
  with work is not unneeded, however little is used of it. Without the mark (``evicts``) such nodes go too, one at a
  time, and their jobs start again elsewhere.

Kinder than the system: equal waste goes to the cheaper group, not to a random one; a scale-up of any size is made at
once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from windlass.core.model.plan import Plan

from .filling import eligible, filled, price_order
from .moving import moved, utilization
from .peer import Scanning, Sight, as_plan


@dataclass(frozen=True, slots=True)
class Option:
    """So many new nodes of a group, and what they take."""

    group: int
    nodes: int
    pods: int
    waste: float


@dataclass
class ClusterAutoscaler(Scanning):
    every: float = 10.0
    unneeded_time: float = 600.0
    delay_after_add: float = 600.0
    empty_bulk_delete: int = 10
    evicts: bool = False
    """Jobs are not marked as such that must stay."""
    utilization_threshold: float = 0.5
    _unneeded: dict[str, float] = field(default_factory=dict, init=False)
    _added: float = field(default=float("-inf"), init=False)

    def look(self, sight: Sight) -> tuple[Plan, float | None]:
        launch, more = self._scale_up(sight)
        if launch:
            self._added = sight.now
        empty = {item.id for item in sight.empty()}
        names = [*sorted(empty), *(self._underused(sight) if self.evicts else ())]
        self._unneeded = {name: self._unneeded.get(name, sight.now) for name in names}
        resumes = self._added + self.delay_after_add
        times = {name: max(since + self.unneeded_time, resumes) for name, since in self._unneeded.items()}
        late = [name for name, at in times.items() if at <= sight.now]
        over = [name for name in late if name in empty][: self.empty_bulk_delete]
        over += [name for name in late if name not in empty][:1] if not over else []
        limits = [max(at, sight.now + self.every) for name, at in times.items() if name not in over]
        if more:
            limits.append(sight.now + self.every)
        return as_plan(sight.snapshot, launch, over), min(limits, default=None)

    def _underused(self, sight: Sight) -> list[str]:
        """Nodes with work of which little is used, and whose pods all fit on nodes that stay."""
        groups = {group.name: group for group in sight.draft.groups}
        used = {item.id: utilization(groups[item.group], item) for item in sight.ready() if item.busy}
        found: list[str] = []
        keep: set[str] = set()
        for item in sorted(sight.ready(), key=lambda item: (used.get(item.id, 1.0), item.id)):
            if used.get(item.id, 1.0) >= self.utilization_threshold or item.id in keep | sight.awaited:
                continue
            target = moved(sight, item, found)
            if target is not None:
                found.append(item.id)
                keep.add(target)
        return found

    def _scale_up(self, sight: Sight) -> tuple[dict[str, int], bool]:
        """The option that the expander takes, and whether pods are left for the next scan."""
        options = self._options(sight)
        if not options:
            return {}, False
        best = min(options, key=lambda one: round(one.waste, 9))  # of equals the first, that is the cheapest
        waiting = sum(one.count for one in sight.unplaced)
        return {sight.draft.groups[best.group].name: best.nodes}, best.pods < waiting

    def _options(self, sight: Sight) -> list[Option]:
        waiting, draft = sight.unplaced, sight.draft
        may = eligible(sight, waiting)
        cpu, memory = draft.kinds.column.get("cpu"), draft.kinds.column.get("memory")
        found = []
        for group in price_order(sight):
            left, nodes, pods = [one.count for one in waiting], 0, 0
            used = [0, 0]
            while True:
                one = filled(sight, group, waiting, left, may)
                if not one.tasks:
                    break
                times = min(many // some for many, some in zip(left, one.taken, strict=True) if some)
                left = [many - some * times for many, some in zip(left, one.taken, strict=True)]
                nodes, pods = nodes + times, pods + one.tasks * times
                for index, column in enumerate((cpu, memory)):
                    used[index] += 0 if column is None else int(one.used()[column]) * times
            if nodes:
                has = [0 if column is None else int(draft.totals[group][column]) * nodes for column in (cpu, memory)]
                waste = sum((all_ - some) / all_ for all_, some in zip(has, used, strict=True) if all_)
                found.append(Option(group, nodes, pods, waste))
        return found
