"""Warns about settings that are allowed but probably a mistake."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from windlass.core.model.snapshot import Group
from windlass.providers.registry import PROVIDER_TYPES
from windlass.scenario.warnings import resources_of, same_resource_twice

from .reader import Config


def config_warnings(config: Config) -> list[str]:
    """Return every warning about a configuration, one line each."""
    groups = [one.group for one in config.settings.groups]
    made = {family.name for family in config.settings.cluster.families if family.section == "groups"}
    return [
        *dict.fromkeys(_never_shrinking(groups, made)),
        *same_resource_twice(resources_of(groups)),
        *_prices_of_another_region(config, made),
    ]


def _prices_of_another_region(config: Config, made: Collection[str]) -> Iterator[str]:
    used = {one.provider for one in config.settings.groups if one.group.family in made}
    for name in sorted(used & config.providers.keys()):
        one = config.providers[name]
        regions = {offer.region for offer in PROVIDER_TYPES[one.type].sells(one.settings)}
        if (region := one.settings.get("region")) and region not in regions:
            yield (
                f"providers.{name}: the catalogue has no prices of {region}, so those of {', '.join(sorted(regions))} "
                f"are used; read them with windlass offers --refresh --region {region}, or set prices of the provider"
            )


def _never_shrinking(groups: Iterable[Group], made: Collection[str]) -> Iterator[str]:
    for group in groups:
        if group.scale_down is None and group.max > group.min:
            name = group.family if group.family in made else group.name
            yield (
                f"groups.{name} has no scale_down rule, so its machines are never released; "
                "add one such as scale_down: {idle_timeout: 5m}"
            )
