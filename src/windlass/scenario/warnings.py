"""This module warns about parts of a scenario that are allowed and are probably a mistake."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from windlass.core.model.snapshot import Group, Snapshot


def snapshot_warnings(snapshot: Snapshot) -> list[str]:
    """Returns every warning about a snapshot, one line each: a resource under two names, in groups or in demands."""
    names = resources_of(snapshot.groups)
    for demand in (*snapshot.demands, *snapshot.requests):
        for bundle in demand.bundles:
            for resource, _ in bundle.needs:
                names.setdefault(resource, f"demand {demand.id}")
    return same_resource_twice(names)


def resources_of(groups: Iterable[Group]) -> dict[str, str]:
    """Returns every resource of some groups, with the first group that has it."""
    names: dict[str, str] = {}
    for group in groups:
        for resource, _ in group.resources:
            names.setdefault(resource, f"group {group.name}")
    return names


def same_resource_twice(names: Mapping[str, str]) -> list[str]:
    """Returns resources whose names differ only in case or in a prefix such as ``nvidia.com/``: they are two
    resources."""
    by_short_name: dict[str, list[str]] = {}
    for name in sorted(names):
        by_short_name.setdefault(name.rpartition("/")[2].lower(), []).append(name)
    return [
        f"{' and '.join(f'{name} ({names[name]})' for name in same)} are different resources; "
        f"if one thing is meant, call it {min(same, key=lambda name: (name != name.lower(), len(name)))} everywhere"
        for same in by_short_name.values()
        if len(same) > 1
    ]
