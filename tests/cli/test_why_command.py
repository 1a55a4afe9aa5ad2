"""``windlass why`` over journals that a real controller wrote."""

from __future__ import annotations

import re
import time

import pytest

from tests.cli.clusters import Cluster, all_is_given_back, one_waits, ticks, two_jobs_run
from windlass.control.reconcile.operator_orders import Order, give
from windlass.control.record.state_reader import recovered, saved
from windlass.journal import open_journal
from windlass.providers.protocol import InsufficientCapacity


@pytest.fixture
def cluster(tmp_path):
    return Cluster(tmp_path)


def ago(instant):
    """An instant of the story, as an option takes it."""
    return f"{time.time() - instant:.3f}s ago"


def test_a_demand_that_waits_is_reported_group_by_group_with_what_would_help(cluster):
    cluster.live(one_waits)
    page = cluster.output("why", "d")
    assert page.startswith("Job d: 1 task of 8 gpu, waiting since")
    assert "1 task AT_MAX" in page
    assert "dear AT_MAX" in page
    assert "gpu AT_MAX" in page
    assert "max of gpu 2 -> 3 +$2.00/h" in page
    data = cluster.data("why", "d")
    assert (data["schema"], data["slice"], data["group"]) == ("windlass.why/v1", None, None)
    assert set(data["demand"]["groups"]) == {"dear", "gpu"}
    changes = [one["set"] for one in data["demand"]["unblocks"]]
    assert [{"path": ["groups", "gpu", "max"], "value": 3}] in changes


def test_a_demand_that_stopped_waiting_is_found_with_its_launches(cluster):
    cluster.live(all_is_given_back)
    page = cluster.output("why", "a")
    assert "Job a stopped waiting at" in page
    assert "Machines started for it" in page
    assert "machines of gpu" in page


def test_a_demand_for_which_a_slice_is_in_flight_says_which_and_about_when(cluster):
    async def story(world, controller):
        await all_is_given_back(world, controller)
        world.work.waiting = ["late"]
        world.time += 1
        await controller.tick()  # asked for, and nothing shows yet
        await controller.actuator.settle()

    cluster.live(story)
    data = cluster.data("why", "late")["demand"]
    [part] = data["parts"]
    assert (part["tasks"], part["code"]) == (1, "LAUNCHING")
    [slice_id] = part["slices"]
    assert part["starts_in"] is not None
    assert f"{slice_id} is on the way for them, ready" in cluster.output("why", "late")


def test_why_of_a_slice_says_why_it_started_and_why_in_this_group(cluster):
    cluster.live(two_jobs_run)
    name = cluster.world.cloud.bought[0]
    page = cluster.output("why", name)
    assert f"Machine {name} of gpu from cloud, $2.00/h: ready" in page
    assert "no room was left for" in page
    assert "Why gpu and not another: dear DEARER" in page
    assert "BUSY 1 task running" in page
    assert cluster.data("why", name)["slice"]["started"]["passed_over"]["dear"]["code"] == "DEARER"


def test_an_idle_slice_says_until_when_it_stays(cluster):
    async def story(world, controller):
        await two_jobs_run(world, controller)
        world.work.finish()
        await ticks(world, controller, 1, 12)

    cluster.live(story)
    data = cluster.data("why", cluster.world.cloud.bought[0])["slice"]
    assert data["now"]["code"] == "NOT_IDLE_LONG_ENOUGH"
    assert data["now"]["until"] == pytest.approx(cluster.world.time + 48, abs=0.1)
    assert "then it is drained, if nothing needs it" in cluster.output("why", data["id"])


def test_why_of_an_ended_slice_says_why_and_who_confirmed_that_it_was_empty(cluster):
    cluster.live(all_is_given_back)
    name = cluster.world.cloud.bought[0]
    page = cluster.output("why", name)
    assert re.search(r"terminated at .*, .* after its start", page)
    assert "IDLE idle" in page
    assert "the workload confirmed at" in page
    assert "that nothing ran there and nothing would start" in page
    data = cluster.data("why", name)["slice"]
    states = [one["state"] for one in data["life"]]
    assert states[-2:] == ["terminating", "terminated"]
    assert "cordoned" in states
    assert data["certificate"]["fence"] == 1


def test_why_of_a_drained_slice_names_the_operator(cluster):
    async def story(world, controller):
        await two_jobs_run(world, controller)
        give(controller.journal, Order("drain", world.cloud.bought[0], "ann@desk"), world.time)
        await ticks(world, controller, 3)

    cluster.live(story)
    page = cluster.output("why", cluster.world.cloud.bought[0])
    assert "must go MANUAL ann@desk asked to drain it" in page
    assert "the workload has not confirmed yet that nothing runs there; the machine is not ended before" in page


def test_why_of_a_group_has_its_limits_its_health_and_its_last_launches_and_refusals(cluster):
    async def story(world, controller):
        async def refuse(order, epoch):
            raise InsufficientCapacity("none left in us-1a")

        world.cloud.launch = refuse
        world.work.waiting = ["a"]
        await ticks(world, controller, 3)

    cluster.live(story)
    page = cluster.output("why", "gpu")
    assert "Group gpu: 8 gpu, from cloud, $2.00/h each" in page
    assert "at most 2" in page
    assert "release after 60 s idle" in page
    assert "backoff until" in page
    assert "STOCKOUT none left in us-1a" in page
    data = cluster.data("why", "gpu")["group"]
    assert data["health"] < 1
    assert [one["code"] for one in data["refusals"]] == ["STOCKOUT"]
    assert data["launches"][0]["count"] == 1


def test_the_past_is_shown_as_it_was(cluster):
    instants = []

    async def story(world, controller):
        await two_jobs_run(world, controller)
        instants.append(world.time + 0.5)
        world.work.finish()
        await ticks(world, controller, 8, 20)

    cluster.live(story)
    name = cluster.world.cloud.bought[0]
    then, now = cluster.data("why", name, "--at", ago(instants[0])), cluster.data("why", name)
    assert (then["slice"]["state"], then["slice"]["now"]["code"]) == ("ready", "BUSY")
    assert then["at"] == pytest.approx(instants[0], abs=0.1)
    assert now["slice"]["state"] == "terminated"


def test_what_the_journal_has_forgotten_is_reported_and_not_guessed(cluster):
    cluster.live(all_is_given_back)
    with open_journal(cluster.world.path) as journal:
        last, state = journal.last_seq(), saved(recovered(journal))
        for seq in (last - 1, last):  # nothing is compacted with fewer than two
            journal.save_state(seq, state)
        journal.compact(cluster.world.time, keep_kinds=("settings",))
    done = cluster.run("why", "gpu", "--at", ago(cluster.world.time - 100))
    assert (done.exit_code, done.stdout) == (1, "")
    assert "the journal does not reach back so far any more" in done.stderr
    assert "journal.retention" in done.stderr


@pytest.mark.parametrize(("name", "meant"), [("gpx", "gpu"), ("deer", "dear"), ("zzzzz", "groups: dear, gpu")])
def test_a_name_that_is_not_known_is_reported_with_the_nearest(cluster, name, meant):
    cluster.live(two_jobs_run)
    done = cluster.run("why", name)
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"there is no job, machine or group {name}" in done.stderr
    assert meant in done.stderr


@pytest.mark.parametrize("at", ["yesterday", "25:00", "10x ago", "2999-01-01T00:00"])
def test_a_time_that_is_none_is_reported(cluster, at):
    done = cluster.run("why", "gpu", "--at", at)
    assert done.exit_code == 2
    assert "--at" in done.stderr
