"""The lower bound on the number of slices, against a full search."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.core.buying.lower_bound import fewest_slices
from windlass.core.capacity.room import Kinds, Need

KINDS = Kinds.of(["cpu", "gpu"])
Load = tuple[int, int]
"""cpu, gpu."""


def fits(tasks: list[Load], nodes: list[Load]) -> bool:
    """Whether every task finds a node, by trying every way; shares of devices are simply added up."""
    if not tasks:
        return True
    (cpu, gpu), *rest = tasks
    return any(
        cpu <= free[0]
        and gpu <= free[1]
        and fits(rest, [*nodes[:at], (free[0] - cpu, free[1] - gpu), *nodes[at + 1 :]])
        for at, free in enumerate(nodes)
    )


def bound(tasks: list[Load], nodes: list[Load], group: Load) -> int:
    needs = [(Need.of({"cpu": cpu, "gpu": gpu}, KINDS), 1) for cpu, gpu in tasks]
    return fewest_slices(np.array(nodes, np.int64).reshape(-1, 2), np.array([group]), needs)


loads = st.tuples(st.integers(0, 4), st.sampled_from([0, 500, 1000, 2000]))


@settings(max_examples=200, deadline=None)
@given(st.lists(loads, max_size=4), st.lists(loads, max_size=3))
def test_no_way_of_placing_tasks_does_with_fewer_slices_than_the_bound(tasks: list[Load], nodes: list[Load]) -> None:
    group = (4, 2000)
    enough = next(count for count in range(len(tasks) + 1) if fits(tasks, nodes + [group] * count))
    assert bound(tasks, nodes, group) <= enough


def test_room_that_is_too_small_for_a_task_is_of_no_use_to_it() -> None:
    assert bound([(0, 2000)], [(4, 1000), (4, 1000)], (4, 2000)) == 1


def test_room_is_of_use_in_whole_tasks_only() -> None:
    assert bound([(2, 0), (2, 0)], [(3, 0)], (4, 2000)) == 1


def test_what_is_there_already_need_not_be_bought() -> None:
    assert bound([(2, 1000), (2, 1000)], [(4, 2000)], (4, 2000)) == 0


def test_what_is_missing_is_divided_by_the_largest_slice() -> None:
    needs = [(Need.of({"cpu": 3}, KINDS), 4)]
    assert fewest_slices(np.zeros((0, 2), np.int64), np.array([[3, 0], [6, 0]]), needs) == 2
