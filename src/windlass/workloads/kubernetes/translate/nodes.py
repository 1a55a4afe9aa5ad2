"""This module translates nodes: which slice they belong to, whether they are usable, what keeps pods away from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from windlass.kubernetes_api.names import CLAIM, DELETING, MARKED, PROVISIONER, is_protected
from windlass.kubernetes_api.objects import KubeNode, NodeProvisioner, NodeTaint, is_true, unix

from .quantities import parsed

UNINITIALIZED: Final = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/network-unavailable",
        "node.cloudprovider.kubernetes.io/uninitialized",
    }
)
"""Taints that the cluster itself removes when a node is initialised."""
OURS: Final = frozenset({MARKED, DELETING})


@dataclass(frozen=True, slots=True)
class MirroredNode:
    """The mirrored fields of a node."""

    name: str
    uid: str
    version: str
    provisioner: str
    claim: str
    """The slice that it is a host of."""
    provider_id: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: tuple[NodeTaint, ...]
    ready: bool
    unschedulable: bool
    allocatable: Mapping[str, int] = field(default_factory=dict)
    since: float = 0.0
    deleted: bool = False
    """Whether it has a deletionTimestamp and only a finalizer keeps it."""
    finalizers: tuple[str, ...] = ()
    conditions: tuple[tuple[str, str, float], ...] = ()
    """Type, status and time of the last transition, of the nodes of provisioners."""

    @property
    def protected(self) -> bool:
        return is_protected(dict(self.annotations))

    def taint(self, key: str) -> NodeTaint | None:
        return next((one for one in self.taints if one.key == key), None)

    @property
    def marked_until(self) -> float | None:
        """The deadline of its mark, if it has one."""
        mark = self.taint(MARKED)
        return float(mark.value) if mark is not None and mark.value.isdigit() else None


def mirrored_node(node: KubeNode) -> MirroredNode:
    """Return the mirrored fields of an API object."""
    meta, labels = node.metadata, node.metadata.labels or {}
    ours = PROVISIONER in labels
    conditions = node.status.conditions or ()
    return MirroredNode(
        name=meta.name,
        uid=meta.uid,
        version=meta.resource_version if ours else "",
        provisioner=labels.get(PROVISIONER, ""),
        claim=labels.get(CLAIM, ""),
        provider_id=node.spec.provider_id,
        labels=labels,
        annotations=meta.annotations or {} if ours else {},
        taints=node.spec.taints or (),
        ready=is_true(node.status.conditions, "Ready"),
        unschedulable=node.spec.unschedulable,
        allocatable=parsed(node.status.allocatable),
        since=unix(meta.creation_timestamp) or 0.0,
        deleted=meta.deletion_timestamp is not None,
        finalizers=meta.finalizers or (),
        conditions=tuple((one.type, one.status, unix(one.last_transition_time) or 0.0) for one in conditions)
        if ours
        else (),
    )


def lacks(node: MirroredNode, provisioner: NodeProvisioner | None) -> str:
    """Return what a node still lacks of its provisioner's template, as text; empty if nothing.

    A node can be Ready minutes before its GPUs are allocatable. It counts as in flight until then; otherwise a second
    machine would be bought.
    """
    if not node.ready:
        return "is not Ready"
    if provisioner is None:
        return ""
    template = provisioner.spec.template
    for taint in node.taints:
        if taint.key in UNINITIALIZED:
            return f"has the taint {taint.key}"
    starting = {(one.key, one.effect) for one in template.startup_taints or ()}
    for taint in node.taints:
        if (taint.key, taint.effect) in starting:
            return f"has its startup taint {taint.key}"
    for name, amount in parsed(template.resources).items():
        has = node.allocatable.get(name, 0)
        if "/" in name and has < amount:
            return f"has {has // 1000} of {amount // 1000} {name} allocatable"
    return ""


def keeps_away(node: MirroredNode, provisioner: NodeProvisioner | None) -> str:
    """Return a taint on a node that is neither ours nor its provisioner's, as text; empty if there is none."""
    promised = (provisioner.spec.template.taints or ()) if provisioner is not None else ()
    known = {(one.key, one.effect) for one in promised}
    if node.unschedulable:
        return "is cordoned"
    for taint in node.taints:
        if taint.effect == "PreferNoSchedule" or taint.key in OURS or (taint.key, taint.effect) in known:
            continue
        return f"has the taint {taint.key}:{taint.effect}"
    return ""
