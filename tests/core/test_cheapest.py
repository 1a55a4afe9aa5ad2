"""The cheapest mix: never wrong, exact where it is small, and cheap where it is large."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.core.buying.market import Batch, Market
from windlass.core.buying.solver.column_generation import Coverer
from windlass.core.buying.solver.exact import exact_mix, one_slice
from windlass.core.buying.solver.knapsack import Catalogue, Knapsacks
from windlass.core.buying.solver.search import cheapest_mix
from windlass.core.capacity.room import Kinds, Need, Room

KINDS = Kinds.of(["cpu", "gpu", "memory"])
DOLLAR = 10**9
ENDLESS = 2**60


def a_market(
    groups: list[dict[str, int]],
    tasks: list[tuple[dict[str, int], int]],
    *,
    eligible: Any = None,
    unmet: Any = None,
    nodes: int = ENDLESS,
    money: int = ENDLESS,
    launches: int = ENDLESS,
) -> Market:
    """Groups as {resource: amount, price, hosts, headroom, rank}; tasks as ({resource: amount}, count)."""
    shape = (len(tasks), len(groups))

    def column(key: str, default: int) -> np.ndarray:
        return np.array([group.get(key, default) for group in groups], np.int64)

    return Market(
        kinds=KINDS,
        needs=tuple(Need.of(needs, KINDS) for needs, _ in tasks),
        counts=np.array([count for _, count in tasks], np.int64),
        total=np.array([[group.get(name, 0) for name in KINDS.names] for group in groups], np.int64).reshape(-1, 3),
        hosts=column("hosts", 1),
        price=column("price", 0),
        rank=column("rank", 100),
        eligible=np.array(eligible, np.bool_).reshape(shape) if eligible is not None else np.ones(shape, np.bool_),
        unmet=np.array(unmet, np.int64).reshape(shape) if unmet is not None else np.zeros(shape, np.int64),
        headroom=column("headroom", 10_000),
        nodes_left=nodes,
        money_left=money,
        launches_left=launches,
    )


def cost(market: Market, batches: tuple[Batch, ...]) -> int:
    return sum(int(market.price[batch.group]) * batch.slices for batch in batches)


def served(market: Market, batches: tuple[Batch, ...]) -> list[int]:
    total = np.zeros(len(market.counts), np.int64)
    for batch in batches:
        total += batch.slices * batch.fill
    return total.tolist()


def bought(batches: tuple[Batch, ...]) -> dict[int, int]:
    result: dict[int, int] = {}
    for batch in batches:
        result[batch.group] = result.get(batch.group, 0) + batch.slices
    return result


def as_lists(batches: tuple[Batch, ...]) -> list[tuple[int, int, list[int]]]:
    return [(batch.group, batch.slices, batch.fill.tolist()) for batch in batches]


# -- a checker that shares nothing with the code under test -----------------------------------------------------------


def packable(market: Market, group: int, fill: tuple[int, ...]) -> bool:
    """Whether the tasks fit on the hosts of one slice: the biggest first, every host and every device is tried."""
    if any(count and not market.eligible[shape, group] for shape, count in enumerate(fill)):
        return False
    tasks = [shape for shape, count in enumerate(fill) for _ in range(count)]
    size = np.maximum(market.total[group], 1).tolist()
    tasks.sort(key=lambda shape: -max((amount / size[c] for c, amount in market.needs[shape].amounts()), default=0.0))
    gpu = KINDS.column["gpu"]
    amounts = [dict(need.amounts()) for need in market.needs]
    devices, rest = divmod(int(market.total[group, gpu]), 1000)
    node = (int(market.total[group, 0]), int(market.total[group, 2]), (*([rest] * (rest > 0)), *([1000] * devices)))
    cpu, gpus, memory = (tuple(amounts[shape].get(kind, 0) for shape in tasks) for kind in (0, gpu, 2))
    return _place(cpu, memory, gpus, 0, (node,) * int(market.hosts[group]))


def _place(cpu: tuple[int, ...], memory: tuple[int, ...], gpu: tuple[int, ...], at: int, nodes: tuple) -> bool:
    if at == len(cpu):
        return True
    for position in range(len(nodes)):
        if position and nodes[position] == nodes[position - 1]:
            continue
        has_cpu, has_memory, devices = nodes[position]
        if has_cpu < cpu[at] or has_memory < memory[at]:
            continue
        for after in _devices_after(devices, gpu[at]):
            node = (has_cpu - cpu[at], has_memory - memory[at], after)
            if _place(cpu, memory, gpu, at + 1, tuple(sorted((*nodes[:position], node, *nodes[position + 1 :])))):
                return True
    return False


def _devices_after(devices: tuple[int, ...], amount: int) -> list[tuple[int, ...]]:
    if amount >= 1000:
        whole = sum(1 for device in devices if device == 1000)
        needed = amount // 1000
        if whole < needed:
            return []
        return [tuple(sorted([d for d in devices if d < 1000] + [1000] * (whole - needed) + [0] * needed))]
    if amount == 0:
        return [devices]
    result = []
    for device in sorted(set(devices)):
        if device >= amount:
            rest = list(devices)
            rest.remove(device)
            result.append(tuple(sorted([*rest, device - amount])))
    return result


def assert_sound(market: Market, batches: tuple[Batch, ...]) -> None:
    """What must hold for any answer: nothing twice, no limit broken, every slice packable."""
    assert all(0 <= got <= count for got, count in zip(served(market, batches), market.counts.tolist(), strict=True))
    assert all(slices <= market.headroom[group] for group, slices in bought(batches).items())
    assert sum(int(market.hosts[batch.group]) * batch.slices for batch in batches) <= market.nodes_left
    assert sum(batch.slices for batch in batches) <= market.launches_left
    assert cost(market, batches) <= market.money_left
    for batch in batches:
        assert batch.slices > 0
        assert batch.fill.sum() > 0
        assert packable(market, batch.group, tuple(batch.fill.tolist()))


def brute_force(market: Market) -> tuple[int, int, int] | None:
    """The least (dollars, unmet, slices) that serves every task that fits anywhere, by looking at everything."""
    counts = tuple(count * fits_somewhere(market, shape) for shape, count in enumerate(market.counts.tolist()))
    holds = cache(lambda group, fill: packable(market, group, fill))

    @cache
    def best(left: tuple[int, ...], room: tuple[int, ...], limits: tuple[int, int, int]) -> tuple[int, int, int] | None:
        if not any(left):
            return (0, 0, 0)
        first = next(shape for shape, count in enumerate(left) if count)
        least = None
        for fill in product(*(range(count + 1) for count in left)):
            if not fill[first]:
                continue
            rest = tuple(a - b for a, b in zip(left, fill, strict=True))
            for group, slices in enumerate(room):
                price, hosts = int(market.price[group]), int(market.hosts[group])
                after = (limits[0] - hosts, limits[1] - price, limits[2] - 1)
                if not slices or min(after) < 0 or not holds(group, fill):
                    continue
                tail = best(rest, (*room[:group], slices - 1, *room[group + 1 :]), after)
                if tail is not None:
                    unmet = sum(n * int(market.unmet[shape, group]) for shape, n in enumerate(fill))
                    found = (tail[0] + price, tail[1] + unmet, tail[2] + 1)
                    least = found if least is None else min(least, found)
        return least

    tasks = sum(counts)
    room = tuple(min(int(slices), tasks) for slices in market.headroom)
    ceiling = tasks * max(market.price.tolist(), default=0)
    limits = (min(market.nodes_left, tasks * int(market.hosts.max(initial=1))), min(market.money_left, ceiling))
    return best(counts, room, (*limits, min(market.launches_left, tasks)))


def fits_somewhere(market: Market, shape: int) -> bool:
    one = tuple(int(position == shape) for position in range(len(market.counts)))
    return any(slices > 0 and packable(market, group, one) for group, slices in enumerate(market.headroom.tolist()))


# -- small markets ----------------------------------------------------------------------------------------------------


@st.composite
def small_markets(draw: st.DrawFn, limits: bool = False) -> Market:
    groups = [
        {
            "cpu": draw(st.integers(1, 8)) * 1000,
            "memory": draw(st.integers(1, 8)) * 10,
            "gpu": draw(st.sampled_from([0, 0, 1000, 2000, 500])),
            "price": draw(st.integers(0, 12)) * 100_000_000,
            "hosts": draw(st.sampled_from([1, 1, 1, 2, 3])),
            "headroom": draw(st.sampled_from([10, 10, 0, 1, 2])),
            "rank": draw(st.integers(0, 3)),
        }
        for _ in range(draw(st.integers(1, 3)))
    ]
    tasks, left = [], 6
    while left:
        count = draw(st.integers(1, left))
        left -= count
        needs = {
            "cpu": draw(st.integers(0, 8)) * 500,
            "memory": draw(st.integers(0, 8)) * 5,
            "gpu": draw(st.sampled_from([0, 0, 300, 400, 600, 1000])),
        }
        tasks.append((needs, count))
        if draw(st.booleans()):
            break
    shape = (len(tasks), len(groups))
    cells = shape[0] * shape[1]
    eligible = draw(st.lists(st.sampled_from([True, True, True, False]), min_size=cells, max_size=cells))
    unmet = draw(st.lists(st.sampled_from([0, 0, 1]), min_size=cells, max_size=cells))
    market = a_market(groups, tasks, eligible=np.reshape(eligible, shape), unmet=np.reshape(unmet, shape))
    if limits:
        market = replace(
            market,
            nodes_left=draw(st.integers(0, 6)),
            money_left=draw(st.integers(0, 30)) * 100_000_000,
            launches_left=draw(st.integers(0, 6)),
        )
    return market


@settings(max_examples=150, deadline=None)
@given(small_markets())
def test_a_small_market_is_solved_exactly_ties_included(market: Market) -> None:
    batches = cheapest_mix(market, 1)
    assert_sound(market, batches)
    optimum = brute_force(market)
    if optimum is not None:
        unmet = sum(int(b.fill @ market.unmet[:, b.group]) * b.slices for b in batches)
        assert (cost(market, batches), unmet, sum(b.slices for b in batches)) == optimum


@settings(max_examples=150, deadline=None)
@given(small_markets(limits=True))
def test_cluster_limits_hold_and_what_can_be_served_whole_is_served_cheapest(market: Market) -> None:
    batches = cheapest_mix(market, 1)
    assert_sound(market, batches)
    optimum = brute_force(market)
    if optimum is not None:
        assert cost(market, batches) == optimum[0]


@settings(max_examples=100, deadline=None)
@given(small_markets(limits=True))
def test_no_more_of_the_first_shape_could_be_served_under_the_limits(market: Market) -> None:
    alone = replace(market, counts=np.where(np.arange(len(market.counts)) == 0, market.counts, 0))
    most = int(market.counts[0])
    while most and brute_force(replace(alone, counts=np.minimum(alone.counts, most))) is None:
        most -= 1
    assert served(market, cheapest_mix(market, 1))[0] == most * fits_somewhere(market, 0)


@settings(max_examples=300, deadline=None)
@given(small_markets(), st.integers(1, 3), st.sampled_from([0, 1000, 2000]), st.booleans())
def test_the_slice_that_is_plain_to_see_is_the_one_that_an_exact_search_finds(
    market: Market, most: int, devices: int, equal_prices: bool
) -> None:
    market = replace(
        market,
        needs=tuple(Need.of({"cpu": 500 * (row + 1), "gpu": devices}, KINDS) for row in range(len(market.needs))),
        counts=np.minimum(market.counts, most),
        price=np.full_like(market.price, DOLLAR) if equal_prices else market.price,
    )
    batch = one_slice(market)
    if batch is None:
        return
    catalogue = Catalogue.of(market)
    mix, proven = exact_mix(market, catalogue)
    assert mix is not None
    assert proven
    ((group, fill),) = mix
    assert catalogue.groups[group] == batch.group
    assert batch.slices == 1
    assert catalogue.shapes.tolist() == np.flatnonzero(batch.fill).tolist()
    assert fill.tolist() == batch.fill[catalogue.shapes].tolist()


@pytest.mark.parametrize(
    ("group", "task", "count"),
    [
        pytest.param({"cpu": 4000, "price": 0}, {"cpu": 1000}, 1, id="slices that cost nothing"),
        pytest.param({"cpu": 4000, "price": DOLLAR, "hosts": 2}, {"cpu": 1000}, 1, id="several hosts"),
        pytest.param({"gpu": 1000, "price": DOLLAR}, {"gpu": 300}, 2, id="shares of a device"),
        pytest.param({"cpu": 4000, "price": DOLLAR}, {"cpu": 3000}, 2, id="more than one slice"),
        pytest.param({"cpu": 4000, "price": DOLLAR}, {"cpu": 10}, 100, id="more tasks than are solved exactly"),
        pytest.param({"cpu": 4000, "price": DOLLAR, "headroom": 0}, {"cpu": 1000}, 1, id="no headroom"),
    ],
)
def test_what_is_not_plain_to_see_is_looked_at_closely(group: dict[str, int], task: dict[str, int], count: int) -> None:
    assert one_slice(a_market([group], [(task, count)])) is None


def test_one_task_takes_one_slice_of_the_cheapest_group_at_once() -> None:
    groups = [{"cpu": 8000, "price": 2 * DOLLAR}, {"cpu": 4000, "price": DOLLAR}]
    batch = one_slice(a_market(groups, [({"cpu": 1000}, 3)]))
    assert batch is not None
    assert as_lists((batch,)) == [(1, 1, [3])]


def test_twenty_small_tasks_take_one_large_and_one_small_slice() -> None:
    groups = [{"cpu": 16_000, "price": DOLLAR}, {"cpu": 4_000, "price": 3 * DOLLAR // 10}]
    assert bought(cheapest_mix(a_market(groups, [({"cpu": 1000}, 20)]), 1)) == {0: 1, 1: 1}
    market = a_market(groups, [({"cpu": 1000}, 21)])
    assert cost(market, cheapest_mix(market, 1)) == 16 * DOLLAR // 10


def test_one_general_machine_is_bought_where_two_special_ones_cost_more() -> None:
    groups = [
        {"cpu": 8_000, "memory": 16, "price": 300},
        {"cpu": 8_000, "memory": 64, "price": 600},
        {"cpu": 4_000, "memory": 64, "price": 400},
    ]
    tasks = [({"cpu": 7000, "memory": 4}, 1), ({"cpu": 1000, "memory": 60}, 1)]
    assert bought(cheapest_mix(a_market(groups, tasks), 1)) == {1: 1}


def test_shares_of_a_device_are_never_split_over_two() -> None:
    market = a_market([{"cpu": 9000, "gpu": 2000, "price": 5}], [({"gpu": 600}, 3)])
    assert bought(cheapest_mix(market, 1)) == {0: 2}


@pytest.mark.parametrize("count", [6, 600])
def test_at_equal_price_preferences_decide_then_rank_then_name(count: int) -> None:
    groups = [{"cpu": 4000, "price": 7}] * 3
    tasks = [({"cpu": 1000}, count)]
    assert set(bought(cheapest_mix(a_market(groups, tasks, unmet=[[1, 1, 0]]), 1))) == {2}
    ranked = [{**group, "rank": rank} for group, rank in zip(groups, (5, 3, 3), strict=True)]
    assert set(bought(cheapest_mix(a_market(ranked, tasks), 1))) == {1}
    assert set(bought(cheapest_mix(a_market(groups, tasks), 1))) == {0}


# -- odd inputs --------------------------------------------------------------------------------------------------------


def test_no_demand_or_no_offers_buy_nothing() -> None:
    group = {"cpu": 4000, "price": 1}
    assert cheapest_mix(a_market([group], []), 1) == ()
    assert cheapest_mix(a_market([], [({"cpu": 1}, 3)]), 1) == ()
    assert cheapest_mix(a_market([group], [({"cpu": 1}, 0)]), 1) == ()
    assert cheapest_mix(a_market([{**group, "headroom": 0}], [({"cpu": 1}, 3)]), 1) == ()


@pytest.mark.parametrize("count", [3, 3000])
def test_tasks_that_need_nothing_share_one_slice(count: int) -> None:
    market = a_market([{"cpu": 4000, "price": 5}], [({"cpu": 1000}, 2), ({}, count)])
    assert bought(cheapest_mix(market, 1)) == {0: 1}
    assert served(market, cheapest_mix(market, 1)) == [2, count]


@pytest.mark.parametrize("count", [3, 300])
def test_a_task_that_fits_nowhere_is_left_and_changes_nothing_else(count: int) -> None:
    groups = [{"cpu": 16_000, "price": 100}, {"cpu": 4_000, "price": 30}]
    tasks = [({"cpu": 1000}, count), ({"cpu": 3000, "memory": 0}, count)]
    plain = cheapest_mix(a_market(groups, tasks), 1)
    hopeless = cheapest_mix(a_market(groups, [({"cpu": 99_000}, 5), ({"licence": 1000}, 5), *tasks]), 1)
    assert as_lists(plain) == [(group, slices, fill[2:]) for group, slices, fill in as_lists(hopeless)]


@pytest.mark.parametrize("count", [4, 400])
def test_what_costs_nothing_is_taken_first_and_as_few_of_it_as_possible(count: int) -> None:
    groups = [{"cpu": 4000, "price": 0}, {"cpu": 8000, "price": 0}, {"cpu": 16_000, "price": 1}]
    assert bought(cheapest_mix(a_market(groups, [({"cpu": 2000}, count)]), 1)) == {1: count // 4}


# -- large markets ----------------------------------------------------------------------------------------------------


def a_large_market(shapes: int, groups: int, count: int, seed: int = 7) -> Market:
    draw = np.random.default_rng(seed)
    offers = [
        {
            "cpu": int(draw.integers(4, 64)) * 1000,
            "memory": int(draw.integers(8, 256)),
            "gpu": int(draw.choice([0, 0, 1000, 4000])),
            "price": int(draw.integers(100, 900)),
            "headroom": 10**9,
        }
        for _ in range(groups)
    ]
    tasks = [
        (
            {
                "cpu": int(draw.integers(1, 12)) * 500,
                "memory": int(draw.integers(1, 30)),
                "gpu": int(draw.choice([0, 0, 200, 450, 1000])),
            },
            count,
        )
        for _ in range(shapes)
    ]
    return a_market(offers, tasks)


@pytest.mark.parametrize("seed", range(5))
def test_more_effort_never_costs_more_and_never_more_than_a_greedy_cover(seed: int) -> None:
    market = a_large_market(12, 6, 40, seed)
    catalogue = Catalogue.of(market)
    coverer = Coverer(catalogue)
    greedy = coverer.cover(catalogue.counts, catalogue.headroom, coverer.worth, coverer.price)
    costs = [cost(market, cheapest_mix(market, effort)) for effort in (0, 1, 3)]
    assert greedy.cost >= costs[0] >= costs[1] >= costs[2]


@pytest.mark.parametrize("seed", range(3))
def test_all_is_served_soundly_when_headroom_is_short(seed: int) -> None:
    market = a_large_market(8, 5, 30, seed)
    at_will = cheapest_mix(market, 1)
    free = bought(at_will)
    tight = replace(market, headroom=np.array([max(free.get(group, 9) * 2 // 3, 3) for group in range(5)], np.int64))
    batches = cheapest_mix(tight, 1)
    assert all(slices <= tight.headroom[group] for group, slices in bought(batches).items())
    assert served(tight, batches) != tight.counts.tolist() or cost(tight, batches) >= cost(market, at_will)


def test_the_same_market_gives_the_same_answer() -> None:
    first, second = (cheapest_mix(a_large_market(20, 8, 50), 1) for _ in range(2))
    assert as_lists(first) == as_lists(second)


@pytest.mark.parametrize("seed", range(20))
def test_limits_of_the_cluster_hold_in_large_markets_too(seed: int) -> None:
    draw = np.random.default_rng(seed)
    market = a_large_market(9, 5, 40, seed)
    market = replace(market, hosts=draw.choice([1, 2, 4], 5), headroom=draw.choice([3, 20, 10**6], 5))
    limits = {"nodes_left": int(draw.integers(1, 90)), "launches_left": int(draw.integers(1, 60)), "money_left": 9_000}
    batches = cheapest_mix(replace(market, **limits), 1)  # type: ignore[arg-type]
    assert sum(batch.slices for batch in batches) <= limits["launches_left"]
    assert sum(int(market.hosts[batch.group]) * batch.slices for batch in batches) <= limits["nodes_left"]
    assert cost(market, batches) <= limits["money_left"]
    assert all(slices <= market.headroom[group] for group, slices in bought(batches).items())
    assert all(got <= count for got, count in zip(served(market, batches), market.counts.tolist(), strict=True))


def test_a_task_whose_free_group_is_full_still_counts_as_costly() -> None:
    """Free slices with little headroom once made the programme think that such tasks could wait for nothing."""
    groups = [{"cpu": 4000, "price": 0, "headroom": 2}, {"cpu": 16_000, "price": 700}]
    market = a_market(groups, [({"cpu": 3000}, 40), ({"cpu": 1000}, 40)])
    batches = cheapest_mix(market, 1)
    assert served(market, batches) == [40, 40]
    assert cost(market, batches) <= 10 * 700


def test_a_million_tasks_need_no_more_batches_than_a_thousand() -> None:
    few, many = (cheapest_mix(a_large_market(20, 10, count), 1) for count in (50, 50_000))
    assert len(many) <= 2 * len(few)
    market = a_large_market(20, 10, 50_000)
    assert served(market, many) == market.counts.tolist()


def test_a_thousand_hosts_are_filled_like_one() -> None:
    market = a_market([{"cpu": 4000, "hosts": 1000, "price": 9}], [({"cpu": 3000}, 1500), ({"cpu": 1000}, 2000)])
    assert bought(cheapest_mix(market, 1)) == {0: 2}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000))
def test_fills_obey_the_rule_of_the_room(seed: int) -> None:
    """The same tasks in the same order go onto a node of ``Room``, and then nothing more of them does."""
    market = a_large_market(10, 4, 25, seed)
    catalogue = Catalogue.of(market)
    if not len(catalogue.groups):
        return
    groups = np.arange(len(catalogue.groups))
    score = np.random.default_rng(seed).random((len(groups), len(catalogue.shapes))) + 0.1
    fills = Knapsacks(catalogue).fill(groups, score, catalogue.counts, in_order=True)
    for row in groups.tolist():
        room = Room.fresh(KINDS, market.total[[catalogue.groups[row]]])
        for shape in np.argsort(-score[row]).tolist():
            need = market.needs[catalogue.shapes[shape]]
            fits = min(int(room.capacity(need)[0]), int(catalogue.counts[shape]))
            assert fills[row, shape] == fits
            room.take(need, np.array([0]), np.array([fits]))
