"""This module adds the groups that a workload defines to those of the configuration. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from windlass.control.settings import GroupSettings, Settings
from windlass.workloads.protocol import WorkloadGroup


def with_workload_groups(settings: Settings, groups: Sequence[WorkloadGroup]) -> Settings:
    """Return the settings with the groups of the workload; a configured group with the same name has precedence."""
    ours = settings.by_name
    more = [
        GroupSettings(one.group, one.provider, one.settings, one.actions_per_pass, one.max_leaving, from_workload=True)
        for one in groups
        if one.group.name not in ours
    ]
    return replace(settings, groups=(*settings.groups, *more)) if more else settings
