"""EC2 instances keep the contract of a provider: real boto3 against a fake EC2 whose instances run a real sshd."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from windlass.testing.clouds import FakeEC2, missing_for_ec2
from windlass.testing.provider_conformance import ProviderConformance

pytestmark = [pytest.mark.aws, pytest.mark.skipif(bool(missing_for_ec2()), reason=missing_for_ec2() or "-")]


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")


class TestEC2(ProviderConformance):
    burst = 4
    patience = 60.0
    fences = False  # EC2 keeps no epoch; the machines do, see the provider's tests

    @pytest.fixture(autouse=True)
    def _on(self, tmp_path: Any) -> Iterator[None]:
        with FakeEC2() as self.ec2:
            self.directory = tmp_path
            yield

    def provider(self) -> Any:
        from windlass.providers.aws.buying import AWSSettings
        from windlass.providers.aws.provider import AWSProvider

        settings = AWSSettings(
            endpoint_url=self.ec2.url,
            user="root",
            directory=str(self.directory),
            image_id="ami-12c6146b",
            security_group="sg-12345678",
            instance_type="m5.large",
            metadata_url=self.ec2.metadata_url,
        )
        provider = AWSProvider(settings)
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

    async def leftovers(self, slice_id: str) -> list[object]:
        templates = [name for name in self.ec2.templates if name.endswith(f"-{slice_id}")]
        return [*templates, *(one for one in self.ec2.live if one.slice_id == slice_id)]
