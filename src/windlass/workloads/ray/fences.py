"""This module records which nodes were drained, for which fence, and with what result.

A drain in Ray is final. A raylet refuses ``DrainNode`` for idle termination if it is not idle; if it accepts, it ends.
Acceptance does not prove that nothing runs: a node that is already draining accepts a second drain with work on it.
Only a dead node proves it. The drain's message contains the fence's epoch, and the GCS keeps the message with the dead
node, so the proof survives a restart of Windlass.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from windlass.workloads.protocol import Acknowledgement

from .nodes import RayNodes

_MESSAGE: Final = re.compile(r"windlass released (?P<slice>.+) \(drain (?P<epoch>\d+)\)")


def message(slice_id: str, epoch: int) -> str:
    """Return the message of a drain; the GCS keeps it with the dead node."""
    return f"windlass released {slice_id} (drain {epoch})"


def released_by(text: str) -> tuple[str, int] | None:
    """Return the slice and the epoch in the message of a drain; None: it is another message."""
    found = _MESSAGE.fullmatch(text)
    return (found["slice"], int(found["epoch"])) if found else None


@dataclass(slots=True)
class _Fence:
    epoch: int
    stands: bool
    refused: str = ""
    """Why the drain was refused, by the raylet or because of the actor table; empty: not refused."""
    complete: bool = False
    """Whether the call that raised it has drained every node that had joined: a node that joins later is drained too.
    Before that, a node without a drain is one that the call has yet to ask."""
    drained: set[bytes] = field(default_factory=set)
    """Nodes that have accepted a drain, for this fence or an earlier one."""


class RayFences:
    """Keeps the fences of one cluster."""

    def __init__(self) -> None:
        self._fences: dict[str, _Fence] = {}
        self._known: frozenset[str] = frozenset()
        """Slices of the controller: the GCS also lists dead nodes of slices that ended long ago."""

    def clear(self) -> None:
        """Forget all fences: the head serves another cluster, of which no node has been drained."""
        self._fences.clear()

    def own(self, slice_ids: Collection[str], nodes: RayNodes) -> bool:
        """Set the slices of the controller, and return whether drained nodes of new ones are now acknowledged: a
        controller that was restarted finds them so."""
        new = frozenset(slice_ids) - self._known
        self._known = frozenset(slice_ids)
        return any(dead.slice_id in new and released_by(dead.message) is not None for dead in nodes.dead.values())

    def raise_to(self, slice_id: str, epoch: int) -> bool:
        """Record a cordon, and return whether it must be carried out: not if its epoch is lower than the fence's, if an
        uncordon has voided it, or if it was refused already."""
        fence = self._fences.get(slice_id)
        if fence is None:
            self._fences[slice_id] = _Fence(epoch, stands=True)
            return True
        if epoch < fence.epoch or (epoch == fence.epoch and not fence.stands):
            return False
        if epoch == fence.epoch:
            return not fence.refused
        fence.epoch, fence.stands, fence.refused, fence.complete = epoch, True, "", False
        return True

    def stands(self, slice_id: str, epoch: int) -> bool:
        """Return whether this fence was neither voided nor replaced by a newer one."""
        fence = self._fences.get(slice_id)
        return fence is not None and fence.stands and fence.epoch == epoch

    def completed(self, slice_id: str, epoch: int) -> None:
        """Record that every node that has joined was drained for this fence."""
        if self.stands(slice_id, epoch):
            self._fences[slice_id].complete = True

    def drained(self, slice_id: str, node_id: bytes) -> None:
        """Record that a node has accepted a drain. The fence may have been forgotten during the call."""
        fence = self._fences.get(slice_id)
        if fence is not None:
            fence.drained.add(node_id)

    def is_drained(self, slice_id: str, node_id: bytes) -> bool:
        fence = self._fences.get(slice_id)
        return fence is not None and node_id in fence.drained

    def refuse(self, slice_id: str, epoch: int, why: str) -> None:
        fence = self._fences.get(slice_id)
        if fence is not None and fence.epoch == epoch:
            fence.refused = why

    def lower(self, slice_id: str, epoch: int) -> None:
        """Void every fence up to ``epoch``. A drain that was accepted goes on."""
        fence = self._fences.setdefault(slice_id, _Fence(epoch, stands=False))
        if epoch >= fence.epoch:
            fence.epoch, fence.refused = epoch, ""
            fence.stands = fence.complete = bool(fence.drained)

    def forget(self, slice_ids: Iterable[str]) -> None:
        for slice_id in slice_ids:
            self._fences.pop(slice_id, None)
        self._known -= frozenset(slice_ids)

    def insist(self, slice_id: str, epoch: int) -> bool:
        """Record a drain with work on the slice, and return whether it must be carried out: not if its epoch is lower
        than the fence's. A refusal of this fence does not count."""
        fence = self._fences.setdefault(slice_id, _Fence(epoch, stands=True))
        if epoch < fence.epoch:
            return False
        fence.epoch, fence.stands, fence.refused, fence.complete = epoch, True, "", False
        return True

    def late(self, nodes: RayNodes) -> list[tuple[str, int, bytes]]:
        """Return nodes that joined after their slice was fenced: (slice, epoch, node)."""
        return [
            (slice_id, fence.epoch, node.id)
            for slice_id, fence in self._fences.items()
            if fence.stands and fence.complete and not fence.refused
            for node in nodes.of(slice_id)
            if not node.draining and node.id not in fence.drained
        ]

    def acknowledged(self, nodes: RayNodes) -> tuple[Acknowledgement, ...]:
        """Return the acknowledgement of every slice that has a fence or was drained."""
        found: dict[str, Acknowledgement] = {}
        ours = self._known | self._fences.keys()
        for dead in nodes.dead.values():
            released = released_by(dead.message)
            if released is not None and released[0] in ours and not nodes.of(released[0]):
                before = found.get(released[0])
                epoch = max(released[1], before.epoch if before is not None else 0)
                found[released[0]] = Acknowledgement(released[0], epoch, 0, final=True)
        for slice_id, fence in self._fences.items():
            if not fence.stands:
                continue
            alive = nodes.of(slice_id)
            if fence.refused:
                found[slice_id] = Acknowledgement(slice_id, fence.epoch, 0, refused=fence.refused)
                continue
            if all(node.draining or node.id in fence.drained for node in alive):
                found[slice_id] = Acknowledgement(slice_id, fence.epoch, len(alive), final=True)
            else:
                found.pop(slice_id, None)
        return tuple(found[name] for name in sorted(found))
