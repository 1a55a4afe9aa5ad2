"""This module opens the queue for a command. An unknown job name is reported in one line, with exit status 1."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import click

from windlass.config import Config
from windlass.workloads.queue.database import QueueError, QueueGone
from windlass.workloads.queue.job_queries import JobQueries, JobState

from .open_journal import stop, unknown_name

RETRY_EVERY: Final = 0.5
"""Seconds between two attempts to read a queue that is unavailable."""


def queue_directory(config: Config) -> str:
    """Return the path of a configuration's queue; ``QueueError`` if its workload is not a queue."""
    if config.workload.type != "queue":
        raise QueueError(
            f"workload.type is {config.workload.type}: there is no queue to submit to; "
            "set `workload: {type: queue}` in the configuration, or give another one with --config"
        )
    return str(config.workload.settings["directory"])


@contextmanager
def opened_jobs(config: Config) -> Iterator[JobQueries]:
    """Open the queue of a cluster, for a command about a job."""
    try:
        queries = JobQueries(queue_directory(config))
        try:
            yield queries
        finally:
            queries.close()
    except QueueGone as error:
        stop(str(error))
    except QueueError as error:
        stop(str(error))


class QueueOutage:
    """Lets a command that follows a job wait while its queue is unavailable: the job goes on meanwhile."""

    def __init__(self, queries: JobQueries) -> None:
        self._queries, self._said = queries, ""

    def wait(self, error: QueueError) -> None:
        """Wait for a moment, and open the queue again. Each error is printed once."""
        if str(error) != self._said:
            self._said = str(error)
            click.echo(f"{error}; waiting for it", err=True)
        time.sleep(RETRY_EVERY)
        with suppress(QueueError):
            self._queries.reopen()


def known_job(queries: JobQueries, name: str) -> JobState:
    """Return the job of a name; the message for an unknown name suggests similar ones."""
    job = queries.job(name)
    if job is None:
        stop(unknown_name(name, "job", queries.names()))
    return job
