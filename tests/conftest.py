"""Settings for the whole suite: property tests are repeatable, and judged by their answers, not by the clock."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "default", deadline=None, derandomize=True, max_examples=100, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("deep", parent=settings.get_profile("default"), derandomize=False, max_examples=5000)
settings.load_profile(os.environ.get("WINDLASS_HYPOTHESIS", "default"))

# A shell that starts the suite in the background tells it to ignore Ctrl-C, and every program that a test starts would
# inherit that, among them those that a test ends so.
signal.signal(signal.SIGINT, signal.default_int_handler)


# Tests that use the same servers, ports or network namespaces form a group: one worker runs them one after the other.
# Groups start in this order, the longest first; then files with real processes; then tests that only compute.
GROUPS = ("ray", "kubernetes", "hosts", "browser", "journal")
MARKERS = {"ray": "ray", "kubernetes": "kubernetes", "ssh": "hosts", "aws": "hosts", "browser": "browser"}
FOLDERS = {"tests/workloads/kubernetes/": "kubernetes", "tests/journal/": "journal"}
COMPUTING = (
    "tests/core/",
    "tests/scenario/",
    "tests/config/",
    "tests/sim/",
    "tests/test_cases.py",
    "tests/test_builders.py",
)


def group_of(item: pytest.Item) -> str | None:
    """Name the group of a test; tests that only compute have none and run on any worker."""
    for marker, group in MARKERS.items():
        if item.get_closest_marker(marker):
            return group
    for folder, group in FOLDERS.items():
        if item.nodeid.startswith(folder):
            return group
    return None if item.nodeid.startswith(COMPUTING) else item.nodeid.partition("::")[0]


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give every test its group, and sort the groups."""
    groups = {item: group_of(item) for item in items}
    ranks = {group: rank for rank, group in enumerate(GROUPS)}
    items.sort(key=lambda item: (groups[item] is None, ranks.get(groups[item] or "", len(GROUPS))))
    if config.pluginmanager.hasplugin("xdist"):
        for item, group in groups.items():
            if group is not None:
                item.add_marker(pytest.mark.xdist_group(group))
