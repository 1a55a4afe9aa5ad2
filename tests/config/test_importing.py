"""Files of Ray and Iris become equivalent configurations, with notes on what could not be converted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from windlass.config import Config, ConfigError, read_config
from windlass.config.importers.base import Imported, import_config
from windlass.core.model.snapshot import Group, ScaleDown, amounts

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "config"
GI = 2**30


def imported(name: str) -> tuple[Imported, Config, dict[str, Group]]:
    done = import_config((EXAMPLES / name).read_bytes())
    config = read_config(done.text, path="windlass.yaml")
    return done, config, {one.group.name: one.group for one in config.settings.groups}


def from_data(data: dict[str, Any], kind: str | None = None) -> tuple[Imported, Config]:
    done = import_config(yaml.safe_dump(data), kind=kind)
    return done, read_config(done.text, path="windlass.yaml")


def ray(**more: Any) -> dict[str, Any]:
    return {"cluster_name": "c", "available_node_types": {"w": {"resources": {"CPU": 4}} | more}}


def iris(**more: Any) -> dict[str, Any]:
    return {"scale_groups": {"g": {"resources": {"cpu": 4}, "max_slices": 2} | more}}


# -- KubeRay -------------------------------------------------------------------------------------------------------


def test_worker_groups_of_a_ray_cluster_become_groups():
    done, config, groups = imported("kuberay-cluster.yaml")
    assert list(groups) == ["small", "gpu"]
    assert groups["small"] == Group(
        "small", amounts({"cpu": 4000, "memory": 8 * GI}), 10, min=1, scale_down=ScaleDown(idle_timeout=120)
    )
    assert dict(groups["gpu"].resources) == {"cpu": 12000, "gpu": 2000, "memory": 64 * GI, "fast_disk": 1000}
    assert (groups["gpu"].max, groups["gpu"].scale_down) == (4, ScaleDown(idle_timeout=300))
    provider = config.providers["kuberay"]
    assert provider.type == "kuberay"
    assert (provider.settings["namespace"], provider.settings["cluster"]) == ("ml", "train")
    assert config.workload.type == "ray"
    assert config.workload.settings["address"] == "train-head-svc.ml.svc:6380"
    for part in ("enableInTreeAutoscaling", "upscalingMode", "minReplicas", "numOfHosts"):
        assert any(part in note for note in done.notes), part


def test_a_ray_cluster_without_limits_of_its_own_says_what_to_write():
    group = {"groupName": "w", "template": {"spec": {"containers": [{"name": "ray"}]}}}
    done, config = from_data({"kind": "RayCluster", "metadata": {"name": "c"}, "spec": {"workerGroupSpecs": [group]}})
    assert config.settings.groups[0].group.resources == ()
    assert config.providers["kuberay"].settings["namespace"] == "default"
    for part in ("limits: not given", "maxReplicas: not limited"):
        assert any(part in note for note in done.notes), part


@pytest.mark.parametrize(
    ("group", "place"),
    [
        ({"groupName": "w", "minReplicas": 3, "maxReplicas": 2}, "workerGroupSpecs[0].maxReplicas"),
        ({"groupName": "w", "rayStartParams": {"resources": "oops"}}, "rayStartParams.resources"),
        ({"maxReplicas": 2}, "workerGroupSpecs[0].groupName"),
    ],
)
def test_a_wrong_ray_cluster_is_refused_with_the_place(group, place):
    with pytest.raises(ConfigError) as refused:
        from_data({"kind": "RayCluster", "metadata": {"name": "c"}, "spec": {"workerGroupSpecs": [group]}})
    assert place in str(refused.value)


# -- Ray -----------------------------------------------------------------------------------------------------------


def test_node_types_of_ray_become_groups():
    _, config, groups = imported("ray-cluster.yaml")
    assert list(groups) == ["cpu_worker", "gpu_spot", "detected"]
    assert groups["cpu_worker"] == Group(
        "cpu_worker",
        amounts({"cpu": 16000, "memory": 56 * GI, "fast_disk": 1000}),
        20,
        {"team": "vision"},
        min=1,
        scale_down=ScaleDown(idle_timeout=600),
    )
    assert groups["gpu_spot"].preemptible
    assert dict(groups["gpu_spot"].resources) == {"cpu": 32000, "gpu": 4000, "accelerator_type:A10G": 1000}
    assert config.settings.groups[1].settings["InstanceMarketOptions"] == {"MarketType": "spot"}
    assert (config.settings.cluster.max_nodes, config.settings.max_concurrent_launches) == (24, 10)
    assert config.workload.type == "ray"


def test_a_type_without_limits_may_have_as_many_workers_as_the_cluster():
    assert imported("ray-cluster.yaml")[2]["detected"].max == 24
    assert from_data(ray())[1].settings.groups[0].group.max == 2  # what Ray takes without max_workers


def test_the_head_is_not_bought_and_that_is_reported():
    done, _, groups = imported("ray-cluster.yaml")
    assert "head" not in groups
    assert any(note.startswith("available_node_types.head: the head is not bought") for note in done.notes)


def test_a_head_type_with_workers_is_a_group_for_these():
    done, config = from_data(ray(max_workers=3) | {"head_node_type": "w"})
    assert config.settings.groups[0].group.max == 3
    assert any("workers of the same type" in note for note in done.notes)


def test_settings_that_are_not_imported_are_in_comments_and_notes():
    done, _, _ = imported("ray-cluster.yaml")
    comments = " ".join(line.strip(" #") for line in done.text.splitlines() if line.strip().startswith("#"))
    assert all(note in comments for note in done.notes)
    for path in ("setup_commands", "auth", "provider.type", "upscaling_speed", "workload"):
        assert any(note.startswith(f"{path}: ") for note in done.notes), path
    assert "available_node_types.detected.resources: not given" in comments


@pytest.mark.parametrize("speed", [0, 0.5, 2])
def test_the_speed_of_ray_is_carried_over(speed):
    done, config = from_data(ray() | {"max_workers": 40, "upscaling_speed": speed})
    assert [one.upscaling_speed for one in config.settings.groups] == [speed]
    assert any("it is faster" in note for note in done.notes)
    assert from_data(ray())[1].settings.groups[0].upscaling_speed is None


def test_the_head_of_a_file_is_the_address_of_the_workload():
    commands = ["ray stop", "ray start --head --port=6400"]
    file = ray() | {"provider": {"type": "local", "head_ip": "10.0.0.7"}, "head_start_ray_commands": commands}
    assert from_data(file)[1].workload.settings["address"] == "10.0.0.7:6400"
    done, config = from_data(ray())
    assert config.workload.settings["address"] == "127.0.0.1:6379"
    assert any(note.startswith("workload: the head's host is not in the file") for note in done.notes)


@pytest.mark.parametrize(
    "config",
    [
        {"InstanceMarketOptions": {"MarketType": "spot"}},
        {"scheduling": [{"preemptible": True}]},
        {"scheduling": {"provisioningModel": "SPOT"}},
        {"schedulingConfig": {"preemptible": True}},
        {"azure_arm_parameters": {"priority": "Spot"}},
    ],
)
def test_machines_that_may_be_taken_back_are_preemptible(config):
    assert from_data(ray(node_config=config))[1].settings.groups[0].group.preemptible
    assert not from_data(ray(node_config={"scheduling": []}))[1].settings.groups[0].group.preemptible


def test_a_ray_file_without_node_types_has_one_kind_of_worker():
    old = {"cluster_name": "old", "min_workers": 1, "max_workers": 3, "worker_nodes": {"InstanceType": "m5.large"}}
    _, config = from_data(old)
    (one,) = config.settings.groups
    assert (one.group.name, one.group.min, one.group.max) == ("ray.worker.default", 1, 3)
    assert one.settings == {"InstanceType": "m5.large"}


def test_the_timeout_of_a_type_goes_before_that_of_the_cluster():
    _, config = from_data(ray(idle_timeout_s=45) | {"idle_timeout_minutes": 0.5})
    assert config.settings.groups[0].group.scale_down == ScaleDown(idle_timeout=45)
    _, config = from_data(ray() | {"idle_timeout_minutes": 0.5})
    assert config.settings.groups[0].group.scale_down == ScaleDown(idle_timeout=30)


def test_the_machines_of_an_on_premise_file_are_reached_with_ssh():
    provider = {"type": "local", "head_ip": "10.0.0.7", "worker_ips": ["10.0.0.8", "10.0.0.9"]}
    done, config = from_data(ray() | {"provider": provider, "auth": {"ssh_user": "ada", "ssh_private_key": "~/.ssh/k"}})
    assert config.providers["local"].type == "ssh"
    settings = config.providers["local"].settings
    assert settings["hosts"] == ["10.0.0.8", "10.0.0.9"]
    assert (settings["user"], settings["connect"]) == ("ada", "direct")
    assert settings["key_file"].endswith("/.ssh/k")
    assert not any("worker_ips" in note or note.startswith("auth") for note in done.notes)


def test_a_cloud_that_has_a_provider_here_is_not_said_to_have_none():
    done, config = from_data(ray() | {"provider": {"type": "aws", "region": "eu-central-1"}})
    assert config.providers["aws"].type == "simulated"
    assert not any("there is no provider aws" in note for note in done.notes)
    assert any("type: aws" in note for note in done.notes)


def test_processes_on_this_machine_stay_local():
    assert from_data(ray() | {"provider": {"type": "fake_multinode"}})[1].providers["fake_multinode"].type == "local"


# -- Iris ----------------------------------------------------------------------------------------------------------


def test_scale_groups_of_iris_become_groups_one_per_zone():
    _, config, groups = imported("iris.yaml")
    assert list(groups) == [
        "cpu-europe-west4-b",
        "cpu-us-west4-a",
        "h100",
        "tpu_v5e-spot_8-europe-west4-b",
        "tpu_v5e-spot_32-europe-west4-b",
    ]
    assert config.settings.cluster.choose == "rank"
    assert groups["cpu-us-west4-a"] == Group(
        "cpu-us-west4-a",
        amounts({"cpu": 8000, "memory": 16 * GI, "disk": 100 * GI}),
        4,
        {"pool": "cpu", "zone": "us-west4-a", "capacity-type": "on-demand"},
        spare=1,
        rank=500,
        scale_down=ScaleDown(idle_timeout=300),
    )
    assert dict(groups["h100"].resources)["gpu"] == 8000
    assert (groups["h100"].min, groups["h100"].max, groups["h100"].rank) == (1, 8, 100)
    assert config.settings.groups[0].settings == {
        "gcp": {"mode": "vm", "machine_type": "n2-highmem-2"},
        "zone": "europe-west4-b",
    }
    assert config.settings.policy.evaluation_interval.max == 10


@pytest.mark.parametrize(
    ("family", "size", "hosts", "chips"),
    [("v4", 8, 1, 4), ("v4", 32, 4, 4), ("v5p", 16, 2, 4), ("v5e", 8, 1, 8), ("v5e", 16, 4, 4), ("v6e", 256, 64, 4)],
)
def test_a_pool_has_the_hosts_and_chips_of_its_sizes(family, size, hosts, chips):
    pool = {"family": family, "sizes": {size: {"max_slices": 1}}, "resources": {"cpu": 8}}
    _, config = from_data({"tpu_pools": {"p": pool}})
    group = config.settings.groups[0].group
    assert (group.hosts, dict(group.resources)["tpu"]) == (hosts, chips * 1000)


def test_larger_sizes_of_a_pool_have_a_higher_rank():
    _, _, groups = imported("iris.yaml")
    assert [groups[name].rank for name in groups if name.startswith("tpu")] == [10, 20]
    assert all(groups[name].preemptible for name in groups if name.startswith("tpu"))


def test_the_older_keys_of_a_scale_group_are_known():
    old = iris(accelerator_type="tpu", accelerator_variant="v5litepod-16", slice_size=4, preemptible=True, zone="z")
    done, config = from_data(old)
    group = config.settings.groups[0].group
    assert (group.hosts, group.preemptible, group.labels["zone"]) == (4, True, "z")
    assert dict(group.resources)["tpu"] == 1000
    assert any("device_count: not given" in note for note in done.notes)


# -- both ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "kind", "parts"),
    [
        ({}, None, ("file", "--from ray")),
        ({"groups": {}}, None, ("file", "neither available_node_types")),
        (ray(resources={"CPU": "many"}), None, ("available_node_types.w.resources.CPU", "'many'")),
        (ray(min_workers=3, max_workers=1), None, ("available_node_types.w.max_workers", "min_workers (3)")),
        (ray(labels=[1]), None, ("available_node_types.w.labels", "a list")),
        (ray() | {"max_workers": -1}, None, ("max_workers", "at least 0")),
        (ray() | {"upscaling_speed": "fast"}, None, ("upscaling_speed", "fast")),
        (ray() | {"upscaling_speed": -1}, None, ("upscaling_speed", "from 0 on")),
        (iris(max_slices=None), None, ("scale_groups.g.max_slices", "required")),
        (iris(min_slices=5), None, ("scale_groups.g.max_slices", "min_slices (5)")),
        (iris(resources={"ram": "lots"}), None, ("scale_groups.g.resources.ram", "'lots'")),
        (iris(num_vms=0), None, ("scale_groups.g.num_vms", "at least 1")),
        ({"tpu_pools": {"p": {"family": "v9"}}}, None, ("tpu_pools.p.family", "v4, v5p, v5e, v6e")),
        ({"tpu_pools": {"p": {"family": "v4", "sizes": {"big": {}}}}}, None, ("tpu_pools.p.sizes", "'big'")),
        ({"scale_groups": {"g": 5}}, "iris", ("scale_groups.g", "5")),
    ],
)
def test_a_file_that_cannot_be_imported_is_reported_where_it_is_wrong(data, kind, parts):
    with pytest.raises(ConfigError) as raised:
        from_data(data, kind)
    assert any(all(part in mistake for part in parts) for mistake in raised.value.mistakes), raised.value.mistakes


def test_importing_twice_gives_the_same_text():
    for name in ("ray-cluster.yaml", "iris.yaml"):
        assert imported(name)[0] == imported(name)[0]
