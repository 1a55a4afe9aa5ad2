"""This module reads the snapshot of a Kubernetes cluster from the output of ``kubectl get KINDS -A -o json``.

The production workload reads the objects, and the controller's fold makes slices of them, as after a start without a
journal. Machines are known from NodeClaims and from the labels of nodes: no provider is asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, cast

from windlass.control.observe.observer import Observation
from windlass.control.reconcile.planner_input import observed_now, snapshot_of
from windlass.control.reconcile.transitions import fold
from windlass.control.reconcile.workload_groups import with_workload_groups
from windlass.control.record.controller_state import ControllerState
from windlass.control.settings import Settings
from windlass.core.model.snapshot import Snapshot
from windlass.kubernetes_api.api import Api, ApiError
from windlass.kubernetes_api.names import CLAIM, ORPHANED, PROVISIONER
from windlass.kubernetes_api.objects import KubeNode, NodeClaim, NodeProvisioner
from windlass.kubernetes_api.saved_objects import NotSavedObjects, SavedObjects
from windlass.providers.protocol import Host, Instance, Provider
from windlass.workloads.kubernetes.mirror import CLAIMS, NODES, PROVISIONERS
from windlass.workloads.kubernetes.workload import KubernetesWorkload

from .observe_once import Listed, observe_all

ENOUGH: Final = 60.0
"""The time limit of reading a file, in seconds."""
KINDS: Final = "pods,nodes,nodeprovisioners,nodeclaims"
UNNAMED: Final = "provider"
"""The provider of NodeProvisioners without one."""


def saved_snapshot(data: bytes, now: float) -> tuple[Snapshot, list[str]]:
    """Return the snapshot of a saved cluster, and what was left out; ``NotSavedObjects`` if it cannot be planned."""
    objects = SavedObjects(data)
    if not objects.count(PROVISIONERS):
        raise NotSavedObjects(f"there is no NodeProvisioner in it: save it with kubectl get {KINDS} -A -o json")
    try:
        observation, mistakes = asyncio.run(_observed(objects, now))
    except ApiError as error:
        raise NotSavedObjects(
            f"an object in it cannot be read: {error}. Save it again with kubectl get {KINDS} -A -o json"
        ) from error
    if observation.work is None:
        raise NotSavedObjects("; ".join(observation.problems.values()) or "the objects cannot be read")
    settings = with_workload_groups(Settings(()), observation.work.shown.groups)
    before = ControllerState()
    observed = observed_now(before, observation, settings)
    fleet = fold(before.fleet, observed, settings, now).fleet
    snapshot = snapshot_of(fleet, observed.demand.values(), observed.request.values(), settings, now)
    return snapshot, [*mistakes, *observation.mistakes]


async def _observed(objects: SavedObjects, now: float) -> tuple[Observation, list[str]]:
    """Observe the objects; return the observation and the mistakes in NodeProvisioners."""
    api = Api(objects)
    provisioners, _ = await api.list_pages(PROVISIONERS, NodeProvisioner)
    names = {one.spec.provider for one in provisioners if one.spec.provider} or {UNNAMED}
    workload = KubernetesWorkload(api, names, read_only=True, now=lambda: now)
    try:
        providers = {name: Listed(cast(Provider, _Machines(api, name, len(names) == 1))) for name in sorted(names)}
        observation = await observe_all(providers, workload, ENOUGH, time.monotonic)
        known = workload.provisioners.items()
        return observation, [f"NodeProvisioner {name}: {text}" for name, one in known for text in one.mistakes]
    finally:
        await workload.close()


class _Machines:
    """A provider that lists the machines that the objects of the cluster show."""

    def __init__(self, api: Api, provider: str, only: bool) -> None:
        self._api, self._provider, self._only = api, provider, only

    async def list(self) -> Sequence[Instance]:
        nodes, _ = await self._api.list_pages(NODES, KubeNode)
        claims, _ = await self._api.list_pages(CLAIMS, NodeClaim)
        return list(self._instances(nodes, {one.metadata.name: one for one in claims}))

    def _instances(self, nodes: Iterable[KubeNode], claims: Mapping[str, NodeClaim]) -> Iterator[Instance]:
        left = dict(claims)
        for node in nodes:
            labels, notes = node.metadata.labels or {}, node.metadata.annotations or {}
            name = labels.get(CLAIM, "")
            claim = left.pop(name, None)
            if name and ORPHANED not in notes and self._is_sold(claim):
                host = Host(node.metadata.name, running=True)
                yield Instance(name, labels.get(PROVISIONER, ""), "running", (host,))
        for name, claim in left.items():
            if self._is_sold(claim):
                group = (claim.metadata.labels or {}).get(PROVISIONER, claim.spec.provisioner)
                yield Instance(name, group, "pending", (Host(name, running=False),))

    def _is_sold(self, claim: NodeClaim | None) -> bool:
        return self._only or (claim is not None and claim.spec.provider == self._provider)
