"""Warnings about a configuration: what is allowed and is probably a mistake."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from windlass.core.model.snapshot import Group
from windlass.scenario.warnings import resources_of, same_resource_twice

from .reader import Config


def config_warnings(config: Config) -> list[str]:
    """Every warning about a configuration, each one line."""
    groups = [sold.group for sold in config.settings.groups]
    return [*_never_shrinking(groups), *same_resource_twice(resources_of(groups))]


def _never_shrinking(groups: Iterable[Group]) -> Iterator[str]:
    for group in groups:
        if group.scale_down is None and group.max > group.min:
            yield (
                f"groups.{group.name} has no scale_down rule, so its machines are never given back; "
                "add one such as scale_down: {idle_timeout: 5m}"
            )
