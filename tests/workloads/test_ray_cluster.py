"""Windlass as the autoscaler of real Ray clusters of two versions: what users of Ray do, from one end to the other."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.workloads.ray_cluster import Scaled
from tests.workloads.ray_stage import STARTING, VERSIONS, marked

pytestmark = pytest.mark.ray

TASKS = """
@ray.remote(num_cpus=1)
def work(seconds):
    time.sleep(seconds)
    return ray.get_runtime_context().get_node_id()

@ray.remote
class Bare:
    def where(self):
        return ray.get_runtime_context().get_node_id()
"""


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request):
    found = Scaled(request.param)
    try:
        found.start().driver.run(TASKS)
        yield found
    finally:
        found.stop()


def test_a_burst_gets_exactly_the_machines_that_it_needs_and_they_go_when_they_are_idle(cluster):
    before = cluster.launched()
    assert cluster.driver.run("result = len(set(ray.get([work.remote(6) for _ in range(4)], timeout=120)))") == 2
    assert cluster.launched() == before + 2
    cluster.emptied()
    assert "[LOST]" not in cluster.log()
    assert "[IDLE]" in cluster.log()


def test_the_controller_does_not_load_ray(cluster):
    assert cluster.controller is not None
    maps = Path(f"/proc/{cluster.controller.pid}/maps").read_text(encoding="utf-8")
    assert "_raylet" not in maps


def test_a_placement_group_of_every_strategy_gets_its_place(cluster):
    for strategy in ("STRICT_SPREAD", "STRICT_PACK", "PACK", "SPREAD"):
        nodes = cluster.driver.run(f"""
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
group = placement_group([{{"CPU": 1}}] * 2, strategy="{strategy}")
ray.get(group.ready(), timeout=120)
result = len(set(placement_group_table(group)["bundles_to_node_id"].values()))
remove_placement_group(group)
""")
        assert nodes == {"STRICT_SPREAD": 2, "STRICT_PACK": 1}.get(strategy, nodes)
    cluster.emptied()


def test_requested_resources_are_held_and_let_go(cluster):
    cluster.driver.run("from ray.autoscaler.sdk import request_resources; request_resources(num_cpus=4)")
    cluster.eventually(lambda: cluster.slices("ready"), lambda found: len(found) == 2, STARTING)
    held_until = time.monotonic() + 9  # three idle timeouts
    while time.monotonic() < held_until:
        assert len(cluster.slices("ready")) == 2
        time.sleep(1)
    cluster.driver.run("request_resources(num_cpus=0)")
    cluster.emptied()


def test_what_is_impossible_and_what_is_at_the_limit_are_told_apart(cluster):
    cluster.driver.run("""
waiting = [work.remote(3) for _ in range(20)]
impossible = work.options(num_cpus=64).remote(0)
""")
    found = cluster.eventually(
        lambda: {one["id"]: one for one in cluster.status()["demands"]},
        lambda seen: "CPU=64" in seen and any(part["code"] == "AT_MAX" for part in _parts(seen.get("CPU=1", {}))),
    )
    assert [part["code"] for part in _parts(found["CPU=64"])] == ["NO_SHAPE_FITS"]
    cluster.eventually(cluster.driver.said, lambda text: "wait for CPU=1: worker is at its max of 4" in text)
    assert "would help: max of worker 4 ->" in cluster.driver.said()
    report = cluster.head.status("-v")
    assert "worker" in report
    cluster.driver.run("ray.cancel(impossible); [ray.cancel(one) for one in waiting]")
    cluster.emptied()


def _parts(demand):
    return demand.get("parts", [demand] if demand else [])


def test_actors_without_cpus_live_on_fresh_nodes_however_short_the_idle_timeout(cluster):
    for _ in range(3):
        assert cluster.driver.run("""
actor = Bare.remote()
where = ray.get(actor.where.remote(), timeout=120)
time.sleep(7)  # two idle timeouts and more
result = ray.get(actor.where.remote(), timeout=30) == where
ray.kill(actor)
""")
        cluster.emptied()


def test_an_object_that_a_driver_keeps_holds_its_node(cluster):
    cluster.driver.run("""
@ray.remote(num_cpus=1)
def big():
    return bytes(16_000_000)
kept = big.remote()
ray.wait([kept], timeout=120, fetch_local=False)
""")
    (held,) = cluster.eventually(lambda: cluster.slices("ready"), lambda found: len(found) == 1)
    time.sleep(8)
    assert [one["id"] for one in cluster.slices("ready")] == [held["id"]]
    assert "object_store_memory" in cluster.windlass("why", held["id"])
    cluster.driver.run("del kept")
    cluster.emptied()


def test_a_raylet_that_is_killed_is_dead_in_the_gcs_at_once_and_replaced(cluster):
    cluster.driver.run("running = [work.remote(15) for _ in range(2)]")

    def raylets():
        busy = [f"{one['id']}/0" for one in cluster.slices("ready") if one["tasks"]]
        found = [pid for pid in marked(cluster.head.mark) if "raylet/raylet" in _cmdline(pid)]
        return [pid for pid in found if any(name in _environ(pid) for name in busy)]

    raylet, *_ = cluster.eventually(raylets, bool, STARTING)
    os.kill(raylet, signal.SIGKILL)
    cluster.eventually(lambda: cluster.slices("lost", "terminating", "terminated"), bool, 10)
    assert len(cluster.driver.run("result = ray.get(running, timeout=180)")) == 2
    cluster.emptied()


def _cmdline(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _environ(pid):
    try:
        return Path(f"/proc/{pid}/environ").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def test_a_head_that_falls_silent_for_a_while_loses_nothing(cluster):
    cluster.driver.run("running = [work.remote(10) for _ in range(2)]")
    (first,) = cluster.eventually(lambda: cluster.slices("ready"), lambda found: len(found) == 1, STARTING)
    cluster.head.signal(signal.SIGSTOP)
    try:
        silent_until = time.monotonic() + 6
        while time.monotonic() < silent_until:
            assert [one["id"] for one in cluster.slices("ready")] == [first["id"]]
            time.sleep(1)
    finally:
        cluster.head.signal(signal.SIGCONT)
    assert len(cluster.driver.run("result = ray.get(running, timeout=120)")) == 2
    cluster.emptied()


def test_a_controller_that_is_killed_and_started_again_goes_on(cluster):
    cluster.driver.run("running = [work.remote(8) for _ in range(2)]")
    cluster.eventually(lambda: cluster.slices("requesting", "booting", "initializing", "ready"))
    before = cluster.launched()
    assert cluster.controller is not None
    cluster.controller.kill()
    cluster.controller.wait(10)
    cluster.run()
    assert len(cluster.driver.run("result = ray.get(running, timeout=180)")) == 2
    assert cluster.launched() == before, f"something was bought twice:\n{cluster.log()[-4000:]}"
    cluster.emptied()


def test_looking_at_the_cluster_works_beside_the_controller(cluster):
    checks = cluster.windlass("doctor")
    assert f"the head at {cluster.head.address} is Ray 2." in checks
    assert f"workers are started by {cluster.head.ray}, Ray 2." in checks
    plan = cluster.windlass("plan", "--live", "--json")
    assert json.loads(plan)["launch"] == {}
