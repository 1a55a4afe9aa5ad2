"""What a user asks about jobs, and what cancelling does, whoever holds the tasks at that moment."""

from __future__ import annotations

import sqlite3

import pytest

from windlass.core.model.snapshot import amounts
from windlass.workloads.queue import database
from windlass.workloads.queue.database import QueueError
from windlass.workloads.queue.job_queries import CANCELLED_STATUS, JobQueries
from windlass.workloads.queue.store import Queue

CPU = amounts({"cpu": 1000})


@pytest.fixture
def queue(tmp_path):
    found = Queue(tmp_path)
    yield found
    found.close()


@pytest.fixture
def queries(queue):
    found = JobQueries(queue.directory)
    yield found
    found.close()


def counts(queries: JobQueries, name: str = "a") -> tuple[int, ...]:
    job = queries.job(name)
    assert job is not None
    return job.waiting, job.running, job.done, job.failed, job.cancelled


def test_a_job_that_waits_is_cancelled_as_a_whole_and_never_starts(queue, queries):
    queue.submit("a", ["true"], CPU, 5)
    assert queries.cancel("a").finished
    place = queue.join("s/0", "s", {"cpu": 9000}, {})
    assert queue.claim(place) == []
    assert counts(queries) == (0, 0, 0, 0, 5)
    assert (queries.job("a").outcome, queries.exit_status("a")) == ("cancelled", CANCELLED_STATUS)


def test_running_tasks_of_a_cancelled_job_are_named_to_their_node_and_counted_when_they_have_ended(queue, queries):
    queue.submit("a", ["sleep", "9"], CPU, 3)
    queue.submit("b", ["sleep", "9"], CPU, 1)
    place = queue.join("s/0", "s", {"cpu": 4000}, {})
    mine = [claim.number for claim in queue.claim(place) if claim.job == "a"]
    queries.cancel("a")
    assert sorted(queue.commands(place).claims) == sorted(mine)
    assert counts(queries) == (0, 3, 0, 0, 0)
    for number in mine:
        queue.report(place, number, None)
    assert counts(queries) == (0, 0, 0, 0, 3)
    assert {one.state for one in queries.tasks("a")} == {"cancelled"}
    assert counts(queries, "b") == (0, 1, 0, 0, 0)


@pytest.mark.parametrize("how", ["lost node", "failure with retries left"])
def test_a_task_of_a_cancelled_job_that_would_wait_again_is_cancelled_instead(queue, queries, how):
    queue.submit("a", ["false"], CPU, 1, 5)
    place = queue.join("s/0", "s", {"cpu": 1000}, {})
    (claim,) = queue.claim(place)
    queries.cancel("a")
    if how == "lost node":
        queue.forget(["s"])
    else:
        queue.report(place, claim.number, 1)
    assert counts(queries) == (0, 0, 0, 0, 1)
    other = queue.join("t/0", "t", {"cpu": 1000}, {})
    assert queue.claim(other) == []


def test_cancelling_a_finished_job_changes_nothing(queue, queries):
    queue.submit("a", ["true"], CPU, 1)
    place = queue.join("s/0", "s", {"cpu": 1000}, {})
    queue.report(place, queue.claim(place)[0].number, 0)
    job = queries.cancel("a")
    assert (job.done, job.cancelled, job.cancelled_at) == (1, 0, None)


def test_the_exit_status_of_a_job_is_that_of_its_first_task_that_failed(queue, queries):
    queue.submit("a", ["sh"], CPU, 3)
    place = queue.join("s/0", "s", {"cpu": 3000}, {})
    for claim, code in zip(queue.claim(place), (0, 7, 9), strict=True):
        queue.report(place, claim.number, code)
    assert queries.exit_status("a") == 7
    assert [one.number for one in queries.tasks("a", ("failed",))] == [1, 2]


def test_a_job_that_is_not_there_is_reported(queries):
    assert queries.job("nobody") is None
    with pytest.raises(QueueError, match="there is no job nobody"):
        queries.cancel("nobody")


def test_a_queue_of_the_first_version_gets_what_cancelling_needs(tmp_path):
    path = tmp_path / database.FILE
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in (*database.SCHEMA, f"PRAGMA application_id = {database.MARK}", "PRAGMA user_version = 1"):
        connection.execute(statement)
    connection.close()
    queue = Queue(tmp_path)
    queue.submit("a", ["true"], CPU, 2)
    queries = JobQueries(tmp_path)
    assert queries.cancel("a").cancelled == 2
    queries.close()
    queue.close()
