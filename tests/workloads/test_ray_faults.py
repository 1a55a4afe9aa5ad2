"""Real Ray clusters in trouble: a head that is restarted, work that comes at the moment of a drain, a token."""

from __future__ import annotations

import re
import time

import pytest

from tests.workloads.ray_cluster import Scaled
from tests.workloads.ray_stage import STARTING, VERSIONS, RayHead

pytestmark = pytest.mark.ray

WORK = """
@ray.remote(num_cpus=1, max_retries=0)
def work(path, seconds):
    with open(path, "a") as marks:
        marks.write("x")
    time.sleep(seconds)
    return path
"""


def scaled(which, idle="1s", **head):
    group = {
        "resources": {"cpu": 2, "memory": "300M"},
        "labels": {"zone": "z1"},
        "max": 2,
        "scale_down": {"idle_timeout": idle},
    }
    return Scaled(which, groups={"worker": group}, head=head)


@pytest.mark.parametrize("which", VERSIONS)
def test_work_that_comes_at_the_moment_of_the_idle_timeout_is_neither_lost_nor_run_twice(which):
    cluster = scaled(which)
    try:
        cluster.start().driver.run(WORK)
        for turn in range(20):
            # Around the idle timeout of 1 s, a little earlier or later each time: before, under and after the drain.
            path = cluster.home / f"turn-{turn}"
            wait = 0.7 + 0.05 * turn
            assert cluster.driver.run(
                f"time.sleep({wait}); result = ray.get(work.remote({str(path)!r}, 0.05), timeout=150)"
            ) == str(path)
            assert path.read_text(encoding="utf-8") == "x"
        assert "terminated: confirmed gone by the provider's list [IDLE]" in cluster.log(), "some were drained"
    finally:
        cluster.stop()


@pytest.mark.parametrize("which", VERSIONS)
def test_a_head_that_is_restarted_is_another_cluster_and_is_served_from_then_on(which):
    cluster = scaled(which, idle="1h")
    again = None
    try:
        cluster.start().driver.run(WORK)
        cluster.driver.run(f"ray.get(work.remote({str(cluster.home / 'first')!r}, 0), timeout=150)")
        (first,) = cluster.slices("ready")
        cluster.driver.close()
        cluster.head.crash()
        again = RayHead(which, port=cluster.head.port).start()
        driver = again.driver()
        driver.run("import time" + WORK)
        assert driver.run(f"result = ray.get(work.remote({str(cluster.home / 'second')!r}, 0), timeout=200)")
        assert f"{first['id']} lost: its cluster is gone: the head has been restarted" in cluster.log()
        driver.close()
    finally:
        cluster.stop()
        if again is not None:
            again.stop()


def test_a_head_with_a_token_lets_in_who_has_it_and_the_token_is_written_nowhere():
    token = "windlass-test-token-0123456789"
    cluster = scaled("RAY_NEW", environment={"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token})
    try:
        file = cluster.home / "token"
        file.write_text(token + "\n", encoding="utf-8")
        cluster.head.start()
        cluster.write()
        assert "wants a token" in cluster.windlass("doctor", "--json")
        workload = {
            "type": "ray",
            "address": cluster.head.address,
            "ray": cluster.head.ray,
            "start": ["--object-store-memory=80000000"],
            "token_file": str(file),
        }
        cluster.write(workload=workload)
        cluster.run()
        cluster.driver = cluster.head.driver()
        cluster.driver.run("import time" + WORK)
        assert cluster.driver.run(f"result = ray.get(work.remote({str(cluster.home / 'one')!r}, 0), timeout=150)")
        assert token not in cluster.windlass("status", "--json")
        found = [
            path
            for path in cluster.home.rglob("*")
            if path.is_file() and path != file and token.encode() in path.read_bytes()
        ]
        assert found == []
    finally:
        cluster.stop()


@pytest.mark.parametrize("which", ["RAY_OLD"])
def test_tasks_with_a_selector_that_the_old_version_does_not_tell_buy_nothing_for_ever(which):
    cluster = scaled(which, idle="2s")
    try:
        cluster.start().driver.run(WORK)
        cluster.driver.run(
            f"stuck = work.options(label_selector={{'zone': 'elsewhere'}}).remote({str(cluster.home / 'x')!r}, 0)"
        )

        def not_taken():
            parts = [part for one in cluster.status()["demands"] for part in one["parts"]]
            return [part["why"] for part in parts if part["code"] == "NOT_TAKEN"]

        (why,) = cluster.eventually(not_taken, bool, STARTING)
        assert re.search(r"has had room for it for \d+ s and Ray does not place it: a label selector", why)
        cluster.emptied()
        before = cluster.launched()
        time.sleep(5)
        assert cluster.launched() == before
    finally:
        cluster.stop()
