"""``windlass doctor`` and ``windlass plan --live``: everything is checked, nothing is changed."""

from __future__ import annotations

import asyncio
import json

import pytest
from click.testing import CliRunner

from tests.cli.clusters import CONFIG, Cluster, ticks, two_jobs_run
from windlass.cli import windlass
from windlass.core.model.snapshot import amounts
from windlass.providers.protocol import AuthFailed, Host, Instance, Offering
from windlass.sim.cloud.provider import SimulatedProvider
from windlass.workloads.queue.store import Queue

LOCAL = """
groups: {small: {resources: {cpu: 2}, max: 2, min: 1, price: 0.5}}
providers: {here: {type: local}}
workload: {type: queue}
"""


def checked(done) -> list[tuple[str, str]]:
    return [(one["verdict"], one["about"]) for one in json.loads(done.stdout)["checks"]]


def test_records_whose_provider_does_not_list_them_are_a_problem(tmp_path):
    """The simulated cloud of the command is a new one, and has none of the slices."""
    cluster = Cluster(tmp_path)
    cluster.live(two_jobs_run)
    done = cluster.run("doctor")
    page = " ".join(done.stdout.split())
    assert done.exit_code == 1
    name = cluster.world.cloud.bought[0]
    assert f"{name} is ready in the journal, but cloud does not list it" in page
    assert f"windlass why {name}" in page
    assert "note leader no controller runs" in page
    assert "2 problems" in page


def test_a_controller_that_died_is_a_problem_and_one_that_stopped_is_a_note(tmp_path):
    cluster = Cluster(tmp_path)
    cluster.live(two_jobs_run)
    assert ("note", "leader") in checked(cluster.run("doctor", "--json"))
    cluster.live(two_jobs_run, stopped=False)
    assert ("problem", "leader") in checked(cluster.run("doctor", "--json"))


def test_a_journal_from_the_future_is_a_clock_problem(tmp_path):
    cluster = Cluster(tmp_path)
    cluster.world.time += 3600
    cluster.live(two_jobs_run)
    assert ("problem", "clock") in checked(cluster.run("doctor", "--json"))


def test_a_file_that_a_setting_names_and_that_is_missing_is_a_problem(tmp_path):
    (tmp_path / "windlass.yaml").write_text(
        LOCAL.replace("{type: queue}", f'{{type: ray, address: "127.0.0.1:1", token_file: {tmp_path}/absent}}'),
        encoding="utf-8",
    )
    done = CliRunner().invoke(windlass, ["doctor", "--json", "-c", str(tmp_path / "windlass.yaml")])
    [found] = [one for one in json.loads(done.stdout)["checks"] if "token_file" in one["text"]]
    assert (done.exit_code, found["verdict"]) == (1, "problem")
    assert found["text"] == f"workload.token_file: {tmp_path}/absent cannot be read: No such file or directory"


def test_a_damaged_journal_is_reported_and_the_rest_is_checked_all_the_same(tmp_path):
    cluster = Cluster(tmp_path)
    (tmp_path / "journal.db").write_bytes(b"no journal at all, but a file of some length" * 100)
    done = cluster.run("doctor", "--json")
    assert done.exit_code == 1
    assert {("problem", "journal"), ("ok", "provider cloud"), ("ok", "workload")} <= set(checked(done))


def test_a_live_plan_is_advised_only_where_it_can_be_made(tmp_path):
    cluster = Cluster(tmp_path)
    assert f"next: windlass plan --live -c {cluster.config}" in " ".join(cluster.run("doctor").stdout.split())
    (tmp_path / "journal.db").write_bytes(b"no journal at all, but a file of some length" * 100)
    assert cluster.run("plan", "--live").exit_code == 1
    page = " ".join(cluster.run("doctor").stdout.split())
    assert "plan --live" not in page
    assert page.endswith(f"next: windlass doctor -c {cluster.config}")


def test_machines_are_not_called_unattended_while_the_journal_cannot_be_read(tmp_path, monkeypatch):
    """A controller may run: nobody is advised to end its machines."""

    async def running(self):
        return [Instance("gpu-9-9", "gpu", "running", (Host("gpu-9-9/0"),))]

    monkeypatch.setattr(SimulatedProvider, "list", running)
    cluster = Cluster(tmp_path)
    (tmp_path / "journal.db").write_bytes(b"no journal at all, but a file of some length" * 100)
    assert "windlass down" not in " ".join(cluster.run("doctor").stdout.split())
    (tmp_path / "journal.db").unlink()
    page = " ".join(cluster.run("doctor").stdout.split())
    assert "1 machine runs without a controller: gpu-9-9 -> start one" in page


def test_parts_that_do_not_fit_together_are_reported(tmp_path):
    cluster = Cluster(tmp_path, CONFIG.replace("cloud: {type: simulated}", "cloud: {type: local}"))
    done = cluster.run("doctor")
    assert done.exit_code == 1
    assert "simulated runs on simulated machines only" in " ".join(done.stdout.split())


# -- what the provider shows -----------------------------------------------------------------------------------------


@pytest.fixture
def idle(tmp_path):
    """A cluster with a journal, and without a slice."""
    cluster = Cluster(tmp_path)
    cluster.live(lambda world, controller: ticks(world, controller, 1))
    return cluster


def test_nothing_wrong_is_no_problem(idle):
    done = idle.run("doctor")
    assert done.exit_code == 0
    assert "no problems" in done.stdout


def test_refused_credentials_are_reported_as_such(idle, monkeypatch):
    async def refuse(self):
        raise AuthFailed("the key is no good")

    monkeypatch.setattr(SimulatedProvider, "list", refuse)
    done = idle.run("doctor")
    page = " ".join(done.stdout.split())
    assert done.exit_code == 1
    assert "problem provider cloud the key is no good -> give this user credentials for cloud" in page


@pytest.mark.parametrize(
    ("offering", "text"),
    [
        (Offering("other", amounts({"gpu": 8000})), "cloud does not list the machine type big"),
        (Offering("big", amounts({"gpu": 4000})), "than a big: machines would start, but the tasks would not fit"),
        (Offering("big", (), price=7 * 10**9), "and cloud has big for $7.00/h"),
    ],
)
def test_a_group_that_differs_from_its_machine_type_is_a_note(tmp_path, monkeypatch, offering, text):
    async def offerings(self):
        return (offering,)

    monkeypatch.setattr(SimulatedProvider, "offerings", offerings)
    config = CONFIG.replace("price: 2.0,", "price: 2.0, settings: {instance_type: big},", 1)
    assert config != CONFIG
    cluster = Cluster(tmp_path, config)
    cluster.live(lambda world, controller: ticks(world, controller, 1))
    done = cluster.run("doctor")
    assert text in " ".join(done.stdout.split())
    assert done.exit_code == 0


def test_a_provider_that_does_not_answer_is_reported(tmp_path, monkeypatch):
    async def hang(self):
        await asyncio.Event().wait()

    monkeypatch.setattr(SimulatedProvider, "list", hang)
    cluster = Cluster(tmp_path, CONFIG.replace("vanish_timeout: 1s", "observe_timeout: 1s"))
    done = cluster.run("doctor")
    assert done.exit_code == 1
    assert "provider cloud gave no answer within 1 s" in " ".join(done.stdout.split())


def test_an_instance_with_our_tag_and_without_a_record_is_reported(idle, monkeypatch):
    async def leaked(self):
        return [Instance("gpu-9-9", "gpu", "running", (Host("gpu-9-9/0"),))]

    monkeypatch.setattr(SimulatedProvider, "list", leaked)
    done = idle.run("doctor")
    assert done.exit_code == 1
    page = " ".join(done.stdout.split())
    assert "cloud lists gpu-9-9 as a machine of this cluster, but the journal has no record of it" in page


def test_a_slice_that_cannot_be_ended_is_reported(tmp_path):
    cluster = Cluster(tmp_path)
    cluster.world.time -= 3600

    async def story(world, controller):
        async def nothing(slice_id, epoch):
            pass

        world.cloud.terminate = nothing
        await two_jobs_run(world, controller)
        world.work.finish()
        await ticks(world, controller, 8, 20)
        await ticks(world, controller, 1, 310)

    cluster.live(story)
    name = cluster.world.cloud.bought[0]
    assert f"{name} cannot be ended: not gone after" in " ".join(cluster.run("doctor").stdout.split())
    assert f"! machine {name} cannot be ended" in cluster.output("status")


# -- before anything has run -----------------------------------------------------------------------------------------


@pytest.fixture
def fresh(tmp_path):
    config = tmp_path / "windlass.yaml"
    config.write_text(LOCAL, encoding="utf-8")
    return config


def test_before_the_first_run_the_doctor_says_how_to_begin_and_leaves_nothing_behind(fresh):
    done = CliRunner().invoke(windlass, ["doctor", "-c", str(fresh)])
    assert done.exit_code == 1
    assert "there is no journal at" in done.stdout
    assert f"windlassrun{fresh}" in "".join(done.stdout.split())  # however it is wrapped
    assert [path.name for path in fresh.parent.iterdir()] == [fresh.name]


def test_a_live_plan_before_the_first_run_is_made_and_leaves_nothing_behind(fresh):
    done = CliRunner().invoke(windlass, ["plan", "--live", "-c", str(fresh), "--detailed-exitcode"])
    assert done.exit_code == 2
    assert "Plan: launch 1 machine." in done.stdout
    assert f"windlass plan --live -c {fresh} --json" in " ".join(done.stdout.split())
    assert [path.name for path in fresh.parent.iterdir()] == [fresh.name]


@pytest.mark.parametrize("words", [("plan",), ("plan", "cluster.yaml", "--live")])
def test_a_plan_is_made_of_a_file_or_of_a_live_cluster(words):
    done = CliRunner().invoke(windlass, list(words))
    assert done.exit_code == 2
    assert "or --live to plan for a running cluster" in done.stderr


def test_a_job_that_can_never_run_is_a_problem(tmp_path):
    cluster = Cluster(tmp_path, LOCAL.replace("price: 0.5", "price: 0.5, scale_down: {idle_timeout: 60}"))
    assert (
        CliRunner()
        .invoke(
            windlass,
            ["submit", "-c", str(cluster.config), "--force", "--name", "huge", "--needs", "cpu=99", "--", "true"],
        )
        .exit_code
        == 0
    )
    done = cluster.run("doctor")
    assert done.exit_code == 1
    assert "huge (1 task) can never run" in " ".join(done.stdout.split())


def test_a_host_with_a_problem_is_named_with_the_cause(tmp_path):
    cluster = Cluster(tmp_path, LOCAL)
    queue = Queue(tmp_path / ".windlass" / "queue")
    place = queue.join("small-1/0", "small-1", {"cpu": 2000}, {})
    queue.set_problem(place, "this host cannot start tasks: Too many open files")
    queue.close()
    done = cluster.run("doctor")
    assert done.exit_code == 1
    assert "host small-1/0: this host cannot start tasks: Too many" in " ".join(done.stdout.split())
    assert "windlass drain small-1" in " ".join(done.stdout.split())


def test_a_group_that_never_shrinks_is_a_note(tmp_path):
    cluster = Cluster(tmp_path, LOCAL)
    assert ("note", "configuration") in checked(cluster.run("doctor", "--json"))
