"""The workers of a RayCluster: the kit and the rules of replicas, on the fake API server and on a real one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from tests.providers.kuberay_operator import (
    NAME,
    NAMESPACE,
    PODS,
    RAY_CLUSTER,
    RAY_CLUSTERS,
    Operator,
    crd,
    ray_cluster,
    worker_group,
    worker_pod,
)
from windlass.config import read_config
from windlass.config.build import build_components
from windlass.kubernetes_api.api import Api, ApiError, Response, Transport
from windlass.kubernetes_api.connection import HttpTransport
from windlass.providers.kuberay.provider import KubeRayProvider
from windlass.providers.kuberay.worker_groups import SLICES
from windlass.providers.protocol import ClusterIdentity, InsufficientCapacity, InvalidRequest, Provider, ProviderError
from windlass.testing.eventually import eventually, refusal_of
from windlass.testing.kubernetes.control_plane import ControlPlane, missing
from windlass.testing.kubernetes.fake_server import FakeApiServer
from windlass.testing.provider_conformance import ProviderConformance

REAL = pytest.param("real", marks=pytest.mark.kubernetes)


@pytest.fixture(scope="module")
def api_server() -> Iterator[ControlPlane]:
    """A real API server with the definition of a RayCluster."""
    if why := missing("etcd", "kube-apiserver", "kubectl"):
        pytest.skip(why)
    with ControlPlane(scheduler=False) as plane:
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": NAMESPACE},
        }
        plane.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        plane.call("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", account)
        plane.kubectl("apply", "--server-side", "-f", "-", given=json.dumps(crd()))
        plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        yield plane


class Stage:
    """An API server with one RayCluster and an operator."""

    def __init__(self, make: Callable[[], Transport], fake: FakeApiServer | None) -> None:
        self._make, self.fake = make, fake
        self._made: list[KubeRayProvider] = []

    def provider(self, **more: Any) -> KubeRayProvider:
        self._made.append(KubeRayProvider(Api(self._make()), NAMESPACE, NAME, **more))
        return self._made[-1]

    def run(
        self, test: Awaitable[None] | Callable[[Api, Operator], Awaitable[None]], *groups: Any, **spec: Any
    ) -> None:
        async def main() -> None:
            api = Api(self._make())
            operator = Operator(api)
            try:
                await self._clean(api)
                await eventually(lambda: self._created(api, ray_cluster(*groups, **spec)))
                async with operator.running():
                    await (test if isinstance(test, Awaitable) else test(api, operator))
                assert operator.arbitrary == [], "the operator had to choose itself which pod goes"
            finally:
                await self._clean(api)
                for one in self._made:
                    await one.close()
                await api.close()

        asyncio.run(main())

    async def _created(self, api: Api, body: dict[str, Any]) -> bool:
        """A definition that has just been made is not served at once."""
        try:
            await api.create(RAY_CLUSTERS, body)
        except ApiError as error:
            if not error.is_missing:
                raise
            return False
        return True

    async def _clean(self, api: Api) -> None:
        await api.delete(RAY_CLUSTER)
        for pod in (await api.list_pages(PODS, dict))[0]:
            await api.delete(f"{PODS}/{pod['metadata']['name']}")


@pytest.fixture(params=["fake", REAL])
def stage(request: pytest.FixtureRequest) -> Stage:
    if request.param == "fake":
        fake = FakeApiServer()
        return Stage(lambda: fake, fake)
    plane: ControlPlane = request.getfixturevalue("api_server")
    return Stage(lambda: HttpTransport(str(plane.kubeconfig)), None)


class TestConformance(ProviderConformance):
    @pytest.fixture(autouse=True)
    def _stage(self, stage: Stage) -> None:
        self.stage = stage

    def provider(self):
        return self.stage.provider()

    def onlooker(self):
        return self.stage.provider(read_only=True)

    def _run(self, test):
        self.stage.run(test)

    async def make_foreign(self):
        """Workers that the user has asked for."""
        api = self.provider()._api
        await api.patch(
            RAY_CLUSTER,
            [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 2}],
            content_type="application/json-patch+json",
        )
        await eventually(lambda: _pods(api), lambda pods: len(pods) == 2)
        return True

    async def leftovers(self, slice_id):
        api = self.provider()._api
        record = json.loads(((await api.get_plain(RAY_CLUSTER))["metadata"].get("annotations") or {}).get(SLICES, "{}"))
        held = [
            one["pods"] for cluster in record.values() for name, one in cluster["slices"].items() if name == slice_id
        ]
        return [*held, *(await _pods(api))] if not any(c["slices"] for c in record.values()) else held


async def _pods(api: Api) -> list[str]:
    return [pod["metadata"]["name"] for pod in (await api.list_pages(PODS, dict))[0]]


async def _group(api: Api, index: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = (await api.get_plain(RAY_CLUSTER))["spec"]["workerGroupSpecs"][index]
    return found


def order(slice_id: str, hosts: int = 1, **more: Any) -> Any:
    return ProviderConformance().order(slice_id, hosts, **more)


async def _running(provider: Provider, *names: str) -> dict[str, Any]:
    async def look() -> dict[str, Any]:
        return {one.slice_id: one for one in await provider.list()}

    return await eventually(look, lambda seen: all(n in seen and seen[n].state == "running" for n in names))


async def _gone(provider: Provider, name: str) -> None:
    await eventually(provider.list, lambda seen: name not in [one.slice_id for one in seen])


def test_a_slice_ends_with_its_own_pod_and_the_others_stay(stage):
    async def test(api, _operator):
        provider = stage.provider()
        for name in ("w-1", "w-2", "w-3"):
            await provider.launch(order(name), 1)
        up = await _running(provider, "w-1", "w-2", "w-3")
        pods = {name: one.hosts[0].id for name, one in up.items()}
        assert provider.names == {pod: f"{name}/0" for name, pod in pods.items()}
        await provider.terminate("w-2", 1)
        assert (await _group(api))["scaleStrategy"]["workersToDelete"] == [pods["w-2"]]
        await _gone(provider, "w-2")
        assert sorted(await _pods(api)) == sorted([pods["w-1"], pods["w-3"]])
        group = await _group(api)
        assert (group["replicas"], group["scaleStrategy"]["workersToDelete"]) == (2, [])

    stage.run(test)


def test_more_than_max_replicas_are_not_bought(stage):
    async def test(api, _operator):
        provider = stage.provider()
        await provider.launch(order("w-1", 2), 1)
        refusal = await refusal_of(provider.launch(order("w-2", 2), 1), InsufficientCapacity)
        assert "maxReplicas" in str(refusal)
        assert (await _group(api))["replicas"] == 2
        await provider.launch(order("w-3"), 1)
        assert (await _group(api))["replicas"] == 3
        await _running(provider, "w-1", "w-3")

    stage.run(test, worker_group(maxReplicas=3))


def test_a_launch_whose_answer_was_lost_is_not_made_twice(stage):
    async def test(api, operator):
        operator.paused = True
        provider = stage.provider()
        sent = provider._api.patch

        async def crash(*given, **more):
            await sent(*given, **more)
            raise ApiError(0, "connection reset")

        provider._api.patch = crash
        await refusal_of(provider.launch(order("w-1"), 1), ProviderError)
        after = stage.provider()
        await after.launch(order("w-1"), 1)
        assert (await _group(api))["replicas"] == 1
        after.bind(ProviderConformance.cluster)
        operator.paused = False

    stage.run(test)


def test_when_another_writer_is_first_everything_is_read_again(stage):
    async def test(api, operator):
        operator.paused = True
        provider = stage.provider()
        read = provider._api.list_pages
        times: list[int] = []

        async def slow(*given, **more):
            if len(times) < 3:
                times.append(1)
                await api.patch(RAY_CLUSTER, {"metadata": {"labels": {"seen": str(len(times))}}})
                step = {"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": len(times)}
                await api.patch(RAY_CLUSTER, [step], content_type="application/json-patch+json")
            return await read(*given, **more)

        provider._api.list_pages = slow
        await provider.launch(order("w-1"), 1)
        assert (await _group(api))["replicas"] == 4, "the replicas of the other writer were lost"
        operator.paused = False
        await _running(provider, "w-1")

    stage.run(test)


def test_workers_of_the_user_are_never_taken(stage):
    async def test(api, _operator):
        provider = stage.provider()
        theirs = await eventually(lambda: _pods(api), lambda pods: len(pods) == 2)
        await provider.launch(order("w-1"), 1)
        up = await _running(provider, "w-1")
        assert up["w-1"].hosts[0].id not in theirs
        await provider.terminate("w-1", 1)
        await _gone(provider, "w-1")
        assert sorted(await _pods(api)) == sorted(theirs)
        assert (await _group(api))["replicas"] == 2

    stage.run(test, worker_group(minReplicas=2))


def test_a_pod_that_died_is_reported_and_its_replacement_goes_with_the_slice(stage):
    async def test(api, _operator):
        provider = stage.provider()
        await provider.launch(order("w-1"), 1)
        await provider.launch(order("w-2"), 1)
        up = await _running(provider, "w-1", "w-2")
        await api.delete(f"{PODS}/{up['w-1'].hosts[0].id}")
        await eventually(lambda: _pods(api), lambda pods: len(pods) == 2 and up["w-1"].hosts[0].id not in pods)
        seen = {one.slice_id: one for one in await provider.list()}
        assert [host.running for host in seen["w-1"].hosts] == [False]
        assert seen["w-1"].state == "running"
        assert "has ended" in seen["w-1"].trouble
        await provider.terminate("w-1", 1)
        await eventually(lambda: _pods(api), lambda pods: pods == [up["w-2"].hosts[0].id])
        await _gone(provider, "w-1")
        assert (await provider.list())[0] == up["w-2"]

    stage.run(test)


def test_a_slice_that_ends_before_its_pod_is_made_waits_for_it_and_takes_no_other(stage):
    async def test(api, operator):
        provider = stage.provider()
        await provider.launch(order("w-1"), 1)
        busy = (await _running(provider, "w-1"))["w-1"].hosts[0].id
        operator.paused = True
        await provider.launch(order("w-2"), 1)
        await provider.terminate("w-2", 1)
        assert {one.slice_id: one.state for one in await provider.list()}["w-2"] == "ending"
        await api.create(PODS, worker_pod("conformance"))  # by an operator that has read the replicas before
        await provider.list()
        operator.paused = False
        await _gone(provider, "w-2")
        assert await _pods(api) == [busy]
        assert (await _group(api))["replicas"] == 1

    stage.run(test)


def test_without_an_operator_a_slice_can_be_given_up_after_a_while(stage):
    async def test(api, operator):
        operator.paused = True
        clock = [1000.0]
        provider = stage.provider(now=lambda: clock[0])
        await provider.launch(order("w-1"), 1)
        clock[0] += 60
        await provider.terminate("w-1", 1)
        assert (await _group(api))["replicas"] == 0
        assert await provider.list() == []

    stage.run(test)


def test_replicas_that_the_user_has_lowered_cost_no_further_pods(stage):
    async def test(api, operator):
        provider = stage.provider()
        for name in ("w-1", "w-2", "w-3"):
            await provider.launch(order(name), 1)
        up = await _running(provider, "w-1", "w-2", "w-3")
        step = {"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 2}
        await api.patch(RAY_CLUSTER, [step], content_type="application/json-patch+json")
        await eventually(lambda: _pods(api), lambda pods: len(pods) == 2)
        left = await _pods(api)
        dead = next(name for name, one in up.items() if one.hosts[0].id not in left)
        await provider.terminate(dead, 1)
        await _gone(provider, dead)
        assert (await _group(api))["replicas"] == 2
        assert await _pods(api) == left
        operator.arbitrary.clear()  # what the user had it choose

    stage.run(test)


def test_a_group_may_have_another_name_than_its_worker_group(stage):
    async def test(api, _operator):
        provider = stage.provider()
        await provider.launch(order("w-1", group="big", settings={"workerGroup": "gpu"}), 1)
        up = await _running(provider, "w-1")
        assert up["w-1"].group == "big"
        assert [(await _group(api, index))["replicas"] for index in (0, 1)] == [0, 1]
        unknown = await refusal_of(provider.launch(order("w-2", group="big"), 1), InvalidRequest)
        assert "it has conformance, gpu" in str(unknown)
        odd = await refusal_of(provider.launch(order("w-3", settings={"zone": "a"}), 1), InvalidRequest)
        assert "zone" in str(odd)

    stage.run(test, worker_group(), worker_group("gpu"))


@pytest.mark.parametrize(
    ("group", "spec", "why"),
    [
        (worker_group(numOfHosts=4), {}, "numOfHosts 4"),
        (worker_group(suspend=True), {}, "suspend"),
        (worker_group(), {"enableInTreeAutoscaling": True}, "enableInTreeAutoscaling"),
    ],
)
def test_what_a_ray_cluster_cannot_do_is_refused(stage, group, spec, why):
    async def test(_api, operator):
        operator.paused = True
        error = await refusal_of(stage.provider().launch(order("w-1"), 1), InvalidRequest)
        assert why in str(error)

    stage.run(test, group, **spec)


def test_a_pod_that_is_taken_away_is_a_preemption_and_one_that_cannot_start_says_why():
    fake = FakeApiServer()
    fake.put(RAY_CLUSTERS, ray_cluster())

    async def test():
        provider = KubeRayProvider(Api(fake), NAMESPACE, NAME)
        await provider.launch(order("w-1"), 1)
        pod = fake.put(PODS, worker_pod("conformance"))
        path = f"{PODS}/{pod['metadata']['name']}"
        waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
        fake.change(path, lambda one: one.update(status={"containerStatuses": [{"name": "ray", "state": waiting}]}))
        (shown,) = await provider.list()
        assert (shown.state, shown.hosts[0].running) == ("pending", False)
        assert "ImagePullBackOff: no such image" in shown.trouble
        fake.change(path, lambda one: one.update(status={"phase": "Running"}))
        fake.change(
            path, lambda one: one["metadata"].update(deletionTimestamp="2026-01-01T00:00:30Z", finalizers=["x"])
        )
        (shown,) = await provider.list()
        assert (shown.state, shown.preempted_at) == ("running", 1767225630.0)

    asyncio.run(test())


def test_a_read_only_provider_writes_nothing():
    fake = FakeApiServer()
    fake.put(RAY_CLUSTERS, ray_cluster())

    async def test():
        await KubeRayProvider(Api(fake), NAMESPACE, NAME).launch(order("w-1"), 1)
        fake.put(PODS, worker_pod("conformance"))
        fake.calls.clear()
        (shown,) = await KubeRayProvider(Api(fake), NAMESPACE, NAME, read_only=True).list()
        assert len(shown.hosts) == 1
        assert fake.calls == []

    asyncio.run(test())


def test_errors_of_the_server_are_those_of_a_provider():
    fake = FakeApiServer()

    async def test():
        provider = KubeRayProvider(Api(fake), NAMESPACE, NAME)
        assert "there is no RayCluster train" in str(await refusal_of(provider.list(), ProviderError))
        fake.put(RAY_CLUSTERS, {**ray_cluster(), "metadata": {"name": NAME, "annotations": {SLICES: "{oops"}}})
        assert SLICES in str(await refusal_of(provider.list(), ProviderError))
        fake.fail_next(lambda _method, _path: True, Response(403, b'{"message": "pods is forbidden"}'))
        refusal = await refusal_of(provider.list(), ProviderError)
        assert (type(refusal).__name__, "forbidden" in str(refusal)) == ("AuthFailed", True)

    asyncio.run(test())


def test_only_the_ids_of_the_last_500_ended_slices_are_kept():
    fake = FakeApiServer()
    fake.put(RAY_CLUSTERS, ray_cluster())

    async def test():
        provider = KubeRayProvider(Api(fake), NAMESPACE, NAME)
        provider.bind(ClusterIdentity("c", "id"))
        for number in range(510):
            await provider.terminate(f"w-{number}", 1)
        record = json.loads((fake.get(RAY_CLUSTER) or {})["metadata"]["annotations"][SLICES])
        assert [record["id"]["ended"][0], len(record["id"]["ended"])] == ["w-10", 500]

    asyncio.run(test())


@pytest.mark.kubernetes
def test_an_account_with_the_rights_of_the_documentation_is_enough(api_server):
    api_server.kubectl(
        "create", "role", "windlass", "-n", NAMESPACE, "--verb=get,patch", "--resource=rayclusters.ray.io"
    )
    api_server.kubectl("create", "role", "windlass-pods", "-n", NAMESPACE, "--verb=list", "--resource=pods")
    for role in ("windlass", "windlass-pods"):
        account = f"--serviceaccount={NAMESPACE}:default"
        api_server.kubectl("create", "rolebinding", role, "-n", NAMESPACE, f"--role={role}", account)
    kubeconfig = str(api_server.account_kubeconfig(NAMESPACE, "default"))
    settings = f"{{type: kuberay, namespace: {NAMESPACE}, cluster: {NAME}, kubeconfig: {kubeconfig}}}"
    config = read_config(
        f"groups: {{conformance: {{resources: {{cpu: 4}}, max: 3}}}}\nproviders: {{k: {settings}}}\n"
        'workload: {type: ray, address: "127.0.0.1:6379"}\n',
        path="windlass.yaml",
    )

    async def test(_api, _operator):
        provider = build_components(config).providers["k"]
        try:
            await provider.launch(order("w-1"), 1)
            await _running(provider, "w-1")
            await provider.terminate("w-1", 1)
            await _gone(provider, "w-1")
            assert not [one for one in await provider.list() if one.state != "ended"]
        finally:
            await provider.close()

    Stage(lambda: HttpTransport(str(api_server.kubeconfig)), None).run(test)
