"""The controller on a real control plane: a real scheduler, RBAC on, as the account that the installation prints."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from windlass.testing.kubernetes.control_plane import ControlPlane
from windlass.testing.kubernetes.kubelet import FakeKubelet

from .conftest import clean

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]

SIZE = {"cpu": "32", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}


class Cluster:
    """A control plane, and `windlass run` on it as a process of its own."""

    def __init__(self, plane: ControlPlane, home: Path) -> None:
        self.plane, self.home = plane, home
        self.account = plane.account_kubeconfig("windlass-system", "windlass")
        self.running: list[subprocess.Popen[bytes]] = []
        self.file = self.configure("windlass")

    def configure(self, name: str, lease: str = "8s", **kwok: Any) -> Path:
        file = self.home / f"{name}.yaml"
        data = {
            "workload": {"type": "kubernetes", "kubeconfig": str(self.account), "settle": "1s", "lease": lease},
            "providers": {"kwok": {"type": "kwok", **kwok}},
            "journal": {"location": str(self.home / f"{name}.db")},
            "leader": {"lease": "8s"},
            "policy": {"vanish_timeout": "1s"},
        }
        file.write_text(json.dumps(data))
        return file

    def run(self, file: Path | None = None) -> subprocess.Popen[bytes]:
        log = (self.home / f"run-{len(self.running)}.log").open("wb")
        process = subprocess.Popen(
            [sys.executable, "-m", "windlass", "run", str(file or self.file)],
            stdout=log,
            stderr=log,
            env=dict(os.environ),
        )
        log.close()
        self.running.append(process)
        return process

    def log(self, number: int = 0) -> str:
        return (self.home / f"run-{number}.log").read_text()

    def windlass(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "windlass", *words],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "WINDLASS_CONFIG": str(self.file), "NO_COLOR": "1"},
            check=False,
        )
        return done.stdout + done.stderr

    def stop(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()

    # -- objects -------------------------------------------------------------------------------------------------------

    def provision(self, name: str = "a100", **spec: Any) -> None:
        whole = {"maxNodes": 50, "template": {"resources": SIZE}, **spec}
        self.apply("NodeProvisioner", name, whole)

    def apply(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        body = {"apiVersion": "windlass.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        self.plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", given=json.dumps(body))

    def pods(self, *names: str, gpus: int = 8, **spec: Any) -> None:
        for name in names:
            container = {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": str(gpus), "cpu": "1"}}}
            body = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "default", **spec.pop("metadata", {})},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **spec},
            }
            self.plane.call("POST", "/api/v1/namespaces/default/pods", body)

    def finish(self, *names: str) -> None:
        self.plane.kubectl("delete", "pod", *names, "--force", "--grace-period=0", "--wait=false")

    def items(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.plane.call("GET", path)["items"]
        return found

    @property
    def nodes(self) -> dict[str, dict[str, Any]]:
        return {one["metadata"]["name"]: one for one in self.items("/api/v1/nodes")}

    def tainted(self, key: str) -> dict[str, str]:
        return {
            name: taint.get("value", "")
            for name, node in self.nodes.items()
            for taint in node["spec"].get("taints") or ()
            if taint["key"] == key
        }

    @property
    def marked(self) -> dict[str, str]:
        return self.tainted("windlass.dev/scheduled-deletion")

    def bound(self) -> dict[str, str]:
        pods = self.items("/api/v1/namespaces/default/pods")
        return {one["metadata"]["name"]: one["spec"].get("nodeName", "") for one in pods if one["spec"].get("nodeName")}

    def status(self, name: str = "a100") -> dict[str, Any]:
        found = self.plane.call("GET", f"/apis/windlass.dev/v1alpha1/nodeprovisioners/{name}")
        return found.get("status") or {}

    def events(self, reason: str) -> list[dict[str, Any]]:
        return [one for one in self.items("/api/v1/events") if one["reason"] == reason]

    def until(self, check: Callable[[], Any], limit: float = 60.0) -> Any:
        deadline = time.monotonic() + limit
        while not (found := check()):
            for number, process in enumerate(self.running):
                if process.poll() not in (None, -9):
                    raise AssertionError(f"windlass ended with {process.poll()}:\n{self.log(number)[-3000:]}")
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {limit:g} s\n{self.log()[-3000:]}")
            time.sleep(0.1)
        return found


@pytest.fixture
def cluster(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(control_plane, tmp_path)
    try:
        with FakeKubelet(control_plane):
            yield found
    finally:
        found.stop()
        clean(control_plane)


def test_scenario_c_from_the_first_pod_to_the_last_machine(cluster: Cluster):
    """N=12, U=8, m=80: target 10, mark 2; use rises to 9: target 11, unmark 1; at the deadline give back 1."""
    cluster.provision(minGPUUtilizationPercent=80, scaleDownDelay="12s")
    cluster.run()
    names = [f"p{number}" for number in range(12)]
    cluster.pods(*names)
    cluster.until(lambda: len(cluster.bound()) == 12)
    assert len(cluster.nodes) == 12
    cluster.finish(*names[8:])
    cluster.until(lambda: cluster.status()["targetSize"] == 10 and len(cluster.marked) == 2)
    deadlines = {int(value) for value in cluster.marked.values()}
    assert all(abs(deadline - time.time() - 12) < 4 for deadline in deadlines)
    cluster.pods("late")
    cluster.until(lambda: cluster.bound().get("late"))
    assert cluster.bound()["late"] not in cluster.marked
    cluster.until(lambda: cluster.status()["targetSize"] == 11 and len(cluster.marked) == 1)
    assert len(cluster.nodes) == 12
    cluster.until(lambda: len(cluster.nodes) == 11)
    cluster.until(lambda: len(cluster.items("/apis/windlass.dev/v1alpha1/nodeclaims")) == 11)
    assert len(cluster.bound()) == 9
    assert cluster.events("ScaleDownUnmarked")
    assert cluster.events("TriggeredScaleUp")


def test_a_pod_that_nothing_fits_is_told_why_and_asked_about(cluster: Cluster):
    cluster.provision()
    cluster.run()
    cluster.pods("huge", gpus=16)
    told = cluster.until(lambda: cluster.events("NotTriggerScaleUp"))
    assert told[0]["message"].startswith("NO_SHAPE_FITS: ")
    assert "16 nvidia.com/gpu" in told[0]["message"]
    assert "NO_SHAPE_FITS" in cluster.windlass("why", "pod/default/huge")
    assert cluster.nodes == {}


def test_the_controller_is_killed_at_every_turn_and_nothing_is_bought_twice(cluster: Cluster):
    cluster.provision(minGPUUtilizationPercent=100, scaleDownDelay="2s")
    cluster.pods("a", "b", "c")
    for number in range(6):
        process = cluster.run()
        time.sleep(0.6 + 0.35 * number)
        process.kill()
        process.wait()
    cluster.run()
    cluster.until(lambda: len(cluster.bound()) == 3)
    cluster.until(lambda: cluster.status().get("currentSize") == 3 and cluster.status()["inFlight"] == 0)
    assert len(cluster.nodes) == 3
    cluster.finish("a", "b", "c")
    cluster.until(lambda: len(cluster.nodes) == 0)
    cluster.until(lambda: not cluster.items("/apis/windlass.dev/v1alpha1/nodeclaims"))


def test_a_second_controller_stands_by_and_takes_over_with_marks_and_machines(cluster: Cluster):
    cluster.provision(minGPUUtilizationPercent=100, scaleDownDelay="20s")
    first = cluster.run()
    cluster.pods("a", "b")
    cluster.until(lambda: len(cluster.bound()) == 2)
    cluster.finish("a")
    cluster.until(lambda: len(cluster.marked) == 1)
    marks = cluster.marked
    cluster.run(cluster.configure("second"))
    cluster.until(lambda: "standing by" in cluster.log(1))
    first.kill()
    cluster.until(lambda: "leading as" in cluster.log(1), limit=40)
    assert cluster.marked == marks
    cluster.until(lambda: len(cluster.nodes) == 1)
    assert cluster.bound()["b"] in cluster.nodes


def test_a_leader_that_is_paused_past_its_lease_writes_nothing_when_it_wakes(cluster: Cluster):
    cluster.provision(minGPUUtilizationPercent=100, scaleDownDelay="5s")
    first = cluster.run()
    cluster.pods("a", "b")
    cluster.until(lambda: len(cluster.bound()) == 2)
    first.send_signal(signal.SIGSTOP)
    cluster.run(cluster.configure("second"))
    cluster.until(lambda: "leading as" in cluster.log(1), limit=40)
    cluster.finish("a")
    cluster.until(lambda: len(cluster.marked) == 1)
    first.send_signal(signal.SIGCONT)
    cluster.running.remove(first)
    assert first.wait(30) == 1
    cluster.until(lambda: len(cluster.nodes) == 1)
    assert cluster.bound()["b"] in cluster.nodes


def test_deleting_a_node_drains_it_first_and_respects_disruption_budgets(cluster: Cluster):
    cluster.provision()
    cluster.run()
    cluster.pods("kept", metadata={"labels": {"app": "kept"}})
    node = cluster.until(lambda: cluster.bound().get("kept"))
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "kept", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
    }
    cluster.plane.call("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget)
    try:
        cluster.plane.kubectl("delete", "node", node, "--wait=false")
        cluster.until(lambda: cluster.events("ScaleDownBlocked"))
        assert "kept" in cluster.bound()
        assert node in cluster.nodes
    finally:
        cluster.plane.kubectl("delete", "pdb", "kept")
    cluster.until(lambda: node not in cluster.nodes)
    assert "kept" not in cluster.bound()


def test_deleting_a_provisioner_drains_its_nodes_and_then_lets_it_go(cluster: Cluster):
    cluster.provision()
    cluster.run()
    cluster.pods("a", "b")
    cluster.until(lambda: len(cluster.bound()) == 2)
    cluster.plane.kubectl("delete", "wnp", "a100", "--wait=false")
    cluster.until(lambda: not cluster.nodes)
    cluster.until(lambda: not cluster.items("/apis/windlass.dev/v1alpha1/nodeprovisioners"))


def test_an_orphaned_provisioner_leaves_its_nodes_and_pods_alone(cluster: Cluster):
    cluster.provision(deletionPolicy="Orphan")
    cluster.run()
    cluster.pods("a")
    node = cluster.until(lambda: cluster.bound().get("a"))
    cluster.plane.kubectl("delete", "wnp", "a100", "--wait=false")
    cluster.until(lambda: not cluster.items("/apis/windlass.dev/v1alpha1/nodeprovisioners"))
    assert cluster.bound()["a"] == node
    assert node in cluster.nodes
    assert not cluster.tainted("windlass.dev/deleting")


def test_the_api_server_is_killed_for_ten_seconds_and_nothing_is_lost(cluster: Cluster):
    cluster.provision(minGPUUtilizationPercent=100, scaleDownDelay="1s")
    cluster.run(cluster.configure("patient", lease="30s"))
    cluster.pods("a", "b")
    cluster.until(lambda: len(cluster.bound()) == 2)
    cluster.plane.kill("kube-apiserver")
    time.sleep(10)
    cluster.plane.restart("kube-apiserver")
    cluster.pods("c")
    cluster.until(lambda: "c" in cluster.bound(), limit=90)
    assert set(cluster.bound()) == {"a", "b", "c"}
    assert len(cluster.nodes) == 3


def test_a_shadow_writes_nothing(cluster: Cluster):
    cluster.provision()
    cluster.pods("a")
    data = json.loads(cluster.file.read_text())
    cluster.file.write_text(json.dumps({**data, "shadow": True}))
    before = cluster.plane.call("GET", "/apis/windlass.dev/v1alpha1/nodeprovisioners/a100")["metadata"]
    cluster.run()
    cluster.until(lambda: "would launch" in cluster.log())
    time.sleep(1)
    after = cluster.plane.call("GET", "/apis/windlass.dev/v1alpha1/nodeprovisioners/a100")["metadata"]
    assert after["resourceVersion"] == before["resourceVersion"]
    assert cluster.nodes == {}
    assert not cluster.items("/apis/windlass.dev/v1alpha1/nodeclaims")
