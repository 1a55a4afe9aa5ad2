"""``windlass plan`` on the objects of a cluster that kubectl has saved."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from windlass.cli import windlass
from windlass.testing.kubernetes.fake_server import FakeApiServer

from .stage import CLAIMS, PODS, PROVISIONERS, Stage, provisioner, staged

VERSIONS = {
    "nodeprovisioners": ("windlass.dev/v1alpha1", "NodeProvisioner"),
    "nodeclaims": ("windlass.dev/v1alpha1", "NodeClaim"),
    "nodes": ("v1", "Node"),
    "pods": ("v1", "Pod"),
    "podtemplates": ("v1", "PodTemplate"),
    "capacitybuffers": ("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer"),
    "deployments": ("apps/v1", "Deployment"),
}


def saved(fake: FakeApiServer, file: Path, at: float) -> str:
    """Write all objects as ``kubectl get KINDS -A -o json`` does."""
    items: list[dict[str, Any]] = [
        {"apiVersion": version, "kind": kind, **{key: one[key] for key in one if key not in ("apiVersion", "kind")}}
        for plural, (version, kind) in VERSIONS.items()
        for one in fake.all(plural)
    ]
    whole = {"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}}
    file.write_text(json.dumps(whole, indent=4))
    os.utime(file, (at, at))
    return str(file)


def planned(file: str, *words: str) -> dict[str, Any]:
    done = CliRunner().invoke(windlass, ["plan", file, "--json", *words])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_saved_cluster_is_planned_as_the_controller_plans_it(tmp_path: Path):
    names: list[str] = []

    async def run(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner(minGPUUtilizationPercent=50, maxNodes=5))
        stage.pending("a")
        stage.pending("b")
        await stage.until(lambda: stage.status().get("currentSize") == 2)
        names.extend(stage.nodes)
        stage.bind("a", names[0])
        stage.bind("b", names[1])
        await stage.tick(2)
        stage.pending("c")
        stage.pending("huge", **{"nvidia.com/gpu": "16"})
        saved(stage.fake, tmp_path / "before.json", stage.now)
        ordered = {
            "metadata": {"name": "a100-new", "labels": {"windlass.dev/provisioner": "a100"}},
            "spec": {"provisioner": "a100", "provider": "kwok"},
        }
        stage.fake.put(CLAIMS, ordered)
        saved(stage.fake, tmp_path / "after.json", stage.now)

    staged(run)
    answer = planned(str(tmp_path / "before.json"))
    assert answer["launch"] == {"a100": 1}
    assert [(one["demand"], one["code"]) for one in answer["waiting"]] == [("default/huge", "NO_SHAPE_FITS")]
    assert sorted(one["slice"] for one in answer["keep"]) == names
    # A machine that was ordered, and has no node yet, is not ordered twice.
    assert planned(str(tmp_path / "after.json"))["launch"] == {}


def test_marks_are_judged_by_the_time_at_which_the_file_was_written(tmp_path: Path):
    names: list[str] = []

    async def run(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner(minNodes=2, minGPUUtilizationPercent=100, scaleDownDelay="10m"))
        await stage.until(lambda: stage.status().get("currentSize") == 2)
        stage.fake.change(f"{PROVISIONERS}/a100", lambda one: one["spec"].update(minNodes=0))
        await stage.until(lambda: len(stage.marked) == 2)
        names.extend(stage.nodes)
        saved(stage.fake, tmp_path / "early.json", stage.now)
        saved(stage.fake, tmp_path / "late.json", stage.now + 700)

    staged(run)
    assert planned(str(tmp_path / "early.json"))["drain"] == []
    assert sorted(one["slice"] for one in planned(str(tmp_path / "late.json"))["drain"]) == names


def test_room_that_a_buffer_of_a_deployment_asks_for_is_planned(tmp_path: Path):
    container = {"name": "c", "resources": {"requests": {"nvidia.com/gpu": "8"}}}
    template = {"metadata": {}, "spec": {"containers": [container]}}
    fake = FakeApiServer(lambda: 1_800_000_000.0)
    fake.put(PROVISIONERS, provisioner())
    web = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"replicas": 10, "template": template}}
    fake.put("/apis/apps/v1/namespaces/default/deployments", web)
    spec = {"scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}, "percentage": 25}
    path = "/apis/autoscaling.x-k8s.io/v1beta1/namespaces/default/capacitybuffers"
    fake.put(path, {"metadata": {"name": "room", "namespace": "default"}, "spec": spec})
    answer = planned(saved(fake, tmp_path / "now.json", fake.now()))
    assert answer["launch"] == {"a100": 3}


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ('{"apiVersion": "v1", "items": [], "kind": "List"}', "there is no NodeProvisioner in it"),
        ('{"apiVersion": "v1", "items": [{"metadata": {}}], "kind": "PodList"}', "an item has no kind"),
        ('{"apiVersion": "v1", "items": [', "this is not what kubectl"),
        ("apiVersion: v1\nitems: []\nkind: List\n", "-o json"),
    ],
)
def test_a_file_that_kubectl_has_not_written_is_refused_with_a_remedy(tmp_path: Path, text: str, remedy: str):
    file = tmp_path / "now.json"
    file.write_text(text)
    done = CliRunner().invoke(windlass, ["plan", str(file)])
    assert done.exit_code == 1
    assert remedy in done.output
    assert "kubectl get" in done.output


@pytest.mark.parametrize(("key", "value"), [("maxNodes", "many"), ("template", {"resources": []}), ("template", 7)])
def test_an_object_of_a_wrong_type_is_refused_with_its_place(tmp_path: Path, key: str, value: object):
    fake = FakeApiServer(lambda: 1_800_000_000.0)
    fake.put(PROVISIONERS, provisioner("bad"))
    fake.objects["windlass.dev/nodeprovisioners"][("", "bad")]["spec"][key] = value
    done = CliRunner().invoke(windlass, ["plan", saved(fake, tmp_path / "now.json", fake.now())])
    assert (done.exit_code, type(done.exception)) == (1, SystemExit)
    assert f"$.items[0].spec.{key}" in done.output


def test_a_provisioner_with_mistakes_is_named(tmp_path: Path):
    fake = FakeApiServer(lambda: 1_800_000_000.0)
    fake.put(PROVISIONERS, provisioner("good"))
    fake.put(PROVISIONERS, provisioner("bad"))
    fake.objects["windlass.dev/nodeprovisioners"][("", "bad")]["spec"]["template"]["resources"] = {"cpu": "many"}
    fake.put(PODS, {"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": [{"name": "c"}]}})
    done = CliRunner().invoke(windlass, ["plan", saved(fake, tmp_path / "now.json", fake.now())])
    assert done.exit_code == 0, done.output
    assert "ignored: NodeProvisioner bad: spec.template.resources" in done.output
