"""Windlass decides how many machines a cluster needs, and tells why.

It can be asked before it acts: ``plan`` takes a snapshot, all that is known at one instant, and says what it would do
and why. A snapshot comes from a scenario file (``read_scenario``) or is written in Python (``snapshot``, ``group``,
``slice_``, ``node``, ``demand``, ``gang``).

What is exported here is loaded when it is first used, so that ``import windlass`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .builders import demand, gang, group, node, slice_, snapshot
    from .core.plan import Plan
    from .core.planner import plan
    from .core.snapshot import Snapshot
    from .scenario.reading import ScenarioError
    from .scenario.scenario import read_scenario
    from .scenario.writing import write_scenario

__version__ = "0.1.0"

__all__ = [
    "Plan",
    "ScenarioError",
    "Snapshot",
    "__version__",
    "demand",
    "gang",
    "group",
    "node",
    "plan",
    "read_scenario",
    "slice_",
    "snapshot",
    "write_scenario",
]

_HOMES = {
    "Plan": "core.plan",
    "ScenarioError": "scenario.reading",
    "Snapshot": "core.snapshot",
    "demand": "builders",
    "gang": "builders",
    "group": "builders",
    "node": "builders",
    "plan": "core.planner",
    "read_scenario": "scenario.scenario",
    "slice_": "builders",
    "snapshot": "builders",
    "write_scenario": "scenario.writing",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
