"""The queue keeps the contract, with real agents and real tasks; and it survives what may happen to its file."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.capacity.node_room import NodeRoom
from windlass.core.capacity.room import Kinds, Need
from windlass.core.capacity.room import Room as PlannersRoom
from windlass.core.model.quantities import ACCELERATORS
from windlass.core.model.snapshot import Amounts, Bundle, Demand, Group, amounts
from windlass.testing.eventually import a_moment, eventually, refusal_of, run
from windlass.testing.workload_conformance import WorkloadConformance
from windlass.workloads.protocol import WorkloadError, WorkloadView
from windlass.workloads.queue.database import QueueError
from windlass.workloads.queue.store import Queue
from windlass.workloads.queue.wakeup import WATCHERS, WakeupSocket
from windlass.workloads.queue.workload import QueueWorkload

CPU = amounts({"cpu": 1000})
ONE = Group("g", CPU, max=9)
FOUR = Group("four", amounts({"cpu": 4000}), max=9, labels={"zone": "a"})

UNTIL_TOLD = ("sh", "-c", 'read line < "$1"', "sh")
"""With a pipe's path: a task that runs until somebody writes a line to the pipe."""


class QueueStage:
    """Real agents in real processes. Each task is a job of its own and waits at a pipe of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.queue = Queue(directory)
        self.workload = QueueWorkload(directory, (ONE, FOUR), grace=0.5)
        self.agents: dict[str, subprocess.Popen[bytes]] = {}
        self.logs: dict[str, Path] = {}

    async def join_slice(self, slice_id, group="g", log=None):
        join = self.workload.join(slice_id, group, 0)
        environment = {**os.environ, **join.environment}
        self.logs[slice_id] = log or self.directory.parent / f"{slice_id}.log"
        with self.logs[slice_id].open("ab") as words:
            self.agents[slice_id] = subprocess.Popen(
                join.command, env=environment, start_new_session=True, stderr=words
            )

    async def submit(self, tasks):
        for _ in range(tasks):
            name = f"j-{len(self.queue.jobs())}"
            os.mkfifo(self.directory / name)
            self.queue.submit(name, (*UNTIL_TOLD, str(self.directory / name)), CPU)

    async def finish(self):
        for job in self.queue.jobs():
            if job.running:
                await self.tell(job.name)

    async def tell(self, name):
        """A line to the task of a job, once it is there to read it."""

        async def output():
            with suppress(OSError):
                handle = os.open(self.directory / name, os.O_WRONLY | os.O_NONBLOCK)
                os.write(handle, b"end\n")
                os.close(handle)
                return True
            return False

        await eventually(output)

    async def land(self, slice_id):
        return False  # a claim and the fence are transactions of one file

    async def pass_time(self):
        await a_moment()

    async def break_off(self):
        for agent in self.agents.values():
            agent.terminate()
        for agent in self.agents.values():
            await asyncio.to_thread(agent.wait, 10)
        await self.workload.close()
        self.queue.close()


class TestQueueWorkload(WorkloadConformance):
    @pytest.fixture(autouse=True)
    def _directory(self, tmp_path):
        self.directory = tmp_path / "queue"

    def stage(self):
        return QueueStage(self.directory)


class TestQueueWorkloadFarFromTheRoot(TestQueueWorkload):
    """The path of a socket may have 107 bytes; that of a queue may have more."""

    @pytest.fixture(autouse=True)
    def _directory(self, tmp_path):
        self.directory = tmp_path / ("far" * 40) / ("away" * 20)


# -- what it shows -------------------------------------------------------------------------------------------------


def test_a_job_is_one_demand_with_what_its_tasks_need_how_many_wait_and_since_when(tmp_path):
    async def test():
        workload = QueueWorkload(tmp_path, (ONE,))
        needs = amounts({"cpu": 500, "memory": 2**30})
        Queue(tmp_path, now=lambda: 50.0).submit("train", ["true"], needs, 7)
        assert (await workload.observe()).demands == (Demand("train", (Bundle(needs, 7),), since=50.0),)
        await workload.close()

    run(test())


def test_a_node_shows_what_its_group_has_and_a_silent_one_is_unhealthy_but_not_gone(tmp_path):
    async def test():
        now = 100.0
        queue, workload = Queue(tmp_path, now=lambda: now), QueueWorkload(tmp_path, (FOUR,), now=lambda: now)
        queue.join("s-1/0", "s-1", dict(FOUR.resources), FOUR.node_labels())
        (node,) = (await workload.observe()).nodes
        assert (node.id, node.slice_id, node.present, node.healthy) == ("s-1/0", "s-1", FOUR.resources, True)
        assert node.labels == {"zone": "a", "preemptible": "false"}
        now += 11
        (node,) = (await workload.observe()).nodes
        assert (node.healthy, node.idle_since) == (False, 100.0)
        await workload.close()

    run(test())


def test_how_long_a_node_is_idle_is_in_the_file_and_outlives_every_process(tmp_path):
    async def test():
        now = 100.0
        queue = Queue(tmp_path, now=lambda: now)
        place = queue.join("s-1/0", "s-1", dict(CPU), {})
        queue.submit(None, ["true"], CPU)
        (claim,) = queue.claim(place)
        now = 160.0
        queue.report(place, claim.number, 0)
        queue.close()
        now = 900.0
        workload = QueueWorkload(tmp_path, (ONE,), now=lambda: now)
        assert (await workload.observe()).nodes[0].idle_since == 160.0
        await workload.close()

    run(test())


def test_a_group_of_a_new_configuration_can_be_joined(tmp_path):
    workload = QueueWorkload(tmp_path, (ONE,))
    with pytest.raises(WorkloadError, match="there is no group four; there are g"):
        workload.join("s-1", "four", 0)
    workload.regroup((ONE, FOUR))
    assert "4000" in workload.join("s-1", "four", 0).environment["WINDLASS_QUEUE_NODE"]


# -- claims --------------------------------------------------------------------------------------------------------


def node(queue: Queue, slice_id: str, resources: Amounts = CPU):
    return queue.join(f"{slice_id}/0", slice_id, dict(resources), {})


def counts(queue: Queue, name: str) -> tuple[int, int, int, int]:
    (job,) = (one for one in queue.jobs() if one.name == name)
    return job.waiting, job.running, job.done, job.failed


def test_a_node_claims_what_it_has_room_for_the_oldest_first_and_passes_over_what_is_too_large(tmp_path):
    queue = Queue(tmp_path)
    place = node(queue, "s-1", FOUR.resources)
    queue.submit("large", ["true"], amounts({"cpu": 8000}), 3)
    queue.submit("first", ["true"], amounts({"cpu": 3000}), 3)
    queue.submit("second", ["true"], CPU, 3)
    queue.submit("strange", ["true"], amounts({"tpu": 1000}), 3)
    assert [(claim.job, claim.task) for claim in queue.claim(place)] == [("first", 0), ("second", 0)]
    assert queue.claim(place) == []


def test_a_task_that_fails_is_retried_as_often_as_was_asked_and_then_has_failed(tmp_path):
    queue = Queue(tmp_path)
    place = node(queue, "s-1")
    queue.submit("a", ["false"], CPU, 2, retries=2)
    seen = []
    while claims := queue.claim(place):
        seen.append(claims[0].task)
        queue.report(place, claims[0].number, 3)
    assert seen == [0, 0, 0, 1, 1, 1]
    assert counts(queue, "a") == (0, 0, 0, 2)


def test_a_task_that_lost_its_node_runs_again_and_has_all_its_retries(tmp_path):
    queue = Queue(tmp_path)
    queue.submit("a", ["true"], CPU, 1, retries=0)
    for lost in range(5):
        queue.claim(node(queue, f"s-{lost}"))
        assert counts(queue, "a") == (0, 1, 0, 0)
        queue.forget([f"s-{lost}"])
        assert counts(queue, "a") == (1, 0, 0, 0)
    place = node(queue, "s-9")
    (claim,) = queue.claim(place)
    queue.report(place, claim.number, 0)
    assert counts(queue, "a") == (0, 0, 1, 0)


def test_a_task_that_was_put_back_has_all_its_retries(tmp_path):
    queue = Queue(tmp_path)
    place = node(queue, "s-1")
    queue.submit("a", ["true"], CPU, 1, retries=1)
    for exit_code, after in ((None, (1, 0, 0, 0)), (None, (1, 0, 0, 0)), (7, (1, 0, 0, 0)), (7, (0, 0, 0, 1))):
        (claim,) = queue.claim(place)
        queue.report(place, claim.number, exit_code)
        assert counts(queue, "a") == after


def test_the_report_of_a_forgotten_node_is_ignored(tmp_path):
    queue = Queue(tmp_path)
    queue.submit("a", ["true"], CPU)
    lost = node(queue, "s-1")
    (claim,) = queue.claim(lost)
    queue.forget(["s-1"])
    for word in (
        lambda: queue.report(lost, claim.number, 0),
        lambda: queue.claim(lost),
        lambda: queue.beat(lost),
        lambda: node(queue, "s-1"),
    ):
        with pytest.raises(QueueError, match="given up"):
            word()
    assert counts(queue, "a") == (1, 0, 0, 0)


def test_two_agents_cannot_have_the_same_node(tmp_path):
    queue = Queue(tmp_path)
    node(queue, "s-1")
    with pytest.raises(QueueError, match="has an agent already, process"):
        node(queue, "s-1")


def test_a_current_cordon_is_not_evicted_by_an_older_or_a_voided_epoch(tmp_path):
    queue = Queue(tmp_path)
    place = node(queue, "s-1")
    queue.cordon("s-1", 2)
    queue.evict("s-1", 1)
    assert not queue.commands(place).everything
    queue.evict("s-1", 2)
    assert queue.commands(place).everything
    queue.cordon("s-1", 3)
    assert not queue.commands(place).everything
    queue.evict("s-1", 3)
    queue.uncordon("s-1", 3)
    assert not queue.commands(place).everything


AMOUNTS = st.fixed_dictionaries(
    {"cpu": st.sampled_from([500, 1000, 3000])},
    optional={"gpu": st.sampled_from([200, 300, 500, 700, 1000, 2000])},
).map(amounts)


@given(st.lists(AMOUNTS, min_size=1, max_size=12), st.sampled_from([1000, 2000, 4000]))
def test_a_node_accepts_the_tasks_that_the_planner_places_on_it(needs, devices):
    kinds = Kinds.of(("cpu", "gpu"))
    planners = PlannersRoom.fresh(kinds, np.array([[8000, devices]]))
    room = NodeRoom(amounts({"cpu": 8000, "gpu": devices}), [])
    for one in needs:
        need = Need.of(dict(one), kinds)
        fits = int(planners.capacity(need)[0] > 0)
        assert room.take_many(one, 1) == fits
        planners.take(need, np.array([0]), np.array([fits]))


@given(st.lists(AMOUNTS, max_size=12))
def test_what_runs_never_leaves_more_room_than_there_is(needs):
    free = NodeRoom(amounts({"cpu": 8000, "gpu": 2000}), [])
    running = [(one, 1) for one in needs if free.take_many(one, 1)]
    left = NodeRoom(amounts({"cpu": 8000, "gpu": 2000}), running)
    for name, whole in (("cpu", 8000), ("gpu", 2000)):
        used = sum(dict(one).get(name, 0) for one, _ in running)
        assert left.take_many(((name, 1000 if name in ACCELERATORS else 1),), 99_999) * (
            1000 if name in ACCELERATORS else 1
        ) <= (whole - used)


# -- jobs ----------------------------------------------------------------------------------------------------------


def test_a_job_without_a_name_gets_a_free_one(tmp_path):
    queue = Queue(tmp_path)
    queue.submit("job-2", ["true"], CPU)
    assert [queue.submit(None, ["true"], CPU).name for _ in range(2)] == ["job-3", "job-4"]


@pytest.mark.parametrize(
    ("wrong", "output"),
    [
        ({"name": "a"}, "there is a job a already"),
        ({"name": "../a"}, "cannot be named '../a'"),
        ({"name": ""}, "cannot be named ''"),
        ({"command": []}, "needs a command"),
        ({"command": ["a\0b"]}, "NUL"),
        ({"needs": ()}, "must need something"),
        ({"count": 0}, "from 1 to"),
        ({"retries": -1}, "no less than 0 retries"),
    ],
    ids=str,
)
def test_a_job_that_cannot_be_run_is_refused_with_a_remedy(tmp_path, wrong, output):
    queue = Queue(tmp_path)
    queue.submit("a", ["true"], CPU)
    job = {"name": "b", "command": ["true"], "needs": CPU, "count": 1, "retries": 0} | wrong
    with pytest.raises(QueueError, match=output):
        queue.submit(**job)
    assert len(queue.jobs()) == 1


# -- the file ------------------------------------------------------------------------------------------------------


async def refused(directory: Path) -> str:
    workload = QueueWorkload(directory, (ONE,))
    error = await refusal_of(workload.observe(), WorkloadError)
    await refusal_of(workload.cordon("s-1", 1), WorkloadError)
    await workload.close()
    return str(error)


def test_a_file_that_is_no_queue_is_reported_and_not_changed(tmp_path):
    (tmp_path / "queue.db").write_text("notes of somebody, long enough to be read as a header" * 100)
    assert "no queue" in run(refused(tmp_path))
    assert (tmp_path / "queue.db").read_text().startswith("notes")


def test_a_database_of_something_else_is_reported_so(tmp_path):
    with sqlite3.connect(tmp_path / "queue.db") as other:
        other.execute("CREATE TABLE theirs (a)")
    other.close()
    assert "but no queue; give the queue a directory of its own" in run(refused(tmp_path))


def test_a_queue_of_a_newer_version_is_refused(tmp_path):
    Queue(tmp_path).close()
    with sqlite3.connect(tmp_path / "queue.db") as file:
        file.execute("PRAGMA user_version = 7")
    file.close()
    assert "is of version 7, this program knows 4; use a newer windlass" in run(refused(tmp_path))


def test_a_directory_that_cannot_be_had_is_reported_with_a_remedy(tmp_path):
    (tmp_path / "file").write_text("")
    assert "give a directory that this user may write to" in run(refused(tmp_path / "file" / "queue"))


def test_a_queue_that_vanished_is_unknown_and_never_empty_until_it_is_back(tmp_path):
    async def test():
        directory = tmp_path / "queue"
        Queue(directory).submit("a", ["true"], CPU)
        workload = QueueWorkload(directory, (ONE,))
        assert len((await workload.observe()).demands) == 1
        directory.rename(tmp_path / "away")
        for _ in range(3):
            assert "was moved, deleted" in str(await refusal_of(workload.observe(), WorkloadError))
        (tmp_path / "away").rename(directory)
        assert len((await workload.observe()).demands) == 1
        await workload.close()

    run(test())


def test_a_full_disk_is_reported_and_loses_nothing(tmp_path):
    # A limit on the size of files stands for the disk: SQLite gets the same refusal, "disk I/O error" or "full".
    program = """
import resource, signal, sys
from windlass.workloads.queue.store import Queue, QueueError
queue = Queue(sys.argv[1])
queue.submit("kept", ["true"], (("cpu", 1000),))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    for n in range(10_000):
        queue.submit(None, ["true", "x" * 1000], (("cpu", 1000),))
except QueueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True)
    assert "free some space and it goes on" in done.stdout
    jobs = Queue(tmp_path).jobs()
    assert (jobs[0].name, len(jobs) > 1) == ("kept", True)


def test_submitters_that_are_killed_leave_whole_jobs_and_no_lock(tmp_path):
    program = """
import sys
from windlass.workloads.queue.store import Queue
queue = Queue(sys.argv[1])
print("ready", flush=True)
while True:
    queue.submit(None, ["true"], (("cpu", 1000),), 3)
"""
    for _ in range(3):
        submitter = subprocess.Popen([sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE)
        assert submitter.stdout is not None
        submitter.stdout.readline()
        queue = Queue(tmp_path)
        enough = len(queue.jobs()) + 20
        while len(queue.jobs()) < enough:
            assert submitter.poll() is None
        submitter.kill()
        submitter.wait()
        submitter.stdout.close()
        queue.submit(None, ["true"], CPU, 3)
        queue.close()
    queue = Queue(tmp_path)
    assert all((job.tasks, job.waiting) == (3, 3) for job in queue.jobs())
    queue.close()
    with sqlite3.connect(tmp_path / "queue.db") as file:
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    file.close()


# -- bells ---------------------------------------------------------------------------------------------------------


def test_two_listeners_hear_the_same_and_the_bell_of_a_dead_one_is_taken_away(tmp_path):
    async def test():
        queue = Queue(tmp_path)
        leader, standby = QueueWorkload(tmp_path, (ONE,)), QueueWorkload(tmp_path, (ONE,))
        program = (
            "import sys, os; from pathlib import Path; from windlass.workloads.queue.wakeup import *;"
            "bell = WakeupSocket(Path(sys.argv[1]), WATCHERS); os.kill(os.getpid(), 9)"
        )
        killed = subprocess.run([sys.executable, "-c", program, tmp_path], check=False)
        assert killed.returncode == -signal.SIGKILL
        await leader.observe()
        await standby.observe()
        assert len(list((tmp_path / "bells" / WATCHERS).iterdir())) == 3
        queue.submit(None, ["true"], CPU)
        async with asyncio.timeout(20):
            await asyncio.gather(leader.changed(), standby.changed())
        assert len(list((tmp_path / "bells" / WATCHERS).iterdir())) == 2
        await leader.close()
        await standby.close()
        assert list((tmp_path / "bells" / WATCHERS).iterdir()) == []

    run(test())


def test_what_was_observed_wakes_no_reader_again(tmp_path):
    async def test():
        queue, workload = Queue(tmp_path), QueueWorkload(tmp_path, (ONE,))
        await workload.observe()
        queue.submit(None, ["true"], CPU)
        await workload.changed()
        await workload.observe()
        waiting = asyncio.create_task(workload.changed())
        for _ in range(3):
            await a_moment()
        assert not waiting.done()
        queue.submit(None, ["true"], CPU)
        async with asyncio.timeout(20):
            await waiting
        await workload.close()

    run(test())


def test_a_bell_that_was_taken_down_is_hung_up_again(tmp_path):
    async def test():
        queue, workload = Queue(tmp_path), QueueWorkload(tmp_path, (ONE,))
        await workload.observe()
        for bell in (tmp_path / "bells" / WATCHERS).iterdir():
            bell.unlink()
        await workload.observe()
        queue.submit(None, ["true"], CPU)
        async with asyncio.timeout(20):
            await workload.changed()
        await workload.close()

    run(test())


def test_without_sockets_everything_works_but_no_change_wakes_the_controller(tmp_path):
    async def test():
        (tmp_path / "bells").write_text("no directory")
        with pytest.raises(OSError):
            WakeupSocket(tmp_path, WATCHERS)
        queue, workload = Queue(tmp_path), QueueWorkload(tmp_path, (ONE,))
        queue.submit(None, ["true"], CPU)
        waiting = asyncio.create_task(workload.changed())
        assert len((await workload.observe()).demands) == 1
        assert not waiting.done()
        waiting.cancel()
        await workload.close()

    run(test())


# -- speed ---------------------------------------------------------------------------------------------------------


@pytest.mark.alone
def test_a_job_of_100_000_tasks_is_submitted_and_looked_at_as_if_it_were_one(tmp_path):
    queue = Queue(tmp_path)
    began = time.perf_counter()
    queue.submit("many", ["true"], CPU, 100_000)
    assert time.perf_counter() - began < 0.5
    for number in range(49):
        queue.submit(None, ["true"], CPU, number + 1)
    for number in range(100):
        place = node(queue, f"s-{number}", FOUR.resources)
        assert len(queue.claim(place)) == 4
    times = []
    for _ in range(100):
        began = time.process_time()
        sight = queue.observe()
        times.append(time.process_time() - began)
    assert sum(one.tasks for one in sight.waiting) + sum(node.tasks for node in sight.nodes) == 101_225
    assert sorted(times)[95] < 0.02  # 5 ms on a quiet machine


# -- looking only --------------------------------------------------------------------------------------------------


def test_a_read_only_workload_creates_nothing_and_sees_a_missing_queue_as_empty(tmp_path):
    async def test():
        onlooker = QueueWorkload(tmp_path / "queue", read_only=True)
        assert await onlooker.observe() == WorkloadView()
        assert list(tmp_path.iterdir()) == []
        queue = Queue(tmp_path / "queue")
        queue.submit("job", ["true"], amounts({"cpu": 1000}), 3, 0)
        queue.close()
        before = sorted(path.name for path in (tmp_path / "queue").rglob("*") if path.is_socket() or path.is_dir())
        (demand,) = (await onlooker.observe()).demands
        assert (demand.id, demand.count) == ("job", 3)
        after = sorted(path.name for path in (tmp_path / "queue").rglob("*") if path.is_socket() or path.is_dir())
        assert after == before
        await onlooker.close()

    run(test())


def test_a_forgotten_slice_whose_machine_comes_late_can_be_ended(tmp_path):
    """Its launch call hung until it was given up. Nothing can join there, so the cordon is acknowledged at once."""
    queue = Queue(tmp_path)
    queue.cordon("s-1", 1)
    queue.forget(["s-1"])
    queue.cordon("s-1", 1)
    assert list(queue.observe().fences) == [("s-1", 1, 0)]
    with pytest.raises(QueueError, match="given up"):
        node(queue, "s-1")
    queue.forget(["s-1"])
    assert list(queue.observe().fences) == []
