"""This module declares the workload type ``pool``, with which the command line reads a running pool."""

from __future__ import annotations

from typing import Final

from windlass.setting_types import Section
from windlass.workloads.registry import WorkloadType

POOL: Final = WorkloadType(
    summary="tasks of a program in Python, which runs its controller itself; its configuration is for looking at it.",
    section=Section("a pool", ()),
    build=None,
    runs_on=frozenset(),
)
