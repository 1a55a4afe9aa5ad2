"""One scenario of ``ray_cluster.py``, run by a driver on the head: ADDRESS SCENARIO IDLE_TIMEOUT."""

from __future__ import annotations

import json
import sys
import time

import ray
from ray.util.placement_group import placement_group, remove_placement_group

address, scenario, idle = sys.argv[1], sys.argv[2], float(sys.argv[3])
ray.init(address=address, logging_level="ERROR")


@ray.remote(num_cpus=1)
def work(seconds):
    time.sleep(seconds)
    return ray.get_runtime_context().get_node_id()


@ray.remote
class Bare:
    def ping(self):
        return 1


def alive():
    return {one["NodeID"] for one in ray.nodes() if one["Alive"] and one["Resources"].get("CPU")}


def emptied(since, limit=40):
    """Seconds from the end of the idle timeout until the first and the last node is dead in the GCS."""
    first, last, before = None, None, alive()
    while time.time() - since < limit:
        now = alive()
        if first is None and len(now) < len(before):
            first = time.time() - since - idle
        if not now:
            last = time.time() - since - idle
            break
        time.sleep(0.05)
    return first, last


found = {"submitted": time.time()}
if scenario in ("eight", "hundred"):
    tasks = [work.remote(4) for _ in range(8)] if scenario == "eight" else [work.remote(0.5) for _ in range(100)]
    used = set(ray.get(tasks, timeout=300))
    found["last result after"] = time.time() - found["submitted"]
    found["nodes that worked"] = len(used)
elif scenario == "spread":
    group = placement_group([{"CPU": 1}] * 4, strategy="STRICT_SPREAD")
    ray.get(group.ready(), timeout=300)
    found["ready after"] = time.time() - found["submitted"]
    remove_placement_group(group)
else:
    actor = Bare.remote()
    try:
        ray.get(actor.ping.remote(), timeout=200)
        time.sleep(2 * idle)
        found["lives"] = float(ray.get(actor.ping.remote(), timeout=30))
        ray.kill(actor)
    except ray.exceptions.RayError:
        found["lives"] = 0.0
first, last = emptied(time.time())
if first is not None:
    found["idle timeout over -> first dead"] = first
if last is not None:
    found["idle timeout over -> last dead"] = last
print("MEASURED " + json.dumps(found), flush=True)
