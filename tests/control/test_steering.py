"""Settings overrides of a workload that decides its own size."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from windlass.control.reconcile.pool_settings import EffectiveSettings
from windlass.control.report.current import planned_state, read_state
from windlass.control.settings import Settings
from windlass.control.state.fleet import Fleet
from windlass.core.model.snapshot import ScaleDown
from windlass.workloads.protocol import WorkloadView

from .worlds import World


class Floor:
    """A rule that wants so many slices."""

    def __init__(self, slices: int) -> None:
        self.slices = slices
        self.due: float | None = None
        self.views: list[WorkloadView | None] = []

    def __call__(self, settings: Settings, view: WorkloadView | None, fleet: Fleet, now: float) -> EffectiveSettings:
        self.views.append(view)
        meant = tuple(
            replace(configured, group=replace(configured.group, min=self.slices, scale_down=ScaleDown(idle_timeout=0)))
            for configured in settings.groups
        )
        return EffectiveSettings(replace(settings, groups=meant), self.due)


def test_the_plan_obeys_overridden_settings_in_the_same_pass():
    async def whole() -> None:
        world, rule = World(), Floor(2)
        controller = world.controller(override_settings=rule)
        await world.tick(controller)
        assert len(world.bought) == 2
        await world.ticks(controller, 5)
        rule.slices = 1
        await world.ticks(controller, 5)
        assert len(world.instances) == 1
        assert controller.settings.groups[0].group.min == 0, "what was told stays as it was told"

    asyncio.run(whole())


def test_what_is_in_force_is_in_the_journal():
    async def whole() -> None:
        world = World()
        controller = world.controller(override_settings=Floor(3))
        await world.tick(controller)
        planned = planned_state(read_state(world.journal()), world.settings, world.time)
        assert planned.settings.groups[0].group.min == 3

    asyncio.run(whole())


def test_the_next_pass_is_due_when_the_rule_says_so():
    async def whole() -> None:
        world, rule = World(), Floor(0)
        controller = world.controller(override_settings=rule)
        rule.due = world.time + 7.5
        await world.tick(controller)
        assert controller.next_deadline() == rule.due

    asyncio.run(whole())


def test_a_rule_learns_when_the_workload_gave_no_answer():
    async def whole() -> None:
        world, rule = World(), Floor(0)
        controller = world.controller(override_settings=rule)
        world.work.looking = _fails
        await world.tick(controller)
        assert rule.views == [None]

    asyncio.run(whole())


def _fails(view: WorkloadView) -> WorkloadView:
    raise OSError("no answer")
