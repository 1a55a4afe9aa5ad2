"""``windlass logs``, ``cancel``, ``submit`` and ``init`` as a user meets them."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from windlass.cli import windlass
from windlass.core.model.snapshot import amounts
from windlass.workloads.queue.store import Queue

CLUSTER = """
groups:
  small: {resources: {cpu: 2}, max: 2, scale_down: {idle_timeout: 1m}}
  big: {resources: {cpu: 8, nvidia.com/gpu: 1}, max: 1, scale_down: {idle_timeout: 1m}}
providers: {here: {type: local}}
workload: {type: queue, directory: queue}
"""
CPU = amounts({"cpu": 1000})


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "windlass.yaml").write_text(CLUSTER, encoding="utf-8")
    return tmp_path


def run(*words: str):
    return CliRunner().invoke(windlass, list(words))


def a_job(home, logs: dict[int, str], name: str = "a", count: int = 3) -> Queue:
    queue = Queue(home / "queue")
    queue.submit(name, ["sh"], CPU, count)
    place = queue.join("s/0", "s", {"cpu": 1000 * count}, {})
    queue.claim(place)
    for index, text in logs.items():
        path = home / "queue" / "logs" / name / f"{index}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return queue


# -- logs ----------------------------------------------------------------------------------------------------------


def test_the_logs_of_a_job_have_the_number_of_the_task_before_each_line(home):
    a_job(home, {0: "one\ntwo\n", 2: "three"})
    done = run("logs", "a")
    assert (done.exit_code, done.stdout) == (0, "0 | one\n0 | two\n2 | three\n")


@pytest.mark.parametrize("words", [("a", "0"), ("a/0",)])
def test_the_log_of_one_task_is_shown_as_it_is(home, words):
    a_job(home, {0: "one\ntwo\n", 1: "other\n"})
    assert run("logs", *words).stdout == "one\ntwo\n"
    assert run("logs", *words, "--tail", "1").stdout == "two\n"


def test_following_ends_when_the_job_has_ended(home):
    queue = a_job(home, {0: "one\n"}, count=1)
    queue.forget(["s"])
    place = queue.join("t/0", "t", {"cpu": 1000}, {})
    queue.report(place, queue.claim(place)[0].number, 0)
    assert run("logs", "a", "--follow").stdout == "one\n"


def test_a_job_that_has_not_started_says_where_to_look(home):
    queue = Queue(home / "queue")
    queue.submit("a", ["sh"], CPU, 2)
    done = run("logs", "a")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "a has not started yet; windlass why a" in done.stderr


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (("aa",), "there is no job aa; did you mean a?"),
        (("a", "3"), "a has 3 tasks, numbered from 0 to 2; there is no task 3"),
    ],
)
def test_logs_of_what_is_not_there_are_reported(home, words, output):
    a_job(home, {})
    done = run("logs", *words)
    assert (done.exit_code, done.stdout) == (1, "")
    assert output in done.stderr


def test_logs_without_a_queue_say_how_to_get_one(home):
    done = run("logs", "a")
    assert done.exit_code == 1
    assert "windlass submit -- COMMAND" in done.stderr


# -- cancel --------------------------------------------------------------------------------------------------------


def test_cancelling_reports_how_many_tasks_end_and_how_many_never_start(home):
    queue = a_job(home, {}, count=2)
    queue.submit("b", ["sh"], CPU, 3)
    assert run("cancel", "a").stdout.startswith("a is cancelled: 2 running tasks are being ended\n")
    assert run("cancel", "a").stdout.startswith("a is cancelled already; 2 tasks still ending\n")
    assert run("cancel", "b").stdout.startswith("b is cancelled: 3 waiting tasks will not start\n")
    assert run("cancel", "b").stdout.startswith("b is finished already: 3 cancelled\n")
    output = json.loads(run("cancel", "b", "--json").stdout)
    assert (output["schema"], output["cancelled"], output["waiting"]) == ("windlass.cancel/v1", 3, 0)


def test_a_job_that_cannot_be_cancelled_because_it_is_not_there_is_reported(home):
    a_job(home, {}).submit("nightly", ["sh"], CPU)
    done = run("cancel", "nightl")
    assert done.exit_code == 1
    assert "there is no job nightl; did you mean nightly?" in done.stderr


# -- submit --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("needs", "output"),
    [
        ("gpu=1", "no group has gpu; did you mean nvidia.com/gpu?"),
        ("cpus=1", "no group has cpus; did you mean cpu?"),
        ("license=1", "no group has license; the groups have cpu, nvidia.com/gpu"),
        ("cpu=9", "no machine is large enough: a task needs 9 cpu, big has 8"),
    ],
)
def test_needs_that_no_group_has_are_refused(home, needs, output):
    done = run("submit", "--needs", needs, "--", "ls")
    assert (done.exit_code, done.stdout) == (1, "")
    assert output in done.stderr
    assert not (home / "queue").exists()
    assert run("submit", "--force", "--needs", needs, "--", "ls").exit_code == 0


def test_submitting_says_that_no_controller_runs(home):
    done = run("submit", "--", "ls")
    assert done.exit_code == 0
    assert "no controller runs" in done.stderr
    assert "windlass run" in done.stderr


def test_submitting_says_that_it_is_unknown_whether_a_controller_runs(home):
    (home / "journal.db").write_text("not a database, and long enough to be read as one" * 20, encoding="utf-8")
    config = home / "windlass.yaml"
    config.write_text(config.read_text(encoding="utf-8") + "\njournal: journal.db\n", encoding="utf-8")
    done = run("submit", "--", "ls")
    assert done.exit_code == 0
    assert "it is unknown whether a controller runs" in done.stderr
    assert "journal.db is damaged or not a journal" in done.stderr


@pytest.mark.parametrize("words", [("submit", "--", "ls"), ("jobs",), ("run",), ("doctor",)])
def test_directories_that_cannot_be_used_are_reported_with_their_key_and_no_stack_trace(home, monkeypatch, words):
    monkeypatch.setenv("WINDLASS_CONFIG", str(home / "windlass.yaml"))
    (home / "windlass.yaml").write_text(
        "groups: {a: {resources: {cpu: 1}, max: 1}}\n"
        f"providers: {{here: {{type: local, directory: {'p' * 300}}}}}\n"
        f"workload: {{type: queue, directory: {'q' * 300}}}\n",
        encoding="utf-8",
    )
    done = run(*words)
    assert done.exit_code == 1
    assert isinstance(done.exception, SystemExit)
    said = " ".join((done.stdout + done.stderr).split())
    assert "File name too long" in said
    assert ("providers.here" if words == ("run",) else "q" * 50) in said.replace(" ", "")


def test_waiting_gives_the_exit_status_of_the_job_and_the_last_lines_of_what_failed(home, monkeypatch):
    def fail(_seconds: float) -> None:
        queue = Queue(home / "queue")
        place = queue.join("s/0", "s", {"cpu": 2000}, {})
        (home / "queue" / "logs" / "a").mkdir(parents=True)
        (home / "queue" / "logs" / "a" / "0.log").write_text("starting\nout of memory\n", encoding="utf-8")
        queue.report(place, queue.claim(place)[0].number, 42)
        queue.close()

    monkeypatch.setattr("windlass.cli.commands.jobs.submit.time.sleep", fail)
    done = run("submit", "--name", "a", "--wait", "--", "train")
    assert done.exit_code == 42
    assert "task 0 ended with exit status 42; its last lines:\n  starting\n  out of memory\n" in done.stdout
    assert "windlass logs a 0" in done.stdout


# -- init ----------------------------------------------------------------------------------------------------------


def test_init_writes_a_file_that_is_right_has_comments_and_shrinks_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("init")
    assert done.exit_code == 0, done.stderr
    assert "next: windlass run" in done.stdout
    text = (tmp_path / "windlass.yaml").read_text(encoding="utf-8")
    assert "scale_down" in text
    assert text.count("#") > 8
    checked = run("config", "check", "windlass.yaml")
    assert (checked.exit_code, "note:" in checked.stdout, "warning" in checked.stdout) == (0, False, False)


def test_init_leaves_a_file_alone_that_is_there(home):
    done = run("init")
    assert done.exit_code == 1
    assert "windlass.yaml exists already" in done.stderr
    assert (home / "windlass.yaml").read_text(encoding="utf-8") == CLUSTER
    assert run("init", "--force").exit_code == 0
    assert (home / "windlass.yaml").read_text(encoding="utf-8") != CLUSTER


# -- why, status and doctor ----------------------------------------------------------------------------------------


def test_why_answers_for_a_job_that_waits_for_a_first_controller(home):
    Queue(home / "queue").submit("a", ["sh"], CPU, 2)
    done = run("why", "a")
    assert done.exit_code == 0, done.stderr
    assert "Job a: waiting; 0 of 2 tasks done, 2 waiting" in done.stdout
    assert "2 tasks waiting for a controller: none runs" in done.stdout


def test_why_answers_for_jobs_that_run_that_are_done_and_that_failed(home):
    queue = a_job(home, {1: "reading\nno such file: data.csv\n"}, count=3)
    assert "3 tasks running on s/0" in run("why", "a").stdout
    place = queue.join("t/0", "t", {"cpu": 9000}, {})
    queue.forget(["s"])
    for claim in queue.claim(place):
        queue.report(place, claim.number, 5 if claim.task == 1 else 0)
    page = run("why", "a").stdout
    assert "Job a: failed; 2 of 3 tasks done, 1 failed" in page
    assert "Task 1 failed with exit code 5 on t/0" in page
    assert "no such file: data.csv" in page
    assert str(home / "queue" / "logs" / "a" / "1.log") in "".join(page.split("\n  "))
    output = json.loads(run("why", "a", "--json").stdout)["job"]
    assert (output["state"], output["failures"][0]["exit_code"], output["failures"][0]["last_lines"][-1]) == (
        "failed",
        5,
        "no such file: data.csv",
    )
    queue.submit("b", ["true"], CPU)
    queue.report(place, queue.claim(place)[0].number, 0)
    assert "Job b: done; 1 of 1 task done" in run("why", "b").stdout
