"""The race between the hard taint and the scheduler: no node is ended under a pod, however they interleave."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from typing import Any

import pytest

from windlass.kubernetes_api.api import Api
from windlass.kubernetes_api.connection import HttpTransport
from windlass.testing.kubernetes.control_plane import ControlPlane
from windlass.workloads.kubernetes.workload import KubernetesWorkload

from .conftest import clean, eventually

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]

TRIES = int(os.environ.get("WINDLASS_RACE_TRIES", "60"))
"""Five hundred run on the fast server in seconds (test_simulated_day); sixty show that the race happens here, too."""
AT_ONCE = 10


def test_no_certificate_is_given_for_a_node_on_which_a_pod_was_bound(control_plane: ControlPlane):
    """A pod is made for a node, and within some milliseconds before or after its fence is raised. What the fence says
    is judged afterwards by what the server has: an empty certificate, and a pod bound to that node, is a broken
    promise."""
    chance = random.Random(7)

    async def attempt(api: Api, workload: KubernetesWorkload, number: int) -> tuple[bool, bool]:
        node = f"race-{number}"
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": node, "namespace": "default"},
            "spec": {"nodeSelector": {"windlass.dev/claim": node}, "containers": [{"name": "c", "image": "x"}]},
        }
        lead = chance.uniform(
            -0.06, 0.012
        )  # the taint is a read and a write: it begins before the pod as often as after

        async def bind() -> None:
            await asyncio.sleep(max(0.0, -lead))
            await api.create("/api/v1/namespaces/default/pods", body)

        async def fence() -> None:
            await asyncio.sleep(max(0.0, lead))
            await workload.fences.raise_fence(node, 1)

        await asyncio.gather(bind(), fence())
        certificate = await eventually(lambda: workload.fences.certificate(node), limit=60)
        pod = await api.get_plain(f"/api/v1/namespaces/default/pods/{node}")
        return certificate.running == 0, bool(pod["spec"].get("nodeName"))

    async def main() -> list[tuple[bool, bool]]:
        api = Api(HttpTransport(str(control_plane.kubeconfig)))
        workload = KubernetesWorkload(api, ["kwok"], settle=1.0)
        found: list[tuple[bool, bool]] = []
        try:
            workload.mirror.start()
            await eventually(lambda: workload.mirror.is_synced, limit=90)
            for start in range(0, TRIES, AT_ONCE):
                numbers = range(start, start + AT_ONCE)
                await asyncio.gather(*(make_node(api, f"race-{number}") for number in numbers))
                names = {f"race-{number}" for number in numbers}
                await eventually(lambda names=names: names <= schedulable(workload), limit=60)  # type: ignore[misc]
                found += await asyncio.gather(*(attempt(api, workload, number) for number in numbers))
        finally:
            await workload.close()
        return found

    began = time.monotonic()
    try:
        found = asyncio.run(main())
    finally:
        clean(control_plane)
    broken = sum(empty and bound for empty, bound in found)
    landed = sum(bound for _, bound in found)
    print(json.dumps({"tries": len(found), "pods bound": landed, "seconds": round(time.monotonic() - began)}))
    assert len(found) == TRIES
    assert 0 < landed < TRIES, "the race did not happen: every pod was bound, or none was"
    assert broken == 0


def schedulable(workload: KubernetesWorkload) -> set[str]:
    return {name for name, node in workload.mirror.nodes.store.items() if node.ready and not node.taints}


async def make_node(api: Api, name: str) -> None:
    resources = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"windlass.dev/provisioner": "race", "windlass.dev/claim": name}},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }
    await api.create("/api/v1/nodes", body)
