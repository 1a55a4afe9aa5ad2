"""``windlass run`` with a Dask cluster whose workers are on machines with SSH."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client

from tests.cli.test_live_cluster import Running, eventually, leading
from windlass.testing.clouds import SshHosts, missing_for_hosts

pytest.importorskip("asyncssh", reason="needs asyncssh: pip install '.[ssh]'")
pytestmark = [
    pytest.mark.ssh,
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_for_hosts()), reason=missing_for_hosts() or "-"),
]
TASKS = 30


@pytest.fixture
def hosts() -> Iterator[SshHosts]:
    with SshHosts(2) as hosts:
        yield hosts


@pytest.fixture
def scheduler(tmp_path: Path, hosts: SshHosts) -> Iterator[str]:
    contact = tmp_path / "scheduler.json"
    words = ["--host", hosts.gateway, "--port", "0", "--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_scheduler", *words, "--scheduler-file", str(contact)],
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    try:
        text = eventually(lambda: contact.read_text(encoding="utf-8") if contact.exists() else "")
        yield json.loads(text)["address"]
    finally:
        process.kill()
        process.wait(10)


def config(machines: SshHosts, scheduler: str, **provider: object) -> str:
    ssh = {
        "type": "ssh",
        "hosts": [host.spec for host in machines],
        "key_file": str(machines.key_file),
        "known_hosts": str(machines.known_hosts),
        "connect": "direct",
        **provider,
    }
    return json.dumps(
        {
            "groups": {"big": {"resources": {"cpu": 1}, "max": 2, "price": 0.5, "scale_down": {"idle_timeout": "1s"}}},
            "providers": {"rack": ssh},
            "workload": {"type": "dask", "scheduler": scheduler},
            "policy": {"vanish_timeout": 0.2, "evaluation_interval": {"min": 0.05, "max": 0.5}},
        }
    )


def test_a_burst_runs_on_the_machines_and_they_are_given_back(hosts, scheduler, tmp_path):
    with leading(tmp_path, config(hosts, scheduler, image={"env": {"GREETING": "hello"}})) as cluster:
        assert isinstance(cluster, Running)
        with Client(scheduler, set_as_default=False) as client:

            def work(number: int) -> tuple[int, str, str]:
                import os
                import time

                time.sleep(0.2)
                return number, os.environ["WINDLASS_NODE"], os.environ["GREETING"]

            futures = client.map(work, range(TASKS), pure=False)
            answers = client.gather(futures)
            assert [answer[0] for answer in answers] == list(range(TASKS))
            assert {answer[2] for answer in answers} == {"hello"}
            assert len({answer[1] for answer in answers}) == 2, "both machines were at work"
            del futures
            cluster.until(lambda seen: not seen["slices"])
        assert not [host for host in hosts if (host.home / ".windlass/sold.json").exists()]


def test_a_dask_cluster_through_a_tunnel_is_refused_with_the_remedy(hosts, tmp_path):
    (tmp_path / "windlass.yaml").write_text(config(hosts, "tcp://127.0.0.1:8786", connect="tunnel"))
    done = subprocess.run(
        [sys.executable, "-m", "windlass", "config", "check", "windlass.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "connect: direct" in done.stdout + done.stderr


def test_a_bad_list_of_hosts_is_refused_with_its_place(tmp_path, hosts):
    for bad, words in (
        ([], "no hosts"),
        ([{"adress": "gpu1"}], "'adress' is not known"),
        (["gpu1", "gpu1"], "twice"),
        ([{"address": "gpu1", "resources": {"cpu": "lots"}}], "hosts[0].resources"),
    ):
        (tmp_path / "windlass.yaml").write_text(config(hosts, "tcp://127.0.0.1:8786", hosts=bad))
        done = subprocess.run(
            [sys.executable, "-m", "windlass", "plan", "--live"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1, done
        assert words in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
