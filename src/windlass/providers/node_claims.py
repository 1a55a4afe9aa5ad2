"""NodeClaims around a provider: one object in the cluster for every machine, made before the machine is asked for.

A claim with its finalizer exists before the provider is called, so a machine that nobody remembers can always be found:
after a crash between the two, and by people who look with kubectl. A machine is ended only after one more look at the
node's pods in the server's database.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from windlass.kubernetes_api.api import Api, ApiError
from windlass.kubernetes_api.names import API_VERSION, FINALIZER, PROVISIONER

from .protocol import ClusterIdentity, Instance, LaunchOrder, Offering, Provider, ProviderError

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
    ) -> None:
        """``still_used``: what runs on a slice's nodes now, in words, empty if nothing. ``is_orphaned``: whether a
        machine was left to its user."""
        self.inner, self._name, self._api = inner, name, api
        self._still_used, self._is_orphaned = still_used, is_orphaned

    def bind(self, cluster: ClusterIdentity) -> None:
        self.inner.bind(cluster)

    async def launch(self, order: LaunchOrder, epoch: int) -> None:
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
        await self.inner.launch(order, epoch)

    async def terminate(self, slice_id: str, epoch: int) -> None:
        if self._is_orphaned(slice_id):
            return
        try:
            used = await self._still_used(slice_id)
        except ApiError as error:
            raise ProviderError(f"whether {slice_id} is empty cannot be seen: {error}") from error
        if used:
            raise ProviderError(f"{slice_id} is not ended: {used}")
        await self.inner.terminate(slice_id, epoch)

    async def list(self) -> Sequence[Instance]:
        return [one for one in await self.inner.list() if not self._is_orphaned(one.slice_id)]

    async def offerings(self) -> Sequence[Offering]:
        return await self.inner.offerings()

    async def close(self) -> None:
        await self.inner.close()
