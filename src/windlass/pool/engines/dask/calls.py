"""CarriedCall and EngineNode are the engine's records of calls in flight and of the nodes that run them."""

from __future__ import annotations

from dataclasses import dataclass, field

from windlass.pool.engines.protocol import Call, NodeFacts
from windlass.pool.transport.serialization import PackedResult, unpack_entries


@dataclass(slots=True)
class CarriedCall:
    """A call that has not ended."""

    call: Call
    began: bool = False
    finished: int = 0
    """Items whose results have been delivered."""
    seconds: float = 0.0
    """The seconds that those took."""
    ordered: str = ""
    """``revoke`` or ``kill`` if one was requested."""


@dataclass(slots=True)
class EngineNode:
    """A node of the engine: its calls, and how long it has been silent."""

    facts: NodeFacts
    calls: dict[str, CarriedCall] = field(default_factory=dict)
    connected: bool = True
    event: int = 0
    """Number of the last event that was received."""
    acknowledged: int = 0
    silence: float = 0.0
    silent: bool = False
    why: str = ""
    """The reason of its end that the node itself reported."""


def new_results(carried: CarriedCall, seconds: float, results: bytes) -> tuple[list[PackedResult], float]:
    """Return the results in the order of arrival, and the seconds that they took. Count them as finished."""
    unpacked = unpack_entries(results)
    took, carried.seconds = max(0.0, seconds - carried.seconds), max(seconds, carried.seconds)
    carried.finished += len(unpacked)
    return unpacked, took
