"""A whole day of a cluster on virtual time, with the production controller, quiet and with faults from a seed."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from typing import Any

import pytest

from windlass.kubernetes_api.api import Api
from windlass.sim.run.virtual_loop import run_virtually
from windlass.testing.kubernetes.fake_server import FakeApiServer
from windlass.testing.kubernetes.simulated_cluster import FAULTS, ClusterReport, SimulatedCluster, a_day
from windlass.workloads.kubernetes.workload import KubernetesWorkload

RULES = {"maxNodes": 40, "minGPUUtilizationPercent": 80, "scaleDownDelay": "10m"}
DAY = 86400.0


def play(seed: int, pods: int, faults: int = 0, day: float = DAY, **kwok: Any) -> ClusterReport:
    chance = random.Random(seed)
    struck = [(chance.random() * day, chance.choice(FAULTS)) for _ in range(faults)]
    cluster = SimulatedCluster(seed, RULES, struck, boot_delay=90.0, device_delay=30.0, **kwok)
    return cluster.run(a_day(seed, pods, day), day * 1.15)


def play_short() -> ClusterReport:
    return play(6, 40, faults=30, day=DAY / 4, failure=0.1)


def test_a_quiet_day_serves_every_pod_and_gives_every_machine_back():
    report = play(1, 120)
    assert report.broken == []
    assert report.finished == 120
    assert report.left == []
    # Two minutes until a node has its GPUs, and some seconds around it.
    assert max(report.waited) < 180
    assert report.busy_seconds < report.node_seconds < 3 * report.busy_seconds


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_a_day_of_faults_violates_no_invariant_and_loses_no_pod(seed: int):
    """Conflicts, a busy server, stalled and broken watches, 410, outages, SIGKILL before a write with and without the
    journal, a clock that jumps, and a provider that is out of stock one time in ten."""
    report = play(seed, 150, faults=50, failure=0.1)
    assert report.broken == []
    assert report.finished == 150
    assert report.left == []
    assert report.deaths > 3
    assert len(report.faults) > 6


def test_a_day_of_faults_is_the_same_write_by_write_when_it_is_played_again():
    """In another process, whose sets have another order: every change of every object comes again at its time."""
    code = f"from {__name__} import play_short; print(play_short().digest)"
    again = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=True,
    )
    report = play_short()
    assert report.changes > 200
    assert report.deaths >= 2
    assert report.digest == again.stdout.strip()


# -- the taint race ----------------------------------------------------------------------------------------------------

TRIES = 500


class Delayed(FakeApiServer):
    """An API server whose calls take some milliseconds."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(lambda: asyncio.get_running_loop().time())
        self._chance = chance

    async def request(self, *arguments: Any, **more: Any) -> Any:
        await asyncio.sleep(self._chance.uniform(0.001, 0.020))
        answer = await super().request(*arguments, **more)
        await asyncio.sleep(self._chance.uniform(0.001, 0.020))
        return answer


def test_of_five_hundred_races_between_taint_and_binding_none_certifies_a_node_with_a_pod():
    """A scheduler decides from a view that is up to a second old, and its binding is stored later: also after the hard
    taint, and after the list would have been read without the time to settle. Judged by resourceVersions."""
    chance = random.Random(11)
    late, broken, kept = [], [], []

    async def attempt(server: Delayed, workload: KubernetesWorkload, number: int) -> None:
        name = f"race-{number}"
        node = f"/api/v1/nodes/{name}"
        server.put(
            "/api/v1/nodes",
            {
                "metadata": {
                    "name": name,
                    "labels": {"windlass.dev/provisioner": "race", "windlass.dev/claim": name},
                },
                "spec": {},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            },
        )
        while name not in workload.mirror.nodes.store:
            await asyncio.sleep(0.01)

        async def schedule() -> str:
            await asyncio.sleep(chance.uniform(0.0, 0.1))
            seen = server.get(node)
            assert seen is not None
            if seen["spec"].get("taints"):
                return ""
            await asyncio.sleep(chance.uniform(0.0, 1.0))
            now = server.get(node)
            assert now is not None
            if now["spec"].get("taints"):
                late.append(name)
            spec = {"nodeName": name, "containers": [{"name": "c"}]}
            body = {"metadata": {"name": name, "namespace": "default"}, "spec": spec, "status": {"phase": "Running"}}
            return str(server.put("/api/v1/namespaces/default/pods", body)["metadata"]["resourceVersion"])

        async def fence() -> None:
            await asyncio.sleep(chance.uniform(0.0, 0.1))
            await workload.fences.raise_fence(name, 1)

        bound, _ = await asyncio.gather(schedule(), fence())
        while (certificate := workload.fences.certificate(name)) is None:
            await asyncio.sleep(0.1)
        if bound:
            kept.append(name)
            if certificate.running == 0 or int(certificate.version) < int(bound):
                broken.append(name)
        await workload.fences.take_down(name, 1)

    async def main() -> None:
        server = Delayed(chance)
        workload = KubernetesWorkload(Api(server), ["kwok"], now=server.now)
        try:
            await workload.observe()
            for start in range(0, TRIES, 50):
                await asyncio.gather(*(attempt(server, workload, number) for number in range(start, start + 50)))
        finally:
            await workload.close()

    run_virtually(main())
    assert broken == []
    assert len(late) > 50, "the race did not happen"
    assert len(kept) < TRIES, "every pod was bound: the taint never came first"
