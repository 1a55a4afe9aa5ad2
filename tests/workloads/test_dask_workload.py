"""A Dask scheduler keeps the contract, with real workers and real tasks."""

from __future__ import annotations

import asyncio
import itertools
import os
import random

import pytest
from distributed import Client, Scheduler, Worker, get_worker

from tests.workloads.dask_stage import ONE, DaskStage
from windlass.core.model.snapshot import Group, amounts
from windlass.pool.engines.dask.messages import security_of
from windlass.pool.transport.tls import make_credentials
from windlass.testing.eventually import eventually, refusal_of, run
from windlass.testing.workload_conformance import WorkloadConformance
from windlass.workloads.dask_cluster.scheduler_plugin import MOST_KINDS, PLUGIN
from windlass.workloads.dask_cluster.worker_plugin import set_up
from windlass.workloads.dask_cluster.workload import DaskWorkload
from windlass.workloads.protocol import WorkloadError


def on_stage(directory, test, **options):
    async def whole():
        stage = await DaskStage(directory, **options).start()
        try:
            await test(stage)
        finally:
            await stage.break_off()

    run(whole())


class TestDaskWorkload(WorkloadConformance):
    @pytest.fixture(autouse=True)
    def _directory(self, tmp_path):
        self.directory = tmp_path

    def _on_stage(self, test):
        """The stage needs an event loop to be set up."""
        on_stage(self.directory, lambda stage: test(stage, stage.workload))


def ack_of(view, slice_id):
    return next((one.running for one in view.acknowledged if one.slice_id == slice_id), None)


def waiting(view):
    return {demand.id: demand.count for demand in view.demands}


async def seen(stage, wanted):
    return await eventually(stage.workload.observe, wanted)


# -- what it shows -------------------------------------------------------------------------------------------------


def test_tasks_wait_by_function_and_resources_and_a_name_in_capitals_is_the_same_resource(tmp_path):
    async def test(stage):
        await stage.submit(2)
        await stage.submit(3, resources={"GPU": 1})
        await stage.submit(1, resources={"gpu": 0.5, "MEMORY": 2e9})
        view = await seen(stage, lambda view: sum(waiting(view).values()) == 6)
        assert {one.id: (one.bundles[0].needs, one.count) for one in view.demands} == {
            "gated": (amounts({"cpu": 1000}), 2),
            "gated:GPU=1": (amounts({"cpu": 1000, "gpu": 1000}), 3),
            "gated:MEMORY=2e+09,gpu=0.5": (amounts({"cpu": 1000, "gpu": 500, "memory": 2 * 10**9}), 1),
        }
        await stage.joined("w-1", group="two")
        view = await seen(stage, lambda view: view.nodes[0].tasks)
        [node] = view.nodes
        assert (node.id, node.slice_id, node.present) == ("w-1/0", "w-1", amounts({"cpu": 2000, "gpu": 1000}))
        assert waiting(view)["gated:GPU=1"] == 2

    on_stage(tmp_path, test)


def test_what_dask_has_assigned_and_not_started_still_waits(tmp_path):
    """Tasks with resources are all assigned to the one worker that has them, however many there are."""

    async def test(stage):
        await stage.joined("w-1", group="two")
        await stage.submit(1, resources={"GPU": 1})
        view = await seen(stage, lambda view: view.nodes[0].tasks)
        assert view.nodes[0].used == amounts({"cpu": 1000, "gpu": 1000})
        await stage.submit(300, resources={"GPU": 1})
        view = await seen(stage, lambda view: waiting(view) == {"gated:GPU=1": 300})
        assert view.nodes[0].tasks == 1

    on_stage(tmp_path, test)


@pytest.mark.parametrize("resources", [None, {"GPU": 1}], ids=["a thread", "a device"])
def test_what_was_assigned_to_one_node_goes_to_the_next_that_is_bought_for_it(tmp_path, resources):
    async def test(stage):
        await stage.submit(6, resources=resources)
        await stage.joined("w-1", group="two")
        await seen(stage, lambda view: view.nodes[0].tasks)
        await stage.joined("w-2", group="two")
        await seen(stage, lambda view: all(node.tasks for node in view.nodes))
        await stage.started(*[1] * (2 if resources else 4))

    on_stage(tmp_path, test)


def test_a_node_on_which_dask_queues_nothing_more_has_no_room(tmp_path):
    """Enough is assigned to it, though all but one wait for the same device and a thread is free."""

    async def test(stage):
        await stage.submit(3, resources={"GPU": 1})
        await stage.submit(2)
        await seen(stage, lambda view: waiting(view) == {"gated": 2, "gated:GPU=1": 3})
        await stage.joined("w-1", group="two")
        view = await seen(stage, lambda view: waiting(view) == {"gated": 2, "gated:GPU=1": 2})
        assert (view.nodes[0].tasks, dict(view.nodes[0].used)["cpu"]) == (1, 2000)

    on_stage(tmp_path, test)


def test_workers_of_the_users_own_are_left_alone_and_what_runs_there_does_not_wait(tmp_path):
    async def test(stage):
        async with Worker(stage.scheduler.address, nthreads=1, name="mine", dashboard_address=":0"):
            await stage.submit(2)
            view = await seen(stage, lambda view: waiting(view) == {"gated": 1})
            assert view.nodes == ()
            await stage.workload.cordon("mine", 1)
            await stage.workload.forget(["mine"])
            assert stage.scheduler.workers
            await stage.finish(1)
            await seen(stage, lambda view: not view.demands)
            await stage.finish(1)

    on_stage(tmp_path, test)


def test_a_task_that_insists_on_a_worker_asks_for_that_node(tmp_path):
    async def test(stage):
        await stage.joined("w-1")
        [node] = (await stage.workload.observe()).nodes
        await stage.workload.cordon("w-1", 1)
        await stage.submit(1, workers=[node.labels["dask-worker"]])
        view = await seen(stage, lambda view: view.demands)
        assert all(condition.holds(node.labels) for condition in view.demands[0].where)
        assert view.demands[0].where
        await stage.workload.uncordon("w-1", 1)
        await seen(stage, lambda view: view.nodes[0].tasks)

    on_stage(tmp_path, test)


def test_the_count_is_right_after_tasks_that_fail_are_cancelled_or_depend_on_each_other(tmp_path):
    async def test(stage):
        def fail():
            raise ValueError("on purpose")

        numbers = stage.client.map(lambda number: number + 1, range(200), pure=False)
        total = stage.client.submit(sum, numbers)
        failing = stage.client.submit(fail, pure=False)
        given_up = stage.client.map(lambda number: number, range(50), pure=False, resources={"none": 1})
        await seen(stage, lambda view: len(view.demands) == 3)
        assert sum(waiting(await stage.workload.observe()).values()) == 251, (
            "a sum that waits for numbers needs no room"
        )
        await stage.joined("w-1", group="two")
        assert await total == sum(range(201))
        assert "on purpose" in str(await failing.exception())
        await stage.client.cancel(given_up)
        await seen(stage, lambda view: not view.demands)

    on_stage(tmp_path, test)


def test_with_a_target_nodes_are_bought_for_the_tasks_that_must_run_at_once(tmp_path):
    """Dask takes tasks that never ran for half a second long: a hundred are through in five seconds on ten threads."""

    async def test(stage):
        patient = DaskWorkload(stage.scheduler.address, (ONE,), target=5.0)
        futures = stage.client.map(lambda number: number, range(100), pure=False)
        await seen(stage, lambda view: sum(waiting(view).values()) == 100)
        assert list(waiting(await patient.observe()).values()) == [10]
        await stage.submit(1)
        await seen(stage, lambda view: len(view.demands) == 2)
        assert waiting(await patient.observe())["gated"] == 1, "a single task is always worth a thread"
        await patient.close()
        del futures

    on_stage(tmp_path, test)


def test_tasks_that_a_client_clears_with_a_restart_stop_waiting(tmp_path):
    async def test(stage):
        await stage.submit(3, resources={"GPU": 1})
        await seen(stage, lambda view: waiting(view) == {"gated:GPU=1": 3})
        await stage.client.restart()
        await seen(stage, lambda view: not view.demands)

    on_stage(tmp_path, test)


def test_many_kinds_of_tasks_are_reported_together(tmp_path):
    async def test(stage):
        for number in range(300):
            stage.futures[str(number)] = stage.client.submit(int, key=f"kind{'x' * number}y-{number}")
        view = await seen(stage, lambda view: sum(waiting(view).values()) == 300)
        assert len(view.demands) == MOST_KINDS + 1
        assert waiting(view)["other-tasks"] == 300 - MOST_KINDS

    on_stage(tmp_path, test)


# -- the fence -----------------------------------------------------------------------------------------------------


def test_a_drain_while_busy_starts_every_task_exactly_once(tmp_path):
    """One runs, two more are assigned to the same worker: they go elsewhere, and the one that runs is left to end."""

    async def test(stage):
        await stage.joined("w-1", group="two")
        await stage.submit(3, resources={"GPU": 1})
        await stage.started(1)
        await stage.workload.cordon("w-1", 1)
        view = await seen(stage, lambda view: ack_of(view, "w-1") == 1)
        assert waiting(view) == {"gated:GPU=1": 2}
        await stage.joined("w-2", group="two")
        await stage.started(1, 1)
        assert ack_of(await stage.workload.observe(), "w-1") == 1
        await stage.finish(3)
        await seen(stage, lambda view: ack_of(view, "w-1") == 0)
        assert stage.starts() == [1, 1, 1]
        assert all(one.slice_id != "w-1" or not one.tasks for one in (await stage.workload.observe()).nodes)

    on_stage(tmp_path, test)


def test_what_a_worker_hands_back_is_reported_until_it_is_settled(tmp_path):
    """The answer that tells of it may be lost on its way, and the tasks must not be lost with it."""

    async def test(stage):
        async with Worker(stage.scheduler.address, nthreads=1, resources={"GPU": 1}, dashboard_address=":0") as worker:
            await stage.submit(2, resources={"GPU": 1})
            await stage.started(1)
            await eventually(stage.pass_time, lambda _: len(worker.state.tasks) == 2)
            set_up(worker)
            stand = worker.handlers["windlass_stand"]
            first = stand(fenced=True, settled=())
            assert (first["status"], len(first["running"]), len(first["returned"])) == ("closing_gracefully", 1, 1)
            set_up(worker)
            stand = worker.handlers["windlass_stand"]
            assert stand(fenced=True, settled=()) == first
            assert stand(fenced=True, settled=first["returned"])["returned"] == []
            stage.scheduler._reschedule(first["returned"][0], worker.address, stimulus_id="test")
            assert stand(fenced=False, settled=())["status"] == "running"
            await stage.finish(2)

    on_stage(tmp_path, test)


def test_dasks_own_retirement_would_start_a_running_task_a_second_time(tmp_path):
    """Why the fence takes its own steps, and what docs/dask.md says of Adaptive, which retires workers like this."""

    async def test(stage):
        await stage.joined("w-1")
        await stage.submit(1)
        await stage.started(1)
        await stage.joined("w-2")
        [busy] = [worker.address for worker in stage.scheduler.workers.values() if worker.processing]
        await stage.scheduler.retire_workers(workers=[busy], remove=True, close_workers=True)
        await stage.started(2)
        await stage.finish(1)

    on_stage(tmp_path, test)


def test_results_that_only_a_fenced_worker_holds_are_moved_before_it_is_empty(tmp_path):
    async def test(stage):
        await stage.joined("w-1")
        held = stage.client.submit(lambda: os.urandom(16), pure=False)
        before = await held
        view = await seen(stage, lambda view: view.requests)
        assert all(condition.holds(view.nodes[0].labels) for condition in view.requests[0].where)
        await stage.workload.cordon("w-1", 1)
        await seen(stage, lambda view: ack_of(view, "w-1") == 1)
        await stage.joined("w-2")
        await seen(stage, lambda view: ack_of(view, "w-1") == 0)
        stage.processes["w-1"].kill()
        await seen(stage, lambda view: len(view.nodes) == 1)
        assert await stage.client.submit(lambda value: value, held) == before, "it was computed a second time"
        held.release()
        await seen(stage, lambda view: not view.requests)

    on_stage(tmp_path, test)


def test_code_of_a_cancelled_task_that_still_runs_holds_the_fence(tmp_path):
    async def test(stage):
        await stage.joined("w-1")
        await stage.submit(1)
        await stage.started(1)
        [gate] = stage.futures
        await stage.client.cancel([stage.futures[gate]])
        await stage.workload.cordon("w-1", 1)
        await seen(stage, lambda view: ack_of(view, "w-1") == 1)
        assert not (await stage.workload.observe()).demands
        await stage.tell(gate)
        await seen(stage, lambda view: ack_of(view, "w-1") == 0)

    on_stage(tmp_path, test)


def test_a_worker_that_joins_behind_the_fence_gets_nothing_until_it_is_taken_down(tmp_path):
    async def test(stage):
        await stage.submit(1)
        await stage.workload.cordon("w-1", 1)
        await stage.joined("w-1")
        await seen(stage, lambda view: ack_of(view, "w-1") == 0)
        assert stage.starts() == [0]
        await stage.workload.uncordon("w-1", 1)
        await stage.started(1)

    on_stage(tmp_path, test)


def test_fences_outlive_the_controller_and_are_seen_by_one_next_to_it(tmp_path):
    async def test(stage):
        await stage.joined("w-1")
        await stage.workload.cordon("w-1", 4)
        await seen(stage, lambda view: ack_of(view, "w-1") == 0)
        other = DaskWorkload(stage.scheduler.address, (ONE,))
        assert ack_of(await other.observe(), "w-1") == 0
        await other.uncordon("w-1", 4)
        await other.close()
        assert ack_of(await stage.workload.observe(), "w-1") is None

    on_stage(tmp_path, test)


def test_an_evicted_task_is_not_blamed_for_the_end_of_its_worker(tmp_path):
    async def test(stage):
        stage.scheduler.allowed_failures = 0
        await stage.joined("w-1")
        await stage.submit(1)
        await stage.started(1)
        await stage.workload.cordon("w-1", 1)
        await stage.workload.drain("w-1", 1, evict=True)
        await seen(stage, lambda view: not view.nodes)
        await stage.joined("w-2")
        await stage.started(2)
        await stage.finish(1)

    on_stage(tmp_path, test)


# -- the scheduler -------------------------------------------------------------------------------------------------


def test_a_scheduler_that_is_gone_is_unknown_and_one_in_its_place_is_found(tmp_path):
    async def test(stage):
        await stage.workload.observe()
        output = asyncio.create_task(stage.workload.changed())
        address = stage.scheduler.address
        await stage.client.close()
        await stage.scheduler.close()
        refusal = await refusal_of(stage.workload.observe(), WorkloadError)
        assert f"the Dask scheduler at {address} cannot be reached" in str(refusal)
        await refusal_of(stage.workload.cordon("s", 1), WorkloadError)
        port = int(address.rpartition(":")[2])
        stage.scheduler = Scheduler(host="127.0.0.1", port=port, dashboard=False, dashboard_address="127.0.0.1:0")
        await stage.scheduler
        stage.client = await Client(address, asynchronous=True, set_as_default=False)
        await stage.submit(1)
        await seen(stage, lambda view: waiting(view) == {"gated": 1})
        async with asyncio.timeout(20):
            await output

    on_stage(tmp_path, test)


def test_another_python_is_reported_with_both_versions(tmp_path):
    async def test(stage):
        own = stage.scheduler.versions()
        stage.scheduler.handlers["versions"] = lambda: {**own, "host": {"python": "3.9.1.final.0"}}
        refusal = await refusal_of(stage.workload.observe(), WorkloadError)
        assert "runs Python 3.9, and Windlass and its nodes run Python 3." in str(refusal)
        assert PLUGIN not in stage.scheduler.plugins

    on_stage(tmp_path, test)


def test_an_onlooker_leaves_nothing_behind(tmp_path):
    async def test(stage):
        onlooker = DaskWorkload(stage.scheduler.address, read_only=True)
        await stage.submit(2)
        await eventually(onlooker.observe, lambda view: waiting(view) == {"gated": 2})
        assert PLUGIN not in stage.scheduler.plugins
        await stage.workload.observe()
        assert waiting(await onlooker.observe()) == {"gated": 2}
        await onlooker.close()

    on_stage(tmp_path, test)


def test_a_scheduler_that_requires_certificates_gets_them(tmp_path):
    [made] = make_credentials("dask")
    files = {"ca_file": made.authority, "cert": made.certificate, "key": made.key}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    async def test(stage):
        stage.workload = DaskWorkload(stage.scheduler.address, (ONE,), tls={one: str(tmp_path / one) for one in files})
        await stage.joined("w-1")
        await stage.workload.cordon("w-1", 1)
        await seen(stage, lambda view: ack_of(view, "w-1") == 0)
        stranger = DaskWorkload(stage.scheduler.address, tls={"ca_file": str(tmp_path / "ca_file")})
        await refusal_of(stranger.observe(), WorkloadError)
        await stranger.close()

    on_stage(tmp_path, test, security=security_of(made))


# -- joining -------------------------------------------------------------------------------------------------------


def test_a_host_joins_with_threads_memory_and_resources_of_its_group():
    large = Group("large", amounts({"cpu": 8000, "gpu": 2000, "memory": 2**34, "licence": 500}), max=1)
    join = DaskWorkload("tcp://h:1", (large,)).join("s-1", "large", 3)
    words = dict(itertools.pairwise(join.command))
    assert (words["--name"], words["--nthreads"], words["--memory-limit"]) == ("windlass/s-1/3", "8", str(2**34))
    assert {"gpu=2", "GPU=2", "LICENCE=0.5", f"memory={2**34}"} <= set(words["--resources"].split())


@pytest.mark.parametrize(
    ("resources", "why"),
    [({"gpu": 1000}, "at least 1 cpu"), ({"cpu": 500}, "at least 1 cpu"), ({"cpu": 1000, "a b": 1}, "'a b'")],
)
def test_a_group_that_cannot_be_a_worker_is_reported_why(resources, why):
    workload = DaskWorkload("tcp://h:1", (Group("g", amounts(resources), max=1),))
    with pytest.raises(WorkloadError, match=why):
        workload.join("s", "g", 0)


def test_the_error_for_an_unknown_group_lists_the_known_groups():
    with pytest.raises(WorkloadError, match="there is no group x; there are g"):
        DaskWorkload("tcp://h:1", (ONE,)).join("s", "x", 0)


# -- all together --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("resources", [None, {"GPU": 1}], ids=["queued by Dask", "assigned at once"])
def test_fences_that_come_and_go_while_tasks_run_start_none_of_them_twice(tmp_path, resources):
    """Every acknowledgement that says "nothing runs" is held against what the tasks themselves write down."""
    marks = tmp_path / "marks"
    marks.mkdir()

    def work(number):
        import time

        worker = get_worker().name
        with (marks / str(number)).open("a", encoding="utf-8") as mark:
            mark.write(f"{worker}\n")
        running = marks / f"running-{number}-{worker.replace('/', '~')}"
        running.touch()
        time.sleep(0.01)
        running.unlink()
        return number + 1

    async def test(stage):
        slices = ("w-1", "w-2", "w-3")
        await stage.joined(*slices, group="two")
        futures = stage.client.map(work, range(300), pure=False, resources=resources)
        dice, epoch, empty = random.Random(7), 0, 0
        while not all(future.done() for future in futures):
            epoch += 1
            one = dice.choice(slices)
            await stage.workload.cordon(one, epoch)
            for _ in range(dice.randrange(12)):
                await stage.pass_time()
                if ack_of(await stage.workload.observe(), one) == 0:
                    empty += 1
                    assert not list(marks.glob(f"running-*-windlass~{one}~0")), "it said that nothing runs"
                    break
            if dice.random() < 0.8:
                await stage.workload.uncordon(one, epoch)
            elif len({ack.slice_id for ack in (await stage.workload.observe()).acknowledged}) == len(slices):
                for other in slices:
                    await stage.workload.uncordon(other, epoch)
        assert await stage.client.gather(futures) == list(range(1, 301))
        assert all(len((marks / str(number)).read_text().splitlines()) == 1 for number in range(300))
        assert empty, "no fence was ever acknowledged as empty: nothing was tried"
        await seen(stage, lambda view: not view.demands and not any(node.tasks for node in view.nodes))

    on_stage(tmp_path, test)
