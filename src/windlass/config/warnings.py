"""This module warns about settings that are allowed but probably a mistake."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from windlass.control.settings import GroupSettings
from windlass.core.model.snapshot import Group
from windlass.offers import price_given
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
        *_missing_files(config),
    ]


def _prices_of_another_region(config: Config, made: Collection[str]) -> Iterator[str]:
    """Warn about providers in a region without a catalogue, unless the user gave all prices that are used."""
    for name, one in sorted(config.providers.items()):
        catalogue = PROVIDER_TYPES[one.type].sells(one.settings)
        regions = {offer.region for offer in catalogue}
        region = one.settings.get("region")
        if not region or not regions or region in regions:
            continue
        theirs, there = [sold for sold in config.settings.groups if sold.provider == name], ", ".join(sorted(regions))
        remedy = f"read them with windlass offers --refresh --region {region}"
        listed: dict[tuple[str, str], int] = {(offer.type, offer.market): offer.price for offer in catalogue}
        own = one.settings.get("prices") or {}
        if any(
            sold.group.family in made
            and price_given(own, *(key := _offer_of(sold))) is None
            and sold.group.price == listed.get(key)
            for sold in theirs
        ):
            yield (
                f"providers.{name}: the catalogue has no prices of {region}, so those of {there} are used; {remedy}, "
                "or set prices of the provider"
            )
        elif any(sold.group.family not in made and not sold.settings.get("instance_type") for sold in theirs):
            yield (
                f"providers.{name}: the catalogue has no machine types of {region}, so a group that names none "
                f"gets the cheapest type of {there} that fits; {remedy}, or name one in settings.instance_type"
            )


def _offer_of(sold: GroupSettings) -> tuple[str, str]:
    return sold.group.labels["machine_type"], sold.group.labels["market"]


def _never_shrinking(groups: Iterable[Group], made: Collection[str]) -> Iterator[str]:
    for group in groups:
        if group.scale_down is None and group.max > group.min:
            name = group.family if group.family in made else group.name
            yield (
                f"groups.{name} has no scale_down rule, so its machines are never released; "
                "add one such as scale_down: {idle_timeout: 5m}"
            )


def _missing_files(config: Config) -> Iterator[str]:
    """Warn about keys that are not on this computer; the controller may run on another one."""
    for name, one in sorted(config.providers.items()):
        if one.type != "ssh":
            continue
        for key in ("key_file", "known_hosts"):
            if (path := one.settings.get(key)) and not Path(path).is_file():
                yield (
                    f"providers.{name}.{key}: there is no file {path} on this computer, and no machine can be reached "
                    "without it"
                )
