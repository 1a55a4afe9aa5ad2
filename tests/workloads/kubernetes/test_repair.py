"""Nodes with a bad condition are drained and replaced, at most a fifth of a provisioner at once."""

from __future__ import annotations

import pytest

from windlass.kubernetes_api.objects import rfc3339
from windlass.workloads.kubernetes.repair import allowed

from .stage import PROVISIONERS, Stage, provisioner, staged, with_nodes

RULE = {"condition": "GPUHealthy", "status": "False", "after": "10m"}


def break_node(stage: Stage, name: str, status: str = "False") -> None:
    """What a node problem detector writes."""
    bad = {"type": "GPUHealthy", "status": status, "lastTransitionTime": rfc3339(stage.now)}

    def change(one: dict) -> None:
        kept = [known for known in one["status"]["conditions"] if known["type"] != "GPUHealthy"]
        one["status"]["conditions"] = [*kept, bad]

    stage.fake.change(f"/api/v1/nodes/{name}", change)


@pytest.mark.parametrize(("nodes", "at_once"), [(1, 1), (4, 1), (9, 1), (10, 2), (99, 19), (100, 20)])
def test_at_most_a_fifth_is_under_repair_at_once(nodes: int, at_once: int):
    assert allowed(nodes) == at_once


def test_a_bad_node_is_drained_after_its_time_and_its_pods_get_a_new_one():
    async def test(stage: Stage) -> None:
        nodes = await with_nodes(stage, 2, 2, repair=[RULE])
        broken = nodes[0]
        break_node(stage, broken)
        stage.advance(599)
        await stage.tick(3)
        assert not stage.tainted("windlass.dev/deleting")
        stage.advance(1)
        await stage.until(lambda: broken in stage.tainted("windlass.dev/deleting"))
        await stage.until(lambda: not stage.fake.get(f"/api/v1/namespaces/default/pods/on-{broken}"))
        stage.pending("again")  # what its Deployment or Job makes in its place
        await stage.until(lambda: broken not in stage.nodes)
        await stage.until(lambda: len(stage.nodes) == 2)
        ended = [one["message"] for one in stage.events("ScaleDown")]
        assert any("UNHEALTHY" in message for message in ended)

    staged(test)


def test_a_condition_that_recovers_in_time_repairs_nothing():
    async def test(stage: Stage) -> None:
        nodes = await with_nodes(stage, 2, 2, repair=[RULE])
        break_node(stage, nodes[0])
        stage.advance(590)
        await stage.tick(2)
        break_node(stage, nodes[0], "True")
        await stage.tick()
        stage.advance(600)
        await stage.tick(4)
        assert stage.nodes == nodes
        assert not stage.tainted("windlass.dev/deleting")

    staged(test)


def test_when_all_nodes_turn_bad_a_fifth_is_repaired_at_a_time():
    async def test(stage: Stage) -> None:
        nodes = await with_nodes(stage, 10, 10, repair=[RULE])
        for name in nodes:
            break_node(stage, name)
        stage.fake.blocked_evictions.update(f"default/on-{name}" for name in nodes)
        stage.advance(601)
        await stage.tick(8)
        assert len(stage.tainted("windlass.dev/deleting")) == 2

    staged(test)


def test_protected_nodes_and_paused_provisioners_are_left_alone():
    async def test(stage: Stage) -> None:
        nodes = await with_nodes(stage, 2, 2, repair=[RULE])
        keep = {"windlass.dev/do-not-disrupt": "true"}
        stage.fake.change(f"/api/v1/nodes/{nodes[0]}", lambda one: one["metadata"]["annotations"].update(keep))
        break_node(stage, nodes[0])
        stage.advance(601)
        await stage.tick(4)
        assert not stage.tainted("windlass.dev/deleting")
        stage.fake.change(f"{PROVISIONERS}/a100", lambda one: one["spec"].update(paused=True))
        break_node(stage, nodes[1])
        stage.advance(601)
        await stage.tick(4)
        assert not stage.tainted("windlass.dev/deleting")

    staged(test)


def test_a_wrong_rule_is_named():
    async def test(stage: Stage) -> None:
        stage.fake.put(PROVISIONERS, provisioner(repair=[{**RULE, "status": "bad", "after": "soon"}]))
        await stage.until(lambda: stage.status().get("conditions"))
        message = stage.condition("Ready")["message"]
        assert "spec.repair[0].status" in message
        assert "spec.repair[0].after" in message

    staged(test)
