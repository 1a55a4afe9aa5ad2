"""The planner's fit rule against the real kube-scheduler, on random pods and nodes."""

from __future__ import annotations

import json
import random
import time
import urllib.error
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from windlass.core.model.lifecycle import State
from windlass.core.model.snapshot import Node, Slice, Snapshot
from windlass.core.planner import plan
from windlass.kubernetes_api.names import NODE_NAME
from windlass.kubernetes_api.objects import NodeProvisioner, Pod
from windlass.testing.kubernetes.control_plane import ControlPlane
from windlass.workloads.kubernetes.translate.demand import DemandMaker
from windlass.workloads.kubernetes.translate.pods import PodMirror
from windlass.workloads.kubernetes.translate.provisioners import group_of

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]

PAIRS = 1000
ZONES, MODELS = ("a", "b", "c"), ("A100", "H100")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def random_node(chance: random.Random, number: int) -> dict[str, Any]:
    labels = {"pair": str(number), "zone": chance.choice(ZONES), "size": str(chance.randrange(10))}
    if chance.random() < 0.7:
        labels["model"] = chance.choice(MODELS)
    taints = [
        {
            "key": chance.choice(("gpu", "team")),
            "value": chance.choice(("x", "y", "")),
            "effect": chance.choice(EFFECTS),
        }
        for _ in range(chance.choice((0, 0, 1, 1, 2)))
    ]
    taints = list({(one["key"], one["effect"]): one for one in taints}.values())
    resources = {
        "cpu": chance.choice(("4", "8", "7900m")),
        "memory": chance.choice(("16Gi", "32Gi")),
        "ephemeral-storage": chance.choice(("50Gi", "100Gi")),
        "nvidia.com/gpu": str(chance.choice((0, 1, 4, 8))),
        "pods": "10",
    }
    return {"labels": labels, "taints": taints, "resources": resources}


def random_pod(chance: random.Random, number: int) -> dict[str, Any]:
    def container(name: str, **more: Any) -> dict[str, Any]:
        requests = {
            "cpu": chance.choice(("500m", "2", "3", "4", "7900m")),
            "memory": chance.choice(("1Gi", "8Gi", "16Gi")),
        }
        if chance.random() < 0.4:
            requests["nvidia.com/gpu"] = str(chance.choice((1, 2, 4, 8)))
        if chance.random() < 0.3:
            requests["ephemeral-storage"] = chance.choice(("10Gi", "60Gi"))
        limits = {key: value for key, value in requests.items() if "/" in key}
        return {"name": name, "image": "x", "resources": {"requests": requests, "limits": limits}, **more}

    spec: dict[str, Any] = {"nodeSelector": {"pair": str(number)}, "containers": [container("main")]}
    if chance.random() < 0.2:
        spec["containers"].append(container("second"))
    inits = [container("first")] if chance.random() < 0.2 else []
    inits += [container("sidecar", restartPolicy="Always")] if chance.random() < 0.2 else []
    chance.shuffle(inits)
    if inits:
        spec["initContainers"] = inits
    if chance.random() < 0.1:
        spec["resources"] = {"requests": {"cpu": "7", "memory": "31Gi"}, "limits": {"cpu": "64", "memory": "64Gi"}}
        for one in spec["containers"] + spec.get("initContainers", []):
            one["resources"]["requests"] |= {"cpu": "100m", "memory": "100Mi"}
    if chance.random() < 0.6:
        spec["tolerations"] = [random_toleration(chance) for _ in range(chance.choice((1, 2)))]
    if chance.random() < 0.4:
        terms = [{"matchExpressions": [random_expression(chance)]} for _ in range(chance.choice((1, 1, 2)))]
        required = {"nodeSelectorTerms": terms}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{number}", "namespace": "default"}, "spec": spec}


def random_toleration(chance: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {"operator": chance.choice(("Exists", "Equal"))}
    if found["operator"] == "Equal" or chance.random() < 0.8:
        found["key"] = chance.choice(("gpu", "team"))
    if found["operator"] == "Equal":
        found["value"] = chance.choice(("x", "y"))
    if chance.random() < 0.4:
        found["effect"] = chance.choice(EFFECTS)
    return found


def random_expression(chance: random.Random) -> dict[str, Any]:
    operator = chance.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    if operator in ("Gt", "Lt"):
        return {"key": "size", "operator": operator, "values": [str(chance.randrange(10))]}
    key = chance.choice(("zone", "model", "absent"))
    if operator in ("Exists", "DoesNotExist"):
        return {"key": key, "operator": operator}
    values = chance.sample(ZONES if key == "zone" else (*MODELS, "L4"), chance.choice((1, 2)))
    return {"key": key, "operator": operator, "values": values}


def ours(number: int, node: dict[str, Any], pod: dict[str, Any]) -> bool:
    """The planner's answer, by the way of the controller: provisioner to group, pod to demand."""
    spec = {
        "template": {"resources": node["resources"], "labels": node["labels"], "taints": node["taints"]},
        "maxNodes": 1,
    }
    group = group_of(msgspec.convert({"metadata": {"name": "g"}, "spec": spec}, NodeProvisioner)).group
    waiting = DemandMaker().waiting([PodMirror()(msgspec.convert(pod, Pod))], lambda _: None)
    labels = {**node["labels"], NODE_NAME: f"n{number}"}
    ready = Slice("s", "g", State.READY, 0, None, (Node(f"n{number}", labels=labels),))
    found = plan(Snapshot((group,), (ready,), waiting.demands, now=10))
    return any(one.on == "s" for one in found.placements)


def create_all(plane: ControlPlane, path: str, bodies: list[dict[str, Any]]) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda body: plane.call("POST", path, body), bodies))


def test_on_a_thousand_random_pairs_the_scheduler_and_the_planner_agree(control_plane: ControlPlane):
    chance = random.Random(20261117)
    nodes = [random_node(chance, number) for number in range(PAIRS)]
    pods = [random_pod(chance, number) for number in range(PAIRS)]
    ready = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
    bodies = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"n{number}", "labels": node["labels"]},
            "spec": {"taints": node["taints"]},
            "status": {"capacity": node["resources"], "allocatable": node["resources"], "conditions": ready},
        }
        for number, node in enumerate(nodes)
    ]
    try:
        create_all(control_plane, "/api/v1/nodes", bodies)
        deadline = time.monotonic() + 240

        def is_set_up(node: dict[str, Any]) -> bool:
            return not any(one["key"].startswith("node.kubernetes.io/") for one in node["spec"].get("taints") or ())

        while not all(map(is_set_up, control_plane.call("GET", "/api/v1/nodes?resourceVersion=0")["items"])):
            assert time.monotonic() < deadline, "the controllers do not take the not-ready taints off"
            time.sleep(0.5)
        create_all(control_plane, "/api/v1/namespaces/default/pods", pods)
        theirs: dict[int, bool] = {}
        while len(theirs) < PAIRS:
            assert time.monotonic() < deadline, f"the scheduler has judged {len(theirs)} of {PAIRS} pods"
            for pod in control_plane.call("GET", "/api/v1/namespaces/default/pods?resourceVersion=0")["items"]:
                number = int(pod["metadata"]["name"][1:])
                judged = [one for one in pod["status"].get("conditions") or () if one["type"] == "PodScheduled"]
                if judged and (judged[0]["status"] == "True" or judged[0].get("reason") == "Unschedulable"):
                    theirs[number] = judged[0]["status"] == "True"
            time.sleep(0.5)
        wrong = [
            (number, theirs[number], json.dumps(nodes[number]), json.dumps(pods[number]["spec"]))
            for number in range(PAIRS)
            if ours(number, nodes[number], pods[number]) != theirs[number]
        ]
        assert 100 < sum(theirs.values()) < PAIRS - 100
        assert wrong == []
    finally:
        control_plane.kubectl("delete", "pods", "--all", "-n", "default", "--force", "--grace-period=0", "--wait=false")
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: _remove(control_plane, f"/api/v1/nodes/n{number}"), range(PAIRS)))


def _remove(plane: ControlPlane, path: str) -> None:
    try:
        plane.call("DELETE", path)
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
