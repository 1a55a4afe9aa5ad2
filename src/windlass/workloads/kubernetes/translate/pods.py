"""This module translates pods as the scheduler sees them: what one needs, whether it counts as work, whether it
waits for a machine.

Pods of one owner are equal but for their names. What follows from a pod's specification is worked out once for all
equal ones (``PodShape``), so that a mirrored pod is a few references: 30,000 of them fit into a few tens of megabytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from windlass.core.model.snapshot import Amounts, amounts
from windlass.kubernetes_api.names import is_protected
from windlass.kubernetes_api.objects import (
    Container,
    ContainerStatus,
    LabelSelector,
    NodeSelector,
    Pod,
    PodAffinityTerm,
    PodClaim,
    PodSpec,
    PodStatus,
    PodToleration,
    PreferredTerm,
    Quantities,
    SpreadConstraint,
    condition_of,
    unix,
)

from .quantities import parsed

FINISHED: Final = frozenset({"Succeeded", "Failed"})
MIRROR: Final = "kubernetes.io/config.mirror"
POD_GROUP_LABEL: Final = "pod-group.scheduling.sigs.k8s.io"
CONSUME: Final = (
    "autoscaling.x-k8s.io/consume-provisioning-request",
    "cluster-autoscaler.kubernetes.io/consume-provisioning-request",
)
"""Annotations that name the ProvisioningRequest which a pod consumes."""


@dataclass(frozen=True, slots=True)
class PodPort:
    """A port of the host that a pod takes."""

    protocol: str
    port: int
    address: str


@dataclass(frozen=True, eq=False)
class PodShape:
    """The fields of a pod that decide where it may run, except its labels: one object for all pods of a template."""

    needs: Amounts
    selector: tuple[tuple[str, str], ...] = ()
    affinity: NodeSelector | None = None
    preferred: tuple[PreferredTerm, ...] = ()
    tolerations: tuple[PodToleration, ...] = ()
    attracted: tuple[PodAffinityTerm, ...] = ()
    repelled: tuple[PodAffinityTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    ports: tuple[PodPort, ...] = ()
    priority: int = 0
    claims: tuple[PodClaim, ...] = ()
    """Resource claims: devices that are allocated apart from the resources."""


@dataclass(frozen=True, slots=True)
class MirroredPod:
    """The mirrored fields of a pod."""

    namespace: str
    name: str
    uid: str
    node: str
    shape: PodShape
    labels: Mapping[str, str]
    owner: str
    """Kind and name of its controller, such as ``ReplicaSet/web-5d``; empty: it has none."""
    since: float
    counts: bool
    """Whether it is work: not of a DaemonSet, no mirror pod, not finished."""
    waits: bool
    """Whether the scheduler has reported it as Unschedulable."""
    since_waiting: float | None
    protected: bool
    ending: bool
    gang: str
    """The name of its PodGroup in its namespace; empty: none."""
    finished: bool
    consumes: str = ""
    """The name of the ProvisioningRequest in its namespace that brought its room; empty: none."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class PodMirror:
    """Converts pods, with one shape object for all equal ones."""

    def __init__(self) -> None:
        self._shapes: dict[bytes, PodShape] = {}
        self._labels: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}
        self._names: dict[str, str] = {}
        self._encode = msgspec.msgpack.Encoder().encode

    def __call__(self, pod: Pod) -> MirroredPod:
        """Return the mirrored fields of an API object."""
        meta, spec, status = pod.metadata, pod.spec, pod.status
        owner = next((one for one in meta.owner_references or () if one.controller), None)
        finished = status.phase in FINISHED
        counts = not (finished or is_daemon(pod) or is_mirror(pod))
        scheduled = condition_of(status.conditions, "PodScheduled")
        waits = counts and is_waiting(pod)
        return MirroredPod(
            namespace=self._name(meta.namespace),
            name=meta.name,
            uid=meta.uid,
            node=self._name(spec.node_name),
            shape=self._shape(spec, status),
            labels=self._same_labels(meta.labels),
            owner=self._name(f"{owner.kind}/{owner.name}") if owner is not None else "",
            since=unix(meta.creation_timestamp) or 0.0,
            counts=counts,
            waits=waits,
            since_waiting=unix(scheduled.last_transition_time) if waits and scheduled is not None else None,
            protected=is_protected(meta.annotations),
            ending=meta.deletion_timestamp is not None,
            gang=_gang(pod),
            finished=finished,
            consumes=self._name(consumed(meta.annotations)) if meta.annotations else "",
        )

    def _shape(self, spec: PodSpec, status: PodStatus) -> PodShape:
        resized = [one for one in status.container_statuses or () if one.allocated_resources or one.resources]
        resized += [one for one in status.init_container_statuses or () if one.allocated_resources or one.resources]
        key = self._encode(
            (
                spec.containers,
                spec.init_containers,
                spec.overhead,
                spec.resources,
                spec.node_selector,
                spec.affinity,
                spec.tolerations,
                spec.topology_spread_constraints,
                spec.priority,
                spec.resource_claims,
                resized,
                resized and condition_of(status.conditions, "PodResizePending"),
            )
        )
        found = self._shapes.get(key)
        if found is None:
            _bounded(self._shapes)
            found = self._shapes[key] = shape_of(spec, status)
        return found

    def _same_labels(self, labels: dict[str, str] | None) -> Mapping[str, str]:
        if not labels:
            return _NO_LABELS
        key = tuple(labels.items())
        found = self._labels.get(key)
        if found is None:
            _bounded(self._labels)
            found = self._labels[key] = labels
        return found

    def _name(self, name: str) -> str:
        _bounded(self._names)
        return self._names.setdefault(name, name)


_NO_LABELS: Final[Mapping[str, str]] = {}
MOST_REMEMBERED: Final = 50_000


def _bounded(cache: dict[Any, Any]) -> None:
    """Clear a full cache. Equal values may then be stored twice, which only costs memory."""
    if len(cache) > MOST_REMEMBERED:
        cache.clear()


def _gang(pod: Pod) -> str:
    group = pod.spec.scheduling_group
    if group is not None and group.pod_group_name:
        return group.pod_group_name
    return (pod.metadata.labels or {}).get(POD_GROUP_LABEL, "")


def consumed(annotations: Mapping[str, str]) -> str:
    """Return the name of the ProvisioningRequest that a pod consumes; empty: none."""
    return next((annotations[key] for key in CONSUME if annotations.get(key)), "")


def is_daemon(pod: Pod) -> bool:
    """Whether a DaemonSet owns the pod: it runs on every node, so it does not make one used."""
    return any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references or ())


def is_mirror(pod: Pod) -> bool:
    """Whether the pod is the mirror of a kubelet's static pod."""
    return MIRROR in (pod.metadata.annotations or {})


def is_waiting(pod: Pod) -> bool:
    """Whether the scheduler has found no node for the pod.

    A pod with a nominated node will run there once its victims have ended. A pod with a scheduling gate must not run
    yet.
    """
    if pod.spec.node_name or pod.spec.scheduling_gates or pod.status.nominated_node_name:
        return False
    if pod.metadata.deletion_timestamp is not None:
        return False
    scheduled = condition_of(pod.status.conditions, "PodScheduled")
    return scheduled is not None and scheduled.status == "False" and scheduled.reason == "Unschedulable"


def ignored_because(pod: Pod) -> str:
    """Return why a pod does not count as waiting, for its user."""
    if pod.spec.node_name:
        return f"it runs on node {pod.spec.node_name}"
    if pod.metadata.deletion_timestamp is not None:
        return "it is being deleted"
    if pod.spec.scheduling_gates:
        return "it has a scheduling gate"
    if pod.status.nominated_node_name:
        return f"the scheduler makes room for it on node {pod.status.nominated_node_name}"
    if is_daemon(pod):
        return "it belongs to a DaemonSet"
    scheduled = condition_of(pod.status.conditions, "PodScheduled")
    if scheduled is None or scheduled.reason != "Unschedulable":
        return "the scheduler has not reported it as Unschedulable; kubectl describe pod may say why"
    return "the controller has not seen it yet"


# -- needs -------------------------------------------------------------------------------------------------------------


def needs_of(spec: PodSpec, status: PodStatus | None = None) -> dict[str, int]:
    """Return the resources that a pod needs, as the scheduler computes them, with one of the node's ``pods`` for
    itself.

    Containers run together, so their requests add up. A restartable init container keeps running, so it adds to all
    that start after it. Any other init container runs alone, so only the largest counts. Pod-level
    requests replace the sums. During a resize the larger of the old and the new request counts.
    """
    status = status or PodStatus()
    running = {one.name: one for one in status.container_statuses or ()}
    starting = {one.name: one for one in status.init_container_statuses or ()}
    resizing = condition_of(status.conditions, "PodResizePending")
    infeasible = resizing is not None and resizing.reason == "Infeasible"
    total: dict[str, int] = {}
    for container in spec.containers:
        _add(total, _requested(container, running.get(container.name), infeasible))
    peak: dict[str, int] = {}
    beside: dict[str, int] = {}
    for container in spec.init_containers or ():
        requested = _requested(container, starting.get(container.name), infeasible)
        if container.restart_policy == "Always":
            _add(total, requested)
            _add(beside, requested)
            requested = dict(beside)
        else:
            _add(requested, beside)
        _raise(peak, requested)
    _raise(total, peak)
    if spec.resources is not None and spec.resources.requests:
        total |= parsed(_pod_level(spec.resources.requests))
    _add(total, parsed(spec.overhead))
    total["pods"] = 1000
    return {name: value for name, value in total.items() if value}


def _requested(container: Container, status: ContainerStatus | None, infeasible: bool) -> dict[str, int]:
    asked: dict[str, int] = {}
    if container.resources is not None:
        # The API server sets this default on pods, but not on pod templates.
        asked = parsed({**(container.resources.limits or {}), **(container.resources.requests or {})})
    if status is None or (status.allocated_resources is None and status.resources is None):
        return asked
    has = parsed(status.allocated_resources)
    if status.resources is not None:
        _raise(has, parsed(status.resources.requests))
    if infeasible:
        return has
    _raise(has, asked)
    return has


def _pod_level(requests: Quantities) -> Quantities:
    """Return the resources that a pod-level request may name."""
    return {
        name: value for name, value in requests.items() if name in ("cpu", "memory") or name.startswith("hugepages-")
    }


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise(total: dict[str, int], other: Mapping[str, int]) -> None:
    for name, value in other.items():
        if value > total.get(name, 0):
            total[name] = value


# -- shapes ------------------------------------------------------------------------------------------------------------


def shape_of(spec: PodSpec, status: PodStatus | None = None) -> PodShape:
    """Return the shape of a pod."""
    affinity = spec.affinity
    node = affinity.node_affinity if affinity is not None else None
    attracted = affinity.pod_affinity if affinity is not None else None
    repelled = affinity.pod_anti_affinity if affinity is not None else None
    spread = [one for one in spec.topology_spread_constraints or () if one.when_unsatisfiable == "DoNotSchedule"]
    return PodShape(
        needs=amounts(needs_of(spec, status)),
        selector=tuple(sorted((spec.node_selector or {}).items())),
        affinity=node.required_during_scheduling_ignored_during_execution if node is not None else None,
        preferred=(node.preferred_during_scheduling_ignored_during_execution or ()) if node is not None else (),
        tolerations=spec.tolerations or (),
        attracted=_required(attracted),
        repelled=_required(repelled),
        spread=tuple(spread),
        ports=_ports(spec),
        priority=spec.priority or 0,
        claims=spec.resource_claims or (),
    )


def _required(affinity: object) -> tuple[PodAffinityTerm, ...]:
    return getattr(affinity, "required_during_scheduling_ignored_during_execution", None) or ()


def _ports(spec: PodSpec) -> tuple[PodPort, ...]:
    always = [one for one in spec.init_containers or () if one.restart_policy == "Always"]
    found = {
        PodPort(port.protocol, port.host_port, port.host_ip or "0.0.0.0")
        for container in (*spec.containers, *always)
        for port in container.ports or ()
        if port.host_port
    }
    return tuple(sorted(found, key=lambda one: (one.protocol, one.port, one.address)))


def matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects an object. An absent one selects nothing, an empty one everything."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.match_labels or {}).items()):
        return False
    return all(
        _meets(one.operator, one.key in labels, labels.get(one.key, ""), one.values or ())
        for one in selector.match_expressions or ()
    )


def _meets(operator: str, present: bool, value: str, values: tuple[str, ...]) -> bool:
    match operator:
        case "In":
            return present and value in values
        case "NotIn":
            return not present or value not in values
        case "Exists":
            return present
        case "DoesNotExist":
            return not present
        case _:
            return False
