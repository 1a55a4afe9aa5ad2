"""The controller on a real control plane: a real scheduler, RBAC on, as the account that the installation prints."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from windlass._free_port import free_port
from windlass.testing.kubernetes.control_plane import ASSETS, ControlPlane, missing

from .cluster import Cluster
from .conftest import clean
from .killing_proxy import KillingProxy

CLAIMS = "/apis/windlass.dev/v1alpha1/nodeclaims"
LONG = 600.0
"""Seconds for which a test waits while controllers are killed again and again."""

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]


def test_scenario_c_from_the_first_pod_to_the_last_machine(cluster: Cluster):
    """N=12, U=8, m=80: target 10, mark 2; use rises to 9: target 11, unmark 1; at the deadline give back 1."""
    delay = 25  # longer than it takes to mark, to bind a pod and to unmark on a busy machine
    cluster.provision(minGPUUtilizationPercent=80, scaleDownDelay=f"{delay}s")
    cluster.run()
    names = [f"p{number}" for number in range(12)]
    cluster.pods(*names)
    cluster.until(lambda: len(cluster.bound()) == 12)
    assert len(cluster.nodes) == 12
    before = time.time()
    cluster.finish(*names[8:])
    cluster.until(lambda: cluster.status()["targetSize"] == 10 and len(cluster.marked) == 2)
    deadlines = {int(value) for value in cluster.marked.values()}
    assert all(before + delay - 1 <= deadline <= time.time() + delay for deadline in deadlines)
    cluster.pods("late")
    cluster.until(lambda: cluster.bound().get("late"))
    assert cluster.bound()["late"] not in cluster.marked
    cluster.until(lambda: cluster.status()["targetSize"] == 11 and len(cluster.marked) == 1)
    assert len(cluster.nodes) == 12
    cluster.until(lambda: len(cluster.nodes) == 11)
    cluster.until(lambda: len(cluster.items(CLAIMS)) == 11)
    assert len(cluster.bound()) == 9
    assert cluster.events("ScaleDownUnmarked")
    assert cluster.events("TriggeredScaleUp")


def test_a_pod_that_nothing_fits_gets_an_event_and_an_answer_of_why(cluster: Cluster):
    cluster.provision()
    cluster.provision("wrong", provider="absent")
    cluster.run()
    cluster.pods("huge", gpus=16)
    output = cluster.until(lambda: cluster.events("NotTriggerScaleUp"))
    assert output[0]["message"].startswith("NO_SHAPE_FITS: ")
    assert "16 nvidia.com/gpu" in output[0]["message"]
    assert "NO_SHAPE_FITS" in cluster.windlass("why", "pod/default/huge")
    cluster.pods("gated", schedulingGates=[{"name": "example.com/later"}])
    cluster.until(lambda: "it has a scheduling gate" in cluster.windlass("why", "pod/default/gated"))
    cluster.until(lambda: "there is no provider 'absent'" in cluster.windlass("why", "nodeprovisioner/wrong"))
    assert cluster.nodes == {}


WRITES = int(os.environ.get("WINDLASS_WRITES_BEFORE_KILL", "8"))
"""Writes that each controller may make before SIGKILL. With 0 it is killed at every write, which takes minutes: on the
fast server that is done in seconds (test_killed_at_every_write)."""


def test_the_controller_is_killed_at_its_writes_and_nothing_is_bought_twice(cluster: Cluster):
    proxy = KillingProxy(cluster.plane.url)
    file = cluster.configure("killed", leader="3s", account=proxy.kubeconfig(cluster.account, cluster.home / "proxied"))

    def while_killed(check: Callable[[], object]) -> Callable[[], object]:
        def checked() -> object:
            if not cluster.running or cluster.running[-1].poll() is not None:
                cluster.release()
                process = cluster.run(file)
                proxy.arm(WRITES, process.kill)
            assert len(cluster.nodes) <= 2
            return check()

        return checked

    try:
        cluster.provision(minGPUUtilizationPercent=100, scaleDownDelay="2s")
        cluster.pods("a", "b")
        cluster.until(while_killed(lambda: len(cluster.bound()) == 2), limit=LONG)
        cluster.finish("a", "b")
        cluster.until(while_killed(lambda: not cluster.nodes), limit=LONG)
        cluster.until(while_killed(lambda: not cluster.items(CLAIMS)), limit=LONG)
    finally:
        cluster.stop()
        proxy.close()
    assert proxy.kills > 2, proxy.at
    print(f"killed {proxy.kills} times, at {', '.join(proxy.at)}")


def test_a_second_controller_stands_by_and_takes_over_with_marks_and_machines(cluster: Cluster):
    cluster.provision(minGPUUtilizationPercent=100, scaleDownDelay="50s")  # longer than a takeover on a busy machine
    first = cluster.run()
    cluster.pods("a", "b")
    cluster.until(lambda: len(cluster.bound()) == 2)
    cluster.finish("a")
    cluster.until(lambda: len(cluster.marked) == 1)
    marks = cluster.marked
    cluster.run(cluster.configure("second"))
    cluster.until(lambda: "standing by" in cluster.log(1))
    first.kill()
    cluster.until(lambda: "leading as" in cluster.log(1))
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
    cluster.until(lambda: "leading as" in cluster.log(1))
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


def test_a_node_with_a_bad_condition_is_drained_and_replaced(cluster: Cluster):
    cluster.provision(repair=[{"condition": "GPUHealthy", "status": "False", "after": "2s"}])
    cluster.run()
    cluster.pods("a", "b")
    cluster.until(lambda: len(cluster.bound()) == 2)
    broken = cluster.bound()["a"]
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    bad = {"type": "GPUHealthy", "status": "False", "reason": "XidError", "lastTransitionTime": at}
    patch = {"status": {"conditions": [bad]}}
    cluster.plane.call(
        "PATCH", f"/api/v1/nodes/{broken}/status", patch, content_type="application/strategic-merge-patch+json"
    )
    cluster.until(lambda: broken not in cluster.nodes)
    assert "a" not in cluster.bound()
    assert cluster.bound()["b"] in cluster.nodes
    cluster.pods("again")
    cluster.until(lambda: cluster.bound().get("again"))


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
    cluster.until(lambda: "c" in cluster.bound())
    assert set(cluster.bound()) == {"a", "b", "c"}
    assert len(cluster.nodes) == 3


def test_a_provider_that_is_added_to_the_file_is_used_without_a_restart(cluster: Cluster):
    data = json.loads(cluster.file.read_text())
    cluster.file.write_text(json.dumps({**data, "providers": {}}))
    cluster.provision(minNodes=1)
    cluster.run()
    cluster.until(lambda: any("there are: none" in one["message"] for one in cluster.status().get("conditions", ())))
    cluster.file.write_text(json.dumps(data))
    cluster.until(lambda: cluster.status()["currentSize"] == 1)
    data["workload"]["settle"] = "2s"
    cluster.file.write_text(json.dumps(data))
    cluster.until(lambda: "workload: cannot change while the controller holds its lease" in cluster.log())
    cluster.provision(minNodes=2)
    cluster.until(lambda: cluster.status()["currentSize"] == 2)


def test_a_shadow_writes_nothing(cluster: Cluster):
    cluster.provision()
    cluster.pods("a")
    data = json.loads(cluster.file.read_text())
    data["workload"]["listen"] = f"127.0.0.1:{free_port()}"
    cluster.file.write_text(json.dumps({**data, "shadow": True}))
    before = cluster.plane.call("GET", "/apis/windlass.dev/v1alpha1/nodeprovisioners/a100")["metadata"]
    cluster.run()
    cluster.until(lambda: "would launch" in cluster.log())
    with urllib.request.urlopen(f"http://{data['workload']['listen']}/readyz", timeout=30) as answer:
        assert answer.read() == b"ok\n"
    time.sleep(1)
    after = cluster.plane.call("GET", "/apis/windlass.dev/v1alpha1/nodeprovisioners/a100")["metadata"]
    assert after["resourceVersion"] == before["resourceVersion"]
    assert cluster.nodes == {}
    assert not cluster.items("/apis/windlass.dev/v1alpha1/nodeclaims")


def test_a_real_kwok_controller_runs_the_pods_of_kwok_nodes(control_plane: ControlPlane, tmp_path: Path):
    if why := missing("kwok"):
        pytest.skip(why)
    cluster = Cluster(control_plane, tmp_path)
    with (tmp_path / "kwok.log").open("wb") as log:
        kwok = subprocess.Popen(
            [
                str(Path(os.environ[ASSETS], "kwok")),
                f"--kubeconfig={control_plane.kubeconfig}",
                "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
                f"--config={Path(__file__).with_name('kwok_stages.yaml')}",
            ],
            stdout=log,
            stderr=log,
            cwd=tmp_path,
            env={**os.environ, "HOME": str(tmp_path)},
        )
    try:
        cluster.provision(minGPUUtilizationPercent=100, scaleDownDelay="1s")
        cluster.run()
        cluster.pods("a")
        path = "/api/v1/namespaces/default/pods/a"
        cluster.until(lambda: control_plane.call("GET", path)["status"]["phase"] == "Running")
        assert len(cluster.nodes) == 1
        control_plane.kubectl("delete", "pod", "a", "--wait=false")
        cluster.until(lambda: not cluster.nodes)
    finally:
        cluster.stop()
        kwok.kill()
        kwok.wait()
        clean(control_plane)
