"""A small operator that does with a RayCluster what KubeRay does: it makes, starts and deletes worker pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from itertools import count
from typing import Any

from windlass.kubernetes_api.api import Api, ApiError

NAMESPACE = "rays"
NAME = "train"
RAY_CLUSTERS = f"/apis/ray.io/v1/namespaces/{NAMESPACE}/rayclusters"
RAY_CLUSTER = f"{RAY_CLUSTERS}/{NAME}"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"

_numbers = count(1)


def ray_cluster(*groups: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {"workerGroupSpecs": list(groups) or [worker_group()], **spec},
    }


def worker_group(name: str = "conformance", **more: Any) -> dict[str, Any]:
    return {"groupName": name, "replicas": 0, "minReplicas": 0, "maxReplicas": 30, **more}


def worker_pod(name: str, group: dict[str, Any] | None = None) -> dict[str, Any]:
    """A worker pod as KubeRay makes it. With the ``template`` of its group its container starts Ray."""
    labels = {"ray.io/cluster": NAME, "ray.io/group": name, "ray.io/node-type": "worker"}
    spec = deepcopy(((group or {}).get("template") or {}).get("spec"))
    if spec is not None:
        given = {"block": "true", **(group or {}).get("rayStartParams", {})}
        options = [f"--{key}" if value == "true" else f"--{key}={value}" for key, value in given.items()]
        spec["containers"][0]["args"] = [" ".join(["ray", "start", *options])]
        fields = {"RAY_CLOUD_INSTANCE_ID": "metadata.name", "RAY_NODE_TYPE_NAME": "metadata.labels['ray.io/group']"}
        spec["containers"][0]["env"] = [
            {"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in fields.items()
        ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{NAME}-{name}-worker-{next(_numbers):05}", "namespace": NAMESPACE, "labels": labels},
        "spec": spec or {"containers": [{"name": "ray-worker", "image": "none"}]},
    }


def crd() -> dict[str, Any]:
    """The fields of the RayCluster's definition that are read or written here; all others of ``spec`` are kept."""
    number = {"type": "integer", "format": "int32"}
    strategy = {
        "type": "object",
        "properties": {"workersToDelete": {"type": "array", "items": {"type": "string"}}},
    }
    group = {
        "type": "object",
        "required": ["groupName", "maxReplicas", "minReplicas"],
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {
            "groupName": {"type": "string"},
            "replicas": {**number, "default": 0},
            "minReplicas": {**number, "default": 0},
            "maxReplicas": {**number, "default": 2147483647},
            "numOfHosts": {**number, "default": 1},
            "suspend": {"type": "boolean"},
            "scaleStrategy": strategy,
        },
    }
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
                "properties": {"workerGroupSpecs": {"type": "array", "items": group}},
            },
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "rayclusters.ray.io"},
        "spec": {
            "group": "ray.io",
            "scope": "Namespaced",
            "names": {"plural": "rayclusters", "singular": "raycluster", "kind": "RayCluster"},
            "versions": [version],
        },
    }


def _phase(pod: dict[str, Any]) -> str:
    phase: str = (pod.get("status") or {}).get("phase", "Pending")
    return phase


class Operator:
    """Reconciles the RayCluster. ``paused``: it does nothing. ``arbitrary``: pods that it had to choose itself."""

    def __init__(self, api: Api, *, plays_kubelet: bool = True, pause: float = 0.01) -> None:
        """``plays_kubelet``: it also says that its pods run."""
        self._api, self._plays_kubelet, self._pause = api, plays_kubelet, pause
        self.paused = False
        self.arbitrary: list[str] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Operator]:
        ending = asyncio.Event()
        task = asyncio.create_task(self._run(ending))
        try:
            yield self
        finally:
            ending.set()  # not cancelled: a request that is broken off leaves its connection open for a moment
            (failed,) = await asyncio.gather(task, return_exceptions=True)
            if failed is not None:
                raise AssertionError("the operator has failed") from failed

    async def _run(self, ending: asyncio.Event) -> None:
        while not ending.is_set():
            if not self.paused:
                try:
                    await self.reconcile()
                except ApiError as error:
                    # A server that is too busy to answer, or another writer: the next round starts from a new list.
                    if error.status not in (0, 409, 429) and error.status < 500:
                        raise
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause):
                    await ending.wait()

    async def reconcile(self) -> None:
        cluster = await self._api.get_plain(RAY_CLUSTER)
        pods: list[dict[str, Any]] = (await self._api.list_pages(PODS, dict))[0]
        ready = 0
        for group in cluster["spec"]["workerGroupSpecs"]:
            mine = [one for one in pods if one["metadata"]["labels"]["ray.io/group"] == group["groupName"]]
            doomed = set((group.get("scaleStrategy") or {}).get("workersToDelete") or ())
            doomed |= {one["metadata"]["name"] for one in mine if _phase(one) == "Failed"}
            doomed |= {one["metadata"]["name"] for one in mine if one["metadata"].get("deletionTimestamp")}
            stay = [one for one in mine if one["metadata"]["name"] not in doomed]
            for one in mine:
                if one["metadata"]["name"] in doomed:
                    await self._api.delete(f"{PODS}/{one['metadata']['name']}")
            wanted = min(max(group.get("replicas", 0), group["minReplicas"]), group["maxReplicas"])
            for _ in range(wanted - len(stay)):
                await self._api.create(PODS, worker_pod(group["groupName"], group))
            for one in stay[: max(0, len(stay) - wanted)]:
                self.arbitrary.append(one["metadata"]["name"])
                await self._api.delete(f"{PODS}/{one['metadata']['name']}")
            for one in stay[max(0, len(stay) - wanted) :]:
                await self._start(one)
            ready += len(stay)
        if (cluster.get("status") or {}).get("readyWorkerReplicas") != ready:
            await self._api.patch(f"{RAY_CLUSTER}/status", {"status": {"readyWorkerReplicas": ready}})

    async def _start(self, pod: dict[str, Any]) -> None:
        if self._plays_kubelet and _phase(pod) == "Pending":
            try:
                await self._api.patch(f"{PODS}/{pod['metadata']['name']}/status", {"status": {"phase": "Running"}})
            except ApiError as error:
                if not error.is_missing:
                    raise
