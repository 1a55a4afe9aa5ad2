"""This module declares the workload type ``kubernetes`` and builds its parts.

The workload, its providers and the election share one client. Every provider gets a NodeClaim for each machine.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from windlass.core.model.snapshot import Group
from windlass.scenario.reader import shown
from windlass.setting_types import Duration, Name, Place, Section, Setting
from windlass.workloads.protocol import Workload
from windlass.workloads.registry import WorkloadContext, WorkloadType

if TYPE_CHECKING:
    from windlass.providers.protocol import Provider
    from windlass.workloads.kubernetes.workload import KubernetesWorkload


def _check(settings: Mapping[str, Any], groups: Sequence[Group]) -> list[str]:  # noqa: ARG001
    listen = settings["listen"]
    if listen is None:
        return []
    host, _, port = listen.rpartition(":")
    good = bool(host) and port.isdecimal() and int(port) < 2**16
    return [] if good else [f"workload.listen: must be HOST:PORT such as 0.0.0.0:8080, is {shown(listen)}"]


def _build(settings: Mapping[str, Any], context: WorkloadContext) -> Workload:
    from windlass.kubernetes_api.api import Api
    from windlass.kubernetes_api.connection import HttpTransport
    from windlass.kubernetes_api.names import NAMESPACE
    from windlass.workloads.kubernetes.health import HealthServer
    from windlass.workloads.kubernetes.lease import LeaseElection
    from windlass.workloads.kubernetes.publish.publisher import DecisionPublisher
    from windlass.workloads.kubernetes.workload import KubernetesWorkload

    api = Api(HttpTransport(settings["kubeconfig"], settings["context"]))
    election = None
    if not context.read_only:
        namespace = settings["namespace"] or os.environ.get("POD_NAMESPACE") or NAMESPACE
        holder = os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}"
        election = LeaseElection(api, namespace, holder, duration=settings["lease"], now=context.now)

    def publisher(workload: KubernetesWorkload) -> DecisionPublisher:
        assert election is not None
        return DecisionPublisher(workload, may_write=election.is_held, epoch=lambda: election.epoch, now=context.now)

    def with_claims(workload: KubernetesWorkload, name: str, provider: Provider) -> Provider:
        from windlass.providers.node_claims import NodeClaimProvider
        from windlass.providers.protocol import KubernetesProvider

        if isinstance(provider, NodeClaimProvider):
            provider = provider.inner
        if isinstance(provider, KubernetesProvider):
            provider.use_kubernetes(api)
        return NodeClaimProvider(
            provider,
            name,
            api,
            still_used=workload.still_used,
            is_orphaned=workload.is_orphaned,
            may_act=election.is_held if election is not None else lambda: False,
        )

    return KubernetesWorkload(
        api,
        context.providers,
        publisher=publisher,
        wrap=with_claims,
        settle=settings["settle"],
        election=election,
        health=None if settings["listen"] is None else HealthServer(settings["listen"]),
        read_only=context.read_only,
        now=context.now,
    )


KUBERNETES: Final = WorkloadType(
    summary="the pods of a Kubernetes cluster; each NodeProvisioner is a group.",
    section=Section(
        "a Kubernetes cluster",
        (
            Setting(
                "kubeconfig",
                Place(),
                None,
                "",
                "The file with the address of the cluster and the account to use.",
                absent="the pod's own account inside a cluster, else `$KUBECONFIG`, else `~/.kube/config`",
            ),
            Setting("context", Name(), None, "", "The context in that file.", absent="the current one"),
            Setting(
                "namespace",
                Name(),
                None,
                "",
                "The namespace of the Lease that elects the leader among several controllers.",
                absent="the controller's own, else `windlass-system`",
            ),
            Setting(
                "lease",
                Duration(low=1, high=3600),
                "15s",
                "s",
                "How long a leader may be silent before another controller takes over.",
            ),
            Setting(
                "settle",
                Duration(high=600),
                "5s",
                "s",
                "The time between the `NoSchedule` taint of a node and the last check that it has no pods.",
            ),
            Setting(
                "listen",
                Name(),
                None,
                "",
                "`HOST:PORT` for `/healthz`, `/readyz` and `/metrics`.",
                absent="nothing is served",
            ),
        ),
    ),
    build=_build,
    runs_on=frozenset({"kwok", "aws"}),
    check=_check,
    groups_optional=True,
    modules=("kubernetes", "msgspec"),
    extra="kubernetes",
)
