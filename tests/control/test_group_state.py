"""The state of a group is `requesting` while a launch is in flight, and `at_max` at its limit."""

from __future__ import annotations

import asyncio

from tests.control.worlds import GPU, QUICK, World
from windlass.control.report.current import planned_state, read_state
from windlass.control.report.events import AssignmentLog
from windlass.control.report.leader import Leader
from windlass.control.report.status import GroupStatus, Status
from windlass.control.settings import GroupSettings, Settings
from windlass.core.model.lifecycle import State
from windlass.core.model.reasons import Code, Reason
from windlass.core.model.snapshot import Availability
from windlass.providers.protocol import InsufficientCapacity


def group(*, requesting: int = 0, code: Code | None = None, availability: Availability | None = None) -> GroupStatus:
    why = None if code is None else Reason(code, "because")
    return GroupStatus("g", 0, requesting, 0, 0, None, 0, availability or Availability(), "", None, why, requesting)


def test_a_group_is_requesting_while_a_launch_is_under_way_and_at_max_while_it_may_have_no_more() -> None:
    assert group().state == "available"
    assert group(requesting=1).state == "requesting"
    assert group(requesting=1, code=Code.AT_MAX).state == "at_max"
    assert group(requesting=1, availability=Availability("backoff", 5.0, "none left")).state == "backoff"
    assert group(requesting=1).to_dict()["availability"]["state"] == "requesting"


def test_a_group_counts_its_slices_by_every_state_and_those_that_failed_or_ended_within_the_hour() -> None:
    async def story() -> None:
        settings = Settings((GroupSettings(GPU, "cloud"),), policy=QUICK)
        world = World(settings=settings)
        leader = world.controller()

        def states() -> dict[str, int]:
            planned = planned_state(read_state(world.journal()), settings, world.time)
            (row,) = Status(settings, Leader(None, 1, False, None), planned, world.time).to_dict()["groups"]
            assert list(row["states"]) == [str(state) for state in State]
            return {name: count for name, count in row["states"].items() if count}

        world.cloud.refusing = lambda _: InsufficientCapacity("none left")
        world.work.waiting = ["a"]
        await world.ticks(leader, 3)
        assert states() == {"launch_failed": 1}
        world.cloud.refusing = lambda _: None
        await world.ticks(leader, 60)
        assert states() == {"launch_failed": 1, "ready": 1}
        world.cloud.kill(world.cloud.bought[0])
        await world.ticks(leader, 5)
        assert states() == {"launch_failed": 1, "lost": 1, "ready": 1}
        world.work.finish()
        await world.ticks(leader, 90)
        assert states() == {"launch_failed": 1, "lost": 1, "terminated": 1}
        await world.tick(leader, 3600)
        assert states() == {}

    asyncio.run(story())


def test_each_demand_that_is_put_on_capacity_in_flight_is_logged_once() -> None:
    async def story() -> None:
        world = World(settings=Settings((GroupSettings(GPU, "cloud"),), policy=QUICK))
        leader, log = world.controller(), AssignmentLog()
        world.cloud.booting = True
        world.work.waiting = ["a", "b"]
        lines = []
        for _ in range(5):
            made = await world.tick(leader)
            lines += [line.text for line in log.lines(made.snapshot, made.plan)]
        assert sorted(line.split(":")[0] for line in lines) == ["a", "b"]
        assert all("1 task assigned to gpu-" in line for line in lines)

    asyncio.run(story())
