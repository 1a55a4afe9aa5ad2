"""``windlass status`` over journals that a real controller wrote."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.cli.clusters import CONFIG, Cluster, one_waits, ticks, two_jobs_run
from windlass.cli.commands.look.status import first_sentence
from windlass.control.reconcile.operator_orders import Order, give
from windlass.providers.protocol import InsufficientCapacity, ProviderError


@pytest.fixture
def cluster(tmp_path):
    return Cluster(tmp_path)


def test_slices_groups_and_cost_are_reported(cluster):
    cluster.live(two_jobs_run)
    page = cluster.output("status")
    assert re.search(r"none runs; last seen \d+ min ago, when it was stopped", page)
    assert "gpu 2 0 0 2 2 $4.00" in page
    assert "at its max" in page
    assert page.count("BUSY 1 task running") == 2
    assert re.search(r"Cost: \$4\.00/h now, \$4\.00/h planned; spent so far \$0\.[6-9]", page)
    assert "next: windlass doctor" in page


def test_the_same_for_programs(cluster):
    cluster.live(two_jobs_run)
    data = cluster.data("status")
    assert data["schema"] == "windlass.status/v1"
    assert data["leader"]["alive"] is False
    assert [(one["name"], one["ready"], one["busy"], one["max"]) for one in data["groups"]] == [
        ("dear", 0, 0, 1),
        ("gpu", 2, 2, 2),
    ]
    assert {(one["state"], one["tasks"], one["code"]) for one in data["slices"]} == {("ready", 1, "BUSY")}
    assert data["hourly_cost"] == {"now": 4.0, "planned": 4.0}
    parts = {kind: cost for kind, cost in data["bill"].items() if kind != "total"}
    assert data["bill"]["total"] == pytest.approx(sum(parts.values()))
    assert data["settings_differ"] is False


@pytest.mark.parametrize("by", ["group", "account", "job"])
def test_the_accounts_of_a_stopped_controller_add_up_to_the_bill_in_status(cluster, by):
    cluster.live(two_jobs_run)
    bill, accounts = cluster.data("status")["bill"], cluster.data("cost", "--by", by)
    elapsed = accounts["until"] - accounts["since"]
    assert elapsed > 60
    assert accounts["total"]["total"] == pytest.approx(bill["total"], abs=4.0 / 3600 * 60)
    assert sum(row["total"] for row in accounts["rows"]) == pytest.approx(accounts["total"]["total"])


def test_a_leader_that_died_is_distinguished_from_one_that_was_stopped(cluster):
    cluster.live(two_jobs_run, stopped=False)
    assert "as one, which did not stop cleanly" in cluster.output("status")


def test_a_leader_that_lives_is_named(cluster):
    cluster.world.time += 600
    cluster.live(two_jobs_run, stopped=False)
    page = cluster.output("status")
    assert "Controller: one" in page
    assert page.endswith("windlass events --follow" + f" -c {cluster.config}")


def test_what_waits_has_its_code_and_its_reason(cluster):
    cluster.live(one_waits)
    page = cluster.output("status")
    assert "Waiting: 1 task" in page
    assert "d 1 ? AT_MAX" in page
    assert f"windlass why d -c {cluster.config}" in page


def test_a_countdown_stops_when_the_controller_was_last_seen(cluster):
    async def story(world, controller):
        await two_jobs_run(world, controller)
        world.work.finish()
        await ticks(world, controller, 1, 12)

    cluster.live(story)
    assert "NOT_IDLE_LONG_ENOUGH idle 12 s, limit 60 s" in cluster.output("status")


def test_a_failing_source_is_named_at_the_top(cluster):
    async def story(world, controller):
        await two_jobs_run(world, controller)
        world.cloud.failing = ProviderError("the region is down")
        await ticks(world, controller, 2)

    cluster.live(story)
    page = cluster.output("status")
    assert "! provider cloud the region is down; nothing is released while it is unknown" in page
    assert page.index("Problems") < page.index("Groups")
    assert cluster.data("status")["troubles"] == {"provider cloud": "the region is down"}


def test_a_group_that_is_refused_says_until_when_and_why(cluster):
    async def story(world, controller):
        async def refuse(order, epoch):
            raise InsufficientCapacity("none left in us-1a")

        world.cloud.launch = refuse
        world.work.waiting = ["a"]
        await ticks(world, controller, 3)

    cluster.live(story)
    assert "backoff until" in cluster.output("status")
    [_, gpu] = cluster.data("status")["groups"]
    assert gpu["availability"]["state"] == "backoff"
    assert "none left in us-1a" in gpu["availability"]["why"]


def test_what_is_frozen_is_reported_with_who_did_it(cluster):
    async def story(world, controller):
        give(controller.journal, Order("freeze", "gpu", "ann@desk"), world.time)
        await ticks(world, controller, 2)

    cluster.live(story)
    page = cluster.output("status")
    assert "Frozen: gpu, by ann@desk: nothing is bought or released" in page
    assert "next: windlass doctor" in page
    assert "windlass resume" in page


def test_long_lists_are_cut_and_all_shows_all(tmp_path):
    cluster = Cluster(tmp_path, CONFIG.replace("max: 2", "max: 25"))

    async def story(world, controller):
        world.work.waiting = [f"job-{index}" for index in range(25)]
        await ticks(world, controller, 4)

    cluster.live(story)
    assert "and 5 more: windlass status --all" in cluster.output("status")
    assert cluster.run("status").stdout.count(" ready ") == 20 + 1  # and the head of a column
    assert cluster.run("status", "--all").stdout.count(" ready ") == 25 + 1


def test_a_file_that_was_changed_meanwhile_is_reported(cluster):
    cluster.live(two_jobs_run)
    cluster.config.write_text(CONFIG.replace("max: 2", "max: 3"), encoding="utf-8")
    assert "the configuration file has changed since the controller was last seen" in cluster.output("status")


@pytest.mark.parametrize(
    "words",
    [("status",), ("why", "a"), ("events",), ("freeze",), ("resume",), ("drain", "s-1")],
    ids=lambda one: one[0],
)
def test_a_journal_that_is_not_there_is_one_line_with_the_remedy(cluster, words):
    done = cluster.run(*words)
    assert (done.exit_code, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert f"there is no journal at {cluster.world.path}" in done.stderr
    assert f"windlass run {cluster.config}" in done.stderr
    assert not cluster.world.path.exists()


def test_the_first_line_says_how_many_machines_there_are_what_they_cost_and_what_waits(cluster):
    cluster.live(one_waits)
    first = cluster.run("status").stdout.splitlines()[0]
    assert first.startswith("no controller runs; this is what was known at ")
    assert "min ago: 3 machines, $13.00/h, 1 waiting" in cluster.output("status")


def test_a_starting_machine_whose_host_has_a_problem_says_so_and_not_when_it_is_ready(cluster):
    text = "this host cannot start tasks: Too many open files"

    async def story(world, controller):
        await two_jobs_run(world, controller)
        known = set(world.cloud.bought)

        def troubled(view):
            nodes = [one if one.slice_id in known else replace(one, healthy=False, trouble=text) for one in view.nodes]
            return replace(view, nodes=tuple(nodes))

        world.work.looking = troubled
        world.work.waiting = ["c"]
        world.work._take = lambda *_: None  # the host takes no work
        await ticks(world, controller, 6)

    cluster.live(story)
    [starting] = [one for one in cluster.data("status")["slices"] if one["state"] == "initializing"]
    assert starting["why"].endswith(f"host {starting['id']}/0 has a problem: {text}")
    assert starting["ready_in"] is None
    page = cluster.output("status")
    assert "ready any moment" not in page
    assert f"is on the way for them, but host {starting['id']}/0 has a problem" in page


def row(name, state, tasks, done):
    return {"name": name, "state": state, "tasks": tasks, "done": done, "failed": 0, "cancelled": 0}


@pytest.mark.parametrize(
    ("jobs", "text"),
    [
        ([row("a", "running", 24, 18)], ", 18 of 24 tasks done, "),
        ([row("a", "running", 20, 18), row("b", "waiting", 4, 0)], ", 18 of 24 tasks done, "),
        ([row("a", "done", 9, 9), row("b", "running", 4, 1)], ", 1 of 4 tasks of 1 open job done, "),
        ([row("a", "done", 9, 9), row("b", "running", 4, 1), row("c", "waiting", 2, 0)], "1 of 6 tasks of 2 open jobs"),
        ([row("a", "done", 9, 9), row("b", "done", 4, 4)], ", 13 of 13 tasks done, "),
    ],
)
def test_the_first_line_says_which_tasks_it_counts(cluster, jobs, text):
    cluster.live(two_jobs_run)
    assert text in first_sentence({**cluster.data("status"), "jobs": jobs})
