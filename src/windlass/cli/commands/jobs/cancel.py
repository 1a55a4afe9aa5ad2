"""``windlass cancel`` starts no more tasks of a job, and ends the running ones."""

from __future__ import annotations

import json

import click

from windlass.cli.connection.config_option import configured
from windlass.cli.connection.jobs import known_job, opened_jobs
from windlass.cli.ui.output import write
from windlass.cli.ui.pages import next_steps, plain
from windlass.config import Config
from windlass.core.model.reasons import plural
from windlass.workloads.queue.job_queries import JobState

SCHEMA = "windlass.cancel/v1"


@click.command("cancel", epilog="Exit status: 0 the job is cancelled or was finished already; 1 there is no such job.")
@configured
@click.argument("name", metavar="JOB")
@click.option("--json", "as_json", is_flag=True, help=f"The same as JSON, for programs: {SCHEMA}.")
def command(config: Config, name: str, as_json: bool) -> None:
    """Cancel JOB: its waiting tasks never start, and its running tasks are ended.

    A running task gets SIGTERM, and SIGKILL after the grace period of its machine. Other jobs are not affected.

    \b
    Example:
      windlass cancel job-1
    """
    with opened_jobs(config) as queries:
        before = known_job(queries, name)
        after = before if before.finished or before.cancelled_at is not None else queries.cancel(name)
    text = _outcome(before)
    if as_json:
        data = {"schema": SCHEMA, "name": name, "outcome": text, **_counts(after)}
        write(json.dumps(data, indent=2) + "\n")
    else:
        write(plain([text, next_steps(f"windlass why {name}", "windlass jobs")]))


def _counts(job: JobState) -> dict[str, int]:
    return {key: getattr(job, key) for key in ("tasks", "waiting", "running", "done", "failed", "cancelled")}


def _outcome(before: JobState) -> str:
    if before.finished:
        counts = ", ".join(f"{count} {state}" for state, count in _counts(before).items() if count and state != "tasks")
        return f"{before.name} is finished already: {counts}"
    if before.cancelled_at is not None:
        return f"{before.name} is cancelled already; {plural(before.running, 'task')} still ending"
    parts = []
    if before.waiting:
        parts.append(f"{plural(before.waiting, 'waiting task')} will not start")
    if before.running:
        parts.append(f"{plural(before.running, 'running task')} {'is' if before.running == 1 else 'are'} being ended")
    return f"{before.name} is cancelled: {' and '.join(parts)}"
