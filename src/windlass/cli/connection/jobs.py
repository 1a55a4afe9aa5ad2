"""Opens the queue for a command. An unknown job name is reported in one line, with exit status 1."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from windlass.config import Config
from windlass.workloads.queue.database import QueueError, QueueGone
from windlass.workloads.queue.job_queries import JobQueries, JobState

from .open_journal import stop, unknown_name


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
        stop(f"{error}. Submit a job: windlass submit -- COMMAND")
    except QueueError as error:
        stop(str(error))


def known_job(queries: JobQueries, name: str) -> JobState:
    """Return the job of a name; the message for an unknown name suggests similar ones."""
    job = queries.job(name)
    if job is None:
        stop(unknown_name(name, "job", queries.names()))
    return job
