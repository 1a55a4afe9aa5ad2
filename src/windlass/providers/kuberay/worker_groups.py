"""This module computes the state of a RayCluster that Windlass scales: its worker groups, its pods, and the record
of slices. Pure.

The record is JSON in the annotation ``windlass.dev/slices`` of the RayCluster. It changes in the same patch as the
replicas, so a slice that is in the record has been ordered exactly once, whatever crashes in between. The record holds
the pods of each slice: KubeRay names pods itself, so a slice takes the oldest pods of its worker group that belong to
no slice. Pods that were there before Windlass came are counted (replicas that no slice has ordered) and left alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from windlass.kubernetes_api.objects import Meta, ObjectCondition, Struct

SLICES: Final = "windlass.dev/slices"
"""Annotation of a RayCluster: which slices were ordered, and which pods serve them."""
CLUSTER: Final = "ray.io/cluster"
GROUP: Final = "ray.io/group"
NODE_TYPE: Final = "ray.io/node-type"
MOST_ENDED: Final = 500
"""How many ids of ended slices are kept for each cluster: an object may have 256 KiB of annotations."""
GRACE: Final = 10.0
"""Seconds for which the release of a slice waits for its pods. An operator that has read the old number of replicas
makes the pod after the release, and then deletes any pod of the group, which may be a busy one."""
UNLIMITED: Final = 2**31 - 1


class WaitingContainer(Struct, frozen=True):
    reason: str = ""
    message: str = ""


class ContainerState(Struct, frozen=True):
    waiting: WaitingContainer | None = None


class WorkerContainerStatus(Struct, frozen=True):
    name: str = ""
    state: ContainerState = ContainerState()


class WorkerPodStatus(Struct, frozen=True):
    phase: str = "Pending"
    conditions: tuple[ObjectCondition, ...] | None = None
    container_statuses: tuple[WorkerContainerStatus, ...] | None = None
    pod_ip: str = ""


class WorkerPod(Struct, frozen=True):
    """The fields of a RayCluster's pod that are read."""

    metadata: Meta
    status: WorkerPodStatus = WorkerPodStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def group(self) -> str:
        return (self.metadata.labels or {}).get(GROUP, "")

    @property
    def is_over(self) -> bool:
        return self.status.phase in ("Failed", "Succeeded")

    @property
    def is_free(self) -> bool:
        """Whether a slice may use it."""
        return not self.is_over and self.metadata.deletion_timestamp is None

    @property
    def problem(self) -> str:
        """Why it does not start, as Kubernetes reports it."""
        for one in self.status.container_statuses or ():
            waiting = one.state.waiting
            if waiting is not None and waiting.reason not in ("", "ContainerCreating", "PodInitializing"):
                return f"pod {self.name}: {waiting.reason}: {waiting.message}".removesuffix(": ")
        for condition in self.status.conditions or ():
            if condition.type == "PodScheduled" and condition.status == "False":
                return f"pod {self.name}: {condition.reason}: {condition.message}".removesuffix(": ")
        return ""


@dataclass(slots=True)
class RecordedSlice:
    """A slice in the record."""

    group: str
    worker_group: str
    hosts: int
    ordered: float
    """When it was launched (seconds since the epoch)."""
    pods: list[str] = field(default_factory=list)
    ending: bool = False
    released: bool = False
    """Whether its replicas have been released."""


@dataclass(slots=True)
class ClusterRecord:
    """The slices of one Windlass cluster in a RayCluster."""

    name: str
    epoch: int = 0
    slices: dict[str, RecordedSlice] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)

    def has_ended(self, slice_id: str) -> None:
        self.slices.pop(slice_id, None)
        if slice_id not in self.ended:
            self.ended = [*self.ended, slice_id][-MOST_ENDED:]


Record = dict[str, ClusterRecord]
"""By the id of the cluster, which its journal has; the name where there is no id."""


def read_record(text: str) -> Record:
    """Return the record in an annotation; ``ValueError`` if it cannot be read."""
    try:
        data = json.loads(text) if text else {}
        return {
            key: ClusterRecord(
                one["name"],
                one["epoch"],
                {name: RecordedSlice(**given) for name, given in one["slices"].items()},
                list(one["ended"]),
            )
            for key, one in data.items()
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def written_record(record: Record) -> str:
    return json.dumps(
        {
            key: {
                "name": one.name,
                "epoch": one.epoch,
                "slices": {
                    name: {field: getattr(given, field) for field in RecordedSlice.__slots__}
                    for name, given in one.slices.items()
                },
                "ended": one.ended,
            }
            for key, one in record.items()
        },
        separators=(",", ":"),
    )


@dataclass(slots=True)
class WorkerGroup:
    """A worker group of a RayCluster: its current and its wanted values."""

    index: int
    name: str
    replicas: int
    """The replicas within minReplicas and maxReplicas, as KubeRay computes them."""
    low: int
    high: int
    hosts: int
    """Pods of one replica."""
    suspended: bool
    to_delete: list[str]


def read_groups(manifest: Mapping[str, Any]) -> dict[str, WorkerGroup]:
    """Return the worker groups of a RayCluster, by name."""
    found = {}
    for index, one in enumerate(manifest.get("spec", {}).get("workerGroupSpecs") or ()):
        low, high = one.get("minReplicas") or 0, one.get("maxReplicas")
        high = UNLIMITED if high is None else high
        strategy = one.get("scaleStrategy") or {}
        found[one["groupName"]] = WorkerGroup(
            index,
            one["groupName"],
            min(max(one.get("replicas") or 0, low), high),
            low,
            high,
            one.get("numOfHosts") or 1,
            one.get("suspend") is True,
            list(strategy.get("workersToDelete") or ()),
        )
    return found


def settle(record: Record, groups: Mapping[str, WorkerGroup], pods: Sequence[WorkerPod], now: float) -> None:
    """Bring record and groups up to date with the pods: give pods to slices, release slices, forget what is gone."""
    there = {pod.name for pod in pods}
    for group in groups.values():
        group.to_delete = [name for name in group.to_delete if name in there]
        _settle_group(record, group, pods, now)
    for cluster in record.values():
        for slice_id, one in list(cluster.slices.items()):
            is_gone = one.released or one.worker_group not in groups
            if one.ending and is_gone and there.isdisjoint(one.pods):
                cluster.has_ended(slice_id)


def _settle_group(record: Record, group: WorkerGroup, pods: Sequence[WorkerPod], now: float) -> None:
    slices = [one for cluster in record.values() for one in cluster.slices.values() if one.worker_group == group.name]
    held = [one for one in slices if not one.released]
    ordered = sum(one.hosts for one in held)
    taken = {name for one in slices for name in one.pods} | set(group.to_delete)
    free = sorted(
        (pod for pod in pods if pod.group == group.name and pod.is_free and pod.name not in taken),
        key=lambda pod: (pod.metadata.creation_timestamp or "", pod.name),
    )
    spare = [pod.name for pod in free[max(0, group.replicas - ordered) :]]
    for one in sorted(held, key=lambda one: one.ordered):
        while len(one.pods) < one.hosts and spare:
            one.pods.append(spare.pop(0))
    there = {pod.name for pod in pods}
    alive = {pod.name for pod in pods if not pod.is_over}
    for one in held:
        if not one.ending or (len(one.pods) < one.hosts and now - one.ordered < GRACE):
            continue
        # KubeRay replaces each pod that died: the replacement is deleted, not any pod of the group.
        while spare and sum(name in alive for name in one.pods) < one.hosts:
            one.pods.append(spare.pop(0))
        ordered -= one.hosts
        # Others may have lowered the replicas already; then nothing more is taken from the slices that stay.
        group.replicas = min(group.replicas, max(group.replicas - one.hosts, ordered))
        group.to_delete += [name for name in one.pods if name in there and name not in group.to_delete]
        one.released = True


def patch_of(manifest: Mapping[str, Any], record: Record, groups: Mapping[str, WorkerGroup]) -> list[dict[str, Any]]:
    """Return the JSON patch that writes record and groups; empty if nothing changes. It tests the resourceVersion."""
    steps: list[dict[str, Any]] = []
    before = read_groups(manifest)
    for name, group in groups.items():
        at, was = f"/spec/workerGroupSpecs/{group.index}", before[name]
        if group.replicas != was.replicas:
            steps.append({"op": "add", "path": f"{at}/replicas", "value": group.replicas})
        if group.to_delete != was.to_delete:
            strategy = manifest["spec"]["workerGroupSpecs"][group.index].get("scaleStrategy") or {}
            value = {**strategy, "workersToDelete": group.to_delete}
            steps.append({"op": "add", "path": f"{at}/scaleStrategy", "value": value})
    annotations = manifest["metadata"].get("annotations") or {}
    text = written_record(record)
    if text != annotations.get(SLICES, "{}"):
        steps.append({"op": "add", "path": "/metadata/annotations", "value": {**annotations, SLICES: text}})
    if not steps:
        return []
    version = manifest["metadata"]["resourceVersion"]
    return [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *steps]
