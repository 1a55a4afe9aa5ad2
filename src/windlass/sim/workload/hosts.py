"""This module tracks hosts that join and leave, per slice, so that a reader reads only what changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from windlass.sim.cloud.machines import LiveHost
from windlass.sim.cloud.provider import SimulatedProvider

Changes = Mapping[str, Sequence[LiveHost]]
"""Returns the slices whose hosts changed, each with its current hosts."""
NONE: Final[Changes] = {}


class Joining:
    """Changes at some clouds since the last call."""

    def __init__(self, clouds: Sequence[SimulatedProvider]) -> None:
        self._clouds = clouds

    def changes(self) -> Changes:
        found: dict[str, Sequence[LiveHost]] = {}
        for cloud in self._clouds:
            for name in cloud.hosts_changed_lately():
                found[name] = [host for one in self._clouds for host in one.hosts_of(name)]
        return found or NONE


class Compared:
    """Changes of hosts that are always reported completely; an identical tuple object has not changed."""

    def __init__(self, hosts: Callable[[], Sequence[LiveHost]]) -> None:
        self._hosts = hosts
        self._last: Sequence[LiveHost] = ()
        self._slices: dict[str, list[LiveHost]] = {}

    def changes(self) -> Changes:
        hosts = self._hosts()
        if hosts is self._last and isinstance(hosts, tuple):
            return NONE
        slices: dict[str, list[LiveHost]] = {}
        for host in hosts:
            slices.setdefault(host.slice_id, []).append(host)
        before, self._slices, self._last = self._slices, slices, hosts
        gone = {name: () for name in before if name not in slices}
        return {**gone, **{name: there for name, there in slices.items() if before.get(name) != there}}
