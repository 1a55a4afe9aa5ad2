"""Room without pods: CapacityBuffers keep it free, ProvisioningRequests bring it for a set of pods and book it."""

from __future__ import annotations

from typing import Any

from .stage import PODS, PROVISIONERS, Stage, provisioner, staged

AUTOSCALING = "/apis/autoscaling.x-k8s.io"
BUFFERS = f"{AUTOSCALING}/v1beta1/namespaces/default/capacitybuffers"
REQUESTS = f"{AUTOSCALING}/v1/namespaces/default/provisioningrequests"
TEMPLATES = "/api/v1/namespaces/default/podtemplates"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
CHECK = "check-capacity.autoscaling.x-k8s.io"
BUY = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"


def pods_of(gpus: int) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": str(gpus)}}}
    return {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [container]}}


def template(stage: Stage, name: str, gpus: int) -> None:
    stage.fake.put(TEMPLATES, {"metadata": {"name": name, "namespace": "default"}, "template": pods_of(gpus)})


def buffer(stage: Stage, name: str = "room", **spec: Any) -> None:
    stage.fake.put(BUFFERS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})


def request(stage: Stage, count: int, kind: str = BUY, name: str = "train", **spec: Any) -> None:
    sets = [{"podTemplateRef": {"name": "gpus"}, "count": count}]
    body = {"provisioningClassName": kind, "podSets": sets, **spec}
    stage.fake.put(REQUESTS, {"metadata": {"name": name, "namespace": "default"}, "spec": body})


def status_of(stage: Stage, path: str) -> dict[str, Any]:
    found = stage.fake.get(path)
    assert found is not None
    return found.get("status") or {}


def conditions(stage: Stage, path: str) -> dict[str, tuple[str, str]]:
    listed = status_of(stage, path).get("conditions") or ()
    return {one["type"]: (one["status"], one["reason"]) for one in listed}


def of_request(stage: Stage, name: str = "train") -> dict[str, tuple[str, str]]:
    return conditions(stage, f"{REQUESTS}/{name}")


def consumer(stage: Stage, name: str, node: str = "", gpus: int = 4) -> None:
    note = {"autoscaling.x-k8s.io/consume-provisioning-request": "train"}
    body = {"metadata": {"name": name, "namespace": "default", "annotations": note}, "spec": pods_of(gpus)["spec"]}
    if node:
        body["spec"]["nodeName"] = node
        body["status"] = {"phase": "Running"}
    else:
        scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        body["status"] = {"phase": "Pending", "conditions": [scheduled]}
    stage.fake.put(PODS, body)


# -- buffers -----------------------------------------------------------------------------------------------------------


def test_a_buffer_is_bought_kept_and_bought_again_when_pods_take_it():
    async def run(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner(minGPUUtilizationPercent=100, scaleDownDelay="60s"))
        template(stage, "gpus", 8)
        buffer(stage, podTemplateRef={"name": "gpus"}, replicas=2)
        await stage.until(lambda: conditions(stage, f"{BUFFERS}/room").get("Provisioned") == ("True", "Provisioned"))
        assert len(stage.nodes) == 2
        assert status_of(stage, f"{BUFFERS}/room")["replicas"] == 2
        stage.advance(3600)
        await stage.tick(4)
        assert len(stage.nodes) == 2
        assert not stage.marked
        stage.run_on(stage.nodes[0])
        await stage.until(lambda: len(stage.nodes) == 3)
        await stage.tick(4)
        assert len(stage.nodes) == 3
        stage.fake.remove(f"{BUFFERS}/room")
        await stage.until(lambda: len(stage.marked) == 2)

    staged(run)


def test_waiting_pods_go_before_a_buffer():
    async def run(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner(maxNodes=1))
        template(stage, "gpus", 8)
        buffer(stage, podTemplateRef={"name": "gpus"}, replicas=1)
        stage.pending("real")
        await stage.until(lambda: stage.status().get("currentSize") == 1)
        stage.bind("real", stage.nodes[0])
        await stage.until(lambda: conditions(stage, f"{BUFFERS}/room").get("Provisioned", ("", ""))[1] == "AT_MAX")
        assert len(stage.nodes) == 1

    staged(run)


def test_a_buffer_follows_a_deployment_by_percentage_and_stays_within_its_limits():
    async def run(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner())
        body = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"replicas": 10, "template": pods_of(8)}}
        stage.fake.put(DEPLOYMENTS, body)
        reference = {"apiGroup": "apps", "kind": "Deployment", "name": "web"}
        buffer(stage, scalableRef=reference, percentage=25)
        await stage.until(lambda: len(stage.nodes) == 3)
        buffer(stage, "capped", scalableRef=reference, percentage=100, limits={"nvidia.com/gpu": "16"})
        await stage.until(lambda: len(stage.nodes) == 5)
        await stage.tick(4)
        assert len(stage.nodes) == 5

    staged(run)


def test_a_buffer_without_its_template_says_so():
    async def run(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner())
        buffer(stage, podTemplateRef={"name": "absent"}, replicas=2)
        await stage.until(lambda: conditions(stage, f"{BUFFERS}/room").get("ReadyForProvisioning", ("",))[0] == "False")
        assert "default/absent does not exist" in str(status_of(stage, f"{BUFFERS}/room"))
        assert not stage.nodes

    staged(run)


# -- provisioning requests ---------------------------------------------------------------------------------------------


def test_a_request_is_bought_whole_provisioned_when_ready_and_expires():
    async def run(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner(minGPUUtilizationPercent=100, scaleDownDelay="60s"))
        template(stage, "gpus", 4)
        request(stage, 6)
        await stage.until(lambda: of_request(stage).get("Accepted", ("",))[0] == "True")
        await stage.until(lambda: of_request(stage).get("Provisioned", ("",))[0] == "True")
        assert len(stage.nodes) == 3
        stage.advance(300)
        await stage.tick(4)
        assert not stage.marked
        stage.advance(301)
        await stage.until(lambda: of_request(stage).get("BookingExpired", ("",))[0] == "True")
        assert of_request(stage)["Provisioned"][0] == "True"
        await stage.until(lambda: not stage.nodes, passes=80, step=5.0)

    staged(run, boot_delay=5.0)


def test_pods_that_consume_a_request_take_its_room_and_buy_nothing_more():
    async def run(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner(minGPUUtilizationPercent=100, scaleDownDelay="60s"))
        template(stage, "gpus", 4)
        request(stage, 4)
        consumer(stage, "early")
        await stage.until(lambda: of_request(stage).get("Provisioned", ("",))[0] == "True")
        assert len(stage.nodes) == 2
        await stage.tick(4)
        assert len(stage.nodes) == 2
        stage.bind("early", stage.nodes[0])
        for number, node in enumerate([stage.nodes[0], *stage.nodes[1:], *stage.nodes[1:]]):
            consumer(stage, f"c{number}", node)
        await stage.tick(4)
        assert len(stage.nodes) == 2
        assert stage.workload.room_requests.open["default/train"].held == 0

    staged(run)


def test_a_request_that_nothing_fits_fails():
    async def run(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner())
        template(stage, "gpus", 16)
        request(stage, 2)
        await stage.until(lambda: of_request(stage).get("Failed") == ("True", "NO_SHAPE_FITS"))
        await stage.tick(3)
        assert not stage.nodes

    staged(run)


def test_a_request_above_the_limit_waits_and_fails_when_its_time_is_over():
    async def run(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner(maxNodes=1))
        template(stage, "gpus", 8)
        request(stage, 2, parameters={"ValidUntilSeconds": "600"})
        await stage.until(lambda: of_request(stage).get("Provisioned") == ("False", "AT_MAX"))
        assert "Failed" not in of_request(stage)
        assert not stage.nodes
        stage.advance(601)
        await stage.until(lambda: of_request(stage).get("Failed", ("",))[0] == "True")

    staged(run)


def test_checking_capacity_buys_nothing_and_finds_what_is_free():
    async def run(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner(minNodes=1))
        template(stage, "gpus", 4)
        await stage.until(lambda: stage.status().get("currentSize") == 1)
        request(stage, 3, CHECK)
        await stage.until(lambda: of_request(stage).get("Provisioned") == ("False", "CapacityIsNotFound"))
        await stage.tick(3)
        assert len(stage.nodes) == 1
        request(stage, 2, CHECK, name="small")
        await stage.until(lambda: of_request(stage, "small").get("Provisioned") == ("True", "CapacityIsFound"))
        request(stage, 2, CHECK, name="second", parameters={"noRetry": "true"})
        await stage.until(lambda: of_request(stage, "second").get("Failed", ("",))[0] == "True")
        assert len(stage.nodes) == 1

    staged(run)


def test_a_restart_forgets_no_booking():
    async def run(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner(minGPUUtilizationPercent=100, scaleDownDelay="60s"))
        template(stage, "gpus", 8)
        request(stage, 2)
        await stage.until(lambda: of_request(stage).get("Provisioned", ("",))[0] == "True")
        await stage.restart(lose_journal=True)
        stage.advance(120)
        await stage.tick(5)
        assert len(stage.nodes) == 2
        assert not stage.marked

    staged(run)


def test_another_controllers_classes_are_left_alone():
    async def run(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner())
        template(stage, "gpus", 8)
        request(stage, 2, "queued-provisioning.gke.io")
        await stage.tick(4)
        assert of_request(stage) == {}
        assert not stage.nodes

    staged(run)
