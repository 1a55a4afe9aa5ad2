"""Where waiting work starts: the planner's rule, however the nodes are asked."""

from __future__ import annotations

import random

import pytest

from windlass.core.model.conditions import Condition
from windlass.core.model.lifecycle import State
from windlass.core.model.snapshot import Bundle, Demand, Gang, Group, Node, Slice, amounts
from windlass.sim.workload.placement import Places

GROUPS = (
    Group("large", amounts({"cpu": 64000, "gpu": 8000, "memory": 512}), labels={"zone": "a"}, max=9, price=3),
    Group("small", amounts({"cpu": 16000, "memory": 64}), labels={"zone": "b"}, max=9, price=1),
)
A_SHARE = Demand("z-share", (Bundle(amounts({"gpu": 500, "memory": 10**6}), 1),))
"""It fits nowhere; but since it takes a share of a device, all nodes are asked at once."""


def slices(dice: random.Random) -> list[Slice]:
    found = []
    for number in range(dice.randint(1, 9)):
        group = dice.choice(GROUPS)
        used = {kind: dice.randrange(0, amount + 1, amount // 4) for kind, amount in group.resources}
        labels = {"rack": dice.choice("xy")}
        node = Node(f"{number}/0", amounts(used), tasks=1, labels=labels)
        found.append(Slice(f"{group.name}-{number}", group.name, State.READY, nodes=(node,)))
    return found


def demand(name: str, dice: random.Random) -> Demand:
    kinds = [{"cpu": 4000, "memory": 4}, {"cpu": 8000}, {"gpu": 1000, "cpu": 1000}, {"gpu": 2000, "memory": 64}]
    where = dice.choice([(), (), (Condition("rack", "in", ("x",)),)])
    prefer = dice.choice([(), (), (Condition("zone", "in", ("b",)),)])
    gang = dice.choice([None, None, Gang.ANY])
    many = dice.choice([1, 1, 2]) if gang else 1
    bundles = tuple(Bundle(amounts(kind), dice.randint(1, 6)) for kind in dice.sample(kinds, many))
    return Demand(name, bundles, gang=gang, where=where, prefer=prefer, priority=dice.choice([0, 0, 1]))


@pytest.mark.parametrize("seed", range(60))
def test_tasks_start_on_the_same_nodes_whether_they_are_asked_one_by_one_or_all_at_once(seed):
    dice, places = random.Random(seed), Places(GROUPS)
    for _ in range(5):
        there = slices(dice)
        waiting = [demand(f"d{number}", dice) for number in range(dice.randint(1, 4))]
        one_by_one = list(places.placed(there, waiting, 0.0))
        assert one_by_one == list(places.placed(there, [*waiting, A_SHARE], 0.0))


def test_equal_demands_start_in_the_order_of_their_names_on_the_fullest_node_first():
    task = (Bundle(amounts({"cpu": 4000}), 2),)
    full, free = Node("f/0", amounts({"cpu": 8000}), tasks=1), Node("g/0")
    there = [Slice(name, "small", State.READY, nodes=(node,)) for name, node in (("g", free), ("f", full))]
    found = Places(GROUPS).placed(there, [Demand("b", task), Demand("a", task)], 0.0)
    assert [(one.demand, one.node, one.count) for one in found] == [("a", "f/0", 2), ("b", "g/0", 2)]
