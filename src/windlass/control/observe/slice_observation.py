"""SliceObservation collects what is visible of one slice: the provider's list, the workload's nodes, the
acknowledgement.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from windlass.control.state.fleet import SliceRecord
from windlass.core.model.quantities import ACCELERATORS
from windlass.core.model.snapshot import Amounts, Group
from windlass.providers.protocol import Instance
from windlass.workloads.protocol import WorkNode


class SliceObservation(NamedTuple):
    """What providers and workload currently show of one slice."""

    instance: Instance | None
    provider_known: bool
    nodes: tuple[WorkNode, ...]
    """Its nodes, each of them once."""
    workload_known: bool
    running: int | None
    """Tasks that still run according to the acknowledgement of the current cordon; None: not acknowledged."""
    refused: str = ""
    """Why the workload refused the current cordon; empty: it did not."""
    final: bool = False
    """Whether the cordon of the workload is final, for the current fence or an earlier one."""
    ended: bool = False
    """Whether the provider confirms that nothing of it is left; there is no instance then."""
    ended_at: float | None = None
    """When it ended, where the provider knows."""
    started_at: float | None = None
    """When an ended slice started, where the provider knows."""

    @property
    def absent(self) -> bool:
        return self.provider_known and self.instance is None

    @property
    def lost_node(self) -> str:
        """Why a node of it can no longer run work, according to the workload; empty: all can."""
        return next((node.lost for node in self.nodes if node.lost), "")

    def whole(self, group: Group | None) -> bool:
        """Whether every host has joined the workload, is healthy, and has the resources of its group."""
        if self.instance is None:
            return False
        hosts = len(self.instance.hosts) if group is None else group.hosts
        promised = group.resources if group else ()
        if len(self.nodes) < max(1, hosts):
            return False
        for node in self.nodes:
            if (
                not node.healthy
                or node.lost
                or (node.present is not None and not _is_kind(dict(node.present), promised))
            ):
                return False
        return True

    @property
    def dead_host(self) -> bool:
        """Whether the provider is taking it away, or a host died. While it is pending, a host that does not run has not
        started yet.
        """
        if self.instance is None or self.instance.state == "pending":
            return False
        return self.instance.state == "ending" or not all(host.running for host in self.instance.hosts)

    def shows_life(self, record: SliceRecord) -> bool:
        """Whether the workload sees hosts of it that are healthy or busy. While it is silent, its last view counts."""
        nodes = self.nodes if self.workload_known else record.nodes
        return any(node.healthy or node.tasks for node in nodes)


def _is_kind(present: Mapping[str, int], promised: Amounts) -> bool:
    """Whether a host has what was ordered: all accelerators, and more than half of every other resource that it
    reports. The system always takes a little memory and CPU. If half is missing it is another kind of machine, and a
    plan that counts on it would wait for ever.
    """
    return all(
        present.get(name, 0) >= amount if name in ACCELERATORS else 2 * present.get(name, amount) > amount or not amount
        for name, amount in promised
    )
