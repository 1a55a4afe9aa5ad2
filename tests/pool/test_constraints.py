"""Rules between tasks of a pool: ``apart`` and ``spread``, for placing and for buying."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import windlass as wl
from windlass.core.model.constraints import Apart, Spread
from windlass.core.model.snapshot import Group
from windlass.pool.client.rules import rules_of
from windlass.pool.engines.protocol import NodeFacts
from windlass.pool.errors import BadPool, NothingFits
from windlass.pool.scheduler.class_limits import ClassLimits
from windlass.pool.scheduler.nodes import PoolNode
from windlass.pool.scheduler.tasks import Kind

from .quick import quick_pool
from .worlds import World, pool, same

ZONES = [wl.group(f"g-{zone}", slots=4, max=4, labels={"zone": zone}) for zone in ("a", "b", "c")]


def run_now(world: World, by: str = "node") -> Counter[str]:
    """How many tasks run in each domain."""
    found: Counter[str] = Counter()
    for node in world.hub.task_book.nodes.values():
        domain = node.id if by == "node" else node.group.node_labels()[by]
        found[domain] += len(node.running())
    return found


def test_tasks_that_are_apart_run_on_nodes_of_their_own_and_nodes_are_bought_for_them():
    async def journey(world: World) -> None:
        futures = world.burst(4, apart="node")
        await world.until(lambda: sum(run_now(world).values()) == 4)
        assert set(run_now(world).values()) == {1}
        assert len(world.machines.bought) == 4, "four slots of one node would do without the rule"
        await world.over(*futures)

    pool((1, 4), journey, slots=4, seconds=30.0)


def test_more_than_one_may_be_allowed_on_a_node_and_those_that_find_no_room_wait_and_say_why():
    async def journey(world: World) -> None:
        futures = world.burst(9, apart={"by": "node", "at_most": 2})
        await world.until(lambda: sum(run_now(world).values()) == 4)
        assert set(run_now(world).values()) == {2}
        (demand,) = world.hub.task_book.view().demands
        assert demand.apart == (Apart("same", "node", 2),)
        assert demand.count == 5
        assert await world.over(*futures) == list(range(9))
        assert len(world.machines.bought) == 2

    pool((1, 2), journey, slots=4, seconds=30.0)


def test_a_rule_about_another_function_binds_both_ways():
    async def journey(world: World) -> None:
        one = world.compute(same).options(name="one", apart={"by": "node", "from": "other", "at_most": 0})
        other = world.compute(same).options(name="other")
        first = world.start(*[one(number) for number in range(3)])
        await world.until(lambda: sum(run_now(world).values()) == 3)
        second = world.start(*[other(number) for number in range(3)])
        await world.until(lambda: sum(run_now(world).values()) == 6)
        for node in world.hub.task_book.nodes.values():
            assert len({call.kind.name for call in node.running()}) <= 1
        assert len(world.machines.bought) == 2
        await world.over(*first, *second)

    pool((1, 4), journey, slots=8, seconds=50.0)


def test_tasks_are_spread_over_the_zones_also_over_those_without_a_node():
    async def journey(world: World) -> None:
        futures = world.burst(7, spread="zone")
        await world.until(lambda: sum(run_now(world).values()) == 7)
        assert sorted(run_now(world, "zone").values()) == [2, 2, 3]
        await world.over(*futures)

    pool(None, journey, groups=ZONES, seconds=60.0)


def test_a_zone_without_capacity_holds_back_the_others_by_the_skew():
    async def journey(world: World) -> None:
        futures = world.burst(8, spread={"over": "zone", "max_skew": 2})
        await world.until(lambda: sum(run_now(world).values()) == 4)
        assert run_now(world, "zone") == {"a": 2, "b": 2}
        await world.over(*futures)

    groups = [*ZONES[:2], wl.group("full", slots=4, max=0, labels={"zone": "c"})]
    pool(None, journey, groups=groups, seconds=20.0)


def test_the_members_of_a_gang_obey_the_rules_too():
    async def journey(world: World) -> None:
        gang = wl.gang(world.compute(same).options(apart="zone"), size=3)(1)
        (future,) = world.start(gang)
        await world.until(lambda: sum(run_now(world).values()) == 3)
        assert run_now(world, "zone") == {"a": 1, "b": 1, "c": 1}
        assert await world.over(future) == [[1, 1, 1]]

    pool(None, journey, groups=ZONES, seconds=10.0)


def test_short_tasks_with_a_rule_all_run_and_in_order():
    step = wl.compute(apart="node")(lambda number: number)
    with quick_pool(2, slots=3) as opened:
        assert wl.gather(*[step(number) for number in range(50)]) >> opened == list(range(50))
        assert (step(1) & wl.compute(lambda: 2)()) >> opened == (1, 2)


def test_what_could_never_run_is_an_error_at_once():
    with quick_pool(2) as opened:
        with pytest.raises(NothingFits, match="zone"):
            wl.compute(spread="zone")(same)(1) >> opened
        with pytest.raises(NothingFits):
            wl.gang(wl.compute(apart="node")(same), size=3)(1) >> opened


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"apart": {"node": 1}}, "apart has no 'node'; there are by, from, at_most"),
        ({"apart": {"by": ""}}, "by must be a name"),
        ({"apart": {"by": "node", "at_most": -1}}, "at least 0"),
        ({"apart": 3}, "apart must be such as apart='node'"),
        ({"spread": {"over": "zone", "max_skew": 0}}, "at least 1"),
        ({"spread": {"of": "x"}}, "over must be a name"),
        ({"spread": ["zone", 7]}, "spread must be such as spread='zone'"),
    ],
)
def test_a_wrong_rule_says_what_is_wrong(options, words):
    with pytest.raises(BadPool, match=words):
        wl.compute(**options)


def test_placing_by_the_rules_never_breaks_one():
    """Random rules, nodes and running tasks: after each placement a checker that only counts finds no broken rule."""
    for seed in range(300):
        chance = random.Random(seed)
        groups = [Group(f"g{n}", (("slots", 8000),), 9, labels={"zone": "abc"[n]}) for n in range(3)]
        nodes = []
        for number in range(chance.randint(1, 6)):
            group = chance.choice(groups)
            nodes.append(PoolNode(number, f"s{number}", group, NodeFacts(f"s{number}/0", 8, "3", ""), 0.0))
        kinds = []
        for name in ("x", "y"):
            apart: Any = chance.choice([(), {"by": chance.choice(("node", "zone")), "at_most": chance.randint(1, 3)}])
            spread: Any = chance.choice([(), {"over": "zone", "max_skew": chance.randint(1, 2)}])
            if chance.random() < 0.3:
                apart = {"by": "node", "from": "y", "at_most": chance.randint(0, 1)}
            kinds.append(Kind(name, b"", (("slots", 1000),), rules=rules_of(name, apart, spread)))
        limits = ClassLimits.now(nodes, groups, kinds)
        if limits is None:
            continue
        placed: list[tuple[PoolNode, Kind]] = []
        for _ in range(30):
            node, kind = chance.choice(nodes), chance.choice(kinds)
            if limits.allow(node, kind):
                limits.add(node, kind)
                placed.append((node, kind))
                assert not broken(placed, nodes, kind), (seed, placed)


def broken(placed: list[tuple[PoolNode, Kind]], nodes: list[PoolNode], last: Kind) -> list[str]:
    def domain(node: PoolNode, key: str) -> str:
        return node.id if key == "node" else node.group.labels[key]

    def count(key: str, value: str, name: str) -> int:
        return sum(domain(node, key) == value and kind.name == name for node, kind in placed)

    found = [
        f"{kind.name} {apart}"
        for node, kind in placed
        for apart in kind.rules.apart
        if count(apart.by, domain(node, apart.by), apart.class_) > apart.at_most
    ]
    spreads: tuple[Spread, ...] = last.rules.spread
    for spread in spreads:
        counts = [count(spread.over, value, spread.of) for value in "abc"]
        if count("zone", domain(placed[-1][0], "zone"), spread.of) - min(counts) > spread.max_skew:
            found.append(f"{last.name} {spread}")
    return found
