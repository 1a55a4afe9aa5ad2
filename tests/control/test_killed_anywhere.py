"""A controller that is killed at any point and restarted on the same journal ends like one that was not killed.

One rich history is run once in calm. Then it is run again for every point at which the controller can die, before and
after each journal write and each outside call, and must come to the same end.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection
from unittest import mock

import pytest

from tests.control.worlds import Survivor, World
from windlass.control import controller as controller_module
from windlass.control.reconcile.operator_orders import Order, give
from windlass.control.settings import GroupSettings, Policy, Settings
from windlass.core.model.lifecycle import RECALLABLE, State
from windlass.core.model.snapshot import Cluster, Group, ScaleDown
from windlass.providers.protocol import InsufficientCapacity, LaunchOrder

GPUS = (("gpu", 8000),)
EAST = Group("east", GPUS, 2, rank=1, price=2 * 10**9, scale_down=ScaleDown(idle_timeout=30))
WEST = Group("west", GPUS, 2, rank=2, price=3 * 10**9, scale_down=ScaleDown(idle_timeout=30))
SETTINGS = Settings(
    (GroupSettings(EAST, "aurora"), GroupSettings(WEST, "boreal")),
    Cluster(choose="rank", max_nodes=3),
    Policy(vanish_timeout=0),
)


async def history(world: World) -> Survivor:
    """Waves of jobs over two groups: a stock-out, a machine that dies, a drain that is called back, an operator."""
    east, work = world.clouds["aurora"], world.work
    alive = Survivor(world)
    journal = world.journal()

    def only_one(_: LaunchOrder) -> InsufficientCapacity | None:
        return InsufficientCapacity("none left") if east.instances else None

    # The first wave: the second launch in the east is refused and passed on to the west.
    east.refusing = only_one
    work.waiting = ["a", "b"]
    await alive.until(lambda: len(work.running) == 2)
    east.refusing = lambda _: None
    # A machine dies, and its job is run on another.
    east.kill(next(iter(east.instances)))
    await alive.until(lambda: work.lost)
    await alive.until(lambda: sorted(work.running.values()) == ["a", "b"] and len(alive.in_state(State.READY)) == 2)
    # All is done; what is idle is on its way out when new demand calls it back.
    work.finish()
    await alive.until(lambda: alive.in_state(*RECALLABLE), 15)
    work.waiting = ["c"]
    await alive.until(lambda: list(work.running.values()) == ["c"])
    # The operator freezes the east: nothing new there; and drains the machine on which c runs.
    give(journal, Order("freeze", "east", "ann"), world.time)
    [busy] = work.running
    give(journal, Order("drain", busy, "ann"), world.time)
    await alive.until(lambda: busy in alive.in_state(State.DRAINING))
    work.waiting = ["d"]
    await alive.until(lambda: "d" in work.running.values())
    work.finish("c")
    await alive.until(lambda: busy in world.clouds["boreal"].ended or busy in alive.in_state(State.DRAINING))
    give(journal, Order("resume", "east", "ann"), world.time)
    await alive.until(lambda: busy not in world.instances)
    # The last wave is more than there is room for: the last job waits for the first machine that is free.
    await alive.until(lambda: set(world.instances) == set(work.running), 5)
    work.waiting = ["e", "f", "g"]
    await alive.until(lambda: len(work.running) == 3)
    work.finish("d")
    await alive.until(lambda: "g" in work.running.values())
    work.finish()
    await alive.until(lambda: not world.instances and not alive.controller.controller_state.fleet.slices, 5)
    return alive


def run(crash_at: Collection[int]) -> tuple[World, Survivor]:
    world = World(settings=SETTINGS)
    world.crash_at = crash_at
    with mock.patch.object(
        controller_module, "SAVE_AFTER", 40
    ):  # often enough for a short history to have saved states
        return world, asyncio.run(history(world))


@pytest.fixture(scope="module")
def calm() -> World:
    return run(())[0]


def assert_same_end(world: World, calm: World, at: str) -> None:
    assert sorted(world.work.finished) == sorted(calm.work.finished), at
    assert world.work.killed == [], at
    assert world.work.lost == calm.work.lost, at
    assert world.instances == {}, at
    assert len(set(world.bought)) == len(world.bought) == len(calm.bought), at
    assert all(cloud.most_at_once <= 2 and not cloud.stale for cloud in world.clouds.values()), at


def test_the_calm_history_goes_through_everything(calm: World) -> None:
    assert sorted(calm.work.finished) == ["a", "b", "c", "d", "e", "f", "g"]
    assert calm.work.lost == ["a"]
    wanted = "launch terminate cordon uncordon drain forget list observe append save_state renew acquire"
    assert set(wanted.split()) <= set(calm.calls)
    assert len(calm.calls) > 250


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_killed_at_any_point_the_history_ends_the_same(calm: World, part: int) -> None:
    for point in range(1 + part, len(calm.calls) + 1, 4):
        world, alive = run({point})
        at = f"killed at point {point}, {world.calls[point - 1]}"
        assert alive.deaths == 1, at
        assert_same_end(world, calm, at)


@pytest.mark.slow
def test_killed_many_times_the_history_ends_the_same(calm: World) -> None:
    for seed in range(40):
        points = random.Random(seed).sample(range(1, len(calm.calls)), 10)
        world, alive = run(points)
        assert alive.deaths > 3
        assert_same_end(world, calm, f"killed at {sorted(points)}")
