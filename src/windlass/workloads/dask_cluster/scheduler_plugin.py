"""This plugin runs in the user's Dask scheduler: it counts what waits, and holds the fences.

It is sent there by value, so the scheduler's machine needs Dask and not this package. What it knows outlives the
controller: one that is started again, or a standby next to it, sees the same fences.

**Counting.** Dask notifies a plugin of every transition of a task, so what waits is known by kind at any instant,
however much it is. An observation costs by the number of workers and of different tasks.

**The fence.** ``Scheduler.retire_workers`` gives up a retirement on its own when results cannot be moved, and with
``remove`` it starts running tasks again elsewhere. So its steps are taken here one by one: the scheduler places nothing
more there; the worker itself stops starting tasks, hands back what has not started, and says what runs; results that
only it holds are copied to others by Dask's own memory manager. Whatever the scheduler does meanwhile, a worker that
has said "fenced, and nothing runs" starts nothing: its statement stays true until the fence is removed.
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
"""The number grows when the two sides could not talk any more."""
OURS = "windlass/"
"""How the names of workers begin that Windlass has bought: ``windlass/SLICE/HOST``."""

COUNTED = ("queued", "no-worker", "processing")
"""States of a task that waits for a worker, or has one."""
SCAN = 256
"""Tasks of one worker that are looked at, beyond its threads, to see which of them run. Dask may have assigned a
hundred thousand to one worker, and which of many equal ones runs does not matter."""
QUICK, SLOW = 0.05, 1.0
"""Seconds between two questions to a fenced worker: soon after a change, and when nothing changes."""
ASKING = 10.0
"""Seconds that a worker may take to answer."""
MOVING = 1.0
"""Seconds after which results that have not come anywhere else yet are asked for once more."""
OTHERS = "other-tasks"
MOST_KINDS = 200
"""Kinds of waiting tasks that are reported one by one; of the others, only what they need."""
REMEMBERED = 10_000
"""Slices that are gone and are remembered as such, lest a late worker of theirs takes work."""

Kind = tuple[str, tuple[tuple[str, float], ...], tuple[str, ...]]
"""What tasks have in common: the prefix of their keys, the resources they ask for, the workers they insist on."""


class WindlassPlugin(SchedulerPlugin):  # type: ignore[misc, unused-ignore]
    """The plugin that Windlass registers with a Dask scheduler."""

    name = PLUGIN

    def __init__(self, set_up: bytes) -> None:
        """``set_up``: the pickled function that gives a worker its side of the fence."""
        self._set_up = set_up
        self._life = uuid.uuid4().hex
        self._number = 0
        self._kinds: dict[Any, Kind] = {}
        self._waiting: Counter[Kind] = Counter()
        self._assigned: Counter[Kind] = Counter()
        self._since: dict[Kind, float] = {}
        self._active: dict[str, float] = {}
        """When something last ended on each worker of ours, or it joined."""
        self._busy: set[str] = set()
        """Workers of ours on which something was assigned at the last observation."""
        self._fences: dict[str, tuple[int, bool]] = {}
        """By slice: the newest epoch, and whether the fence stands under it or was taken down."""
        self._words: dict[str, dict[str, Any]] = {}
        """What fenced workers have said since the fence stands."""
        self._tending: dict[str, asyncio.Task[None]] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._looked_at = 0.0
        self._moved_at: dict[str, float] = {}

    def start(self, scheduler: Scheduler) -> None:
        """Count and register in one step, so that no transition is missed in between."""
        self.count(scheduler)
        self._news, self._stir = asyncio.Event(), asyncio.Event()
        self._memory = ActiveMemoryManagerExtension(scheduler, policies=set(), register=False, start=False)
        scheduler.handlers |= {
            "windlass_look": self.look,
            "windlass_wait": self.wait,
            "windlass_cordon": self.cordon,
            "windlass_uncordon": self.uncordon,
            "windlass_evict": self.evict,
            "windlass_forget": self.forget,
        }
        scheduler.stream_handlers["worker-status-change"] = self.status_changed

    def count(self, scheduler: Scheduler) -> None:
        """Once over all tasks there are."""
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
            if worker in self._tending:
                self._stir.set()
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
            self._tend(worker)
        self._notify()

    def remove_worker(self, scheduler: Scheduler, worker: str, **_: Any) -> None:  # noqa: ARG002
        self._active.pop(worker, None)
        self._busy.discard(worker)
        self._words.pop(worker, None)
        self._moved_at.pop(worker, None)
        self._notify()

    def restart(self, scheduler: Scheduler) -> None:
        """A client had the scheduler forget all its tasks; no transition reports them."""
        self.count(scheduler)
        self._notify()

    def status_changed(self, status: str, worker: str, stimulus_id: str) -> None:
        """In place of the scheduler's own handler: a worker that says that it runs does not pass its fence. It may have
        said so before it learned of it."""
        known = self._scheduler.workers.get(worker)
        if status != Status.running.name or known is None or not self._stands(slice_of(known.name) or ""):
            self._scheduler.handle_worker_status_change(status, worker, stimulus_id)

    def _enter(self, task: Any) -> None:
        kind = self._kinds[task.key] = kind_of(task)
        (self._assigned if task.state == "processing" else self._waiting)[kind] += 1

    def _notify(self) -> None:
        self._number += 1
        self._news.set()

    # -- looking ------------------------------------------------------------------------------------------------------

    async def wait(self, life: str, seen: int) -> bool:
        """Until there is something that an observation with this number has not shown."""
        while life == self._life and seen == self._number:
            self._news.clear()
            await self._news.wait()
        return True

    def look(self, target: float) -> dict[str, Any]:
        """All of it, at one instant, as plain data. ``target``: see ``_worth``."""
        now = time.time()
        workers = list(self._scheduler.workers.values())
        running: Counter[Kind] = Counter()
        nodes = []
        for worker in workers:
            tasks = list(self._running_on(worker))
            running.update(kind for kind, _ in tasks if kind is not None)
            if slice_of(worker.name) is not None:
                nodes.append(self._node(worker, tasks, now))
        self._looked_at = now
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
        """How many wait of each kind, and since when: with no worker, or assigned to one that is busy with others."""
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
        """How many of those that wait must begin now, beside those that run, for all to be through in ``target``
        seconds, by Dask's own average of how long they take."""
        duration = self._scheduler._get_prefix_duration(self._scheduler.task_prefixes[kind[0]])
        at_once: int = ceil((count + running) * duration / target)
        return min(count, max(0, at_once - running))

    def _running_on(self, worker: Any) -> Iterator[tuple[Kind | None, bool]]:
        """The kind of each task that runs on a worker, and whether it holds a thread. The scheduler does not know which
        of those it has assigned have started: as many as fit do. A fenced worker has said it itself."""
        if (word := self._words.get(worker.address)) is not None:
            for key in word["running"]:
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
            if self._active[address] < self._looked_at:  # what ran there was cancelled: its end was not reported
                self._active[address] = now
        return {
            "name": worker.name,
            "address": address,
            "threads": worker.nthreads,
            "resources": dict(worker.resources),
            "tasks": len(tasks) + len(worker.actors),  # an actor cannot be moved: where it lives, work goes on
            "occupied": worker.nthreads if self._is_full(worker) else sum(holds for _, holds in tasks),
            "used": dict(used),
            "idle_since": self._active[address],
            "silent": max(0.0, now - worker.last_seen),
        }

    def _is_full(self, worker: Any) -> bool:
        """Whether Dask puts no queued task there any more, for it has assigned enough of others: a thread that waits
        for its turn at a resource is no room then."""
        limit = self._scheduler.WORKER_SATURATION * worker.nthreads
        return bool(len(worker.processing) >= max(limit, 1))

    # -- the fence ----------------------------------------------------------------------------------------------------

    def cordon(self, slice_id: str, epoch: int) -> bool:
        known, stands = self._fences.get(slice_id, (-1, False))
        if epoch < known or (epoch == known and not stands):
            return True
        self._fences[slice_id] = epoch, True
        for worker in self._workers_of(slice_id):
            self._tend(worker.address)
        self._notify()
        return True

    def uncordon(self, slice_id: str, epoch: int) -> bool:
        known, _ = self._fences.get(slice_id, (-1, False))
        if epoch < known:
            return True
        self._fences[slice_id] = epoch, False
        for worker in self._workers_of(slice_id):
            self._words.pop(worker.address, None)
            self._tend(worker.address)
        self._notify()
        return True

    async def evict(self, slice_id: str, epoch: int) -> bool:
        """End what still runs behind the fence, with the processes of its workers. It waits again."""
        if self._fences.get(slice_id) != (epoch, True):
            return True
        for worker in self._workers_of(slice_id):
            if not self._blocked_by(worker):
                continue
            async with asyncio.timeout(ASKING):
                await self._prepare(worker.address)
                for task in worker.processing:
                    task.suspicious -= 1  # Dask will count the end of the worker as a fault of its tasks
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
        """Fences for which every worker has reported its state."""
        for slice_id, (epoch, stands) in sorted(self._fences.items()):
            if stands and all(worker.address in self._words for worker in self._workers_of(slice_id)):
                yield slice_id, epoch

    def _stands(self, slice_id: str) -> bool:
        return self._fences.get(slice_id, (-1, False))[1]

    def _blocking(self, slice_id: str) -> int:
        return sum(self._blocked_by(worker) for worker in self._workers_of(slice_id))

    def _blocked_by(self, worker: Any) -> int:
        """How many things would be lost with a worker: tasks that run, tasks on their way there or back, actors; and
        one more while it holds results that no other worker has."""
        running = self._words.get(worker.address, {"running": ()})["running"]
        under_way = sum(task.key not in running for task in worker.processing)
        return len(running) + under_way + len(worker.actors) + any(_unique(worker))

    def _workers_of(self, slice_id: str) -> list[Any]:
        return [worker for worker in self._scheduler.workers.values() if slice_of(worker.name) == slice_id]

    def _tend(self, address: str) -> None:
        """Bring a worker to the state that its slice's fence asks for."""
        worker = self._scheduler.workers[address]
        if self._stands(slice_of(worker.name) or ""):
            self._set_status(worker, Status.closing_gracefully.name)  # nothing more is placed there
        if address not in self._tending:
            self._tending[address] = asyncio.ensure_future(self._tended(address))
        self._stir.set()

    def _set_status(self, worker: Any, status: str) -> None:
        self._scheduler.handle_worker_status_change(status, worker, f"windlass-fence-{time.time()}")

    async def _tended(self, address: str) -> None:
        try:
            await self._tend_until_open(address)
        finally:
            del self._tending[address]  # without an await in between: no coroutine serves a new fence yet

    async def _tend_until_open(self, address: str) -> None:
        """One queue for each worker, so that its orders and answers keep their order."""
        settled: list[Any] = []
        pause = QUICK
        while (worker := self._scheduler.workers.get(address)) is not None:
            slice_id = slice_of(worker.name) or ""
            fenced = self._stands(slice_id)
            try:
                async with asyncio.timeout(ASKING):
                    word = await self._scheduler.rpc(address).windlass_stand(fenced=fenced, settled=settled)
                    if word is None:  # it has not got its side of the fence yet
                        await self._prepare(address)
                        continue
            except Exception:  # noqa: BLE001  # it cannot be asked: whatever the reason, what it would say is unknown
                word = None
            if word is not None and address in self._scheduler.workers:
                settled = self._take_back(address, word["returned"])
                if fenced != self._stands(slice_id):
                    continue
                if not fenced:
                    self._set_status(worker, word["status"])
                    if not settled:
                        return
                elif word["status"] == Status.closing_gracefully.name:
                    self._heard(address, {"running": frozenset(word["running"])})
                    self._move_results(worker)
            pause = QUICK if settled else min(2 * pause, SLOW)
            await asyncio.sleep(QUICK)  # however much happens
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stir.wait()
                pause = QUICK
                self._stir.clear()

    def _heard(self, address: str, word: dict[str, Any]) -> None:
        if self._words.get(address) != word:
            self._words[address] = word
            self._notify()

    async def _prepare(self, address: str) -> None:
        await self._scheduler.rpc(address).run(function=self._set_up)

    def _take_back(self, address: str, keys: Iterable[Any]) -> list[Any]:
        """Find another place for tasks that a worker has handed back."""
        found = list(keys)
        for key in found:
            if key in self._scheduler.tasks:
                self._scheduler._reschedule(key, address, stimulus_id=f"windlass-fence-{time.time()}")
        return found

    def _move_results(self, worker: Any) -> None:
        """Have others copy the results that only this worker holds; what finds no taker is tried again."""
        now = time.time()
        if now - self._moved_at.get(worker.address, 0.0) < MOVING or not any(_unique(worker)):
            return
        self._moved_at[worker.address] = now
        self._memory.policies.clear()
        self._memory.add_policy(RetireWorker(worker.address))
        self._memory.run_once()


def look_once(set_up: bytes, target: float, dask_scheduler: Scheduler) -> dict[str, Any]:
    """An observation that leaves nothing behind; it includes what a registered plugin knows already."""
    plugin = dask_scheduler.plugins.get(PLUGIN)
    if plugin is None:
        plugin = WindlassPlugin(set_up)
        plugin.count(dask_scheduler)
    return plugin.look(target)  # type: ignore[no-any-return]


def slice_of(name: object) -> str | None:
    """The slice of a worker, by its name; None: it is not ours."""
    if not isinstance(name, str) or not name.startswith(OURS):
        return None
    return name[len(OURS) :].rpartition("/")[0] or None


def kind_of(task: Any) -> Kind:
    pinned = task.worker_restrictions if task.worker_restrictions and not task.loose_restrictions else ()
    return task.prefix.name, tuple(sorted((task.resource_restrictions or {}).items())), tuple(sorted(pinned))


def holders_among(workers: Iterable[Any]) -> list[str]:
    """The addresses of our workers with results, if one must stay because no other worker could take them all.

    Results of a worker that goes are copied to one that stays. A worker that the user started always stays.
    """
    if any(slice_of(worker.name) is None and worker.status == Status.running for worker in workers):
        return []
    return [worker.address for worker in workers if worker.has_what]


def _unique(worker: Any) -> Iterator[bool]:
    """True for each result that only this worker, or only workers that take nothing more, hold."""
    return (
        True
        for task in worker.has_what
        if not any(other is not worker and other.status == Status.running for other in task.who_has)
    )
