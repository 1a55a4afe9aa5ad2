"""Tasks whose durations change: waiting tasks go to any free slot, so the pool stays close to the ideal."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Sequence

import pytest

from .worlds import World, pool, same

BOOT = 2.0


def ideal(durations: Sequence[float], slots: int) -> float:
    """The makespan of a list schedule that knows all durations: the longest first, each to the first free slot."""
    free = [0.0] * slots
    for one in sorted(durations, reverse=True):
        heapq.heapreplace(free, free[0] + one)
    return max(free)


SHAPES: dict[str, tuple[list[float], list[float]]] = {
    "short then long": ([0.001] * 300, [1.0] * 64),
    "two short calls, then long": ([0.001] * 2, [1.0] * 32),
    "long then short": ([1.0] * 8, [0.001] * 4000),
    "bimodal": ([0.01] * 20, [0.005, 0.005, 0.005, 2.0] * 40),
    "growing": ([0.001] * 50, [0.005 * number for number in range(200)]),
    "shrinking": ([1.0] * 4, [0.005 * (200 - number) for number in range(200)]),
    "one long at the end": ([0.01] * 100, [0.01] * 400 + [5.0]),
}


@pytest.mark.parametrize(("before", "then"), SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("nodes", [(2, 8), 8], ids=["growing pool", "fixed pool"])
def test_a_change_of_durations_costs_little_against_the_ideal_schedule(before, then, nodes):
    async def journey(world: World) -> None:
        durations = [*before, *then]
        world.engine.item_took = lambda argument: durations[argument]
        loop = asyncio.get_running_loop()
        least = nodes if isinstance(nodes, int) else nodes[0]
        await world.until(lambda: len(world.nodes) == least)
        made = world.compute(same)
        await world.over(*world.start(*[made(number) for number in range(len(before))]))
        begun = loop.time()
        await world.over(*world.start(*[made(len(before) + number) for number in range(len(then))]))
        took = loop.time() - begun
        limit = 1.2 * ideal(then, 8) + (BOOT + 1.0 if nodes == (2, 8) else 0.3)
        assert took <= limit, f"{took:.2f} s, ideal {ideal(then, 8):.2f} s"

    pool(nodes, journey, boot=BOOT, seconds=0.001)


def test_tasks_that_have_not_begun_on_a_slot_count_as_queued_and_buy_nodes():
    async def journey(world: World) -> None:
        durations: Callable[[int], float] = lambda argument: 0.001 if argument < 300 else 1.0  # noqa: E731
        world.engine.item_took = durations
        await world.until(lambda: len(world.nodes) == 2)
        made = world.compute(same)
        await world.over(*world.start(*[made(number) for number in range(300)]))
        futures = world.start(*[made(300 + number) for number in range(64)])
        await asyncio.sleep(0.5)
        assert world.hub.task_book.queued == 62
        assert sum(demand.count for demand in world.hub.task_book.view().demands) == 62
        await world.until(lambda: len(world.nodes) == 8, within=BOOT + 3)
        await world.over(*futures)

    pool((2, 8), journey, boot=BOOT, seconds=0.001)


def test_the_results_of_a_batch_arrive_one_by_one():
    async def journey(world: World) -> None:
        world.engine.item_took = lambda argument: 0.001 if argument < 300 else 1.0
        await world.until(lambda: len(world.nodes) == 1)
        made = world.compute(same)
        await world.over(*world.start(*[made(number) for number in range(300)]))
        futures = world.start(*[made(300 + number) for number in range(10)])
        for number in range(10):
            await world.until(futures[number].done, within=1.3)
            assert sum(future.done() for future in futures) == number + 1

    pool(1, journey, seconds=0.001)
