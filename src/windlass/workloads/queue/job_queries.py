"""Job queries answer what a user asks about jobs in the queue, and cancel a job.

A cancelled job starts no more tasks. Its waiting tasks are cancelled in the same transaction; its running tasks are
ended by their agents (SIGTERM, SIGKILL after the grace period) and are then counted as cancelled too. Two triggers in
the queue's file turn every task that goes back to waiting, for whatever reason, into a cancelled one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final, Literal, NamedTuple

from .database import QueueError, QueueFile, QueueGone, another
from .wakeup import AGENTS, WATCHERS, wake_all

TaskState = Literal["waiting", "running", "done", "failed", "cancelled"]
TASK_STATES: Final[tuple[TaskState, ...]] = ("waiting", "running", "done", "failed", "cancelled")
FAILED: Final[tuple[TaskState, ...]] = ("failed",)
ENDED: Final[tuple[TaskState, ...]] = ("done", "failed", "cancelled")
CANCELLED_STATUS: Final = 143
"""The exit status of a job that was cancelled: 128 and the number of SIGTERM."""
LAST_BYTES: Final = 64 * 1024
"""Bytes at the end of a log that are searched for its last lines."""


class JobState(NamedTuple):
    """A job and how many of its tasks are in each state."""

    name: str
    tasks: int
    submitted: float
    waiting: int
    running: int
    done: int
    failed: int
    cancelled: int
    cancelled_at: float | None

    @property
    def finished(self) -> bool:
        """Whether all tasks have ended."""
        return not self.waiting and not self.running

    @property
    def outcome(self) -> TaskState:
        """The state of the whole job."""
        if self.running:
            return "running"
        if self.waiting:
            return "waiting"
        if self.failed:
            return "failed"
        return "cancelled" if self.cancelled else "done"


class QueueTask(NamedTuple):
    """The last run of one task."""

    number: int
    """From 0, as in WINDLASS_TASK_INDEX."""
    state: TaskState
    node: str
    """Where it runs or ran last."""
    failures: int
    exit_code: int | None
    """Exit code of its last run; None: it has not ended, or the agent ended it."""


class JobQueries(QueueFile):
    """Reads jobs and tasks, and cancels jobs. Does not create a queue."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__(directory, create=False)

    def reopen(self) -> None:
        """Open the file again: after a remount there may be another file at its path. ``QueueGone``: there is none, or
        it is another queue.
        """
        fresh = JobQueries(self.directory)
        if fresh.id != self.id:
            fresh.close()
            raise QueueGone(another(self.path, "start again"))
        self.close()
        self._connection, self._identity = fresh._connection, fresh._identity

    def names(self) -> list[str]:
        """Return every job, the oldest first."""
        with self._looking() as run:
            return [name for (name,) in run("SELECT name FROM jobs ORDER BY number")]

    def job(self, name: str) -> JobState | None:
        with self._looking() as run:
            row = run(
                "SELECT name, count, submitted, waiting, running, done, failed - cancelled, cancelled, cancelled_at"
                " FROM jobs WHERE name = ?",
                (name,),
            ).fetchone()
        return None if row is None else JobState(*row)

    def tasks(self, name: str, states: Collection[TaskState] = TASK_STATES, most: int = -1) -> list[QueueTask]:
        """Return the tasks that were started at least once, by index; at most ``most`` (-1: all)."""
        marks = ", ".join("?" * len(states))
        with self._looking() as run:
            rows = run(
                "SELECT task, state, node, failures, exit_code FROM tasks"
                f" WHERE job = (SELECT number FROM jobs WHERE name = ?) AND state IN ({marks}) ORDER BY task LIMIT ?",
                (name, *states, most),
            ).fetchall()
        return [QueueTask(*row) for row in rows]

    def cancel(self, name: str) -> JobState:
        """Cancel a job: no further task starts, and running tasks are ended. Return the job right after that."""
        with self._changing() as run:
            if not run("SELECT 1 FROM jobs WHERE name = ?", (name,)).fetchone():
                raise QueueError(f"there is no job {name}")
            # The trigger jobs_cancelled does the rest.
            run(
                "UPDATE jobs SET cancelled_at = ? WHERE name = ? AND cancelled_at IS NULL AND waiting + running > 0",
                (time.time(), name),
            )
        wake_all(self.directory, AGENTS)
        wake_all(self.directory, WATCHERS)
        job = self.job(name)
        assert job is not None
        return job

    def log_path(self, name: str, index: int) -> Path:
        """Return the path of a task's log; it exists once the task has started."""
        return self.directory / "logs" / name / f"{index}.log"

    def last_lines(self, name: str, index: int, most: int) -> list[str]:
        """Return the last lines of a task's log; none if it wrote nothing or its log is gone."""
        try:
            with self.log_path(name, index).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - LAST_BYTES))
                text = file.read().decode("utf-8", errors="replace")
        except OSError:
            return []
        return text.splitlines()[-most:] if most else []

    def exit_status(self, name: str) -> int:
        """Return the exit status of a finished job: 0 if every task succeeded, else that of the first failed task."""
        failed = self.tasks(name, FAILED, 1)
        if failed:
            return failed[0].exit_code or 1
        job = self.job(name)
        return CANCELLED_STATUS if job is not None and job.cancelled else 0
