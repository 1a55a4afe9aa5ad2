"""What ``windlass kubernetes install --print`` prints, as users and API servers read it."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from windlass.cli import windlass
from windlass.config import read_config
from windlass.kubernetes_api.api import Api, ApiError
from windlass.kubernetes_api.connection import HttpTransport
from windlass.testing.kubernetes.control_plane import ControlPlane
from windlass.testing.kubernetes.fake_server import FakeApiServer
from windlass.workloads.kubernetes.mirror import ClusterMirror

from .conftest import eventually


def printed(*options: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(windlass, ["kubernetes", "install", "--print", *options])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("---\n")
    return list(yaml.safe_load_all(done.stdout))


def rules(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return next(one["rules"] for one in objects if one["kind"] == kind)


def test_a_cluster_without_the_definitions_is_told_with_the_command_that_installs_them():
    async def story() -> str:
        fake = FakeApiServer()
        fake.absent_kinds.add("nodeprovisioners")
        mirror = ClusterMirror(Api(fake), lambda: None, lambda: 0.0)
        mirror.start()
        try:
            return str(await eventually(lambda: "not listed yet" not in mirror.error and mirror.error))
        finally:
            await mirror.close()

    assert asyncio.run(story()) == (
        "/apis/windlass.dev/v1alpha1/nodeprovisioners: the server does not have it: install its definition: "
        "windlass kubernetes install --print | kubectl apply --server-side -f -"
    )


def test_everything_is_printed_in_the_order_in_which_it_is_applied():
    kinds = [one["kind"] for one in printed()]
    assert kinds == [
        "CustomResourceDefinition",
        "CustomResourceDefinition",
        "Namespace",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
        "ConfigMap",
        "Deployment",
    ]


def test_the_namespace_and_the_image_can_be_chosen():
    objects = printed("--namespace", "gpu", "--image", "mine:1")
    deployment = objects[-1]
    assert deployment["metadata"]["namespace"] == "gpu"
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "mine:1"
    binding = next(one for one in objects if one["kind"] == "ClusterRoleBinding")
    assert binding["subjects"][0]["namespace"] == "gpu"


def test_only_the_definitions_are_printed_on_request():
    names = [one["metadata"]["name"] for one in printed("--crds-only")]
    assert names == ["nodeprovisioners.windlass.dev", "nodeclaims.windlass.dev"]


def test_no_role_has_a_wildcard_or_reads_secrets():
    for options in ((), ("--shadow",)):
        for rule in rules(printed(*options), "ClusterRole") + rules(printed(*options), "Role"):
            assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])
            assert "secrets" not in rule["resources"]


def test_a_shadow_may_write_nothing_but_its_lease_and_events():
    for rule in rules(printed("--shadow"), "ClusterRole"):
        if rule["resources"] != ["events"]:
            assert "get" in rule["verbs"]
            assert set(rule["verbs"]) <= {"get", "list", "watch"}
    for rule in rules(printed("--shadow"), "Role"):
        assert rule["resources"] == ["leases"]


def test_the_printed_configuration_has_no_mistakes():
    written = next(one["data"]["windlass.yaml"] for one in printed() if one["kind"] == "ConfigMap")
    config = read_config(written, path="windlass.yaml")
    assert config.workload.type == "kubernetes"
    assert not config.shadow
    shadow = next(one["data"]["windlass.yaml"] for one in printed("--shadow") if one["kind"] == "ConfigMap")
    assert read_config(shadow, path="windlass.yaml").shadow


def test_a_missing_kubeconfig_is_reported_with_its_remedy(tmp_path, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(ApiError, match=r"there is no kubeconfig at .*/none: name one with workload.kubeconfig"):
        asyncio.run(Api(HttpTransport()).get_plain("/api/v1/nodes/n"))


def test_without_print_nothing_is_done():
    done = CliRunner().invoke(windlass, ["kubernetes", "install"])
    assert done.exit_code == 2
    assert "--print" in done.output


# -- a real server ------------------------------------------------------------------------------------


def provisioner(**spec: Any) -> str:
    whole = {"maxNodes": 4, "template": {"resources": {"cpu": "8", "nvidia.com/gpu": "8"}}, **spec}
    return json.dumps(
        {
            "apiVersion": "windlass.dev/v1alpha1",
            "kind": "NodeProvisioner",
            "metadata": {"name": "checked"},
            "spec": whole,
        }
    )


@pytest.mark.kubernetes
@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"minGPUUtilizationPercent": 0}, "spec.minGPUUtilizationPercent"),
        ({"minGPUUtilizationPercent": 101}, "spec.minGPUUtilizationPercent"),
        ({"minUnutilizedGPUNodes": -1}, "spec.minUnutilizedGPUNodes"),
        ({"minNodes": 5}, "spec.maxNodes"),
        ({"scaleDownDelay": "soon"}, "spec.scaleDownDelay"),
        ({"weight": 0}, "spec.weight"),
        ({"price": "cheap"}, "spec.price"),
        ({"deletionPolicy": "Keep"}, "spec.deletionPolicy"),
        ({"template": {}}, "spec.template.resources"),
        ({"template": {"resources": {"cpu": "many"}}}, "spec.template.resources.cpu"),
        ({"budgets": [{"nodes": "all"}]}, "spec.budgets[0].nodes"),
        ({"template": {"resources": {"cpu": "-8"}}}, "spec.template.resources.cpu"),
        ({"template": {"resources": {"cpu": -8}}}, "spec.template.resources.cpu"),
        ({"template": {"resources": {"cpu": 8}, "labels": {"zone": "a b"}}}, "spec.template.labels.zone"),
        ({"template": {"resources": {"cpu": 8}, "taints": [{"key": "a b", "effect": "NoSchedule"}]}}, "taints[0].key"),
        ({"template": {"resources": {"cpu": 8}, "taints": [{"key": "a", "effect": "NoSchedule"}] * 2}}, "taints[1]"),
        ({"gpuResource": "nvida.com/gpu"}, "spec.gpuResource"),
        ({"budgets": [{"nodes": -1}]}, "spec.budgets[0].nodes"),
        ({"budgets": [{"nodes": 5, "schedule": "@daily"}]}, "spec.budgets[0]"),
        ({"budgets": [{"nodes": 5, "schedule": "sometimes", "duration": "1h"}]}, "spec.budgets[0].schedule"),
        ({"repair": [{"condition": "GPUHealthy", "status": "false", "after": "10m"}]}, "spec.repair[0].status"),
        ({"unknown": 1}, "spec.unknown"),
    ],
)
def test_the_server_refuses_a_wrong_field_and_names_it(control_plane: ControlPlane, wrong: dict, field: str):
    with pytest.raises(subprocess.CalledProcessError) as refused:
        control_plane.kubectl("create", "-f", "-", given=provisioner(**wrong))
    assert field in refused.value.stderr


@pytest.mark.kubernetes
def test_a_good_provisioner_gets_its_defaults_columns_and_scale(control_plane: ControlPlane):
    control_plane.kubectl("create", "-f", "-", given=provisioner())
    try:
        spec = json.loads(control_plane.kubectl("get", "wnp", "checked", "-o", "json"))["spec"]
        assert (spec["gpuResource"], spec["scaleDownDelay"], spec["weight"]) == ("nvidia.com/gpu", "10m", 10)
        columns = control_plane.kubectl("get", "wnp").splitlines()[0].split()
        assert columns == ["NAME", "CURRENT", "TARGET", "UTILIZATION", "MARKED", "IN-FLIGHT", "READY", "AGE"]
        control_plane.kubectl("scale", "wnp", "checked", "--replicas=3")
        assert control_plane.kubectl("get", "wnp", "checked", "-o", "jsonpath={.spec.minNodes}") == "3"
    finally:
        control_plane.kubectl("delete", "wnp", "checked")
