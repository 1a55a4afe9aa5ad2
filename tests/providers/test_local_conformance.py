"""The local provider keeps the contract, with real processes; slow boots included."""

from __future__ import annotations

import pytest

from tests.providers.local_processes import marked
from windlass.providers.local.provider import LocalProvider
from windlass.testing.provider_conformance import ProviderConformance


class TestLocalProvider(ProviderConformance):
    boot_delay = 0.0

    @pytest.fixture(autouse=True)
    def _directory(self, tmp_path):
        self.directory = tmp_path / "slices"
        yield
        assert marked(self.directory) == []

    def provider(self):
        return LocalProvider(self.directory, boot_delay=self.boot_delay, grace=2.0)

    def onlooker(self):
        return LocalProvider(self.directory, repair=False)

    async def make_foreign(self):
        (self.directory / "someone-elses" / "host-0").mkdir(parents=True)
        (self.directory / "notes.txt").write_text("not a slice", encoding="utf-8")
        return True

    async def leftovers(self, slice_id):
        home = self.directory / slice_id
        return [*marked(home), *([home] if home.exists() else [])]


class TestLocalProviderThatBootsSlowly(TestLocalProvider):
    boot_delay = 0.15
