"""This module declares the workload type ``pool``, with which the command line reads a running pool."""

from __future__ import annotations

from typing import Final

from windlass.setting_types import Section
from windlass.workloads.registry import WorkloadType

POOL: Final = WorkloadType(
    summary="tasks of a Python program, which runs its own controller; the configuration is for reading its state.",
    section=Section("a pool", ()),
    build=None,
    runs_on=frozenset(),
)
