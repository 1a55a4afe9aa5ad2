"""``windlass events``, ``freeze``, ``resume`` and ``drain`` over journals that a real controller wrote."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace

import pytest

from tests.cli.clusters import CONFIG, Cluster, all_is_given_back, ticks, two_jobs_run
from windlass.config import read_config
from windlass.control.record.state_reader import recovered
from windlass.control.report.current import read_state
from windlass.control.report.orders import outcome_text
from windlass.core.model.lifecycle import State
from windlass.journal import Entry, open_journal


@pytest.fixture
def cluster(tmp_path):
    return Cluster(tmp_path)


def lines(done):
    """What a command told, without what to do next."""
    return done.stdout.partition("\nnext:")[0].strip().splitlines()


# -- events --------------------------------------------------------------------------------------------------------


def test_events_are_listed_oldest_first_with_their_codes(cluster):
    cluster.live(all_is_given_back)
    output = lines(cluster.run("events"))
    assert any("settings in use: 2 groups" in line for line in output)
    [launch] = [line for line in output if "launch 2 machines of gpu" in line]
    assert launch.endswith("[DEMAND]")
    assert output.index(launch) < len(output) // 2
    assert "terminated" in output[-1]


@pytest.mark.parametrize(
    ("source", "name"),
    [("slice gpu-1", "machine gpu-1"), ("node gpu-1/0", "host gpu-1/0"), ("workload", "workload")],
)
def test_problems_are_those_of_machines_and_hosts(cluster, source, name):
    with open_journal(cluster.config.parent / "journal.db") as journal:
        journal.append([Entry("trouble", source, time.time(), {"is": "it is too hot"})], epoch=None)
    assert f"{name} has a problem: it is too hot" in cluster.run("events").stdout


@pytest.mark.parametrize(("waited", "text"), [(0.011, "gpu-job waits: full"), (5.0, "gpu-job waits 5 s: full")])
def test_parts_of_a_second_of_waiting_are_not_listed(cluster, waited, text):
    since = {"count": 1, "reason": {"code": "AT_MAX", "why": "full"}, "waited": waited}
    with open_journal(cluster.config.parent / "journal.db") as journal:
        journal.append([Entry("waiting", "gpu-job", time.time(), {"is": since})], epoch=None)
    assert text in cluster.run("events").stdout


def test_the_release_of_an_idle_machine_is_told_with_rounded_times_and_in_plain_sentences(cluster):
    cluster.config.write_text(CONFIG.replace("idle_timeout: 60", "idle_timeout: 0.25"), encoding="utf-8")
    cluster.world.settings = read_config(cluster.config.read_bytes(), path=cluster.config).settings

    async def quick(world, controller):
        await two_jobs_run(world, controller)
        world.work.finish("a")
        await ticks(world, controller, 4, 0.134)
        await ticks(world, controller, 4)

    cluster.live(quick)
    name = next(one for one in cluster.world.cloud.bought if one not in cluster.world.work.running)
    for words in (("events",), ("events", "--json"), ("why", name)):
        page = " ".join(cluster.run(*words).stdout.split())
        assert "nothing runs there any more, and nothing new starts" in page
        assert "acknowledged" not in page
        assert re.search(r"idle 0\.\d s, limit", page)
        assert not re.search(r"0\.\d\d+ s", page)


def test_the_last_events_are_listed_when_there_are_more_than_the_limit(cluster):
    cluster.live(all_is_given_back)
    everything = lines(cluster.run("events"))
    assert lines(cluster.run("events", "--limit", "3")) == everything[-3:]
    assert lines(cluster.run("events", "--limit", "0")) == []
    assert lines(cluster.run("events", "--limit", "1000")) == everything


def test_events_since_a_time_leave_out_what_was_before(cluster):
    cluster.live(all_is_given_back)
    middle = time.time() - (cluster.world.time - 120)
    output = lines(cluster.run("events", "--since", f"{middle:.1f}s ago"))
    assert output
    assert output == lines(cluster.run("events"))[-len(output) :]
    assert not any("launch" in line for line in output)


def test_events_about_a_slice_a_group_or_a_demand(cluster):
    cluster.live(all_is_given_back)
    first, second = cluster.world.cloud.bought
    of_slice = lines(cluster.run("events", "--subject", first))
    assert "launch" in of_slice[0]
    assert all(second not in line for line in of_slice[1:])
    of_group = lines(cluster.run("events", "--subject", "gpu"))
    assert of_group == [line for line in lines(cluster.run("events")) if "gpu" in line]
    of_dear = cluster.run("events", "--subject", "dear")
    assert (lines(of_dear), of_dear.stderr) == ([], "no events of dear\n")


def test_events_for_programs_are_one_object_per_line_and_nothing_else(cluster):
    cluster.live(all_is_given_back)
    done = cluster.run("events", "--json")
    output = [json.loads(line) for line in done.stdout.splitlines()]
    assert {one["schema"] for one in output} == {"windlass.event/v1"}
    assert [one["text"] for one in output if one["kind"] == "launch"]
    assert [one["at"] for one in output] == sorted(one["at"] for one in output)


# -- orders --------------------------------------------------------------------------------------------------------


def test_an_order_without_a_controller_is_kept_and_obeyed_by_the_next(cluster):
    cluster.live(two_jobs_run)
    assert "no controller runs: gpu will be frozen as soon as one does" in cluster.output("freeze", "gpu")

    async def next_one(world, controller):
        await ticks(world, controller, 1)
        [by] = controller.controller_state.fleet.frozen.values()
        assert "@" in by

    cluster.live(next_one)
    assert "gpu is frozen already, by" in cluster.output("freeze", "gpu")


def test_resume_without_a_group_resumes_each_that_was_frozen(cluster):
    cluster.live(two_jobs_run)
    for group in ("gpu", "dear"):
        cluster.output("freeze", group)
    cluster.live(lambda world, controller: ticks(world, controller, 1))
    assert "no controller runs: dear, gpu will be resumed" in cluster.output("resume")
    cluster.live(lambda world, controller: ticks(world, controller, 1))
    assert cluster.data("status")["frozen"] == {}
    assert "nothing is frozen" in cluster.output("resume")
    assert "gpu is not frozen" in cluster.output("resume", "gpu")


def test_a_freeze_that_no_controller_has_processed_yet_can_be_resumed_and_given_again(cluster):
    cluster.live(lambda world, controller: world.ticks(controller, 1))
    assert "gpu will be frozen" in cluster.output("freeze", "gpu")
    assert "gpu is frozen already" in cluster.output("freeze", "gpu")
    assert "gpu will be resumed" in cluster.output("resume", "gpu")
    assert "gpu is not frozen" in cluster.output("resume", "gpu")
    cluster.live(lambda world, controller: world.ticks(controller, 1))
    assert cluster.data("status")["frozen"] == {}


def test_one_group_cannot_be_resumed_while_everything_is_frozen(cluster):
    cluster.live(two_jobs_run)
    cluster.output("freeze")
    cluster.live(lambda world, controller: ticks(world, controller, 1))
    done = cluster.run("resume", "gpu")
    assert done.exit_code == 1
    assert "gpu is frozen with all other groups" in done.stderr


def test_a_drain_is_obeyed_and_can_be_taken_back(cluster):
    cluster.live(two_jobs_run)
    name = cluster.world.cloud.bought[0]
    answer = cluster.data("drain", name)
    assert (answer["schema"], answer["what"], answer["subject"], answer["heard"]) == (
        "windlass.order/v1",
        "drain",
        name,
        False,
    )
    cluster.live(lambda world, controller: ticks(world, controller, 3))
    with open_journal(cluster.world.path) as journal:
        assert recovered(journal).fleet.slices[name].state == State.DRAINING
    assert "2 machines are there: 1 busy, 1 leaving." in cluster.data("status")["headline"]
    assert cluster.data("why", name)["slice"]["final"] is False
    assert "is being released already" in cluster.output("drain", name)
    assert f"the order to drain {name} will be withdrawn" in cluster.output("drain", "--undo", name)
    cluster.live(lambda world, controller: ticks(world, controller, 1))
    assert f"there is no order to drain {name}" in cluster.output("drain", "--undo", name)


def test_withdrawing_a_drain_that_is_final_is_refused_and_not_offered(cluster):
    cluster.live(two_jobs_run)
    name = cluster.world.cloud.bought[0]
    cluster.world.work.looking = lambda view: replace(
        view, acknowledged=tuple(replace(one, final=True) for one in view.acknowledged)
    )
    cluster.output("drain", name)
    cluster.live(lambda world, controller: ticks(world, controller, 3))
    assert "drain --undo" not in cluster.run("drain", name).stdout
    assert cluster.data("why", name)["slice"]["final"] is True
    done = cluster.run("drain", "--undo", name)
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"the drain of {name} cannot be withdrawn" in done.stderr
    with open_journal(cluster.world.path) as journal:
        assert "cannot be withdrawn" in outcome_text(read_state(journal), "undrain", name)


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (("freeze", "gpx"), "there is no group gpx; did you mean gpu?"),
        (("resume", "zzz"), "there is no group zzz; there are dear, gpu"),
        (("drain", "nobody"), "there is no machine nobody; there are"),
    ],
)
def test_an_order_about_nothing_that_is_known_is_not_given(cluster, words, output):
    cluster.live(two_jobs_run)
    before = cluster.run("events", "--json").stdout
    done = cluster.run(*words)
    assert (done.exit_code, done.stdout) == (1, "")
    assert output in done.stderr
    assert cluster.run("events", "--json").stdout == before


def test_a_slice_that_is_gone_is_not_drained(cluster):
    cluster.live(all_is_given_back)
    name = cluster.world.cloud.bought[0]
    done = cluster.run("drain", name)
    assert done.exit_code == 1
    assert f"{name} is terminated" in done.stderr
