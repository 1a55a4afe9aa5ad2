"""This module writes recorded settings as a configuration, so that a what-if can change and check them like those of a
file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from typing import Any

from windlass.control.settings import Settings
from windlass.core.model.snapshot import Snapshot
from windlass.scenario.writer import write_scenario
from windlass.setting_types import Section, SubSection

from .schema import BACKOFF, GROUP_SETTINGS, LAUNCHES, POLICY
from .set_option import overridden


def as_configured(settings: Settings) -> dict[str, Any]:
    """Return a configuration with these settings.

    A journal does not record providers and the workload, so the configuration names simulated ones.
    """
    written = write_scenario(Snapshot(groups=tuple(one.group for one in settings.groups), cluster=settings.cluster))
    for configured in settings.groups:
        written["groups"][configured.group.name] |= GROUP_SETTINGS.write(configured)
    if launches := LAUNCHES.write(settings):
        written["cluster"] = written.get("cluster", {}) | launches
    return {
        **written,
        "providers": {one.provider: {"type": "simulated"} for one in settings.groups}
        or {"none": {"type": "simulated"}},
        "workload": {"type": "simulated"},
        "policy": _only_settings(asdict(settings.policy), POLICY),
    }


def _only_settings(values: dict[str, Any], section: Section) -> dict[str, Any]:
    """Return the values that have a key in a file. Others can be set by a pool only."""
    found: dict[str, Any] = {}
    for one in section.settings:
        if one.name in values:
            value = values[one.name]
            found[one.name] = _only_settings(value, one.section) if isinstance(one, SubSection) else value
    return found


def changed_settings(
    settings: Settings, *, changes: Iterable[str] = (), policy: str | bytes | None = None, path: str = "journal"
) -> Settings:
    """Override settings by a policy and then by the changes; ``ConfigError`` as for a file."""
    text = json.dumps(as_configured(settings))
    found = overridden(text, path=path, changes=changes, policy=policy).settings
    before = settings.policy.backoff
    unwritten = {one.name: getattr(before, one.name) for one in fields(before) if one.name not in BACKOFF.form.keys}
    return replace(found, policy=replace(found.policy, backoff=replace(found.policy.backoff, **unwritten)))
