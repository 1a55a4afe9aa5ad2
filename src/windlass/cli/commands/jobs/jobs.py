"""``windlass jobs`` lists how many tasks of each job wait, run, are done or have failed."""

from __future__ import annotations

import json
import sys

import click
from rich.console import RenderableType

from windlass.cli.connection.config_option import configured
from windlass.cli.connection.jobs import queue_directory
from windlass.cli.ui.output import write
from windlass.cli.ui.pages import headed, indented, next_steps, printed
from windlass.config import Config
from windlass.core.model.reasons import plural
from windlass.workloads.queue.database import QueueError
from windlass.workloads.queue.store import Queue, QueueJob

from .submit import job_data

SCHEMA = "windlass.jobs/v1"
MOST = 30
"""The number of jobs in the table, the newest ones; the JSON has all."""


@click.command("jobs", epilog="Exit status: 0 listed, 1 there is no queue.")
@configured
@click.option("--json", "as_json", is_flag=True, help=f"The same as JSON, for programs: {SCHEMA}.")
def command(config: Config, as_json: bool) -> None:
    """List the jobs in the queue: how many tasks of each wait, run, are done, or have failed.

    \b
    Examples:
      windlass jobs
      windlass jobs --json | jq '.jobs[] | select(.failed > 0) | .name'
    """
    try:
        queue = Queue(queue_directory(config), create=False)
        try:
            jobs = queue.jobs()
        finally:
            queue.close()
    except QueueError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    if as_json:
        documents = [job_data(job, queue.directory) for job in jobs]
        write(json.dumps({"schema": SCHEMA, "jobs": documents}, indent=2) + "\n")
    else:
        write(printed(_page(jobs, str(queue.directory / "logs"))))


def _page(jobs: list[QueueJob], logs: str) -> list[RenderableType]:
    some_cancelled = any(job.cancelled for job in jobs)
    table = headed("job", "tasks>", "waiting>", "running>", "done>", "failed>", *(["cancelled>"] * some_cancelled))
    for job in jobs[-MOST:]:
        counts = [job.tasks, job.waiting, job.running, job.done, job.failed] + [job.cancelled] * some_cancelled
        table.add_row(job.name, *map(str, counts))
    failed = sum(job.failed for job in jobs)
    summary = f"{plural(len(jobs), 'job')}, {plural(failed, 'task')} failed; their output is in {logs}"
    bad = next((job.name for job in reversed(jobs) if job.failed), None)
    waiting = next((job.name for job in jobs if job.waiting), None)
    steps = [f"windlass why {name}" for name in dict.fromkeys((bad, waiting)) if name]
    return [summary, indented(table), next_steps(*steps, "windlass status")]
