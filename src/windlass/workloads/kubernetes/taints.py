"""This module changes a node's taints by read, change and write with the resourceVersion that was read.

Every kind of patch replaces the whole list ``spec.taints``, so a write without a resourceVersion erases the taints of
other owners.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.kubernetes_api.api import Api, patched
from windlass.kubernetes_api.names import DELETING, FINALIZER, MARKED
from windlass.kubernetes_api.objects import KubeNode, NodeTaint, Versioned

from .mirror import NODES

OURS = frozenset({MARKED, DELETING})


def wanted_taints(current: tuple[NodeTaint, ...], ours: Mapping[str, NodeTaint]) -> tuple[NodeTaint, ...]:
    """Return the taints of other owners, and ours as wanted. A taint of ours that has the wanted value keeps its
    place.
    """
    kept = [one for one in current if one.key not in OURS or _same(one, ours.get(one.key))]
    there = {one.key for one in kept}
    return (*kept, *(one for key, one in sorted(ours.items()) if key not in there))


def _same(one: NodeTaint, wanted: NodeTaint | None) -> bool:
    return wanted is not None and (one.value, one.effect) == (wanted.value, wanted.effect)


def marked(until: float) -> NodeTaint:
    """Return the soft taint of a node that is scheduled for deletion."""
    return NodeTaint(MARKED, str(int(until)), "PreferNoSchedule")


def deleting(at: float) -> NodeTaint:
    """Return the hard taint of a node that is about to be deleted."""
    return NodeTaint(DELETING, str(int(at)), "NoSchedule")


async def write_taints(
    api: Api, node: str, ours: Mapping[str, NodeTaint], *, finalizer: bool = True
) -> KubeNode | None:
    """Write our taints and our finalizer to a node; None if the node is gone."""

    def change(current: KubeNode) -> dict[str, Any] | None:
        body: dict[str, Any] = {}
        before = current.spec.taints or ()
        after = wanted_taints(before, ours)
        if after != before:
            body["spec"] = {"taints": [msgspec.to_builtins(one) for one in after]}
        held = current.metadata.finalizers or ()
        if finalizer and FINALIZER not in held and current.metadata.deletion_timestamp is None:
            body["metadata"] = {"finalizers": [*held, FINALIZER]}
        return body or None

    return await patched(api, f"{NODES}/{node}", KubeNode, change)


async def drop_finalizer(api: Api, path: str) -> None:
    """Remove our finalizer from an object and keep the finalizers of others."""

    def change(current: Versioned) -> dict[str, Any] | None:
        held = current.metadata.finalizers or ()
        if FINALIZER not in held:
            return None
        return {"metadata": {"finalizers": [one for one in held if one != FINALIZER]}}

    await patched(api, path, Versioned, change)
