"""What a pool does when something under it breaks: crashing tasks, nodes that hang, an engine that dies, refusals."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
import threading
import time

import pytest

import windlass as wl
from windlass.journal import JournalError
from windlass.pool.client.here import Here
from windlass.pool.errors import BadPool, EngineLost, PoolError, TaskCrashed
from windlass.pool.report.status import status_of, why
from windlass.providers.protocol import AuthFailed, InsufficientCapacity, ProviderError, QuotaExceeded
from windlass.testing.fake_engine import FakeEngine

from .quick import quick_pool
from .worlds import Machines, World, pool, same


def running(world: World) -> list[str]:
    """The ids of the calls that have begun."""
    calls = [call for node in world.hub.task_book.nodes.values() for call in node.running()]
    return [call.id for call in calls if call.began_at is not None]


# -- crashing tasks ----------------------------------------------------------------------------------------------------


def test_a_task_that_crashes_uses_up_its_own_retries_and_buys_no_node():
    async def journey(world: World) -> None:
        await world.until(lambda: len(world.nodes) == 1)
        future = world.call(same, 1)
        for _ in range(2):
            await world.until(lambda: running(world))
            world.engine.crash(running(world)[0])
            await asyncio.sleep(0.01)
        (error,) = await world.over(future)
        assert isinstance(error, TaskCrashed)
        assert "ended its process 2 times" in str(error)
        assert len(world.machines.bought) == 1

    pool((1, 4), journey)


def test_a_crash_in_a_batch_is_charged_to_the_task_that_ran_alone():
    async def journey(world: World) -> None:
        await world.until(lambda: len(world.nodes) == 1)
        await world.over(*world.burst(300))
        world.seconds = 5.0
        futures = world.burst(20)
        await world.until(lambda: futures[0].running())
        world.engine.crash(running(world)[0])
        assert await world.over(*futures) == list(range(20))
        assert [task.used for future in futures for task in future.tasks] == [1] + [0] * 19

    pool(1, journey, seconds=0.001)


# -- nodes that hang ---------------------------------------------------------------------------------------------------


def test_a_node_that_hangs_is_replaced_and_its_late_results_are_not_taken_twice():
    async def journey(world: World) -> None:
        await world.until(lambda: len(world.nodes) == 2)
        world.seconds = 20.0
        futures = world.burst(2)
        await world.until(lambda: all(future.running() for future in futures))
        hung = world.nodes[0]
        world.engine.silence(hung, 5.0)
        await asyncio.sleep(1)
        assert hung not in world.nodes, "it takes no more work"
        assert await world.over(*futures) == [0, 1]
        await world.until(lambda: len(world.nodes) == 2 and hung not in world.nodes, within=60)
        world.engine.wake(hung)
        assert sorted(task.used for future in futures for task in future.tasks) == [0, 1]

    pool(2, journey, unhealthy_timeout=10.0)


def test_a_node_that_hangs_is_replaced_when_its_timeout_is_over_and_status_says_why():
    async def journey(world: World) -> None:
        await world.until(lambda: len(world.nodes) == 2)
        hung = world.nodes[1]
        world.engine.silence(hung, 5.0)
        await asyncio.sleep(1)
        assert any("no heartbeat for 6 s; it is replaced after 20 s" in node.why for node in status_of(world.hub).nodes)
        await asyncio.sleep(12)
        assert len(world.machines.bought) == 2, "its timeout is not over"
        await asyncio.sleep(4)
        assert len(world.machines.bought) == 3, "a replacement is bought at once"
        await world.until(lambda: len(world.nodes) == 2 and hung not in world.nodes, within=60)
        assert len(status_of(world.hub).nodes) == 2, "the machine of the node that hangs has been ended"

    pool(2, journey, unhealthy_timeout=20.0)


def test_a_node_that_reports_again_in_time_keeps_its_tasks():
    async def journey(world: World) -> None:
        await world.until(lambda: len(world.nodes) == 1)
        (future,) = world.burst(1)
        await world.until(lambda: future.running())
        world.engine.silence(world.nodes[0], 5.0)
        await asyncio.sleep(3)
        world.engine.wake(next(iter(world.hub.task_book.nodes)))
        assert await world.over(future) == [0]
        assert world.machines.bought == ["".join(world.machines.bought)]
        assert future.tasks[0].used == 0

    pool(1, journey, unhealthy_timeout=10.0)


# -- an engine that dies -----------------------------------------------------------------------------------------------


def test_nothing_is_bought_while_the_engine_is_down_and_status_says_so():
    async def journey(world: World) -> None:
        await world.until(lambda: len(world.nodes) == 1)
        world.engine.go_down("its scheduler died")
        futures = world.burst(8)
        await asyncio.sleep(30)
        assert len(world.machines.bought) == 1
        assert any("its scheduler died" in problem for problem in status_of(world.hub).troubles)
        world.engine.come_up()
        await world.over(*futures)
        assert len(world.machines.bought) > 1
        assert not any("scheduler" in problem for problem in status_of(world.hub).troubles)

    pool((1, 4), journey)


def test_everything_fails_at_once_when_the_engine_is_lost():
    async def journey(world: World) -> None:
        await world.until(lambda: len(world.nodes) == 1)
        futures = world.burst(5)
        await world.until(lambda: futures[0].running())
        world.engine.be_lost("its scheduler died five times")
        errors = await world.over(*futures)
        assert all(isinstance(error, EngineLost) for error in errors)
        (late,) = await world.over(world.call(same, 1))
        assert isinstance(late, EngineLost)
        bought = len(world.machines.bought)
        await asyncio.sleep(60)
        assert len(world.machines.bought) == bought

    pool((1, 4), journey)


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ProviderError, AuthFailed])
def test_a_launch_that_was_refused_holds_no_place_and_is_tried_again_at_the_next_tick(kind):
    async def journey(world: World) -> None:
        launch, loop = world.machines.launch, asyncio.get_running_loop()
        begun = loop.time()

        async def refuse(order, epoch):
            if loop.time() - begun < 30:
                raise kind("not now")
            await launch(order, epoch)

        world.machines.launch = refuse  # type: ignore[method-assign]
        futures = world.burst(4)
        await asyncio.sleep(2)
        assert any("not now" in one and "next try in" in one for one in status_of(world.hub).troubles)
        await world.until(lambda: len(world.nodes) == 4, within=30 + 5 + 5 + 3)
        await world.over(*futures)

    pool((0, 4), journey, seconds=60.0, boot=5.0, reconcile_tick_interval=5.0)


def test_a_stock_out_is_retried_after_longer_pauses_and_status_says_when():
    async def journey(world: World) -> None:
        loop, asked = asyncio.get_running_loop(), list[float]()

        async def refuse(_order, _epoch):
            asked.append(loop.time())
            raise InsufficientCapacity("none left")

        world.machines.launch = refuse  # type: ignore[method-assign]
        world.burst(1)
        await asyncio.sleep(2)
        assert any("none left" in one and "next try in" in one for one in status_of(world.hub).troubles)
        await world.until(lambda: len(asked) >= 4)
        pauses = [after - before for before, after in itertools.pairwise(asked)]
        assert pauses[0] >= 5
        assert pauses == sorted(pauses)

    pool((0, 1), journey, reconcile_tick_interval=5.0)


def test_a_quota_error_is_tried_again_after_four_ticks_and_status_says_when():
    async def journey(world: World) -> None:
        loop, asked = asyncio.get_running_loop(), list[float]()

        async def refuse(_order, _epoch):
            asked.append(loop.time())
            raise QuotaExceeded("8 of 8 used")

        world.machines.launch = refuse  # type: ignore[method-assign]
        world.burst(1)
        await asyncio.sleep(2)
        assert any("8 of 8 used" in one and "next try in" in one for one in status_of(world.hub).troubles)
        await world.until(lambda: len(asked) >= 3)
        assert all(20 <= after - before <= 26 for before, after in itertools.pairwise(asked))

    pool((0, 1), journey, reconcile_tick_interval=5.0)


# -- idle pools --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("least", [0, 1])
def test_a_pool_with_nothing_to_do_keeps_its_nodes_for_the_idle_timeout(least):
    async def journey(world: World) -> None:
        await world.over(*world.burst(4))
        loop = asyncio.get_running_loop()
        ended = loop.time()
        await world.until(lambda: len(world.nodes) < 4)
        assert 119 <= loop.time() - ended <= 140

    pool((least, 4), journey, autoscale_cooldown=10.0, autoscale_idle_timeout=120.0)


# -- the end -----------------------------------------------------------------------------------------------------------


def test_closing_ends_every_node_although_the_journal_is_broken():
    async def journey(world: World) -> None:
        await world.until(lambda: len(world.nodes) == 2)

        def full(*_: object, **__: object) -> None:
            raise JournalError("the disk is full")

        world.hub.journal.append = full  # type: ignore[method-assign, assignment]
        await world.hub.close(on_record=True)
        assert world.machines.instances == {}

    pool(2, journey)


def test_status_and_why_name_a_journal_that_cannot_be_written_until_it_can():
    async def journey(world: World) -> None:
        await world.until(lambda: len(world.nodes) == 1)
        append, reason = world.hub.journal.append, "the journal cannot be written: the disk is full"

        def full(*_: object, **__: object) -> None:
            raise JournalError("the disk is full")

        world.hub.journal.append = full  # type: ignore[method-assign, assignment]
        world.seconds = 5.0
        futures = world.burst(8)
        await asyncio.sleep(1)
        assert any(reason in problem for problem in status_of(world.hub).troubles)
        assert reason in why(world.hub)
        world.hub.journal.append = append  # type: ignore[method-assign]
        await world.over(*futures)
        assert len(world.machines.bought) > 1
        assert not any("journal" in problem for problem in status_of(world.hub).troubles)
        assert "journal" not in why(world.hub)

    pool((1, 4), journey, reconcile_tick_interval=1.0)


def test_an_exception_of_the_program_is_never_hidden_by_the_end_of_the_pool():
    class Mine(Exception):
        pass

    def use() -> None:
        with quick_pool() as opened:
            assert opened._host.runtime is not None
            opened._host.runtime.journal.close()  # as by a disk that went away
            raise Mine

    with pytest.raises(Mine):
        use()


def test_ctrl_c_while_the_pool_is_closed_is_raised_when_every_node_has_been_ended():
    pressed = threading.Event()

    def press(*_: object) -> None:
        pressed.set()
        raise KeyboardInterrupt

    class Ending(Machines):
        async def terminate(self, slice_id: str, epoch: int) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            while not pressed.is_set():
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)  # a call that is cancelled does not come further
            await super().terminate(slice_id, epoch)

    engine = FakeEngine()
    machines = Ending(engine, boot=0.0)
    before = signal.signal(signal.SIGINT, press)
    try:
        with pytest.raises(KeyboardInterrupt), wl.ComputePool(machines, 2, engine=engine, console=False) as opened:
            wl.compute(same)(1) @ opened
        assert machines.instances == {}
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_while_files_are_removed_is_raised_when_none_is_left(monkeypatch):
    with quick_pool(1) as opened:
        directory = opened.directory
        remove, interrupts = shutil.rmtree, [KeyboardInterrupt("in memory"), KeyboardInterrupt("on disk")]

        def removing(*arguments, **options):
            if interrupts:
                raise interrupts.pop()
            remove(*arguments, **options)

        monkeypatch.setattr(shutil, "rmtree", removing)
        with pytest.raises(KeyboardInterrupt):
            opened.close()
        assert not directory.exists()


def test_the_first_ctrl_c_is_raised_if_another_one_comes_while_the_pool_is_closed(monkeypatch):
    first = KeyboardInterrupt("the first")
    remove, interrupts = shutil.rmtree, [KeyboardInterrupt("the second")]

    def removing(*arguments, **options):
        if interrupts:
            raise interrupts.pop()
        remove(*arguments, **options)

    with pytest.raises(KeyboardInterrupt) as caught, quick_pool(1) as opened:  # noqa: PT012
        wl.compute(same)(1) >> opened
        monkeypatch.setattr(shutil, "rmtree", removing)
        raise first
    assert caught.value is first
    assert interrupts == []


def test_a_pool_that_several_threads_close_at_once_is_closed_once_and_for_each_of_them(caplog):
    with quick_pool(2) as opened:
        host, failed = opened._host, list[BaseException]()
        running = wl.compute(time.sleep)(0.2) > opened

        def close() -> None:
            try:
                opened.close()
                assert running.done()
                assert not host.directory.exists()
            except BaseException as error:  # noqa: BLE001  # reported by the test's own thread
                failed.append(error)

        threads = [threading.Thread(target=close) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failed == []
    assert caplog.messages == []


# -- where a task runs -------------------------------------------------------------------------------------------------


def test_a_replacement_takes_the_number_of_the_node_that_it_replaces():
    async def journey(world: World) -> None:
        await world.until(lambda: len(world.nodes) == 3)
        second = next(node for node in world.hub.task_book.nodes.values() if node.number == 1)
        world.machines.kill(second.slice_id)
        await world.until(lambda: second.id not in world.hub.task_book.nodes)
        await world.until(lambda: len(world.nodes) == 3)
        assert sorted(node.number for node in world.hub.task_book.nodes.values()) == [0, 1, 2]

    pool(3, journey)


def numbers(world: World) -> list[int]:
    return sorted(node.number for node in world.hub.task_book.nodes.values())


def test_numbers_have_no_gaps_after_a_pool_has_shrunk():
    async def journey(world: World) -> None:
        await world.over(*world.burst(24))
        await world.until(lambda: len(world.nodes) == 12)
        await world.until(lambda: len(world.machines.instances) == 3, within=300)
        await world.until(lambda: len(world.nodes) == 3 and numbers(world) == [0, 1, 2], within=20)

    pool((3, 12), journey, boot=1.0)


def test_numbers_have_no_gaps_if_the_head_is_lost_and_nothing_needs_another_node():
    async def journey(world: World) -> None:
        await world.over(*world.burst(8))
        await world.until(lambda: len(world.nodes) == 4)
        world.machines.kill(world.nodes[0].partition("/")[0])
        await world.until(lambda: len(world.machines.instances) == 3)
        await world.until(lambda: numbers(world) == [0, 1, 2], within=20)

    pool((1, 4), journey)


def test_a_node_keeps_its_number_while_it_runs_tasks_and_has_no_gap_below_it_afterwards():
    async def journey(world: World) -> None:
        world.took = lambda call: 300.0 if call.node == world.nodes[-1] and len(world.nodes) == 4 else 10.0
        futures = world.burst(4)
        await world.until(lambda: len(world.machines.ended) == 2)
        await world.until(lambda: len(world.nodes) == 2)
        await asyncio.sleep(20)
        assert numbers(world) == [0, 3]
        await world.over(*futures)
        await world.until(lambda: numbers(world) == [0, 1], within=20)

    pool(wl.Nodes(1, 4, 4), journey)


def place() -> tuple[Here, dict[str, str]]:
    import os

    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    return wl.here(), {name: os.environ[name] for name in names if name in os.environ}


def test_a_node_that_replaces_the_head_is_the_last_to_go():
    async def journey(world: World) -> None:
        await world.over(*world.burst(8))
        await world.until(lambda: len(world.nodes) == 4)
        world.machines.kill(world.nodes[0].partition("/")[0])
        await world.over(*world.burst(8))
        await world.until(lambda: len(world.nodes) == 4)
        await world.until(lambda: len(world.machines.instances) == 1, within=200)
        assert [node.number for node in world.hub.task_book.nodes.values()] == [0]

    pool((1, 4), journey)


def test_a_task_knows_where_it_runs():
    with quick_pool(3, slots=2) as opened:
        found, torch = wl.compute(place)() >> opened
        assert (found.rank, found.nodes, found.head, found.slot) == (0, found.nodes, "127.0.0.1", 0)
        assert found.node
        assert torch == {}
        everywhere = wl.compute(place)() @ opened
        assert [here.rank for here, _ in everywhere] == [0, 1, 2]
        assert {torch["WORLD_SIZE"] for _, torch in everywhere} == {"3"}
        assert len({(torch["MASTER_ADDR"], torch["MASTER_PORT"]) for _, torch in everywhere}) == 1
        gang = wl.gang(place, size=2)() >> opened
        assert [here.rank for here, _ in gang] == [0, 1]


def test_a_rank_in_the_environment_of_the_program_is_not_that_of_a_task(monkeypatch):
    monkeypatch.setenv("RANK", "7")
    monkeypatch.setenv("WINDLASS_RANK", "7")  # the program runs in a gang of another pool
    with quick_pool(2) as opened:
        assert (wl.compute(wl.here)() >> opened).rank == 0
        assert [here.rank for here in wl.compute(wl.here)() @ opened] == [0, 1]


def test_here_is_for_tasks_only():
    with pytest.raises(PoolError, match="inside a function"):
        wl.here()


# -- accelerators ------------------------------------------------------------------------------------------------------


def test_accelerators_that_are_not_there_are_an_error_before_the_first_task(monkeypatch):
    monkeypatch.setattr("windlass.pool.devices.gpu_names", list)
    with pytest.raises(BadPool, match=r"1 A100.*has none.*pretend=True"):
        wl.ComputePool(wl.Local(), accelerator="A100")
    with pytest.raises(BadPool, match="2 GPU"):
        wl.ComputePool(wl.Local(), accelerator="gpu:2")
    monkeypatch.setattr("windlass.pool.devices.gpu_names", lambda: ["NVIDIA A100-SXM4-40GB"] * 2)
    wl.ComputePool(wl.Local(), accelerator="A100:2")
    with pytest.raises(BadPool, match=r"1 H100.*2 \(NVIDIA A100"):
        wl.ComputePool(wl.Local(), accelerator="H100")
    wl.ComputePool(wl.Local(pretend=True), accelerator="H100:8")
