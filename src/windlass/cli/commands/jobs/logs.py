"""``windlass logs`` prints the output of the tasks of a job."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click

from windlass.cli.connection.config_option import configured
from windlass.cli.connection.jobs import QueueOutage, known_job, opened_jobs
from windlass.cli.connection.open_journal import stop
from windlass.config import Config
from windlass.core.model.reasons import plural
from windlass.workloads.queue.database import QueueError
from windlass.workloads.queue.job_queries import ENDED, JobQueries, JobState

EVERY = 0.2
"""Seconds between two reads of the files with --follow."""
CHUNK = 1 << 16
_WITH_TASK = re.compile(r"(?P<job>.+)/(?P<task>\d+)")


@click.command("logs", epilog="Exit status: 0 printed, 1 there is no such job or task.")
@configured
@click.argument("name", metavar="JOB")
@click.argument("task", metavar="[TASK]", required=False, type=click.IntRange(min=0))
@click.option("-f", "--follow", is_flag=True, help="Print new output as well, until the tasks have ended.")
@click.option("-n", "--tail", metavar="N", type=click.IntRange(min=0), help="Print only the last N lines of each task.")
def command(config: Config, name: str, task: int | None, follow: bool, tail: int | None) -> None:
    """Print the output of JOB, or only of its task number TASK (from 0).

    In a job with several tasks, each line begins with the number of its task. The output of earlier tries of a task
    comes before that of the last one.

    \b
    Examples:
      windlass logs job-1
      windlass logs job-1 3 --follow
      windlass logs nightly --tail 20
    """
    if task is None and (both := _WITH_TASK.fullmatch(name)):
        name, task = both["job"], int(both["task"])
    with opened_jobs(config) as queries:
        job = known_job(queries, name)
        if task is not None and task >= job.tasks:
            stop(f"{name} has {plural(job.tasks, 'task')}, numbered from 0 to {job.tasks - 1}; there is no task {task}")
        output, outage = _Output(queries, job, task, tail), QueueOutage(queries)
        try:
            output.show()
            while follow:
                try:
                    if not output.unfinished():
                        break
                    time.sleep(EVERY)
                    output.show()
                except QueueError as error:
                    outage.wait(error)
            output.show()
            output.end()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not output.shown and not follow:
            click.echo(_nothing(queries, job, task), err=True)


class _Output:
    """The logs of some tasks, each shown once, line by line."""

    def __init__(self, queries: JobQueries, job: JobState, task: int | None, tail: int | None) -> None:
        self._queries, self._name, self._task, self._tail = queries, job.name, task, tail
        self._numbered = task is None and job.tasks > 1
        self._width = len(str(job.tasks - 1))
        self._read: dict[int, int] = {}
        """Bytes read so far of each task's log."""
        self._rest: dict[int, bytes] = {}
        """The last, incomplete line of each task."""
        self.shown = False

    def unfinished(self) -> bool:
        job = self._queries.job(self._name)
        if job is None or job.finished:
            return False
        if self._task is None:
            return True
        ended = self._queries.tasks(self._name, ENDED)
        return all(one.number != self._task for one in ended)

    def show(self) -> None:
        """Print the output since the last call."""
        for index in self._indexes():
            path = self._queries.log_path(self._name, index)
            for lines in self._new_lines(index, path):
                mark = f"{index:>{self._width}} | ".encode() if self._numbered else b""
                sys.stdout.buffer.write(b"".join(mark + line + b"\n" for line in lines))
                self.shown = True
        sys.stdout.buffer.flush()

    def end(self) -> None:
        """Print the last lines that have no newline."""
        for index, rest in sorted(self._rest.items()):
            if rest:
                mark = f"{index:>{self._width}} | " if self._numbered else ""
                sys.stdout.buffer.write(mark.encode() + rest + b"\n")
                self.shown = True
        sys.stdout.buffer.flush()

    def _indexes(self) -> list[int]:
        if self._task is not None:
            return [self._task]
        return [one.number for one in self._queries.tasks(self._name)]

    def _new_lines(self, index: int, path: Path) -> Iterator[list[bytes]]:
        try:
            size = path.stat().st_size
        except OSError:
            return
        if index not in self._read and self._tail is not None:
            last = self._queries.last_lines(self._name, index, self._tail)
            self._read[index] = size
            if last:
                yield [line.encode("utf-8", errors="replace") for line in last]
            return
        if size <= self._read.get(index, 0):
            return
        with path.open("rb") as file:
            file.seek(self._read.get(index, 0))
            while chunk := file.read(CHUNK):
                *lines, self._rest[index] = (self._rest.get(index, b"") + chunk).split(b"\n")
                self._read[index] = file.tell()
                if lines:
                    yield lines


def _nothing(queries: JobQueries, job: JobState, task: int | None) -> str:
    what = job.name if task is None else f"task {task} of {job.name}"
    started = {one.number for one in queries.tasks(job.name)}
    if (task is None and not started) or (task is not None and task not in started):
        if job.cancelled_at is not None:
            return f"{what} was cancelled before it started: it has no output"
        return f"{what} has not started yet; windlass why {job.name} says what it waits for"
    return f"{what} has no output so far"
