"""QueueWorkload runs commands from one SQLite file on the hosts that join. It is the default and needs nothing
installed.

All state and all rules are in the file (`store`). This module maps it to the workload contract: a job with waiting
tasks is a demand, an agent that has joined is a node, a current fence is an acknowledgement, valid at the time of the
observation, because running tasks are counted in the same transaction and a claim cannot pass the fence. Only
connections are kept in memory: a restarted controller, or a standby, sees the same.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from windlass.core.model.lifecycle import OFFERING, State
from windlass.core.model.reasons import Code
from windlass.core.model.snapshot import Bundle, Demand, Gang, Group, Snapshot
from windlass.workloads.protocol import (
    Acknowledgement,
    DecisionReport,
    Join,
    WorkloadError,
    WorkloadView,
    WorkNode,
)

from .agent import NODE
from .claims import SILENT
from .database import FILE, QueueError, QueueGone, another
from .node_status import read_status
from .store import NodeSeen, Queue, QueueView
from .wakeup import WATCHERS, WakeupSocket

T = TypeVar("T")

GRACE: Final = 3.0
"""Seconds between SIGTERM and SIGKILL for a task: less than the five that a local provider gives the whole host, so
that the agent has time to put its tasks back into the queue.
"""

MOST_PASSED_OVER: Final = 20
"""The number of waiting gangs that are tried in an empty cluster; each is a small plan."""


class QueueWorkload:
    """Runs the commands of a queue. ``directory`` is the queue: one per cluster, kept over restarts."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        groups: Iterable[Group] = (),
        *,
        grace: float = GRACE,
        read_only: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``read_only``: observations create neither a queue nor a socket; a missing queue counts as empty."""
        self._read_only, self._expected = read_only, False
        self._directory = Path(directory).absolute()
        self._grace = grace
        self._now = now
        # Separate connections: a change may wait for another writer, an observation never does.
        self._looking = _Connection(self._directory, now, create=not read_only)
        self._changing = _Connection(self._directory, now, create=not read_only)
        self._wakeup: WakeupSocket | None = None
        self._written: tuple[tuple[str, ...], tuple[str, ...]] | None = None
        """The spares and the gangs that are passed over, as last written to the queue."""
        self._tried: dict[str, tuple[Snapshot, bool]] = {}
        """By gang: the cluster without machines and with this gang alone, and whether it could hold the gang."""
        self._keeping: asyncio.Task[None] | None = None
        self.regroup(groups)

    def expect_state(self) -> None:
        """From now on a missing queue is an error, and no new one is made: machines have joined it before."""
        self._expected = True
        for connection in (self._looking, self._changing):
            connection.create = False

    def regroup(self, groups: Iterable[Group]) -> None:
        """Set the groups for hosts that join from now on; joined nodes do not change."""
        self._groups = {group.name: group for group in groups}

    # -- the contract ------------------------------------------------------------------------------------------------

    async def observe(self) -> WorkloadView:
        if self._read_only and not self._expected and not (self._directory / FILE).exists():
            return WorkloadView()  # nothing was submitted yet
        # Cleared before the observation: a later change may be missing from the view, so it must wake the loop again.
        await self._listen()
        if self._wakeup is not None:
            self._wakeup.clear()
        sight = await _asked(lambda: self._looking.do(Queue.observe))
        return _view(sight, self._directory, self._now())

    async def changed(self) -> None:
        with suppress(WorkloadError):
            await self._listen()
        wakeup = self._wakeup
        heard = asyncio.Event()
        if wakeup is None:
            await heard.wait()  # no sockets here: wait for ever, the loop polls
            return
        loop = asyncio.get_running_loop()
        # A separate descriptor: two callers may wait at once, and the loop allows one reader per descriptor.
        handle = os.dup(wakeup.fileno())
        loop.add_reader(handle, heard.set)
        try:
            await heard.wait()
        finally:
            loop.remove_reader(handle)
            os.close(handle)

    def join(self, slice_id: str, group: str, host: int) -> Join:
        known = self._groups.get(group)
        if known is None:
            raise WorkloadError(
                f"host {host} of slice {slice_id} cannot join: there is no group {group}; "
                f"there are {', '.join(sorted(self._groups)) or 'none'}"
            )
        parameters = {
            "node": f"{slice_id}/{host}",
            "slice": slice_id,
            "resources": dict(known.resources),
            "labels": known.node_labels(),
            "grace": self._grace,
        }
        # -P: nothing is imported from the directory of the host.
        command = (sys.executable, "-P", "-m", f"{__package__}.agent", str(self._directory))
        return Join(command, {NODE: json.dumps(parameters, sort_keys=True)})

    async def cordon(self, slice_id: str, epoch: int) -> None:
        await self._change(lambda queue: queue.cordon(slice_id, epoch))

    async def uncordon(self, slice_id: str, epoch: int) -> None:
        await self._change(lambda queue: queue.uncordon(slice_id, epoch))

    async def drain(self, slice_id: str, epoch: int, *, evict: bool = False) -> None:
        if evict:
            await self._change(lambda queue: queue.evict(slice_id, epoch))

    def on_decision(self, decision: DecisionReport) -> None:
        """Write to the queue what agents must know of the plan, because they claim tasks without waiting for one: its
        spare slices, and the gangs that younger gangs pass.
        """
        if decision.plan is None:
            return
        parts = spares_of(decision), self._passed_over(decision)
        if parts == self._written or (self._keeping is not None and not self._keeping.done()):
            return  # changes meanwhile are written after the next pass
        self._keeping = asyncio.get_running_loop().create_task(self._keep(*parts))

    async def _keep(self, spares: tuple[str, ...], passed_over: tuple[str, ...]) -> None:
        spares_before, passed_before = self._written or (None, None)
        with suppress(WorkloadError):  # retried after the next pass
            if spares != spares_before:
                await self._change(lambda queue: queue.keep_spares(spares))
            if passed_over != passed_before:
                await self._change(lambda queue: queue.pass_over(passed_over))
            self._written = spares, passed_over

    def _passed_over(self, decision: DecisionReport) -> tuple[str, ...]:
        """Return the oldest gangs that even an empty cluster could not hold, up to the first that it could."""
        snapshot, made = decision.snapshot, decision.plan
        if snapshot is None or made is None or not made.waiting:
            return ()
        waits = {one.demand for one in made.waiting}
        found: list[str] = []
        gangs = [one for one in snapshot.demands if one.gang is not None]
        self._tried = {one.id: self._tried[one.id] for one in gangs if one.id in self._tried}
        for demand in sorted(gangs, key=lambda one: (one.since or 0.0, one.id))[:MOST_PASSED_OVER]:
            alone = replace(snapshot, slices=(), requests=(), demands=(demand,), now=0)
            if demand.id not in waits or self._could_hold(demand.id, alone, snapshot.now):
                break
            found.append(demand.id)
        return tuple(found)

    def _could_hold(self, gang: str, alone: Snapshot, now: float) -> bool:
        known = self._tried.get(gang)
        if known is None or known[0] != alone:
            from windlass.core.planner import plan

            self._tried[gang] = known = alone, not plan(replace(alone, now=now)).waiting
        return known[1]

    async def forget(self, slice_ids: Sequence[str]) -> None:
        await self._change(lambda queue: queue.forget(slice_ids))

    async def close(self) -> None:
        if self._keeping is not None:
            await asyncio.gather(self._keeping, return_exceptions=True)
        for connection in (self._looking, self._changing):
            connection.close()
        if self._wakeup is not None:
            self._wakeup.close()
            self._wakeup = None

    async def _change(self, change: Callable[[Queue], None]) -> None:
        await _asked(lambda: self._changing.do(change))

    async def _listen(self) -> None:
        """Create the wake-up file, again if it was removed."""
        if self._read_only or (self._wakeup is not None and self._wakeup.path.exists()):
            return
        await _asked(self._looking.open)
        if self._wakeup is not None:
            self._wakeup.close()
            self._wakeup = None
        with suppress(OSError):
            self._wakeup = WakeupSocket(self._directory, WATCHERS)


def spares_of(decision: DecisionReport) -> tuple[str, ...]:
    """Return the slices that a plan keeps as spares: free ones and starting ones, without those that it gives work."""
    plan, slices = decision.plan, decision.slices
    assert plan is not None
    spare = {group.name: group.spare for group in decision.groups}
    named = {one.slice for one in plan.stays if one.reason.code == Code.SPARE}
    free = {one.slice for one in plan.stays if one.reason.code not in _GIVEN} & slices.keys()
    free = {
        name for name in free if slices[name].state in OFFERING and (name in named or spare.get(slices[name].group))
    }
    if free:
        free -= {one.on for one in plan.placements}
    kept = {name for name in free if name in named}
    for name in sorted(free - kept, key=lambda one: (slices[one].state != State.READY, one)):
        if sum(slices[one].group == slices[name].group for one in kept) < spare[slices[name].group]:
            kept.add(name)
    return tuple(sorted(kept))


_GIVEN: Final = frozenset({Code.PLACED, Code.GANG_HELD, Code.REQUESTED_CAPACITY, Code.BUSY})
"""Reasons of slices that are kept for future work."""


class _Connection:
    """The queue, opened when it is first needed, and again when its file was replaced by a copy of it."""

    def __init__(self, directory: Path, now: Callable[[], float], *, create: bool) -> None:
        self._directory, self._now, self.create = directory, now, create
        self._queue: Queue | None = None
        self._id = ""
        self._opening = threading.Lock()

    def open(self) -> Queue:
        """Return the queue. Another queue in its place is an error: it does not know the nodes and their tasks, so it
        would confirm that nothing runs there.
        """
        with self._opening:
            if self._queue is None:
                found = Queue(self._directory, create=self.create and not self._id, now=self._now)
                if self._id and found.id != self._id:
                    found.close()
                    raise QueueGone(another(found.path, "restart the controller"))
                self._queue, self._id = found, found.id
            return self._queue

    def do(self, what: Callable[[Queue], T]) -> T:
        queue = self.open()
        try:
            return what(queue)
        except QueueGone:
            if queue.path.exists():  # the file was replaced, perhaps by a backup; a missing file stays an error
                self.close()
            raise

    def close(self) -> None:
        with self._opening:
            if self._queue is not None:
                self._queue.close()
                self._queue = None


async def _asked(call: Callable[[], T]) -> T:
    """Run a call in a thread, because the disk may be slow; raise only ``WorkloadError``."""
    try:
        return await asyncio.to_thread(call)
    except QueueError as error:
        raise WorkloadError(str(error)) from error


def _view(seen: QueueView, directory: Path, now: float) -> WorkloadView:
    return WorkloadView(
        demands=tuple(
            Demand(one.job, (Bundle(one.needs, one.tasks),), since=one.since, gang=Gang.ANY if one.gang else None)
            for one in seen.waiting
        ),
        nodes=tuple(_node(node, directory, now) for node in seen.nodes),
        acknowledged=tuple(Acknowledgement(*fence) for fence in seen.fences),
    )


def _node(node: NodeSeen, directory: Path, now: float) -> WorkNode:
    """Return a node for the workload contract. If its heartbeat in the database is old, its status file may have a
    newer one, with the reason why the agent cannot write to the database.
    """
    alive, problem = now - node.heartbeat <= SILENT, node.problem
    if now - node.heartbeat > SILENT / 3 and (status := read_status(directory, node.id)) is not None:
        alive = alive or now - status[0] <= SILENT
        problem = problem or status[1]
    if not alive:
        problem = f"gave no sign of life for {round(now - node.heartbeat)} s" + (f": {problem}" if problem else "")
    return WorkNode(
        id=node.id,
        slice_id=node.slice_id,
        used=node.used,
        tasks=node.tasks,
        idle_since=None if node.tasks else node.idle_since,
        labels=node.labels,
        healthy=alive and not node.problem,
        present=node.resources,
        trouble=problem,
        jobs=node.jobs,
    )
