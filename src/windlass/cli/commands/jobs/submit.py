"""``windlass submit`` puts a command into the queue; with ``--wait`` it waits for the end."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import click

from windlass.cli.connection.config_option import configured
from windlass.cli.connection.jobs import QueueOutage, queue_directory
from windlass.cli.connection.open_journal import is_missing
from windlass.cli.ui.output import exists, write
from windlass.cli.ui.pages import config_words, next_steps, plain, program_name, run_command
from windlass.config import Config
from windlass.control.report.current import read_state
from windlass.control.report.leader import leader_of
from windlass.core.model.quantities import BadQuantity, exact_quantity, format_needs, format_quantity, parse_quantity
from windlass.core.model.reasons import nearest_name, plural
from windlass.core.model.snapshot import Amounts, Bundle, Demand, amounts
from windlass.journal import JournalError, open_journal
from windlass.workloads.queue.database import FILE, QueueError
from windlass.workloads.queue.job_queries import FAILED, JobQueries, JobState
from windlass.workloads.queue.store import Queue, QueueJob


def read_needs(_context: click.Context, _option: click.Parameter, text: str) -> Amounts:
    """The type of ``--needs``: ``cpu=1,memory=2Gi``, with amounts as in a scenario."""
    found: dict[str, int] = {}
    for part in text.split(","):
        resource, equals, amount = (word.strip() for word in part.partition("="))
        if not resource or not equals:
            raise click.BadParameter(f"{part.strip()!r} is not a need; write resource=amount, such as cpu=1,memory=2Gi")
        if resource in found:
            raise click.BadParameter(f"{resource} is given twice")
        try:
            found[resource] = parse_quantity(amount, resource)
        except BadQuantity as error:
            raise click.BadParameter(f"{resource} {error}") from None
    needs = amounts({resource: amount for resource, amount in found.items() if amount})
    mistake = Demand("", (Bundle(needs),)).mistake
    if mistake:
        raise click.BadParameter(mistake)
    return needs


def read_all_needs(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> tuple[Amounts, ...]:
    return tuple(read_needs(context, option, text) for text in texts)


def read_environment(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """The type of ``--env``: ``NAME=VALUE``, or ``NAME`` for its value in this shell."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name:
            raise click.BadParameter(f"{text!r} has no name; write NAME=VALUE, or NAME")
        if not equals and name not in os.environ:
            raise click.BadParameter(f"{name} is not set in this shell; write {name}=VALUE, or export it first")
        found[name] = value if equals else os.environ[name]
    return found


def refuse(why: str) -> NoReturn:
    click.echo(f"nothing is submitted: {why}", err=True)
    sys.exit(1)


SCHEMA = "windlass.job/v1"
WAIT_EVERY = 0.2
"""Seconds between two reads of the job's state with --wait."""
LAST_LINES = 10
"""The number of last lines printed for a failed task."""


@click.command(
    "submit",
    context_settings={"allow_interspersed_args": False},
    epilog=(
        "Exit status: 0 the job is in the queue, 1 it is not. With --wait: 0 every task is done, else the exit status "
        "of the first task that failed, 143 if the job was cancelled, 130 after Ctrl-C."
    ),
)
@configured
@click.option("--name", metavar="NAME", help="The name of the job; it must be unique.  [default: job-N]")
@click.option("--count", metavar="N", type=click.IntRange(min=1), help="The number of tasks.  [default: 1]")
@click.option(
    "--needs",
    "all_needs",
    multiple=True,
    callback=read_all_needs,
    metavar="NEEDS",
    default=("cpu=1",),
    show_default="cpu=1",
    help="What each task needs.",
)
@click.option(
    "--retries",
    metavar="N",
    type=click.IntRange(min=0, max=1_000_000),
    default=0,
    show_default=True,
    help="How often a failed task runs again. A task that loses its machine always runs again.",
)
@click.option(
    "--gang",
    metavar="N",
    type=click.IntRange(min=1),
    help="Start N tasks all together, or none.",
)
@click.option(
    "--env",
    "environment",
    metavar="NAME[=VALUE]",
    multiple=True,
    callback=read_environment,
    help="An environment variable for the tasks; without =VALUE, with its value in this shell. May be repeated.",
)
@click.option("--wait", is_flag=True, help="Wait until every task has ended.")
@click.option("--force", is_flag=True, help="Submit the job even if no group has what its tasks need.")
@click.option("--json", "as_json", is_flag=True, help=f"The job as JSON, for programs: {SCHEMA}.")
@click.argument("command_line", metavar="COMMAND [ARG]...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    config: Config,
    name: str | None,
    count: int | None,
    all_needs: tuple[Amounts, ...],
    retries: int,
    gang: int | None,
    environment: dict[str, str],
    wait: bool,
    force: bool,
    as_json: bool,
    command_line: tuple[str, ...],
) -> None:
    """Put COMMAND into the queue of a cluster, to run it once or COUNT times.

    Each task runs in this directory, on a machine that has what it needs. WINDLASS_TASK_INDEX is its number, from 0.
    windlass logs prints its output.

    \b
    Examples:
      windlass submit -- python train.py
      windlass submit --count 100 --needs cpu=2,memory=4Gi -- sh -c 'echo $WINDLASS_TASK_INDEX'
      windlass submit --name nightly --retries 2 -- make report
      windlass submit --wait -- python train.py && echo trained
    """
    if len(set(all_needs)) > 1:
        different = " and ".join(format_needs(one) for one in all_needs)
        what = "members of a gang" if gang else "tasks of a job"
        refuse(f"all {what} have the same needs, but --needs gives {different}; give it once, or submit several jobs")
    if gang and count not in (None, gang):
        refuse(f"--gang {gang} is a job of {plural(gang, 'task')}, and --count says {count}; leave out --count")
    needs = all_needs[0]
    if not force and (mistake := unmet_needs(needs, config)):
        click.echo(f"nothing is submitted: {mistake} (--force submits it anyway, and it waits)", err=True)
        sys.exit(1)
    try:
        _check_queue(config)
        queue = Queue(queue_directory(config))
        try:
            job = queue.submit(
                name,
                command_line,
                needs,
                gang or count or 1,
                retries,
                directory=Path.cwd(),
                gang=gang is not None,
                environment=environment,
            )
        finally:
            queue.close()
    except QueueError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    if wait:
        sys.exit(_waited(config, job, as_json))
    write(json.dumps({"schema": SCHEMA, **job_data(job, queue.directory)}, indent=2) + "\n" if as_json else _page(job))
    if (missing := _no_controller(config)) is not None:
        click.echo(missing, err=True)


MADE_WITHIN = 2.0
"""Seconds within which a controller that was just started makes the queue."""


def _check_queue(config: Config) -> None:
    """Raise ``QueueError`` if the queue is missing although a controller or machines use it: a new one would take the
    place of one that was moved away, and its machines and tasks are not in the new one.
    """
    file, until = Path(queue_directory(config)) / FILE, time.monotonic() + MADE_WITHIN
    while not exists(str(file)) and (user := _user_of_the_queue(config)):
        if time.monotonic() >= until:
            raise QueueError(
                f"there is no queue at {file}, but {user}; put it back, or stop everything first: windlass down"
            )
        time.sleep(WAIT_EVERY)


def _user_of_the_queue(config: Config) -> str:
    """Return what uses the queue; empty if nothing does, or it is unknown."""
    if config.journal.location == ":memory:" or is_missing(config):
        return ""
    try:
        with open_journal(config.journal.location, create=False) as journal:
            if leader_of(journal, time.time()).alive:
                return "a controller runs"
            return "machines use it" if read_state(journal).fleet.has_joined else ""
    except JournalError:
        return ""


def unmet_needs(needs: Amounts, config: Config) -> str:
    """Explain why no group of the configuration can ever hold a task with these needs; empty if one can."""
    groups = [one.group for one in config.settings.groups]
    there = {name for group in groups for name, _ in group.resources}
    for resource, _ in needs:
        if resource not in there:
            meant = nearest_resource(resource, there)
            known = f"did you mean {meant}?" if meant else f"the groups have {', '.join(sorted(there)) or 'nothing'}"
            return f"no group has {resource}; {known}"
    if any(all(dict(group.resources).get(name, 0) >= amount for name, amount in needs) for group in groups):
        return ""
    for resource, amount in needs:
        largest = max(groups, key=lambda group: dict(group.resources).get(resource, 0))
        has = dict(largest.resources).get(resource, 0)
        if has < amount:
            wanted, most = format_quantity(amount, resource), format_quantity(has, resource)
            return f"no machine is large enough: a task needs {wanted} {resource}, {largest.name} has {most}"
    return f"no group has {format_needs(needs)} on one machine"


def nearest_resource(name: str, there: Iterable[str]) -> str | None:
    """Guess the resource that was meant: other case, the part after a slash, or a similar word."""
    known = sorted(there)
    word = name.rpartition("/")[2].lower()
    same = [one for one in known if one.rpartition("/")[2].lower() in (word, word.rstrip("s"), word + "s")]
    return same[0] if same else nearest_name(name, known)


def _no_controller(config: Config) -> str | None:
    """Return a note that no controller runs, or that it is unknown; None if one runs."""
    location = config.journal.location
    start = f"note: no controller runs, so nothing starts yet; start one in another terminal: {run_command()}"
    if location == ":memory:":
        return None
    if is_missing(config):
        return start
    try:
        with open_journal(location, create=False) as journal:
            return None if leader_of(journal, time.time()).alive else start
    except JournalError as error:
        return f"note: it is unknown whether a controller runs: {error}"


# -- waiting -------------------------------------------------------------------------------------------------------


def _waited(config: Config, job: QueueJob, as_json: bool) -> int:
    """Wait until the job is finished, and return its exit status."""
    queries = JobQueries(queue_directory(config))
    try:
        if not as_json:
            click.echo(f"{_line(job)}; waiting for it (Ctrl-C leaves it running)", err=True)
            if (missing := _no_controller(config)) is not None:
                click.echo(missing, err=True)
        try:
            state = _followed(queries, job.name, quiet=as_json)
        except KeyboardInterrupt:
            click.echo(f"{job.name} keeps running; windlass cancel {job.name} ends it", err=True)
            return 130
        status = queries.exit_status(job.name)
        if as_json:
            counts = {key: getattr(state, key) for key in ("tasks", "done", "failed", "cancelled")}
            data = {"schema": SCHEMA, "name": job.name, **counts, "exit_status": status}
            write(json.dumps(data, indent=2) + "\n")
        else:
            write(_ending(queries, state, status))
        return status
    finally:
        queries.close()


def _followed(queries: JobQueries, name: str, *, quiet: bool) -> JobState:
    printed, outage = "", QueueOutage(queries)
    while True:
        try:
            state = queries.job(name)
        except QueueError as error:
            outage.wait(error)
            continue
        if state is None:
            raise QueueError(f"the job {name} is no longer in the queue")
        if state.finished:
            return state
        text = f"{state.done} of {state.tasks} done, {state.running} running, {state.waiting} waiting"
        if text != printed and not quiet and sys.stderr.isatty():
            click.echo(f"\r\x1b[K{text}", err=True, nl=False)
        printed = text
        time.sleep(WAIT_EVERY)


def _ending(queries: JobQueries, state: JobState, status: int) -> str:
    clear = "\r\x1b[K" if sys.stderr.isatty() else ""
    click.echo(clear, err=True, nl=False)
    parts = [f"{state.done} of {plural(state.tasks, 'task')} done"]
    parts += [f"{count} {word}" for count, word in ((state.failed, "failed"), (state.cancelled, "cancelled")) if count]
    text = f"{state.name}: {', '.join(parts)}\n"
    failed = queries.tasks(state.name, FAILED, 1)
    if failed:
        first = failed[0]
        text += f"task {first.number} ended with exit status {status}; its last lines:\n"
        lines = queries.last_lines(state.name, first.number, LAST_LINES)
        text += "".join(f"  {line}\n" for line in lines) or "  (no output)\n"
        text += f"next: {program_name()} logs {state.name} {first.number}{config_words()}\n"
    return text


# -- for people ----------------------------------------------------------------------------------------------------


def _line(job: QueueJob) -> str:
    each = " each" if job.tasks > 1 else ""
    return f"{job.name}: {plural(job.tasks, 'task')}, {format_needs(job.needs)}{each}"


def _page(job: QueueJob) -> str:
    return plain([_line(job), next_steps(f"windlass logs {job.name} --follow", f"windlass why {job.name}")])


def job_data(job: QueueJob, directory: Path) -> dict[str, object]:
    """Return a job as JSON, with the counts of its tasks by state."""
    return {
        "name": job.name,
        "command": list(job.command),
        "tasks": job.tasks,
        "needs": {resource: exact_quantity(amount, resource) for resource, amount in job.needs},
        "gang": job.gang,
        "retries": job.retries,
        "submitted": job.submitted,
        "waiting": job.waiting,
        "running": job.running,
        "done": job.done,
        "failed": job.failed,
        "cancelled": job.cancelled,
        "logs": str(directory / "logs" / job.name),
    }
