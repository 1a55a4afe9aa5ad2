"""The simulated workload keeps the contract, places by the planner's rule, and hides no work that was killed."""

from __future__ import annotations

import pytest

from windlass.core.model.conditions import parse_condition
from windlass.core.model.snapshot import Bundle, Demand, Gang, Group, amounts
from windlass.sim.cloud.machines import LiveHost
from windlass.sim.faults.catalogue import Fault
from windlass.sim.workload.jobs import Job
from windlass.sim.workload.workload import SimulatedWorkload
from windlass.testing.eventually import run
from windlass.testing.workload_conformance import WorkloadConformance
from windlass.workloads.protocol import WorkloadError

CPU = amounts({"cpu": 1000})
GPU_HALF = amounts({"gpu": 500})
SMALL = Group("small", amounts({"cpu": 4000}), max=9)
PAIR = Group("pair", amounts({"cpu": 4000, "gpu": 2000}), max=9, hosts=2)


class World:
    """A workload, a clock and the hosts that are there."""

    def __init__(self, *jobs: Job, faults: tuple[Fault, ...] = (), groups: tuple[Group, ...] = (SMALL, PAIR)) -> None:
        self.now = 0.0
        self.hosts: list[LiveHost] = []
        self.workload = SimulatedWorkload(
            groups, lambda: self.hosts, now=lambda: self.now, jobs=jobs, faults=faults, seed=1
        )

    def join(self, slice_id: str, group: str = "small", hosts: int = 1, **labels: str) -> None:
        self.hosts += [LiveHost(f"{slice_id}/{n}", slice_id, group, labels) for n in range(hosts)]

    def leave(self, slice_id: str) -> None:
        self.hosts = [host for host in self.hosts if host.slice_id != slice_id]

    def at(self, now: float):
        self.now = now
        return run(self.workload.observe())

    def where(self, job: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for one in self.workload.runs:
            if one.job == job:
                found[one.node] = found.get(one.node, 0) + one.count
        return found


def job(name: str, needs=CPU, count: int = 1, arrives: float = 0, duration: float = 100, **more) -> Job:
    return Job(Demand(name, (Bundle(needs, count),), **more), arrives, duration)


class SimulatedStage:
    def __init__(self) -> None:
        self.world = World()
        self.workload = self.world.workload
        self.tasks = 0

    async def join_slice(self, slice_id):
        self.world.join(slice_id)

    async def submit(self, tasks):
        for _ in range(tasks):
            self.tasks += 1
            self.workload.submit(job(f"j-{self.tasks}", amounts({"cpu": 4000}), duration=10_000))

    async def finish(self):
        self.world.now += 10_000

    async def land(self, slice_id):
        self.workload.land(slice_id, 10_000)
        return True

    async def pass_time(self):
        self.world.now += 1

    async def break_off(self):
        pass


class TestSimulatedWorkload(WorkloadConformance):
    tells_changes = False

    def stage(self):
        return SimulatedStage()


# -- work ----------------------------------------------------------------------------------------------------------


def test_a_job_arrives_waits_runs_and_ends_at_its_instants():
    world = World(job("a", arrives=10, duration=50))
    world.join("s-1")
    assert world.at(0).demands == ()
    assert world.workload.next_event() == 10
    view = world.at(10)
    assert (view.demands, view.nodes[0].tasks, view.nodes[0].used) == ((), 1, CPU)
    assert world.workload.next_event() == 60
    view = world.at(75)
    assert (view.nodes[0].tasks, view.nodes[0].idle_since) == (0, 60)
    assert world.workload.finished == {"a": 60}


def test_what_does_not_fit_waits_and_the_rest_starts():
    world = World(job("a", count=10))
    world.join("s-1")
    world.join("s-2")
    (demand,) = world.at(5).demands
    assert (demand.id, demand.count, demand.since) == ("a", 2, 0)
    assert world.where("a") == {"s-1/0": 4, "s-2/0": 4}
    assert world.at(105).demands == ()
    assert sum(world.where("a").values()) == 2


def test_shares_of_a_device_are_placed_by_the_rule_of_the_planner():
    world = World(job("big", amounts({"gpu": 700}), 2), job("half", GPU_HALF, 3))
    world.join("s-1", "pair", 2)
    view = world.at(0)
    # Two hosts of two devices each: a share of 700 leaves no room for a half beside it.
    assert sum(world.where("big").values()) == 2
    assert sum(world.where("half").values()) == 3
    assert view.demands == ()
    assert all(dict(node.used).get("gpu", 0) <= 2000 for node in view.nodes)


def test_conditions_and_labels_of_nodes_are_heeded():
    world = World(job("a", where=(parse_condition("zone == b"),)))
    world.join("s-1", zone="a")
    assert len(world.at(0).demands) == 1
    world.join("s-2", zone="b")
    world.at(1)
    assert world.where("a") == {"s-2/0": 1}


@pytest.mark.parametrize("gang", Gang)
def test_a_gang_starts_whole_or_not_at_all_and_ends_together(gang):
    members = 2
    world = World(job("a", amounts({"cpu": 3000}), members, gang=gang, duration=70))
    if gang == Gang.SAME_NODE:
        world = World(job("a", amounts({"cpu": 2000}), members, gang=gang, duration=70))
        world.join("s-1", "small")
        world.at(1)
        assert world.where("a") == {"s-1/0": 2}
    else:
        world.join("s-0", "small")
        assert world.at(0).demands[0].count == members, "half a gang must not start"
        world.join("s-1", "pair", 2)
        world.at(1)
        assert sum(world.where("a").values()) == 2
        assert len(world.where("a")) == 2
    if gang == Gang.SAME_SLICE:
        assert set(world.where("a")) == {"s-1/0", "s-1/1"}
    world.at(71)
    assert world.workload.finished == {"a": 71}


@pytest.mark.parametrize("gang", [Gang.ANY, Gang.SPREAD, Gang.SAME_SLICE, Gang.SAME_NODE])
def test_a_gang_of_unlike_members_gives_each_node_what_its_member_needs(gang):
    bundles = (Bundle(amounts({"cpu": 1000}), 1), Bundle(amounts({"cpu": 2000, "gpu": 1000}), 1))
    world = World(Job(Demand("a", bundles, gang), 0, 50))
    world.join("s-1", "pair", 2)
    view = world.at(0)
    assert view.demands == ()
    assert sum(node.tasks for node in view.nodes) == 2
    total = {name: sum(dict(node.used).get(name, 0) for node in view.nodes) for name in ("cpu", "gpu")}
    assert total == {"cpu": 3000, "gpu": 1000}


def test_a_gang_past_its_deadline_does_not_start():
    world = World(job("a", count=2, gang=Gang.ANY, deadline=10))
    world.now = 10
    world.join("s-1")
    assert world.at(10).demands[0].count == 2


def test_a_node_without_its_accelerator_is_shown_so_and_gets_no_work():
    world = World(job("a"))
    world.hosts = [LiveHost("s-1/0", "s-1", "pair", {}, present=CPU)]
    view = world.at(0)
    assert (view.nodes[0].present, view.nodes[0].tasks) == (CPU, 0)


# -- losing work ---------------------------------------------------------------------------------------------------


def test_work_that_loses_its_node_is_reported_and_waits_again():
    world = World(job("a", count=6))
    world.join("s-1")
    world.join("s-2")
    world.at(0)
    world.leave("s-1")
    view = world.at(50)
    assert [(one.run.slice_id, one.how, one.at) for one in world.workload.interrupted] == [("s-1", "node gone", 50)]
    assert view.demands[0].count + sum(world.where("a").values()) == 6


def test_a_kill_does_not_hide_behind_a_long_step():
    world = World(job("a", duration=10))
    world.join("s-1")
    world.at(0)
    world.leave("s-1")
    world.at(1000)
    assert [one.how for one in world.workload.interrupted] == ["node gone"]


def test_a_gang_that_loses_a_member_starts_all_over():
    world = World(job("a", amounts({"cpu": 4000}), 2, gang=Gang.SPREAD))
    world.join("s-1")
    world.join("s-2")
    world.at(0)
    world.leave("s-2")
    view = world.at(10)
    assert view.demands[0].count == 2
    assert sorted(one.how for one in world.workload.interrupted) == ["its gang was interrupted", "node gone"]
    assert [node.tasks for node in view.nodes] == [0]


# -- faults --------------------------------------------------------------------------------------------------------


def test_work_lands_between_cordon_and_acknowledgement_when_a_fault_says_so():
    world = World(faults=(Fault("work-lands", seconds=40), Fault("ack-late", seconds=15)))
    world.join("s-1")
    world.at(0)
    run(world.workload.cordon("s-1", 1))
    assert world.at(0).acknowledged == ()
    assert world.workload.next_event() == 15
    (late,) = world.at(15).acknowledged
    assert (late.epoch, late.running) == (1, 1)
    (done,) = world.at(40).acknowledged
    assert done.running == 0


def test_a_workload_that_does_not_answer_is_unknown_and_never_empty():
    world = World(faults=(Fault("observe-fails", start=5, end=6),))
    world.join("s-1")
    with pytest.raises(WorkloadError):
        world.at(5)
    assert len(world.at(6).nodes) == 1


def test_the_same_seed_gives_the_same_work():
    def history(seed: int):
        world = World(*(Job(Demand(f"j-{n}", (Bundle(CPU, 2),)), n * 7.0, 60, 0.7) for n in range(20)))
        world.workload = SimulatedWorkload(
            (SMALL,),
            lambda: world.hosts,
            now=lambda: world.now,
            jobs=[Job(Demand(f"j-{n}", (Bundle(CPU, 2),)), n * 7.0, 60, 0.7) for n in range(20)],
            seed=seed,
        )
        world.join("s-1")
        world.join("s-2")
        return [repr(world.at(float(now))) for now in range(0, 400, 5)]

    assert history(1) == history(1)
    assert history(1) != history(2)


# -- what a pass would see ------------------------------------------------------------------------------------------


def two_busy_slices() -> World:
    """The first has a task that ends at 50, the second tasks that end at 100, 200 and 300."""
    world = World(job("first", count=1, duration=50, where=(parse_condition("of == a"),)))
    for number in (1, 2, 3):
        world.workload.submit(job(f"second-{number}", duration=100 * number, where=(parse_condition("of == b"),)))
    world.join("a", of="a")
    world.join("b", of="b")
    world.at(0)
    return world


def test_while_a_slice_is_cordoned_tasks_on_other_busy_nodes_do_not_wake_the_loop():
    world = two_busy_slices()
    run(world.workload.cordon("a", 1))
    assert not world.workload.is_as_seen()  # its acknowledgement has not been seen yet
    world.at(1)
    assert world.workload.is_as_seen()
    world.workload.submit(job("more", arrives=20, duration=10, where=(parse_condition("of == b"),)))
    for now in (20, 30):
        world.now = now
        world.workload.step()
        assert world.workload.is_as_seen()
    world.now = 50
    world.workload.step()
    assert not world.workload.is_as_seen()  # nothing runs on the cordoned slice any more
    assert [word.running for word in world.at(50).acknowledged] == [0]
    world.now = 100
    world.workload.step()
    assert world.workload.is_as_seen()


def test_every_task_that_ends_on_a_cordoned_slice_wakes_the_loop():
    world = two_busy_slices()
    run(world.workload.cordon("b", 1))
    world.at(1)
    world.now = 100
    world.workload.step()
    assert world.workload.running_on("b") == 2
    assert not world.workload.is_as_seen()


def test_lifting_a_cordon_does_not_wake_the_loop_and_forgetting_a_node_with_work_does():
    world = two_busy_slices()
    for slice_id in ("a", "b"):
        run(world.workload.cordon(slice_id, 1))
    world.at(1)
    run(world.workload.uncordon("b", 1))
    assert world.workload.is_as_seen()
    run(world.workload.forget(["a"]))
    assert not world.workload.is_as_seen()  # a node that had work is gone
    world.at(2)
    assert world.workload.is_as_seen()


def test_a_late_acknowledgement_wakes_the_loop():
    world = World(faults=(Fault("ack-late", seconds=30),))
    world.join("a")
    world.at(0)
    run(world.workload.cordon("a", 1))
    world.at(1)
    for now, as_seen in ((29, True), (30, False)):
        world.now = now
        world.workload.step()
        assert world.workload.is_as_seen() is as_seen
