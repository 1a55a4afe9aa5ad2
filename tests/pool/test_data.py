"""Large values: sent once, read without a copy, bounded in memory, and gone after every kind of end."""

from __future__ import annotations

import gc
import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

import windlass as wl
from windlass.pool.client.handles import Handle
from windlass.pool.errors import CannotSend, PoolClosed
from windlass.pool.transport import data_store
from windlass.pool.transport.data_store import PREFIX, DataStore, Packed, load, packed, sweep
from windlass.pool.transport.owned_directory import owned_directory

from .processes import Program, eventually
from .quick import quick_pool

MEGABYTE = 1 << 20


@wl.compute
def total(array, more=0):
    return float(array.sum()) + more


@wl.compute
def changed(array):
    array[0] = 7
    return float(array[0])


@wl.compute
def doubled(array):
    return array * 2


def files(pool: wl.ComputePool) -> list[str]:
    assert pool._host.store is not None
    return sorted(one.name for one in pool._host.store.directory.iterdir() if one.name[:2] in ("v-", "r-", "f-"))


def test_a_value_that_was_put_is_read_by_every_task_at_any_depth_and_dropped_with_its_handle():
    array = np.arange(MEGABYTE, dtype=float)
    with quick_pool(2) as pool:
        handle = pool.put(array)
        assert wl.gather(*[total(handle, number) for number in range(4)]) >> pool == [
            array.sum() + number for number in range(4)
        ]
        assert wl.compute(lambda things: float(things["deep"][0][1]))({"deep": [handle]}) >> pool == 1.0
        assert np.array_equal(handle.get(), array)
        (name,) = files(pool)
        del handle
        gc.collect()
        eventually(lambda: name not in files(pool), 60)


def test_a_value_that_tasks_read_outlives_its_handle_and_ends_with_the_last_of_them(tmp_path):
    store = DataStore(tmp_path / "disk", memory=tmp_path)
    handle = Handle(store, np.zeros(MEGABYTE))
    name = handle._shared.name
    store.hold(name)  # a task
    del handle
    gc.collect()
    assert store.known(name) is not None
    store.drop(name)
    assert store.known(name) is None
    assert sum(store.used()) == 0
    store.close()


def test_a_handle_may_be_released_by_a_thread_that_is_putting_another_value(tmp_path):
    store = DataStore(tmp_path / "disk", memory=tmp_path)
    handles = [Handle(store, np.zeros(MEGABYTE))]

    class Releases(Packed):
        def digest(self) -> str:
            with store._lock:  # as garbage collection does it, at any line of the store
                handles.clear()
            return super().digest()

    done = threading.Thread(target=store.put, args=(Releases(b"x" * MEGABYTE),), daemon=True)
    done.start()
    done.join(60)
    assert not done.is_alive()
    store.close()


def test_a_value_that_no_task_uses_any_more_is_removed_also_if_nothing_else_is_put(tmp_path, monkeypatch):
    store = DataStore(tmp_path / "disk", memory=tmp_path)
    store.drop(store.put(packed(np.zeros(MEGABYTE))))
    store.expire()
    assert sum(store.used()) > 0
    monkeypatch.setattr(data_store, "LINGERING", 0.0)
    store.expire()
    assert sum(store.used()) == 0
    store.close()


@pytest.mark.parametrize("is_open", [True, False])
def test_the_handle_of_another_pool_is_refused_where_it_is_sent(is_open):
    with quick_pool() as other:
        handle = other.put(np.zeros(MEGABYTE))
        if not is_open:
            other.close()
        with quick_pool() as pool, pytest.raises(CannotSend, match=r"another pool.*pool\.put"):
            total(handle, 1) >> pool


def test_the_value_of_a_handle_whose_pool_is_closed_is_gone_and_the_error_says_so():
    with quick_pool() as pool:
        handle = pool.put(np.zeros(MEGABYTE))
    with pytest.raises(PoolClosed, match="the pool of this handle is closed"):
        handle.get()


def test_gangs_and_tasks_on_every_node_take_large_values_too():
    array = np.arange(100_000.0)
    with quick_pool(2) as pool:
        handle = pool.put(array)
        for given in (handle, array):
            assert total(given) @ pool == [array.sum()] * 2
            assert wl.gang(total, size=2)(given) >> pool == [array.sum()] * 2
        assert wl.gather(wl.gang(total, size=2)(array), total(handle)) >> pool == [[array.sum()] * 2, array.sum()]


def test_a_task_that_changes_its_array_changes_no_other():
    array = np.zeros(MEGABYTE)
    with quick_pool(1) as pool:
        handle = pool.put(array)
        assert changed(handle) >> pool == 7
        assert total(handle) >> pool == 0
        assert changed(array) >> pool == 7
        assert array[0] == 0


def test_the_same_array_is_recognised_in_a_gather_and_in_single_submits_and_a_changed_one_is_not():
    array = np.ones(MEGABYTE)
    with quick_pool(1) as pool:
        wl.gather(*[total(array, number) for number in range(5)]) >> pool
        assert len(files(pool)) == 1
        total(array) >> pool
        total(array.copy()) >> pool
        assert len(files(pool)) == 1
        array[3] = 5
        assert total(array) >> pool == MEGABYTE + 4
        assert len(files(pool)) == 2


def test_joblib_sends_an_array_once_for_all_calls_of_one_parallel():
    joblib = pytest.importorskip("joblib")
    array, packed = np.ones(MEGABYTE), []

    class Counted(np.ndarray):
        def __reduce_ex__(self, protocol):
            packed.append(protocol)
            return super().__reduce_ex__(protocol)

    mine = array.view(Counted)
    with quick_pool(1) as pool, pool.as_joblib():
        calls = (joblib.delayed(total.function)(mine, more=number) for number in range(5))
        assert joblib.Parallel(batch_size=1)(calls) == [MEGABYTE + number for number in range(5)]
        once = len(packed)
        mine[0] = 2
        assert (
            joblib.Parallel()(joblib.delayed(total.function)(more=1, array=mine) for _ in range(2))
            == [MEGABYTE + 2] * 2
        )
        assert len(packed) == 2 * once, "each call of Parallel packs it once"


def test_large_results_can_be_changed_and_their_files_are_gone():
    with quick_pool(1) as pool:
        result = doubled(np.ones(MEGABYTE)) >> pool
        assert [name for name in files(pool) if name.startswith("r-")] == []
        result[0] = 9
        assert (result[0], result[1]) == (9, 2)


def test_what_does_not_fit_into_memory_is_on_disk(tmp_path):
    store = DataStore(tmp_path / "disk", limit=3 * MEGABYTE, memory=tmp_path)
    names = [store.put(packed(np.full(MEGABYTE // 8, number))) for number in range(6)]
    in_memory, on_disk = store.used()
    assert in_memory <= 3 * MEGABYTE
    assert on_disk >= 3 * MEGABYTE
    assert [load(store.path(name))[0] for name in names] == list(range(6))
    store.close()
    assert list(tmp_path.glob("windlass-data-*")) == []


def test_a_value_without_holders_makes_room_for_others(tmp_path):
    store = DataStore(tmp_path / "disk", limit=2 * MEGABYTE, memory=tmp_path)
    for number in range(20):
        store.drop(store.put(packed(np.full(MEGABYTE // 8, number))))
    assert sum(store.used()) < 4 * MEGABYTE
    store.close()


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_owns_is_not(tmp_path):
    mine = owned_directory(tmp_path, PREFIX)
    pid = os.fork()
    if not pid:
        owned_directory(tmp_path, PREFIX)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    (dead,) = set(tmp_path.iterdir()) - {mine}
    assert sweep(tmp_path) == [dead]
    assert list(tmp_path.iterdir()) == [mine]


def test_small_buffers_stay_in_one_pickle():
    small = packed(np.arange(10))
    assert isinstance(small, Packed)
    assert np.array_equal(np.frombuffer(small.buffers[0], dtype=int), np.arange(10))
    import pickle

    assert np.array_equal(pickle.loads(small.whole()), np.arange(10))


PROGRAM = """
import os, time, numpy as np, windlass as wl
os.environ["TMPDIR"] = os.getcwd()  # pools of other tests remove what was left in the usual directory
@wl.compute
def hold(a):
    time.sleep(600)
if __name__ == "__main__":
    with wl.ComputePool(wl.Local(), 1, console=False) as pool:
        print(pool._host.store.directory, pool._host.directory, flush=True)
        hold(np.ones(1_000_000)) >> pool
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_stays_in_shared_memory_or_on_disk_when_the_program_is_ended(tmp_path, number):
    program = Program(tmp_path, PROGRAM)
    try:
        eventually(lambda: "windlass-pool" in program.said(), 60, program.said)
        directory, temporary = map(Path, program.said().split()[:2])
        eventually(lambda: list(directory.glob("v-*")), 60, program.said)
        os.kill(program.process.pid, number)
        eventually(lambda: len(program.processes()) == 0, 60)
        eventually(lambda: not directory.exists(), 60)
        eventually(lambda: not temporary.exists(), 60)
        assert program.process.wait(60) != 0
    finally:
        program.close()


@pytest.mark.slow
def test_a_real_pool_carries_large_values_both_ways():
    array = np.arange(4 * MEGABYTE, dtype=float)
    with wl.ComputePool(wl.Local(), 2, console=False) as pool:
        handle = pool.put(array)
        assert wl.gather(*[total(handle, number) for number in range(6)]) >> pool == [
            array.sum() + number for number in range(6)
        ]
        results = wl.gather(*[doubled(array + number) for number in range(3)]) >> pool
        assert all(np.array_equal(result, (array + number) * 2) for number, result in enumerate(results))
        assert [name for name in files(pool) if name.startswith("r-")] == []
