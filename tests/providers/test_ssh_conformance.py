"""Machines with SSH keep the contract of a provider: real sshd, real asyncssh."""

from __future__ import annotations

import json
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from windlass.testing.clouds import SshHosts, missing_for_hosts
from windlass.testing.provider_conformance import ProviderConformance

pytest.importorskip("asyncssh", reason="needs asyncssh: pip install '.[ssh]'")

from windlass.providers.ssh.provider import SSHProvider

pytestmark = [pytest.mark.ssh, pytest.mark.skipif(bool(missing_for_hosts()), reason=missing_for_hosts() or "-")]


@pytest.fixture(scope="module")
def machines() -> Iterator[SshHosts]:
    with SshHosts(5) as hosts:
        yield hosts


class TestSSHMachines(ProviderConformance):
    burst = 5

    @pytest.fixture(autouse=True)
    def _on(self, machines: SshHosts) -> None:
        self.machines = machines
        for host in machines:  # each test has an account of its own
            assert not (host.home / ".windlass/sold.json").exists()
            for path in (host.home / ".windlass").glob("ended/*/*"):
                path.unlink()

    def provider(self) -> SSHProvider:
        provider = SSHProvider(
            [host.spec for host in self.machines],
            key_file=str(self.machines.key_file),
            known_hosts=str(self.machines.known_hosts),
        )
        self.made.append(provider)
        return provider

    def _run(self, test: Coroutine[Any, Any, None]) -> None:
        self.made: list[SSHProvider] = []

        async def closing() -> None:
            try:
                await test
            finally:
                for provider in self.made:
                    await provider.close()

        super()._run(closing())

    async def leftovers(self, slice_id: str) -> list[object]:
        left: list[object] = []
        for host in self.machines:
            sold = host.home / ".windlass/sold.json"
            if sold.exists() and json.loads(sold.read_text())["slice"] == slice_id:
                left.append(sold)
            if not sold.exists():
                left += (host.home / ".windlass/run").glob("*")
        return left
