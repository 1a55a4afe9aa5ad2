"""Gangs: how many pods must start together, and which of them may start later."""

from __future__ import annotations

from typing import Any

from .conftest import pod
from .stage import PODS, PROVISIONERS, UNSCHEDULABLE, Stage, provisioner, staged

GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
JOBS = "/apis/batch/v1/namespaces/default/jobs"


def members(stage: Stage, count: int, owner: dict[str, Any] | None = None, **spec: Any) -> None:
    """Pods with all GPUs of a machine each, which the scheduler gave up on."""
    for number in range(count):
        body = pod(f"member-{number}", requests={"nvidia.com/gpu": "8"}, **spec)
        body["metadata"]["ownerReferences"] = [owner] if owner else []
        body["status"] = {"phase": "Pending", "conditions": [UNSCHEDULABLE]}
        stage.fake.put(PODS, body)


def group(stage: Stage, least: int) -> dict[str, Any]:
    body = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": least}}}}
    stage.fake.put(GROUPS, body)
    return {"schedulingGroup": {"podGroupName": "g"}}


def job(stage: Stage, parallelism: int, completions: int, **status: Any) -> dict[str, Any]:
    spec = {"parallelism": parallelism, "completions": completions, "completionMode": "Indexed"}
    stage.fake.put(JOBS, {"metadata": {"name": "j"}, "spec": spec, "status": status})
    return {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "1", "controller": True}


def test_pods_beyond_the_least_number_of_a_gang_do_not_hold_it_up():
    async def test(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner(maxNodes=3))
        members(stage, 5, **group(stage, 2))
        await stage.until(lambda: stage.status().get("currentSize") == 3)
        triggered = {one["involvedObject"]["name"] for one in stage.events("TriggeredScaleUp")}
        assert len(triggered) == 3
        await stage.tick(3)
        assert stage.condition("Blocked")["reason"] == "AT_MAX"

    staged(test)


def test_a_gang_with_room_for_less_than_its_least_number_gets_nothing():
    async def test(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner(maxNodes=3))
        members(stage, 5, **group(stage, 4))
        await stage.tick(4)
        assert stage.claims == []
        assert {one["involvedObject"]["name"] for one in stage.events("NotTriggerScaleUp")} == {
            f"member-{number}" for number in range(5)
        }

    staged(test)


def test_members_that_come_after_the_gang_has_started_are_single_pods():
    async def test(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner(maxNodes=3))
        members(stage, 2, **group(stage, 2))
        await stage.until(lambda: stage.status().get("currentSize") == 2)
        for number, node in enumerate(stage.nodes):
            stage.bind(f"member-{number}", node)
        body = pod("late", requests={"nvidia.com/gpu": "8"}, schedulingGroup={"podGroupName": "g"})
        for name in ("late-1", "late-2"):
            status = {"phase": "Pending", "conditions": [UNSCHEDULABLE]}
            stage.fake.put(PODS, {**body, "metadata": {**body["metadata"], "name": name}, "status": status})
        await stage.until(lambda: stage.status().get("currentSize") == 3)

    staged(test)


def test_the_last_pods_of_an_indexed_job_are_bought_for():
    async def test(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner())
        members(stage, 2, job(stage, 4, 8, succeeded=4, failedIndexes="1,3"))
        await stage.until(lambda: stage.status().get("currentSize") == 2)

    staged(test)


def test_an_indexed_job_with_more_parallelism_than_completions_is_bought_for():
    async def test(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner())
        members(stage, 3, job(stage, 10, 3))
        await stage.until(lambda: stage.status().get("currentSize") == 3)

    staged(test)


def test_an_indexed_job_whose_pods_do_not_all_exist_yet_is_waited_for():
    async def test(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner())
        members(stage, 3, job(stage, 4, 8))
        await stage.tick(3)
        assert stage.claims == []
        assert "gang of 4: only 3 of its pods exist" in stage.events("NotTriggerScaleUp")[0]["message"]

    staged(test)
