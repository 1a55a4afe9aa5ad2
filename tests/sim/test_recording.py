"""The work read from a journal equals the recorded work, and a model of it gives the recorded result."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.sim.small import GPU, job, script, settings
from windlass.control import controller as controller_module
from windlass.control.settings import Settings
from windlass.core.model.snapshot import Gang, amounts
from windlass.journal import open_journal
from windlass.journal.memory import MemoryJournal
from windlass.providers.protocol import Offering
from windlass.sim.cloud.machines import MachineKind
from windlass.sim.faults.catalogue import Fault
from windlass.sim.run.script import Script
from windlass.sim.run.simulation import Simulation
from windlass.sim.whatif.durations import explained
from windlass.sim.whatif.recording import Recording, recording_of
from windlass.sim.whatif.rerun import modelled
from windlass.sim.workload.jobs import Job

ONE, TWO = amounts({"gpu": 1000}), amounts({"gpu": 2000})
SIX = replace(GPU, max=6, boot_seconds=1000)
SLOW = MachineKind(Offering("gpu", GPU.resources, 1, GPU.price, (), True), boot=90, join=20, spread=0.3)


def busy_day(seed: int = 5, count: int = 40) -> list[Job]:
    dice = random.Random(seed)
    return [
        job(f"j{n}", dice.choice([1, 1, 2, 4]), dice.uniform(0, 4 * 3600), dice.lognormvariate(6.5, 0.8))
        for n in range(count)
    ]


def told_by(story: Script) -> Recording:
    journal = MemoryJournal(keep_all=True)
    Simulation(story, journal=journal, thorough=False, stop_at_breach=False).run()
    found = recording_of(journal)
    assert found is not None
    return found


def day(*jobs: Job, faults: tuple[Fault, ...] = (), **more) -> Script:
    return script(*jobs, hours=5.0, faults=faults, settings=settings(SIX), kinds=(SLOW,), **more)


def work(jobs: Sequence[Job]) -> float:
    return sum(one.duration * one.demand.count for one in jobs)


def other(was: Settings, **changes) -> Settings:
    return replace(was, groups=tuple(replace(one, group=replace(one.group, **changes)) for one in was.groups))


# -- what a change of a node means ---------------------------------------------------------------------------------


def test_what_waited_begins_before_anything_that_was_never_seen():
    found = explained({"gpu": 2000}, 2, {ONE: 3}, {}, [ONE, TWO])
    assert (found.begun, found.ended, list(found.appeared)) == ({ONE: 2}, {}, [])


def test_a_task_that_ends_and_two_that_start_are_distinguished_by_their_needs():
    found = explained({"gpu": 0}, 1, {ONE: 2}, {TWO: 1}, [])
    assert (found.begun, found.ended) == ({ONE: 2}, {TWO: 1})


def test_a_task_that_was_never_seen_waiting_has_a_known_shape_or_an_equal_share():
    assert explained({"gpu": 3000}, 2, {}, {}, [ONE, TWO]).appeared in ([ONE, TWO], [TWO, ONE])
    assert (
        list(explained({"gpu": 1000, "cpu": 4000}, 2, {}, {}, []).appeared) == [amounts({"cpu": 2000, "gpu": 500})] * 2
    )
    assert list(explained({"gpu": 3000}, 2, {}, {}, []).appeared) == [amounts({"gpu": 3000})], "no task has 1.5 devices"


def test_what_does_not_add_up_is_counted():
    found = explained({"cpu": -5}, -1, {}, {ONE: 2}, [])
    assert (found.begun, found.ended) == ({}, {ONE: 1})


# -- the work ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_all_work_is_found_however_it_was_crowded(seed):
    jobs = busy_day(seed)
    found = told_by(day(*jobs))
    assert sum(one.demand.count for one in found.jobs) == sum(one.demand.count for one in jobs)
    assert work(found.jobs) == pytest.approx(work(jobs), rel=1e-4)
    assert {bundle.needs for one in found.jobs for bundle in one.demand.bundles} == {ONE}


def test_arrivals_and_gangs_and_the_lengths_of_each_job_are_kept():
    jobs = [job("one", 2, 0, 700), job("gang", 4, 50, 900, gang=Gang.ANY), job("late", 1, 4000, 100)]
    found = {one.id: one for one in told_by(day(*jobs)).jobs}
    assert {name: (one.arrives, one.demand.count) for name, one in found.items()} == {
        "one": (0, 2),
        "gang": (50, 4),
        "late": (4000, 1),
    }
    assert {name: round(one.duration) for name, one in found.items()} == {"one": 700, "gang": 900, "late": 100}
    assert found["gang"].demand.gang == Gang.ANY


def test_work_that_loses_its_machine_is_one_piece_of_work_from_its_first_arrival():
    jobs = busy_day(count=20)
    taken = Fault("preempted", 0.6, seconds=900)
    found = told_by(day(*jobs, faults=(taken,)))
    assert sum(one.demand.count for one in found.jobs) == sum(one.demand.count for one in jobs)
    assert work(found.jobs) == pytest.approx(work(jobs), rel=0.05)
    assert [fault.kind for fault in found.odds.faults()] == ["preempted"]
    assert any("preempted or dies" in one for one in found.all_assumptions(found.settings))


def test_what_still_runs_or_waits_when_the_journal_ends_is_reported():
    journal = MemoryJournal(keep_all=True)
    story = day(job("short", 12, 0, 300), job("very long", 30, 200, 9000))
    Simulation(replace(story, hours=0.5), journal=journal, thorough=False, to_the_end=False).run()
    found = recording_of(journal)
    assert found is not None
    output = " ".join(found.all_assumptions(found.settings))
    assert "still ran when the journal ends" in output
    assert "still waited when the journal ends" in output
    assert (found.happened.tasks, found.happened.waiting) == (42, 18)


def test_a_compacted_journal_gives_the_rest_and_what_ran_already(tmp_path, monkeypatch):
    monkeypatch.setattr(controller_module, "SAVE_AFTER", 60)
    with open_journal(tmp_path / "journal.db") as journal:
        Simulation(day(*busy_day()), journal=journal, thorough=False).run()
        whole = recording_of(journal)
        journal.compact(1e12)
        rest = recording_of(journal)
    assert whole is not None
    assert rest is not None
    assert whole.since < rest.since < rest.until == whole.until
    assert 0 < rest.happened.dollars < whole.happened.dollars
    assert work(rest.jobs) < work(whole.jobs)


@pytest.mark.parametrize("saved_every", [60, 10**9])
def test_from_an_instant_on_it_gives_what_came_after(tmp_path, monkeypatch, saved_every):
    monkeypatch.setattr(controller_module, "SAVE_AFTER", saved_every)
    with open_journal(tmp_path / "journal.db") as journal:
        Simulation(day(*busy_day()), journal=journal, thorough=False).run()
        whole = recording_of(journal)
        assert whole is not None
        assert recording_of(journal, whole.since - 1000) == whole
        assert recording_of(journal, whole.until + 1) is None
        for share in (0.25, 0.5, 0.75):
            instant = whole.since + share * (whole.until - whole.since)
            rest = recording_of(journal, instant)
            assert rest is not None
            assert (rest.since, rest.until) == (instant, whole.until)
            assert 0 < rest.happened.dollars < whole.happened.dollars
            assert sum(rest.happened.accounts.values()) == pytest.approx(rest.happened.dollars)
            assert 0 < work(rest.jobs) < work(whole.jobs)
            assert modelled(rest, rest.settings)[0].hours == pytest.approx((whole.until - instant) / 3600)


# -- the model -----------------------------------------------------------------------------------------------------


def test_a_model_of_the_recorded_settings_is_close_to_the_recording():
    found = told_by(day(*busy_day(), faults=(Fault("stock-out", 0.5),), seed=4))
    truth, model = found.happened, modelled(found, found.settings)[0]
    assert model.dollars == pytest.approx(truth.dollars, rel=0.06)
    assert model.node_hours == pytest.approx(truth.node_hours, rel=0.06)
    assert model.wait_p95 == pytest.approx(truth.wait_p95, rel=0.25)
    assert (model.tasks, model.hours) == (truth.tasks, truth.hours)
    assert truth.refused > 0
    assert model.refused > 0


def test_boots_are_those_of_the_journal_and_not_those_of_the_configuration():
    found = told_by(day(*busy_day()))
    boots = found.odds.groups["gpu"].boots
    assert 40 < min(boots) < max(boots) < 300, "the group says 1000 s"
    (kind,) = found.odds.kinds(found.settings)
    assert kind.boots == tuple(sorted(boots))


def test_a_larger_limit_costs_no_work_and_shortens_the_waits_and_a_longer_timeout_costs_idle_time():
    found = told_by(day(*busy_day()))
    as_it_was = modelled(found, found.settings)[0]
    roomy = modelled(found, other(found.settings, max=20))[0]
    patient = modelled(found, other(found.settings, scale_down=replace(GPU.scale_down, idle_timeout=3000)))[0]  # type: ignore[type-var]
    assert roomy.wait_p95 < 0.5 * as_it_was.wait_p95
    assert patient.accounts["idle"] > 1.5 * as_it_was.accounts["idle"]
    assert patient.launches < as_it_was.launches


def test_the_same_seed_gives_the_same_model():
    found = told_by(day(*busy_day(count=10), faults=(Fault("stock-out", 0.5),)))
    assert modelled(found, found.settings, seed=3) == modelled(found, found.settings, seed=3)


def test_what_is_measured_of_a_journal_is_what_the_accounts_say():
    journal = MemoryJournal(keep_all=True)
    run = Simulation(day(*busy_day()), journal=journal, thorough=False).run()
    found = recording_of(journal)
    assert found is not None
    assert found.happened.dollars * 3600 * 10**15 == pytest.approx(run.bill)
    assert found.happened.node_hours * GPU.price / 10**9 == pytest.approx(found.happened.dollars)  # type: ignore[operator]


def test_a_journal_of_one_instant_gives_nothing():
    assert recording_of(MemoryJournal()) is None
