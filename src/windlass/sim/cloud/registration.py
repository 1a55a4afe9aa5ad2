"""This module declares the provider type ``simulated``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from windlass.core.model.snapshot import Group
from windlass.offers import in_region, read_catalogue
from windlass.providers.protocol import Offering, Provider
from windlass.providers.registry import ProviderContext, ProviderType
from windlass.setting_types import Duration, Section, Setting, Whole

SEED: Final = Setting("seed", Whole(high=2**63), 0, "", "The same seed gives the same run.")


def _build(settings: Mapping[str, Any], context: ProviderContext) -> Provider:
    from .machines import MachineKind
    from .provider import SimulatedProvider

    class ConfiguredCloud(SimulatedProvider):
        """A simulated cloud that offers a kind of machine for every configured group."""

        def regroup(self, groups: Iterable[Group]) -> None:
            self.sell(
                MachineKind(
                    Offering(group.name, group.resources, group.hosts, group.price, preemptible=group.preemptible),
                    boot=settings["boot_delay"],
                    join=0,
                )
                for group in groups
            )

    return ConfiguredCloud((), now=context.now, seed=settings["seed"])


SIMULATED: Final = ProviderType(
    summary="a simulated cloud. It sells every machine of the catalogues to groups with `offers`.",
    section=Section(
        "a simulated provider",
        (SEED, Setting("boot_delay", Duration(high=86400), "60s", "s", "How long a slice takes to boot.")),
    ),
    build=_build,
    runs=frozenset({"simulated"}),
    sells=lambda _settings: in_region(read_catalogue()),
)
