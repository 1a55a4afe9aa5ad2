"""Settings for the whole suite: property tests are repeatable, and judged by their answers, not by the clock."""

from __future__ import annotations

import os
import signal
from typing import Any

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
GROUPS = {
    "ray": (
        "tests/workloads/test_ray_cluster.py",
        "tests/workloads/test_ray_conformance.py",
        "tests/workloads/test_ray_faults.py",
    ),
    "kubernetes": ("tests/workloads/kubernetes/", "tests/providers/test_kuberay.py"),
    "hosts": (
        "tests/cli/test_cloud_commands.py",
        "tests/cli/test_machines_elsewhere.py",
        "tests/pool/test_pool_on_ec2.py",
        "tests/pool/test_pool_on_ssh.py",
        "tests/providers/test_aws_faults.py",
        "tests/providers/test_remote_conformance.py",
        "tests/providers/test_ssh_faults.py",
        "tests/workloads/test_ray_elsewhere.py",
    ),
    "browser": ("tests/server/browser/",),
    "journal": ("tests/journal/",),
}
COMPUTING = (
    "tests/core/",
    "tests/scenario/",
    "tests/config/",
    "tests/sim/",
    "tests/test_cases.py",
    "tests/test_builders.py",
)


def group_of(nodeid: str) -> str:
    """Name the group of a test: a test that only computes has its own and runs on any worker."""
    for group, paths in GROUPS.items():
        if nodeid.startswith(paths):
            return group
    return nodeid if nodeid.startswith(COMPUTING) else nodeid.partition("::")[0]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests by the order of their groups."""
    ranks = {group: rank for rank, group in enumerate(GROUPS)}
    items.sort(key=lambda item: (item.nodeid.startswith(COMPUTING), ranks.get(group_of(item.nodeid), len(ranks))))


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Send whole groups to workers. The groups of ``--dist loadgroup`` are not in force with pytest 9.2."""
    from xdist.scheduler import LoadScopeScheduling

    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = group_of
    return scheduler
