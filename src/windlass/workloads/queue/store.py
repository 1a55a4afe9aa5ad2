"""The queue holds jobs, tasks, nodes and fences in one SQLite file; each of its rules is one transaction.

    DIRECTORY/queue.db             the file; the rest can be deleted
    DIRECTORY/logs/JOB/INDEX.log   what a task wrote
    DIRECTORY/bells/...            sockets by which one process wakes another

A job has a number of equal tasks. Submitters add jobs, agents (`agent`) claim tasks and report how they ended, and the
workload (`workload`) observes and fences. They share only this file, and any of them may be killed at any time: only
committed transactions count.

**The rule.** A task starts only by a claim, and a claim is one transaction that checks that the node's slice is neither
cordoned nor forgotten and that the task fits. So after a cordon is committed, the number of running tasks there can
only fall: that number is the certificate of the fence. Each claim has a number, and only its holder can report how the
task ended: an agent whose node was forgotten meanwhile is ignored.

**Counts.** Only tasks that were started have a row; the others are numbers from ``fresh`` on. Each job has counts of
its waiting, running, done and failed tasks, and ``runs`` counts the tasks of a job on a node. So the cost of an
observation grows with jobs and nodes: a job with 100,000 tasks costs the same as a job with one.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .claims import Claim, Claims, Joined, read_amounts, write_amounts
from .database import Dismissed, QueueError, Run
from .wakeup import AGENTS, WATCHERS, wake_all

if TYPE_CHECKING:
    from windlass.core.model.snapshot import Amounts

MOST_TASKS: Final = 2**31

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class QueueJob(NamedTuple):
    """A job: equal tasks, and how many are in each state."""

    name: str
    command: tuple[str, ...]
    needs: Amounts
    tasks: int
    retries: int
    submitted: float
    waiting: int
    running: int
    done: int
    failed: int
    cancelled: int = 0
    gang: bool = False


class Commands(NamedTuple):
    """The tasks that a node must end."""

    everything: bool
    """Whether its slice is evicted."""
    claims: frozenset[int]
    """Tasks of cancelled jobs, and of gangs that have lost a member and start again as a whole."""


class NodeSeen(NamedTuple):
    id: str
    slice_id: str
    resources: Amounts
    used: Amounts
    tasks: int
    idle_since: float
    labels: Mapping[str, str]
    heartbeat: float
    problem: str
    jobs: tuple[tuple[str, int], ...] = ()
    """Running tasks by job."""


class QueueBacklog(NamedTuple):
    """The waiting tasks of one job."""

    job: str
    needs: Amounts
    tasks: int
    since: float
    gang: bool


class QueueView(NamedTuple):
    """The whole queue at one instant."""

    waiting: Sequence[QueueBacklog]
    nodes: Sequence[NodeSeen]
    fences: Sequence[tuple[str, int, int]]
    """Slice, epoch, tasks that run there."""


class Queue(Claims):
    """The operations of the queue, each of them one transaction."""

    def __init__(
        self, directory: str | os.PathLike[str], *, create: bool = True, now: Callable[[], float] = time.time
    ) -> None:
        super().__init__(directory, create=create)
        self._now = now

    # -- for submitters ----------------------------------------------------------------------------------------------

    def submit(
        self,
        name: str | None,
        command: Sequence[str],
        needs: Amounts,
        count: int = 1,
        retries: int = 0,
        *,
        directory: str | os.PathLike[str] | None = None,
        gang: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> QueueJob:
        """Add a job. ``name`` None: it gets one. Its tasks run in ``directory``, by default in the caller's. ``gang``:
        all of its tasks start together or none does. ``environment``: variables for its tasks, in addition to those of
        the host.
        """
        _check_job(name, command, needs, count, retries)
        if gang and retries:
            raise QueueError("the tasks of a gang start together, so one of them is not tried again: give no retries")
        where = str(Path.cwd() if directory is None else Path(directory).absolute())
        with self._changing() as run:
            [number] = run("SELECT coalesce(max(number), 0) + 1 FROM jobs").fetchone()
            name = self._free_name(run, number) if name is None else name
            if self._is_job(run, name):
                raise QueueError(f"there is a job {name} already; give another name, or none and it gets one")
            run(
                "INSERT INTO jobs (number, name, command, directory, needs, count, retries, submitted, waiting, gang,"
                " environment) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(
                        number,
                        name,
                        json.dumps(command),
                        where,
                        write_amounts(needs),
                        count,
                        retries,
                        self._now(),
                        count,
                    ),
                    *(int(gang), json.dumps(dict(environment or {}))),
                ),
            )
            job = self._jobs("WHERE number = ?", (number,))[0]
        self._wake(AGENTS, WATCHERS)
        return job

    def _free_name(self, run: Run, number: int) -> str:
        while self._is_job(run, f"job-{number}"):
            number += 1
        return f"job-{number}"

    def _is_job(self, run: Run, name: str) -> bool:
        return run("SELECT 1 FROM jobs WHERE name = ?", (name,)).fetchone() is not None

    def jobs(self) -> list[QueueJob]:
        """Return every job, the oldest first."""
        with self._looking():
            return self._jobs("ORDER BY number")

    def _jobs(self, which: str, values: Sequence[Any] = ()) -> list[QueueJob]:
        columns = (
            "name, command, needs, count, retries, submitted, waiting, running, done, failed - cancelled, cancelled,"
            " gang"
        )
        rows = self._connection.execute(f"SELECT {columns} FROM jobs {which}", values)
        jobs = [QueueJob(*row) for row in rows]
        return [
            job._replace(command=tuple(json.loads(str(command))), needs=read_amounts(str(needs)), gang=bool(gang))
            for job in jobs
            for command, needs, gang in [(job.command, job.needs, job.gang)]
        ]

    # -- for the workload --------------------------------------------------------------------------------------------

    def observe(self) -> QueueView:
        """Return waiting jobs, joined nodes, running tasks and current fences, all at one instant."""
        with self._looking() as run:
            # A gang that is put back waits only when all of its members do.
            waiting = run(
                "SELECT name, needs, waiting, submitted, gang FROM jobs"
                " WHERE waiting > 0 AND NOT (gang AND running > 0)"
            ).fetchall()
            nodes = run(
                "SELECT id, slice, resources, labels, idle_since, heartbeat, trouble FROM nodes ORDER BY id"
            ).fetchall()
            runs = run("SELECT node, name, needs, runs.count FROM runs JOIN jobs ON number = job").fetchall()
            fences = run("SELECT slice, cordon FROM fences WHERE cordon IS NOT NULL ORDER BY slice").fetchall()
        used: dict[str, dict[str, int]] = {}
        tasks: dict[str, int] = {}
        jobs: dict[str, dict[str, int]] = {}
        for node, job, needs, count in runs:
            tasks[node] = tasks.get(node, 0) + count
            jobs.setdefault(node, {})[job] = count
            of_node = used.setdefault(node, {})
            for resource, amount in read_amounts(needs):
                of_node[resource] = of_node.get(resource, 0) + amount * count
        running: dict[str, int] = {}
        for node, slice_id, *_ in nodes:
            running[slice_id] = running.get(slice_id, 0) + tasks.get(node, 0)
        return QueueView(
            waiting=sorted(
                QueueBacklog(name, read_amounts(needs), count, since, bool(gang))
                for name, needs, count, since, gang in waiting
            ),
            nodes=[
                NodeSeen(
                    node,
                    slice_id,
                    read_amounts(resources),
                    tuple(sorted(used.get(node, {}).items())),
                    tasks.get(node, 0),
                    idle_since,
                    json.loads(labels),
                    heartbeat,
                    problem,
                    tuple(sorted(jobs.get(node, {}).items())),
                )
                for node, slice_id, resources, labels, idle_since, heartbeat, problem in nodes
            ],
            fences=[(slice_id, epoch, running.get(slice_id, 0)) for slice_id, epoch in fences],
        )

    def cordon(self, slice_id: str, epoch: int) -> None:
        """Stop claims from this slice, unless a newer epoch was seen. A forgotten slice whose machine is listed again
        is acknowledged too: nothing can join or run there, and without that the machine would never be ended.
        """
        changed = self._change_fence(
            "INSERT INTO fences (slice, highest, cordon) VALUES (?1, ?2, ?2) ON CONFLICT DO UPDATE"
            " SET highest = max(highest, ?2), cordon = ?2, evict = 0 WHERE highest < ?2 OR forgotten",
            (slice_id, epoch),
        )
        if changed:
            self._wake(WATCHERS)

    def uncordon(self, slice_id: str, epoch: int) -> None:
        """Allow claims again, unless a later cordon exists. A late cordon up to this epoch has no effect."""
        changed = self._change_fence(
            "INSERT INTO fences (slice, highest) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET highest = max(highest, ?2),"
            " evict = iif(cordon <= ?2, 0, evict), cordon = iif(cordon <= ?2, NULL, cordon)"
            " WHERE highest < ?2 OR cordon <= ?2",
            (slice_id, epoch),
        )
        if changed:
            self._wake(AGENTS, WATCHERS)

    def keep_spares(self, slice_ids: Sequence[str]) -> None:
        """Set the spare slices: for a while they leave tasks that need none of their accelerators to other slices."""
        self._replace("spares", slice_ids)

    def pass_over(self, jobs: Sequence[str]) -> None:
        """Set the gangs for which younger gangs do not wait, because even an empty cluster could not hold them."""
        self._replace("passed_over", jobs)

    def _replace(self, table: str, names: Sequence[str]) -> None:
        with self._changing() as run:
            run(f"DELETE FROM {table}")
            for name in names:
                run(f"INSERT INTO {table} VALUES (?)", (name,))
        self._wake(AGENTS)

    def evict(self, slice_id: str, epoch: int) -> None:
        """Make the agents of the slice end their tasks, if this is the current cordon."""
        changed = self._change_fence(
            "UPDATE fences SET evict = 1 WHERE slice = ? AND cordon = ? AND NOT evict", (slice_id, epoch)
        )
        if changed:
            self._wake(AGENTS)

    def _change_fence(self, statement: str, values: Sequence[Any]) -> bool:
        with self._changing() as run:
            run("DELETE FROM holds WHERE node IN (SELECT id FROM nodes WHERE slice = ?)", values[:1])
            return run(statement, values).rowcount > 0

    def forget(self, slice_ids: Sequence[str]) -> None:
        """Remove slices; their running tasks go back into the queue."""
        with self._changing() as run:
            changed = 0
            for slice_id in slice_ids:
                changed += run(
                    "INSERT INTO fences (slice, forgotten) VALUES (?, 1)"
                    " ON CONFLICT DO UPDATE SET forgotten = 1, cordon = NULL, evict = 0"
                    " WHERE NOT forgotten OR cordon IS NOT NULL",
                    (slice_id,),
                ).rowcount
                for (node,) in run("SELECT id FROM nodes WHERE slice = ?", (slice_id,)).fetchall():
                    self._remove(run, node)
        if changed > 0:
            self._wake(AGENTS, WATCHERS)

    # -- for agents --------------------------------------------------------------------------------------------------

    def join(self, node: str, slice_id: str, resources: Mapping[str, int], labels: Mapping[str, str]) -> Joined:
        """Register a node. Tasks of a former, dead agent of the node go back into the queue."""
        with self._changing() as run:
            if run("SELECT 1 FROM fences WHERE slice = ? AND forgotten", (slice_id,)).fetchone():
                raise Dismissed(f"slice {slice_id} was given up; start a new one")
            before = run("SELECT agent FROM nodes WHERE id = ?", (node,)).fetchone()
            if before and before[0] == process_identity(int(before[0].partition("@")[0])):
                raise Dismissed(f"node {node} has an agent already, process {before[0].partition('@')[0]}")
            self._remove(run, node)
            number, now = self._number(run), self._now()
            place = (node, slice_id, write_amounts(tuple(sorted(resources.items()))), json.dumps(dict(labels)))
            agent = process_identity(os.getpid()) or "0@unknown"
            run(
                "INSERT INTO nodes (id, slice, resources, labels, agent, joined, idle_since, heartbeat)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*place, agent, number, now, now),
            )
        self._wake(WATCHERS)
        return Joined(node, slice_id, number)

    def beat(self, place: Joined) -> None:
        """Write a heartbeat."""
        with self._changing() as run:
            self._check(run, place)
            run("UPDATE nodes SET heartbeat = ? WHERE id = ?", (self._now(), place.node))

    def commands(self, place: Joined) -> Commands:
        """Return what this node must end; raise ``Dismissed`` if it is no longer registered."""
        with self._looking() as run:
            self._check(run, place)
            evict = run("SELECT 1 FROM fences WHERE slice = ? AND evict", (place.slice_id,)).fetchone()
            recalled = run(
                "SELECT claim FROM tasks JOIN jobs ON number = job"
                " WHERE node = ? AND state = 'running' AND (recalled OR cancelled_at IS NOT NULL)",
                (place.node,),
            ).fetchall()
        return Commands(bool(evict), frozenset(claim for (claim,) in recalled))

    def set_problem(self, place: Joined, problem: str) -> None:
        """Set why the node cannot start tasks; empty: it can again. A node with an error claims nothing."""
        with self._changing() as run:
            self._check(run, place)
            run("UPDATE nodes SET trouble = ? WHERE id = ?", (problem, place.node))
            run("DELETE FROM holds WHERE node = ?", (place.node,))
        self._wake(WATCHERS)

    def claim(self, place: Joined) -> list[Claim]:
        """Claim the tasks that this node must run now: as many as fit, of the oldest jobs first. A task that is too
        large for the free resources is skipped for ``PATIENCE`` seconds; then a node that could hold it takes nothing
        younger until the task has started, there or elsewhere. The tasks of a gang start together: nodes reserve room
        for them, and the node that reserves the last of it starts all of them at once.
        """
        with self._looking() as run:  # a read takes no lock: a hundred idle agents may read at once
            self._check(run, place)
            if not self._has_news(run, place):
                return []
        found: list[Claim] = []
        with self._changing() as run:
            self._check(run, place)
            found += self._given(run, place)
            choice = self._choose(run, place)
            for job, count in choice.starts:
                found += self._started(run, place, job, count)
            gangs = self._hold(run, place, choice.holds)
            found += self._given(run, place)
        if found:
            self._wake(WATCHERS)
        if gangs:
            self._wake(AGENTS)
        return found

    def report(self, place: Joined, claim: int, exit_code: int | None) -> None:
        """Record that a task has ended. ``exit_code`` None: the agent ended it, and it goes back into the queue. A
        claim that no longer exists is ignored.
        """
        with self._changing() as run:
            self._check(run, place)
            task = run(
                "SELECT job, task, failures, retries FROM tasks JOIN jobs ON number = job"
                " WHERE node = ? AND claim = ? AND state = 'running'",
                (place.node, claim),
            ).fetchone()
            if task is None:
                return
            job, index, failures, retries = task
            failures += bool(exit_code)
            state = "done" if exit_code == 0 else "waiting" if exit_code is None or failures <= retries else "failed"
            run(
                "UPDATE tasks SET state = ?, failures = ?, exit_code = ? WHERE job = ? AND task = ?",
                (state, failures, exit_code, job, index),
            )
            run(f"UPDATE jobs SET running = running - 1, {state} = {state} + 1 WHERE number = ?", (job,))
            run("UPDATE runs SET count = count - 1 WHERE node = ? AND job = ?", (place.node, job))
            run("DELETE FROM runs WHERE node = ? AND job = ? AND count = 0", (place.node, job))
            run("UPDATE nodes SET idle_since = ? WHERE id = ?", (self._now(), place.node))
            if state == "waiting":
                run(
                    "UPDATE tasks SET recalled = 1 WHERE job = ? AND state = 'running'"
                    " AND EXISTS (SELECT 1 FROM jobs WHERE number = ? AND gang)",
                    (job, job),
                )
        self._wake(WATCHERS, *([AGENTS] if state == "waiting" else []))

    def leave(self, place: Joined) -> None:
        """Remove a node; its running tasks go back into the queue."""
        with self._changing() as run:
            self._check(run, place)
            self._remove(run, place.node)
        self._wake(AGENTS, WATCHERS)

    def _remove(self, run: Run, node: str) -> None:
        """Remove a node; its running tasks go back into the queue, which does not count as a retry."""
        for job, count in run("SELECT job, count FROM runs WHERE node = ?", (node,)).fetchall():
            run("UPDATE jobs SET waiting = waiting + ?, running = running - ? WHERE number = ?", (count, count, job))
            self._recall(run, job, node)
        run("UPDATE tasks SET state = 'waiting' WHERE node = ? AND state = 'running'", (node,))
        for table, column in (("runs", "node"), ("holds", "node"), ("nodes", "id")):
            run(f"DELETE FROM {table} WHERE {column} = ?", (node,))

    def _recall(self, run: Run, job: int, node: str) -> None:
        """End the other members of a gang when one was lost or put back; all of them wait again."""
        run(
            "UPDATE tasks SET recalled = 1 WHERE job = ? AND state = 'running' AND node <> ?"
            " AND EXISTS (SELECT 1 FROM jobs WHERE number = ? AND gang)",
            (job, node, job),
        )

    def _wake(self, *who: str) -> None:
        for one in who:
            wake_all(self.directory, one)


def _check_job(name: str | None, command: Sequence[str], needs: Amounts, count: int, retries: int) -> None:
    if name is not None and not _NAME.fullmatch(name):
        raise QueueError(
            f"a job cannot be named {name[:120]!r}; use up to 100 letters, digits, dots, dashes and underscores"
        )
    if not command or not command[0] or any("\0" in word for word in command):
        raise QueueError("a job needs a command: the program and its arguments, none of them with a NUL in it")
    if not needs or any(amount <= 0 for _, amount in needs):
        raise QueueError("a task must need something, or a node would run any number of them; give needs such as cpu=1")
    if not 1 <= count <= MOST_TASKS or retries < 0:
        raise QueueError(f"a job has from 1 to {MOST_TASKS:,} tasks and no less than 0 retries; give such numbers")


def process_identity(pid: int) -> str | None:
    """Return the identity of a process: its pid, start time and boot id. None: no such process, or a dead one."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:8]
    except OSError:
        return None
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] in ("Z", "X") else f"{pid}@{fields[19]}@{boot}"
