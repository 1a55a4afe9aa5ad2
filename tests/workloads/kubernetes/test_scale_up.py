"""Machines for pods that no node can take."""

from __future__ import annotations

import pytest

from windlass.kubernetes_api.api import Response
from windlass.workloads.kubernetes.lease import LeaseElection
from windlass.workloads.protocol import WorkloadError

from .conftest import eventually, pod
from .stage import NODES, PROVISIONERS, Stage, provisioner, staged, with_nodes


def test_a_pod_that_no_node_can_take_gets_a_machine():
    async def test(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner())
        stage.pending("train")
        await stage.until(lambda: stage.status().get("currentSize") == 1)
        node = stage.fake.get(f"{NODES}/{stage.nodes[0]}")
        assert node is not None
        assert node["metadata"]["labels"]["windlass.dev/provisioner"] == "a100"
        assert node["metadata"]["finalizers"] == ["windlass.dev/termination"]
        assert stage.claims == stage.nodes
        claim = stage.fake.all("nodeclaims")[0]
        held = {one["type"] for one in claim["status"]["conditions"] if one["status"] == "True"}
        assert held == {"Launched", "Registered", "Initialized"}
        assert stage.events("TriggeredScaleUp")[0]["involvedObject"]["name"] == "train"
        assert stage.events("TriggeredScaleUp")[0]["message"].startswith("DEMAND: ")
        assert stage.events("ScaledUp")[0]["involvedObject"]["kind"] == "NodeProvisioner"
        stage.bind("train", stage.nodes[0])
        await stage.tick(3)
        assert len(stage.nodes) == 1
        assert stage.status()["utilizationPercent"] == 100

    staged(test)


def test_a_machine_in_flight_is_never_bought_twice_when_its_devices_appear_late():
    async def test(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner())
        stage.pending("train")
        await stage.tick(3)
        for _ in range(8):
            stage.advance(20)
            await stage.tick()
            assert len(stage.claims) == 1
        assert stage.status()["inFlight"] == 1
        stage.advance(60)
        await stage.until(lambda: stage.status().get("currentSize") == 1)

    staged(test, boot_delay=60, device_delay=120)


def test_a_refused_launch_falls_to_the_next_provisioner():
    async def test(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner("first", weight=50, maxNodes=0))
        stage.fake.put(PROVISIONERS, provisioner("second", weight=10))
        stage.pending("train")
        await stage.until(lambda: len(stage.nodes) == 1)
        assert stage.nodes[0].startswith("second-")

    staged(test)


def test_the_event_of_a_refused_launch_starts_with_the_reason_of_the_provider():
    async def test(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner())
        stage.pending("train")
        await stage.until(lambda: stage.events("ProviderError"))
        (event,) = stage.events("ProviderError")
        assert event["message"].startswith("STOCKOUT: a100-")
        assert event["involvedObject"]["name"] == "a100"

    staged(test, failure=1)


def test_a_pod_that_no_provisioner_can_take_gets_the_reason_in_numbers():
    async def test(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner())
        stage.pending("huge", cpu="64")
        await stage.tick(3)
        output = stage.events("NotTriggerScaleUp")
        assert len(output) == 1
        assert output[0]["message"].startswith("NO_SHAPE_FITS: ")
        assert "64 cpu" in output[0]["message"]
        assert "32" in output[0]["message"]
        assert stage.nodes == []

    staged(test)


def test_a_provisioner_with_a_mistake_says_which_and_buys_nothing():
    async def test(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner(minGPUUtilizationPercent=0, provider="nowhere"))
        stage.pending("train")
        await stage.tick(3)
        ready = stage.condition("Ready")
        assert ready["status"] == "False"
        assert "minGPUUtilizationPercent" in ready["message"]
        assert "'nowhere'" in ready["message"]
        assert stage.nodes == []

    staged(test)


def test_a_machine_whose_node_never_gets_ready_is_ended_and_remembered():
    async def run(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner(maxNodes=1))
        stage.pending("a")
        await stage.until(lambda: stage.nodes)
        (first,) = stage.nodes
        await stage.until(lambda: first not in stage.nodes and first not in stage.claims, passes=200, step=60.0)
        assert [one["message"] for one in stage.events("ScaleDown")] == ["REPLACE_FAILED: not up after 15 min"]
        await stage.until(lambda: any(one["message"].startswith("PROBE") for one in stage.events("ScaledUp")))

    staged(run, boot_delay=1e9)


def test_the_buffer_is_bought_where_the_provisioner_says_so():
    async def run(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner(minUnutilizedGPUNodes=2, buyBuffer=True))
        await stage.until(lambda: stage.status().get("currentSize") == 2)
        stage.run_on(stage.nodes[0])
        await stage.until(lambda: stage.status().get("currentSize") == 3)
        await stage.tick(4)
        assert len(stage.nodes) == 3

    staged(run)


def test_a_paused_provisioner_neither_buys_nor_gives_back():
    async def run(stage: Stage) -> None:
        nodes = await with_nodes(stage, 3, 1, minGPUUtilizationPercent=100, scaleDownDelay="10s")
        stage.fake.change(f"{PROVISIONERS}/a100", lambda one: one["spec"].update(paused=True))
        stage.pending("big", **{"nvidia.com/gpu": "8"})
        stage.pending("bigger", **{"nvidia.com/gpu": "8"})
        stage.pending("biggest", **{"nvidia.com/gpu": "8"})
        for _ in range(5):
            await stage.tick()
            stage.advance(30)
        assert stage.nodes == nodes

    staged(run)


def test_a_machine_is_not_launched_before_its_template_is_known():
    """A controller that was killed while it launched launches again at once, also before its first look."""

    async def run(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner(template={"taints": [{"key": "gpu", "effect": "NoSchedule"}]}))
        with pytest.raises(WorkloadError, match="a100 is not known yet"):
            stage.workload.join("a100-1", "a100", 0)
        await stage.tick()
        given = stage.workload.join("a100-1", "a100", 0).environment
        assert given["WINDLASS_NODE_TAINTS"] == "gpu=:NoSchedule"

    staged(run)


def test_the_workload_names_a_wrong_provisioner_and_how_to_correct_it():
    async def test(stage: Stage) -> None:
        (found,) = await stage.workload.diagnose()
        assert found.text == "there is no NodeProvisioner"
        stage.fake.put(PROVISIONERS, provisioner())
        stage.fake.put(PROVISIONERS, provisioner("wrong", provider="absent"))
        await stage.tick()
        (found,) = await stage.workload.diagnose()
        assert "NodeProvisioner wrong: spec.provider: there is no provider 'absent'" in found.text
        assert found.remedy == "correct it: kubectl edit nodeprovisioner wrong"

    staged(test)


def test_daemon_sets_that_will_run_on_a_new_node_are_subtracted_from_it():
    """A node has 32 cpus and a daemon takes two of them: a pod of 31 fits only where the daemon does not run."""

    async def test(stage: Stage) -> None:
        daemon = pod("agent", requests={"cpu": "2"}, nodeSelector={"agent": "yes"})
        stage.fake.put(
            "/apis/apps/v1/namespaces/default/daemonsets",
            {"metadata": {"name": "agent", "namespace": "default"}, "spec": {"template": {"spec": daemon["spec"]}}},
        )
        stage.fake.put(PROVISIONERS, provisioner("with-agent", weight=90, template={"labels": {"agent": "yes"}}))
        stage.fake.put(PROVISIONERS, provisioner("without", weight=10))
        stage.pending("large", cpu="31")
        await stage.until(lambda: stage.status("without").get("currentSize") == 1)
        assert stage.status("with-agent")["currentSize"] == 0
        stage.pending("small", cpu="30")
        await stage.until(lambda: stage.status("with-agent").get("currentSize") == 1)

    staged(test)


def test_a_startup_taint_needs_no_toleration_and_keeps_the_machine_in_flight_until_it_is_removed():
    async def test(stage: Stage) -> None:
        taint = {"key": "example.com/starting", "effect": "NoSchedule"}
        stage.fake.put(PROVISIONERS, provisioner(template={"startupTaints": [taint]}))
        stage.pending("train")
        await stage.tick(4)
        assert (stage.status()["currentSize"], stage.status()["inFlight"]) == (0, 1)
        assert stage.tainted("example.com/starting").keys() == set(stage.nodes)
        (claim,) = stage.fake.all("nodeclaims")
        (initialized,) = [one for one in claim["status"]["conditions"] if one["type"] == "Initialized"]
        assert (initialized["status"], initialized["reason"]) == ("False", "Waiting")
        assert initialized["message"] == "the node has its startup taint example.com/starting"
        stage.fake.change(f"{NODES}/{stage.nodes[0]}", lambda one: one["spec"].update(taints=[]))
        await stage.until(lambda: stage.status().get("currentSize") == 1)
        assert len(stage.nodes) == 1

    staged(test)


def test_a_lease_that_cannot_be_renewed_is_shown_before_it_is_lost():
    """As with an etcd without space: reads work, and every write fails."""

    async def test(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner())
        election = LeaseElection(stage.api, "windlass-system", "test", duration=5.0)
        await election.acquire()
        stage.workload.election = election
        await stage.tick()
        full = Response(500, b'{"message": "etcdserver: mvcc: database space exceeded"}')
        stage.fake.fail_next(lambda method, path: method == "PUT" and "/leases/" in path, full, times=2)
        await eventually(election.why_not_renewed)
        assert election.is_held()
        with pytest.raises(WorkloadError, match=r"the Lease cannot be renewed: .*database space exceeded"):
            await stage.workload.observe()
        await eventually(lambda: not election.why_not_renewed())
        await stage.workload.observe()
        await election.release()

    staged(test)
