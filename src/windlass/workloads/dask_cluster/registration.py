"""This module declares the workload type ``dask``."""

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
        Setting("ca_file", Place(), None, "", "The file with the certificate authority.", absent="none"),
        Setting("cert", Place(), None, "", "The file with the certificate of Windlass and its workers.", absent="none"),
        Setting(
            "key",
            Place(),
            None,
            "",
            "The file with the key of the certificate.",
            absent="in the file of the certificate",
        ),
    ),
)
"""The TLS files of a workload, also used by ``ray``."""


def _build(settings: Mapping[str, Any], context: WorkloadContext) -> Workload:
    from .workload import DaskWorkload

    return DaskWorkload(
        settings["scheduler"],
        tls=settings["tls"],
        silent=settings["heartbeat_timeout"],
        target=settings["target_duration"],
        read_only=context.read_only,
        now=context.now,
    )


def _check(settings: Mapping[str, Any], groups: Sequence[Group]) -> list[str]:
    from .workload import unfit

    wrong = [f"groups.{group.name}.resources: {why}" for group in groups if (why := unfit(group))]
    tls, scheduler = settings["tls"], settings["scheduler"]
    encrypted = scheduler.startswith("tls://")
    if encrypted and not (tls["ca_file"] and tls["cert"]):
        wrong.append(
            f"workload.tls: {scheduler} needs certificates: give ca_file and cert, and key if it is in another file"
        )
    if any(tls.values()) and not encrypted:
        wrong.append(f"workload.tls: is for a scheduler at tls://HOST:PORT, but scheduler is {scheduler}")
    return wrong


DASK: Final = WorkloadType(
    summary="tasks of an existing Dask scheduler.",
    section=Section(
        "a Dask cluster",
        (
            Setting(
                "scheduler",
                Endpoint(("tcp", "tls")),
                REQUIRED,
                "",
                "The address of the scheduler: `tcp://HOST:PORT`. Windlass does not touch workers that it has not "
                "started.",
            ),
            SubSection("tls", TLS, "The TLS files of Windlass and of workers, for a scheduler at `tls://HOST:PORT`."),
            Setting(
                "target_duration",
                Duration(high=86400),
                "0s",
                "s",
                "The time within which all waiting tasks of one function should finish, by Dask's average of their "
                "duration. Windlass buys as many threads as this needs. `0s`: every waiting task gets a thread.",
            ),
            Setting(
                "heartbeat_timeout",
                Duration(low=1, high=86400),
                "2m",
                "s",
                "The time without a heartbeat after which a node is unhealthy. Code that holds Python's global lock "
                "(GIL) stops heartbeats, so do not set it too low. A dead process is noticed at once.",
            ),
        ),
    ),
    build=_build,
    runs_on=frozenset({"local"}),
    check=_check,
    modules=("distributed", "cloudpickle"),
    extra="pool",
)
