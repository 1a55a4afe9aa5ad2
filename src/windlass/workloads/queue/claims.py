"""This module holds the rules by which a node claims tasks: what it starts, what it keeps room for, and how a gang
starts as a whole.

The oldest job comes first. A task that is too large for the free resources is skipped for at most ``PATIENCE`` seconds:
then a node that could hold it takes no younger task, so that a stream of small tasks cannot starve a large one. When
the wait has doubled, one more node does so, because a task on the first one may never end. A gang starts in one
transaction, on all of its nodes at once. A spare machine with accelerators leaves tasks without accelerators to other
machines while the plan keeps it as a spare, for at most ``PATIENCE`` seconds. Agents import this module, so its imports
are light.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from math import log2
from typing import TYPE_CHECKING, Final, NamedTuple

from windlass.core.capacity.node_room import NodeRoom, fits_empty
from windlass.core.model.quantities import ACCELERATORS

from .database import Dismissed, QueueFile, Run

if TYPE_CHECKING:
    from windlass.core.model.snapshot import Amounts

MOST_AT_ONCE: Final = 64
"""Tasks claimed in one transaction; other agents claim in between."""
PATIENCE: Final = 30.0
"""Seconds for which younger tasks may pass one that is too large for the free resources."""
SILENT: Final = 10.0
"""Seconds without a heartbeat after which a node counts as unhealthy; agents send one a second."""


class Joined(NamedTuple):
    """The registration of a node in the queue; the number distinguishes it from a former agent of the node."""

    node: str
    slice_id: str
    number: int


class Claim(NamedTuple):
    """One task that this node must run now."""

    number: int
    job: str
    task: int
    command: tuple[str, ...]
    directory: str
    environment: Mapping[str, str]


class _Choice(NamedTuple):
    """The tasks that a node starts now (job, count), and the jobs and task counts for which it reserves room. A count
    of 0: it takes nothing younger than the job, so that room for one of its tasks becomes free.
    """

    starts: list[tuple[int, int]]
    holds: dict[int, int]


class Claims(QueueFile):
    """Decides which tasks a node may start."""

    _now: Callable[[], float]

    def _check(self, run: Run, place: Joined) -> None:
        if not run("SELECT 1 FROM nodes WHERE id = ? AND joined = ?", (place.node, place.number)).fetchone():
            raise Dismissed(f"node {place.node} has no place in the queue any more: its slice was given up")

    def _has_news(self, run: Run, place: Joined) -> bool:
        """Whether a claim would change anything."""
        given = "SELECT 1 FROM tasks WHERE node = ? AND state = 'running' AND NOT given"
        if run(given, (place.node,)).fetchone():
            return True
        choice = self._choose(run, place)
        held = dict(run("SELECT job, count FROM holds WHERE node = ?", (place.node,)).fetchall())
        return bool(choice.starts) or choice.holds != held or any(self._is_whole(run, job) for job in choice.holds)

    def _is_whole(self, run: Run, job: int) -> bool:
        """Whether nodes have reserved room for all members of a gang."""
        [waiting, gang] = run("SELECT waiting, gang FROM jobs WHERE number = ?", (job,)).fetchone()
        [held] = run("SELECT coalesce(sum(count), 0) FROM holds WHERE job = ?", (job,)).fetchone()
        return bool(gang and held >= waiting)

    def _choose(self, run: Run, place: Joined) -> _Choice:
        """Return what the node may start now, and for which jobs it reserves room."""
        choice = _Choice([], {})
        if not self._may_claim(run, place.node, place.slice_id):
            return choice
        [resources] = run("SELECT resources FROM nodes WHERE id = ?", (place.node,)).fetchone()
        there = run("SELECT job, needs, runs.count FROM runs JOIN jobs ON number = job WHERE node = ?", (place.node,))
        here = {job: (read_amounts(needs), count) for job, needs, count in there}
        room = NodeRoom(read_amounts(resources), list(here.values()))
        left, too_large, gangs, now = MOST_AT_ONCE, set[str](), 0, self._now()
        kept_for = self._kept_for(run, place.slice_id, read_amounts(resources))
        jobs = "SELECT number, needs, waiting, running, gang, submitted FROM jobs WHERE waiting > 0 ORDER BY number"
        for job, needs, waiting, running, gang, submitted in run(jobs):
            if kept_for and now - submitted < PATIENCE and not any(name in kept_for for name, _ in read_amounts(needs)):
                continue
            if gang:
                # Only one gang at a time reserves room: two gangs could block each other for ever.
                if not gangs and not running:
                    most = self._gang_room(run, place, job, read_amounts(needs), waiting)
                    if most is None and self._is_passed_over(run, job):
                        continue
                    if kept := room.take_many(read_amounts(needs), most or 0):
                        choice.holds[job] = kept
                gangs += 1
                continue
            if needs in too_large:
                continue
            count = room.take_many(read_amounts(needs), min(waiting, left))
            left -= count
            if count:
                choice.starts.append((job, count))
            if not left:
                break
            if count < waiting:
                too_large.add(needs)
                starved = not count and job not in here and now - submitted >= PATIENCE
                if starved and fits_empty(read_amounts(resources), read_amounts(needs)):
                    most = waiting + int(log2((now - submitted) / PATIENCE))
                    if self._keeps_free(run, place, job, read_amounts(needs), waiting, most):
                        choice.holds[job] = 0
                        break
        return choice

    def _keeps_free(self, run: Run, place: Joined, job: int, needs: Amounts, waiting: int, most: int) -> bool:
        """Whether this node takes nothing younger than a job whose tasks are too large for its free resources. The
        first ``waiting`` nodes that ask do so. A task on one of them may never end, so with the time that the job
        waits up to ``most`` nodes do so. The others are those whose oldest running task is the youngest: there, tasks
        end soonest.
        """
        alive = self._now() - SILENT
        nodes = run(
            "SELECT id, slice, resources, holds.node FROM nodes LEFT JOIN holds ON id = holds.node AND job = ?"
            " WHERE heartbeat >= ? OR id = ?",
            (job, alive, place.node),
        ).fetchall()
        holding = {node for node, _, _, holds in nodes if holds is not None}
        if place.node in holding or len(holding) < waiting:
            return True
        if len(holding) >= most:
            return False
        able = [
            node
            for node, slice_id, resources, holds in nodes
            if holds is None and fits_empty(read_amounts(resources), needs) and self._may_claim(run, node, slice_id)
        ]
        oldest = dict(run("SELECT node, min(claim) FROM tasks WHERE state = 'running' GROUP BY node").fetchall())
        able.sort(key=lambda node: (-oldest.get(node, 0), node))
        return place.node in able[: most - len(holding)]

    def _kept_for(self, run: Run, slice_id: str, resources: Amounts) -> frozenset[str]:
        """Return the accelerators of a node that the plan keeps as a spare; empty: it takes any task."""
        if not run("SELECT 1 FROM spares WHERE slice = ?", (slice_id,)).fetchone():
            return frozenset()
        return frozenset(name for name, _ in resources if name in ACCELERATORS)

    def _may_claim(self, run: Run, node: str, slice_id: str) -> bool:
        fenced = run("SELECT 1 FROM fences WHERE slice = ? AND (cordon IS NOT NULL OR forgotten)", (slice_id,))
        if fenced.fetchone():
            return False
        return run("SELECT 1 FROM nodes WHERE id = ? AND trouble = ''", (node,)).fetchone() is not None

    def _is_passed_over(self, run: Run, job: int) -> bool:
        """Whether even an empty cluster could not hold a gang; then a younger gang need not wait for it."""
        found = run("SELECT 1 FROM passed_over JOIN jobs ON name = passed_over.job WHERE number = ?", (job,))
        return found.fetchone() is not None

    def _gang_room(self, run: Run, place: Joined, job: int, needs: Amounts, waiting: int) -> int | None:
        """Return for how many members of a gang this node may reserve room: those without room on another node. None:
        the joined nodes could not hold the gang even when empty.
        """
        nodes = run("SELECT resources, count(*) FROM nodes WHERE trouble = '' GROUP BY resources").fetchall()
        most = sum(count * NodeRoom(read_amounts(has)).take_many(needs, waiting) for has, count in nodes)
        if most < waiting:
            return None
        [elsewhere] = run(
            "SELECT coalesce(sum(count), 0) FROM holds JOIN nodes ON id = node"
            " WHERE job = ? AND node <> ? AND heartbeat >= ?",
            (job, place.node, self._now() - SILENT),
        ).fetchone()
        return int(waiting - elsewhere)

    def _hold(self, run: Run, place: Joined, holds: Mapping[int, int]) -> bool:
        """Reserve room for these jobs, and start a gang that has room for all of its members; return whether one was
        started.
        """
        run("DELETE FROM holds WHERE node = ? OR job NOT IN (SELECT number FROM jobs WHERE waiting > 0)", (place.node,))
        for job, count in holds.items():
            run("INSERT INTO holds VALUES (?, ?, ?)", (place.node, job, count))
        started = False
        for job in [job for job, count in holds.items() if count]:
            [waiting] = run("SELECT waiting FROM jobs WHERE number = ?", (job,)).fetchone()
            held = run(
                "SELECT node, slice, joined, count, heartbeat FROM holds JOIN nodes ON id = node"
                " WHERE job = ? ORDER BY node",
                (job,),
            ).fetchall()
            able = [
                (Joined(node, slice_id, number), count)
                for node, slice_id, number, count, heartbeat in held
                if self._now() - heartbeat <= SILENT and self._may_claim(run, node, slice_id)
            ]
            if sum(count for _, count in able) < waiting:
                continue
            for one, count in able:
                self._started(run, one, job, min(count, waiting), given=False)
                waiting -= min(count, waiting)
            run("DELETE FROM holds WHERE job = ?", (job,))
            started = True
        return started

    def _given(self, run: Run, place: Joined) -> list[Claim]:
        """Return tasks that another node started for this node, as members of a gang."""
        rows = run(
            "SELECT claim, name, task, command, directory, environment FROM tasks JOIN jobs ON number = job"
            " WHERE node = ? AND state = 'running' AND NOT given ORDER BY claim",
            (place.node,),
        ).fetchall()
        if rows:
            run("UPDATE tasks SET given = 1 WHERE node = ? AND state = 'running'", (place.node,))
        return [
            Claim(number, name, task, tuple(json.loads(command)), directory, json.loads(environment))
            for number, name, task, command, directory, environment in rows
        ]

    def _started(self, run: Run, place: Joined, job: int, count: int, *, given: bool = True) -> list[Claim]:
        name, command, directory, fresh, environment = run(
            "SELECT name, command, directory, fresh, environment FROM jobs WHERE number = ?", (job,)
        ).fetchone()
        again = run("SELECT task FROM tasks WHERE job = ? AND state = 'waiting' ORDER BY task LIMIT ?", (job, count))
        indexes = [index for (index,) in again]
        new = count - len(indexes)
        indexes += range(fresh, fresh + new)
        claims = [
            Claim(self._number(run), name, index, tuple(json.loads(command)), directory, json.loads(environment))
            for index in indexes
        ]
        for claim in claims:
            run(
                "INSERT INTO tasks (job, task, state, claim, node, given) VALUES (?, ?, 'running', ?, ?, ?)"
                " ON CONFLICT DO UPDATE SET state = 'running', claim = excluded.claim, node = excluded.node,"
                " given = excluded.given, recalled = 0",
                (job, claim.task, claim.number, place.node, int(given)),
            )
        run(
            "UPDATE jobs SET fresh = fresh + ?, waiting = waiting - ?, running = running + ? WHERE number = ?",
            (new, count, count, job),
        )
        run(
            "INSERT INTO runs VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count",
            (place.node, job, count),
        )
        return claims

    def _number(self, run: Run) -> int:
        """Return the next unused number."""
        return int(run("UPDATE numbers SET last = last + 1 RETURNING last").fetchone()[0])


def write_amounts(amounts: Amounts) -> str:
    return json.dumps(amounts)


@lru_cache(maxsize=1024)
def read_amounts(text: str) -> Amounts:
    return tuple((name, amount) for name, amount in json.loads(text))
