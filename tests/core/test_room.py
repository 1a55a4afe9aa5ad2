"""The fit rule against a node that counts its devices one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.capacity.room import Kinds, Need, Room

KINDS = Kinds.of(("cpu", "gpu", "memory"))
CPU, GPU = 8000, 4


class Plain:
    """One node, as slow and as simple as can be."""

    def __init__(self) -> None:
        self.cpu = CPU
        self.devices = [1000] * GPU

    def takes(self, cpu: int, gpu: int) -> bool:
        if cpu > self.cpu:
            return False
        if gpu >= 1000:
            whole = [index for index, free in enumerate(self.devices) if free == 1000][: gpu // 1000]
            if len(whole) < gpu // 1000:
                return False
            for index in whole:
                self.devices[index] = 0
        elif gpu:
            room = [(free, index) for index, free in enumerate(self.devices) if free >= gpu]
            opened = [pair for pair in room if pair[0] < 1000] or room
            if not opened:
                return False
            self.devices[min(opened)[1]] -= gpu
        self.cpu -= cpu
        return True


needs = st.tuples(
    st.sampled_from((0, 500, 1000, 3000)), st.sampled_from((0, 0, 100, 250, 300, 400, 500, 600, 1000, 2000))
)


def need_of(task: tuple[int, int]) -> Need:
    return Need.of({"cpu": task[0], "gpu": task[1]}, KINDS)


def fresh() -> Room:
    return Room.fresh(KINDS, np.array([[CPU, GPU * 1000, 0]]))


ROW = np.zeros(1, np.int64)


@given(st.lists(needs, max_size=14))
def test_tasks_fit_exactly_where_they_fit_one_by_one(tasks: list[tuple[int, int]]) -> None:
    room, plain = fresh(), Plain()
    for task in tasks:
        fits = int(room.capacity(need_of(task))[0]) > 0
        assert fits == plain.takes(*task)
        if fits:
            room.take(need_of(task), ROW, np.ones(1, np.int64))
        opened = sorted(free for free in plain.devices if 0 < free < 1000)
        assert sorted(free for free in room.parts[0, 0].tolist() if free) == opened
        assert int(room.whole[0, 0]) == 1000 * plain.devices.count(1000)
        assert int(room.free[0, 0]) == plain.cpu


@given(st.lists(needs, max_size=5), needs)
def test_the_capacity_is_how_often_a_task_can_be_put_there(
    before: list[tuple[int, int]], task: tuple[int, int]
) -> None:
    room, plain = fresh(), Plain()
    for one in before:
        if plain.takes(*one):
            room.take(need_of(one), ROW, np.ones(1, np.int64))
    if any(task):
        capacity = int(room.capacity(need_of(task))[0])
        room.take(need_of(task), ROW, np.array([capacity]))
        for _ in range(capacity):
            assert plain.takes(*task)
        assert not plain.takes(*task)
        assert int(room.capacity(need_of(task))[0]) == 0


@given(st.lists(needs, max_size=6), st.lists(needs, max_size=6))
def test_undoing_gives_back_what_was_there(kept: list[tuple[int, int]], tried: list[tuple[int, int]]) -> None:
    room = fresh()
    for task in kept:
        if room.capacity(need_of(task))[0]:
            room.take(need_of(task), ROW, np.ones(1, np.int64))
    free, whole, parts = room.free.copy(), room.whole.copy(), sorted(room.parts[0, 0].tolist())
    mark = room.mark()
    room.append(fresh())
    for task in tried:
        if room.capacity(need_of(task))[0]:
            room.take(need_of(task), ROW, np.ones(1, np.int64))
    room.undo(mark)
    assert len(room) == 1
    assert (room.free == free).all()
    assert (room.whole == whole).all()
    assert [part for part in sorted(room.parts[0, 0].tolist()) if part] == [part for part in parts if part]


def test_what_is_used_lies_on_as_few_devices_as_possible() -> None:
    room = Room(KINDS, np.array([[CPU, 4000, 0]]), np.array([[CPU, 1500, 0]]))
    assert int(room.capacity(need_of((0, 1000)))[0]) == 1
    assert int(room.capacity(need_of((0, 500)))[0]) == 3
    assert int(room.capacity(need_of((0, 600)))[0]) == 1


def test_a_resource_that_no_group_has_fits_nowhere() -> None:
    assert int(fresh().capacity(Need.of({"quantum": 1}, KINDS))[0]) == 0
