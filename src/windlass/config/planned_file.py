"""This module reads a configuration for ``windlass plan``: its groups, with or without facts.

The facts are those of a scenario: ``now``, ``slices``, ``demands`` and ``requests``. A configuration without facts is
planned as a cluster in which nothing runs and nothing waits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from windlass.core.model.snapshot import Snapshot
from windlass.scenario.reader import FileError, Path, still_marked
from windlass.scenario.scenario import read_plain
from windlass.scenario.schema import CLUSTER, GROUP, SCENARIO
from windlass.scenario.writer import write_scenario

from .reader import read_config_data
from .schema import CONFIG, CONFIGURED_CLUSTER, CONFIGURED_GROUP

FACTS: Final = tuple(key for key in SCENARIO.keys if key not in CONFIG.keys)
"""Keys of a scenario that a configuration does not have."""
GROUP_SETTINGS: Final = tuple(key for key in CONFIGURED_GROUP.keys if key not in GROUP.keys)
CLUSTER_SETTINGS: Final = tuple(key for key in CONFIGURED_CLUSTER.keys if key not in CLUSTER.keys)
"""Keys of the cluster and of a group that only a controller uses: the provider, the speed of growth."""


def read_configured_plan(data: Mapping[str, Any], *, path: str | os.PathLike[str]) -> Snapshot:
    """Return the snapshot in a configuration; ``FileError`` names every mistake with its path."""
    mistakes: dict[str, Path] = {}
    snapshot, config, plain = None, None, still_marked(data, dict(_facts(data)))
    try:
        config = read_config_data(_without(FACTS, data), path=path)
        if _has_offers(data.get("groups")):
            written = write_scenario(config.empty_snapshot())
            plain |= {key: written[key] for key in ("cluster", "families", "groups") if key in written}
    except FileError as error:
        mistakes |= dict(error.placed())
        if _has_offers(data.get("groups")):  # its groups are not known
            raise
    try:
        snapshot = read_plain(plain)
    except FileError as error:
        places = set(mistakes.values())  # both readers check the groups, in words of their own
        mistakes |= {text: place for text, place in error.placed() if place not in places}
    if mistakes or snapshot is None or config is None:
        raise FileError(mistakes, mistakes.values())
    return replace(snapshot, cluster=config.settings.cluster)


def _has_offers(groups: Any) -> bool:
    return isinstance(groups, Mapping) and any(isinstance(one, Mapping) and "offers" in one for one in groups.values())


def _facts(data: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, one in data.items():
        if key == "groups" and isinstance(one, Mapping):
            yield key, still_marked(one, {name: _without(GROUP_SETTINGS, group) for name, group in one.items()})
        elif key == "cluster":
            yield key, _without(CLUSTER_SETTINGS, one)
        elif key in SCENARIO.keys:
            yield key, one


def _without(settings: tuple[str, ...], part: Any) -> Any:
    if not isinstance(part, Mapping):
        return part
    return still_marked(part, {key: one for key, one in part.items() if key not in settings})
