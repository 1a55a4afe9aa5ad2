"""This module applies ``--set KEY=VALUE`` to a configuration, for what-ifs.

A change is ``PATH=VALUE``, such as ``policy.drain_timeout=2h``, ``groups.gpu.max=8`` or shorter ``gpu.max=8``; ``*``
means every group. A policy file is a part of a configuration that overrides another one. Both are checked as
if they had been written into the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from windlass.scenario.parser import plain_data
from windlass.scenario.reader import ScenarioError, shown

from .reader import CONFIG_FILE, Config, ConfigError, read_config
from .schema import CONFIG

EVERY_GROUP = "*"


def overridden(
    text: str | bytes, *, path: str, changes: Iterable[str] = (), policy: str | bytes | None = None
) -> Config:
    """Read the configuration in ``text``, overridden by a policy and then by the changes."""
    data = _plain(plain_data(text, CONFIG_FILE))
    if not isinstance(data, dict):
        return read_config(text, path=path)
    if policy is not None:
        data = _laid_over(data, _plain(plain_data(policy, CONFIG_FILE)))
    for change in changes:
        data = _changed(data, change)
    return read_config(json.dumps(data), path=path)


def _plain(value: Any) -> Any:
    """Copy mappings and lists, so that they can be changed."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value


def _laid_over(below: Any, above: Any, *, groups: bool = False) -> Any:
    """Merge two mappings; ``above`` wins. An entry ``*`` of the groups overrides each of them."""
    if not isinstance(below, dict) or not isinstance(above, dict):
        return below if above is None else above
    merged = dict(below)
    if groups and EVERY_GROUP in above:
        merged = {name: _laid_over(one, above[EVERY_GROUP]) for name, one in merged.items()}
    for key, one in above.items():
        if groups and key == EVERY_GROUP:
            continue
        merged[key] = _laid_over(merged.get(key), one, groups=key == "groups") if key in merged else one
    return merged


def _changed(data: dict[str, Any], change: str) -> dict[str, Any]:
    path, separator, text = change.partition("=")
    keys = path.strip().split(".")
    if not separator or not all(keys):
        raise ConfigError([f"--set {change}: write PATH=VALUE, such as gpu.max=8 or policy.drain_timeout=2h"])
    try:
        value = plain_data(text) if text.strip() else None
    except ScenarioError:
        raise ConfigError([f"--set {change}: {shown(text)} is not a YAML value"]) from None
    groups, families = data.get("groups"), data.get("families")
    if isinstance(families, dict) and keys[0] in families and keys[0] not in (groups or {}):
        keys = ["families", *keys]
    elif isinstance(groups, dict) and (keys[0] in groups or keys[0] == EVERY_GROUP):
        keys = ["groups", *keys]
    elif isinstance(groups, dict) and keys[0] not in CONFIG.keys:
        raise ConfigError([f"--set {change}: there is no group {keys[0]}; there are {', '.join(groups)}"])
    layer: Any = value
    for key in reversed(keys):
        layer = {key: layer}
    merged = _laid_over(data, layer)
    assert isinstance(merged, dict)
    return merged
