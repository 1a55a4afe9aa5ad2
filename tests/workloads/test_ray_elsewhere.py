"""A real Ray cluster whose workers are on machines with SSH, and on instances of a fake EC2."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.workloads.ray_cluster import Scaled
from tests.workloads.ray_stage import RayHead
from windlass.testing.clouds import FakeEC2, SshHosts, missing_for_ec2, missing_for_hosts

pytest.importorskip("asyncssh", reason="needs asyncssh: pip install 'windlass[ssh]'")
pytestmark = [
    pytest.mark.ray,
    pytest.mark.ssh,
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_for_hosts()), reason=missing_for_hosts() or "-"),
]

CODE = """
import time

@ray.remote(num_cpus=1)
def where(seconds):
    time.sleep(seconds)
    return ray.util.get_node_ip_address()
"""


@contextmanager
def scaled(gateway: str, provider: dict[str, Any], group: dict[str, Any]) -> Iterator[Scaled]:
    """A head in the network of the machines, and a controller that launches them."""
    head = RayHead("RAY_NEW", host=gateway)
    try:
        head.start()
        driver = head.driver()
        driver.run(CODE)
        cluster = Scaled(head, driver, {"far": {"max": 2, "scale_down": {"idle_timeout": "2s"}, **group}})
        cluster.providers = {"there": {**provider, "connect": "direct"}}
        try:
            yield cluster.start()
        finally:
            cluster.stop()
            driver.close()
    finally:
        head.stop()


def used_by_six_tasks(cluster: Scaled) -> set[str]:
    """Run tasks, wait until every machine has been released, and return the addresses on which they ran."""
    used = cluster.driver.run("result = ray.get([where.remote(1) for _ in range(6)])")
    cluster.eventually(lambda: cluster.status()["slices"], lambda found: not found)
    assert not cluster.lost()
    assert cluster.status()["bill"]["total"] > 0
    assert isinstance(used, list)
    return set(used)


def test_ray_tasks_run_on_machines_with_ssh_which_are_free_again_afterwards():
    with SshHosts(2) as hosts:
        provider = {
            "type": "ssh",
            "hosts": [host.spec for host in hosts],
            "key_file": str(hosts.key_file),
            "known_hosts": str(hosts.known_hosts),
        }
        group = {"resources": {"cpu": 2, "memory": "300M"}, "price": 0.5}
        with scaled(hosts.gateway, provider, group) as cluster:
            assert used_by_six_tasks(cluster) <= {host.address for host in hosts}
        assert not [host for host in hosts if (host.home / ".windlass/run/supervisor.json").exists()]


@pytest.mark.aws
@pytest.mark.skipif(bool(missing_for_ec2()), reason=missing_for_ec2() or "-")
def test_ray_tasks_run_on_the_cheapest_instances_which_are_terminated_afterwards(monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with FakeEC2() as ec2:
        provider = ec2.provider_settings(tmp_path)
        group = {"offers": {"cpus": 2, "market": "spot-first", "max_price": 0.1, "providers": ["there"]}}
        with scaled(ec2.hosts.gateway, provider, group) as cluster:
            used = used_by_six_tasks(cluster)
        assert used <= {one.host.address for one in ec2.instances.values() if one.host is not None}
        assert not ec2.live
        assert all(one.spot for one in ec2.instances.values())
