"""This wrapper makes one NodeClaim object for every machine, before the provider is asked for the machine.

A claim with its finalizer exists before the provider is called, so a machine without a record can always be found:
after a crash between the two, and by people who look with kubectl. A machine is ended only after one more look at the
node's pods in the server's database.
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
"""The namespace that every cluster has for as long as it exists: its uid identifies the cluster."""
CLAIMS: Final = "/apis/windlass.dev/v1alpha1/nodeclaims"


class NodeClaimProvider:
    """Sells what another provider sells, with a claim for each machine."""

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
        """``still_used``: what runs on a slice's nodes now, in words, empty if nothing. ``is_orphaned``: whether a
        machine was left to its user. ``may_act``: whether this controller holds the lease."""
        self.inner, self._name, self._api = inner, name, api
        self._still_used, self._is_orphaned, self._may_act = still_used, is_orphaned, may_act
        self._cluster, self._is_bound = ClusterIdentity(), False

    def bind(self, cluster: ClusterIdentity) -> None:
        """Take the cluster's name; its id is that of the Kubernetes cluster, which every controller of it shares.

        The journal's id would not do: the controller that takes over may have another journal, and must find the
        machines of the first.
        """
        self._cluster, self._is_bound = cluster, False

    async def _bound(self) -> ClusterIdentity:
        if not self._is_bound:
            try:
                system = await self._api.get(f"/api/v1/namespaces/{SYSTEM}", Versioned)
            except ApiError as error:
                raise ProviderError(f"the cluster cannot be identified: {error}") from error
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
                raise ProviderError(f"the claim {order.slice_id} cannot be made: {error}") from error
        await self.inner.launch(replace(order, cluster=await self._bound()), epoch)

    async def terminate(self, slice_id: str, epoch: int) -> None:
        self._check_lease()
        if self._is_orphaned(slice_id):
            return
        try:
            used = await self._still_used(slice_id)
        except ApiError as error:
            raise ProviderError(f"whether {slice_id} is empty cannot be seen: {error}") from error
        if used:
            raise ProviderError(f"{slice_id} is not ended: {used}")
        self._check_lease()
        await self._bound()
        await self.inner.terminate(slice_id, epoch)

    def _check_lease(self) -> None:
        if not self._may_act():
            raise ProviderError("the lease of this controller has run out: nothing is changed")

    async def list(self) -> Sequence[Instance]:
        await self._bound()
        return [one for one in await self.inner.list() if not self._is_orphaned(one.slice_id)]

    async def offerings(self) -> Sequence[Offering]:
        return await self.inner.offerings()

    async def close(self) -> None:
        await self.inner.close()
