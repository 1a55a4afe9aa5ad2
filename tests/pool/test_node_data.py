"""Slots that are not processes of ours share the values of their node: each is fetched once, and results go back."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from windlass.pool.transport.data_store import DataStore, load, packed
from windlass.pool.transport.data_transfer import DataServer
from windlass.pool.transport.node_data import DataAccess, NodeData
from windlass.pool.transport.tls import make_credentials


class CountingStore(DataStore):
    """Knows which values were asked for."""

    def known(self, name):
        self.asked = [*getattr(self, "asked", []), name]
        return super().known(name)


@pytest.fixture
def pool(tmp_path):
    store = CountingStore(tmp_path / "pool")
    mine, theirs = make_credentials("pool", "node")
    server = DataServer(store, "127.0.0.1", mine)
    yield store, f"127.0.0.1:{server.port}", theirs
    server.close()
    store.close()


def slots(pool, tmp_path, count, limit=64 << 20):
    _, address, credentials = pool
    node = DataStore(tmp_path / "node", limit=limit, cache=True)
    DataAccess(address, credentials, node.place).write(tmp_path / "access")
    assert (tmp_path / "access").stat().st_mode & 0o077 == 0
    return node, [NodeData(DataAccess.read(tmp_path / "access")) for _ in range(count)]


def test_slots_that_need_a_value_at_once_fetch_it_once(pool, tmp_path):
    store = pool[0]
    name = store.put(packed(list(range(200_000))))
    node, three = slots(pool, tmp_path, 3)
    paths = []
    threads = [threading.Thread(target=lambda one=one: paths.append(one.fetch(name, "/nowhere"))) for one in three]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(paths)) == 1
    assert load(paths[0]) == list(range(200_000))
    assert store.asked == [name]
    node.close()


def test_a_value_that_is_gone_says_so(pool, tmp_path):
    node, (slot,) = slots(pool, tmp_path, 1)
    with pytest.raises(LookupError, match="not there any more"):
        slot.fetch("v-nothing", "/nowhere")
    node.close()


def test_results_arrive_as_files_of_the_pool_and_leave_none_on_the_node(pool, tmp_path):
    node, (slot,) = slots(pool, tmp_path, 1)
    path = slot.deliver("r-c1-0-1-7", packed(bytes(3 << 20)))
    assert load(path, remove=True) == bytes(3 << 20)
    assert Path(path).is_relative_to(pool[0].directory)
    assert [one.name for one in node.directory.iterdir() if one.name.startswith("r-")] == []
    node.close()


def test_old_values_make_room_for_new_ones_and_can_be_fetched_again(pool, tmp_path):
    store = pool[0]
    names = [store.put(packed(bytes([number]) * (2 << 20))) for number in range(5)]
    node, (slot,) = slots(pool, tmp_path, 1, limit=5 << 20)
    for number, name in enumerate([*names, names[0]]):
        assert load(slot.fetch(name, "/nowhere"))[:1] == bytes([number % 5])
        assert node.used()[0] <= 5 << 20
    assert len(store.asked) == 6
    node.close()
