"""NodeLiveness gives up nodes that have been silent for too long.

A silent node takes no new work and shows as unhealthy at once. Tasks that had not begun there are taken back. When the
silence has lasted for the timeout the engine abandons the node: its tasks run elsewhere, and what it says later is
ignored. The controller replaces it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from windlass.pool.engines.protocol import Engine

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

    def silent(self, node: PoolNode, seconds: float) -> None:
        """It has been silent for so long."""
        since = node.silent_since = self._now() - seconds
        self._later(max(0.0, self._timeout - seconds), lambda: self._give_up(node, since))

    def heard(self, node: PoolNode) -> None:
        node.silent_since = None

    def _give_up(self, node: PoolNode, since: float) -> None:
        if node.silent_since == since and self._nodes.get(node.id) is node:
            self._engine.abandon(node.id, f"it gave no sign of life for {self._now() - since:.0f} s")
