"""KubeRayProvider scales one RayCluster: a slice is one or more pods of a worker group.

Each change is one JSON patch of the RayCluster: the replicas of the group, the pods to delete, and the record of
slices. The patch tests the resourceVersion that was read; after a conflict everything is read again.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from windlass.kubernetes_api.api import JSON_PATCH, Api, ApiError
from windlass.kubernetes_api.objects import unix
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
    StaleEpoch,
)

from .worker_groups import (
    CLUSTER,
    NODE_TYPE,
    SLICES,
    ClusterRecord,
    Record,
    RecordedSlice,
    WorkerGroup,
    WorkerPod,
    patch_of,
    read_groups,
    read_record,
    settle,
)

TRIES: Final = 30
"""The most attempts of one call. KubeRay writes the status of the same object, so conflicts are common."""
WORKER_GROUP: Final = "workerGroup"
"""The setting of a group that names its worker group, where the names differ."""


class KubeRayProvider:
    """The provider of workers of one RayCluster."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        cluster: str,
        *,
        read_only: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``cluster``: the name of the RayCluster. ``read_only``: ``list`` writes nothing."""
        self._api, self._namespace, self._name, self._now = api, namespace, cluster, now
        self._path = f"/apis/ray.io/v1/namespaces/{namespace}/rayclusters/{cluster}"
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._read_only = read_only
        self._cluster = ClusterIdentity()
        self._changing = asyncio.Lock()
        self.names: dict[str, str] = {}
        """``SLICE/HOST`` by the name of its pod, as last listed; KubeRay gives the pod's name to Ray as instance id."""

    def bind(self, cluster: ClusterIdentity) -> None:
        self._cluster = cluster

    async def launch(self, order: LaunchOrder, epoch: int) -> None:
        if not order.hosts:
            raise InvalidRequest(f"slice {order.slice_id} has no hosts; order at least one")
        if unknown := sorted(set(order.settings) - {WORKER_GROUP}):
            raise InvalidRequest(
                f"groups.{order.group}.settings: {', '.join(unknown)}: kuberay reads only {WORKER_GROUP}; the rest of "
                "a worker is described in the RayCluster"
            )
        worker_group = str(order.settings.get(WORKER_GROUP, order.group))

        def change(manifest: dict[str, Any], record: Record, groups: dict[str, WorkerGroup]) -> None:
            ours = self._ours(record, epoch)
            if order.slice_id in ours.slices or order.slice_id in ours.ended:
                return
            group = groups.get(worker_group)
            self._check(manifest, group, order, worker_group, sorted(groups))
            assert group is not None
            if group.replicas + len(order.hosts) > group.high:
                raise InsufficientCapacity(
                    f"worker group {group.name} of RayCluster {self._namespace}/{self._name} has {group.replicas} of "
                    f"{group.high} replicas (maxReplicas), and {len(order.hosts)} more are wanted"
                )
            group.replicas += len(order.hosts)
            ours.slices[order.slice_id] = RecordedSlice(
                order.group, worker_group, len(order.hosts), round(self._now(), 3)
            )

        await self._change(change)

    def _check(
        self,
        manifest: dict[str, Any],
        group: WorkerGroup | None,
        order: LaunchOrder,
        worker_group: str,
        names: Sequence[str],
    ) -> None:
        """Refuse an order that this RayCluster can never fulfil."""
        where = f"RayCluster {self._namespace}/{self._name}"
        if manifest["spec"].get("enableInTreeAutoscaling") is True:
            raise InvalidRequest(
                f"{where} has enableInTreeAutoscaling: true, so that Ray's own autoscaler changes the replicas, too; "
                "set it to false"
            )
        if group is None:
            raise InvalidRequest(
                f"{where} has no worker group {worker_group} (it has {', '.join(names) or 'none'}): give the group its "
                f"name, or set groups.{order.group}.settings.{WORKER_GROUP}"
            )
        if group.hosts != 1:
            raise InvalidRequest(
                f"worker group {group.name} of {where} has numOfHosts {group.hosts}; only 1 can be bought"
            )
        if group.suspended:
            raise InvalidRequest(f"worker group {group.name} of {where} is suspended; set suspend to false")

    async def terminate(self, slice_id: str, epoch: int) -> None:
        def change(_manifest: dict[str, Any], record: Record, _groups: dict[str, WorkerGroup]) -> None:
            ours = self._ours(record, epoch)
            if slice_id in ours.slices:
                ours.slices[slice_id].ending = True
            else:  # a launch whose answer was lost may still arrive: it buys nothing then
                ours.has_ended(slice_id)

        await self._change(change)

    async def list(self) -> Sequence[Instance]:
        record, pods = await self._change(lambda _manifest, record, _groups: self._refuse_conflicts(record))
        by_name = {pod.name: pod for pod in pods}
        owned = [
            (slice_id, one)
            for key, cluster in record.items()
            if self._owns(key, cluster)
            for slice_id, one in sorted(cluster.slices.items())
        ]
        self.names = {pod: f"{slice_id}/{host}" for slice_id, one in owned for host, pod in enumerate(one.pods)}
        return [_instance(slice_id, one, by_name) for slice_id, one in owned]

    async def offerings(self) -> Sequence[Offering]:
        return ()

    async def close(self) -> None:
        await self._api.close()

    # -- the record ----------------------------------------------------------------------------------------------------

    @property
    def _key(self) -> str:
        return self._cluster.id or self._cluster.name

    def _owns(self, key: str, cluster: ClusterRecord) -> bool:
        """``ClusterConflict``: another journal has slices here under our name."""
        if not cluster.slices and key != self._key:
            return False
        return key == self._key or self._cluster.owns(cluster.name, key)

    def _refuse_conflicts(self, record: Record) -> None:
        for key, cluster in record.items():
            self._owns(key, cluster)

    def _ours(self, record: Record, epoch: int) -> ClusterRecord:
        self._refuse_conflicts(record)
        ours = record.setdefault(self._key, ClusterRecord(self._cluster.name))
        if epoch < ours.epoch:
            raise StaleEpoch.of(epoch, ours.epoch)
        ours.epoch, ours.name = epoch, self._cluster.name
        return ours

    # -- reading and patching ------------------------------------------------------------------------------------------

    async def _change(
        self, change: Callable[[dict[str, Any], Record, dict[str, WorkerGroup]], None]
    ) -> tuple[Record, Sequence[WorkerPod]]:
        """Read, change, settle and patch until no other writer came in between; the record and pods as they are then.

        The RayCluster is read before the pods: a pod to delete that is not listed does not come back.
        """
        async with self._changing:
            for attempt in range(TRIES):
                manifest = await self._manifest()
                pods = await self._workers()
                record, groups = self._record(manifest), read_groups(manifest)
                change(manifest, record, groups)
                settle(record, groups, pods, self._now())
                steps = patch_of(manifest, record, groups)
                if not steps or self._read_only:
                    return record, pods
                try:
                    await self._api.patch(self._path, steps, content_type=JSON_PATCH)
                    return record, pods
                except ApiError as error:
                    if not error.is_conflict and not await self._is_stale(manifest, error):
                        raise provider_error(error) from error
                await asyncio.sleep(random.uniform(0, 0.01 * (attempt + 1)))
        raise ProviderError(
            f"RayCluster {self._namespace}/{self._name} was changed by others {TRIES} times while it was patched"
        )

    async def _is_stale(self, manifest: dict[str, Any], error: ApiError) -> bool:
        """Whether a patch failed because the RayCluster has changed: a failed test is answered with 422, too."""
        if error.status != 422:
            return False
        now = await self._manifest()
        return bool(now["metadata"]["resourceVersion"] != manifest["metadata"]["resourceVersion"])

    async def _manifest(self) -> dict[str, Any]:
        try:
            return await self._api.get_plain(self._path)
        except ApiError as error:
            if error.is_missing:
                raise ProviderError(
                    f"there is no RayCluster {self._name} in namespace {self._namespace}: create it, and see that "
                    "KubeRay's CRDs (ray.io/v1) are installed"
                ) from None
            raise provider_error(error) from error

    async def _workers(self) -> Sequence[WorkerPod]:
        try:
            pods, _ = await self._api.list_pages(self._pods, WorkerPod, {"labelSelector": f"{CLUSTER}={self._name}"})
        except ApiError as error:
            raise provider_error(error) from error
        return [pod for pod in pods if (pod.metadata.labels or {}).get(NODE_TYPE) != "head"]

    def _record(self, manifest: dict[str, Any]) -> Record:
        text = (manifest["metadata"].get("annotations") or {}).get(SLICES, "")
        try:
            return read_record(text)
        except ValueError as error:
            raise ProviderError(
                f"annotation {SLICES} of RayCluster {self._namespace}/{self._name} cannot be read ({error}): restore "
                "it; without it the pods of slices are not known"
            ) from None


def _instance(slice_id: str, one: RecordedSlice, pods: dict[str, WorkerPod]) -> Instance:
    shown = [(name, pods.get(name)) for name in one.pods]
    dead = [name for name, pod in shown if pod is None or pod.is_over]
    hosts = tuple(
        Host(
            name,
            running=pod is not None and pod.status.phase == "Running",
            address="" if pod is None else pod.status.pod_ip,
        )
        for name, pod in shown
    )
    up = len(hosts) >= one.hosts and all(host.running for host in hosts)
    problems = [pod.problem for _, pod in shown if pod is not None and pod.problem]
    ends = [pod.metadata.deletion_timestamp for _, pod in shown if pod is not None and pod.metadata.deletion_timestamp]
    created = [unix(pod.metadata.creation_timestamp) for _, pod in shown if pod is not None]
    return Instance(
        slice_id,
        one.group,
        "ending" if one.ending else "running" if up or dead else "pending",
        hosts,
        preempted_at=min(map(_seconds, ends)) if ends and not one.ending else None,
        trouble=f"pod {dead[0]} has ended" if dead and not one.ending else problems[0] if problems else "",
        started_at=min((at for at in created if at is not None), default=one.ordered),
    )


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
