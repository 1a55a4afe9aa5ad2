"""The KWOK provider keeps the contract, on the API server within the process."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from windlass.kubernetes_api.api import Api, ApiError, Response
from windlass.providers.kwok.provider import KwokProvider
from windlass.providers.protocol import (
    AuthFailed,
    HostOrder,
    InsufficientCapacity,
    InvalidRequest,
    LaunchOrder,
    ProviderError,
    Throttled,
)
from windlass.testing.kubernetes.fake_server import FakeApiServer
from windlass.testing.provider_conformance import ProviderConformance

DEVICES = '[{"driver": "gpu.example.com", "count": 2}]'


class TestKwokProvider(ProviderConformance):
    most_hosts = 1
    fences = False
    """The claims around it are what a controller without the lease cannot write."""
    boot_delay = 0.0

    @pytest.fixture(autouse=True)
    def _server(self):
        self.server = FakeApiServer()

    def provider(self):
        return KwokProvider(Api(self.server), boot_delay=self.boot_delay)

    async def make_foreign(self):
        self.server.put("/api/v1/nodes", {"metadata": {"name": "someone-elses"}, "spec": {}})
        return True

    def test_an_id_that_has_ended_buys_nothing_any_more(self):
        """Within one process. Nothing in the cluster remembers a node without a machine once it is erased: a controller
        that has just started relies on its journal, which never launches an id twice."""

        async def main():
            provider = self.provider()
            provider.bind(self.cluster)
            await provider.launch(self.order("c-1"), 7)
            await provider.terminate("c-1", 7)
            await provider.launch(self.order("c-1"), 7)
            await provider.close()

        asyncio.run(main())
        assert self.server.all("nodes") == []

    async def leftovers(self, slice_id):
        return [one for one in self.server.all("nodes") if one["metadata"]["name"] == slice_id]


class TestKwokProviderThatBootsSlowly(TestKwokProvider):
    boot_delay = 0.1


def order(name: str = "n-1", **environment: str) -> LaunchOrder:
    return LaunchOrder(name, "a100", (HostOrder((), environment),), ())


def launched(server: FakeApiServer, one: LaunchOrder, **settings: Any) -> None:
    async def main() -> None:
        provider = KwokProvider(Api(server), **settings)
        try:
            await provider.launch(one, 1)
        finally:
            await provider.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, AuthFailed), (403, AuthFailed), (422, InvalidRequest), (500, ProviderError), (None, ProviderError)],
)
def test_a_refusal_of_the_server_says_what_it_means(status: int | None, kind: type[ProviderError]):
    server = FakeApiServer()
    answer = None if status is None else Response(status, b'{"message": "no"}')
    server.fail_next(lambda method, _path: method == "POST", answer)
    with pytest.raises(kind):
        launched(server, order())
    assert server.all("nodes") == []


def test_a_busy_server_is_asked_again_and_then_throttles_the_controller():
    server = FakeApiServer()
    busy = Response(429, b'{"message": "busy", "details": {"retryAfterSeconds": 30}}')
    server.fail_next(lambda method, _path: method == "POST", busy)
    with pytest.raises(Throttled) as refused:
        launched(server, order())
    assert refused.value.retry_after == 30


def test_the_share_of_failures_is_refused_as_out_of_stock():
    server = FakeApiServer()
    refused = 0
    for number in range(200):
        try:
            launched(server, order(f"n-{number}"), failure=0.5, seed=number)
        except InsufficientCapacity:
            refused += 1
    assert 60 < refused < 140
    assert len(server.all("nodes")) == 200 - refused


def test_it_closes_at_the_moment_a_node_is_due():
    async def main() -> None:
        provider = KwokProvider(Api(FakeApiServer()), boot_delay=60.0)
        await provider.launch(order("n-1"), 1)
        await asyncio.sleep(0)
        await provider.launch(order("n-2"), 1)  # this wakes the task that plays the kubelets
        async with asyncio.timeout(30):
            await provider.close()
        assert "kwok nodes" not in [task.get_name() for task in asyncio.all_tasks()]

    asyncio.run(main())


def test_devices_are_published_after_a_crash_between_the_node_and_its_resource_slices():
    server = FakeApiServer()
    fails = [True]

    def die(method: str, path: str) -> None:
        if fails[0] and method == "POST" and path.endswith("resourceslices"):
            raise ApiError(0, "killed")

    server.on_write = die

    async def main() -> None:
        first = KwokProvider(Api(server))
        await first.launch(order(WINDLASS_NODE_DEVICES=DEVICES, WINDLASS_NODE_RESOURCES='{"cpu": "1"}'), 1)
        await asyncio.sleep(0.05)
        await first.close()
        assert server.all("resourceslices") == []
        fails[0] = False
        second = KwokProvider(Api(server))
        async with asyncio.timeout(30):
            while not server.all("resourceslices"):
                await second.list()
                await asyncio.sleep(0.01)
        await second.terminate("n-1", 1)
        await second.close()

    asyncio.run(main())
    assert server.all("resourceslices") == []
    assert server.all("nodes") == []
