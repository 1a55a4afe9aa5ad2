"""This module lists the jobs of a queue as rows: the progress of each, and how its failed tasks ended."""

from __future__ import annotations

from typing import Any, Final

from windlass.config import Config
from windlass.core.model.reasons import plural
from windlass.workloads.queue.database import QueueError
from windlass.workloads.queue.job_queries import FAILED, JobQueries, JobState, TaskState

RUNNING: Final[tuple[TaskState, ...]] = ("running",)
MOST_TASKS: Final = 3
"""The number of failed or running tasks that are named."""
LAST_LINES: Final = 10
"""The number of last lines of a failed task's log that are shown."""


def job_rows(config: Config) -> list[dict[str, Any]] | None:
    """Return the jobs of the queue, the oldest first; None if the workload has no queue, or it cannot be read."""
    if config.workload.type != "queue":
        return None
    try:
        queries = JobQueries(config.workload.settings["directory"])
    except QueueError:
        return None
    try:
        states = [queries.job(name) for name in queries.names()]
    except QueueError:
        return None
    finally:
        queries.close()
    return [job_row(state) for state in states if state is not None]


def job_row(job: JobState) -> dict[str, Any]:
    return {
        "name": job.name,
        "state": job.outcome,
        "tasks": job.tasks,
        "waiting": job.waiting,
        "running": job.running,
        "done": job.done,
        "failed": job.failed,
        "cancelled": job.cancelled,
        "submitted": job.submitted,
    }


def job_report(config: Config, name: str) -> dict[str, Any] | None:
    """Return one job with its failed tasks (exit code, log, last lines) and the nodes of its tasks; None if unknown."""
    if config.workload.type != "queue":
        return None
    try:
        queries = JobQueries(config.workload.settings["directory"])
    except QueueError:
        return None
    try:
        job = queries.job(name)
        if job is None:
            return None
        failures = [
            {
                "task": one.number,
                "exit_code": one.exit_code,
                "node": one.node,
                "log": str(queries.log_path(name, one.number)),
                "last_lines": queries.last_lines(name, one.number, LAST_LINES),
            }
            for one in queries.tasks(name, FAILED, MOST_TASKS)
        ]
        nodes = sorted({one.node for one in queries.tasks(name, RUNNING)})
        return {**job_row(job), "nodes": nodes, "failures": failures}
    except QueueError:
        return None
    finally:
        queries.close()


def progress(row: dict[str, Any]) -> str:
    """Format the progress: ``18 of 24 tasks done, 4 running, 2 waiting``."""
    parts = [f"{row['done']} of {plural(row['tasks'], 'task')} done"]
    parts += [f"{row[key]} {key}" for key in ("running", "waiting", "failed", "cancelled") if row[key]]
    return ", ".join(parts)
