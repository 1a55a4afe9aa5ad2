"""``SSH(...)`` and its like: nodes of a pool on machines elsewhere.

Each says which machines, and makes the provider that sells them. Every pool is a cluster of its own, so that two pools
that have the same machine in their lists never touch each other's nodes.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from windlass.pool.engines.registry import need
from windlass.pool.errors import BadPool
from windlass.providers.protocol import Provider, ProviderError

LEASE = 30.0
"""Seconds without the pool's program after which its nodes end themselves: so none outlives it."""


class RemoteMachines(ABC):
    """Machines elsewhere, as a pool is given them."""

    price: float | str | None = None

    @abstractmethod
    def provider(self, image: Mapping[str, Any]) -> Provider:
        """The provider that sells them to one pool, with what they must have. Called on the pool's event loop."""


@dataclass(frozen=True, slots=True)
class SSH(RemoteMachines):
    """Nodes on machines that exist already and have SSH.

    ``hosts``: addresses, ``user@address``, or ``{"address": ..., "port": ..., "user": ..., "resources": ...,
    "labels": ...}``. ``known_hosts``: the file with the machines' host keys, ``~/.ssh/known_hosts`` if none is given; a
    key that is not in it is never accepted. ``key_file``: our private key; the SSH agent and the usual files otherwise.
    ``connect``: ``"tunnel"`` carries everything over the SSH connection, ``"direct"`` wants a network in which nodes
    reach this program. ``directory``: where files go on the machines. ``price``: dollars per hour of a machine.
    """

    hosts: Sequence[str | Mapping[str, Any]]
    user: str = ""
    key_file: str | os.PathLike[str] = ""
    known_hosts: str | os.PathLike[str] = ""
    connect: Literal["tunnel", "direct"] = "tunnel"
    directory: str = "~/.windlass"
    price: float | str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.hosts, str) or not self.hosts:
            raise BadPool("SSH: hosts must be a list of machines, such as SSH(hosts=['gpu1.example.org'])")
        if self.connect not in ("tunnel", "direct"):
            raise BadPool(f"SSH: connect must be 'tunnel' or 'direct', is {self.connect!r}")
        need("asyncssh", "ssh")

    def provider(self, image: Mapping[str, Any]) -> Provider:
        from windlass.providers.ssh.provider import SSHProvider

        try:
            return SSHProvider(
                self.hosts,
                user=self.user,
                key_file=os.fspath(self.key_file),
                known_hosts=os.fspath(self.known_hosts),
                connect=self.connect,
                directory=self.directory,
                lease=LEASE,
                image=image,
            )
        except ProviderError as error:
            raise BadPool(str(error)) from None
