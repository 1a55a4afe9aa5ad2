"""Two hundred random simulations without a violated invariant, and regression tests of seeds that had one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from tests.sim.small import broken, job, script
from windlass.cli.commands.whatif.simulate import command
from windlass.control import controller as controller_module
from windlass.control.act.actuator import Actuator
from windlass.control.reconcile import cycle
from windlass.core.planner import plan
from windlass.sim.faults.catalogue import Fault
from windlass.sim.faults.presets import FAULT_SETS, JOURNAL, OVERTAKEN
from windlass.sim.fuzz.shrink import as_test, shrunken
from windlass.sim.fuzz.swarm import SwarmTask, outcome_of
from windlass.sim.run.script import Script
from windlass.sim.run.simulation import simulate

PARTS, SEEDS = 20, 200
SINCE = frozenset(fault.kind for fault in (*JOURNAL, *OVERTAKEN))
"""Faults that were added after the first seeds below were found."""
SINCE_LONG_RUNS = frozenset(fault.kind for fault in OVERTAKEN)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_every_invariant_holds_in_every_simulation(part):
    for seed in range(part, SEEDS, PARTS):
        outcome = outcome_of(SwarmTask(seed, hours=1.0))
        assert outcome.sentences == [], f"windlass simulate swarm --seeds 1 --first {seed} --hours 1"


def test_a_simulation_that_violates_an_invariant_is_reported_shrunk_and_can_be_run_as_a_test(monkeypatch):
    monkeypatch.setattr(controller_module, "plan", _never_releasing)
    result = CliRunner().invoke(command, ["swarm", "--seeds", "3", "--first", "2", "--hours", "0.5", "--jobs", "1"])
    assert result.exit_code == 1
    assert "violated an invariant" in result.output
    text = result.output[result.output.index('"""Seed') :]
    names: dict = {}
    exec(compile(text, "reproduction", "exec"), names)
    [test] = [value for name, value in names.items() if name.startswith("test_")]
    with pytest.raises(AssertionError):
        test()
    monkeypatch.setattr(controller_module, "plan", plan)
    test()


def _never_releasing(snapshot, memo=None):
    return replace(plan(snapshot, memo), drain=())


def test_a_swarm_that_is_interrupted_prints_what_it_has_found_so_far(monkeypatch):
    from windlass.cli.commands.whatif import simulate

    def interrupted(tasks, _processes):
        yield outcome_of(next(iter(tasks)))
        raise KeyboardInterrupt

    monkeypatch.setattr(simulate, "outcomes", interrupted)
    result = CliRunner().invoke(command, ["swarm", "--seeds", "5", "--hours", "0.2", "--jobs", "1"])
    assert result.exit_code == 130
    assert result.stdout.startswith("1 cluster, ")
    assert "interrupted after 1 of 5 clusters" in result.stderr


def test_a_swarm_without_a_breach_ends_well_and_is_counted():
    result = CliRunner().invoke(command, ["swarm", "--seeds", "2", "--hours", "0.2", "--jobs", "1", "--json"])
    assert result.exit_code == 0, result.output
    tally = json.loads(result.output)
    assert (tally["seeds"], tally["breaches"]) == (2, [])
    assert tally["simulated_hours"] > 2


def test_a_storm_that_is_neither_a_name_nor_a_file_is_reported():
    result = CliRunner().invoke(command, ["swarm", "--storm", "gale"])
    assert result.exit_code == 2
    assert "gale is neither a file nor one of calm, launch" in result.output


def test_shrinking_leaves_only_what_is_needed():
    whole = script(job("a"), job("b"), job("c"), job("d"), job("e"))

    def breaks(one: Script) -> bool:
        return any(each.id == "d" for each in one.jobs)

    small = shrunken(whole, breaks)
    assert [one.id for one in small.jobs] == ["d"]
    assert small.hours <= 0.1
    names: dict = {}
    exec(as_test(small, "as it was"), names)


@pytest.mark.parametrize(
    ("task", "behaviour"),
    [
        (SwarmTask(96, 2.0), "a slice that never showed keeps its place until it cannot come any more"),
        (SwarmTask(5057, 1.0, FAULT_SETS["all"]), "also when it was throttled first, and asked for again"),
        (SwarmTask(246, 2.0), "a machine with half of what was ordered is never ready"),
        (SwarmTask(654, 2.0), "a clock that leaps ahead gives up no slice that was out of sight for a moment"),
        (SwarmTask(5007, 1.0, FAULT_SETS["all"]), "and no launch that was asked for a moment ago"),
        (SwarmTask(20265, 2.0), "work and a spare do not change places for ever"),
        (SwarmTask(100667, 2.0), "nor is a slice that still boots by the list, and already works"),
        (SwarmTask(50347, 2.0), "nor are hosts that are unwell and at work, because a list has lost them"),
        (SwarmTask(51464, 2.0), "work that cannot be elsewhere is not evicted to save money, again and again"),
        (
            SwarmTask(30093, 2.0),
            "hosts that the workload does not see are not given up with the work that they may hold",
        ),
    ],
)
def test_what_the_swarm_has_found_stays_mended(task, behaviour):
    assert broken(simulate(_without(task.script(), SINCE))) == set(), behaviour


@pytest.mark.parametrize(
    ("task", "behaviour"),
    [
        (SwarmTask(906130, 24.0), "a host that was ordered and never made takes no place of a limit"),
        (SwarmTask(950917, 24.0), "two lists that miss a slice, and no answer in between, do not end its work"),
        (
            SwarmTask(1011407, 24.0),
            "a twin is not a breach while a dead leader's lease keeps every controller from observing",
        ),
        (SwarmTask(3000229, 24.0), "a machine that came and went while no controller ran cannot be billed"),
        (
            SwarmTask(3200422, 24.0),
            "a queued launch whose place went to another launch is cancelled on unknown input too",
        ),
        (SwarmTask(3200457, 24.0), "a slice whose work is seen while its provider is silent is billed on"),
        (SwarmTask(3100163, 24.0), "a machine that was never charged gets nothing back after the clock was set"),
    ],
)
def test_what_long_runs_of_the_swarm_have_found_stays_mended(task, behaviour):
    assert broken(simulate(_without(task.script(), SINCE_LONG_RUNS))) == set(), behaviour


@pytest.mark.parametrize(
    ("seed", "behaviour"),
    [
        (7100014, "the time in which a controller was stopped, between two lists that lost a slice, ends no work"),
        (3300587, "an end before the order is by another clock, and changes no bill"),
        (3300711, "a slice that the last list before a gap had lost is billed up to that list"),
        (3400045, "an end in a gap that has not ended yet is billed late, and that is no breach"),
        (3400525, "the certificate of a slice is that of the newest controller, whichever sees its end first"),
        (3700170, "a slice whose bill has stopped before a gap is billed up to there, also if it is being replaced"),
        (3700387, "a slice whose bill has stopped before a gap is billed up to there, also if it is released after it"),
        (3500703, "a machine of a user's that is found while the clock is ahead is not billed for the time before it"),
    ],
)
def test_what_the_swarm_has_found_with_all_faults_stays_mended(seed, behaviour):
    assert broken(simulate(SwarmTask(seed, 24.0).script())) == set(), behaviour


def _without(found: Script, kinds: frozenset[str]) -> Script:
    return replace(found, faults=tuple(fault for fault in found.faults if fault.kind not in kinds))


def test_the_swarm_finds_a_controller_that_goes_on_after_a_provider_has_refused_it_within_ten_seeds(monkeypatch):
    monkeypatch.setattr(Actuator, "overtaken", property(lambda self: "", lambda self, error: None))
    found = (text for seed in range(10) for text in outcome_of(SwarmTask(seed, hours=2.0)).sentences)
    assert any("S12" in text and "has refused" in text for text in found)


SET_CLOCKS = (
    Fault("clock-jumps", 10.0, seconds=600),
    Fault("unwell", 0.5, seconds=40),
    Fault("heartbeat-lost", 0.5, seconds=40),
    Fault("page-lost", 0.2, seconds=10),
)


@pytest.mark.parametrize("seed", [3, 6, 12])
def test_clocks_that_jump_change_neither_absence_nor_the_bill(seed, monkeypatch):
    task = SwarmTask(seed, 3.0, SET_CLOCKS)
    assert broken(simulate(task.script())) == set()
    monkeypatch.setattr(cycle, "by_clock", lambda fleet, _jump, _step, _unobserved: fleet)
    assert broken(simulate(task.script())) != set(), "the clock jumps of these seeds matter"
