"""The registry lists the workload types that a configuration can name.

A type is a ``WorkloadType``: its settings, how it is built, and on which providers it can run. Those of this package
are in ``BUILT_IN``. Another package adds one with an entry point of the group ``windlass.workloads``, whose name is the
type and whose value is a ``WorkloadType``. A workload and a provider fit together if either one lists the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from windlass._registry import Registry
from windlass.core.model.snapshot import Group, Snapshot
from windlass.setting_types import Section

from .protocol import Workload


@dataclass(frozen=True, slots=True)
class WorkloadContext:
    """What a workload is built with, besides its own settings."""

    providers: Mapping[str, Any]
    """The providers of the configuration, by name."""
    snapshot: Snapshot
    """The groups and limits of the configuration, without facts."""
    read_only: bool
    """True: built for ``plan --live`` or ``doctor`` beside a running controller; it must only observe."""
    now: Callable[[], float]


def _nothing_wrong(settings: Mapping[str, Any], groups: Sequence[Group]) -> list[str]:  # noqa: ARG001
    return []


@dataclass(frozen=True, slots=True)
class WorkloadType:
    """One type of workload."""

    summary: str
    """One sentence for the reference."""
    section: Section
    build: Callable[[Mapping[str, Any], WorkloadContext], Workload] | None
    """None: a configuration of this type is only for reading the state; its controller runs elsewhere."""
    runs_on: frozenset[str]
    """The provider types on whose machines it can run."""
    check: Callable[[Mapping[str, Any], Sequence[Group]], list[str]] = _nothing_wrong
    """What is wrong with its settings and groups together: messages that begin with the path of the setting."""
    groups_optional: bool = False
    """True: the groups come from the workload itself, and the file needs none."""
    modules: tuple[str, ...] = ()
    """Modules that must be installed for it."""
    extra: str = ""
    """The extra of this package that installs them."""


BUILT_IN: Final[Mapping[str, str]] = {
    "queue": "windlass.workloads.queue.registration:QUEUE",
    "dask": "windlass.workloads.dask_cluster.registration:DASK",
    "ray": "windlass.workloads.ray.registration:RAY",
    "simulated": "windlass.sim.workload.registration:SIMULATED",
    "kubernetes": "windlass.config.kubernetes:KUBERNETES",
    "pool": "windlass.pool.scaling.registration:POOL",
}
"""Where each type of this package is declared."""

WORKLOAD_TYPES: Final = Registry("windlass.workloads", BUILT_IN, WorkloadType)
