"""This module declares the workload type ``queue``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from windlass.setting_types import Place, Section, Setting
from windlass.workloads.protocol import Workload
from windlass.workloads.registry import WorkloadContext, WorkloadType


def _build(settings: Mapping[str, Any], context: WorkloadContext) -> Workload:
    from .workload import QueueWorkload

    return QueueWorkload(settings["directory"], read_only=context.read_only, now=context.now)


QUEUE: Final = WorkloadType(
    summary="commands in a queue on this computer.",
    section=Section(
        "a queue",
        (
            Setting(
                "directory",
                Place(),
                ".windlass/queue",
                "",
                "The directory of the queue and of the output of its tasks.",
            ),
        ),
    ),
    build=_build,
    runs_on=frozenset({"local"}),
)
