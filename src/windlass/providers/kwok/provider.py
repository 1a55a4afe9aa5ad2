"""KwokProvider creates Node objects without machines.

A node is created at once and becomes Ready after ``boot_delay``; its devices are allocatable ``device_delay`` later.
Annotations of the node hold both times, so a restarted controller continues with them. The annotation
``kwok.x-k8s.io/node: fake`` lets a real KWOK controller play the kubelets; none is needed.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from windlass.kubernetes_api.api import Api, ApiError, patched
from windlass.kubernetes_api.names import CLAIM, FINALIZER, HOSTNAME, KWOK_NODE, ORPHANED, PROVISIONER
from windlass.kubernetes_api.objects import KubeNode, Versioned, is_true, rfc3339, unix
from windlass.providers.kubernetes_errors import provider_error
from windlass.providers.protocol import (
    ClusterIdentity,
    Host,
    Instance,
    InsufficientCapacity,
    InvalidRequest,
    LaunchOrder,
    Offering,
    ProviderError,
)

from .resource_slices import PATH as SLICES
from .resource_slices import resource_slices

NODES: Final = "/api/v1/nodes"
PROVIDER: Final = "windlass.dev/kwok-provider"
READY_AT: Final = "windlass.dev/kwok-ready-at"
DEVICES_AT: Final = "windlass.dev/kwok-devices-at"
RESOURCES: Final = "windlass.dev/kwok-resources"
DEVICES: Final = "windlass.dev/kwok-devices"
PUBLISHED: Final = "windlass.dev/DevicesPublished"
"""Condition of a node whose ResourceSlices are there."""
CLUSTER: Final = "windlass.dev/cluster"
CLUSTER_ID: Final = "windlass.dev/cluster-id"


class KwokProvider:
    """The provider of Node objects in one cluster."""

    def __init__(
        self,
        api: Api | None,
        name: str = "kwok",
        *,
        boot_delay: float = 0.0,
        device_delay: float = 0.0,
        failure: float = 0.0,
        seed: int = 0,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``api``: None until ``use_kubernetes``. ``name``: distinguishes this provider's nodes from another's.
        ``failure``: the share of launches that is refused as out of stock."""
        self._client, self._name, self._now = api, name, now
        self._boot, self._devices, self._failure = boot_delay, device_delay, failure
        self._chance = random.Random(seed)
        self._due: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._ended: set[str] = set()
        self._cluster = ClusterIdentity()
        self._is_checked = False
        """Whether a list has confirmed that no other journal uses this provider name."""

    def use_kubernetes(self, api: Api) -> None:
        """Take the client of the workload's cluster."""
        self._client = api

    @property
    def _api(self) -> Api:
        if self._client is None:
            raise ProviderError("kwok creates nodes of a Kubernetes cluster only: set workload.type to kubernetes")
        return self._client

    def bind(self, cluster: ClusterIdentity) -> None:
        self._cluster, self._is_checked = cluster, False

    def _owns(self, notes: Mapping[str, str]) -> bool:
        if notes.get(PROVIDER) != self._name:
            return False
        return CLUSTER not in notes or self._cluster.owns(notes[CLUSTER], notes.get(CLUSTER_ID, ""))

    async def launch(self, order: LaunchOrder, epoch: int) -> None:  # noqa: ARG002
        if len(order.hosts) != 1:
            raise InvalidRequest(f"kwok creates single nodes, and {order.group} has {len(order.hosts)} hosts")
        if order.slice_id in self._ended:
            return
        if self._failure and self._chance.random() < self._failure:
            raise InsufficientCapacity(f"kwok is out of {order.group}: failure is {self._failure:g}")
        if not self._is_checked:
            await self.list()
        given = order.hosts[0].environment
        at = self._now()
        labels = _pairs(given.get("WINDLASS_NODE_LABELS", ""))
        resources = json.loads(given.get("WINDLASS_NODE_RESOURCES", "{}"))
        devices = given.get("WINDLASS_NODE_DEVICES", "")
        is_due = not self._boot and not self._devices
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": order.slice_id,
                "labels": {
                    HOSTNAME: order.slice_id,
                    **labels,
                    PROVISIONER: order.group,
                    CLAIM: order.slice_id,
                },
                "annotations": {
                    **json.loads(given.get("WINDLASS_NODE_ANNOTATIONS", "{}")),
                    KWOK_NODE: "fake",
                    PROVIDER: self._name,
                    CLUSTER: order.cluster.name,
                    CLUSTER_ID: order.cluster.id,
                    READY_AT: f"{at + self._boot:.3f}",
                    DEVICES_AT: f"{at + self._boot + self._devices:.3f}",
                    RESOURCES: json.dumps(resources, sort_keys=True),
                    **({DEVICES: devices} if devices else {}),
                },
                "finalizers": [FINALIZER],
            },
            "spec": {
                "providerID": f"kwok://{self._name}/{order.slice_id}",
                "taints": _taints(given.get("WINDLASS_NODE_TAINTS", "")),
            },
            "status": _status(resources, not self._boot, is_due, at),
        }
        try:
            await self._api.create(NODES, body)
        except ApiError as error:
            if not error.is_conflict:
                raise provider_error(error) from error
        self._plan(order.slice_id, body["metadata"]["annotations"])  # type: ignore[index]

    async def terminate(self, slice_id: str, epoch: int) -> None:  # noqa: ARG002
        path = f"{NODES}/{slice_id}"
        try:
            found = await self._api.get(path, KubeNode)
            if not self._owns(found.metadata.annotations or {}):
                return
            await patched(self._api, path, Versioned, _without_finalizer)
            await self._api.delete(path, uid=found.metadata.uid)
            for one in _slices_of(found):
                await self._api.delete(f"{SLICES}/{one['metadata']['name']}")
        except ApiError as error:
            if not error.is_missing:
                raise provider_error(error) from error
        self._ended.add(slice_id)
        self._due.pop(slice_id, None)

    async def list(self) -> Sequence[Instance]:
        try:
            # Version 0 reads the API server's cache, which may lag a little and puts no load on etcd.
            nodes, _ = await self._api.list_pages(
                NODES, KubeNode, {"labelSelector": CLAIM, "resourceVersion": "0"}, page=10_000
            )
        except ApiError as error:
            raise provider_error(error) from error
        found = []
        if any(at <= self._now() for at in self._due.values()):
            self._wake.set()
        for node in nodes:
            notes, labels = node.metadata.annotations or {}, node.metadata.labels or {}
            if ORPHANED in notes or not self._owns(notes):
                continue
            self._plan(node.metadata.name, notes, node)
            is_up = is_true(node.status.conditions, "Ready") or float(notes.get(READY_AT, "0")) <= self._now()
            found.append(
                Instance(
                    slice_id=labels[CLAIM],
                    group=labels.get(PROVISIONER, ""),
                    state="running" if is_up else "pending",
                    hosts=(Host(node.metadata.name, running=is_up),),
                    started_at=unix(node.metadata.creation_timestamp),
                )
            )
        self._is_checked = True
        return found

    async def offerings(self) -> Sequence[Offering]:
        return ()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    # -- playing the kubelet -------------------------------------------------------------------------------------------

    def _plan(self, name: str, notes: Mapping[str, str], node: KubeNode | None = None) -> None:
        """Schedule the next status write of a node, unless it is Ready and has its devices."""
        resources = json.loads(notes.get(RESOURCES, "{}"))
        has = (node.status.allocatable or {}) if node is not None else {}
        is_ready = node is not None and is_true(node.status.conditions, "Ready")
        complete = is_ready and all(str(has.get(key, "0")) != "0" for key in resources)
        if complete and DEVICES in notes:
            complete = node is not None and is_true(node.status.conditions, PUBLISHED)
        if complete or name in self._due:
            return
        self._due[name] = float(notes[DEVICES_AT] if is_ready else notes[READY_AT])
        self._wake.set()
        if self._task is None:
            self._task = asyncio.create_task(self._play(), name="kwok nodes")

    async def _play(self) -> None:
        while True:
            self._wake.clear()
            now = self._now()
            for name in [name for name, at in self._due.items() if at <= now]:
                try:
                    again = await self._bring_up(name)
                except ApiError as error:
                    again = None if error.is_missing else now + 1.0
                if again is None:
                    self._due.pop(name, None)
                else:
                    self._due[name] = again
            left = min(self._due.values(), default=self._now() + 3600.0) - self._now()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.001, left)):
                    await self._wake.wait()

    async def _bring_up(self, name: str) -> float | None:
        """Write the status that is due, and return the time of the next one."""
        now = self._now()
        node = await self._api.get(f"{NODES}/{name}", KubeNode)
        notes = node.metadata.annotations or {}
        resources = json.loads(notes[RESOURCES])
        ready_at, devices_at = float(notes[READY_AT]), float(notes[DEVICES_AT])
        slices = _slices_of(node) if now >= devices_at else []
        for one in slices:
            await self._publish(one)
        status = _status(resources, now >= ready_at, now >= devices_at, now, published=bool(slices))
        await self._api.patch(f"{NODES}/{name}/status", {"status": status})
        return None if now >= devices_at else max(ready_at if now < ready_at else devices_at, now)

    async def _publish(self, one: Mapping[str, Any]) -> None:
        try:
            await self._api.create(SLICES, one)
        except ApiError as error:
            if not error.is_conflict:
                raise


def _slices_of(node: KubeNode) -> list[dict[str, Any]]:
    devices = json.loads((node.metadata.annotations or {}).get(DEVICES, "[]"))
    return resource_slices(node.metadata.name, node.metadata.uid, devices)


def _without_finalizer(current: Versioned) -> dict[str, Any] | None:
    held = current.metadata.finalizers or ()
    if FINALIZER not in held:
        return None
    return {"metadata": {"finalizers": [one for one in held if one != FINALIZER]}}


def _status(
    resources: Mapping[str, Any], ready: bool, devices: bool, now: float, *, published: bool = False
) -> dict[str, Any]:
    offered = {key: str(value) if devices or "/" not in key else "0" for key, value in resources.items()}
    times = {"lastHeartbeatTime": rfc3339(now), "lastTransitionTime": rfc3339(now)}
    reason = "KubeletReady" if ready else "Booting"
    conditions = [{"type": "Ready", "status": "True" if ready else "False", "reason": reason, "message": "", **times}]
    if published:
        conditions.append({"type": PUBLISHED, "status": "True", "reason": "Published", "message": "", **times})
    return {"capacity": offered, "allocatable": offered, "conditions": conditions}


def _pairs(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def _taints(text: str) -> list[dict[str, str]]:
    found = []
    for part in text.split(","):
        rest, _, effect = part.rpartition(":")
        key, _, value = rest.partition("=")
        if key:
            found.append({"key": key, "value": value, "effect": effect})
    return found
