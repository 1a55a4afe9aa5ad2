"""This plugin runs in the user's Dask scheduler: it counts waiting tasks and keeps the fences.

Windlass sends it by value, so the scheduler's machine needs Dask but not this package. Its state outlives the
controller: a restarted controller or a standby sees the same fences.

**Counting.** Dask notifies a plugin of every transition of a task, so the plugin counts waiting tasks by kind. The cost
of an observation depends on the number of workers and of kinds, not of tasks.

**The fence.** ``Scheduler.retire_workers`` aborts when results cannot be moved, and with ``remove`` it starts running
tasks again elsewhere. So the plugin takes its steps one by one: the scheduler places nothing more on the worker; the
worker stops starting tasks, returns those that have not started, and reports those that run; Dask's memory manager
copies results that only this worker holds. A worker that has reported "fenced, and nothing runs" starts nothing,
whatever the scheduler does, until the fence is removed.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from math import ceil
from typing import Any

from distributed import Scheduler, Status
from distributed.active_memory_manager import ActiveMemoryManagerExtension, RetireWorker
from distributed.diagnostics.plugin import SchedulerPlugin

PLUGIN = "windlass-1"
"""The number changes with the protocol between the controller and the plugin."""
OURS = "windlass/"
"""Prefix of the names of workers that Windlass has bought: ``windlass/SLICE/HOST``."""

COUNTED = ("queued", "no-worker", "processing")
"""States of a task that waits for a worker, or is assigned to one."""
SCAN = 256
"""How many tasks of one worker, beyond its threads, are checked for whether they run. Dask may have assigned a hundred
thousand to one worker, and which of many equal tasks runs does not matter."""
QUICK, SLOW = 0.05, 1.0
"""Seconds between two calls to a fenced worker: after a change, and when nothing changes."""
ASKING = 10.0
"""Timeout of a call to a worker, in seconds."""
MOVING = 1.0
"""Seconds after which the copying of results is requested again."""
OTHERS = "other-tasks"
MOST_KINDS = 200
"""How many kinds of waiting tasks are reported one by one; the others are summed by what they need."""
REMEMBERED = 10_000
"""How many slices that are gone are remembered, so that a late worker of theirs gets no work."""

Kind = tuple[str, tuple[tuple[str, float], ...], tuple[str, ...]]
"""The key prefix of tasks, the resources that they need, and the workers on which they must run."""


class WindlassPlugin(SchedulerPlugin):  # type: ignore[misc, unused-ignore]
    """Counts tasks and fences workers in a Dask scheduler."""

    name = PLUGIN

    def __init__(self, set_up: bytes) -> None:
        """``set_up``: the pickled function that installs the worker's part of the fence."""
        self._set_up = set_up
        self._life = uuid.uuid4().hex
        self._number = 0
        self._kinds: dict[Any, Kind] = {}
        self._waiting: Counter[Kind] = Counter()
        self._assigned: Counter[Kind] = Counter()
        self._since: dict[Kind, float] = {}
        self._active: dict[str, float] = {}
        """When each worker of ours joined, or a task last ended there."""
        self._busy: set[str] = set()
        """Workers of ours that had tasks at the last observation."""
        self._fences: dict[str, tuple[int, bool]] = {}
        """By slice: the newest epoch, and whether its fence stands or was removed."""
        self._reports: dict[str, dict[str, Any]] = {}
        """The last report of each fenced worker."""
        self._fence_tasks: dict[str, asyncio.Task[None]] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._observed_at = 0.0
        self._moved_at: dict[str, float] = {}

    def start(self, scheduler: Scheduler) -> None:
        """Count and register without an await in between, so that no transition is missed."""
        self.count(scheduler)
        self._change, self._wakeup = asyncio.Event(), asyncio.Event()
        self._memory = ActiveMemoryManagerExtension(scheduler, policies=set(), register=False, start=False)
        scheduler.handlers |= {
            "windlass_observe": self.observe,
            "windlass_wait": self.wait,
            "windlass_cordon": self.cordon,
            "windlass_uncordon": self.uncordon,
            "windlass_evict": self.evict,
            "windlass_forget": self.forget,
        }
        scheduler.stream_handlers["worker-status-change"] = self.status_changed

    def count(self, scheduler: Scheduler) -> None:
        """Count all tasks of the scheduler."""
        self._scheduler = scheduler
        for counted in (self._kinds, self._waiting, self._assigned):
            counted.clear()
        for worker in scheduler.workers.values():
            if slice_of(worker.name):
                self._active.setdefault(worker.address, time.time())
        for task in scheduler.tasks.values():
            if task.state in COUNTED:
                self._enter(task)

    # -- callbacks of Dask --------------------------------------------------------------------------------------------

    def transition(self, key: Any, start: str, finish: str, *_: Any, **about: Any) -> None:
        left, entered = start in COUNTED, finish in COUNTED
        if not left and not entered:
            return
        if left and (kind := self._kinds.pop(key, None)) is not None:
            counter = self._assigned if start == "processing" else self._waiting
            counter[kind] -= 1
            if not counter[kind]:
                del counter[kind]
        if start == "processing" and (worker := about.get("worker")) in self._active:
            self._active[worker] = time.time()
            if worker in self._fence_tasks:
                self._wakeup.set()
        if entered and (task := self._scheduler.tasks.get(key)) is not None and task.state in COUNTED:
            self._enter(task)
        self._notify()

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        if (slice_id := slice_of(scheduler.workers[worker].name)) is None:
            return
        self._active[worker] = time.time()
        if slice_id in self._gone:
            self._scheduler._ongoing_background_tasks.call_soon(self._remove, worker)
        elif self._stands(slice_id):
            self._apply_fence(worker)
        self._notify()

    def remove_worker(self, scheduler: Scheduler, worker: str, **_: Any) -> None:  # noqa: ARG002
        self._active.pop(worker, None)
        self._busy.discard(worker)
        self._reports.pop(worker, None)
        self._moved_at.pop(worker, None)
        self._notify()

    def restart(self, scheduler: Scheduler) -> None:
        """Count again: a client has restarted the scheduler, which forgets all tasks without a transition."""
        self.count(scheduler)
        self._notify()

    def status_changed(self, status: str, worker: str, stimulus_id: str) -> None:
        """Replace the scheduler's own handler: ignore the status "running" of a fenced worker. It may have sent it
        before it received the fence."""
        known = self._scheduler.workers.get(worker)
        if status != Status.running.name or known is None or not self._stands(slice_of(known.name) or ""):
            self._scheduler.handle_worker_status_change(status, worker, stimulus_id)

    def _enter(self, task: Any) -> None:
        kind = self._kinds[task.key] = kind_of(task)
        (self._assigned if task.state == "processing" else self._waiting)[kind] += 1

    def _notify(self) -> None:
        self._number += 1
        self._change.set()

    # -- observing ----------------------------------------------------------------------------------------------------

    async def wait(self, life: str, seen: int) -> bool:
        """Return when something has changed since the observation with this number."""
        while life == self._life and seen == self._number:
            self._change.clear()
            await self._change.wait()
        return True

    def observe(self, target: float) -> dict[str, Any]:
        """Return demands, nodes and fences at one instant, as plain data. ``target``: see ``_worth``."""
        now = time.time()
        workers = list(self._scheduler.workers.values())
        running: Counter[Kind] = Counter()
        nodes = []
        for worker in workers:
            tasks = list(self._running_on(worker))
            running.update(kind for kind, _ in tasks if kind is not None)
            if slice_of(worker.name) is not None:
                nodes.append(self._node(worker, tasks, now))
        self._observed_at = now
        return {
            "life": self._life,
            "number": self._number,
            "now": now,
            "demands": [[*kind, *about] for kind, about in sorted(self._demands(running, now, target).items())],
            "nodes": nodes,
            "holders": holders_among(workers),
            "fences": [[slice_id, epoch, self._blocking(slice_id)] for slice_id, epoch in self._standing()],
        }

    def _demands(self, running: Counter[Kind], now: float, target: float) -> dict[Kind, tuple[int, float]]:
        """Return how many tasks of each kind wait, and since when: those without a worker, and those assigned to a
        worker that is busy with others."""
        kinds = self._waiting.keys() | self._assigned.keys()
        counts = {kind: self._waiting[kind] + max(0, self._assigned[kind] - running[kind]) for kind in kinds}
        if target:
            counts = {kind: self._worth(kind, count, running[kind], target) for kind, count in counts.items()}
        self._since = {kind: self._since.get(kind, now) for kind, count in counts.items() if count}
        found = {kind: (counts[kind], since) for kind, since in self._since.items()}
        for kind in sorted(found, key=lambda one: (-counts[one], one))[MOST_KINDS:]:
            count, since = found.pop(kind)
            others = (OTHERS, *kind[1:])
            more, earlier = found.get(others, (0, since))
            found[others] = count + more, min(since, earlier)
        return found

    def _worth(self, kind: Kind, count: int, running: int, target: float) -> int:
        """Return how many of the waiting tasks must start now so that all finish within ``target`` seconds, by Dask's
        average duration."""
        duration = self._scheduler._get_prefix_duration(self._scheduler.task_prefixes[kind[0]])
        at_once: int = ceil((count + running) * duration / target)
        return min(count, max(0, at_once - running))

    def _running_on(self, worker: Any) -> Iterator[tuple[Kind | None, bool]]:
        """Yield the kind of each task that runs on a worker, and whether it holds a thread. The scheduler does not know
        which assigned tasks have started; as many as fit are taken to run. A fenced worker has reported them."""
        if (report := self._reports.get(worker.address)) is not None:
            for key in report["running"]:
                yield self._kinds.get(key), True
            return
        threads, free = worker.nthreads, dict(worker.resources)
        executing = [task for task in worker.executing if task in worker.processing]
        known = set(executing)
        rest = (task for task in worker.processing if task not in known)
        for task in islice(chain(executing, rest), threads + SCAN):
            if task in worker.long_running:
                yield self._kinds.get(task.key), False
                continue
            needs = task.resource_restrictions or {}
            if threads and all(free.get(name, 0) >= amount for name, amount in needs.items()):
                threads -= 1
                for name, amount in needs.items():
                    free[name] -= amount
                yield self._kinds.get(task.key), True
                if not threads and not worker.long_running:
                    return

    def _node(self, worker: Any, tasks: list[tuple[Kind | None, bool]], now: float) -> dict[str, Any]:
        address, used = worker.address, Counter[str]()
        for kind, _ in tasks:
            used.update(dict(kind[1]) if kind else {})
        if tasks or worker.processing:
            self._busy.add(address)
        elif address in self._busy:
            self._busy.discard(address)
            if self._active[address] < self._observed_at:  # its tasks were cancelled, which is no transition
                self._active[address] = now
        return {
            "name": worker.name,
            "address": address,
            "threads": worker.nthreads,
            "resources": dict(worker.resources),
            "tasks": len(tasks) + len(worker.actors),  # an actor cannot be moved: it keeps its worker busy
            "occupied": worker.nthreads if self._is_full(worker) else sum(holds for _, holds in tasks),
            "used": dict(used),
            "idle_since": self._active[address],
            "silent": max(0.0, now - worker.last_seen),
        }

    def _is_full(self, worker: Any) -> bool:
        """Return whether Dask assigns no more queued tasks to a worker. Then a thread whose task waits for a resource
        is not free room."""
        limit = self._scheduler.WORKER_SATURATION * worker.nthreads
        return bool(len(worker.processing) >= max(limit, 1))

    # -- the fence ----------------------------------------------------------------------------------------------------

    def cordon(self, slice_id: str, epoch: int) -> bool:
        known, stands = self._fences.get(slice_id, (-1, False))
        if epoch < known or (epoch == known and not stands):
            return True
        self._fences[slice_id] = epoch, True
        for worker in self._workers_of(slice_id):
            self._apply_fence(worker.address)
        self._notify()
        return True

    def uncordon(self, slice_id: str, epoch: int) -> bool:
        known, _ = self._fences.get(slice_id, (-1, False))
        if epoch < known:
            return True
        self._fences[slice_id] = epoch, False
        for worker in self._workers_of(slice_id):
            self._reports.pop(worker.address, None)
            self._apply_fence(worker.address)
        self._notify()
        return True

    async def evict(self, slice_id: str, epoch: int) -> bool:
        """End tasks that still run on a fenced slice by ending the processes of its workers. The tasks wait again."""
        if self._fences.get(slice_id) != (epoch, True):
            return True
        for worker in self._workers_of(slice_id):
            if not self._blocked_by(worker):
                continue
            async with asyncio.timeout(ASKING):
                await self._prepare(worker.address)
                for task in worker.processing:
                    task.suspicious -= 1  # Dask will count the end of the worker as a failure of its tasks
                await self._scheduler.rpc(worker.address).windlass_end()
        return True

    async def forget(self, slice_ids: Iterable[str]) -> bool:
        for slice_id in slice_ids:
            self._fences.pop(slice_id, None)
            self._gone[slice_id] = None
            for worker in list(self._workers_of(slice_id)):
                await self._remove(worker.address)
        while len(self._gone) > REMEMBERED:
            self._gone.popitem(last=False)
        self._notify()
        return True

    async def _remove(self, address: str) -> None:
        await self._scheduler.remove_worker(address, stimulus_id=f"windlass-gone-{time.time()}", expected=True)

    def _standing(self) -> Iterator[tuple[str, int]]:
        """Yield the fences whose workers have all reported."""
        for slice_id, (epoch, stands) in sorted(self._fences.items()):
            if stands and all(worker.address in self._reports for worker in self._workers_of(slice_id)):
                yield slice_id, epoch

    def _stands(self, slice_id: str) -> bool:
        return self._fences.get(slice_id, (-1, False))[1]

    def _blocking(self, slice_id: str) -> int:
        return sum(self._blocked_by(worker) for worker in self._workers_of(slice_id))

    def _blocked_by(self, worker: Any) -> int:
        """Return how many things would be lost with a worker: tasks that run, tasks in transit to or from it, actors;
        and one more while it holds results that no other worker has."""
        running = self._reports.get(worker.address, {"running": ()})["running"]
        under_way = sum(task.key not in running for task in worker.processing)
        return len(running) + under_way + len(worker.actors) + any(_unique(worker))

    def _workers_of(self, slice_id: str) -> list[Any]:
        return [worker for worker in self._scheduler.workers.values() if slice_of(worker.name) == slice_id]

    def _apply_fence(self, address: str) -> None:
        """Bring a worker to the state of its slice's fence."""
        worker = self._scheduler.workers[address]
        if self._stands(slice_of(worker.name) or ""):
            self._set_status(worker, Status.closing_gracefully.name)  # nothing more is placed there
        if address not in self._fence_tasks:
            self._fence_tasks[address] = asyncio.ensure_future(self._run_fence_task(address))
        self._wakeup.set()

    def _set_status(self, worker: Any, status: str) -> None:
        self._scheduler.handle_worker_status_change(status, worker, f"windlass-fence-{time.time()}")

    async def _run_fence_task(self, address: str) -> None:
        try:
            await self._apply_until_open(address)
        finally:
            del self._fence_tasks[address]  # no await since the loop ended: a new fence starts a new task

    async def _apply_until_open(self, address: str) -> None:
        """Send the state of the fence to a worker until the fence is removed. One task per worker keeps their order."""
        settled: list[Any] = []
        pause = QUICK
        while (worker := self._scheduler.workers.get(address)) is not None:
            slice_id = slice_of(worker.name) or ""
            fenced = self._stands(slice_id)
            try:
                async with asyncio.timeout(ASKING):
                    report = await self._scheduler.rpc(address).windlass_stand(fenced=fenced, settled=settled)
                    if report is None:  # the worker's part of the fence is not installed yet
                        await self._prepare(address)
                        continue
            except Exception:  # noqa: BLE001  # whatever the reason, the state of the worker is unknown
                report = None
            if report is not None and address in self._scheduler.workers:
                settled = self._take_back(address, report["returned"])
                if fenced != self._stands(slice_id):
                    continue
                if not fenced:
                    self._set_status(worker, report["status"])
                    if not settled:
                        return
                elif report["status"] == Status.closing_gracefully.name:
                    self._record_report(address, {"running": frozenset(report["running"])})
                    self._move_results(worker)
            pause = QUICK if settled else min(2 * pause, SLOW)
            await asyncio.sleep(QUICK)  # a limit on calls when much happens
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wakeup.wait()
                pause = QUICK
                self._wakeup.clear()

    def _record_report(self, address: str, report: dict[str, Any]) -> None:
        if self._reports.get(address) != report:
            self._reports[address] = report
            self._notify()

    async def _prepare(self, address: str) -> None:
        await self._scheduler.rpc(address).run(function=self._set_up)

    def _take_back(self, address: str, keys: Iterable[Any]) -> list[Any]:
        """Reschedule tasks that a worker has returned."""
        found = list(keys)
        for key in found:
            if key in self._scheduler.tasks:
                self._scheduler._reschedule(key, address, stimulus_id=f"windlass-fence-{time.time()}")
        return found

    def _move_results(self, worker: Any) -> None:
        """Make other workers copy the results that only this worker holds; repeat after ``MOVING`` seconds."""
        now = time.time()
        if now - self._moved_at.get(worker.address, 0.0) < MOVING or not any(_unique(worker)):
            return
        self._moved_at[worker.address] = now
        self._memory.policies.clear()
        self._memory.add_policy(RetireWorker(worker.address))
        self._memory.run_once()


def observe_once(set_up: bytes, target: float, dask_scheduler: Scheduler) -> dict[str, Any]:
    """Observe without registering a plugin; use the registered one if there is one."""
    plugin = dask_scheduler.plugins.get(PLUGIN)
    if plugin is None:
        plugin = WindlassPlugin(set_up)
        plugin.count(dask_scheduler)
    return plugin.observe(target)  # type: ignore[no-any-return]


def slice_of(name: object) -> str | None:
    """Return the slice of a worker from its name; None: it is not ours."""
    if not isinstance(name, str) or not name.startswith(OURS):
        return None
    return name[len(OURS) :].rpartition("/")[0] or None


def kind_of(task: Any) -> Kind:
    pinned = task.worker_restrictions if task.worker_restrictions and not task.loose_restrictions else ()
    return task.prefix.name, tuple(sorted((task.resource_restrictions or {}).items())), tuple(sorted(pinned))


def holders_among(workers: Iterable[Any]) -> list[str]:
    """Return the addresses of our workers with results, if one of them must stay to keep the results.

    Results of a worker that leaves are copied to one that stays. A worker that the user started always stays.
    """
    if any(slice_of(worker.name) is None and worker.status == Status.running for worker in workers):
        return []
    return [worker.address for worker in workers if worker.has_what]


def _unique(worker: Any) -> Iterator[bool]:
    """Yield True for each result that no other running worker holds."""
    return (
        True
        for task in worker.has_what
        if not any(other is not worker and other.status == Status.running for other in task.who_has)
    )
