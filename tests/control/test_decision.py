"""The last routing decision as data: what is launched, what goes where, what waits."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from tests.control.worlds import GPU, QUICK, World
from windlass.control.report.current import PlannedState
from windlass.control.report.decision import decision_dict
from windlass.control.settings import GroupSettings, Settings


def test_what_waits_is_routed_to_what_comes_and_the_rest_is_unmet_with_its_code() -> None:
    async def story() -> None:
        world = World(settings=Settings((GroupSettings(replace(GPU, max=2), "cloud"),), policy=QUICK))
        leader = world.controller()
        world.cloud.booting = True
        world.work.waiting = ["a", "b", "c"]
        made = await world.tick(leader)
        made = await world.tick(leader)
        assert made.snapshot is not None
        assert made.plan is not None
        planned = PlannedState(leader.controller_state, world.settings, world.time, made.snapshot, made.plan)
        found = decision_dict(planned)
        assert found["launch"] == {}
        assert found["routed"] == {"gpu": {"demands": {"a": 1, "b": 1}, "tasks": 2}}
        assert found["pending"] == {"gpu": {"slices": 2, "remaining": {"gpu": "0"}, "demands": {"a": 1, "b": 1}}}
        assert found["unmet"] == [{"demand": "c", "tasks": 1, "code": "AT_MAX"}]
        assert found["at"] == leader.controller_state.at

    asyncio.run(story())
