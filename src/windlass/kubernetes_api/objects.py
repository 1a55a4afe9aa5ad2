"""This module defines API objects as narrow msgspec structs, with only the fields that Windlass reads.

Decoding a pod this way takes about 15 µs, a fiftieth of what a full model takes, and unknown fields cost nothing.
Absent and null lists and maps are both None; callers write ``value or ()``.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")


class Struct(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Base of all objects here."""


class Owner(Struct, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Meta(Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[Owner, ...] | None = None
    finalizers: tuple[str, ...] | None = None


class ObjectCondition(Struct, frozen=True):
    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


Quantities = dict[str, str | int | float]


class Resources(Struct, frozen=True):
    requests: Quantities | None = None
    limits: Quantities | None = None


class Port(Struct, frozen=True):
    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="hostIP")


class Container(Struct, frozen=True):
    name: str = ""
    resources: Resources | None = None
    ports: tuple[Port, ...] | None = None
    restart_policy: str | None = None


class ContainerStatus(Struct, frozen=True):
    name: str = ""
    allocated_resources: Quantities | None = None
    resources: Resources | None = None


class Requirement(Struct, frozen=True):
    """One expression of a node selector or a label selector."""

    key: str
    operator: str
    values: tuple[str, ...] | None = None


class NodeSelectorTerm(Struct, frozen=True):
    match_expressions: tuple[Requirement, ...] | None = None
    match_fields: tuple[Requirement, ...] | None = None


class NodeSelector(Struct, frozen=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] | None = None


class PreferredTerm(Struct, frozen=True):
    weight: int = 1
    preference: NodeSelectorTerm | None = None


class NodeAffinity(Struct, frozen=True):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredTerm, ...] | None = None


class LabelSelector(Struct, frozen=True):
    match_labels: dict[str, str] | None = None
    match_expressions: tuple[Requirement, ...] | None = None


class PodAffinityTerm(Struct, frozen=True):
    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] | None = None
    mismatch_label_keys: tuple[str, ...] | None = None


class PodAffinity(Struct, frozen=True):
    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] | None = None


class Affinity(Struct, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class SpreadConstraint(Struct, frozen=True):
    topology_key: str = ""
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    match_label_keys: tuple[str, ...] | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"


class PodToleration(Struct, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class SchedulingGate(Struct, frozen=True):
    name: str = ""


class SchedulingGroup(Struct, frozen=True):
    pod_group_name: str = ""


class PodClaim(Struct, frozen=True):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSpec(Struct, frozen=True):
    node_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] | None = None
    overhead: Quantities | None = None
    resources: Resources | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[PodToleration, ...] | None = None
    topology_spread_constraints: tuple[SpreadConstraint, ...] | None = None
    priority: int | None = None
    scheduling_gates: tuple[SchedulingGate, ...] | None = None
    scheduling_group: SchedulingGroup | None = None
    resource_claims: tuple[PodClaim, ...] | None = None


class PodStatus(Struct, frozen=True):
    phase: str = "Pending"
    conditions: tuple[ObjectCondition, ...] | None = None
    nominated_node_name: str = ""
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None


class Pod(Struct, frozen=True):
    metadata: Meta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"


class NodeTaint(Struct, frozen=True, omit_defaults=True):
    key: str
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeSpec(Struct, frozen=True):
    provider_id: str = msgspec.field(default="", name="providerID")
    taints: tuple[NodeTaint, ...] | None = None
    unschedulable: bool = False


class KubeNodeStatus(Struct, frozen=True):
    capacity: Quantities | None = None
    allocatable: Quantities | None = None
    conditions: tuple[ObjectCondition, ...] | None = None


class KubeNode(Struct, frozen=True):
    metadata: Meta
    spec: NodeSpec = NodeSpec()
    status: KubeNodeStatus = KubeNodeStatus()

    @property
    def key(self) -> str:
        return self.metadata.name


class PodTemplate(Struct, frozen=True):
    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()


class DaemonSetSpec(Struct, frozen=True):
    template: PodTemplate = PodTemplate()


class DaemonSet(Struct, frozen=True):
    metadata: Meta
    spec: DaemonSetSpec = DaemonSetSpec()


class JobSpec(Struct, frozen=True):
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = "NonIndexed"
    suspend: bool = False


class JobStatus(Struct, frozen=True):
    succeeded: int | None = None
    failed_indexes: str | None = None


class KubeJob(Struct, frozen=True):
    metadata: Meta
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

    @property
    def pods(self) -> int:
        """How many pods an indexed Job runs at once: its parallelism, and at the end what is left to complete."""
        most = self.spec.parallelism or 1
        if self.spec.completions is None:
            return most
        done = self.status.succeeded or 0
        for span in filter(None, (self.status.failed_indexes or "").split(",")):
            first, _, last = span.partition("-")
            done += int(last or first) - int(first) + 1
        return max(1, min(most, self.spec.completions - done))


class GangPolicy(Struct, frozen=True):
    min_count: int = 1


class SchedulingPolicy(Struct, frozen=True):
    gang: GangPolicy | None = None


class PodGroupSpec(Struct, frozen=True):
    scheduling_policy: SchedulingPolicy | None = None
    min_member: int | None = None


class PodGroup(Struct, frozen=True):
    metadata: Meta
    spec: PodGroupSpec = PodGroupSpec()


class PartitionTemplate(Struct, frozen=True):
    count: int = 1
    attributes: dict[str, Any] | None = None
    capacity: dict[str, Any] | None = None
    counters: dict[str, Any] | None = None


class DeviceTemplate(Struct, frozen=True):
    driver: str
    count: int = 1
    attributes: dict[str, Any] | None = None
    capacity: dict[str, Any] | None = None
    allow_multiple_allocations: bool | None = None
    counters: dict[str, Any] | None = None
    partitions: tuple[PartitionTemplate, ...] | None = None


class NodeTemplate(Struct, frozen=True):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    taints: tuple[NodeTaint, ...] | None = None
    startup_taints: tuple[NodeTaint, ...] | None = None
    resources: Quantities | None = None
    devices: tuple[DeviceTemplate, ...] | None = None
    settings: dict[str, Any] | None = None


class Budget(Struct, frozen=True):
    nodes: str | int
    schedule: str | None = None
    duration: str | None = None


class RepairRule(Struct, frozen=True):
    condition: str
    status: str
    after: str


class ProvisionerSpec(Struct, frozen=True):
    template: NodeTemplate = NodeTemplate()
    provider: str = ""
    gpu_resource: str = "nvidia.com/gpu"
    min_gpu_utilization_percent: int | None = msgspec.field(default=None, name="minGPUUtilizationPercent")
    min_unutilized_gpu_nodes: int = msgspec.field(default=0, name="minUnutilizedGPUNodes")
    buy_buffer: bool = False
    scale_down_delay: str = "10m"
    min_nodes: int = 0
    max_nodes: int = 0
    actions_per_loop: int = 0
    budgets: tuple[Budget, ...] | None = None
    weight: int = 10
    price: str | None = None
    deletion_policy: str = "Drain"
    paused: bool = False
    repair: tuple[RepairRule, ...] | None = None


class NodeProvisioner(Struct, frozen=True):
    metadata: Meta
    spec: ProvisionerSpec = ProvisionerSpec()
    status: dict[str, Any] | None = None


class ClaimStatus(Struct, frozen=True):
    provider_id: str = msgspec.field(default="", name="providerID")
    node_name: str = ""
    conditions: tuple[ObjectCondition, ...] | None = None


class ClaimSpec(Struct, frozen=True):
    provisioner: str = ""
    provider: str = ""


class NodeClaim(Struct, frozen=True):
    metadata: Meta
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class ListMeta(Struct, frozen=True):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ListPage(Struct, Generic[T], frozen=True):
    """One page of a list."""

    metadata: ListMeta
    items: list[T] | None = None


class WatchLine(Struct, frozen=True):
    """One line of a watch; the object is decoded when its type is known."""

    type: str
    object: msgspec.Raw


class StatusDetails(Struct, frozen=True):
    retry_after_seconds: int = 0


class ApiStatus(Struct, frozen=True):
    """The API server's answer to a refused call."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None


class Versioned(Struct, frozen=True):
    """Any object, read only for its metadata."""

    metadata: Meta


def unix(timestamp: str | None) -> float | None:
    """Convert an RFC 3339 time to unix seconds; None if it is absent or not valid."""
    if not timestamp:
        return None
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except ValueError:
        return None


def rfc3339(seconds: float) -> str:
    """Format unix seconds as the API writes times, in whole seconds."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(seconds: float) -> str:
    """Format unix seconds as the API writes times of leases and events."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def condition_of(conditions: tuple[ObjectCondition, ...] | None, kind: str) -> ObjectCondition | None:
    """Return the condition of that type, if there is one."""
    return next((one for one in conditions or () if one.type == kind), None)


def is_true(conditions: tuple[ObjectCondition, ...] | None, kind: str) -> bool:
    """Whether the condition of that type holds."""
    found = condition_of(conditions, kind)
    return found is not None and found.status == "True"
