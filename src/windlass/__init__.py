"""Windlass decides how many machines a cluster needs, and explains each decision.

``plan`` takes a snapshot of a cluster at one instant, and returns what Windlass would do and why. A snapshot comes from
a scenario file (``read_scenario``) or is written in Python (``snapshot``, ``group``, ``slice_``, ``node``, ``demand``,
``gang``).

``ComputePool`` runs functions of a Python program (``compute``, ``gather``, ``gang``) on nodes
whose number follows the work.

Exported names are loaded on first use, so that ``import windlass`` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windlass.core.model.plan import Plan
    from windlass.core.model.snapshot import Snapshot
    from windlass.core.planner import plan
    from windlass.pool.client.api import compute, gather
    from windlass.pool.client.here import here
    from windlass.pool.environment import Image
    from windlass.pool.errors import (
        EngineLost,
        NodeLost,
        NothingFits,
        PoolError,
        TaskCrashed,
        TaskError,
        TaskTimeout,
    )
    from windlass.pool.local import Local
    from windlass.pool.machines import AWS, SSH
    from windlass.pool.options import Nodes
    from windlass.pool.pool import ComputePool
    from windlass.scenario.reader import ScenarioError
    from windlass.scenario.scenario import read_scenario
    from windlass.scenario.writer import write_scenario

    from ._gang import gang
    from .builders import demand, family, group, node, slice_, snapshot

from ._extras import install_command
from ._version import __version__

__all__ = [
    "AWS",
    "SSH",
    "ComputePool",
    "EngineLost",
    "Image",
    "Local",
    "NodeLost",
    "Nodes",
    "NothingFits",
    "Plan",
    "PoolError",
    "ScenarioError",
    "Snapshot",
    "TaskCrashed",
    "TaskError",
    "TaskTimeout",
    "__version__",
    "compute",
    "demand",
    "family",
    "gang",
    "gather",
    "group",
    "here",
    "node",
    "plan",
    "read_scenario",
    "slice_",
    "snapshot",
    "write_scenario",
]

_HOMES = {
    "AWS": "pool.machines",
    "SSH": "pool.machines",
    "ComputePool": "pool.pool",
    "Image": "pool.environment",
    "Local": "pool.local",
    "Nodes": "pool.options",
    "EngineLost": "pool.errors",
    "NodeLost": "pool.errors",
    "NothingFits": "pool.errors",
    "Plan": "core.model.plan",
    "PoolError": "pool.errors",
    "ScenarioError": "scenario.reader",
    "Snapshot": "core.model.snapshot",
    "TaskCrashed": "pool.errors",
    "TaskError": "pool.errors",
    "TaskTimeout": "pool.errors",
    "compute": "pool.client.api",
    "demand": "builders",
    "family": "builders",
    "gang": "_gang",
    "gather": "pool.client.api",
    "group": "builders",
    "here": "pool.client.here",
    "node": "builders",
    "plan": "core.planner",
    "read_scenario": "scenario.scenario",
    "slice_": "builders",
    "snapshot": "builders",
    "write_scenario": "scenario.writer",
}

_EXTRAS = {"asyncssh": "ssh", "boto3": "aws", "cloudpickle": "pool", "distributed": "pool"}
"""Optional packages, and the extras that install them."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        if error.name in _EXTRAS:
            extra = _EXTRAS[error.name]
            text = f"{name} needs {error.name}, which is not installed: {install_command(extra)}"
            raise ImportError(text) from None
        raise
    except KeyboardInterrupt as interrupt:
        from ._interrupts import print_no_traceback

        print_no_traceback(interrupt, "interrupted while Windlass was loading")
        raise
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
