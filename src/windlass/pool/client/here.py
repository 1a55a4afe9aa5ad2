"""``here()`` returns, inside a task, where the task runs."""

from __future__ import annotations

import os
from dataclasses import dataclass

from windlass.pool.errors import PoolError

NODE = "WINDLASS_NODE"


@dataclass(frozen=True, slots=True)
class Here:
    """The place of a running task."""

    rank: int
    """The rank in its gang, or among the nodes when it runs on every node; otherwise the number of its node."""
    nodes: int
    """Nodes of the pool when the task was sent."""
    head: str
    """Address of rank 0, or of the node with the lowest number."""
    node: str
    """Name of the node."""
    accelerators: tuple[int, ...]
    """Numbers of the devices that the task may use."""
    slot: int
    """Number of the slot on the node."""


def here() -> Here:
    """Return where this task runs. ``PoolError`` outside of a task of a pool."""
    if NODE not in os.environ:
        raise PoolError("here() says where a task runs: call it inside a function that a pool runs")
    values = os.environ
    devices = [one for name in ("WINDLASS_GPU", "WINDLASS_TPU") for one in values.get(name, "").split(",") if one]
    return Here(
        rank=int(values["WINDLASS_RANK"]),
        nodes=int(values["WINDLASS_NODES"]),
        head=values["WINDLASS_HEAD"],
        node=values[NODE],
        accelerators=tuple(int(one) for one in devices),
        slot=int(values["WINDLASS_SLOT"]),
    )
