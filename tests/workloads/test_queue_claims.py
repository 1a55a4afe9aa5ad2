"""Which tasks a node claims: small ones starve no large one, and a gang starts as a whole or not at all."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from windlass.core.model.lifecycle import State
from windlass.core.model.reasons import Code, Reason
from windlass.core.model.snapshot import (
    Amounts,
    Bundle,
    Demand,
    Gang,
    Group,
    Node,
    Slice,
    Snapshot,
    amounts,
)
from windlass.core.planner import plan
from windlass.workloads.protocol import DecidedSlice, DecisionReport
from windlass.workloads.queue.claims import PATIENCE, Claim, Joined
from windlass.workloads.queue.database import QueueError
from windlass.workloads.queue.store import Queue
from windlass.workloads.queue.workload import QueueWorkload, spares_of

SMALL = amounts({"cpu": 1000})
LARGE = amounts({"cpu": 4000})


class Stage:
    """A queue on a clock that the test turns; nodes with four cpus each."""

    def __init__(self, directory: Path) -> None:
        self.time = 1000.0
        self.queue = Queue(directory, now=lambda: self.time)
        self.nodes: dict[str, Joined] = {}
        self.running: dict[str, list[Claim]] = {}

    def join(self, *names: str, resources: Amounts = LARGE) -> None:
        for name in names:
            self.nodes[name] = self.queue.join(f"{name}/0", name, dict(resources), {})
            self.running[name] = []

    def submit(self, name: str, needs: tuple[tuple[str, int], ...] = SMALL, count: int = 1, gang: bool = False) -> None:
        self.queue.submit(name, ["true"], needs, count, gang=gang)

    def turn(self, name: str) -> list[str]:
        """The node gives a sign of life and claims; which jobs it starts tasks of."""
        self.queue.beat(self.nodes[name])
        claims = self.queue.claim(self.nodes[name])
        self.running[name] += claims
        return [claim.job for claim in claims]

    def end(self, name: str, code: int | None = 0) -> None:
        """The oldest task of a node ends."""
        self.queue.report(self.nodes[name], self.running[name].pop(0).number, code)

    def counts(self, name: str) -> tuple[int, int, int]:
        job = next(job for job in self.queue.jobs() if job.name == name)
        return job.waiting, job.running, job.done


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_a_steady_stream_of_small_tasks_does_not_starve_a_large_one(stage: Stage) -> None:
    stage.join("n")
    for number in range(4):
        stage.submit(f"first-{number}")
    assert len(stage.turn("n")) == 4
    stage.submit("large", LARGE)
    submitted, seconds = stage.time, 0
    while stage.counts("large")[0]:
        stage.time += 1
        seconds += 1
        assert seconds < 2 * PATIENCE, "it waits for ever"
        stage.submit(f"small-{seconds}")
        stage.end("n")
        stage.turn("n")
    assert stage.time - submitted <= PATIENCE + 10, "four tasks of a second each are waited for"
    stage.end("n")
    assert len(stage.turn("n")) == 4, "then the small ones have their turn"


def test_only_as_many_nodes_wait_for_a_large_task_as_it_needs(stage: Stage) -> None:
    stage.join("a", "b")
    for number in range(8):
        stage.submit(f"first-{number}")
    assert len(stage.turn("a") + stage.turn("b")) == 8
    stage.submit("large", LARGE)
    stage.time += PATIENCE
    stage.submit("small", count=2)
    stage.end("a")
    assert stage.turn("a") == []
    stage.end("b")
    assert stage.turn("b") == ["small"]


def test_a_large_task_does_not_wait_for_ever_for_a_node_whose_task_never_ends(stage: Stage) -> None:
    stage.join("a", "b", "c")
    for name in ("a", "c"):
        stage.submit(f"service-{name}")
        assert stage.turn(name) == [f"service-{name}"]
    stage.submit("first", count=10)
    assert len(stage.turn("a") + stage.turn("b") + stage.turn("c")) == 10
    stage.submit("large", LARGE)
    submitted, seconds = stage.time, 0
    while stage.counts("large")[0]:
        stage.time += 1
        seconds += 1
        assert seconds < 4 * PATIENCE, "it waits for a node whose task never ends"
        stage.submit(f"small-{seconds}", count=3)
        for name in ("a", "c", "b"):
            services = [one for one in stage.running[name] if one.job.startswith("service")]
            others = [one for one in stage.running[name] if one not in services]
            if others:
                stage.queue.report(stage.nodes[name], others[0].number, 0)
                stage.running[name] = services + others[1:]
            stage.turn(name)
    assert stage.time - submitted <= 2 * PATIENCE + 10
    assert any(claim.job == "large" for claim in stage.running["b"])


def test_a_silent_node_keeps_no_other_from_waiting_for_a_large_task(stage: Stage) -> None:
    stage.join("a", "b")
    for number in range(8):
        stage.submit(f"first-{number}")
    assert len(stage.turn("a") + stage.turn("b")) == 8
    stage.submit("large", LARGE)
    stage.time += PATIENCE
    stage.submit("small", count=2)
    stage.end("a")
    assert stage.turn("a") == []  # it waits for the large one, and is not heard of again
    stage.time += 11
    stage.end("b")
    assert stage.turn("b") == []


def test_nothing_is_kept_for_what_could_never_run_on_the_node(stage: Stage) -> None:
    stage.join("n")
    stage.submit("huge", amounts({"cpu": 64_000}))
    stage.time += 10 * PATIENCE
    stage.submit("small")
    assert stage.turn("n") == ["small"]


def test_a_gang_starts_on_several_nodes_at_once_or_not_at_all(stage: Stage) -> None:
    stage.join("a", "b")
    stage.submit("busy", LARGE)
    assert stage.turn("a") == ["busy"]
    stage.submit("gang", SMALL, 6, gang=True)
    assert stage.turn("b") == []
    assert stage.counts("gang") == (6, 0, 0)
    stage.end("a")
    assert stage.turn("a") == ["gang"] * 2, "four members have their room on the other node"
    assert stage.counts("gang") == (0, 6, 0)
    assert stage.turn("b") == ["gang"] * 4


def test_room_that_is_kept_for_a_gang_is_not_taken_by_younger_tasks(stage: Stage) -> None:
    stage.join("a", "b")
    stage.submit("busy", LARGE)
    assert stage.turn("a") == ["busy"]
    stage.submit("gang", SMALL, 6, gang=True)
    stage.turn("b")
    stage.submit("small", count=8)
    assert stage.turn("b") == []


def test_a_gang_that_the_nodes_could_never_hold_keeps_nothing(stage: Stage) -> None:
    stage.join("a")
    stage.submit("gang", SMALL, 5, gang=True)
    stage.submit("small")
    assert stage.turn("a") == ["small"]


def test_a_gang_does_not_start_on_a_cordoned_node(stage: Stage) -> None:
    stage.join("a", "b")
    stage.submit("busy", LARGE)
    stage.turn("a")
    stage.submit("gang", SMALL, 6, gang=True)
    stage.turn("b")
    stage.queue.cordon("b", 1)
    stage.end("a")
    assert stage.turn("a") == []
    assert stage.counts("gang") == (6, 0, 0)
    assert [fence for fence in stage.queue.observe().fences if fence[0] == "b"] == [("b", 1, 0)]


def test_a_gang_that_loses_a_node_is_ended_and_waits_again_as_a_whole(stage: Stage) -> None:
    stage.join("a", "b")
    stage.submit("gang", LARGE, 2, gang=True)
    stage.turn("a")
    stage.turn("b")
    stage.turn("a")
    assert stage.counts("gang") == (0, 2, 0)
    stage.queue.forget(["b"])
    assert len(stage.queue.commands(stage.nodes["a"]).claims) == 1
    assert stage.queue.observe().waiting == [], "it is no demand before all of it waits"
    stage.end("a", None)
    [waiting] = stage.queue.observe().waiting
    assert (waiting.job, waiting.tasks, waiting.gang) == ("gang", 2, True)
    stage.join("c")
    stage.turn("a")
    stage.turn("c")
    stage.turn("a")
    assert stage.counts("gang") == (0, 2, 0)


def test_two_gangs_do_not_wait_for_each_others_room(stage: Stage) -> None:
    stage.join("a", "b")
    stage.submit("one", LARGE, 2, gang=True)
    stage.submit("two", LARGE, 2, gang=True)
    started = [job for _ in range(2) for name in "ab" for job in stage.turn(name)]
    assert started == ["one", "one"]
    stage.end("a")
    stage.end("b")
    assert [job for _ in range(2) for name in "ba" for job in stage.turn(name)] == ["two", "two"]


def test_a_gang_is_demand_that_must_be_placed_as_a_whole(tmp_path: Path) -> None:
    import asyncio

    stage = Stage(tmp_path)
    stage.submit("gang", SMALL, 3, gang=True)

    async def shown() -> None:
        workload = QueueWorkload(tmp_path)
        [demand] = (await workload.observe()).demands
        assert demand.gang == "any"
        assert demand.count == 3
        await workload.close()

    asyncio.run(shown())


def test_a_gang_is_not_tried_again_member_by_member(stage: Stage) -> None:
    with pytest.raises(QueueError, match="retries"):
        stage.queue.submit("gang", ["true"], SMALL, 3, 2, gang=True)


def test_an_unhealthy_node_claims_nothing_until_it_is_healthy(stage: Stage) -> None:
    stage.join("n")
    stage.submit("a")
    stage.queue.set_problem(stage.nodes["n"], "no room on the disk")
    assert stage.turn("n") == []
    assert stage.queue.observe().nodes[0].problem == "no room on the disk"
    stage.queue.set_problem(stage.nodes["n"], "")
    assert stage.turn("n") == ["a"]


def test_a_gang_that_the_cluster_could_never_hold_does_not_keep_a_younger_one_waiting(tmp_path: Path) -> None:
    groups = (Group("four", LARGE, max=2, price=10**9),)
    stage = Stage(tmp_path)
    stage.join("a")

    async def decided(count: int) -> None:
        """What the workload learns from the plan for two gangs: the older has ``count`` members."""
        demands = (
            Demand("older", (Bundle(SMALL, count),), Gang.ANY, since=10),
            Demand("younger", (Bundle(SMALL, 3),), Gang.ANY, since=20),
        )
        snapshot = Snapshot(groups, (), demands, now=100)
        workload = QueueWorkload(tmp_path, groups)
        workload.on_decision(DecisionReport(100, groups, {}, plan(snapshot), snapshot=snapshot))
        await workload.close()

    stage.submit("older", SMALL, 9, gang=True)
    stage.submit("younger", SMALL, 3, gang=True)
    assert stage.turn("a") == []  # nothing is known about the older one: a second machine may come for it
    asyncio.run(decided(8))
    assert stage.turn("a") == []  # two machines hold it: it waits for the second one
    asyncio.run(decided(9))
    assert stage.turn("a") == ["younger"] * 3
    assert stage.counts("older") == (9, 0, 0)


# -- spares --------------------------------------------------------------------------------------------------------

GPU = amounts({"cpu": 4000, "gpu": 1000})


def test_a_spare_with_an_accelerator_leaves_other_work_to_others_and_takes_work_of_its_kind(stage: Stage) -> None:
    stage.join("cpu")
    stage.join("gpu", resources=GPU)
    stage.queue.keep_spares(["gpu"])
    stage.submit("plain")
    assert stage.turn("gpu") == []
    assert stage.turn("cpu") == ["plain"]
    stage.submit("training", amounts({"gpu": 1000}))
    assert stage.turn("gpu") == ["training"]


def test_a_spare_takes_work_that_has_no_other_place(stage: Stage) -> None:
    stage.join("gpu", resources=GPU)
    stage.queue.keep_spares(["gpu"])
    stage.submit("first")
    assert stage.turn("gpu") == []
    stage.queue.keep_spares([])  # the plan gives it the work: there is no other place
    assert stage.turn("gpu") == ["first"]
    stage.queue.keep_spares(["gpu"])
    stage.submit("second")
    stage.time += PATIENCE  # no controller plans any more
    assert stage.turn("gpu") == ["second"]


@pytest.mark.parametrize(("other", "kept"), [(True, ("gpu-1", "gpu-2")), (False, ())])
def test_the_plan_decides_which_slices_are_kept_as_spares(tmp_path: Path, other: bool, kept: tuple[str, ...]) -> None:
    groups = (
        Group("gpu", GPU, max=2, spare=2, price=2 * 10**9),
        *([Group("cpu", LARGE, max=4, price=10**9)] if other else []),
    )
    slices = (
        Slice("gpu-1", "gpu", State.READY, 0, nodes=(Node("gpu-1/0", idle_since=0),)),
        Slice("gpu-2", "gpu", State.BOOTING, 90),
    )
    reason = Reason(Code.SPARE, "held ready")
    decided = {
        one.id: DecidedSlice(one.id, "gpu", one.state, 0, reason, reason, None, 0, must_go=False) for one in slices
    }
    demands = (Demand("plain", (Bundle(SMALL, 8),), since=95),)
    made = plan(Snapshot(groups, slices, demands, now=100))
    assert spares_of(DecisionReport(100, groups, decided, made)) == kept

    async def story() -> None:
        workload = QueueWorkload(tmp_path, groups)
        workload.on_decision(DecisionReport(100, groups, decided, made))
        await workload.close()

    asyncio.run(story())
    queue = Queue(tmp_path)
    with queue._looking() as run:
        assert tuple(name for (name,) in run("SELECT slice FROM spares ORDER BY slice")) == kept
