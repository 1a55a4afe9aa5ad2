"""Settings of provisioners: what counts as use, which ones are refused, and what happens to nodes meanwhile."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from windlass.config import ConfigError, read_config
from windlass.config.build import build_components
from windlass.control.record.journal_tables import new_slice_id
from windlass.kubernetes_api.api import Api
from windlass.kubernetes_api.objects import NodeProvisioner
from windlass.workloads.kubernetes.translate.provisioners import mistakes_in

from .stage import PROVISIONERS, Stage, provisioner, staged, with_nodes


def change(stage: Stage, **spec: Any) -> None:
    stage.fake.change(f"{PROVISIONERS}/a100", lambda one: one["spec"].update(spec))


@pytest.mark.parametrize("lose_journal", [False, True])
def test_a_restart_releases_no_node_of_a_provisioner_with_a_mistake(lose_journal: bool):
    async def test(stage: Stage) -> None:
        nodes = await with_nodes(stage, 5, 3, minGPUUtilizationPercent=80)
        await stage.tick(2)
        change(stage, provider="gone")
        await stage.restart(lose_journal=lose_journal)
        for _ in range(5):
            await stage.tick(2)
            stage.advance(300)
        assert stage.nodes == nodes
        assert not stage.tainted("windlass.dev/deleting")
        assert len(stage.fake.all("pods")) == 3
        assert (stage.status()["currentSize"], stage.status()["utilizedNodes"]) == (5, 3)
        for kind in ("Ready", "Blocked"):
            assert "no machine is bought or released: spec.provider" in stage.condition(kind)["message"]
        stage.pending("train")
        await stage.tick(2)
        change(stage, provider="kwok")
        await stage.until(lambda: stage.condition("Ready")["status"] == "True")

    staged(test)


@pytest.mark.parametrize("lose_journal", [False, True])
def test_an_orphaning_that_a_restart_interrupts_releases_no_node(lose_journal: bool):
    async def test(stage: Stage) -> None:
        nodes = await with_nodes(stage, 5, 3, minGPUUtilizationPercent=80, deletionPolicy="Orphan")
        await stage.tick(2)
        await stage.close()
        await Api(stage.fake).delete(f"{PROVISIONERS}/a100")
        await stage.restart(lose_journal=lose_journal)
        await stage.until(lambda: stage.fake.get(f"{PROVISIONERS}/a100") is None)
        assert stage.nodes == nodes
        assert not stage.tainted("windlass.dev/deleting")
        assert not stage.events("ScaledDown")
        assert len(stage.fake.all("pods")) == 3

    staged(test)


def test_a_node_is_protected_also_while_the_last_valid_settings_are_in_force():
    async def test(stage: Stage) -> None:
        nodes = await with_nodes(stage, 2, 0, minGPUUtilizationPercent=80)
        await stage.until(lambda: len(stage.marked) == 2)
        change(stage, provider="gone")
        keep = {"windlass.dev/do-not-disrupt": "true"}
        stage.fake.change(f"/api/v1/nodes/{nodes[0]}", lambda one: one["metadata"]["annotations"].update(keep))
        await stage.tick(2)
        stage.advance(600)
        await stage.until(lambda: nodes[1] not in stage.nodes)
        assert stage.nodes == nodes[:1]

    staged(test)


def test_a_provider_that_is_configured_later_is_found():
    async def test(stage: Stage) -> None:
        stage.workload.use_providers([])
        stage.fake.put(PROVISIONERS, provisioner(minNodes=1))
        await stage.tick(2)
        assert stage.condition("Ready")["status"] == "False"
        stage.workload.use_providers(["kwok"])
        await stage.until(lambda: stage.status()["currentSize"] == 1)

    staged(test)


def test_a_repair_rule_that_cannot_be_read_stops_nothing():
    async def test(stage: Stage) -> None:
        await with_nodes(stage, 1, 1)
        bad = {"type": "GPUHealthy", "status": "False", "lastTransitionTime": "2020-01-01T00:00:00Z"}
        stage.fake.change(f"/api/v1/nodes/{stage.nodes[0]}", lambda one: one["status"]["conditions"].append(bad))
        change(stage, repair=[{"condition": "GPUHealthy", "status": "False", "after": "soon"}])
        stage.fake.put(PROVISIONERS, provisioner("other", minNodes=1))
        await stage.until(lambda: stage.status("other").get("currentSize") == 1)
        assert "spec.repair[0].after" in stage.condition("Ready")["message"]

    staged(test)


def test_only_the_gpu_resource_counts_as_use_with_and_without_a_target():
    async def test(stage: Stage) -> None:
        await with_nodes(stage, 3, 0)
        stage.run_on(stage.nodes[0], cpu="4")
        stage.run_on(stage.nodes[1])
        await stage.tick(2)
        assert stage.status()["utilizedNodes"] == 1
        change(stage, minGPUUtilizationPercent=50)
        await stage.tick(2)
        assert (stage.status()["utilizedNodes"], stage.status()["targetSize"]) == (1, 2)

    staged(test)


def test_every_pod_counts_as_use_where_nodes_have_no_gpus():
    async def test(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner("gpus"))
        small = {"resources": {"cpu": "8", "memory": "32Gi", "pods": "110"}}
        await with_nodes(stage, 5, 0, template=small, minGPUUtilizationPercent=80)
        for node in stage.nodes[:3]:
            stage.run_on(node, cpu="4")
        await stage.tick(2)
        assert (stage.status()["utilizedNodes"], stage.status()["targetSize"]) == (3, 3)
        assert len(stage.marked) == 2

    staged(test)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"template": {"resources": {"cpu": "-4"}}}, "spec.template.resources.cpu"),
        ({"gpuResource": "nvida.com/gpu"}, "spec.gpuResource"),
        ({"template": {"labels": {"a b": "c"}}}, "spec.template.labels.a b"),
        ({"template": {"labels": {"zone": "not valid"}}}, "spec.template.labels.zone"),
        ({"template": {"labels": {"kubernetes.io/hostname": "x"}}}, "spec.template.labels.kubernetes.io/hostname"),
        ({"template": {"taints": [{"key": "a b", "effect": "NoSchedule"}]}}, "spec.template.taints[0].key"),
        ({"template": {"taints": [{"key": "a", "value": "b c", "effect": "NoSchedule"}]}}, "taints[0].value"),
        ({"template": {"taints": [{"key": "a", "effect": "NoSchedule"}] * 2}}, "spec.template.taints[1]"),
        ({"template": {"startupTaints": [{"key": "a", "effect": "Never"}]}}, "spec.template.startupTaints[0].effect"),
        (
            {"template": {"taints": [{"key": "windlass.dev/deleting", "effect": "NoSchedule"}]}},
            "spec.template.taints[0].key",
        ),
        ({"template": {"devices": [{"driver": "d", "capacity": {"memory": "-1"}}]}}, "devices[0].capacity.memory"),
        ({"budgets": [{"nodes": "5", "schedule": "sometimes", "duration": "1h"}]}, "spec.budgets[0]"),
    ],
)
def test_a_wrong_setting_is_named(spec: dict[str, Any], field: str):
    (mistake,) = mistakes_in(msgspec.convert(provisioner(**spec), NodeProvisioner))
    assert field in mistake.partition(": ")[0]


def test_ids_of_machines_are_valid_labels_however_long_the_name_of_the_group_is():
    assert new_slice_id("a100", "0123456789stamp", 7) == "a100-0123456789stamp-7"
    long = new_slice_id("a" * 44 + ".-" + "b" * 40, "0123456789stamp", 7)
    assert len(long) <= 63
    assert long.endswith("a-0123456789stamp-7")


def test_a_machine_of_a_provisioner_with_a_long_name_joins():
    async def test(stage: Stage) -> None:
        name = "gpu-" * 15 + "abc"
        stage.fake.put(PROVISIONERS, provisioner(name, minNodes=1))
        await stage.until(lambda: stage.status(name).get("currentSize") == 1)

    staged(test)


FILE = "workload: {type: kubernetes, listen: '127.0.0.1:0'}\nproviders: {x: {type: %s}}\n"


def test_a_provider_that_cannot_make_kubernetes_nodes_is_refused():
    with pytest.raises(ConfigError, match=r"kubernetes runs on .*kwok.* machines only, and providers\.x is local"):
        build_components(read_config(FILE % "local", path="windlass.yaml"))


@pytest.mark.parametrize("read_only", [False, True])
def test_a_shadow_has_probes_as_a_leader_has(read_only: bool):
    config = read_config(FILE % "kwok", path="windlass.yaml")
    workload: Any = build_components(config, read_only=read_only).workload
    assert workload.health is not None
