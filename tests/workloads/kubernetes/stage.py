"""A controller on an API server within the process, pass by pass, on a clock that the test sets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from windlass.control.controller import Controller, Pass
from windlass.control.settings import Leadership, Policy, Settings
from windlass.journal import Journal, open_journal
from windlass.kubernetes_api.api import Api
from windlass.providers.kwok.provider import KwokProvider
from windlass.providers.node_claims import NodeClaimProvider
from windlass.providers.protocol import Provider
from windlass.sim.run.virtual_loop import run_virtually
from windlass.testing.kubernetes.fake_server import FakeApiServer
from windlass.workloads.kubernetes.publish.publisher import DecisionPublisher
from windlass.workloads.kubernetes.workload import KubernetesWorkload

from .conftest import pod

PROVISIONERS = "/apis/windlass.dev/v1alpha1/nodeprovisioners"
CLAIMS = "/apis/windlass.dev/v1alpha1/nodeclaims"
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


def provisioner(name: str = "a100", **spec: Any) -> dict[str, Any]:
    template = {"resources": {"cpu": "32", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}}
    template |= spec.pop("template", {})
    whole = {"maxNodes": 200, "provider": "kwok", "template": template, "scaleDownDelay": "10m", **spec}
    return {
        "apiVersion": "windlass.dev/v1alpha1",
        "kind": "NodeProvisioner",
        "metadata": {"name": name},
        "spec": whole,
    }


class Stage:
    """One controller and the cluster it works on."""

    def __init__(
        self,
        fake: FakeApiServer,
        journal: Journal,
        clock: list[float],
        sells: Callable[[], Provider] | None = None,
        **kwok: Any,
    ) -> None:
        """``sells``: makes a provider that sells nodes instead of kwok, under the same name."""
        self.fake, self.journal, self._clock, self._sells, self._kwok = fake, journal, clock, sells, kwok
        self._restart()

    def _restart(self) -> None:
        now = lambda: self._clock[0]  # noqa: E731
        self.api = Api(self.fake)
        self.workload = KubernetesWorkload(
            self.api, ["kwok"], settle=0.0, now=now, publisher=lambda one: DecisionPublisher(one, now=now)
        )
        self.seller: Provider = KwokProvider(self.api, now=now, **self._kwok) if self._sells is None else self._sells()
        provider = NodeClaimProvider(
            self.seller,
            "kwok",
            self.api,
            still_used=self.workload.still_used,
            is_orphaned=self.workload.is_orphaned,
        )
        self.controller = Controller(
            Settings((), policy=Policy()),
            {"kwok": provider},
            self.workload,
            self.journal,
            now=now,
            leadership=Leadership(holder="test", lease=1e9),
        )
        self.controller.start()

    async def restart(self, *, lose_journal: bool = False) -> None:
        """Kill the controller and start another one."""
        await self.close()
        if lose_journal:
            self.journal = open_journal(":memory:")
        self._restart()

    async def close(self) -> None:
        with suppress(Exception):
            await self.controller.stop()
        await self.seller.close()
        await self.workload.close()

    def advance(self, seconds: float) -> None:
        self._clock[0] += seconds

    @property
    def now(self) -> float:
        return self._clock[0]

    async def settle(self) -> None:
        """Let the watches, the calls and the writers come to rest."""
        for _ in range(20):
            await asyncio.sleep(0.002)
        await self.controller.actuator.settle()
        publisher = self.workload.publisher
        assert isinstance(publisher, DecisionPublisher)
        with suppress(TimeoutError):
            async with asyncio.timeout(0.3):
                await publisher.queue.settle()
        for _ in range(10):
            await asyncio.sleep(0.002)

    async def tick(self, passes: int = 1) -> Pass:
        """Some passes, each followed by rest."""
        for _ in range(passes):
            last = await self.controller.tick()
            await self.settle()
        return last

    async def until(self, check: Callable[[], Any], passes: int = 30, step: float = 1.0) -> Any:
        """Passes until a check holds, the clock going on."""
        for _ in range(passes):
            await self.tick()
            if found := check():
                return found
            self.advance(step)
        raise AssertionError(f"not within {passes} passes: {check}")

    # -- the cluster ---------------------------------------------------------------------------------------------------

    def pending(self, name: str, **requests: str) -> None:
        """A pod that the scheduler gave up on."""
        body = pod(name, requests=requests or {"nvidia.com/gpu": "8"})
        body["status"] = {"phase": "Pending", "conditions": [UNSCHEDULABLE]}
        self.fake.put(PODS, body)

    def bind(self, name: str, node: str) -> None:
        """What scheduler and kubelet do with a pod."""

        def change(one: dict[str, Any]) -> None:
            one["spec"]["nodeName"] = node
            one["status"] = {"phase": "Running", "conditions": []}

        self.fake.change(f"{PODS}/{name}", change)

    def run_on(self, node: str, name: str | None = None, **requests: str) -> None:
        """A pod that runs on a node."""
        body = pod(name or f"on-{node}", requests=requests or {"nvidia.com/gpu": "8"})
        body["spec"]["nodeName"] = node
        body["status"] = {"phase": "Running"}
        self.fake.put(PODS, body)

    def finish(self, *names: str) -> None:
        for name in names:
            self.fake.remove(f"{PODS}/{name}")

    @property
    def nodes(self) -> list[str]:
        return sorted(one["metadata"]["name"] for one in self.fake.all("nodes"))

    def tainted(self, key: str) -> dict[str, str]:
        """The nodes with a taint, and its value."""
        return {
            one["metadata"]["name"]: taint.get("value", "")
            for one in self.fake.all("nodes")
            for taint in one["spec"].get("taints") or ()
            if taint["key"] == key
        }

    @property
    def marked(self) -> dict[str, str]:
        return self.tainted("windlass.dev/scheduled-deletion")

    @property
    def claims(self) -> list[str]:
        return sorted(one["metadata"]["name"] for one in self.fake.all("nodeclaims"))

    def status(self, name: str = "a100") -> dict[str, Any]:
        found = self.fake.get(f"{PROVISIONERS}/{name}")
        assert found is not None
        return found.get("status") or {}

    def condition(self, kind: str, name: str = "a100") -> dict[str, Any]:
        return next(one for one in self.status(name)["conditions"] if one["type"] == kind)

    def events(self, reason: str) -> list[dict[str, Any]]:
        return [one for one in self.fake.all("events") if one["reason"] == reason]


def staged(test: Callable[[Stage], Awaitable[Any]], **kwok: Any) -> None:
    """Run a test on a new stage."""
    clock = [1_800_000_000.0]

    async def main() -> None:
        stage = Stage(FakeApiServer(lambda: clock[0]), open_journal(":memory:"), clock, **kwok)
        try:
            await test(stage)
        finally:
            await stage.close()

    run_virtually(main())


async def with_nodes(stage: Stage, count: int, used: int, **spec: Any) -> list[str]:
    """A provisioner with so many nodes, of which some are used."""
    stage.fake.put(PROVISIONERS, provisioner(minNodes=count, **spec))
    await stage.until(lambda: stage.status().get("currentSize") == count)
    for node in stage.nodes[:used]:
        stage.run_on(node)
    stage.fake.change(f"{PROVISIONERS}/a100", lambda one: one["spec"].update(minNodes=0))
    return stage.nodes
