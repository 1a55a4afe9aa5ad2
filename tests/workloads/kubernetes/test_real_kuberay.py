"""Windlass scales a RayCluster of KubeRay: a real Ray head and workers, a real API server and scheduler.

A small operator makes and deletes the worker pods as KubeRay does, the scheduler binds them, and a kubelet of the test
runs what their container says: ``ray start``.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests.providers.kuberay_operator import (
    NAMESPACE,
    PODS,
    RAY_CLUSTER,
    RAY_CLUSTERS,
    Operator,
    crd,
    ray_cluster,
    worker_group,
)
from tests.workloads.ray_cluster import Scaled
from tests.workloads.ray_stage import HOST, Driver, RayHead
from windlass.cli import windlass
from windlass.kubernetes_api.api import Api
from windlass.kubernetes_api.connection import HttpTransport
from windlass.testing.kubernetes.control_plane import ControlPlane
from windlass.testing.kubernetes.kubelet import FakeKubelet

from .conftest import clean

pytestmark = [pytest.mark.kubernetes, pytest.mark.ray, pytest.mark.slow]

CODE = """
import os, time

@ray.remote(num_cpus=2, max_retries=0)
def until(gate):
    with open(gate + ".new", "w") as started:
        started.write(os.environ["RAY_CLOUD_INSTANCE_ID"])
    os.rename(gate + ".new", gate + ".started")
    while not os.path.exists(gate):
        time.sleep(0.1)
    return os.environ["RAY_CLOUD_INSTANCE_ID"]
"""


class RayKubelet(FakeKubelet):
    """Runs the containers of bound worker pods as processes of this machine, again and again until a pod is deleted."""

    def __init__(self, plane: ControlPlane, head: RayHead) -> None:
        super().__init__(plane)
        self._head = head
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.ended: list[str] = []

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        for process in self._running.values():  # where the test has failed
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _play(self, pod: dict[str, Any]) -> None:
        name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]
        process = self._running.get(name)
        if pod["metadata"].get("deletionTimestamp"):
            if process is not None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                self._head.end_nodes({name})
                process.wait()
                self.ended.append(name)
                del self._running[name]
        elif process is None or process.poll() is not None:
            # Ray 2.48 cannot start twice at once on one machine: the next one waits, as for its image.
            if any("Ray runtime started" not in self._log(one).read_text() for one in self._alive()):
                return
            fields = {
                "metadata.name": name,
                "metadata.labels['ray.io/group']": pod["metadata"]["labels"]["ray.io/group"],
            }
            given = {one["name"]: fields[one["valueFrom"]["fieldRef"]["fieldPath"]] for one in container["env"]}
            place = self._head.directory / name[-5:]
            with self._log(name).open("wb") as log:
                self._running[name] = subprocess.Popen(
                    [*container["command"], f"{container['args'][0]} --temp-dir={place}"],
                    env={**self._head.environment, **given, "PATH": f"{self._head.bin}:{os.environ['PATH']}"},
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        super()._play(pod)

    def _log(self, name: str) -> Path:
        return self._head.directory / f"{name}.log"

    def _alive(self) -> list[str]:
        return [name for name, process in self._running.items() if process.poll() is None]


def manifest(head: RayHead) -> dict[str, Any]:
    container = {
        "name": "ray-worker",
        "image": "rayproject/ray",
        "command": ["/bin/bash", "-c"],
        "resources": {"limits": {"cpu": "2", "memory": "500M"}},
    }
    params = {
        "address": head.address,
        "node-ip-address": HOST,
        "num-cpus": "2",
        "memory": "300000000",
        "object-store-memory": "80000000",
    }
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}
    return ray_cluster(worker_group("small", maxReplicas=3, rayStartParams=params, template=template))


def is_up(head: RayHead) -> bool:
    """Wait until the head has started all of its processes; False if it has given up."""
    assert head.process is not None
    while "Ray runtime started" not in (head.directory / "head.log").read_text(encoding="utf-8"):
        if head.process.poll() is not None:
            return False
        time.sleep(0.1)
    return True


@pytest.fixture
def ray() -> Iterator[tuple[RayHead, Driver]]:
    """A head and a driver on it. Ray gives up a start after 30 s, which is short on a busy machine: it is tried again.

    The old version starts several times as fast as the newest, and tells the autoscaler the same.
    """
    for _ in range(3):
        head = RayHead("RAY_OLD")
        with suppress(AssertionError):
            if is_up(head.start()):
                break
        head.stop()
    else:
        raise AssertionError("Ray did not start a head in three attempts")
    driver = head.driver()
    try:
        yield head, driver
    finally:
        driver.close()
        head.stop()


@contextmanager
def operating(plane: ControlPlane) -> Iterator[Operator]:
    """The operator in a thread of its own."""
    ending, made = threading.Event(), threading.Event()
    failed: list[BaseException] = []
    operators: list[Operator] = []

    async def main() -> None:
        api = Api(HttpTransport(str(plane.kubeconfig)))
        operators.append(Operator(api, plays_kubelet=False, pause=0.2))
        made.set()
        try:
            async with operators[0].running():
                await asyncio.to_thread(ending.wait)
        finally:
            await api.close()

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:  # noqa: BLE001  # raised again in the thread of the test
            failed.append(error)
            made.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    made.wait()
    try:
        yield operators[0]
    finally:
        ending.set()
        thread.join(30)
        if failed:  # also beside an error of the test, which it may explain
            raise AssertionError("the operator has failed") from failed[0]


def prepare(plane: ControlPlane, body: dict[str, Any]) -> Path:
    """Make the RayCluster, a node for its pods, and an account with the rights of the documentation."""
    plane.kubectl("apply", "--server-side", "-f", "-", given=json.dumps(crd()))
    plane.kubectl("wait", "--for=condition=Established", "crd/rayclusters.ray.io", "--timeout=30s")
    plane.kubectl("create", "namespace", NAMESPACE)
    plane.kubectl("create", "serviceaccount", "scaler", "-n", NAMESPACE)
    for role, verbs, kind in (("scaler", "get,patch", "rayclusters.ray.io"), ("scaler-pods", "list", "pods")):
        plane.kubectl("create", "role", role, "-n", NAMESPACE, f"--verb={verbs}", f"--resource={kind}")
        account = f"--serviceaccount={NAMESPACE}:scaler"
        plane.kubectl("create", "rolebinding", role, "-n", NAMESPACE, f"--role={role}", account)
    size = {"cpu": "16", "memory": "16Gi", "pods": "20"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "workers"},
        "status": {"capacity": size, "allocatable": size, "conditions": [ready]},
    }
    plane.call("POST", "/api/v1/nodes", node)
    plane.call("POST", RAY_CLUSTERS, body)
    return plane.account_kubeconfig(NAMESPACE, "scaler")


def remove(plane: ControlPlane) -> None:
    plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false", "--ignore-not-found")
    plane.kubectl("delete", "crd", "rayclusters.ray.io", "--ignore-not-found", "--wait=false")
    clean(plane)


def test_tasks_of_ray_get_worker_pods_and_the_pods_go_one_by_one_when_their_work_is_done(
    control_plane: ControlPlane, ray: tuple[RayHead, Driver]
):
    head, driver = ray
    plane, body = control_plane, manifest(head)
    kubeconfig = prepare(plane, body)
    file = head.directory / "raycluster.yaml"
    file.write_text(yaml.safe_dump(body))
    written = CliRunner().invoke(windlass, ["config", "import", str(file)])
    assert written.exit_code == 0, written.output
    draft = yaml.safe_load(written.stdout)
    groups = {name: {**one, "scale_down": {"idle_timeout": "5s"}} for name, one in draft["groups"].items()}
    scaled = Scaled(head, driver, groups)
    scaled.providers = {name: {**one, "kubeconfig": str(kubeconfig)} for name, one in draft["providers"].items()}

    def pods() -> list[str]:
        return [one["metadata"]["name"] for one in plane.call("GET", PODS)["items"]]

    def replicas() -> int:
        return int(plane.call("GET", RAY_CLUSTER)["spec"]["workerGroupSpecs"][0]["replicas"])

    gates = [head.directory / f"gate-{number}" for number in range(2)]

    def places() -> list[str]:
        """Return the pods on which tasks have started, in the order of the tasks."""
        return [started.read_text() for gate in gates if (started := gate.with_suffix(".started")).exists()]

    try:
        kubelet = RayKubelet(plane, head)
        with kubelet, operating(plane) as operator:
            scaled.start()
            scaled.driver.run(CODE + "".join(f"\ntask{n} = until.remote({str(g)!r})" for n, g in enumerate(gates)))
            scaled.eventually(lambda: replicas() == 2)
            # A controller that dies now has not forgotten what it has bought.
            scaled.kill()
            scaled.run()
            scaled.eventually(lambda: len(scaled.slices("ready")) == 2)
            # Ready is not yet at work: a task that has not started would follow the first one on its node.
            scaled.eventually(lambda: len(places()) == 2)
            done, busy = places()
            assert sorted(pods()) == sorted((done, busy))
            gates[0].touch()
            assert scaled.driver.run("result = ray.get(task0)") == done
            scaled.eventually(lambda: pods() == [busy])
            assert kubelet.ended == [done]
            scaled.stays(3, pods, [busy])
            gates[1].touch()
            assert scaled.driver.run("result = ray.get(task1)") == busy
            scaled.eventually(lambda: (pods(), replicas()) == ([], 0))
            assert operator.arbitrary == [], "the operator had to choose itself which pod goes"
            assert kubelet.ended == [done, busy]
            scaled.assert_bought(2)
    finally:
        scaled.stop()
        remove(plane)
