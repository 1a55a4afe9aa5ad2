"""ClusterMirror holds the cluster in memory: reflectors of everything that decisions depend on, and indexes over
them.

No observation is made while one of them is not synced: what is unknown is never taken for empty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from windlass.kubernetes_api.api import Api
from windlass.kubernetes_api.autoscaling_objects import CapacityBuffer, PodTemplateObject, ProvisioningRequest
from windlass.kubernetes_api.device_objects import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from windlass.kubernetes_api.names import ORPHANED
from windlass.kubernetes_api.objects import (
    DaemonSet,
    KubeJob,
    KubeNode,
    NodeClaim,
    NodeProvisioner,
    Pod,
    PodGroup,
    Versioned,
)
from windlass.kubernetes_api.reflector import ObjectChange, Reflector

from .devices.inventory import SliceFacts, slice_facts
from .translate.nodes import MirroredNode, mirrored_node
from .translate.pods import MirroredPod, PodMirror

K = TypeVar("K")
V = TypeVar("V")
Convert: TypeAlias = Callable[[K], V | None]
OnChange: TypeAlias = Callable[[ObjectChange[V]], None]

INSTALL: Final = "install its definition: windlass kubernetes install --print | kubectl apply --server-side -f -"

PODS: Final = "/api/v1/pods"
NODES: Final = "/api/v1/nodes"
PROVISIONERS: Final = "/apis/windlass.dev/v1alpha1/nodeprovisioners"
CLAIMS: Final = "/apis/windlass.dev/v1alpha1/nodeclaims"
NAMESPACES: Final = "/api/v1/namespaces"
DAEMON_SETS: Final = "/apis/apps/v1/daemonsets"
JOBS: Final = "/apis/batch/v1/jobs"
POD_GROUPS: Final = (
    "/apis/scheduling.k8s.io/v1beta1/podgroups",
    "/apis/scheduling.k8s.io/v1alpha2/podgroups",
    "/apis/scheduling.x-k8s.io/v1alpha1/podgroups",
)
"""Kubernetes 1.37, Kubernetes 1.36 with the gate on, and the scheduler plugin's own; whichever the server has."""

RESOURCE_SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"
RESOURCE_CLAIMS: Final = "/apis/resource.k8s.io/v1/resourceclaims"
CLAIM_TEMPLATES: Final = "/apis/resource.k8s.io/v1/resourceclaimtemplates"
DEVICE_CLASSES: Final = "/apis/resource.k8s.io/v1/deviceclasses"

POD_TEMPLATES: Final = "/api/v1/podtemplates"
CAPACITY_BUFFERS: Final = "/apis/autoscaling.x-k8s.io/v1beta1/capacitybuffers"
PROVISIONING_REQUESTS: Final = "/apis/autoscaling.x-k8s.io/v1/provisioningrequests"


class ClusterMirror:
    """Mirrors one cluster. ``on_change`` is called after every change that can affect a decision."""

    def __init__(self, api: Api, on_change: Callable[[], None], now: Callable[[], float]) -> None:
        self._on_change, self._now = on_change, now
        self._tasks: list[asyncio.Task[None]] = []
        self.on_node: dict[str, dict[str, MirroredPod]] = {}
        """Pods by the node they are bound to, without finished pods."""
        self.waiting: dict[str, MirroredPod] = {}
        self.idle_since: dict[str, float] = {}
        """When the last counted pod left a node."""
        self.claim_nodes: dict[str, dict[str, MirroredNode]] = {}
        """Nodes by their claim."""
        self.orphaned: set[str] = set()
        """Claims whose nodes were orphaned."""

        def mirror(
            path: str,
            kind: type[K],
            convert: Convert[K, V],
            changed: OnChange[V] = self._notify,
            optional: bool = False,
            remedy: str = "",
        ) -> Reflector[K, V]:
            return Reflector(
                api, path, kind, convert, on_change=changed, on_synced=on_change, optional=optional, remedy=remedy
            )

        self.pods: Reflector[Pod, MirroredPod] = mirror(PODS, Pod, PodMirror(), self._pod_changed)
        self.nodes: Reflector[KubeNode, MirroredNode] = mirror(NODES, KubeNode, mirrored_node, self._node_changed)
        self.namespaces: Reflector[Versioned, Mapping[str, str]] = mirror(NAMESPACES, Versioned, _labels)
        """The labels of each namespace."""
        self.provisioners = mirror(PROVISIONERS, NodeProvisioner, _unchanged, remedy=INSTALL)
        self.claims = mirror(CLAIMS, NodeClaim, _unchanged, remedy=INSTALL)
        self.daemons = mirror(DAEMON_SETS, DaemonSet, _unchanged)
        self.jobs = mirror(JOBS, KubeJob, _indexed, optional=True)
        self.pod_groups = [mirror(path, PodGroup, _unchanged, optional=True) for path in POD_GROUPS]

        self.device_version = 0
        """The version of the objects that describe devices: it changes when one of them does."""
        self.slices = mirror(RESOURCE_SLICES, ResourceSlice, slice_facts, self._device_changed, optional=True)
        self.resource_claims = mirror(RESOURCE_CLAIMS, ResourceClaim, _unchanged, self._device_changed, optional=True)
        self.claim_templates = mirror(
            CLAIM_TEMPLATES, ResourceClaimTemplate, _unchanged, self._device_changed, optional=True
        )
        self.device_classes = mirror(DEVICE_CLASSES, DeviceClass, _unchanged, self._device_changed, optional=True)

        self.pod_templates = mirror(POD_TEMPLATES, PodTemplateObject, _unchanged, optional=True)
        self.buffers = mirror(CAPACITY_BUFFERS, CapacityBuffer, _unchanged, optional=True)
        self.room_requests = mirror(PROVISIONING_REQUESTS, ProvisioningRequest, _unchanged, optional=True)
        self.consumers: dict[str, MirroredPod] = {}
        """Pods that consume a ProvisioningRequest, by key."""

    @property
    def reflectors(self) -> Iterator[Reflector[Any, Any]]:
        yield from (self.pods, self.nodes, self.namespaces, self.provisioners, self.claims, self.daemons, self.jobs)
        yield from self.pod_groups
        yield from (self.slices, self.resource_claims, self.claim_templates, self.device_classes)
        yield from (self.pod_templates, self.buffers, self.room_requests)

    @property
    def slice_store(self) -> Mapping[str, SliceFacts]:
        return self.slices.store

    @property
    def resource_claim_store(self) -> Mapping[str, ResourceClaim]:
        return self.resource_claims.store

    @property
    def claim_template_store(self) -> Mapping[str, ResourceClaimTemplate]:
        return self.claim_templates.store

    @property
    def device_class_store(self) -> Mapping[str, DeviceClass]:
        return self.device_classes.store

    def pod_counts(self, key: str) -> bool | None:
        """Whether a pod makes its node used; None: there is no such pod."""
        found = self.pods.store.get(key)
        return found.counts if found is not None else None

    def start(self) -> None:
        """Start mirroring, once."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(one.run(), name=f"mirror {one.path}") for one in self.reflectors]

    async def close(self) -> None:
        """Stop mirroring."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    @property
    def ended(self) -> str:
        """The error of a reflector that has ended by a bug in Windlass; empty while all run."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                return f"{task.get_name()} ended, please report it: {type(error).__name__}: {error}"
        return ""

    @property
    def error(self) -> str:
        """Which list is not known, and why; empty while all lists are known."""
        if ended := self.ended:
            return ended
        return next((one.error or f"{one.path}: not listed yet" for one in self.reflectors if not one.synced), "")

    @property
    def is_synced(self) -> bool:
        return bool(self._tasks) and not self.error

    def gang_size(self, pod: MirroredPod) -> int | None:
        """Return how many pods of a pod's PodGroup or indexed Job must start together; None: it is in no gang."""
        if not pod.gang:
            kind, _, name = pod.owner.partition("/")
            job = self.jobs.store.get(f"{pod.namespace}/{name}") if kind == "Job" else None
            return job.pods if job is not None else None
        for reflector in self.pod_groups:
            group = reflector.store.get(f"{pod.namespace}/{pod.gang}")
            if group is not None:
                policy = group.spec.scheduling_policy
                if policy is not None and policy.gang is not None:
                    return policy.gang.min_count
                return group.spec.min_member
        return None

    def gang_running(self, pod: MirroredPod) -> int:
        """Return how many members of a pod's gang have a node already."""
        return sum(
            1
            for one in self.pods.store.values()
            if one.node
            and one.counts
            and one.namespace == pod.namespace
            and ((one.gang == pod.gang) if pod.gang else (one.owner == pod.owner))
        )

    def counted_on(self, node: str) -> list[MirroredPod]:
        """Return the pods that make a node used."""
        return [pod for pod in self.on_node.get(node, {}).values() if pod.counts]

    def nodes_of(self, claim: str) -> Mapping[str, MirroredNode]:
        return self.claim_nodes.get(claim, {})

    # -- indexes -------------------------------------------------------------------------------------------------------

    def _notify(self, _: ObjectChange[Any]) -> None:
        self._on_change()

    def _device_changed(self, _: ObjectChange[Any]) -> None:
        self.device_version += 1
        self._on_change()

    def _pod_changed(self, change: ObjectChange[MirroredPod]) -> None:
        before, after = change.before, change.after
        if before is not None and before.node and (after is None or after.finished or after.node != before.node):
            here = self.on_node.get(before.node, {})
            here.pop(change.key, None)
            if before.counts and not any(pod.counts for pod in here.values()):
                self.idle_since[before.node] = self._now()
        if after is not None and after.node and not after.finished:
            self.on_node.setdefault(after.node, {})[change.key] = after
        if after is not None and after.consumes:
            self.consumers[change.key] = after
        else:
            self.consumers.pop(change.key, None)
        if after is not None and after.waits:
            self.waiting[change.key] = after
        else:
            self.waiting.pop(change.key, None)
        self._on_change()

    def _node_changed(self, change: ObjectChange[MirroredNode]) -> None:
        before, after = change.before, change.after
        if after is not None and ORPHANED in after.annotations:
            self.orphaned.add(after.claim)
            after = None
        if before is not None and before.claim and (after is None or after.claim != before.claim):
            self.claim_nodes.get(before.claim, {}).pop(change.key, None)
        if after is not None and after.claim:
            self.claim_nodes.setdefault(after.claim, {})[change.key] = after
        if after is None:
            self.idle_since.pop(change.key, None)
            self.on_node.pop(change.key, None) if not self.on_node.get(change.key) else None
        if (before or after) is not None and (_is_ours(before) or _is_ours(after)):
            self._on_change()


def _is_ours(node: MirroredNode | None) -> bool:
    return node is not None and bool(node.provisioner)


def _unchanged(item: K) -> K:
    return item


def _labels(item: Versioned) -> Mapping[str, str]:
    return item.metadata.labels or {}


def _indexed(job: KubeJob) -> KubeJob | None:
    """Keep indexed jobs only: other jobs are no gangs."""
    return job if job.spec.completion_mode == "Indexed" and (job.spec.parallelism or 1) > 1 else None
