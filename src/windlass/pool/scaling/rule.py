"""The scaling rule computes from the pressure on a pool how many nodes it should have, and why.

    queued work with no free slot          -> nodes for ceil((queued + running) / slots), at once
    nothing running for the idle timeout   -> min
    something runs, nothing is queued, and little is used for a while -> ceil(running / slots) and one more
    else                                   -> no change

Growing is never damped. Shrinking waits until the use has been low for the cooldown, and for another cooldown after
each shrink, so a pause between two phases of work costs no nodes. Nodes that boot count as nodes. The rule is pure:
time and memory are arguments, and the next memory is part of the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from windlass.core.model.reasons import plural, seconds

LITTLE = 30
"""Per cent of the slots in use below which the pool is too large."""
SPARE = 1
"""Nodes that a shrink keeps in addition to those that running tasks need, so that the next task finds a free slot."""


@dataclass(frozen=True, slots=True)
class Pressure:
    """What a pool's task book reports on every change."""

    queued: int
    """Tasks that have not been placed."""
    running: int
    """Slots in use."""
    slots: int
    """Slots of one node."""
    nodes: int
    """Nodes that take tasks now, or will after their boot."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings of the pool's user. Times in seconds."""

    min: int = 0
    max: int = 1
    cooldown: float = 30.0
    idle_timeout: float = 60.0


@dataclass(frozen=True, slots=True)
class Memory:
    """What the rule remembers from one evaluation to the next."""

    idle_since: float | None = None
    """Since when nothing runs and nothing is queued."""
    low_since: float | None = None
    """Since when the use is low, or the last shrink."""


Action = Literal["grow", "steady", "shrink", "idle"]


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    """The number of nodes that the pool should have, and why."""

    nodes: int
    action: Action
    reason: str
    memory: Memory
    due: float | None = None
    """When the decision may change although nothing happens."""


def decide(pressure: Pressure, memory: Memory, now: float, limits: Limits) -> ScalingDecision:
    """Apply the rule to the pressure, and return the decision and the next memory."""
    nodes, room = pressure.nodes, pressure.nodes * pressure.slots
    if nodes < limits.min:
        return ScalingDecision(limits.min, "grow", f"{_nodes(nodes)}, at least {limits.min} wanted", Memory())
    if pressure.queued:
        return _with_a_queue(pressure, limits)
    idle_since = _since(memory.idle_since, now) if pressure.running == 0 else None
    if idle_since is not None and now - idle_since >= limits.idle_timeout:
        why = f"nothing ran for {seconds(now - idle_since)}, limit {seconds(limits.idle_timeout)}"
        return ScalingDecision(min(nodes, limits.min), "idle", why, replace(memory, idle_since=idle_since))
    due = None if idle_since is None or nodes <= limits.min else idle_since + limits.idle_timeout
    enough = max(limits.min, -(-pressure.running // pressure.slots) + SPARE)
    used = f"{pressure.running} of {plural(room, 'slot')} used"
    if not pressure.running or nodes <= enough or 100 * pressure.running >= LITTLE * room:
        return ScalingDecision(nodes, "steady", used, Memory(idle_since), due)
    low_since = _since(memory.low_since, now)
    rest = low_since + limits.cooldown - now
    if rest > 0:
        why = f"{used}, less than {LITTLE} %: {_nodes(enough)} enough if that lasts {seconds(rest)} more"
        due = now + rest if due is None else min(due, now + rest)
        return ScalingDecision(nodes, "steady", why, Memory(idle_since, low_since), due)
    why = f"{used}, less than {LITTLE} % for {seconds(now - low_since)}: {_nodes(enough)} enough"
    return ScalingDecision(enough, "shrink", why, Memory(idle_since, low_since), due)


def _with_a_queue(pressure: Pressure, limits: Limits) -> ScalingDecision:
    wanted = -(-(pressure.queued + pressure.running) // pressure.slots)
    why = f"{pressure.queued} queued and {pressure.running} running need {_nodes(wanted)}"
    if wanted <= pressure.nodes:
        return ScalingDecision(pressure.nodes, "steady", f"{why}, {pressure.nodes} are there or booting", Memory())
    if pressure.nodes >= limits.max:
        return ScalingDecision(pressure.nodes, "steady", f"{why}, max is {limits.max}", Memory())
    return ScalingDecision(min(wanted, limits.max), "grow", why, Memory())


def _since(before: float | None, now: float) -> float:
    return now if before is None else before


def _nodes(count: int) -> str:
    return plural(count, "node")
