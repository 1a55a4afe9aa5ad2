"""This module translates names of Kubernetes objects, as users type them, into the names that the controller uses.

``pod/NAMESPACE/NAME`` is a demand, or the machine it runs on; ``node/NAME`` is a slice; ``nodeprovisioner/NAME`` is a
group. If the name is ambiguous, the API server is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from windlass.config import Config

if TYPE_CHECKING:
    from windlass.kubernetes_api.api import Api

T = TypeVar("T")
KINDS = {
    "pod": "pod",
    "pods": "pod",
    "node": "node",
    "nodes": "node",
    "nodeprovisioner": "nodeprovisioner",
    "nodeprovisioners": "nodeprovisioner",
    "wnp": "nodeprovisioner",
    "nodeclaim": "nodeclaim",
    "nodeclaims": "nodeclaim",
    "wnc": "nodeclaim",
}


def kubernetes_names(config: Config, name: str) -> list[str]:
    """Return the possible names of the object in the controller, the most likely first; the given name is last."""
    kind, slash, rest = name.partition("/")
    if config.workload.type != "kubernetes" or not slash or kind not in KINDS:
        return [name]
    match KINDS[kind]:
        case "pod":
            return [*_pod(config, rest), rest, name]
        case "node":
            return [*_node(config, rest), rest, name]
        case _:
            return [rest, name]


def unknown_object(config: Config, name: str) -> str:
    """Say why the controller does not know an object; empty if that is not an object of Kubernetes, or not known."""
    kind, slash, rest = name.partition("/")
    if config.workload.type != "kubernetes" or not slash or kind not in KINDS:
        return ""
    match KINDS[kind]:
        case "pod":
            found = _asked(config, lambda api: _ignored_pod(api, rest))
        case "node":
            found = _asked(config, lambda api: _foreign_node(api, rest))
        case "nodeprovisioner":
            found = _asked(config, lambda api: _invalid_provisioner(api, rest))
        case _:
            found = []
    return next(iter(found), "")


async def _ignored_pod(api: Api, name: str) -> list[str]:
    from windlass.kubernetes_api.objects import Pod
    from windlass.workloads.kubernetes.translate.pods import ignored_because

    namespace, _, short = name.rpartition("/")
    pod = await api.get(f"/api/v1/namespaces/{namespace or 'default'}/pods/{short}", Pod)
    return [f"no machine is bought for pod {pod.metadata.namespace}/{short}: {ignored_because(pod)}"]


async def _foreign_node(api: Api, name: str) -> list[str]:
    from windlass.kubernetes_api.objects import KubeNode

    node = await api.get(f"/api/v1/nodes/{name}", KubeNode)
    return [f"node {node.metadata.name} does not belong to a NodeProvisioner: Windlass leaves it alone"]


async def _invalid_provisioner(api: Api, name: str) -> list[str]:
    from windlass.kubernetes_api.objects import NodeProvisioner

    found = await api.get(f"/apis/windlass.dev/v1alpha1/nodeprovisioners/{name}", NodeProvisioner)
    conditions = (found.status or {}).get("conditions") or ()
    why = next((one["message"] for one in conditions if one["type"] == "Ready" and one["status"] == "False"), "")
    return [f"NodeProvisioner {name} is not in use: {why or 'no controller has read it yet'}"]


def slice_of_node(config: Config, name: str) -> str:
    """Return the slice of a node; the name itself if it has none."""
    if config.workload.type != "kubernetes":
        return name
    node = name.removeprefix("node/")
    return next(iter(_node(config, node)), node)


def _pod(config: Config, name: str) -> list[str]:
    from windlass.kubernetes_api.objects import Pod
    from windlass.workloads.kubernetes.translate.demand import demand_id
    from windlass.workloads.kubernetes.translate.pods import PodMirror

    namespace, _, short = name.rpartition("/")

    async def ask(api: Api) -> list[str]:
        pod = PodMirror()(await api.get(f"/api/v1/namespaces/{namespace or 'default'}/pods/{short}", Pod))
        node = await _claim_of(api, pod.node) if pod.node else []
        return [demand_id(pod), *node]

    return _asked(config, ask)


def _node(config: Config, name: str) -> list[str]:
    return _asked(config, lambda api: _claim_of(api, name))


async def _claim_of(api: Api, name: str) -> list[str]:
    from windlass.kubernetes_api.names import CLAIM
    from windlass.kubernetes_api.objects import KubeNode

    node = await api.get(f"/api/v1/nodes/{name}", KubeNode)
    claim = (node.metadata.labels or {}).get(CLAIM)
    return [claim] if claim else []


def _asked(config: Config, ask: Callable[..., Awaitable[list[str]]]) -> list[str]:
    """Get an object from the cluster; empty if it does not exist or the cluster cannot be reached."""
    from windlass.kubernetes_api.api import Api, ApiError
    from windlass.kubernetes_api.connection import HttpTransport

    async def main() -> list[str]:
        given = config.workload.settings
        api = Api(HttpTransport(given["kubeconfig"], given["context"]), timeout=5.0)
        try:
            return await ask(api)
        except ApiError:
            return []
        finally:
            await api.close()

    return asyncio.run(main())
