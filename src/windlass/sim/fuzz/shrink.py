"""This module shrinks a failing run to the smallest script that still fails, and writes it as a test.

It removes one thing at a time (a fault, a job, a group, half of the time) as long as the same invariant breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from fractions import Fraction
from math import inf
from typing import Any

from windlass.sim.run.script import Script

TRIES = 400
"""Most runs for shrinking: some minutes."""


def shrunken(script: Script, breaks: Callable[[Script], bool], tries: int = TRIES) -> Script:
    """Return the smallest script found for which ``breaks`` still holds."""
    left = tries
    progress = True
    while progress and left > 0:
        progress = False
        for smaller in _smaller(script):
            left -= 1
            if breaks(smaller):
                script, progress = smaller, True
                break
            if left <= 0:
                break
    return script


def _smaller(script: Script) -> Iterator[Script]:
    """Yield scripts with one thing removed, the largest steps first."""
    for name in ("faults", "jobs", "requests"):
        many = getattr(script, name)
        if len(many) > 3:
            half = len(many) // 2
            yield _with(script, name, many[:half])
            yield _with(script, name, many[half:])
    for name in ("faults", "jobs", "requests"):
        many = getattr(script, name)
        for index in range(len(many)):
            yield _with(script, name, (*many[:index], *many[index + 1 :]))
    groups = script.settings.groups
    for index in range(len(groups) if len(groups) > 1 else 0):
        fewer = (*groups[:index], *groups[index + 1 :])
        yield replace(script, settings=replace(script.settings, groups=fewer))
    if script.hours > 0.1:
        yield replace(script, hours=script.hours / 2)


def _with(script: Script, name: str, many: tuple[Any, ...]) -> Script:
    changed: dict[str, Any] = {name: many}
    return replace(script, **changed)


def as_test(script: Script, text: str) -> str:
    """Return a pytest function that runs the script and asserts that no invariant breaks."""
    name = f"seed_{script.seed}"
    body = written(script, 1)
    return f'''"""{text}"""

from fractions import Fraction
from math import inf

from windlass.control.settings import BackOff, GroupSettings, Interval, Policy, Settings
from windlass.core.model.snapshot import (
    Availability, Bundle, Cluster, Demand, Gang, Group, LowUtilization, ScaleDown, UtilizationTarget,
)
from windlass.providers.protocol import Offering
from windlass.sim.run.simulation import simulate
from windlass.sim.faults.catalogue import Fault
from windlass.sim.workload.jobs import Job
from windlass.sim.cloud.machines import MachineKind
from windlass.sim.run.script import Script


def test_{name}():
    script = {body}
    assert simulate(script).breaches == ()
'''


def written(value: Any, depth: int = 0) -> str:
    """Return a value as Python code, without default values."""
    if is_dataclass(value) and not isinstance(value, type):
        parts = []
        for one in fields(value):
            held = getattr(value, one.name)
            if held != one.default and not (callable(one.default_factory) and held == one.default_factory()):
                parts.append(f"{one.name}={written(held, depth + 1)}")
        return _lines(type(value).__name__ + "(", parts, ")", depth)
    if isinstance(value, tuple):
        inner = [written(one, depth + 1) for one in value]
        return f"({inner[0]},)" if len(inner) == 1 else _lines("(", inner, ")", depth)
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, Fraction):
        return f"Fraction({value.numerator}, {value.denominator})"
    if isinstance(value, float) and value in (inf, -inf):
        return "inf" if value > 0 else "-inf"
    return repr(value)


def _lines(opening: str, parts: list[str], closing: str, depth: int) -> str:
    line = f"{opening}{', '.join(parts)}{closing}"
    if len(line) + 4 * depth <= 110:
        return line
    indent = "    " * (depth + 1)
    return f"{opening}\n" + "".join(f"{indent}{part},\n" for part in parts) + "    " * depth + closing
