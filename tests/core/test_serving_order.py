"""Equal demands are one shape, whatever objects they are made of and in whatever order they come."""

from __future__ import annotations

import random
from dataclasses import replace

from windlass.builders import demand, group, snapshot
from windlass.core.demand import alike, levels
from windlass.core.model.snapshot import Snapshot
from windlass.core.planner import plan
from windlass.core.tables.groups import GroupTable


def many_demands() -> Snapshot:
    kinds = ({"cpu": 1}, {"cpu": 2}, {"cpu": 3})
    made = [demand(f"plain-{i:02}", kinds[i % 3], count=1 + i % 2) for i in range(20)]
    made += [demand(f"first-{i}", kinds[i % 3], priority=1) for i in range(4)]
    made += [demand(f"bound-{i}", kinds[0], where=["zone == x"]) for i in range(2)]
    groups = [group("a", cpu=8, max=50, price=1), group("b", cpu=16, max=50, price=2)]
    return snapshot(groups, demands=made)


def test_the_members_of_a_shape_are_sorted_and_counted() -> None:
    given = many_demands()
    table = GroupTable(given.groups, ())
    first, second = levels(alike(given.demands), table.kinds, table.largest)
    assert [one.members for one in first.shapes] == [
        (("first-2", 1),),
        (("first-1", 1),),
        (("first-0", 1), ("first-3", 1)),
    ]
    whole = {dict(one.needs)["cpu"]: one for one in second.shapes if not one.selector[0]}
    assert {cpu: one.count for cpu, one in whole.items()} == {1000: 10, 2000: 11, 3000: 9}
    assert whole[1000].members == tuple((f"plain-{i:02}", 1 + i % 2) for i in range(0, 20, 3))


def test_neither_shared_objects_nor_the_order_change_a_plan() -> None:
    given = many_demands()
    own = [replace(one, bundles=tuple(replace(bundle) for bundle in one.bundles)) for one in given.demands]
    random.Random(1).shuffle(own)
    one, other = plan(given), plan(replace(given, demands=tuple(own)))
    assert one.to_dict() == other.to_dict()
    named = {name for launch in one.launches for name in launch.demands}
    assert named == {item.id for item in given.demands if not item.where}
