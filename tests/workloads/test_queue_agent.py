"""The agent as a process: what it gives its tasks, how it ends, and what is left when it is killed."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest

from tests.journal.journals import mounted
from tests.providers.local_processes import marked, pid_of
from tests.workloads.test_queue_workload import CPU, FOUR, ONE, UNTIL_TOLD, QueueStage
from windlass.core.model.snapshot import amounts
from windlass.providers.local.provider import LocalProvider
from windlass.providers.local.supervisor import HostProcess
from windlass.providers.protocol import HostOrder, LaunchOrder
from windlass.testing.eventually import eventually, refusal_of, run
from windlass.workloads.protocol import Acknowledgement, WorkloadError
from windlass.workloads.queue.agent import Guard
from windlass.workloads.queue.job_queries import JobQueries
from windlass.workloads.queue.store import Queue, QueueJob

IGNORES_SIGTERM = "trap '' TERM; "


class World(QueueStage):
    """A queue with real agents, and what its jobs and tasks look like from outside."""

    async def job(self, name: str) -> QueueJob:
        return next(job for job in self.queue.jobs() if job.name == name)

    async def ended(self, name: str) -> QueueJob:
        return await eventually(lambda: self.job(name), lambda job: job.done + job.failed == job.tasks)

    async def ended_or_cancelled(self, name: str) -> QueueJob:
        return await eventually(lambda: self.job(name), lambda job: job.done + job.failed + job.cancelled == job.tasks)

    async def running(self, name: str, tasks: int = 1) -> QueueJob:
        return await eventually(lambda: self.job(name), lambda job: job.running == tasks)

    async def waiting(self, name: str, tasks: int = 1) -> QueueJob:
        return await eventually(lambda: self.job(name), lambda job: job.waiting == tasks)

    def log(self, name: str, index: int = 0) -> str:
        path = self.directory / "logs" / name / f"{index}.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    async def pid(self, name: str, times: int = 1) -> int:
        """The process of a task that says its number first, the ``times``-th time it ran."""

        async def words():
            return self.log(name).split()

        return int((await eventually(words, lambda words: len(words) >= times))[times - 1])

    def submit_shell(self, name: str, shell: str, count: int = 1, **more) -> None:
        self.queue.submit(name, ("sh", "-c", shell), CPU, count, **more)

    def submit_blocked(self, name: str, before: str = "") -> None:
        """A task that says its number and runs until it is told to end."""
        os.mkfifo(self.directory / name)
        shell = f'{before}echo $$; while true; do read line < "$1" && exit 0; done'
        self.queue.submit(name, ("sh", "-c", shell, "sh", str(self.directory / name)), CPU)

    async def reports(self, slice_id: str, words: str) -> None:
        """The agent of a slice says so; its log is wherever the test has put it."""
        await eventually(lambda: self.read(slice_id), lambda text: words in text, within=20)

    async def read(self, slice_id: str) -> str:
        return self.logs[slice_id].read_text(encoding="utf-8")

    async def left(self, slice_id: str) -> int:
        """The exit code of an agent, when it has gone."""
        return await asyncio.to_thread(self.agents.pop(slice_id).wait, 20)


async def gone(pid: int) -> None:
    async def look():
        return HostProcess.of(pid)

    await eventually(look, lambda seen: seen is None)


async def certified(world: World, slice_id: str, epoch: int) -> None:
    certificate = (Acknowledgement(slice_id, epoch, 0),)
    await eventually(world.workload.observe, lambda view: view.acknowledged == certificate)


def on(directory: Path, test) -> None:
    async def whole():
        world = World(directory)
        try:
            await test(world)
        finally:
            await world.break_off()

    run(whole())


# -- what a task gets ----------------------------------------------------------------------------------------------


def test_a_task_knows_its_name_index_and_node_runs_where_it_was_submitted_and_its_words_are_kept(tmp_path):
    async def test(world: World):
        words = "echo $WINDLASS_TASK $WINDLASS_TASK_INDEX $WINDLASS_NODE $PWD; echo problem >&2"
        world.submit_shell("a", words, 2, directory=tmp_path)
        await world.join_slice("s-1", "four")
        assert (await world.ended("a")).done == 2
        for index in range(2):
            assert world.log("a", index) == f"a/{index} {index} s-1/0 {tmp_path}\nproblem\n"

    on(tmp_path / "queue", test)


def test_a_task_that_fails_runs_again_and_its_words_are_all_kept(tmp_path):
    async def test(world: World):
        world.submit_shell("a", "echo once; exit 3", retries=2)
        await world.join_slice("s-1")
        assert (await world.ended("a")).failed == 1
        assert world.log("a") == "once\n" * 3

    on(tmp_path, test)


@pytest.mark.parametrize(
    ("command", "directory", "output"),
    [("no-such-program", None, "No such file"), ("true", "/no/such/place", "cannot run true in /no/such/place")],
)
def test_a_command_that_cannot_be_run_fails_and_says_why_in_its_log(tmp_path, command, directory, output):
    async def test(world: World):
        world.queue.submit("a", [command], CPU, directory=directory)
        world.submit_shell("b", "echo fine")
        await world.join_slice("s-1")
        assert (await world.ended("a")).failed == 1
        assert output in world.log("a")
        assert (await world.ended("b")).done == 1

    on(tmp_path, test)


@pytest.mark.parametrize("before", ["", IGNORES_SIGTERM], ids=["ends when asked", "ignores SIGTERM"])
def test_a_running_task_of_a_cancelled_job_is_ended_and_another_job_takes_its_place(tmp_path, before):
    async def test(world: World):
        world.submit_blocked("a", before)
        await world.join_slice("s-1")
        pid = await world.pid("a")
        queries = JobQueries(world.directory)
        queries.cancel("a")
        queries.close()
        await gone(pid)
        job = await world.ended_or_cancelled("a")
        assert (job.cancelled, job.failed) == (1, 0)
        world.submit_shell("b", "true")
        assert (await world.ended("b")).done == 1

    on(tmp_path, test)


def test_nothing_that_a_task_started_is_left_when_it_has_ended(tmp_path):
    async def test(world: World):
        world.submit_shell("a", "sleep 3600 & echo $!")
        await world.join_slice("s-1")
        assert (await world.ended("a")).done == 1
        await gone(await world.pid("a"))

    on(tmp_path, test)


def test_many_agents_run_every_task_exactly_once(tmp_path):
    async def test(world: World):
        for number in range(4):
            await world.join_slice(f"s-{number}", "four")
        world.submit_shell("a", 'echo ran >> "$0.$WINDLASS_TASK_INDEX"; true'.replace("$0", str(tmp_path / "ran")), 150)
        assert (await world.ended("a")).done == 150
        ran = sorted(tmp_path.glob("ran.*"))
        assert len(ran) == 150
        assert all(path.read_text(encoding="utf-8") == "ran\n" for path in ran)
        view = await world.workload.observe()
        assert [(node.tasks, node.used) for node in view.nodes] == [(0, ())] * 4

    on(tmp_path / "queue", test)


def test_without_sockets_work_is_found_by_the_clock(tmp_path):
    async def test(world: World):
        (tmp_path / "bells").write_text("no directory")
        await world.join_slice("s-1")
        await eventually(world.workload.observe, lambda view: view.nodes)
        world.submit_shell("a", "true")
        assert (await world.ended("a")).done == 1

    on(tmp_path, test)


# -- ends ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", ["", IGNORES_SIGTERM], ids=["that hears SIGTERM", "that does not"])
def test_an_agent_that_gets_sigterm_puts_its_task_back_and_leaves(tmp_path, before):
    async def test(world: World):
        world.submit_blocked("a", before)
        await world.join_slice("s-1")
        pid = await world.pid("a")
        world.agents["s-1"].terminate()
        assert await world.left("s-1") == 0
        await gone(pid)
        view = await world.workload.observe()
        assert (view.nodes, view.demands[0].count) == ((), 1)
        await world.join_slice("s-2")
        await world.pid("a", times=2)
        await world.tell("a")
        assert (await world.ended("a")).done == 1

    on(tmp_path, test)


def test_a_task_that_does_not_hear_is_evicted_all_the_same_and_its_node_can_work_again(tmp_path):
    async def test(world: World):
        world.submit_blocked("a", IGNORES_SIGTERM)
        await world.join_slice("s-1")
        pid = await world.pid("a")
        await world.workload.cordon("s-1", 1)
        await world.workload.drain("s-1", 1, evict=True)
        await certified(world, "s-1", 1)
        assert HostProcess.of(pid) is None, "the certificate was given while the task was alive"
        await world.workload.uncordon("s-1", 1)
        await world.pid("a", times=2)
        await world.tell("a")
        assert (await world.ended("a")).done == 1

    on(tmp_path, test)


def test_the_task_of_an_agent_that_is_killed_dies_with_it_and_waits_again_once_its_slice_is_forgotten(tmp_path):
    async def test(world: World):
        world.submit_blocked("a")
        await world.join_slice("s-1")
        pid = await world.pid("a")
        world.agents["s-1"].kill()
        await gone(pid)
        assert (await world.job("a")).running == 1, "nobody knows yet"
        await world.workload.forget(["s-1"])
        assert (await world.job("a")).waiting == 1
        await world.join_slice("s-2")
        await world.pid("a", times=2)
        await world.tell("a")
        assert (await world.ended("a")).done == 1

    on(tmp_path, test)


def test_what_the_task_of_a_killed_agent_had_started_dies_too_even_if_it_hears_nothing(tmp_path):
    async def test(world: World):
        os.mkfifo(tmp_path / "pipe")
        below = f"{IGNORES_SIGTERM}echo $$; read line < {tmp_path}/pipe"
        world.submit_shell("a", 'sh -c "$BELOW"; true'.replace("$BELOW", below.replace("$", "\\$")))
        await world.join_slice("s-1")
        pid = await world.pid("a")
        os.killpg(world.agents["s-1"].pid, signal.SIGKILL)
        await gone(pid)

    on(tmp_path / "queue", test)


def test_a_guard_is_out_of_the_agents_process_group_before_the_agent_can_start_a_task():
    for _ in range(50):
        guard = Guard()
        assert os.getsid(guard.pid) == guard.pid
        guard.dismiss()


def test_a_task_dies_with_its_agent_even_if_the_guard_was_killed_before(tmp_path):
    async def test(world: World):
        world.submit_blocked("a")
        await world.join_slice("s-1")
        pid = await world.pid("a")
        agent = world.agents["s-1"].pid
        children = Path(f"/proc/{agent}/task/{agent}/children").read_text(encoding="ascii").split()
        (guard,) = (int(child) for child in children if int(child) != pid)
        os.kill(guard, signal.SIGKILL)
        await gone(guard)
        os.kill(agent, signal.SIGKILL)
        await gone(pid)

    on(tmp_path, test)


def test_an_agent_that_is_restarted_after_a_kill_continues_as_its_node(tmp_path):
    async def test(world: World):
        world.submit_blocked("a")
        await world.join_slice("s-1")
        await world.pid("a")
        world.agents["s-1"].kill()
        await world.left("s-1")
        await world.join_slice("s-1")
        await world.pid("a", times=2)
        (node,) = (await world.workload.observe()).nodes
        assert (node.id, node.tasks) == ("s-1/0", 1)
        await world.tell("a")
        assert (await world.ended("a")).done == 1

    on(tmp_path, test)


def test_an_agent_whose_slice_was_forgotten_ends_its_task_and_itself(tmp_path):
    async def test(world: World):
        world.submit_blocked("a")
        await world.join_slice("s-1")
        pid = await world.pid("a")
        await world.workload.forget(["s-1"])
        assert await world.left("s-1") == 0
        await gone(pid)
        assert (await world.job("a")).waiting == 1
        await world.join_slice("s-1")
        assert await world.left("s-1") == 1, "a slice that is gone for good cannot be joined"

    on(tmp_path, test)


def test_running_tasks_outlive_a_queue_directory_that_is_away_for_a_while(tmp_path):
    async def test(world: World):
        world.submit_blocked("a")
        await world.join_slice("s-1")
        pid = await world.pid("a")
        (tmp_path / "queue").rename(tmp_path / "away")
        await world.reports("s-1", "was moved, deleted")
        assert HostProcess.of(pid) is not None
        (tmp_path / "away").rename(tmp_path / "queue")
        await world.tell("a")
        assert (await world.ended("a")).done == 1

    on(tmp_path / "queue", test)


def test_an_end_that_could_not_be_reported_is_reported_when_the_queue_is_back(tmp_path):
    async def test(world: World):
        world.submit_shell("a", f"echo $$; while ! test -e {tmp_path}/go; do sleep 0.05; done")
        await world.join_slice("s-1")
        pid = await world.pid("a")
        (tmp_path / "queue").rename(tmp_path / "away")
        (tmp_path / "go").touch()
        await gone(pid)
        (tmp_path / "away").rename(tmp_path / "queue")
        assert (await world.ended("a")).done == 1

    on(tmp_path / "queue", test)


MOVES_THE_QUEUE_AWAY = """
import sys
from pathlib import Path
from windlass.workloads.queue import agent

class Moving(agent.Queue):
    def claim(self, place):
        claims = super().claim(place)
        if claims and not Path(sys.argv[2]).with_name("moved").exists():
            Path(sys.argv[2]).with_name("moved").touch()
            self.directory.rename(sys.argv[2])
        return claims

agent.Queue = Moving
sys.exit(agent.main(sys.argv[1]))
"""
"""An agent whose queue is moved away right after its first claim, before the task has started."""


def test_a_task_that_was_claimed_when_the_directory_went_away_is_started_when_it_is_back(tmp_path):
    async def test(world: World):
        world.submit_shell("a", "echo ran")
        join = world.workload.join("s-1", "g", 0)
        world.logs["s-1"] = tmp_path / "agent.log"
        with world.logs["s-1"].open("ab") as log:
            world.agents["s-1"] = subprocess.Popen(
                [sys.executable, "-c", MOVES_THE_QUEUE_AWAY, tmp_path / "queue", tmp_path / "away"],
                env={**os.environ, **join.environment},
                start_new_session=True,
                stderr=log,
            )
        await world.reports("s-1", "was moved, deleted")
        assert not (tmp_path / "queue").exists(), "a new directory would be in the way of the old one"
        (tmp_path / "away").rename(tmp_path / "queue")
        assert (await world.ended("a")).done == 1
        assert world.log("a") == "ran\n"

    on(tmp_path / "queue", test)


def test_running_tasks_outlive_another_queue_in_the_place_of_theirs(tmp_path):
    async def test(world: World):
        world.submit_blocked("a")
        await world.join_slice("s-1")
        pid = await world.pid("a")
        assert [node.id for node in (await world.workload.observe()).nodes] == ["s-1/0"]
        (tmp_path / "queue").rename(tmp_path / "away")
        other = Queue(tmp_path / "queue")  # such as by a command that finds no queue
        other.submit("b", ["true"], CPU)
        await world.reports("s-1", "replaced by another one")
        for _ in range(3):
            assert "replaced" in str(await refusal_of(world.workload.observe(), WorkloadError))
        assert HostProcess.of(pid) is not None
        assert other.observe().nodes == []
        other.close()
        (tmp_path / "queue").rename(tmp_path / "other")
        (tmp_path / "away").rename(tmp_path / "queue")
        await world.tell("a")
        assert (await world.ended("a")).done == 1
        assert [node.id for node in (await world.workload.observe()).nodes] == ["s-1/0"]

    on(tmp_path / "queue", test)


def test_an_agent_goes_on_with_a_copy_of_its_queue(tmp_path):
    async def test(world: World):
        world.submit_shell("a", f"echo $$; while ! test -e {tmp_path}/go; do sleep 0.05; done")
        await world.join_slice("s-1")
        await world.pid("a")
        (tmp_path / "queue").rename(tmp_path / "away")
        (tmp_path / "queue").mkdir()
        with (
            closing(sqlite3.connect(tmp_path / "away" / "queue.db")) as old,
            closing(sqlite3.connect(tmp_path / "queue" / "queue.db")) as copy,
        ):
            old.backup(copy)
        world.queue = Queue(tmp_path / "queue")
        (tmp_path / "go").touch()
        assert (await world.ended("a")).done == 1

    on(tmp_path / "queue", test)


def test_running_tasks_outlive_a_full_disk_and_the_node_says_what_is_wrong(tmp_path):
    async def test(world: World):
        world.submit_blocked("a")
        await world.join_slice("s-1", log=tmp_path / "disk" / "agent.log")
        pid = await world.pid("a")
        with (tmp_path / "disk" / "filler").open("wb") as filler, suppress(OSError):
            while True:
                filler.write(b"x" * 65536)
                filler.flush()

        async def seen():
            return (await world.workload.observe()).nodes[0]

        node = await eventually(seen, lambda one: "full" in one.trouble, within=30)
        assert node.healthy, "it lives, and its tasks do"
        assert HostProcess.of(pid) is not None
        (tmp_path / "disk" / "filler").unlink()
        await world.tell("a")
        assert (await world.ended("a")).done == 1
        await eventually(seen, lambda one: not one.trouble, within=30)

    with mounted(tmp_path / "disk", "2m"):
        on(tmp_path / "disk" / "queue", test)


def test_a_host_that_cannot_start_tasks_puts_them_back_and_takes_no_more(tmp_path):
    async def test(world: World):
        world.submit_blocked("a")
        await world.join_slice("s-1", "four")
        pid = await world.pid("a")
        agent = world.agents["s-1"].pid
        opened = len(list(Path(f"/proc/{agent}/fd").iterdir()))
        resource.prlimit(agent, resource.RLIMIT_NOFILE, (opened + 1, opened + 100))
        world.submit_shell("many", "true", 200)

        async def seen():
            return (await world.workload.observe()).nodes[0]

        node = await eventually(seen, lambda one: not one.healthy, within=30)
        assert node.trouble == "this host cannot start tasks: Too many open files"
        job = await world.job("many")
        assert (job.failed, job.done + job.waiting) == (0, 200)
        assert HostProcess.of(pid) is not None, "what runs there goes on"
        resource.prlimit(agent, resource.RLIMIT_NOFILE, (opened + 100, opened + 100))
        assert (await eventually(lambda: world.job("many"), lambda job: job.done == 200, within=60)).failed == 0

    on(tmp_path, test)


RUNS_OUT_OF_MEMORY = """
import subprocess, sys
from windlass.workloads.queue import agent

class Starved(subprocess.Popen):
    def __init__(self, command, **more):
        if command[0] == "true":
            raise MemoryError
        super().__init__(command, **more)

agent.subprocess.Popen = Starved
sys.exit(agent.main(sys.argv[1]))
"""
"""An agent without the memory that a second task needs."""


def test_a_host_without_memory_puts_the_task_back_and_keeps_what_runs(tmp_path):
    async def test(world: World):
        world.submit_blocked("a")
        join = world.workload.join("s-1", "four", 0)
        world.agents["s-1"] = subprocess.Popen(
            [sys.executable, "-c", RUNS_OUT_OF_MEMORY, tmp_path],
            env={**os.environ, **join.environment},
            start_new_session=True,
        )
        pid = await world.pid("a")
        world.queue.submit("b", ["true"], amounts({"cpu": 1000}), 1, 0)

        async def seen():
            return (await world.workload.observe()).nodes[0]

        node = await eventually(seen, lambda one: not one.healthy, within=30)
        assert node.trouble == "this host cannot start tasks: there is no memory left"
        job = await world.job("b")
        assert (job.failed, job.waiting) == (0, 1)
        assert HostProcess.of(pid) is not None, "what runs there goes on"

    on(tmp_path, test)


def test_an_agent_without_the_name_of_its_node_says_so(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "windlass.workloads.queue.agent", tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "WINDLASS_QUEUE_NODE does not say which node this is" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_agent_loads_nothing_that_is_slow_to_load():
    program = "import sys, windlass.workloads.queue.agent; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"numpy", "yaml", "click", "asyncio", "dataclasses", "inspect"}


# -- the fence -----------------------------------------------------------------------------------------------------


def test_no_certificate_is_ever_given_while_a_task_is_alive(tmp_path):
    """Tasks come and go as fast as they can, and each says by a file that it is there."""

    async def test(world: World):
        alive = tmp_path / "alive"
        alive.mkdir()
        await world.join_slice("s-1", "four")
        world.submit_shell("a", f'touch "{alive}/$WINDLASS_TASK_INDEX"; rm "{alive}/$WINDLASS_TASK_INDEX"', 100_000)
        for epoch in range(1, 31):
            await eventually(world.workload.observe, lambda view: view.nodes and view.nodes[0].tasks)
            await world.workload.cordon("s-1", epoch)
            await certified(world, "s-1", epoch)
            done = (await world.job("a")).done
            assert list(alive.iterdir()) == []
            for _ in range(3):
                await world.pass_time()
            assert (await world.job("a")).done == done, "work was placed behind the fence"
            await world.workload.uncordon("s-1", epoch)
        await world.workload.forget(["s-1"])

    on(tmp_path / "queue", test)


# -- on the hosts of the local provider ----------------------------------------------------------------------------


@asynccontextmanager
async def local_slices(world: World, directory: Path):
    provider = LocalProvider(directory, grace=3.0)

    async def launch(slice_id: str, group, hosts: int = 1) -> None:
        joins = [world.workload.join(slice_id, group.name, number) for number in range(hosts)]
        orders = tuple(HostOrder(join.command, join.environment) for join in joins)
        await provider.launch(LaunchOrder(slice_id, group.name, orders, group.resources), 1)

    try:
        yield provider, launch
    finally:
        for instance in await provider.list():
            await provider.terminate(instance.slice_id, 1)
        assert marked(directory) == []


def test_work_runs_on_local_slices_and_a_drained_slice_is_ended_with_its_certificate(tmp_path):
    async def test(world: World):
        async with local_slices(world, tmp_path / "slices") as (provider, launch):
            await launch("s-1", FOUR, hosts=2)
            world.submit_shell("a", "echo $WINDLASS_NODE", 40)
            assert (await world.ended("a")).done == 40
            nodes = {world.log("a", index).strip() for index in range(40)}
            assert nodes <= {"s-1/0", "s-1/1"}
            await world.workload.cordon("s-1", 1)
            assert (await world.workload.observe()).acknowledged == (Acknowledgement("s-1", 1, 0),)
            await provider.terminate("s-1", 1)
            view = await world.workload.observe()
            assert view.nodes == ()

    on(tmp_path / "queue", test)


def test_a_local_slice_that_is_killed_is_seen_dead_and_its_work_runs_elsewhere(tmp_path):
    async def test(world: World):
        async with local_slices(world, tmp_path / "slices") as (provider, launch):
            world.submit_blocked("a")
            await launch("s-1", ONE)
            pid = await world.pid("a")
            agent = pid_of(tmp_path / "slices", "s-1", 0)
            os.killpg(agent, signal.SIGKILL)
            await eventually(provider.list, lambda seen: not seen[0].hosts[0].running)
            await gone(pid)
            await world.workload.forget(["s-1"])
            view = await world.workload.observe()
            assert (view.nodes, view.demands[0].count) == ((), 1)
            await launch("s-2", ONE)
            await world.pid("a", times=2)
            await world.tell("a")
            assert (await world.ended("a")).done == 1

    on(tmp_path / "queue", test)


def test_a_local_slice_that_is_ended_by_force_puts_its_work_back(tmp_path):
    async def test(world: World):
        async with local_slices(world, tmp_path / "slices") as (provider, launch):
            world.submit_blocked("a")
            world.queue.submit("b", (*UNTIL_TOLD, str(tmp_path / "queue" / "a")), amounts({"cpu": 9000}))
            await launch("s-1", ONE)
            pid = await world.pid("a")
            await provider.terminate("s-1", 1)
            assert HostProcess.of(pid) is None
            view = await world.workload.observe()
            assert (view.nodes, [demand.count for demand in view.demands]) == ((), [1, 1])

    on(tmp_path / "queue", test)
