"""``windlass run`` with a Dask cluster whose workers are on machines with SSH, and on instances of a fake EC2."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from tests.cli.test_live_cluster import Running, eventually, leading
from tests.pool.machines_elsewhere import PACKAGE, GatedIndex
from windlass.testing.clouds import FakeEC2, SshHost, SshHosts, missing_for_ec2, missing_for_hosts

pytest.importorskip("asyncssh", reason="needs asyncssh: pip install 'windlass[ssh]'")
pytestmark = [
    pytest.mark.ssh,
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_for_hosts()), reason=missing_for_hosts() or "-"),
]
on_ec2 = [pytest.mark.aws, pytest.mark.skipif(bool(missing_for_ec2()), reason=missing_for_ec2() or "-")]
SECRET = "hunter2-is-not-a-password"
WAIT = 180.0


@contextmanager
def scheduler_at(directory: Path, address: str) -> Iterator[str]:
    """A Dask scheduler in the network of the hosts."""
    contact = directory / "scheduler.json"
    words = ["--host", address, "--port", "0", "--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_scheduler", *words, "--scheduler-file", str(contact)],
        cwd=directory,
        stderr=subprocess.DEVNULL,
    )
    try:
        text = eventually(lambda: contact.read_text(encoding="utf-8") if contact.exists() else "", within=WAIT)
        yield json.loads(text)["address"]
    finally:
        process.kill()
        process.wait(10)


def configured(provider: dict[str, Any], group: dict[str, Any], scheduler: str) -> str:
    return json.dumps(
        {
            "groups": {"big": {"max": 2, "scale_down": {"idle_timeout": "1s"}, **group}},
            "providers": {"there": {**provider, "connect": "direct"}},
            "workload": {"type": "dask", "scheduler": scheduler},
            "policy": {
                "vanish_timeout": 0.2,
                "unhealthy_timeout": "5s",
                "evaluation_interval": {"min": 0.05, "max": 0.5},
            },
        }
    )


def on_ssh(hosts: SshHosts, **more: Any) -> dict[str, Any]:
    keys = {"key_file": str(hosts.key_file), "known_hosts": str(hosts.known_hosts), "lost_after": "5s"}
    return {"type": "ssh", "hosts": [host.spec for host in hosts], **keys, **more}


class Gates:
    """What machines and tasks wait for, so that a test sees them on the way however fast or slow they are."""

    def __init__(self, directory: Path, index: GatedIndex) -> None:
        self.index = index
        self.set_up, self.second_half = directory / "set-up", directory / "second-half"

    @property
    def image(self) -> dict[str, Any]:
        image = self.index.image
        setup = [f"until [ -e {self.set_up} ]; do sleep 0.1; done"]
        return {**image, "env": {**image["env"], "TOY": SECRET}, "setup": setup}


def until(cluster: Running, wanted: Callable[[Any], object]) -> Any:
    """The status, as soon as it is as wanted. Asked seldom: each time is a process."""
    deadline = time.monotonic() + WAIT
    while not wanted(found := cluster.data("status")):
        assert time.monotonic() < deadline, found
        time.sleep(0.5)
    return found


def two_hundred_tasks(cluster: Running, scheduler: str, gates: Gates, disturb: Callable[[list[str]], None]) -> None:
    """Run 200 tasks; ``disturb`` is called with the machines at work when some are done and others are not."""

    def work(number: int, gate: str) -> tuple[int, str, str]:  # inside, so that its code is sent
        import os
        import time
        from pathlib import Path

        import windlasstoy  # type: ignore[import-not-found]

        while number >= 60 and not Path(gate).exists():
            time.sleep(0.05)
        return windlasstoy.triple(number), os.environ["WINDLASS_NODE"], os.environ["TOY"]

    def in_phase(words: str) -> Any:
        def there(now: Any) -> list[Any]:
            return [one for one in now["slices"] if words in (one["phase"] or "")]

        return there(until(cluster, there))[0]

    with Client(scheduler, set_as_default=False) as client:
        futures = client.map(work, range(200), gate=str(gates.second_half), pure=False, retries=3)

        coming = in_phase(f"installing {PACKAGE}")
        assert coming["state"] in ("requesting", "booting", "initializing"), coming
        assert PACKAGE in cluster.data("why", coming["id"])["slice"]["phase"]
        gates.index.opened.set()
        in_phase("setup 1 of 1")
        gates.set_up.touch()
        eventually(lambda: sum(one.done() for one in futures), lambda count: count >= 40, WAIT)
        seen = until(cluster, lambda now: sum(one["state"] == "ready" for one in now["slices"]) == 2)
        disturb([one["id"] for one in seen["slices"] if one["state"] == "ready"])
        gates.second_half.touch()
        answers = client.gather(futures)
        assert [answer[0] for answer in answers] == [3 * number for number in range(200)]
        assert {answer[2] for answer in answers} == {SECRET}, "variables of the image reach the program"
        client.cancel(futures)  # results that are kept would keep their machines


def scaled_to_zero(cluster: Running) -> dict[str, Any]:
    status: dict[str, Any] = until(cluster, lambda seen: not seen["slices"])
    assert status["bill"]["total"] > 0
    output = [json.loads(line) for line in cluster.output("events", "--json", "--limit", "1000").splitlines()]
    phases = [one["text"].partition(": ")[2] for one in output if one["kind"] == "phase"]
    assert any(f"installing {PACKAGE}" in one for one in phases), phases
    assert "setup 1 of 1" in phases
    for path in cluster.directory.rglob("*"):
        if path.is_file() and path.name != "windlass.yaml":
            assert SECRET.encode() not in path.read_bytes(), path
    return status


def test_200_tasks_on_machines_with_ssh_with_a_package_a_killed_host_scale_to_zero_and_the_bill(tmp_path):
    with SshHosts(2) as hosts, scheduler_at(tmp_path, hosts.gateway) as scheduler:
        killed: list[SshHost] = []

        def kill_one(_: list[str]) -> None:
            killed.append(next(host for host in hosts if (host.home / ".windlass/run/supervisor.json").exists()))
            killed[0].crash()

        (tmp_path / "cluster").mkdir()
        with GatedIndex(tmp_path, hosts.gateway) as index:
            gates = Gates(tmp_path, index)
            group = {"resources": {"cpu": 1}, "price": 0.5, "image": gates.image}
            with leading(tmp_path / "cluster", configured(on_ssh(hosts), group, scheduler)) as cluster:
                two_hundred_tasks(cluster, scheduler, gates, kill_one)
                killed[0].start()  # what it had counts as ended when the machine itself says so
                scaled_to_zero(cluster)
        assert not [host for host in hosts if (host.home / ".windlass/sold.json").exists()]


@pytest.mark.usefixtures("_keys")
class TestEC2:
    pytestmark = on_ec2

    @pytest.fixture
    def _keys(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def test_200_tasks_on_offers_with_a_package_a_killed_host_a_spot_notice_scale_to_zero_and_the_bill(self, tmp_path):
        with (
            FakeEC2() as ec2,
            scheduler_at(tmp_path, ec2.hosts.gateway) as scheduler,
            GatedIndex(tmp_path, ec2.hosts.gateway) as index,
        ):

            def disturb(ready: list[str]) -> None:
                first, second = (one for one in ec2.live if any(name in one.template for name in ready))
                ec2.crash(first.id)
                ec2.give_notice(second.id, seconds=120)

            offers = {"cpus": 2, "market": "spot-first", "max_price": 0.1, "providers": ["there"]}
            gates = Gates(tmp_path, index)
            group = {"offers": offers, "image": gates.image}
            (tmp_path / "cluster").mkdir()
            config = configured(ec2.provider_settings(tmp_path), group, scheduler)
            with leading(tmp_path / "cluster", config) as cluster:
                two_hundred_tasks(cluster, scheduler, gates, disturb)
                status = scaled_to_zero(cluster)
                groups = {one["name"] for one in status["groups"]}
                assert groups >= {"big/c7i.large/spot", "big/c7i.large/on-demand"}
                assert all(one.spot for one in ec2.instances.values())
                assert {f"big/{one.type}/spot" for one in ec2.instances.values()} <= groups, "only what is offered"
                assert ec2.most_at_once <= 2, "max holds over all offers together"
            self._finds_an_orphan(cluster, ec2)
            assert not ec2.templates, "launch templates were left behind"
            assert not any(SECRET in text for text in (*ec2.requests, *ec2.user_data.values()))

    def _finds_an_orphan(self, cluster: Running, ec2: FakeEC2) -> None:
        """An instance with our tags that the journal does not know, while no controller runs."""
        import boto3

        assert "every machine has a record" in cluster.run("doctor", "--json").stdout
        client = boto3.client("ec2", region_name="us-east-1", endpoint_url=ec2.url)
        (known, *_) = (
            one for found in client.describe_instances()["Reservations"] for one in found["Instances"] if one["Tags"]
        )
        tags = [one for one in known["Tags"] if one["Key"].startswith("windlass:cluster")]
        tags += [{"Key": "windlass:slice", "Value": "big-planted-1"}, {"Key": "windlass:group", "Value": "big"}]
        client.run_instances(
            ImageId="ami-12c6146b",
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )
        done = cluster.run("doctor", "--json")
        assert done.returncode == 1
        text = "there lists big-planted-1 as a machine of this cluster, but the journal has no record of it"
        assert text in done.stdout


def refused(directory: Path, provider: dict[str, Any], *words: str) -> str:
    group = {"resources": {"cpu": 1}, "max": 1}
    text = configured(provider, group, "tcp://127.0.0.1:8786")
    if "connect" in provider:
        text = text.replace('"connect": "direct"', f'"connect": "{provider["connect"]}"')
    (directory / "windlass.yaml").write_text(text)
    done = Running(directory).run(*words)
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def test_a_dask_cluster_through_a_tunnel_is_refused_with_the_remedy(tmp_path):
    ssh = {"type": "ssh", "hosts": ["gpu1"], "connect": "tunnel"}
    assert "connect: direct" in refused(tmp_path, ssh, "config", "check", "windlass.yaml")
