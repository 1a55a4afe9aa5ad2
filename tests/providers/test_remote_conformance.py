"""Machines with SSH and EC2 instances keep the contract of a provider: real sshd, asyncssh and boto3."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from windlass.testing.clouds import FakeEC2, SshHosts, missing_for_ec2, missing_for_hosts
from windlass.testing.provider_conformance import ProviderConformance

pytest.importorskip("asyncssh", reason="needs asyncssh: pip install '.[ssh]'")


class RemoteConformance(ProviderConformance):
    """Providers hold connections: each test closes those that it made."""

    @abstractmethod
    def make(self) -> Any: ...

    def provider(self) -> Any:
        provider = self.make()
        self.made.append(provider)
        return provider

    def _run(self, test: Coroutine[Any, Any, None]) -> None:
        self.made: list[Any] = []

        async def closing() -> None:
            try:
                await test
            finally:
                for provider in self.made:
                    await provider.close()

        super()._run(closing())


@pytest.fixture(scope="module")
def machines() -> Iterator[SshHosts]:
    with SshHosts(5) as hosts:
        yield hosts


@pytest.mark.ssh
@pytest.mark.skipif(bool(missing_for_hosts()), reason=missing_for_hosts() or "-")
class TestSSHMachines(RemoteConformance):
    burst = 5
    patience = 90.0

    @pytest.fixture(autouse=True)
    def _on(self, machines: SshHosts, monkeypatch: pytest.MonkeyPatch) -> None:
        self.machines = machines
        monkeypatch.setattr("windlass.providers.ssh.provider.PATIENCE", 60.0)  # a busy computer answers late
        for host in machines:  # each test has an account of its own
            assert not (host.home / ".windlass/sold.json").exists()
            for path in (host.home / ".windlass").glob("ended/*/*"):
                path.unlink()

    def make(self) -> Any:
        from windlass.providers.ssh.provider import SSHProvider

        return SSHProvider(
            [host.spec for host in self.machines],
            key_file=str(self.machines.key_file),
            known_hosts=str(self.machines.known_hosts),
        )

    async def leftovers(self, slice_id: str) -> list[object]:
        left: list[object] = []
        for host in self.machines:
            sold = host.home / ".windlass/sold.json"
            if sold.exists() and json.loads(sold.read_text())["slice"] == slice_id:
                left.append(sold)
            if not sold.exists():
                left += (host.home / ".windlass/run").glob("*")
        return left


@pytest.mark.aws
@pytest.mark.skipif(bool(missing_for_ec2()), reason=missing_for_ec2() or "-")
class TestEC2(RemoteConformance):
    burst = 4
    patience = 90.0
    fences = False  # EC2 keeps no epoch; the machines do, see the provider's tests

    @pytest.fixture(autouse=True)
    def _on(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        with FakeEC2() as self.ec2:
            self.directory = tmp_path
            yield

    def make(self) -> Any:
        from windlass.providers.aws.buying import AWSSettings
        from windlass.providers.aws.provider import AWSProvider

        return AWSProvider(
            AWSSettings(
                endpoint_url=self.ec2.url,
                user="root",
                directory=str(self.directory),
                image_id="ami-12c6146b",
                security_group="sg-12345678",
                instance_type="m5.large",
                metadata_url=self.ec2.metadata_url,
            )
        )

    async def leftovers(self, slice_id: str) -> list[object]:
        templates = [name for name in self.ec2.templates if name.endswith(f"-{slice_id}")]
        return [*templates, *(one for one in self.ec2.live if one.slice_id == slice_id)]
