"""Windlass is the autoscaler of real Ray clusters of two versions: tests of what users of Ray do.

A worker takes seconds to join, so each test checks several things on the same machines.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.workloads.ray_cluster import Scaled, group
from tests.workloads.ray_stage import HOST, VERSIONS, marked

pytestmark = pytest.mark.ray

CODE = """
import os, time
from concurrent.futures import ThreadPoolExecutor
from ray.autoscaler.sdk import request_resources
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group

@ray.remote(num_cpus=1)
def work(seconds):
    time.sleep(seconds)
    return ray.get_runtime_context().get_node_id()

@ray.remote(num_cpus=1)
def until(path):
    while not os.path.exists(path):
        time.sleep(0.1)

@ray.remote(num_cpus=1, max_retries=0)
def once(path, seconds=0):
    with open(path, "a") as marks:
        marks.write("x")
    time.sleep(seconds)
    return path

@ray.remote(num_cpus=1)
def big():
    return bytes(16_000_000)

@ray.remote
class Bare:
    def where(self):
        return ray.get_runtime_context().get_node_id()

def nodes_of(groups):
    return {name: len(set(placement_group_table(one)["bundles_to_node_id"].values())) for name, one in groups.items()}
"""
NEW = ["RAY_NEW"]
OLD = ["RAY_OLD"]


@pytest.fixture(params=VERSIONS)
def which(request):
    return request.param


@pytest.fixture
def shared(which, shared_heads):
    """The head that all tests share and its driver, with no node and no work of other tests."""
    shared_heads.clear(which, nodes=True)
    head, driver = shared_heads.of(which)
    driver.run(CODE)
    yield head, driver
    shared_heads.clear(which, nodes=True)


@pytest.fixture
def cluster(shared):
    """A controller of its own on the head that all tests share."""
    head, driver = shared
    found = Scaled(head, driver, {"worker": group()})
    try:
        yield found.start()
    finally:
        found.stop()


def ready(cluster):
    return sorted(one["id"] for one in cluster.slices("ready"))


def test_placement_groups_limits_requests_and_kept_objects(cluster):
    # Each group gets machines for its strategy: four of them, which is the limit.
    nodes = cluster.driver.run("""
groups = {
    "STRICT_SPREAD": placement_group([{"CPU": 2}] * 2, strategy="STRICT_SPREAD"),
    "STRICT_PACK": placement_group([{"CPU": 1}] * 2, strategy="STRICT_PACK"),
    "PACK": placement_group([{"CPU": 1}] * 2, strategy="PACK"),
}
ray.get([one.ready() for one in groups.values()], timeout=300)
result = nodes_of(groups)
""")
    assert nodes == {"STRICT_SPREAD": 2, "STRICT_PACK": 1, "PACK": 1}
    cluster.assert_bought(4)
    # Impossible tasks and tasks that wait for a limit differ: in status, in the report, in the driver's terminal.
    cluster.driver.run("""
waiting = [work.remote(0) for _ in range(3)]
impossible = work.options(num_cpus=64).remote(0)
groups = {**groups, "SPREAD": placement_group([{"CPU": 1}] * 2, strategy="SPREAD")}
""")
    cluster.eventually(
        lambda: {one["id"].partition(":")[0]: _codes(one) for one in cluster.status()["demands"]},
        lambda seen: seen == {"CPU=1": {"AT_MAX"}, "CPU=64": {"NO_SHAPE_FITS"}, "pg": {"AT_MAX"}},
    )
    # A line is printed once per reason, with the number of tasks that wait at that moment.
    at_max = re.compile(r"\d tasks? waits? for CPU=1: worker is at its max of 4")
    cluster.eventually(cluster.driver.said, at_max.search)
    assert "would help: max of worker 4 ->" in cluster.driver.said()
    report = cluster.ask(lambda gcs: gcs.status()).autoscaling_state
    assert [dict(one.resources_bundle) for one in report.infeasible_resource_requests] == [{"CPU": 64.0}]
    assert not report.infeasible_gang_resource_requests
    # A SPREAD group uses many machines when many have room: the one that waits might be placed when the first has.
    nodes = cluster.driver.run("""
ray.cancel(impossible)
[ray.cancel(one) for one in waiting]
request_resources(num_cpus=4)
remove_placement_group(groups.pop("SPREAD"))
remove_placement_group(groups.pop("STRICT_SPREAD"))
while ray.available_resources().get("CPU", 0) < 4:
    time.sleep(0.1)
groups["SPREAD"] = placement_group([{"CPU": 1}] * 2, strategy="SPREAD")
ray.get(groups["SPREAD"].ready(), timeout=300)
result = nodes_of(groups)
[remove_placement_group(one) for one in groups.values()]
""")
    assert nodes == {"STRICT_PACK": 1, "PACK": 1, "SPREAD": 2}
    # What request_resources asks for stays for three idle timeouts, and nothing more stays.
    cluster.eventually(lambda: len(ready(cluster)), lambda found: found == 2)
    cluster.stays(9, lambda: len(ready(cluster)), 2)
    # An object to which a driver refers keeps its machine.
    cluster.driver.run("kept = big.remote(); ray.wait([kept], timeout=300, fetch_local=False)")
    cluster.driver.run("request_resources(num_cpus=0)")
    (held,) = cluster.eventually(lambda: ready(cluster), lambda found: len(found) == 1)
    cluster.stays(6, lambda: ready(cluster), [held])
    assert "object_store_memory" in cluster.windlass("why", held)
    cluster.driver.run("del kept")
    cluster.emptied()
    cluster.assert_bought(4)
    assert not cluster.lost(), cluster.log()


def _codes(demand):
    return {part["code"] for part in demand.get("parts", [demand])}


def test_controllers_a_head_and_a_raylet_that_fail_lose_nothing_and_buy_nothing_twice(cluster):
    second = cluster.run()
    cluster.logged("standing by")
    maps = Path(f"/proc/{cluster.controllers[0].pid}/maps").read_text(encoding="utf-8")
    assert "_raylet" not in maps, "the controller loads Ray"
    # The leader is killed as soon as it has requested a machine; the standby goes on with that machine.
    done = cluster.home / "done"
    cluster.driver.run(f"running = [until.remote({str(done)!r}) for _ in range(4)]")
    cluster.logged("requesting")
    cluster.kill()
    cluster.eventually(lambda: len(ready(cluster)), lambda found: found == 2)
    cluster.assert_bought(2)
    # A head that does not answer for a while loses nothing.
    cluster.eventually(lambda: [one["tasks"] for one in cluster.slices("ready")], lambda found: found == [1, 1])
    machines = ready(cluster)
    _stop_head(cluster, 4, machines)
    # A controller that is killed while machines run, and started again, buys nothing.
    assert cluster.controllers == [second]
    cluster.kill()
    cluster.run()
    cluster.eventually(lambda: cluster.log().count("leading as") == 3)
    # Windlass tells the GCS that a raylet was killed; the GCS alone takes 14 s.
    (raylet,) = cluster.eventually(lambda: _raylets(cluster, machines[:1]))
    os.kill(raylet, signal.SIGKILL)
    killed = time.monotonic()
    message = f"the raylet of {machines[0]} was killed"
    cluster.eventually(lambda: _death(cluster, machines[0]), lambda found: found == message, 13, every=0.05)
    print(f"raylet killed -> DEAD in the GCS: {time.monotonic() - killed:.2f} s")
    cluster.eventually(cluster.launched, lambda found: found == 3)
    done.touch()
    found = cluster.driver.run("result = ray.get(running, timeout=300)")
    assert len(found) == 4, cluster.log()[-5000:]
    cluster.assert_bought(3)
    # While the head does not answer, machines stay although their idle timeout of 3 s passes.
    _stop_head(cluster, 5, ready(cluster))
    # A controller that is killed while it drains a machine, and started again, still releases the machine in order.
    cluster.logged(f"{machines[1]} cordoned")
    cluster.kill()
    cluster.run()
    cluster.emptied()
    cluster.assert_bought(3)
    assert cluster.lost() == {machines[0]}


def _stop_head(cluster, seconds, machines):
    """Stop the head for a while, and assert that these machines stay."""
    cluster.head.signal(signal.SIGSTOP)
    try:
        cluster.stays(seconds, lambda: ready(cluster), machines)
    finally:
        cluster.head.signal(signal.SIGCONT)


def _raylets(cluster, slices):
    found = [pid for pid in marked(cluster.head.mark) if "raylet/raylet" in _read(pid, "cmdline")]
    return [pid for pid in found if any(f"={name}/0\0" in _read(pid, "environ") for name in slices)]


def _read(pid, name):
    try:
        return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _death(cluster, slice_id):
    (one,) = [one for one in cluster.ask(lambda gcs: gcs.nodes()) if one.instance_id == f"{slice_id}/0"]
    return one.death_info.reason_message


@pytest.mark.parametrize("which", NEW, indirect=True)
def test_a_burst_gets_exactly_the_machines_that_it_needs_and_they_go_when_they_are_idle_or_drained(cluster):
    checks = cluster.windlass("doctor")
    assert f"the head at {cluster.head.address} is Ray 2." in checks
    assert f"workers are started by {cluster.head.ray}, Ray 2." in checks
    marks = [cluster.home / f"burst-{number}" for number in range(4)]
    cluster.driver.run(f"burst = [once.remote(path, 20) for path in {[str(path) for path in marks]!r}]")
    cluster.eventually(lambda: cluster.slices("requesting", "booting", "initializing", "ready"))
    assert json.loads(cluster.windlass("plan", "--live", "--json"))["launch"] == {}
    # An operator drains one with work on it: the work runs to its end, and the order cannot be undone.
    cluster.eventually(lambda: all(path.exists() for path in marks))
    busy = cluster.slices("ready")[0]
    assert busy["ray_status"] == "RAY_RUNNING"
    assert "takes no new work" in cluster.windlass("drain", busy["id"])
    cluster.eventually(lambda: cluster.record(busy["id"]).final)
    assert "cannot be withdrawn" in cluster.windlass("drain", "--undo", busy["id"]), cluster.log()
    assert len(cluster.driver.run("result = ray.get(burst, timeout=300)")) == 4
    assert {path.read_text(encoding="utf-8") for path in marks} == {"x"}
    cluster.emptied()
    cluster.assert_bought(2)
    assert not cluster.lost(), cluster.log()
    assert "[IDLE]" in cluster.log()


@pytest.mark.parametrize("which", NEW, indirect=True)
def test_selectors_and_actors_that_need_no_cpu_on_fresh_machines_with_a_short_idle_timeout(cluster):
    zones = [f"a{number}" for number in range(6)]
    cluster.reconfigure({zone: group(1, zone=zone, idle="1s", max=1) for zone in zones})
    # Five actors on five fresh machines, each in its own zone; and a task whose fallback selector matches.
    assert cluster.driver.run("""
actors = [Bare.options(label_selector={"zone": f"a{number}"}).remote() for number in range(5)]
second = work.options(
    label_selector={"zone": "nowhere"}, fallback_strategy=[{"label_selector": {"zone": "a5"}}]
).remote(0)
where = ray.get([one.where.remote() for one in actors], timeout=300)
last = ray.get(second, timeout=300)
time.sleep(3)  # three idle timeouts
result = ray.get([one.where.remote() for one in actors], timeout=60) == where and len({*where, last}) == 6
""")
    cluster.assert_bought(6)
    assert {one["group"] for one in cluster.slices("ready")} >= set(zones[:5])
    cluster.driver.run("[ray.kill(one) for one in actors]")
    cluster.emptied()


@pytest.mark.parametrize("which", OLD, indirect=True)
def test_actors_that_need_no_cpu_live_on_fresh_machines_of_the_old_version(cluster):
    cluster.reconfigure({"worker": group(1, idle="1s")})
    for turn in range(1, 6):
        assert cluster.driver.run("""
actor = Bare.remote()
where = ray.get(actor.where.remote(), timeout=300)
time.sleep(3)  # three idle timeouts
result = ray.get(actor.where.remote(), timeout=60) == where
ray.kill(actor)
""")
        cluster.emptied()
        cluster.assert_bought(turn)


@pytest.mark.parametrize("which", OLD, indirect=True)
def test_tasks_with_a_selector_that_the_old_version_does_not_report_buy_nothing_for_ever(cluster):
    assert f"the head at {cluster.head.address} is Ray 2.48" in cluster.windlass("doctor")
    cluster.driver.run("stuck = work.options(label_selector={'zone': 'elsewhere'}).remote(0)")
    (why,) = cluster.eventually(
        lambda: [
            part["why"]
            for one in cluster.status()["demands"]
            for part in one.get("parts", [one])
            if part["code"] == "NOT_TAKEN"
        ]
    )
    assert "and Ray does not place it: a label selector, which Ray 2.48 does not tell?" in why
    cluster.emptied()
    cluster.stays(4, cluster.launched, 1)
    cluster.driver.run("ray.cancel(stuck)")


@pytest.mark.parametrize("which", NEW, indirect=True)
def test_machines_of_a_node_provider_of_ray_join_under_their_own_id_and_go_when_they_are_idle(shared):
    head, driver = shared
    cluster = Scaled(head, driver, {"worker": group(1, idle="1s")})
    cluster.providers = {
        "mine": {
            "type": "ray-node-provider",
            "module": "tests.providers.process_nodes.ProcessNodes",
            "python": str(head.bin / "python"),
            "config": {"directory": str(cluster.home / "cloud")},
        }
    }
    cluster.environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    cluster.workload["start"] = ["--object-store-memory=80000000", f"--node-ip-address={HOST}"]
    try:
        cluster.start()
        driver.run("result = ray.get([work.remote(1) for _ in range(2)], timeout=300)")
        made = {path.stem for path in (cluster.home / "cloud").glob("*.json")}
        shown = {one.instance_id for one in cluster.ask(lambda gcs: gcs.nodes())}
        assert 1 <= len(made) <= 2
        assert made <= shown
        cluster.assert_bought(len(made))
        cluster.emptied()
        assert not cluster.lost(), cluster.log()
        cluster.eventually(lambda: cluster.slices("terminating"), lambda found: not found)
    finally:
        cluster.stop()


def test_work_that_comes_at_the_moment_of_the_idle_timeout_is_neither_lost_nor_run_twice(cluster):
    # Four kinds of machines, so that four tasks can come at the moment of their own machine's timeout.
    lanes = [f"lane{number}" for number in range(4)]
    cluster.reconfigure({lane: group(1, idle="1s", max=2, resources={lane: 1}) for lane in lanes})
    done = cluster.driver.run(f"""
done = []
def follow(lane):
    # Around the idle timeout of 1 s, a little earlier or later each time: before, under and after the drain.
    for turn in range(5):
        path = f"{cluster.home}/{{lane}}-{{turn}}"
        done.append(ray.get(once.options(resources={{lane: 1}}).remote(path), timeout=300))
        time.sleep(0.7 + 0.07 * (4 * turn + int(lane[-1])) % 1.0)
with ThreadPoolExecutor(4) as threads:
    list(threads.map(follow, {lanes!r}))
result = sorted(done)
""")
    assert done == sorted(f"{cluster.home}/{lane}-{turn}" for lane in lanes for turn in range(5))
    assert {Path(path).read_text(encoding="utf-8") for path in done} == {"x"}
    assert "terminated: confirmed gone by the provider's list [IDLE]" in cluster.log(), "some were drained"
