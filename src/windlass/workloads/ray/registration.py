"""The declaration of the workload type ``ray``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from windlass.core.model.snapshot import Group
from windlass.scenario.declarations import REQUIRED
from windlass.setting_types import BadSettings, Duration, HostPort, Name, Place, Section, Setting, SubSection, Words
from windlass.workloads.dask_cluster.registration import TLS
from windlass.workloads.protocol import Workload
from windlass.workloads.registry import WorkloadContext, WorkloadType


def _build(settings: Mapping[str, Any], context: WorkloadContext) -> Workload:
    from .credentials import read_token
    from .workload import RayWorkload

    try:
        token, token_file = read_token(settings["token_file"], os.environ)
    except OSError as error:
        raise BadSettings([f"workload.token_file: cannot be read: {error.strerror}"]) from None
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
            for instance, name in getattr(provider, "names", {}).items()
        },
        look_only=context.look_only,
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
    summary="the tasks, actors and placement groups of a Ray cluster whose head runs already.",
    section=Section(
        "a Ray cluster",
        (
            Setting(
                "address",
                HostPort(),
                REQUIRED,
                "",
                "The GCS of the head, `HOST:PORT`. Nodes that Windlass has not bought are left alone, and their room "
                "counts.",
            ),
            Setting(
                "token_file",
                Place(),
                None,
                "",
                "The file with the token of a head with `RAY_AUTH_MODE=token`. The token goes to workers by their "
                "environment, and is written nowhere.",
                absent="`RAY_AUTH_TOKEN` or `RAY_AUTH_TOKEN_PATH` of the environment, else none",
            ),
            SubSection("tls", TLS, "What is shown to a head with `RAY_USE_TLS=1`, by Windlass and by workers."),
            Setting("ray", Name(), "ray", "", "The program that starts a worker: on PATH, or a path."),
            Setting("start", Words(), [], "", "Further words for `ray start`."),
            Setting(
                "poll",
                Duration(low=0.01, high=60),
                "0.2s",
                "s",
                "How often the GCS is asked; an ask costs it about a millisecond.",
            ),
            Setting(
                "silent",
                Duration(high=86400),
                "15s",
                "s",
                "How long a head may give no answer before `status` calls it in trouble. Until then too, nothing "
                "shrinks.",
            ),
        ),
    ),
    build=_build,
    runs_on=frozenset({"local", "simulated", "ssh", "aws", "gcp", "ray-node-provider", "kuberay"}),
    check=_check,
    modules=("grpc", "google.protobuf"),
    extra="ray",
)
