"""The script of ``ray_cluster.py``, run by a driver on the head: ADDRESS IDLE_TIMEOUT SINGLES PART…

It is the same for both autoscalers. It prints one line ``MEASURED {...}`` of JSON for each part.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group

address, idle, singles, parts = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
ray.init(address=address, logging_level="ERROR", log_to_driver=False)
LIMIT = 60.0
"""Seconds after which a machine counts as never released."""


@ray.remote(num_cpus=1)
def work(seconds):
    time.sleep(seconds)
    return ray.get_runtime_context().get_node_id()


@ray.remote
class Bare:
    def ping(self):
        return 1


@ray.remote(num_cpus=0, resources={"desk": 1})
class Elsewhere:
    """Submits from another node than the head's."""

    def submit(self, count):
        at = time.time()
        return at, [work.remote(0) for _ in range(count)]


def alive():
    return {one["NodeID"] for one in ray.nodes() if one["Alive"] and one["Resources"].get("CPU")}


def hosts():
    """The processes of `ray start` of all workers on this machine."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            environ = (entry / "environ").read_bytes() if entry.name.isdigit() else b""
            words = (entry / "cmdline").read_bytes().split(b"\0") if f"BENCH_MARK={MARK}\0".encode() in environ else []
        except OSError:
            continue
        if b"RAY_NODE_TYPE_NAME=worker\0" in environ:
            if b"start" in words and b"--block" in words:
                found.setdefault("start", []).append(int(entry.name))
            if words and words[0].endswith(b"raylet/raylet"):
                found.setdefault("raylet", []).append(int(entry.name))
    return found


MARK = os.environ["BENCH_MARK"]


def emptied(since, limit=LIMIT):
    """Seconds from the end of the idle timeout until the last node is dead in the GCS, and its process is gone."""
    dead = gone = None
    while gone is None and time.time() - since < limit:
        if dead is None and not alive():
            dead = time.time() - since - idle
        if dead is not None and not hosts().get("start"):
            gone = time.time() - since - idle
        time.sleep(0.05)
    return {"idle timeout over -> DEAD in the GCS": dead, "idle timeout over -> process gone": gone}


def show(**found):
    print("MEASURED " + json.dumps(found), flush=True)


def part(name, run):
    """One part: what it measures, and how long its machines stay."""
    at = time.time()
    found = run() or {}
    ended = time.time()
    show(part=name, at=found.pop("at", at), **found, **emptied(ended))
    time.sleep(1)


def single():
    ray.get(work.remote(0), timeout=300)


def elsewhere(desk):
    at, tasks = ray.get(desk.submit.remote(1))
    ray.get(tasks, timeout=300)
    return {"at": at}


def tasks(count, seconds):
    at = time.time()
    used = set(ray.get([work.remote(seconds) for _ in range(count)], timeout=300))
    return {"took": time.time() - at, "worked": len(used)}


def spread():
    at = time.time()
    group = placement_group([{"CPU": 1}] * 4, strategy="STRICT_SPREAD")
    ray.get(group.ready(), timeout=300)
    took = time.time() - at
    used = len(set(placement_group_table(group)["bundles_to_node_id"].values()))
    remove_placement_group(group)
    return {"took": took, "worked": used}


def actor():
    one = Bare.remote()
    try:
        ray.get(one.ping.remote(), timeout=300)
        time.sleep(2 * idle)
        lives = float(ray.get(one.ping.remote(), timeout=30))
        ray.kill(one)
    except ray.exceptions.RayError:
        lives = 0.0
    return {"lives": lives}


def killed():
    """A raylet is killed with SIGKILL under a task."""
    running = work.options(max_retries=0).remote(60)
    while not hosts().get("raylet"):
        time.sleep(0.05)
    while not alive():
        time.sleep(0.05)
    time.sleep(2)
    at, before = time.time(), alive()
    os.kill(hosts()["raylet"][0], signal.SIGKILL)
    while alive() & before:
        time.sleep(0.02)
    took = time.time() - at
    ray.cancel(running)
    return {"dead_after": took}


if "single" in parts:
    for _ in range(singles):
        part("single", single)
if "elsewhere" in parts:
    desk = Elsewhere.remote()
    for _ in range(max(1, singles // 2)):
        part("elsewhere", lambda: elsewhere(desk))
for name, run in {
    "eight": lambda: tasks(8, 4),
    "hundred": lambda: tasks(100, 0.5),
    "spread": spread,
    "actor": actor,
    "killed": killed,
}.items():
    if name in parts:
        part(name, run)
