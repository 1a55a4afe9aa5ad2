"""Empty machines are released: scenarios A, B and C with all numbers, and what must never happen."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from windlass.kubernetes_api.api import Api
from windlass.testing.kubernetes.fake_server import FakeApiServer
from windlass.workloads.kubernetes.health import HealthServer
from windlass.workloads.kubernetes.workload import KubernetesWorkload

from .stage import CLAIMS, Stage, staged, with_nodes

D = 600.0


async def scenario(stage: Stage) -> list[str]:
    """80 % wanted, 120 nodes, 80 of them in use: 20 are marked."""
    nodes = await with_nodes(stage, 120, 80, minGPUUtilizationPercent=80)
    await stage.tick(2)
    assert stage.status()["targetSize"] == 100
    assert stage.status()["utilizedNodes"] == 80
    assert len(stage.marked) == stage.status()["markedNodes"] == 20
    assert set(stage.marked.values()) == {str(int(stage.now + D))}
    return nodes


def test_scenario_a_marks_twenty_and_gives_them_back_after_the_delay():
    async def test(stage: Stage) -> None:
        nodes = await scenario(stage)
        used = set(nodes[:80])
        stage.advance(D - 1)
        await stage.tick(2)
        assert len(stage.nodes) == 120
        stage.advance(1)
        await stage.until(lambda: len(stage.nodes) == 100)
        assert used <= set(stage.nodes)
        await stage.until(lambda: len(stage.claims) == 100, step=10)
        assert stage.status()["currentSize"] == stage.status()["targetSize"] == 100
        assert len(stage.events("ScaleDownMarked")) == 20
        assert stage.marked == {}

    staged(test)


def test_scenario_b_gives_back_twenty_then_marks_twenty_five_more():
    async def test(stage: Stage) -> None:
        nodes = await scenario(stage)
        stage.advance(D - 1)
        await stage.tick()
        stage.finish(*[f"on-{name}" for name in nodes[60:80]])
        stage.advance(1)
        await stage.tick(2)
        assert stage.status()["targetSize"] == 75
        await stage.until(lambda: len(stage.nodes) == 100)
        assert len(stage.marked) == 25
        stage.advance(D)
        await stage.until(lambda: len(stage.nodes) == 75)

    staged(test)


def test_scenario_c_unmarks_ten_when_use_rises_before_the_delay_is_over():
    async def test(stage: Stage) -> None:
        await scenario(stage)
        stage.advance(D / 2)
        free = [name for name in stage.nodes if name not in stage.marked]
        idle = [name for name in free if not stage.fake.get(f"/api/v1/namespaces/default/pods/on-{name}")]
        for name in idle[:8]:
            stage.run_on(name)
        await stage.tick(2)
        assert stage.status()["utilizedNodes"] == 88
        assert stage.status()["targetSize"] == 110
        assert len(stage.marked) == 10
        assert len(stage.events("ScaleDownUnmarked")) == 10
        stage.advance(D / 2)
        await stage.until(lambda: len(stage.nodes) == 110)

    staged(test)


def test_a_marked_node_that_gets_a_pod_is_unmarked_first():
    async def test(stage: Stage) -> None:
        await scenario(stage)
        landed = sorted(stage.marked)[0]
        stage.run_on(landed)
        await stage.tick(2)
        assert landed not in stage.marked

    staged(test)


def test_the_buffer_is_kept_beyond_what_is_used():
    async def test(stage: Stage) -> None:
        await with_nodes(stage, 10, 4, minGPUUtilizationPercent=100, minUnutilizedGPUNodes=3)
        await stage.tick(2)
        assert stage.status()["targetSize"] == 7
        assert len(stage.marked) == 3

    staged(test)


def test_without_a_utilization_target_nothing_is_given_back():
    async def test(stage: Stage) -> None:
        await with_nodes(stage, 5, 0)
        stage.advance(86400)
        await stage.tick(3)
        assert len(stage.nodes) == 5
        assert stage.marked == {}

    staged(test)


def test_a_pod_that_is_placed_before_the_fence_is_complete_keeps_its_node():
    async def test(stage: Stage) -> None:
        await with_nodes(stage, 5, 0, minGPUUtilizationPercent=100, minUnutilizedGPUNodes=4)
        await stage.tick(2)
        victim = next(iter(stage.marked))
        # The binding is stored after the hard taint: the scheduler had decided before.
        stage.fake.on_write = lambda method, path: (
            stage.run_on(victim)
            if method == "PATCH"
            and path == f"/api/v1/nodes/{victim}"
            and not stage.fake.get(f"/api/v1/namespaces/default/pods/on-{victim}")
            else None
        )
        stage.advance(D)
        await stage.tick(6)
        stage.fake.on_write = lambda _method, _path: None
        await stage.until(lambda: not stage.tainted("windlass.dev/deleting"))
        assert victim in stage.nodes
        assert stage.events("ScaleDownBlocked")

    staged(test)


def test_marks_and_deadlines_outlive_a_controller_that_loses_its_journal():
    async def test(stage: Stage) -> None:
        await scenario(stage)
        before = stage.marked
        stage.advance(100)
        await stage.restart(lose_journal=True)
        await stage.tick(4)
        assert stage.marked == before
        stage.advance(D - 100)
        await stage.until(lambda: len(stage.nodes) == 100)

    staged(test)


def test_one_action_per_loop_is_the_first_of_the_plan():
    async def test(stage: Stage) -> None:
        nodes = await with_nodes(stage, 12, 8, minGPUUtilizationPercent=80, actionsPerLoop=1)
        await stage.tick(2)
        assert len(stage.marked) == 2
        stage.finish(*[f"on-{name}" for name in nodes[6:8]])
        stage.advance(D)
        await stage.controller.tick()  # drains two; the further marks come with the next pass
        await stage.settle()
        assert len(stage.marked) <= 2
        await stage.until(lambda: len(stage.marked) == 3)

    staged(test)


def test_a_budget_limits_how_many_leave_at_once():
    async def test(stage: Stage) -> None:
        await with_nodes(stage, 20, 0, minGPUUtilizationPercent=80, budgets=[{"nodes": "10%"}])
        await stage.tick(2)
        assert len(stage.marked) == 20
        stage.advance(D)
        await stage.controller.tick()
        decided = stage.workload.decision
        assert decided is not None
        assert sum(one.state == "cordoned" for one in decided.slices.values()) == 2

    staged(test)


KEEPING = [
    {"windlass.dev/do-not-disrupt": "true"},
    {"karpenter.sh/do-not-disrupt": "true"},
    {"karpenter.sh/do-not-disrupt": "4h"},
    {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
    {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"},
]
NOT_KEEPING = [
    {"windlass.dev/do-not-disrupt": "false"},
    {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"},
    {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "false"},
]


def annotate(note: dict[str, str], one: dict[str, Any]) -> None:
    one["metadata"]["annotations"].update(note)


def test_a_node_that_must_not_be_disrupted_is_never_marked():
    async def test(stage: Stage) -> None:
        notes = [*KEEPING, *NOT_KEEPING]
        nodes = await with_nodes(stage, len(notes), 0, minGPUUtilizationPercent=100)
        for name, note in zip(nodes, notes, strict=True):
            stage.fake.change(f"/api/v1/nodes/{name}", partial(annotate, note))
        await stage.tick(3)
        assert set(stage.marked) == set(nodes[len(KEEPING) :])

    staged(test)


def test_a_deleted_claim_drains_its_node_and_then_gives_the_machine_back():
    async def test(stage: Stage) -> None:
        (node,) = await with_nodes(stage, 1, 1)
        stage.fake.remove(f"{CLAIMS}/{node}")
        await stage.until(lambda: stage.tainted("windlass.dev/deleting"))
        await stage.until(lambda: not stage.fake.all("pods"))
        await stage.until(lambda: node not in stage.nodes and node not in stage.claims, passes=90)

    staged(test)


def test_probes_and_metrics_are_served_over_http():
    async def test() -> dict[str, str]:
        fake, health = FakeApiServer(), HealthServer("127.0.0.1:0")
        workload = KubernetesWorkload(Api(fake), ["kwok"], health=health)
        await health.start()
        answers = {}

        async def ask(path: str) -> str:
            reader, writer = await asyncio.open_connection("127.0.0.1", health.port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
            answer = (await reader.read()).decode()
            writer.close()
            await writer.wait_closed()
            return answer

        answers["unready"] = await ask("/readyz")
        await workload.observe()
        for path in ("/healthz", "/readyz", "/metrics", "/other"):
            answers[path] = await ask(path)
        await workload.close()
        return answers

    answers = asyncio.run(test())
    assert answers["unready"].startswith("HTTP/1.1 503")
    assert answers["/healthz"].startswith("HTTP/1.1 200")
    assert answers["/readyz"].startswith("HTTP/1.1 200")
    assert "# TYPE windlass_" in answers["/metrics"]
    assert answers["/other"].startswith("HTTP/1.1 404")
