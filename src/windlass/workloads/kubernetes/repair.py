"""Repair drains and replaces nodes whose conditions have been bad for too long, a few at a time.

A condition such as ``GPUHealthy=False`` is set by a device plugin or by a node problem detector. A condition that turns
bad on all nodes at once is rarely a fault of the nodes, so at most a fifth of a provisioner is under repair at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from windlass.core.model.reasons import seconds
from windlass.kubernetes_api.names import DELETING
from windlass.kubernetes_api.objects import NodeProvisioner

from .translate.nodes import MirroredNode
from .translate.schedules import duration

LARGEST_SHARE: Final = 5
"""One node in five may be under repair at once; a smaller provisioner may repair one node."""


def allowed(nodes: int) -> int:
    """Return how many of a provisioner's nodes may be under repair at once: 20 %, rounded down, and at least one."""
    return max(1, nodes // LARGEST_SHARE)


class NodeRepairs:
    """Chooses the nodes to repair. A chosen node stays chosen until it is gone or healthy again."""

    def __init__(self) -> None:
        self.chosen: dict[str, str] = {}
        """Node and reason."""

    def choose(
        self, nodes: Iterable[MirroredNode], provisioners: Mapping[str, NodeProvisioner], now: float
    ) -> Mapping[str, str]:
        """Return the nodes under repair now, and why."""
        by_provisioner: dict[str, list[MirroredNode]] = {}
        for node in nodes:
            if node.provisioner in provisioners and provisioners[node.provisioner].spec.repair:
                by_provisioner.setdefault(node.provisioner, []).append(node)
        found: dict[str, str] = {}
        for name, here in by_provisioner.items():
            provisioner = provisioners[name]
            if provisioner.spec.paused:
                continue
            due = []
            for node in here:
                since, why = bad_since(node, provisioner, now)
                if why and not node.protected:
                    under_way = node.name in self.chosen or node.taint(DELETING) is not None
                    due.append((not under_way, since, node.name, self.chosen.get(node.name, why)))
            found |= {node_name: why for _, _, node_name, why in sorted(due)[: allowed(len(here))]}
        self.chosen = found
        return found


def bad_since(node: MirroredNode, provisioner: NodeProvisioner, now: float) -> tuple[float, str]:
    """Return the time since which a rule has found a node bad, and the reason, which is empty while no limit is
    reached.
    """
    worst: tuple[float, str] = (now, "")
    for rule in provisioner.spec.repair or ():
        for kind, status, since in node.conditions:
            is_bad = kind == rule.condition and status == rule.status and now - since >= duration(rule.after)
            if is_bad and (not worst[1] or since < worst[0]):
                why = f"{kind} is {status} for {seconds(round(now - since))}, limit {rule.after}: it is replaced"
                worst = (since, why)
    return worst
