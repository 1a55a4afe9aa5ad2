"""This program shows scenario C on a real Kubernetes control plane, in a minute: Windlass buys machines for pods and
releases the surplus.

It needs the binaries in KUBEBUILDER_ASSETS (make kubernetes-assets). The nodes are Node objects without machines.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable

from windlass.testing.kubernetes.control_plane import ControlPlane, missing
from windlass.testing.kubernetes.kubelet import FakeKubelet
from windlass.workloads.kubernetes.install.manifests import manifests, text

PROVISIONER = {
    "apiVersion": "windlass.dev/v1alpha1",
    "kind": "NodeProvisioner",
    "metadata": {"name": "a100"},
    "spec": {
        "maxNodes": 20,
        "minGPUUtilizationPercent": 80,
        "scaleDownDelay": "15s",
        "template": {"resources": {"cpu": "32", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}},
    },
}


def say(line: str) -> None:
    print(f"\n== {line}", flush=True)


def pod(name: str) -> str:
    container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}
    return json.dumps(body)


def status(plane: ControlPlane) -> dict[str, int]:
    return json.loads(plane.kubectl("get", "wnp", "a100", "-o", "json")).get("status") or {}


def until(check: Callable[[], bool], limit: float = 90) -> None:
    deadline = time.monotonic() + limit
    while not check():
        if time.monotonic() > deadline:
            raise SystemExit(f"this did not happen within {limit:g} s; the machine may be too busy. Try again later.")
        time.sleep(0.3)


def main() -> None:
    if why := missing():
        raise SystemExit(why)
    say("starting etcd, kube-apiserver, kube-scheduler and kube-controller-manager on loopback")
    with ControlPlane() as plane, FakeKubelet(plane):
        plane.kubectl("apply", "--server-side", "-f", "-", given=text(manifests()))
        plane.kubectl("delete", "deployment", "windlass", "-n", "windlass-system")
        plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        file = plane.directory / "windlass.yaml"
        account = plane.account_kubeconfig("windlass-system", "windlass")
        workload = {"type": "kubernetes", "kubeconfig": str(account), "settle": "2s"}
        file.write_text(json.dumps({"workload": workload, "providers": {"kwok": {"type": "kwok"}}}))
        log = (plane.directory / "windlass.log").open("wb")
        children = [subprocess.Popen([sys.executable, "-m", "windlass", "run", str(file)], stdout=log, stderr=log)]
        try:
            plane.kubectl("create", "-f", "-", given=json.dumps(PROVISIONER))
            children.append(plane.watch("wnp"))
            say("create 12 pods with 8 GPUs each: Windlass buys 12 machines with 8 GPUs (kubectl get wnp -w)")
            for number in range(12):
                plane.kubectl("create", "-f", "-", given=pod(f"train-{number}"))
            until(lambda: status(plane).get("currentSize") == 12 and status(plane).get("utilizedNodes") == 12)
            say("delete 4 pods: 8 of 12 nodes are in use, 80 % is the goal, so the target is 10: 2 are marked for 15 s")
            plane.kubectl("delete", "pod", *[f"train-{number}" for number in range(8, 12)], "--force")
            until(lambda: status(plane).get("markedNodes") == 2)
            say("create one more pod: 9 nodes are in use, the target is 11: 1 is unmarked")
            plane.kubectl("create", "-f", "-", given=pod("late"))
            until(lambda: status(plane).get("targetSize") == 11 and status(plane).get("markedNodes") == 1)
            say("wait for the deadline: the other one is released, after a check that it is empty")
            until(lambda: status(plane).get("currentSize") == 11)
            say("events of nodes and the final state")
            print(plane.kubectl("get", "events", "--field-selector=involvedObject.kind=Node,source=windlass"))
            print(plane.kubectl("get", "wnp"))
        finally:
            for child in children:
                child.terminate()
                child.wait()
            log.close()


if __name__ == "__main__":
    main()
