"""A controller of a Ray cluster that is killed before or after any call reaches the same end as one that is not.

The cluster is in memory (``ray_world``), so that every point can be tried; real heads are used for a few.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection
from typing import Any

import pytest

from tests.control.worlds import Survivor
from tests.workloads.ray_world import RayWorld
from windlass.control.leadership import NotLeading
from windlass.control.reconcile.operator_orders import Order, give


async def history(world: RayWorld) -> Survivor:
    """A burst, work at the moment of the idle timeout, a machine that dies, and a drain by an operator."""
    head = world.head
    alive = Survivor(world)
    # Four tasks get two machines, not more, however often they are counted.
    head.waiting += ["a", "b", "c", "d"]
    await alive.until(lambda: len(head.running) == 4, 0.5)
    head.finish("c", "d")
    await alive.until(lambda: len(world.instances) == 1, 0.5)
    # The other machine goes when it is idle; work that comes just then gets a new one or stays on it.
    head.finish()
    await alive.until(lambda: not world.instances, 0.5)
    # A machine dies with work on it: the work is run on another one.
    head.waiting += ["e", "f"]
    await alive.until(lambda: len(head.running) == 2, 0.5)
    world.cloud.kill(head.busy()[0])
    await alive.until(lambda: head.lost, 0.5)
    await alive.until(lambda: len(head.running) == 2, 0.5)
    # An operator drains the machine: its work goes on to the end, and what comes meanwhile gets another machine.
    [busy] = head.busy()
    give(world.journal(), Order("drain", busy, "ann"), world.time)
    await alive.until(lambda: head.nodes[busy].drain, 0.5)
    head.waiting += ["g"]
    await alive.until(lambda: "g" in head.running, 0.5)
    head.finish("e", "f")
    await alive.until(lambda: busy not in world.instances, 0.5)
    head.finish()
    await alive.until(lambda: not world.instances and not alive.controller.controller_state.fleet.slices, 0.5)
    return alive


def run(crash_at: Collection[int]) -> tuple[RayWorld, Survivor]:
    world = RayWorld()
    world.crash_at = crash_at
    return world, asyncio.run(history(world))


@pytest.fixture(scope="module")
def calm() -> RayWorld:
    return run(())[0]


def assert_same_end(world: RayWorld, calm: RayWorld, at: str) -> None:
    assert sorted(world.head.finished) == sorted(calm.head.finished) == ["a", "b", "c", "d", "e", "f", "g"], at
    assert world.head.killed == [], at
    assert sorted(world.head.lost) == ["e", "f"], at
    assert len(set(world.bought)) == len(world.bought) == len(calm.bought) == 5, f"{at}: bought {world.bought}"
    assert world.head.reported == sorted(world.head.reported), at


def test_the_calm_history_makes_every_call(calm: RayWorld) -> None:
    assert_same_end(calm, calm, "calm")
    wanted = "launch terminate DrainNode UnregisterNode GetClusterResourceState GetAllActorInfo ReportAutoscalingState"
    assert set(wanted.split()) <= set(calm.calls)


READS = ("Get", "CheckAlive", "InternalKVGet", "list", "renew")
"""Calls that change nothing. There are many, so only one in five is tried."""


def points(calm: RayWorld) -> list[int]:
    reads = [number for number, name in enumerate(calm.calls, 1) if name.startswith(READS)]
    return sorted({*range(1, len(calm.calls) + 1)} - {*reads} | {*reads[::5]})


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_killed_before_or_after_a_call_it_buys_nothing_twice_and_ends_no_work(calm: RayWorld, part: int) -> None:
    for point in points(calm)[part::3]:
        world, alive = run({point})
        at = f"killed at point {point}, {world.calls[point - 1]}"
        assert alive.deaths == 1, at
        assert_same_end(world, calm, at)


@pytest.mark.slow
def test_killed_many_times_it_buys_nothing_twice_and_ends_no_work(calm: RayWorld) -> None:
    for seed in range(15):
        points = random.Random(seed).sample(range(1, len(calm.calls)), 10)
        world, alive = run(points)
        assert alive.deaths > 3
        assert_same_end(world, calm, f"killed at {sorted(points)}")


def test_two_controllers_that_both_believe_they_lead_drain_nothing_twice_and_buy_nothing_twice() -> None:
    async def story() -> None:
        world = RayWorld()
        head = world.head
        old = world.controller("old")
        head.waiting += ["a", "b"]
        while len(head.running) < 2:
            await world.tick(old, 0.5)
        head.finish()
        journal: Any = old.journal
        append = journal.append

        def held_up(entries: Any, **more: Any) -> Any:
            """As by SIGSTOP between the commit of a cordon and its call."""
            result = append(entries, **more)
            if "cordoned" in str(entries):
                world.ahead += 16
            return result

        journal.append = held_up
        while not world.ahead:
            await world.tick(old, 0.5)
        world.time += 16
        new = world.controller("new")
        for _ in range(20):
            await world.tick(new, 0.5)
            with pytest.raises(NotLeading):
                await old.tick()
        assert head.changing == [("DrainNode", "new")]
        assert world.bought == world.cloud.ended
        assert head.killed == []

    asyncio.run(story())
