"""The room on a node at work follows the planner's rule of what fits."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.capacity.node_room import NodeRoom
from windlass.core.capacity.room import Kinds, Need, amounts_matrix
from windlass.core.capacity.room import Room as PlannersRoom
from windlass.core.model.snapshot import amounts

KINDS = Kinds.of(("cpu", "gpu", "slots"))


@given(
    total=st.fixed_dictionaries(
        {"slots": st.integers(1, 8).map(lambda n: n * 1000), "gpu": st.integers(0, 4).map(lambda n: n * 1000)}
    ),
    tasks=st.lists(st.sampled_from([0, 250, 333, 500, 1000, 2000]), max_size=12),
)
def test_a_task_fits_exactly_where_the_planner_says(total, tasks):
    mine = NodeRoom(amounts(total))
    planners = PlannersRoom.fresh(KINDS, amounts_matrix([total], KINDS))
    for gpu in tasks:
        needs = {"slots": 1000, **({"gpu": gpu} if gpu else {})}
        need = Need.of(needs, KINDS)
        fits = bool(planners.capacity(need)[0] > 0)
        assert (mine.take(amounts(needs)) is not None) == fits
        if fits:
            planners.take(need, np.array([0]), np.array([1]))


def test_what_a_task_gives_back_is_free_again():
    room = NodeRoom((("gpu", 2000), ("slots", 4000)))
    whole = room.take((("gpu", 1000), ("slots", 1000)))
    half = room.take((("gpu", 500), ("slots", 1000)))
    assert whole is not None
    assert half is not None
    assert room.take((("gpu", 1000), ("slots", 1000))) is None
    assert room.used() == (("gpu", 1500), ("slots", 2000))
    room.give(whole)
    room.give(half)
    assert room.used() == ()


def test_a_task_gets_its_devices():
    room = NodeRoom((("gpu", 4000), ("slots", 4000)))
    room.take((("gpu", 1000), ("slots", 1000)))
    two = room.take((("gpu", 2000), ("slots", 1000)))
    assert two is not None
    assert two.environment() == {"WINDLASS_GPU": "1,2", "CUDA_VISIBLE_DEVICES": "1,2"}


def test_shares_of_a_device_go_to_the_fullest_that_has_room():
    room = NodeRoom((("gpu", 2000), ("slots", 4000)))
    first, second = room.take((("gpu", 500),)), room.take((("gpu", 500),))
    assert first is not None
    assert second is not None
    assert first.devices == second.devices == (("gpu", 0, 500),)
