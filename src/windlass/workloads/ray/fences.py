"""This module records drained nodes: for which fence each was drained, and with what result. A drain in Ray is
final.

``DrainNode`` for an idle node is refused by a raylet that is not idle; if it is accepted, the raylet ends. That it was
accepted proves nothing, for a node that is draining already accepts a second drain with work on it: only a dead node
runs nothing. The number of the fence goes into the drain's message and comes back in the death of the node, so that
the certificate survives a restart of Windlass.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from windlass.workloads.protocol import Acknowledgement

from .nodes import RayNodes

_MESSAGE: Final = re.compile(r"windlass released (?P<slice>.+) \(drain (?P<epoch>\d+)\)")


def message(slice_id: str, epoch: int) -> str:
    """Return the text that is sent with a drain and comes back with the death of the node."""
    return f"windlass released {slice_id} (drain {epoch})"


def released_by(text: str) -> tuple[str, int] | None:
    """Return the slice and the fence in such a text."""
    found = _MESSAGE.fullmatch(text)
    return (found["slice"], int(found["epoch"])) if found else None


@dataclass(slots=True)
class _Fence:
    epoch: int
    stands: bool
    refused: str = ""
    """Why the drain was refused, by the raylet or because of the actor table; empty: it was not."""
    drained: set[bytes] = field(default_factory=set)
    """Nodes whose drain was accepted, for this fence or an earlier one."""


class RayFences:
    """The fences of one cluster."""

    def __init__(self) -> None:
        self._fences: dict[str, _Fence] = {}
        self._gone: set[str] = set()

    def clear(self) -> None:
        """Forget all fences: the head serves another cluster now, and none of its nodes has been drained."""
        self._fences.clear()
        self._gone.clear()

    def raise_to(self, slice_id: str, epoch: int) -> bool:
        """Return whether this cordon must be carried out. One with a lower epoch, a voided and an answered one
        must not."""
        fence = self._fences.get(slice_id)
        if fence is None:
            self._fences[slice_id] = _Fence(epoch, stands=True)
            return True
        if epoch < fence.epoch or (epoch == fence.epoch and not fence.stands):
            return False
        if epoch == fence.epoch:
            return not fence.refused
        fence.epoch, fence.stands, fence.refused = epoch, True, ""
        return True

    def drained(self, slice_id: str, node_id: bytes) -> None:
        self._fences[slice_id].drained.add(node_id)

    def is_drained(self, slice_id: str, node_id: bytes) -> bool:
        fence = self._fences.get(slice_id)
        return fence is not None and node_id in fence.drained

    def refuse(self, slice_id: str, epoch: int, why: str) -> None:
        fence = self._fences.get(slice_id)
        if fence is not None and fence.epoch == epoch:
            fence.refused = why

    def lower(self, slice_id: str, epoch: int) -> None:
        """Void every fence up to ``epoch``. A drain that was accepted still goes on."""
        fence = self._fences.setdefault(slice_id, _Fence(epoch, stands=False))
        if epoch >= fence.epoch:
            fence.epoch, fence.refused = epoch, ""
            fence.stands = bool(fence.drained)

    def forget(self, slice_ids: Iterable[str]) -> None:
        for slice_id in slice_ids:
            self._fences.pop(slice_id, None)
            self._gone.add(slice_id)

    def insist(self, slice_id: str, epoch: int) -> bool:
        """Return whether a slice must be drained with work on it, although this fence may have been refused before."""
        fence = self._fences.setdefault(slice_id, _Fence(epoch, stands=True))
        if epoch < fence.epoch:
            return False
        fence.epoch, fence.stands, fence.refused = epoch, True, ""
        return True

    def late(self, nodes: RayNodes) -> list[tuple[str, int, bytes]]:
        """Return nodes that have joined although their slice is being ended: (slice, epoch, node)."""
        return [
            (slice_id, fence.epoch, node.id)
            for slice_id, fence in self._fences.items()
            if fence.stands and not fence.refused
            for node in nodes.of(slice_id)
            if not node.draining and node.id not in fence.drained
        ]

    def acknowledged(self, nodes: RayNodes) -> tuple[Acknowledgement, ...]:
        """Return the acknowledgement of every slice that is being ended."""
        found: dict[str, Acknowledgement] = {}
        self._gone &= {dead.slice_id for dead in nodes.dead.values()}
        for dead in nodes.dead.values():
            released = released_by(dead.message)
            if released is not None and released[0] not in self._gone and not nodes.of(released[0]):
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
