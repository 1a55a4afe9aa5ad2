"""Small cases against the brute-force optimum."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.model.quantities import DEVICE, NANO
from windlass.core.model.snapshot import Bundle, Cluster, Demand, Group, Snapshot, amounts
from windlass.core.planner import plan

Task = tuple[int, int, int]
"""cpu, memory, gpu (thousandths of a device)."""

tasks = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 6), st.sampled_from((0, 0, 300, 600, 1000, 2000))),
    min_size=1,
    max_size=6,
)
nodes = st.tuples(st.integers(4, 10), st.integers(4, 10), st.sampled_from((0, 1000, 2000)))


def holds(node: Task, load: tuple[Task, ...]) -> bool:
    """Whether a node holds the tasks at once: sums, and the shares of devices on whole devices by trying every way."""
    if any(sum(task[kind] for task in load) > node[kind] for kind in (0, 1)):
        return False
    whole = sum(task[2] for task in load if task[2] >= DEVICE)
    shares = [task[2] for task in load if 0 < task[2] < DEVICE]
    return whole <= node[2] and _packs(shares, [DEVICE] * ((node[2] - whole) // DEVICE))


def _packs(shares: list[int], devices: list[int]) -> bool:
    if not shares:
        return True
    first, *rest = shares
    return any(
        free >= first and _packs(rest, [*devices[:index], free - first, *devices[index + 1 :]])
        for index, free in enumerate(devices)
    )


def optimum(items: list[Task], kinds: list[tuple[Task, int]]) -> int | None:
    """The least total price of nodes that hold all items; None when one fits nowhere."""

    @cache
    def cheapest(load: tuple[Task, ...]) -> int | None:
        prices = [price for node, price in kinds if holds(node, load)]
        return min(prices, default=None)

    @cache
    def best(left: tuple[Task, ...]) -> int | None:
        if not left:
            return 0
        first, *rest = left
        found = []
        for chosen in range(2 ** len(rest)):
            load = (first, *(task for index, task in enumerate(rest) if chosen >> index & 1))
            others = tuple(task for index, task in enumerate(rest) if not chosen >> index & 1)
            price, more = cheapest(load), best(others)
            if price is not None and more is not None:
                found.append(price + more)
        return min(found, default=None)

    return best(tuple(items))


def asked(items: list[Task], kinds: list[tuple[Task, int]], strategy: str) -> Snapshot:
    def named(task: Task) -> tuple[tuple[str, int], ...]:
        return amounts({"cpu": task[0] * 1000, "memory": task[1], "gpu": task[2]})

    return Snapshot(
        groups=tuple(
            Group(f"g-{index}", named(node), 50, price=price * NANO) for index, (node, price) in enumerate(kinds)
        ),
        demands=tuple(Demand(f"d-{index}", (Bundle(named(task)),)) for index, task in enumerate(items)),
        cluster=Cluster(choose=strategy),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("strategy", ["best-fit", "rank", "cheapest"])
@given(tasks, nodes)
def test_one_group_launches_at_most_one_slice_more_than_the_optimum(
    strategy: str, items: list[Task], node: Task
) -> None:
    fewest = optimum(items, [(node, 1)])
    answer = plan(asked(items, [(node, 1)], strategy))
    if fewest is None:
        assert answer.waiting
    else:
        assert not answer.waiting
        assert fewest <= sum(answer.launch.values()) <= fewest + 1


@given(tasks, st.lists(st.tuples(nodes, st.integers(1, 9)), min_size=1, max_size=3))
def test_cheapest_costs_at_most_a_quarter_more_than_the_optimum(
    items: list[Task], kinds: list[tuple[Task, int]]
) -> None:
    least = optimum(items, kinds)
    answer = plan(asked(items, kinds, "cheapest"))
    if least is None:
        assert answer.waiting
    else:
        assert not answer.waiting
        assert least * NANO <= answer.hourly_cost.planned <= 1.25 * least * NANO


@given(tasks, st.lists(nodes, min_size=1, max_size=3))
def test_with_equal_prices_cheapest_launches_at_most_one_slice_more_than_the_optimum(
    items: list[Task], kinds: list[Task]
) -> None:
    fewest = optimum(items, [(node, 1) for node in kinds])
    answer = plan(asked(items, [(node, 1) for node in kinds], "cheapest"))
    if fewest is not None:
        assert not answer.waiting
        assert fewest <= sum(answer.launch.values()) <= fewest + 1
