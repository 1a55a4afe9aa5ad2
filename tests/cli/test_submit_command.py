"""``windlass submit`` as a user meets it: status, streams, and what is in the queue afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from windlass.cli.commands.jobs import jobs, submit
from windlass.core.model.snapshot import amounts
from windlass.workloads.queue.store import Queue

CLUSTER = "groups: {a: {resources: {cpu: 1, memory: 4Gi, gpu: 1}, max: 1}}\nproviders: {here: {type: local}}\n"


@pytest.fixture
def queue_directory(tmp_path, monkeypatch):
    config = tmp_path / "windlass.yaml"
    config.write_text(CLUSTER + "workload: {type: queue, directory: queue}\n", encoding="utf-8")
    monkeypatch.setenv("WINDLASS_CONFIG", str(config))
    return tmp_path / "queue"


def submitted(*words: str):
    return CliRunner().invoke(submit.command, list(words))


def test_a_command_is_put_into_the_queue_and_what_to_do_next_is_reported(queue_directory):
    done = submitted("--", "python", "train.py", "--fast")
    assert done.exit_code == 0
    assert done.stdout == "job-1: 1 task, 1 cpu\n\nnext: windlass logs job-1 --follow\n      windlass why job-1\n"
    (job,) = Queue(queue_directory).jobs()
    assert (job.command, job.tasks, job.needs) == (("python", "train.py", "--fast"), 1, amounts({"cpu": 1000}))


def test_every_option_of_a_job_can_be_given(queue_directory):
    needs = "cpu=500m, memory=2Gi"
    done = submitted("--name", "nightly", "--count", "30", "--needs", needs, "--retries", "2", "--json", "--", "make")
    output = json.loads(done.stdout)
    assert output["needs"] == {"cpu": "0.5", "memory": "2Gi"}
    assert (output["schema"], output["name"], output["tasks"], output["retries"]) == (
        "windlass.job/v1",
        "nightly",
        30,
        2,
    )
    assert output["logs"] == str(queue_directory / "logs" / "nightly")
    (job,) = Queue(queue_directory).jobs()
    assert (job.needs, job.waiting) == (amounts({"cpu": 500, "memory": 2 * 2**30}), 30)


def test_options_after_the_command_are_the_commands(queue_directory):
    assert submitted("ls", "--count", "3").exit_code == 0
    (job,) = Queue(queue_directory).jobs()
    assert (job.command, job.tasks) == (("ls", "--count", "3"), 1)


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (("--needs", "cpu", "--", "ls"), "'cpu' is not a need; write resource=amount, such as cpu=1,memory=2Gi"),
        (("--needs", "cpu=much", "--", "ls"), "cpu must be a number such as 4, 500m or 16Gi, is 'much'"),
        (("--needs", "cpu=1,cpu=2", "--", "ls"), "cpu is given twice"),
        (("--needs", "gpu=1.5", "--", "ls"), "above 1 it must be a whole number of devices"),
        (("--needs", "cpu=0", "--", "ls"), "a task must need something"),
        (("--name", "a/b", "--", "ls"), "cannot be named 'a/b'"),
        (("--count", "0", "--", "ls"), "--count"),
        ((), "COMMAND"),
    ],
)
def test_what_cannot_be_submitted_is_reported_in_words(queue_directory, words, output):
    done = submitted(*words)
    assert done.exit_code != 0
    assert output in done.stderr
    assert done.stdout == ""
    assert not queue_directory.exists() or Queue(queue_directory).jobs() == []


def test_a_name_that_is_taken_is_reported(queue_directory):
    assert submitted("--name", "a", "--", "ls").exit_code == 0
    done = submitted("--name", "a", "--", "ls")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "there is a job a already; give another name, or none and it gets one" in done.stderr


def test_a_cluster_without_a_queue_gets_the_remedy(tmp_path):
    config = tmp_path / "windlass.yaml"
    config.write_text(CLUSTER + "workload: {type: simulated}\n", encoding="utf-8")
    done = submitted("-c", str(config), "--", "ls")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "workload.type is simulated" in done.stderr
    assert "workload: {type: queue}" in done.stderr
    assert [path.name for path in Path(tmp_path).iterdir()] == ["windlass.yaml"]


# -- windlass jobs -------------------------------------------------------------------------------------------------


def test_what_became_of_each_job_is_reported_failures_included(queue_directory):
    queue = Queue(queue_directory)
    queue.submit("good", ["true"], amounts({"cpu": 1000}), 1, 0)
    queue.submit("bad", ["false"], amounts({"cpu": 1000}), 1, 0)
    queue.submit("late", ["true"], amounts({"cpu": 1000}), 2, 0)
    place = queue.join("s-1/0", "s-1", {"cpu": 2000}, {})
    first, second = queue.claim(place)
    queue.report(place, first.number, 0)
    queue.report(place, second.number, 1)
    queue.close()
    output = json.loads(CliRunner().invoke(jobs.command, ["--json"]).stdout)
    counts = {job["name"]: (job["waiting"], job["done"], job["failed"]) for job in output["jobs"]}
    assert (output["schema"], counts) == ("windlass.jobs/v1", {"good": (0, 1, 0), "bad": (0, 0, 1), "late": (2, 0, 0)})
    page = CliRunner().invoke(jobs.command, []).stdout
    assert "3 jobs, 1 task failed" in page
    assert "windlass why late" in page
    assert str(queue_directory / "logs") in "".join(page.split("\n"))


def test_a_missing_queue_is_reported_with_the_way_to_make_one(queue_directory):
    done = CliRunner().invoke(jobs.command, [])
    assert done.exit_code == 1
    assert "windlass submit -- COMMAND" in done.stderr
    assert not queue_directory.exists()


# -- gangs and environments ----------------------------------------------------------------------------------------


def test_a_gang_is_one_job_of_so_many_tasks(queue_directory):
    done = submitted("--gang", "4", "--json", "--", "train")
    assert done.exit_code == 0, done.stderr
    assert (json.loads(done.stdout)["tasks"], json.loads(done.stdout)["gang"]) == (4, True)
    (job,) = Queue(queue_directory).jobs()
    assert (job.tasks, job.gang) == (4, True)


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (("--gang", "2", "--needs", "cpu=1", "--needs", "gpu=1"), "all members of a gang have the same needs"),
        (("--gang", "2", "--count", "3"), "--gang 2 is a job of 2 tasks, and --count says 3"),
        (("--gang", "2", "--retries", "1"), "give no retries"),
        (("--env", "NOT_SET_HERE"), "NOT_SET_HERE is not set in this shell"),
    ],
)
def test_what_no_gang_can_be_is_refused_with_the_reason(queue_directory, words, output):
    done = submitted(*words, "--", "train")
    assert done.exit_code != 0
    assert output in done.stderr
    assert not queue_directory.exists() or Queue(queue_directory).jobs() == []


def test_tasks_get_the_variables_that_are_named_and_no_others(queue_directory, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "from the shell")
    monkeypatch.setenv("PGPASSWORD", "secret")
    assert submitted("--env", "HF_TOKEN", "--env", "MODE=fast", "--", "train").exit_code == 0
    queue = Queue(queue_directory)
    [claim] = queue.claim(queue.join("n/0", "n", {"cpu": 1000}, {}))
    assert claim.environment == {"HF_TOKEN": "from the shell", "MODE": "fast"}
