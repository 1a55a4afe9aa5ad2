"""This module declares the workload type ``ray``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from windlass.core.model.snapshot import Group
from windlass.scenario.declarations import REQUIRED
from windlass.setting_types import BadSettings, Duration, HostPort, Name, Place, Section, Setting, SubSection, Words
from windlass.workloads.dask_cluster.registration import TLS
from windlass.workloads.protocol import NodeNamingProvider, Workload
from windlass.workloads.registry import WorkloadContext, WorkloadType


def _build(settings: Mapping[str, Any], context: WorkloadContext) -> Workload:
    from .credentials import TOKEN_PATH, read_token
    from .workload import RayWorkload

    try:
        token, token_file = read_token(settings["token_file"], os.environ)
    except OSError as error:
        path = str(settings["token_file"] or os.environ.get(TOKEN_PATH))
        raise BadSettings([f"workload.token_file: {path[:200]} cannot be read: {error.strerror}"]) from None
    return RayWorkload(
        settings["address"],
        token=token,
        token_file=token_file,
        tls=settings["tls"],
        ray=settings["ray"],
        start=settings["start"],
        poll=settings["poll"],
        silent=settings["silent"],
        names=lambda: {
            instance: name
            for provider in context.providers.values()
            if isinstance(provider, NodeNamingProvider)
            for instance, name in provider.names.items()
        },
        read_only=context.read_only,
        now=context.now,
    )


def _check(settings: Mapping[str, Any], groups: Sequence[Group]) -> list[str]:
    from .join import unfit

    wrong = [f"groups.{group.name}: {why}" for group in groups if (why := unfit(group))]
    tls = settings["tls"]
    if any(tls.values()) and not tls["ca_file"]:
        wrong.append("workload.tls.ca_file: is required with cert and key: the authority that signed the certificates")
    return wrong


RAY: Final = WorkloadType(
    summary="tasks, actors and placement groups of an existing Ray cluster.",
    section=Section(
        "a Ray cluster",
        (
            Setting(
                "address",
                HostPort(),
                REQUIRED,
                "",
                "The address of the head's GCS: `HOST:PORT`. Windlass does not touch nodes that it has not started, "
                "but uses their free capacity.",
            ),
            Setting(
                "token_file",
                Place(),
                None,
                "",
                "The file with the token, for a head with `RAY_AUTH_MODE=token`. The token is in no journal, log or "
                "status.",
                absent="`RAY_AUTH_TOKEN` or `RAY_AUTH_TOKEN_PATH` of the environment, else none",
            ),
            SubSection("tls", TLS, "The TLS files of Windlass and of workers, for a head with `RAY_USE_TLS=1`."),
            Setting("ray", Name(), "ray", "", "The program that starts a worker: a name on PATH, or a path."),
            Setting("start", Words(), [], "", "Additional arguments of `ray start`."),
            Setting(
                "poll",
                Duration(low=0.01, high=60),
                "0.2s",
                "s",
                "The interval at which the GCS is polled. A poll takes about a millisecond of the GCS.",
            ),
            Setting(
                "silent",
                Duration(high=86400),
                "15s",
                "s",
                "How long the head may be silent before `status` reports a problem. Nothing is released while it is "
                "silent, also before that.",
            ),
        ),
    ),
    build=_build,
    runs_on=frozenset({"local", "simulated", "ssh", "aws", "ray-node-provider", "kuberay"}),
    check=_check,
    modules=("grpc", "google.protobuf"),
    extra="ray",
)
