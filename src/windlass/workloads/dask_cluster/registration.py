"""The declaration of the workload type ``dask``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from windlass.core.model.snapshot import Group
from windlass.scenario.declarations import REQUIRED
from windlass.setting_types import Duration, Endpoint, Place, Section, Setting, SubSection
from windlass.workloads.protocol import Workload
from windlass.workloads.registry import WorkloadContext, WorkloadType

TLS: Final = Section(
    "tls",
    (
        Setting("ca_file", Place(), None, "", "The authority that signed the certificates.", absent="none"),
        Setting("cert", Place(), None, "", "The certificate of Windlass and its workers.", absent="none"),
        Setting("key", Place(), None, "", "The key of the certificate.", absent="in the file of the certificate"),
    ),
)
"""Certificates, for workloads whose head speaks TLS."""


def _build(settings: Mapping[str, Any], context: WorkloadContext) -> Workload:
    from .workload import DaskWorkload

    return DaskWorkload(
        settings["scheduler"],
        tls=settings["tls"],
        silent=settings["heartbeat_timeout"],
        target=settings["target_duration"],
        look_only=context.look_only,
        now=context.now,
    )


def _check(settings: Mapping[str, Any], groups: Sequence[Group]) -> list[str]:
    from .workload import unfit

    wrong = [f"groups.{group.name}.resources: {why}" for group in groups if (why := unfit(group))]
    tls, scheduler = settings["tls"], settings["scheduler"]
    encrypted = scheduler.startswith("tls://")
    if encrypted and not (tls["ca_file"] and tls["cert"]):
        wrong.append(f"workload.tls: {scheduler} wants certificates: give ca_file and cert, and key if it is apart")
    if any(tls.values()) and not encrypted:
        wrong.append(f"workload.tls: is for a scheduler at tls://HOST:PORT, and it is at {scheduler}")
    return wrong


DASK: Final = WorkloadType(
    summary="the tasks of a Dask scheduler that runs already.",
    section=Section(
        "a Dask cluster",
        (
            Setting(
                "scheduler",
                Endpoint(("tcp", "tls")),
                REQUIRED,
                "",
                "Where the scheduler listens, as clients write it: `tcp://HOST:PORT`. Workers that Windlass has "
                "not bought are left alone.",
            ),
            SubSection("tls", TLS, "What is shown to a scheduler at `tls://HOST:PORT`, by Windlass and by workers."),
            Setting(
                "target_duration",
                Duration(high=86400),
                "0s",
                "s",
                "In about this time all waiting tasks of one function should be through, by Dask's averages of how "
                "long they take: nodes are bought for as many as must run at once for that. `0s`: every waiting "
                "task gets a thread.",
            ),
            Setting(
                "heartbeat_timeout",
                Duration(low=1, high=86400),
                "2m",
                "s",
                "How long a worker may send no heartbeat before its node is unhealthy. Code that holds Python's "
                "lock sends none; a process that died is seen at once.",
            ),
        ),
    ),
    build=_build,
    runs_on=frozenset({"local"}),
    check=_check,
    modules=("distributed", "cloudpickle"),
    extra="pool",
)
