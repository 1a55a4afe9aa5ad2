"""Measures the Kubernetes workload and prints JSON; ``kubernetes`` runs it in a process of its own.

1,000 nodes with 30 pods each, and 300 pods that wait. The objects are as a real API server sends them, managed fields
included, and come page by page through the transport: only the network is left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from windlass.control.reconcile.planner_input import snapshot_of
from windlass.control.reconcile.workload_groups import with_workload_groups
from windlass.control.service import Service
from windlass.control.settings import Leadership, Policy, Settings
from windlass.control.state.fleet import Fleet, SliceRecord, seen_nodes
from windlass.core.model.lifecycle import State
from windlass.core.model.reasons import Code, Reason
from windlass.core.planner import plan
from windlass.journal import open_journal
from windlass.kubernetes_api.api import Api, Response
from windlass.providers.kwok.provider import KwokProvider
from windlass.providers.node_claims import NodeClaimProvider
from windlass.providers.protocol import LaunchOrder
from windlass.testing.kubernetes.fake_server import FakeApiServer
from windlass.workloads.kubernetes.publish.publisher import DecisionPublisher
from windlass.workloads.kubernetes.workload import KubernetesWorkload

STARTED = time.process_time()
"""CPU seconds until everything is imported."""
NODES, PODS_PER_NODE, WAITING = 1000, 30, 300
PAGE = 500
STAMP = "2026-01-01T00:00:00Z"


def managed(manager: str, fields: int) -> dict[str, Any]:
    inside: dict[str, Any] = {f"f:field-{number}": {".": {}, "f:value": {}} for number in range(fields)}
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": STAMP,
        "fieldsV1": {"f:spec": inside},
    }


def meta(name: str, number: int, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "uid": f"00000000-0000-4000-8000-{number:012d}",
        "resourceVersion": str(1000 + number),
        "creationTimestamp": STAMP,
        "managedFields": [managed("kube-controller-manager", 20), managed("kubelet", 25)],
        **more,
    }


def node(number: int) -> dict[str, Any]:
    name, size = f"a100-x-{number}", {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
    labels = {"windlass.dev/provisioner": "a100", "windlass.dev/claim": name, "kubernetes.io/hostname": name}
    return {
        "metadata": meta(name, number, labels=labels),
        "spec": {"providerID": f"x://{name}"},
        "status": {
            "capacity": size,
            "allocatable": size,
            "conditions": [
                {"type": kind, "status": "True" if kind == "Ready" else "False", "lastTransitionTime": STAMP}
                for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
            ],
            "images": [{"names": [f"image-{number}@sha256:{'0' * 64}"], "sizeBytes": 1} for number in range(20)],
        },
    }


def pod(number: int, on: str) -> dict[str, Any]:
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"web-{number % 200}",
        "uid": "u",
        "controller": True,
    }
    template = number % 200
    requests = {"cpu": f"{500 + 10 * (template % 20)}m", "memory": f"{1 + template % 8}Gi"}
    if not on:
        requests = {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": str(1 + template % 8)}
    container = {
        "name": "main",
        "image": "registry/app:1",
        "env": [{"name": f"VARIABLE_{number}", "value": "x" * 40} for number in range(20)],
        "resources": {"requests": requests, "limits": requests},
        "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets"}],
    }
    scheduled = {"type": "PodScheduled", "status": "True" if on else "False", "lastTransitionTime": STAMP}
    if not on:
        scheduled |= {"reason": "Unschedulable", "message": "0/1000 nodes are available: 1000 Insufficient cpu."}
    return {
        "metadata": meta(
            f"web-{template}-{number}",
            10_000 + number,
            namespace="default",
            labels={"app": f"web-{template}"},
            ownerReferences=[owner],
        ),
        "spec": {"nodeName": on, "containers": [container], "tolerations": [], "priority": 0},
        "status": {"phase": "Running" if on else "Pending", "conditions": [scheduled], "podIP": "10.0.0.1"},
    }


PROVISIONER = {
    "metadata": meta("a100", 1, generation=1),
    "spec": {
        "provider": "x",
        "maxNodes": 2000,
        "minGPUUtilizationPercent": 80,
        "template": {"resources": {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}},
    },
}


class Recorded:
    """A transport that gives pages made before, and sends given changes on the watches."""

    def __init__(self) -> None:
        names = [f"a100-x-{number}" for number in range(NODES)]
        pods = [pod(number, names[number % NODES]) for number in range(NODES * PODS_PER_NODE)]
        pods += [pod(100_000 + number, "") for number in range(WAITING)]
        self._pages = {
            "/api/v1/pods": self._paged(pods),
            "/api/v1/nodes": self._paged([node(number) for number in range(NODES)]),
            "/apis/windlass.dev/v1alpha1/nodeprovisioners": self._paged([PROVISIONER]),
        }
        self.size = sum(len(page) for pages in self._pages.values() for page in pages)
        self.changes: asyncio.Queue[bytes] = asyncio.Queue()

    def _paged(self, items: list[dict[str, Any]]) -> list[bytes]:
        pages = []
        for start in range(0, max(len(items), 1), PAGE):
            more = {"continue": str(start // PAGE + 1)} if start + PAGE < len(items) else {}
            page = {"metadata": {"resourceVersion": "2000000", **more}, "items": items[start : start + PAGE]}
            pages.append(json.dumps(page).encode())
        return pages

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None,
        content_type: str,
        timeout: float,
    ) -> Response:
        pages = self._pages.get(path) or [b'{"metadata": {"resourceVersion": "2000000"}, "items": []}']
        return Response(200, pages[int(params.get("continue") or 0)])

    async def stream(self, path: str, params: Mapping[str, str], stall: float) -> AsyncIterator[bytes]:
        yield b""
        while True:
            if path != "/api/v1/pods":
                await asyncio.sleep(3600)
            yield await self.changes.get()

    async def close(self) -> None:
        """Nothing to close."""


class MadeOnDemand(Recorded):
    """The same pages, each made when it is asked for: what is in memory afterwards is the workload's own."""

    def __init__(self) -> None:
        self.changes = asyncio.Queue()

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None,
        content_type: str,
        timeout: float,
    ) -> Response:
        start = PAGE * int(params.get("continue") or 0)
        total, make = {
            "/api/v1/pods": (NODES * PODS_PER_NODE, lambda one: pod(one, f"a100-x-{one % NODES}")),
            "/api/v1/nodes": (NODES, node),
            "/apis/windlass.dev/v1alpha1/nodeprovisioners": (1, lambda _: PROVISIONER),
        }.get(path, (0, node))
        items = [make(number) for number in range(start, min(total, start + PAGE))]
        more = {"continue": str(start // PAGE + 1)} if start + PAGE < total else {}
        return Response(200, json.dumps({"metadata": {"resourceVersion": "2000000", **more}, "items": items}).encode())


async def measure_memory() -> dict[str, Any]:
    workload = KubernetesWorkload(Api(MadeOnDemand()), ["x"])
    before = _memory()
    await workload.observe()
    found = {"memory_before_mb": round(before / 1e6), "peak_memory_mb": round(_memory() / 1e6)}
    await workload.close()
    return found


async def measure() -> dict[str, Any]:
    transport = Recorded()
    workload = KubernetesWorkload(Api(transport), ["x"])
    began = time.process_time()
    view = await workload.observe()
    looked = time.process_time()
    reason = Reason(Code.DEMAND, "bench")
    by_slice = {one.slice_id: one for one in view.nodes}
    records = {
        name: SliceRecord(name, "a100", "x", State.READY, 0.0, reason, reason, nodes=seen_nodes([one]))
        for name, one in by_slice.items()
    }
    settings = with_workload_groups(Settings(()), view.groups)
    plan(snapshot_of(Fleet(records), view.demands, view.requests, settings, time.time()))
    planned = time.process_time()
    passes = []
    for number in range(100):
        for offset in range(30):
            changed = pod(number * 30 + offset, f"a100-x-{(number * 30 + offset + 1) % NODES}")
            changed["metadata"]["resourceVersion"] = str(2_000_001 + number * 30 + offset)
            transport.changes.put_nowait(json.dumps({"type": "MODIFIED", "object": changed}).encode())
        await asyncio.sleep(0.02)
        start = time.process_time()
        view = await workload.observe()
        records = {
            name: one if (shown := seen_nodes([by])) == one.nodes else one.replace(nodes=shown)
            for by in view.nodes
            for name, one in [(by.slice_id, records[by.slice_id])]
        }
        settings = with_workload_groups(Settings(()), view.groups)
        plan(snapshot_of(Fleet(records), view.demands, view.requests, settings, time.time()))
        passes.append(time.process_time() - start)
    await workload.close()
    return {
        "pods": NODES * PODS_PER_NODE + WAITING,
        "nodes": NODES,
        "json_mb": round(transport.size / 1e6, 1),
        "start_s": round(STARTED, 3),
        "first_look_s": round(looked - began, 3),
        "plan_s": round(planned - looked, 3),
        "look_and_plan_s": round(planned - began, 3),
        "end_to_end_s": round(STARTED + planned - began, 3),
        "pass_p50_ms": round(1000 * quantiles(passes, n=100)[49], 1),
        "pass_p99_ms": round(1000 * quantiles(passes, n=100)[98], 1),
    }


def measure_saved() -> dict[str, Any]:
    """CPU seconds of the whole program ``windlass plan`` on the same objects in a file, as kubectl writes it: indented,
    and without managed fields."""
    names = [f"a100-x-{number}" for number in range(NODES)]
    owner = {"windlass.dev/provisioner": "a100"}
    claims = [{"metadata": meta(name, 1, labels=owner), "spec": {"provisioner": "a100"}} for name in names]
    pods = [pod(number, names[number % NODES]) for number in range(NODES * PODS_PER_NODE)]
    pods += [pod(100_000 + number, "") for number in range(WAITING)]
    ours = "windlass.dev/v1alpha1"
    kinds = (
        (ours, "NodeProvisioner", [PROVISIONER]),
        (ours, "NodeClaim", claims),
        ("v1", "Node", [node(number) for number in range(NODES)]),
        ("v1", "Pod", pods),
    )
    items = [{"apiVersion": version, "kind": kind, **one} for version, kind, listed in kinds for one in listed]
    for one in items:
        one["metadata"] = {key: value for key, value in one["metadata"].items() if key != "managedFields"}
    with tempfile.TemporaryDirectory() as home:
        file = Path(home, "cluster.json")
        file.write_text(json.dumps({"apiVersion": "v1", "items": items, "kind": "List"}, indent=4))
        size = file.stat().st_size
        del items, pods
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        source = str(Path(__file__).resolve().parent.parent / "src")
        subprocess.run(
            [sys.executable, "-m", "windlass", "plan", str(file)],
            env={**os.environ, "PYTHONPATH": source},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"saved_plan_s": round(used, 3), "saved_mb": round(size / 1e6)}


SAMPLES = 30


async def measure_reaction() -> dict[str, Any]:
    """Seconds from a pod that the scheduler gave up on to the provider's call, in a running service with a SQLite
    journal on disk: the watch, the pass, the plan, the commit and the claim are in between."""
    with tempfile.TemporaryDirectory() as home, contextlib.closing(open_journal(str(Path(home, "j.db")))) as journal:
        server = FakeApiServer()
        template = {"resources": {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}}
        spec = {"provider": "kwok", "maxNodes": 1000, "template": template}
        server.put("/apis/windlass.dev/v1alpha1/nodeprovisioners", {"metadata": {"name": "gpu"}, "spec": spec})
        api = Api(server)
        asked: asyncio.Queue[float] = asyncio.Queue()

        class Timed(KwokProvider):
            async def launch(self, order: LaunchOrder, epoch: int) -> None:
                asked.put_nowait(time.perf_counter())
                await super().launch(order, epoch)

        workload = KubernetesWorkload(api, ["kwok"], publisher=DecisionPublisher)
        provider = NodeClaimProvider(Timed(api), "kwok", api, still_used=workload.still_used)
        service = Service(
            Settings((), policy=Policy()),
            {"kwok": provider},
            workload,
            journal,
            leadership=Leadership("benchmark"),
            retention=3600,
            now=time.time,
            steady=time.monotonic,
        )
        running = asyncio.create_task(service.run())
        times = []
        for number in range(SAMPLES):
            await asyncio.sleep(1.0)  # what followed from the last sample is over
            container = {"name": "c", "resources": {"requests": {"nvidia.com/gpu": "8"}}}
            gave_up = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            body = {
                "metadata": {"name": f"p{number}", "namespace": "default"},
                "spec": {"containers": [container]},
                "status": {"phase": "Pending", "conditions": [gave_up]},
            }
            began = time.perf_counter()
            server.put("/api/v1/namespaces/default/pods", body)
            times.append(await asked.get() - began)
            node = await node_of(server, number)
            server.change(f"/api/v1/namespaces/default/pods/p{number}", partial(bound, node))
        service.stop()
        await running
        await workload.close()
    return {"call_p50_s": round(quantiles(times, n=20)[9], 3), "call_p95_s": round(quantiles(times, n=20)[18], 3)}


async def node_of(server: FakeApiServer, number: int) -> str:
    """The name of the node that the last launch has made."""
    while len(names := [one["metadata"]["name"] for one in server.all("nodes")]) <= number:
        await asyncio.sleep(0.01)
    used = {one["spec"].get("nodeName") for one in server.all("pods")}
    return str(next(name for name in names if name not in used))


def bound(node: str, pod: dict[str, Any]) -> None:
    pod["spec"]["nodeName"] = node
    pod["status"] = {"phase": "Running"}


def _memory() -> int:
    """The peak of this program; ru_maxrss would count its parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    if sys.argv[1:] == ["--memory"]:
        print(json.dumps(asyncio.run(measure_memory())))
    else:
        found = asyncio.run(measure()) | asyncio.run(measure_reaction()) | measure_saved()
        apart = [sys.executable, __file__, "--memory"]
        found |= json.loads(subprocess.run(apart, capture_output=True, text=True, check=True).stdout)
        print(json.dumps(found, indent=2))
