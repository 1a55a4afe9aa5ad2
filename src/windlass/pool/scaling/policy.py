"""PoolScaling applies the scaling rule of a pool to the settings of its controller. Growth needs no override: waiting
tasks are demand, and the planner buys nodes for them in the same pass, after it has cancelled drains and counted nodes
that boot. Shrinking needs one: the planner could release nodes at any time, but the pool's rule decides when, and how
many must stay. So the release rules of a group apply only while the rule allows it, with its number as the minimum. The
head, which is node 0, is protected while other nodes exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction

from windlass.control.observe.validation import ValidView
from windlass.control.reconcile.pool_settings import EffectiveSettings
from windlass.control.settings import Settings
from windlass.control.state.fleet import Fleet
from windlass.core.capacity.node_room import fits_empty
from windlass.core.model.lifecycle import ENDING, OFFERING
from windlass.core.model.snapshot import Demand, Group, LowUtilization, ScaleDown
from windlass.pool.options import PoolShape
from windlass.pool.scheduler.tasks import SLOTS
from windlass.workloads.protocol import WorkloadView

from .rule import LITTLE, SPARE, Limits, Memory, Pressure, ScalingDecision, decide


class PoolScaling:
    """Overrides the settings of the groups of one pool, and keeps the memory of its rule."""

    def __init__(self, shape: PoolShape, engine_problem: Callable[[], str] = lambda: "") -> None:
        """``engine_problem`` returns why no node can join at the moment, or an empty string."""
        self._engine_problem = engine_problem
        self._memories: dict[str, Memory] = {}
        self.decisions: dict[str, ScalingDecision] = {}
        """The last decision of the rule, by group."""
        self.reshape(shape)
        self._last: EffectiveSettings | None = None

    def reshape(self, shape: PoolShape) -> None:
        """Set other limits; the initial size is wanted again."""
        self._limits: Mapping[str, Limits] = shape.limits
        self._floors = dict(shape.desired)

    def __call__(self, settings: Settings, work: ValidView | None, fleet: Fleet, now: float) -> EffectiveSettings:
        """Return the settings for one pass. The controller calls it once in each pass."""
        if work is None:
            return self._last or EffectiveSettings(settings)
        if self._engine_problem():
            return EffectiveSettings(_frozen(settings, fleet))
        view = work.view
        head = head_of(view, fleet)
        groups = [
            replace(configured, group=self._scaled(configured.group, view, fleet, head, now))
            if configured.group.name in self._limits
            else configured
            for configured in settings.groups
        ]
        dues = [one.due for one in self.decisions.values() if one.due is not None]
        scaled = Settings(tuple(groups), settings.cluster, settings.policy)
        self._last = EffectiveSettings(settings if scaled == settings else scaled, min(dues, default=None))
        return self._last

    def _scaled(self, group: Group, view: WorkloadView, fleet: Fleet, head: str | None, now: float) -> Group:
        limits = self._limits[group.name]
        pressure = pressure_of(group, view, fleet)
        decision = decide(pressure, self._memories.get(group.name, Memory()), now, limits)
        self._memories[group.name], self.decisions[group.name] = decision.memory, decision
        if decision.action in ("shrink", "idle"):
            self._floors[group.name] = limits.min
        floor = self._floors[group.name]
        protected = group.protected | ({head} if head is not None else frozenset())
        match decision.action:
            case "idle":
                return replace(
                    group, min=floor, scale_down=ScaleDown(idle_timeout=limits.idle_timeout), protected=protected
                )
            case "shrink":
                rule = LowUtilization(Fraction(LITTLE, 100), SPARE)
                return replace(
                    group, min=decision.nodes, scale_down=ScaleDown(low_utilization=rule), protected=protected
                )
            case _:
                return replace(group, min=floor, scale_down=ScaleDown(), protected=protected)


def _frozen(settings: Settings, fleet: Fleet) -> Settings:
    """Keep the number of nodes: the engine is down, and no new node could join."""
    counts: dict[str, int] = {}
    for record in fleet.slices.values():
        counts[record.group] = counts.get(record.group, 0) + (record.state not in ENDING)
    groups = []
    for configured in settings.groups:
        count = counts.get(configured.group.name, 0)
        group = replace(configured.group, min=min(configured.group.min, count), max=count, scale_down=ScaleDown())
        groups.append(replace(configured, group=group))
    return Settings(tuple(groups), settings.cluster, settings.policy)


def pressure_of(group: Group, view: WorkloadView, fleet: Fleet) -> Pressure:
    """Return the pressure on one group: waiting tasks that it could run, and the use of its nodes."""
    slices = {name for name, record in fleet.slices.items() if record.group == group.name}
    offering = sum(fleet.slices[name].state in OFFERING for name in slices)
    running = sum(dict(node.used).get(SLOTS, 0) for node in view.nodes if node.slice_id in slices)
    return Pressure(
        queued=sum(demand.count for demand in view.demands if could_hold(group, demand)),
        running=-(-running // 1000),
        slots=max(1, dict(group.resources).get(SLOTS, 0) // 1000) * group.hosts,
        nodes=offering,
    )


def could_hold(group: Group, demand: Demand) -> bool:
    """Return whether tasks of a demand could run on nodes of a group."""
    labels = group.node_labels()
    return all(condition.holds(labels) for condition in demand.where) and all(
        fits_empty(group.resources, bundle.needs) for bundle in demand.bundles
    )


def head_of(view: WorkloadView, fleet: Fleet) -> str | None:
    """Return the slice of node 0 while other nodes exist: it is released last. A pool lists its nodes by number."""
    living = [record for record in fleet.slices.values() if record.state not in ENDING]
    return view.nodes[0].slice_id if view.nodes and len(living) > 1 else None
