"""This module declares the provider type ``kuberay``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from windlass.providers.protocol import Provider
from windlass.providers.registry import ProviderContext, ProviderType
from windlass.scenario.declarations import REQUIRED
from windlass.setting_types import Name, Place, Section, Setting


def _build(settings: Mapping[str, Any], context: ProviderContext) -> Provider:
    from windlass.kubernetes_api.api import Api
    from windlass.kubernetes_api.connection import HttpTransport

    from .provider import KubeRayProvider

    transport = HttpTransport(settings["kubeconfig"], settings["context"], section=f"providers.{context.name}")
    return KubeRayProvider(
        Api(transport),
        settings["namespace"],
        settings["cluster"],
        read_only=context.read_only,
        now=context.now,
    )


KUBERAY: Final = ProviderType(
    summary="workers of a RayCluster of KubeRay. A group is the worker group of the same name, or that of "
    "`settings: {workerGroup: NAME}`.",
    section=Section(
        "a RayCluster of KubeRay",
        (
            Setting("namespace", Name(), REQUIRED, "", "The namespace of the RayCluster."),
            Setting("cluster", Name(), REQUIRED, "", "The name of the RayCluster."),
            Setting(
                "kubeconfig",
                Place(),
                None,
                "",
                "The file with the address of the Kubernetes cluster and the account to use.",
                absent="the pod's own account inside a cluster, else `$KUBECONFIG`, else `~/.kube/config`",
            ),
            Setting("context", Name(), None, "", "The context in that file.", absent="the current one"),
        ),
    ),
    build=_build,
    runs=frozenset({"ray"}),
    modules=("kubernetes", "msgspec"),
    extra="kubernetes",
)
