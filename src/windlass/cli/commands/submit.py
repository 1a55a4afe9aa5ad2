"""``windlass submit``: put a command into the queue."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from windlass.cli.connection.config_option import configured
from windlass.cli.ui.output import write
from windlass.config import Config
from windlass.core.model.quantities import BadQuantity, exact_quantity, format_needs, parse_quantity
from windlass.core.model.reasons import plural
from windlass.core.model.snapshot import Amounts, Bundle, Demand, amounts
from windlass.workloads.queue.database import QueueError
from windlass.workloads.queue.store import Queue, QueueJob


def read_needs(_context: click.Context, _option: click.Parameter, text: str) -> Amounts:
    """``cpu=1,memory=2Gi``, with amounts as in a scenario."""
    found: dict[str, int] = {}
    for part in text.split(","):
        resource, equals, amount = (word.strip() for word in part.partition("="))
        if not resource or not equals:
            raise click.BadParameter(f"{part.strip()!r} is no need; write resource=amount, such as cpu=1,memory=2Gi")
        if resource in found:
            raise click.BadParameter(f"{resource} stands there twice")
        try:
            found[resource] = parse_quantity(amount, resource)
        except BadQuantity as error:
            raise click.BadParameter(f"{resource} {error}") from None
    needs = amounts({resource: amount for resource, amount in found.items() if amount})
    mistake = Demand("", (Bundle(needs),)).mistake
    if mistake:
        raise click.BadParameter(mistake)
    return needs


SCHEMA = "windlass.job/v1"


@click.command(
    "submit",
    context_settings={"allow_interspersed_args": False},
    epilog="Exit status: 0 it is in the queue, 1 it is not.",
)
@configured
@click.option("--name", metavar="NAME", help="What the job is called; no other may have the name.  [default: job-N]")
@click.option("--count", metavar="N", type=click.IntRange(min=1), default=1, show_default=True, help="How many tasks.")
@click.option(
    "--needs", callback=read_needs, metavar="NEEDS", default="cpu=1", show_default=True, help="What each task needs."
)
@click.option(
    "--retries",
    metavar="N",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="How often a task that fails is run again. One that loses its node always is.",
)
@click.option("--json", "as_json", is_flag=True, help="The job as JSON, for programs.")
@click.argument("command_line", metavar="COMMAND [ARG]...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    config: Config,
    name: str | None,
    count: int,
    needs: Amounts,
    retries: int,
    as_json: bool,
    command_line: tuple[str, ...],
) -> None:
    """Put COMMAND into the queue of a cluster, to be run once or COUNT times.

    Each task runs in this directory, on a node that has what it needs; WINDLASS_TASK_INDEX tells it which of the COUNT
    it is. What it writes goes to logs/NAME/INDEX.log in the directory of the queue.

    \b
    Examples:
      windlass submit -- python train.py
      windlass submit --count 100 --needs cpu=2,memory=4Gi -- sh -c 'echo $WINDLASS_TASK_INDEX'
      windlass submit --name nightly --retries 2 -- make report
    """
    try:
        queue = Queue(queue_directory(config))
        try:
            job = queue.submit(name, command_line, needs, count, retries, directory=Path.cwd())
        finally:
            queue.close()
    except QueueError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    write(json.dumps({"schema": SCHEMA, **job_data(job, queue.directory)}, indent=2) + "\n" if as_json else _page(job))


def queue_directory(config: Config) -> str:
    if config.workload.type != "queue":
        raise QueueError(
            f"workload.type is {config.workload.type}: there is no queue to submit to; "
            "set `workload: {type: queue}` in the configuration, or give another one with --config"
        )
    return str(config.workload.settings["directory"])


def _page(job: QueueJob) -> str:
    each = " each" if job.tasks > 1 else ""
    return (
        f"{job.name}: {plural(job.tasks, 'task')}, {format_needs(job.needs)}{each}\n"
        f"next: windlass jobs\n"
        f"      windlass why {job.name}\n"
    )


def job_data(job: QueueJob, directory: Path) -> dict[str, object]:
    """A job for programs, with what became of it so far."""
    return {
        "name": job.name,
        "command": list(job.command),
        "tasks": job.tasks,
        "needs": {resource: exact_quantity(amount, resource) for resource, amount in job.needs},
        "retries": job.retries,
        "submitted": job.submitted,
        "waiting": job.waiting,
        "running": job.running,
        "done": job.done,
        "failed": job.failed,
        "logs": str(directory / "logs" / job.name),
    }
