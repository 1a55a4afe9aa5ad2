"""The Ray engine keeps the contract of an engine, with real processes."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.pool.processes import Program
from tests.pool.processes import eventually as soon
from windlass.pool.engines.protocol import EngineError
from windlass.testing.engine.conformance import EngineConformance
from windlass.testing.engine.fixture import ProcessStage, RecordingListener
from windlass.testing.engine.run_case import CaseRun
from windlass.testing.eventually import eventually, run

from .listening import addresses

pytest.importorskip(
    "ray",
    reason="Ray is not installed; these tests run where it is: pip install '.[pool-ray]'",
)

from windlass.pool.engines.ray import engine as ray_engine
from windlass.pool.engines.ray.engine import RayEngine

pytestmark = pytest.mark.slow

PATIENCE = 120.0
SMALL = 200 << 20
"""Bytes for each node's object store: several nodes share this machine."""


class TestRayEngine(EngineConformance):
    alone = "windlass.pool.engines.ray.engine:RayEngine"
    patience = PATIENCE

    def stage(self):
        return ProcessStage(lambda: RayEngine(object_store=SMALL))


@pytest.mark.parametrize("guard", ["lives", "is killed too"])
def test_when_the_driver_dies_the_engine_is_lost_and_no_process_stays(guard):
    async def test():
        stage = ProcessStage(lambda: RayEngine(object_store=SMALL))
        events = RecordingListener()
        case = CaseRun(stage, events, PATIENCE)
        try:
            await stage.engine.start(events)
            node = await case.node()
            call = case.hold(node)
            await case.until_began(call)
            hub = [pid for pid, command in await stage.leftovers() if "ray.driver" in command]
            if guard == "is killed too":
                os.kill(max(hub), signal.SIGKILL)
            os.kill(min(hub), signal.SIGKILL)  # the other one is its guard
            await case.until_left(node)
            assert [outcome.ending for outcome in events.outcomes(call)] == ["lost"]
            assert events.of("lost")[0][:2] == ("engine", "lost")
            assert (await case.outcome(case.run(node, len, "late"))).ending == "lost"
            if guard == "is killed too":
                await stage.engine.close()  # or else the next pool
            await eventually(stage.leftovers, lambda left: not left, within=PATIENCE)
        finally:
            await stage.engine.close()
            await stage.break_off()

    run(test())


STARTS = """
import windlass as wl

with wl.ComputePool(nodes=1, engine="ray", console=False) as pool:
    pool.submit(abs, -1).result()
"""


def test_a_program_that_is_interrupted_while_ray_starts_leaves_no_process(tmp_path):
    program = Program(tmp_path, STARTS)
    try:
        soon(lambda: any("--head" in words_of(pid) for pid in program.processes()), PATIENCE, program.said)
        os.kill(program.process.pid, signal.SIGINT)
        program.process.wait(PATIENCE)
        assert program.processes() == []
        assert "everything that was started has been ended" in program.said()
    finally:
        program.close()


def words_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
    return ""


@pytest.mark.parametrize("what", ["the driver is stopped", "Ray's head is killed"])
def test_an_engine_whose_driver_hangs_or_whose_head_is_gone_is_lost(what, monkeypatch):
    monkeypatch.setattr(ray_engine, "_HUNG", 6.0)

    async def test():
        stage = ProcessStage(lambda: RayEngine(object_store=SMALL, unhealthy_timeout=2.0))
        events = RecordingListener()
        case = CaseRun(stage, events, PATIENCE)
        try:
            await stage.engine.start(events)
            node = await case.node()
            call = case.hold(node)
            await case.until_began(call)
            processes = await stage.leftovers()
            if what == "the driver is stopped":
                os.kill(min(pid for pid, command in processes if "ray.driver" in command), signal.SIGSTOP)
            else:
                os.kill(next(pid for pid, command in processes if "--head" in command), signal.SIGKILL)
            await case.until_left(node)
            assert [outcome.ending for outcome in events.outcomes(call)] == ["lost"]
            ((_, _, why),) = events.of("lost")
            assert ("did not answer for" if "driver" in what else "Ray's head has ended") in why
            assert not [event for event in events.all if event[0] == "silent"], "its nodes were not judged"
            await eventually(stage.leftovers, lambda left: not left, within=PATIENCE)
        finally:
            await stage.engine.close()
            await stage.break_off()

    run(test())


def test_it_listens_on_the_loopback_address_alone_and_a_slot_that_is_stopped_is_started_again():
    async def test():
        stage = ProcessStage(lambda: RayEngine(object_store=SMALL, unhealthy_timeout=2.0))
        events = RecordingListener()
        case = CaseRun(stage, events, PATIENCE)
        try:
            await stage.engine.start(events)
            node = await case.node()
            pid = await case.value(node, os.getpid)
            found = addresses(pid for pid, _ in await stage.leftovers())
            assert found
            assert {host for host, _ in found} == {"127.0.0.1"}, "Ray listens where other machines reach it"
            call = case.hold(node)
            await case.until_began(call)
            os.kill(pid, signal.SIGSTOP)
            assert (await case.outcome(call)).ending == "crashed"
            assert await case.value(node, os.getpid) != pid
        finally:
            await stage.engine.close()
            await stage.break_off()

    run(test())


def test_an_engine_that_was_not_started_says_so():
    with pytest.raises(EngineError, match=r"start\(\)"):
        RayEngine().join("n", 1)
