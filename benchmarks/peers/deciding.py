"""A peer in a controller: the production loop, with another one to decide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from windlass.control.controller import Controller
from windlass.control.settings import Settings

from .peer import Peer


class PeerController(Controller):
    """The loop as it is; a peer decides, and is woken when it wants to look."""

    def __init__(self, *args: Any, peer: Peer, **more: Any) -> None:
        super().__init__(*args, planner=peer, **more)
        self.peer = peer

    def next_deadline(self) -> float | None:
        ours, due = super().next_deadline(), self.peer.due
        later = [at for at in (ours, due if due is not None and due > self.now() else None) if at is not None]
        return min(later, default=None)


def controller_of(peer: Callable[[], Peer]) -> Callable[..., Controller]:
    """What makes a controller in which a new peer decides."""

    def make(*args: Any, **more: Any) -> Controller:
        return PeerController(*args, peer=peer(), **more)

    return make


def without_rules(settings: Settings) -> Settings:
    """The same machines, and none of our own rules for giving them back: the peer has its own."""
    groups = tuple(replace(one, group=replace(one.group, scale_down=None)) for one in settings.groups)
    return replace(settings, groups=groups)
