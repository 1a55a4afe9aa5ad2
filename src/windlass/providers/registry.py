"""The registry lists the provider types that a configuration can name.

A type is a ``ProviderType``: its settings, how it is built, and which workloads its machines can run. Those of this
package are in ``BUILT_IN``. Another package adds one with an entry point of the group ``windlass.providers``, whose
name is the type and whose value is a ``ProviderType``:

    [project.entry-points."windlass.providers"]
    nomad = "windlass_nomad:NOMAD"

A type is imported when a configuration names it, so that an unused cloud library costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from windlass._registry import Registry
from windlass.offers import MachineOffer
from windlass.setting_types import Section

from .protocol import Provider


@dataclass(frozen=True, slots=True)
class ProviderContext:
    """The arguments of a provider besides its own settings."""

    name: str
    """Its name in the configuration."""
    read_only: bool
    """True for ``plan --live`` and ``doctor`` beside a running controller: the provider must change nothing."""
    tie_to: int | None
    """The pid of a process; machines on this computer end with it. None: they do not."""
    now: Callable[[], float]


@dataclass(frozen=True, slots=True)
class ProviderType:
    """One type of provider."""

    summary: str
    """One sentence for the reference."""
    section: Section
    build: Callable[[Mapping[str, Any], ProviderContext], Provider]
    runs: frozenset[str]
    """The workload types that its machines can run."""
    check: Callable[[Mapping[str, Any], str, str], list[str]] = lambda _settings, _name, _workload: []
    """Returns the mistakes in its settings, given its name in the configuration and the type of the workload."""
    check_group: Callable[[Mapping[str, Any]], Mapping[str, str]] = lambda _settings: {}
    """Returns what is wrong with the ``settings`` of a group, by key."""
    modules: tuple[str, ...] = ()
    """The modules that must be installed for it."""
    extra: str = ""
    """The extra of this package that installs them."""
    takes_images: bool = False
    """Whether its machines can have an image (``ImageAwareProvider``)."""
    sells: Callable[[Mapping[str, Any]], Sequence[MachineOffer]] = lambda _settings: ()
    """Returns its catalogue at the prices of its settings; empty: it has none."""
    offer_settings: Callable[[MachineOffer, float | None], Mapping[str, Any]] = lambda _offer, _max_price: {}
    """Returns the settings of a group for one offer and a maximum price in dollars per hour."""


BUILT_IN: Final[Mapping[str, str]] = {
    "aws": "windlass.providers.aws.registration:AWS_INSTANCES",
    "local": "windlass.providers.local.registration:LOCAL",
    "ssh": "windlass.providers.ssh.registration:SSH_MACHINES",
    "ray-node-provider": "windlass.providers.ray_node_provider.registration:RAY_NODE_PROVIDER",
    "simulated": "windlass.sim.cloud.registration:SIMULATED",
    "kwok": "windlass.providers.kwok.registration:KWOK",
    "kuberay": "windlass.providers.kuberay.registration:KUBERAY",
}
"""The module and name of each type of this package."""

PROVIDER_TYPES: Final = Registry("windlass.providers", BUILT_IN, ProviderType)
