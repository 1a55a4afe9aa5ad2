"""NodeLiveness abandons nodes that have sent no heartbeat for too long.

A silent node takes no new work and shows as unhealthy at once. Tasks that had not begun there are taken back. When the
silence has lasted for the timeout the engine abandons the node: its tasks run on other nodes, and its later messages
are ignored. The controller replaces it at once: the book shows the node with ``repair`` until its slice has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from windlass.pool.engines.protocol import Engine
from windlass.workloads.protocol import WorkNode

from .nodes import PoolNode


class NodeLiveness:
    """Watches the nodes of one pool."""

    def __init__(
        self,
        nodes: Mapping[str, PoolNode],
        engine: Engine,
        timeout: float,
        now: Callable[[], float],
        later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._nodes, self._engine, self._timeout, self._now, self._later = nodes, engine, timeout, now, later
        self.abandoned: dict[str, WorkNode] = {}
        """Abandoned nodes whose slices have not ended, as the controller sees them."""

    def silent(self, node: PoolNode, seconds: float) -> None:
        """Note how long a node has been silent."""
        since = node.silent_since = self._now() - seconds
        self._later(max(0.0, self._timeout - seconds), lambda: self._give_up(node, since))

    def heard(self, node: PoolNode) -> None:
        node.silent_since = None

    def _give_up(self, node: PoolNode, since: float) -> None:
        if node.silent_since == since and self._nodes.get(node.id) is node:
            why = f"it sent no heartbeat for {self._now() - since:.0f} s"
            self.abandoned[node.id] = replace(node.shown(), used=(), tasks=0, healthy=False, repair=why)
            self._engine.abandon(node.id, why)

    def forget(self, slice_id: str) -> None:
        self.abandoned = {name: node for name, node in self.abandoned.items() if node.slice_id != slice_id}
