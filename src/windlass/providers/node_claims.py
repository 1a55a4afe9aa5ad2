"""This module wraps a provider and creates a NodeClaim object for every machine before it is launched.

The claim and its finalizer exist before the provider is called, so every machine has a record, even after a crash
between the two, and people can see it with kubectl. A machine is ended only after its node's pods were read once more
from the API server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

from windlass.kubernetes_api.api import Api, ApiError
from windlass.kubernetes_api.names import API_VERSION, FINALIZER, PROVISIONER
from windlass.kubernetes_api.objects import Versioned

from .protocol import ClusterIdentity, Instance, LaunchOrder, Offering, Provider, ProviderError

SYSTEM: Final = "kube-system"
"""A namespace that every cluster has from its beginning; its uid identifies the cluster."""
CLAIMS: Final = "/apis/windlass.dev/v1alpha1/nodeclaims"


class NodeClaimProvider:
    """Passes calls on to another provider, with a claim for each machine."""

    def __init__(
        self,
        inner: Provider,
        name: str,
        api: Api,
        *,
        still_used: Callable[[str], Awaitable[str]],
        is_orphaned: Callable[[str], bool] = lambda _: False,
        may_act: Callable[[], bool] = lambda: True,
    ) -> None:
        """``still_used``: describes what runs on a slice's nodes now, empty if nothing. ``is_orphaned``: whether the
        user has kept the machine after its claim was deleted. ``may_act``: whether this controller holds the lease."""
        self.inner, self._name, self._api = inner, name, api
        self._still_used, self._is_orphaned, self._may_act = still_used, is_orphaned, may_act
        self._cluster, self._is_bound = ClusterIdentity(), False

    def bind(self, cluster: ClusterIdentity) -> None:
        """Set the cluster's name. Its id is that of the Kubernetes cluster, which all of its controllers share.

        The journal's id is not used: the next leader may have another journal, and must find the same machines.
        """
        self._cluster, self._is_bound = cluster, False

    async def _bound(self) -> ClusterIdentity:
        if not self._is_bound:
            try:
                system = await self._api.get(f"/api/v1/namespaces/{SYSTEM}", Versioned)
            except ApiError as error:
                raise ProviderError(f"the Kubernetes cluster cannot be identified: {error}") from error
            self._cluster = ClusterIdentity(self._cluster.name, f"kubernetes-{system.metadata.uid}")
            self.inner.bind(self._cluster)
            self._is_bound = True
        return self._cluster

    async def launch(self, order: LaunchOrder, epoch: int) -> None:
        self._check_lease()
        body = {
            "apiVersion": API_VERSION,
            "kind": "NodeClaim",
            "metadata": {
                "name": order.slice_id,
                "labels": {PROVISIONER: order.group},
                "finalizers": [FINALIZER],
            },
            "spec": {"provisioner": order.group, "provider": self._name},
        }
        try:
            await self._api.create(CLAIMS, body)
        except ApiError as error:
            if not error.is_conflict:
                raise ProviderError(f"the NodeClaim {order.slice_id} cannot be created: {error}") from error
        await self.inner.launch(replace(order, cluster=await self._bound()), epoch)

    async def terminate(self, slice_id: str, epoch: int) -> None:
        self._check_lease()
        if self._is_orphaned(slice_id):
            return
        try:
            used = await self._still_used(slice_id)
        except ApiError as error:
            raise ProviderError(f"the pods of {slice_id} cannot be read, so it is not ended: {error}") from error
        if used:
            raise ProviderError(f"{slice_id} is not ended: {used}")
        self._check_lease()
        await self._bound()
        await self.inner.terminate(slice_id, epoch)

    def _check_lease(self) -> None:
        if not self._may_act():
            raise ProviderError("the lease of this controller has expired: nothing was changed")

    async def list(self) -> Sequence[Instance]:
        await self._bound()
        return [one for one in await self.inner.list() if not self._is_orphaned(one.slice_id)]

    async def offerings(self) -> Sequence[Offering]:
        return await self.inner.offerings()

    async def close(self) -> None:
        await self.inner.close()
