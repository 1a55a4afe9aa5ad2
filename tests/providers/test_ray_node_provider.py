"""Ray's node providers pass the conformance kit of providers; their errors are converted by category."""

import pytest

from windlass.providers.protocol import InsufficientCapacity, ProviderError, QuotaExceeded
from windlass.providers.ray_node_provider.provider import RayNodeProvider
from windlass.testing.eventually import refusal_of, run
from windlass.testing.provider_conformance import ProviderConformance

MODULE = "tests.providers.process_nodes.ProcessNodes"


class TestRayNodeProvider(ProviderConformance):
    @pytest.fixture(autouse=True)
    def _home(self, tmp_path, monkeypatch):
        self.home = tmp_path
        self.made = []

    def provider(self):
        config = {"directory": str(self.home / "cloud")}
        found = RayNodeProvider(MODULE, config=config, directory=self.home / "state")
        found.bind(self.cluster)
        return found


@pytest.mark.parametrize(
    ("category", "kind"),
    [("InsufficientInstanceCapacity", InsufficientCapacity), ("QuotaExceeded", QuotaExceeded), ("Odd", ProviderError)],
)
def test_a_launch_that_ray_refuses_is_refused_by_its_category(tmp_path, category, kind):
    async def story():
        config = {"directory": str(tmp_path / "cloud"), "refuse": category}
        provider = RayNodeProvider(MODULE, config=config, directory=tmp_path / "state")
        try:
            order = TestRayNodeProvider().order("w-1")
            error = await refusal_of(provider.launch(order, 1), kind)
            assert "no such machine now" in str(error)
            assert type(error) is kind
            assert await provider.list() == []
        finally:
            await provider.close()

    run(story())


def test_a_module_that_is_not_there_is_reported(tmp_path):
    async def story():
        provider = RayNodeProvider("no.such.Thing", directory=tmp_path)
        try:
            error = await refusal_of(provider.list(), ProviderError)
            assert "no.such.Thing" in str(error)
        finally:
            await provider.close()

    run(story())
