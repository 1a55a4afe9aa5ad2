"""Windlass does right what Ray's own autoscaler gets wrong, on a cluster in memory (``ray_world``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from tests.control.worlds import Survivor
from tests.workloads.ray_world import SETTINGS, WORKER, FakeNode, RayWorld
from windlass.control.reconcile.operator_orders import Order, give
from windlass.control.record.journal_tables import IS
from windlass.control.settings import GroupSettings, Settings
from windlass.core.model.lifecycle import State
from windlass.providers.protocol import InsufficientCapacity
from windlass.workloads.ray import wire_pb2 as wire
from windlass.workloads.ray.gcs import GcsError

Story = Callable[[RayWorld, Survivor], Coroutine[Any, Any, None]]


def run_story(
    story: Story, settings: Settings = SETTINGS, prepare: Callable[[RayWorld], None] = lambda _: None
) -> None:
    async def whole() -> None:
        world = RayWorld(settings)
        prepare(world)
        await story(world, Survivor(world))
        assert world.head.killed == []

    asyncio.run(whole())


async def reconfigured(world: RayWorld, alive: Survivor, settings: Settings) -> None:
    """Change the configuration, as ``windlass run`` does when its file has changed."""
    world.settings = settings
    work: Any = world.work
    work.regroup([one.group for one in settings.groups])
    await alive.controller.reconfigure(settings, world.clouds, world.work)


async def until_a_node_drains(world: RayWorld, alive: Survivor) -> None:
    """Let a task end on a new machine, and wait until the idle machine is drained."""
    head = world.head
    head.waiting += ["a"]
    await alive.until(lambda: head.running, 0.2)
    head.finish()
    await alive.until(lambda: any(node.drain for node in head.nodes.values()), 0.2)


def test_all_machines_of_a_burst_are_requested_in_one_pass() -> None:
    async def story(world: RayWorld, alive: Survivor) -> None:
        world.head.waiting += [f"t{number}" for number in range(8)]
        await alive.until(lambda: world.bought, 0.2)
        assert len(world.bought) == 4

    run_story(story)


@pytest.mark.parametrize(("group", "bought"), [(("PACK", 3, 2), 3), (("SPREAD", 5, 1), 3)])
def test_a_placement_group_whose_preference_no_group_can_meet_is_bought_for_without_a_word_about_waiting(
    group: tuple[str, int, int], bought: int
) -> None:
    """Three bundles of two CPUs prefer one node, and no node has six. Five prefer five nodes, and the limit is four."""

    async def story(world: RayWorld, alive: Survivor) -> None:
        world.head.placement_groups = [group]
        await alive.until(lambda: world.bought, 0.2)
        assert len(world.bought) == bought
        await alive.tick(0.2)
        told = [record.kind for record in world.journal().read() if record.subject.startswith("pg:")]
        assert "waiting" not in told

    run_story(story)


def test_work_that_comes_while_a_node_is_being_ended_is_not_planned_onto_it() -> None:
    async def story(world: RayWorld, alive: Survivor) -> None:
        head = world.head
        await until_a_node_drains(world, alive)
        head.waiting += ["b"]
        await alive.tick(0.2)
        assert len(world.bought) == 2, "the pass that sees the work buys a machine for it"
        await alive.until(lambda: head.running == ["b"], 0.2)

    run_story(story)


def test_a_group_that_is_removed_while_one_of_its_nodes_works_hinders_nothing_and_ends_no_work() -> None:
    async def story(world: RayWorld, alive: Survivor) -> None:
        head = world.head
        head.waiting += ["a"]
        await alive.until(lambda: head.running, 0.2)
        other = replace(WORKER, name="other")
        await reconfigured(world, alive, replace(SETTINGS, groups=(GroupSettings(other, "cloud"),)))
        await alive.until(lambda: any(node.drain for node in head.nodes.values()), 0.2)
        # Nothing is planned onto a busy node that must go.
        head.waiting += ["b"]
        await alive.until(lambda: head.running == ["a", "b"], 0.2)
        first, second = world.bought
        alive.controller = world.controller()
        await alive.until(lambda: world.time > 1030, 0.5)
        assert head.running == ["a", "b"]
        head.finish("a")
        await alive.until(lambda: first not in world.instances, 0.2)
        assert (head.finished, head.lost) == (["a"], [])
        assert second in world.instances

    run_story(story)


def test_a_limit_that_is_lowered_while_launches_are_under_way_hinders_nothing() -> None:
    async def story(world: RayWorld, alive: Survivor) -> None:
        head = world.head
        world.cloud.booting = True
        head.waiting += [f"t{number}" for number in range(8)]
        await alive.until(lambda: len(world.bought) == 4, 0.2)
        await reconfigured(world, alive, replace(SETTINGS, groups=(GroupSettings(replace(WORKER, max=1), "cloud"),)))
        await alive.tick(0.2)
        world.cloud.boot()
        for _ in range(4):
            await alive.until(lambda: len(head.running) == 2, 0.2)
            head.finish()
        await alive.until(lambda: not world.instances, 0.2)
        assert len(head.finished) == 8

    run_story(story)


def test_queued_launches_are_cancelled_when_what_waited_is_gone() -> None:
    async def story(world: RayWorld, alive: Survivor) -> None:
        world.cloud.booting = True
        world.head.waiting += [f"t{number}" for number in range(8)]
        await alive.until(lambda: len(alive.in_state(State.QUEUED)) == 3, 0.2)
        world.head.waiting.clear()
        await alive.until(lambda: not alive.in_state(State.QUEUED), 0.2)
        world.cloud.boot()
        await alive.until(lambda: not world.instances, 0.2, ticks=100)
        assert len(world.bought) == 1

    run_story(story, replace(SETTINGS, max_concurrent_launches=1))


def test_launches_that_fail_at_once_are_remembered_and_not_repeated_in_every_pass() -> None:
    async def story(world: RayWorld, alive: Survivor) -> None:
        asked = []

        def refuse(order: Any) -> Exception:
            asked.append(order.slice_id)
            return InsufficientCapacity("none left")

        world.cloud.refusing = refuse
        world.head.waiting += ["a"]
        for _ in range(100):
            await alive.tick(0.2)
        assert 1 <= len(asked) <= 3, "within 20 s"

    run_story(story)


def test_an_idle_drain_that_gets_no_answer_never_becomes_one_with_work_on_the_node() -> None:
    async def story(world: RayWorld, alive: Survivor) -> None:
        head, unanswered = world.head, ["b"]

        def get_work(node: FakeNode) -> None:
            if unanswered:
                node.running.append(unanswered.pop())
                raise GcsError("the head gave no answer")

        head.on_drain = get_work
        head.waiting += ["a"]
        await alive.until(lambda: head.running, 0.2)
        head.finish()
        await alive.until(lambda: not unanswered, 0.2)
        (node,) = head.nodes.values()
        await alive.until(lambda: alive.in_state(State.READY), 0.2)
        later = world.time + 10
        await alive.until(lambda: world.time >= later, 0.2)
        assert node.drain is None
        head.finish()
        await alive.until(lambda: not world.instances, 0.2)
        assert head.deadlines == []

    run_story(story)


def test_an_actor_that_comes_between_two_attempts_of_an_idle_drain_is_not_lost() -> None:
    async def story(world: RayWorld, alive: Survivor) -> None:
        head = world.head

        def get_actor(node: FakeNode) -> None:
            if not head.actors:
                head.actors.append(wire.ActorTableData(address=wire.Address(node_id=node.id), state=1))
                error = GcsError("the head could not reach the raylet of a node")
                error.unreached = True
                raise error

        head.on_drain = get_actor
        head.waiting += ["a"]
        await alive.until(lambda: head.running, 0.2)
        head.finish()
        await alive.until(lambda: head.actors, 0.2)
        later = world.time + 10
        await alive.until(lambda: world.time >= later, 0.2)
        (node,) = head.nodes.values()
        assert node.drain is None
        assert alive.in_state(State.READY)

    run_story(story)


@pytest.mark.parametrize("limit", [None, 60])
def test_a_drain_with_work_on_the_node_tells_ray_when_the_work_will_be_evicted(limit: float | None) -> None:
    async def story(world: RayWorld, alive: Survivor) -> None:
        head = world.head
        head.waiting += ["a"]
        await alive.until(lambda: head.running, 0.2)
        work: Any = world.work
        work.limit_drains(limit)
        give(world.journal(), Order("drain", head.busy()[0], "ann"), world.time)
        await alive.until(lambda: head.deadlines, 0.2)
        assert head.deadlines == [0 if limit is None else int(1000 * (world.time + limit))]

    run_story(story)


@pytest.mark.parametrize("deaths", [0, 1])
def test_an_idle_node_goes_in_the_pass_after_its_timeout_also_after_a_restart(deaths: int) -> None:
    async def story(world: RayWorld, alive: Survivor) -> None:
        head = world.head
        head.waiting += ["a"]
        await alive.until(lambda: head.running, 0.2)
        head.finish()
        ended = world.time
        await alive.until(lambda: world.time >= ended + 4, 0.2)
        if deaths:
            alive.controller = world.controller()
        await alive.until(lambda: not world.instances, 0.2)
        assert world.time <= ended + 5 + 1.5, "nothing starts its clock again"

    run_story(story)


def test_a_machine_that_ends_after_its_drain_while_no_controller_runs_is_not_lost() -> None:
    async def story(world: RayWorld, alive: Survivor) -> None:
        head = world.head
        await until_a_node_drains(world, alive)
        (machine,) = world.instances
        head.step()
        assert head.nodes[machine].dead
        world.cloud.kill(machine)  # `ray start --block` ends with its raylet
        alive.controller = world.controller()
        await alive.until(lambda: not world.instances, 0.2)
        records = [record for record in world.journal().read() if record.subject == machine]
        states = {one.data[IS]["state"] for one in records if one.kind == "slice" and "state" in one.data.get(IS, {})}
        assert "terminating" in states
        assert "lost" not in states

    run_story(story)


def test_after_failed_starts_hosts_on_one_machine_start_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ray start` gives up on a machine that is too busy. Ray's own autoscaler bought 18 nodes for 6 then."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)

    async def story(world: RayWorld, alive: Survivor) -> None:
        head = world.head
        head.waiting += ["t"]
        await alive.until(lambda: head.running, 0.2)
        head.waiting += [f"t{number}" for number in range(7)]
        await alive.until(lambda: len(world.bought) == 4, 0.2)
        for name in world.bought[1:]:
            world.cloud.kill(name)
        most = 0
        while len(head.running) < 8:
            await alive.tick(0.2)
            coming = alive.in_state(State.REQUESTING, State.BOOTING, State.INITIALIZING)
            most = max(most, len([name for name in coming if name not in world.cloud.died]))
        assert most == 1
        assert len(world.bought) == 7, "one for each that failed"

    def local(world: RayWorld) -> None:
        world.cloud.one_machine = True  # type: ignore[attr-defined]

    run_story(story, prepare=local)
