"""This module translates names of Kubernetes objects, as people type them, into the names that the controller uses.

``pod/NAMESPACE/NAME`` is a demand, or the machine it runs on; ``node/NAME`` is a slice; ``nodeprovisioner/NAME`` is a
group. If the name is ambiguous, the API server is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from windlass.config import Config

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
    """Possible names of the object in the controller, the most likely first; the given name is last."""
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


def slice_of_node(config: Config, name: str) -> str:
    """The slice that a node is a host of; the name itself where it is none."""
    if config.workload.type != "kubernetes":
        return name
    node = name.removeprefix("node/")
    return next(iter(_node(config, node)), node)


def _pod(config: Config, name: str) -> list[str]:
    from windlass.kubernetes_api.api import Api
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


async def _claim_of(api: object, name: str) -> list[str]:
    from windlass.kubernetes_api.api import Api
    from windlass.kubernetes_api.names import CLAIM
    from windlass.kubernetes_api.objects import KubeNode

    assert isinstance(api, Api)
    node = await api.get(f"/api/v1/nodes/{name}", KubeNode)
    claim = (node.metadata.labels or {}).get(CLAIM)
    return [claim] if claim else []


def _asked(config: Config, ask: Callable[..., Awaitable[list[str]]]) -> list[str]:
    """What the cluster answers; nothing if it does not have the object, or cannot be reached."""
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
