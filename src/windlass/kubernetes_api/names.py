"""This module has the names that the controller writes to API objects. Users script against them: they never change."""

from __future__ import annotations

from typing import Final

GROUP: Final = "windlass.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

PROVISIONER: Final = "windlass.dev/provisioner"
"""Label of nodes and claims: the name of their NodeProvisioner."""
CLAIM: Final = "windlass.dev/claim"
"""Label of nodes: the name of their NodeClaim, which is the slice's id."""
MARKED: Final = "windlass.dev/scheduled-deletion"
"""Taint of a marked node; its value is the deadline in unix seconds."""
DELETING: Final = "windlass.dev/deleting"
"""Taint of a node that is about to be deleted; its value is the time of the taint in unix seconds."""
FINALIZER: Final = "windlass.dev/termination"
ORPHANED: Final = "windlass.dev/orphaned"
"""Annotation of a node whose provisioner was deleted with the policy Orphan: Windlass no longer manages it."""

DO_NOT_DISRUPT: Final = {
    "windlass.dev/do-not-disrupt": "true",
    "karpenter.sh/do-not-disrupt": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true",
}
"""Annotations of a pod or node that keep a node, with the value that counts."""
KWOK_NODE: Final = "kwok.x-k8s.io/node"

LEASE: Final = "windlass"
NAMESPACE: Final = "windlass-system"

HOSTNAME: Final = "kubernetes.io/hostname"
NODE_NAME: Final = "metadata.name"
"""The pseudo label that carries a node's name, for conditions on the field of that name."""


def is_protected(annotations: dict[str, str] | None) -> bool:
    """Whether annotations forbid that a node or pod is disrupted. Karpenter's may also hold a duration."""
    if not annotations:
        return False
    if annotations.get("karpenter.sh/do-not-disrupt", "")[:1].isdigit():
        return True
    return any(annotations.get(key) == value for key, value in DO_NOT_DISRUPT.items())
