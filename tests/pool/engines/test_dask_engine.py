"""The Dask engine keeps the contract of an engine, with real processes; and answers the traps of Dask."""

import asyncio
import ctypes
import os
import random
import re
import signal
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from distributed.core import connect

from tests.pool.processes import stores_of
from windlass.pool.engines.dask import engine as dask_engine
from windlass.pool.engines.dask.engine import DaskEngine
from windlass.pool.engines.dask.messages import NODE, DaskNodeOrder, security_of
from windlass.pool.engines.protocol import Call, EngineError
from windlass.pool.transport.data_store import DataStore
from windlass.pool.transport.serialization import (
    Shared,
    pack_arguments,
    pack_batch,
    pack_function,
    pack_shared,
    result_of,
    unpack_results,
)
from windlass.pool.transport.tls import make_credentials
from windlass.testing.engine.conformance import EngineConformance
from windlass.testing.engine.fixture import ProcessStage, RecordingListener
from windlass.testing.eventually import eventually, run

from .listening import addresses, answers_http

pytestmark = pytest.mark.slow

PATIENCE = 60.0


class TestDaskEngine(EngineConformance):
    alone = "windlass.pool.engines.dask.engine:DaskEngine"

    def stage(self):
        return ProcessStage(DaskEngine)


class Pool:
    """An engine with nodes of one slot or more, and calls on them."""

    def __init__(self, stage):
        self.stage, self.engine, self.events = stage, stage.engine, RecordingListener()
        self._number = 0

    async def node(self, name, slots=1):
        await self.stage.host(name, self.engine.join(name, slots))
        await self.events.until(lambda: self.events.of(name), PATIENCE)

    def run(self, node, function, *args, slot=0):
        self._number += 1
        call = f"call-{self._number}"
        self.engine.run(Call(call, node, slot, pack_batch(pack_function(function), [pack_arguments(args)])))
        return call

    async def began(self, call):
        await self.events.until(lambda: self.events.of(call), PATIENCE)

    async def ended(self, call):
        await self.events.until(lambda: self.events.outcomes(call), PATIENCE)
        return self.events.outcomes(call)[0]

    async def value(self, node, function, *args, slot=0):
        call = self.run(node, function, *args, slot=slot)
        outcome = await self.ended(call)
        assert outcome.ending == "done", outcome.detail
        return result_of(unpack_results(self.events.results(call))[0]).value()


@asynccontextmanager
async def pool(store=None, **about):
    stage = ProcessStage(lambda: DaskEngine(**about))
    one = Pool(stage)
    one.events.store = store
    try:
        await stage.engine.start(one.events)
        yield one
    finally:
        await stage.engine.close()
        await stage.break_off()


class Telltale:
    """Leaves the number of every process in which it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return _told, (self.path,)


def _told(path):
    with Path(path).open("a") as file:
        file.write(f"{os.getpid()}\n")
    return path


def hold_the_interpreter():
    """As C code does that never gives it back."""
    ctypes.PyDLL(None).sleep(3600)


def test_only_the_slot_unpickles_what_is_the_users(tmp_path):
    async def test():
        async with pool() as one:
            await one.node("n")
            path = tmp_path / "unpickled"
            slot = await one.value("n", lambda _: os.getpid(), Telltale(str(path)))
            assert [int(pid) for pid in path.read_text().split()] == [slot]

    run(test())


def test_a_call_that_holds_the_interpreter_can_be_killed_and_harms_no_other():
    async def test():
        async with pool() as one:
            await one.node("n", slots=2)
            stuck = one.run("n", hold_the_interpreter)
            behind = one.run("n", time.sleep, 0)
            await one.began(stuck)
            assert await one.value("n", lambda: "beside", slot=1) == "beside"
            one.engine.kill(stuck)
            assert (await one.ended(stuck)).ending == "killed"
            assert (await one.ended(behind)).ending == "revoked"
            assert await one.value("n", lambda: "back") == "back"

    run(test())


def test_what_a_killed_call_had_started_ends_with_it(tmp_path):
    async def test():
        async with pool() as one:
            await one.node("n")
            pid_file = tmp_path / "pid"
            call = one.run("n", os.system, f"echo $$ > {pid_file}; exec sleep 3600")
            await eventually(_text_of(pid_file), within=PATIENCE)
            one.engine.kill(call)
            assert (await one.ended(call)).ending == "killed"
            await eventually(_gone(int(pid_file.read_text())), within=PATIENCE)

    run(test())


def _text_of(path):
    async def look():
        return path.exists() and path.read_text().strip()

    return look


def _gone(pid):
    async def look():
        try:
            return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return True

    return look


def waits_for(go):
    """Returns a function that returns its argument when a file exists."""

    def until_go(value):
        while not go.exists():
            time.sleep(0.01)
        return value

    return until_go


async def scheduler_of(one):
    (scheduler,) = [pid for pid, command in await one.stage.leftovers() if "dask.scheduler" in command]
    return scheduler


def test_a_scheduler_that_dies_is_restarted_and_calls_continue(tmp_path):
    go = tmp_path / "go"
    until_go = waits_for(go)

    async def test():
        async with pool() as one:
            await one.node("n", slots=2)
            running = [one.run("n", until_go, "first", slot=0), one.run("n", until_go, "second", slot=1)]
            for call in running:
                await one.began(call)
            os.kill(await scheduler_of(one), signal.SIGKILL)
            await one.events.until(lambda: ("engine", "up") in one.events.all, PATIENCE)
            behind = one.run("n", len, "third", slot=0)
            go.touch()
            assert [(await one.ended(call)).ending for call in (*running, behind)] == ["done"] * 3
            assert [event[0] for event in one.events.of("n")] == ["joined"]
            await one.node("late")
            assert await one.value("late", lambda: 1) == 1

    run(test())


def test_what_ends_while_there_is_no_scheduler_is_reported_once_when_there_is_one_again(tmp_path):
    go = tmp_path / "go"
    until_go = waits_for(go)

    async def test():
        async with pool() as one:
            await one.node("n")
            call = one.run("n", until_go, "done")
            await one.began(call)
            for _ in range(2):
                os.kill(await scheduler_of(one), signal.SIGKILL)
                go.touch()
                count = len(one.events.of("up"))
                await one.events.until(lambda count=count: len(one.events.of("up")) > count, PATIENCE)
            assert (await one.ended(call)).ending == "done"
            assert await one.value("n", lambda: 1) == 1
            assert len(one.events.outcomes(call)) == 1

    run(test())


def test_a_scheduler_that_hangs_is_restarted_and_no_node_is_lost(tmp_path):
    go = tmp_path / "go"
    until_go = waits_for(go)

    async def test():
        async with pool(unhealthy_timeout=1.0) as one:
            await one.node("n")
            call = one.run("n", until_go, "done")
            await one.began(call)
            os.kill(await scheduler_of(one), signal.SIGSTOP)
            await one.events.until(lambda: ("engine", "up") in one.events.all, PATIENCE)
            whys = [event[2] for event in one.events.of("down")]
            assert "did not answer" in whys[-1], whys
            go.touch()
            assert (await one.ended(call)).ending == "done"
            assert await one.value("n", lambda: 1) == 1
            assert [event[0] for event in one.events.of("n")] == ["joined"]

    run(test())


def test_a_scheduler_that_hangs_while_it_starts_again_is_ended_and_no_node_is_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(dask_engine, "_RESTARTING", 5.0)
    go = tmp_path / "go"
    until_go = waits_for(go)

    async def test():
        async with pool(unhealthy_timeout=1.0) as one:
            await one.node("n")
            call = one.run("n", until_go, "done")
            await one.began(call)
            first = await scheduler_of(one)

            async def next_scheduler():
                found = [pid for pid, command in await one.stage.leftovers() if "dask.scheduler" in command]
                return [pid for pid in found if pid != first]

            os.kill(first, signal.SIGKILL)
            (second,) = await eventually(next_scheduler, within=PATIENCE)
            os.kill(second, signal.SIGSTOP)
            await eventually(_gone(second), within=PATIENCE)
            await one.events.until(lambda: ("engine", "up") in one.events.all, PATIENCE)
            go.touch()
            assert (await one.ended(call)).ending == "done"
            assert await one.value("n", lambda: 1) == 1
            assert [event[0] for event in one.events.of("n")] == ["joined"]

    run(test())


def test_the_silence_of_a_node_does_not_count_while_there_is_no_scheduler():
    async def test():
        async with pool(unhealthy_timeout=1.0) as one:
            await one.node("n")
            processes = [pid for pid, command in await one.stage.leftovers() if "dask.node" in command]
            for pid in processes:
                os.kill(pid, signal.SIGSTOP)
            await one.events.until(lambda: "silent" in [event[0] for event in one.events.of("n")], PATIENCE)
            os.kill(await scheduler_of(one), signal.SIGKILL)
            await one.events.until(lambda: "heard" in [event[0] for event in one.events.of("n")], PATIENCE)
            for pid in processes:
                os.kill(pid, signal.SIGCONT)
            assert await one.value("n", lambda: 1) == 1
            assert "left" not in [event[0] for event in one.events.of("n")]

    run(test())


def test_a_scheduler_that_is_slow_to_answer_is_not_restarted():
    async def test():
        async with pool(unhealthy_timeout=3600.0) as one:
            await one.node("n")
            scheduler = await scheduler_of(one)
            os.kill(scheduler, signal.SIGSTOP)
            await one.events.until(lambda: one.events.of("down"), PATIENCE)
            assert "has not answered for" in one.events.of("down")[0][2]
            os.kill(scheduler, signal.SIGCONT)
            await one.events.until(lambda: ("engine", "up") in one.events.all, PATIENCE)
            assert await one.value("n", lambda: 1) == 1
            assert await scheduler_of(one) == scheduler
            assert [event[0] for event in one.events.of("n")] == ["joined"]

    run(test())


def test_a_scheduler_that_cannot_be_started_again_loses_the_engine(monkeypatch):
    async def test():
        async with pool() as one:
            await one.node("n")
            call = one.run("n", time.sleep, 3600)
            await one.began(call)
            pid = await scheduler_of(one)
            monkeypatch.setattr(dask_engine, "_RESTARTS", 0)
            os.kill(pid, signal.SIGKILL)
            await one.events.until(lambda: one.events.of("n")[-1][0] == "left", PATIENCE)
            assert [outcome.ending for outcome in one.events.outcomes(call)] == ["lost"]
            assert one.events.of("lost")[0][:2] == ("engine", "lost")
            assert (await one.ended(one.run("n", time.sleep, 0))).ending == "lost"

    run(test())


async def intrude(scheduler, security):
    comm = await connect(scheduler, timeout=5, **security.get_connection_args("worker"))
    await comm.write(
        {"op": "windlass_node", "reply": False, "node": "evil", "slots": 1, "python": "3", "address": "", "lives": {}}
    )
    await comm.read()


def test_a_stranger_is_not_let_in():
    async def test():
        async with pool() as one:
            order = DaskNodeOrder.of(one.engine.join("n", 1).environment[NODE])
            (stranger,) = make_credentials("stranger")
            with pytest.raises(OSError, match=r".+"):
                await intrude(order.scheduler, security_of(stranger))
            await one.node("n")
            assert one.events.of("evil") == []

    run(test())


def test_a_task_does_not_see_the_keys_of_its_node_and_has_its_own_random_state():
    async def test():
        async with pool() as one:
            await one.node("n", slots=2)
            environment = await one.value("n", lambda: dict(os.environ))
            assert NODE not in environment
            assert not any("PRIVATE KEY" in value for value in environment.values())
            assert await one.value("n", lambda: random.random()) != await one.value(
                "n", lambda: random.random(), slot=1
            )

    run(test())


def test_it_listens_on_the_loopback_address_alone_and_shows_no_page():
    async def test():
        async with pool() as one:
            await one.node("n", slots=2)
            await one.value("n", os.getpid)
            found = addresses([os.getpid(), *[pid for pid, _ in await one.stage.leftovers()]])
            mine = {(host, port) for host, port in found if host == "127.0.0.1"}
            assert mine
            assert found == mine
            assert not any(answers_http(address) for address in mine)

    run(test())


def test_without_encryption_it_carries_all_the_same():
    async def test():
        async with pool(encrypted=False) as one:
            await one.node("n")
            assert await one.value("n", str.upper, "plain words") == "PLAIN WORDS"

    run(test())


def test_nodes_get_there_by_another_way_than_where_it_listens():
    async def test():
        async with pool(host="0.0.0.0", contact="127.0.0.1") as one:
            assert "tls://127.0.0.1:" in one.engine.join("n", 1).environment[NODE]
            await one.node("n")
            assert await one.value("n", lambda: 1) == 1

    run(test())


def test_two_engines_at_once_do_not_disturb_each_other():
    async def test():
        async with pool() as one, pool() as other:
            await asyncio.gather(one.node("n"), other.node("n"))
            assert await one.value("n", lambda: 1) == 1
            await one.engine.close()
            assert await other.value("n", lambda: 2) == 2

    run(test())


def test_an_address_that_cannot_be_bound_is_reported_when_the_engine_starts():
    async def test():
        engine = DaskEngine(host="192.0.2.1")
        with pytest.raises(EngineError, match="did not start"):
            await engine.start(RecordingListener())

    run(test())


def test_an_engine_that_was_not_started_says_so():
    with pytest.raises(EngineError, match=r"start\(\)"):
        DaskEngine().join("n", 1)


class CountedStore(DataStore):
    """Counts how often each value is asked for by a node."""

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.asked = []

    def known(self, name):
        self.asked.append(name)
        return super().known(name)


@pytest.fixture
def store(tmp_path):
    """A store whose paths no process of a node may use: as if it were on another machine."""
    found = CountedStore(tmp_path / "disk", limit=8 << 20, memory=tmp_path)
    yield found
    found.close()


def elsewhere(name):
    return Shared(name, "/nowhere/on/this/machine")


def test_a_value_that_is_on_another_machine_is_fetched_once_for_all_slots(store):
    async def test():
        async with pool(store=store) as one:
            name = store.put(pack_shared(list(range(100_000))))
            await one.node("n", slots=2)
            for slot in (0, 1, 0):
                assert await one.value("n", sum, elsewhere(name), slot=slot) == 4999950000
            assert store.asked == [name]
            outcome = one.run("n", sum, Shared("never", "/nowhere/else"))
            await one.ended(outcome)
            (output,) = unpack_results(one.events.results(outcome))
            assert "not there any more" in str(result_of(output).error())

    run(test())


def test_large_results_of_another_machine_come_as_files_and_nothing_stays_there_or_here(store):
    """Also those that do not fit into shared memory. The scheduler is stopped meanwhile: nothing goes through it."""

    async def test():
        async with pool(store=store) as one:
            await one.node("n", slots=2)
            link = await link_of(one)
            peak = peak_of(link)
            place = store.place._replace(memory="/nowhere/on/this/machine")
            name = store.put(pack_shared(bytes(64 << 20)))

            def step(value, number):
                return value[:1] * (6 << 20) + bytes([number])

            items = [pack_arguments((elsewhere(name), number)) for number in range(3)]
            call = Call("c1", "n", 0, pack_batch(pack_function(step), items, place=place, call="c1"), {}, 3)
            one.engine.run(call)
            await one.began("c1")
            scheduler = await scheduler_of(one)
            os.kill(scheduler, signal.SIGSTOP)
            try:
                await eventually(lambda: results_in(store, 3), within=PATIENCE)
            finally:
                os.kill(scheduler, signal.SIGCONT)
            assert (await one.ended("c1")).ending == "done"
            values = [result_of(output).value() for output in unpack_results(one.events.results("c1"))]
            assert values == [bytes(6 << 20) + bytes([number]) for number in range(3)]
            assert not await results_in(store, 1), "a file goes when its result is read"
            kept = stores_of(link)
            assert kept
            assert peak_of(link) - peak < 32 << 10, "the link holds a whole value in its memory"
        await eventually(_removed(kept), within=PATIENCE)

    run(test())


async def link_of(one):
    """The process of a node that talks to the pool: the supervisor and the slots lead process groups."""
    nodes = [pid for pid, command in await one.stage.leftovers() if "dask.node" in command]
    return min(pid for pid in nodes if os.getpgid(pid) != pid)  # the first: a spare process leads a group soon


def peak_of(pid):
    """The most memory that a process has had, in KiB."""
    return int(re.findall(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0])


async def results_in(store, count):
    files = [entry for place in (store.directory, Path(store.place.disk)) for entry in place.iterdir()]
    return len([one for one in files if one.name.startswith("r-") and one.suffix != ".part"]) >= count


def _removed(paths):
    async def removed():
        return not any(path.exists() for path in paths)

    return removed
