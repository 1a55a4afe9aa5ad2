"""The engine runs the production loop on virtual time, the same way every time."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from tests.sim.small import GPU, broken, job, script, settings
from windlass.control.controller import Controller
from windlass.control.settings import Settings
from windlass.core.model.snapshot import Bundle, Cluster, Demand, Gang, Group, ScaleDown, amounts
from windlass.journal import open_journal
from windlass.journal.memory import MemoryJournal
from windlass.sim.faults.catalogue import KINDS, Fault
from windlass.sim.faults.presets import FAULT_SETS, BadFaultSet, fault_set_from
from windlass.sim.fuzz.random_script import arbitrary_script
from windlass.sim.run.simulation import Simulation, simulate
from windlass.sim.run.virtual_loop import EPOCH, VirtualLoop, run_virtually
from windlass.sim.workload.jobs import Job

# -- virtual time --------------------------------------------------------------------------------------------------


@pytest.mark.alone
def test_hours_pass_in_no_time_and_time_limits_fire():
    async def patient() -> float:
        begun = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(7200):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time() - begun

    begun = time.perf_counter()
    assert run_virtually(patient()) == 7200
    assert time.perf_counter() - begun < 1


def test_a_simulation_that_can_never_continue_is_reported():
    async def stuck() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="nothing can happen any more"):
        run_virtually(stuck())


# -- a run ---------------------------------------------------------------------------------------------------------


def test_jobs_are_done_and_everything_is_given_back():
    engine = Simulation(script())
    run = engine.run()
    assert (run.breaches, run.finished, run.interrupted) == ((), 3, 0)
    assert all(not cloud.living() for cloud in engine.clouds.values())


def test_the_bill_is_what_the_cloud_charges_but_for_how_late_things_are_seen():
    engine = Simulation(script(job("a", 2, duration=3600)))
    run = engine.run()
    [cloud] = engine.clouds.values()
    [ending] = cloud.history.values()
    true = 2 * 10**9 * (ending.at - 1_000_000) * 10**6
    assert run.bill == pytest.approx(true, rel=0.02)


def test_a_real_journal_serves_as_well():
    with open_journal(":memory:") as journal:
        assert simulate(script(), journal=journal).breaches == ()
        assert journal.health().ok


def test_the_journal_in_memory_gives_the_same_digest_as_the_real_one():
    with open_journal(":memory:") as real:
        forgetful = MemoryJournal(keep_all=True)
        for journal in (forgetful, real):
            simulate(script(faults=(Fault("killed", 0.02),)), journal=journal)
        output = [(one.seq, one.epoch, one.kind, one.subject, one.at) for one in real.read()]
        assert [(one.seq, one.epoch, one.kind, one.subject, one.at) for one in forgetful.read()] == output


@pytest.mark.parametrize("seed", [3, 7])
def test_the_same_seed_gives_the_same_run_for_every_hash_seed(seed):
    code = (
        "from windlass.sim.run.simulation import simulate;"
        "from windlass.sim.fuzz.random_script import arbitrary_script;"
        f"print(simulate(arbitrary_script({seed}, 0.5)).digest)"
    )
    output = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hashes in ("1", "2")
    }
    assert len(output) == 1
    assert simulate(arbitrary_script(seed, 0.5)).digest == output.pop().strip()


def test_another_seed_gives_another_run():
    stormy = tuple(Fault("stock-out", 0.5) for _ in range(1))
    assert simulate(script(faults=stormy, seed=1)).digest != simulate(script(faults=stormy, seed=2)).digest


# -- faults --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault_set", [name for name in FAULT_SETS if name != "all"])
def test_every_invariant_holds_in_every_fault_set(fault_set):
    run = simulate(script(faults=FAULT_SETS[fault_set], hours=2.0, settings=settings(GPU)))
    assert run.breaches == ()
    assert run.finished >= 3


def test_every_fault_of_the_catalogue_is_in_a_fault_set_and_occurs():
    assert {fault.kind for fault in FAULT_SETS["all"]} == KINDS
    struck: set[str] = set()
    for seed in range(60):
        stormy = replace(arbitrary_script(seed, 1.0), faults=FAULT_SETS["all"])
        struck |= simulate(stormy, thorough=False, stop_at_breach=False).faults.keys()
        if struck >= KINDS:
            break
    assert KINDS - struck == set()


def test_a_call_that_hangs_for_ever_delays_no_other():
    run = simulate(script(job("a", 2), job("b", 2, 10), faults=(Fault("launch-hangs"), Fault("terminate-hangs", 0.5))))
    assert (run.breaches, run.finished) == ((), 2)


def test_demand_for_the_impossible_and_bursts_leave_the_rest_alone():
    odd = tuple(Fault(kind, 0.5) for kind in ("demand-impossible", "demand-burst", "demand-nan", "demand-poisoned"))
    run = simulate(script(faults=odd))
    assert (run.breaches, run.finished) == ((), 3)


def test_a_controller_is_killed_often_and_nothing_is_lost():
    run = simulate(script(faults=(Fault("killed", 0.02),)))
    assert run.breaches == ()
    assert run.faults["killed"] > 5
    assert run.finished == 3


def test_a_gang_of_several_slices_starts_soon_after_its_group_sells_again():
    """Its first slice is sent ahead: it does not wait for the hour after which failures are forgotten."""
    gang = job("wide", 3, gang=Gang.SPREAD)
    engine = Simulation(script(gang, faults=(Fault("stock-out", end=900),), hours=2.0))
    run = engine.run()
    assert (run.breaches, run.finished) == ((), 1)
    [started] = {at - EPOCH for at in engine.workload.all_started.values()}
    assert 900 < started < 1500


def test_a_storm_is_read_from_a_file():
    assert fault_set_from([{"kind": "quota", "rate": 0.5, "zones": ["a"]}, "calm"]) == (
        Fault("quota", 0.5, zones=frozenset({"a"})),
    )
    for wrong, output in (
        ({}, "must be a list of faults"),
        ([{"kind": "quotas"}], r"\[0\].kind: choose one of"),
        ([{"kind": "quota", "rate": "often"}], r"\[0\].rate: must be a number"),
        ([{"kind": "quota", "speed": 1}], r"\[0\].speed"),
        (["gale"], "there is no set of faults 'gale'"),
    ):
        with pytest.raises(BadFaultSet, match=output):
            fault_set_from(wrong)


def test_waiting_demand_is_known_by_its_id():
    engine = Simulation(script(job("a", 99), hours=0.1))
    seen: list[Demand] = []
    engine.watch = lambda one: seen.extend(one.workload.waiting)
    engine.run()
    assert {demand.id for demand in seen} == {"a"}


def test_passes_that_would_see_nothing_new_may_be_left_out_and_everything_goes_the_same_way():
    dice = random.Random(4)
    large = replace(GPU, resources=amounts({"cpu": 64000, "gpu": 16000}))
    jobs = [job(f"j{n:03}", dice.randint(1, 6), dice.uniform(0, 7200), dice.uniform(60, 3000)) for n in range(80)]
    story = script(*jobs, settings=settings(large), hours=2.0)
    every, some = (Simulation(story, leaping=leaping) for leaping in (False, True))
    full, short = every.run(), some.run()
    assert short.passes < 0.8 * full.passes
    assert some.workload.all_started == every.workload.all_started
    assert (short.finished, short.actions, short.bill) == (full.finished, full.actions, full.bill)
    assert full.breaches == short.breaches == ()


def test_while_the_last_work_runs_for_days_there_are_no_checks_for_the_end():
    story = script(job("a", 2, duration=300.0), job("b", 2, 60, duration=5 * 86400.0), hours=0.5)
    every, some = (Simulation(story, leaping=leaping, lease=10**9) for leaping in (False, True))
    full, short = every.run(), some.run()
    assert (full.breaches, short.breaches) == ((), ())
    assert short.passes < full.passes - 50
    assert (short.finished, short.actions, short.bill) == (full.finished, full.actions, full.bill)
    assert short.seconds == full.seconds


def test_a_machine_that_only_stale_lists_hide_is_no_leak():
    by_hand = Fault("hand-created", rate=30.0, start=120.0, end=600.0)
    stale = Fault("list-stale", rate=1.0, start=60.0, end=1200.0)
    run = simulate(script(faults=(by_hand, stale)))
    assert run.faults["hand-created"] > 0
    assert run.faults["list-stale"] > 3
    assert broken(run) == set()


@pytest.mark.parametrize("seed", range(3, 9))
def test_hosts_reported_as_changes_are_the_ones_that_are_there(seed, monkeypatch):
    story = arbitrary_script(seed, hours=1.0)
    by_changes = simulate(story, thorough=False)
    monkeypatch.setattr(
        "windlass.sim.run.simulation.Joining",
        lambda clouds: lambda: [host for cloud in clouds for host in cloud.live_hosts()],
    )
    assert simulate(story, thorough=False) == by_changes


def test_no_controller_is_built_while_the_lease_of_a_dead_one_runs_out():
    built = list[Controller]()

    def controller(*args: object, **more: object) -> Controller:
        built.append(Controller(*args, **more))  # type: ignore[arg-type]
        return built[-1]

    both = Fault("two-leaders", rate=3600.0, start=60.0, end=62.0), Fault("killed", rate=1.0, start=70.0, end=100.0)
    engine = Simulation(script(job("a"), faults=both), controller)
    run = engine.run()
    assert (run.breaches, run.finished) == ((), 1)
    assert engine.started > 500  # once a second, until the lease of the second leader has run out
    assert len(built) < 10


def test_time_leaps_only_over_instants_without_a_waiter():
    async def output() -> list[bool]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        found = [loop.is_at_rest(3600)]
        timer = loop.call_later(60, lambda: None)
        found += [loop.is_at_rest(59), loop.is_at_rest(60)]
        timer.cancel()
        loop.call_soon(lambda: None)
        return [*found, loop.is_at_rest()]

    assert run_virtually(output()) == [True, True, False, False]


def test_slices_of_a_removed_group_take_their_places_of_a_limit_with_every_host_that_was_ordered():
    big = replace(GPU, name="big", hosts=4)
    one = Group("one", amounts({"cpu": 4000}), 9, scale_down=ScaleDown(idle_timeout=300))
    limit = Cluster(max_nodes=8)
    work = Job(Demand("b", (Bundle(amounts({"cpu": 4000}), 9),)), 60.0, 600.0)
    slow = Fault("terminate-slow", 1.0, seconds=3600.0)
    engine = Simulation(
        script(job("a"), work, faults=(slow,), settings=settings(big, one, cluster=limit)), stop_at_breach=False
    )
    removed = list[Settings]()

    def watch(_: Simulation) -> None:
        if not removed and engine.now() >= EPOCH + 20:  # while it boots: none of its hosts has joined
            removed.append(settings(one, cluster=limit))
            engine.next_settings += removed

    engine.watch = watch
    run = engine.run()
    assert removed
    assert run.finished == 1
    assert run.breaches == ()
