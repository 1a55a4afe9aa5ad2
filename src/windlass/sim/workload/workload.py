"""The simulated workload runs jobs on the hosts that have joined, behind the fence of the contract.

It sees hosts through their agents (``hosts``), as a real one does, never through the cloud's list. Work that loses its
node waits again from the start and is recorded in ``interrupted``, which the checker uses for "never kills running
work". Unchanged items are returned as the same objects.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from math import inf
from operator import attrgetter
from typing import Any

from windlass.control.observe.completed import Completed
from windlass.core.model.lifecycle import State
from windlass.core.model.snapshot import Amounts, Bundle, Demand, Group, Node, Slice, rules_of
from windlass.sim.cloud.machines import LiveHost
from windlass.sim.faults.catalogue import Fault, FaultSet
from windlass.sim.faults.distorted_view import distorted
from windlass.sim.random_source import RandomSource
from windlass.workloads.protocol import Acknowledgement, Join, WorkloadError, WorkloadView, WorkNode

from .cordons import Cordon, Cordons
from .free_slices import FreeSlices
from .hosts import Compared, Joining
from .jobs import Interrupted, Job, TaskRun, one_of, recounted, task_seconds
from .outages import Outages
from .placement import PlacedTasks, Places, has_rules
from .running_tasks import RunningIndex


class SimulatedWorkload:
    """Runs simulated jobs."""

    def __init__(
        self,
        groups: Iterable[Group],
        hosts: Joining | Callable[[], Sequence[LiveHost]],
        *,
        now: Callable[[], float],
        jobs: Iterable[Job] = (),
        requests: Iterable[Demand] = (),
        seed: int | str = 0,
        faults: Iterable[Fault] = (),
        struck: dict[str, int] | None = None,
    ) -> None:
        """``hosts``: all joined hosts, such as ``SimulatedProvider.live_hosts``, or their changes. ``struck`` counts
        the applied faults.
        """
        self._groups = {group.name: group for group in groups}
        self._places = Places(self._groups.values())
        self._hosts = hosts if isinstance(hosts, Joining) else Compared(hosts)
        self._now = now
        self._fault_set = FaultSet.of(faults, RandomSource(seed), struck)
        self._coming = [(job.arrives, job.id, job) for job in sorted(jobs, key=lambda job: (job.arrives, job.id))]
        self._arrived = 0
        """Number of jobs that have arrived."""
        self._jobs: dict[str, Job] = {}
        self._waiting: dict[str, Demand] = {}
        self._runs = RunningIndex()
        self._idle_since: dict[str, float] = {}
        self._cordons = Cordons()
        self._forgotten: set[str] = set()
        self._observations = 0
        self._joined: dict[str, LiveHost] = {}
        self._slices: dict[str, dict[str, LiveHost]] = {}
        self._nodes: dict[str, WorkNode] = {}
        """Joined nodes, as of their last update."""
        self._stale: dict[str, None] = {}
        """Nodes that changed since then."""
        self._shown: tuple[WorkNode, ...] | None = None
        self._demands: tuple[Demand, ...] | None = None
        self._offered = FreeSlices()
        self._laid_out: dict[str, Slice] = {}
        """Cached slices with free capacity."""
        self._stale_offers: dict[str, None] = {}
        """Slices that changed since they were cached."""
        self._outages = Outages()
        self._due = self._next_arrival
        """Nothing happens without input before this time, except that hosts join and leave."""
        self._room_changed = False
        self._touched: dict[str, bool | None] = {}
        """Nodes that changed since the last observation, each with whether it was busy then; None: it did not exist."""
        self._seen_waiting: tuple[Demand, ...] = ()
        self._seen_acks: tuple[Acknowledgement, ...] = ()
        """Waiting demand and acknowledgements at the last observation."""
        self._stirred: dict[str, None] = {}
        """Jobs with tasks that have started or ended."""
        self.requests = tuple(requests)
        self.finished: dict[str, float] = {}
        """When the last task of each job ended."""
        self.all_started: dict[str, float] = {}
        """When the last task of each job first started."""
        self.interrupted: list[Interrupted] = []

    def regroup(self, groups: Iterable[Group]) -> None:
        """Set the groups of hosts from now on."""
        self._groups = {group.name: group for group in groups}
        self._places = Places(self._groups.values())
        self._stale_offers.update(dict.fromkeys(self._slices))
        self._room_changed = True

    # -- the contract -----------------------------------------------------------------------------------------------

    def observe(self) -> Coroutine[Any, Any, WorkloadView]:
        return self._observed_with_faults() if self._fault_set.faults else Completed(self._observed())

    def _observed(self) -> WorkloadView:
        self._look()
        return WorkloadView(self._seen_waiting, self.requests, self._view(), self._seen_acks)

    async def _observed_with_faults(self) -> WorkloadView:
        self._look()
        now, number = self._now(), self._observations
        if self._fault_set.occurs("observe-fails", now, number):
            raise WorkloadError("the workload cannot be asked just now")
        if self._fault_set.occurs("observe-hangs", now, number):
            await asyncio.Event().wait()
        view = WorkloadView(self._queue(), self.requests, self._view(), self._acknowledged(self._seen_acks, now))
        return distorted(view, self._fault_set, now, number)

    def _look(self) -> None:
        """Mark everything as observed."""
        self.step()
        self._observations += 1
        self._touched.clear()
        self._seen_waiting, self._seen_acks = self._queue(), self._cordons.acks(self._now(), self.running_on)

    def _queue(self) -> tuple[Demand, ...]:
        """Return what waits, by id; the same object while nothing changes."""
        if self._demands is None:
            self._demands = tuple([demand for _, demand in sorted(self._waiting.items())])
        return self._demands

    def _acknowledged(self, acknowledgements: tuple[Acknowledgement, ...], now: float) -> tuple[Acknowledgement, ...]:
        """Return the acknowledgements as they arrive under faults, some of them twice."""
        if not acknowledgements or "ack-doubled" not in self._fault_set.by_kind:
            return acknowledgements
        doubled = [
            (one, one) if self._fault_set.occurs("ack-doubled", now, one.slice_id, one.epoch) else (one,)
            for one in acknowledgements
        ]
        return tuple(chain.from_iterable(doubled))

    async def changed(self) -> None:
        await asyncio.Event().wait()  # changes here come with the clock alone: see ``next_event``

    def join(self, slice_id: str, group: str, host: int) -> Join:
        return Join(("simulated-agent", f"{slice_id}/{host}"), {"SIMULATED_GROUP": group})

    async def cordon(self, slice_id: str, epoch: int) -> None:
        if not self._cordons.heeds(slice_id, epoch):
            return
        self.step()
        now = self._now()
        late = self._fault_set.occurs("ack-late", now, slice_id, epoch)
        lost = self._fault_set.occurs("ack-lost", now, slice_id, epoch)
        self._cordons.put(slice_id, Cordon(epoch, inf if lost else now + (late.seconds if late else 0)))
        if lands := self._fault_set.occurs("work-lands", now, slice_id, epoch):
            self.land(slice_id, lands.seconds)
        if self._fault_set.occurs("cordon-hangs", now, slice_id, epoch):
            await asyncio.Event().wait()

    async def uncordon(self, slice_id: str, epoch: int) -> None:
        if self._cordons.lift(slice_id, epoch):
            self._room_changed = True
        self.step()

    async def drain(self, slice_id: str, epoch: int, *, evict: bool = False) -> None:
        self.step()
        if evict and self._cordons.holds(slice_id, epoch):
            self._interrupt(self._runs.on_slice(slice_id), "evicted")
        if self._fault_set.occurs("drain-hangs", self._now(), slice_id, epoch):
            await asyncio.Event().wait()

    async def forget(self, slice_ids: Sequence[str]) -> None:
        self._forgotten.update(slice_ids)
        self._cordons.forget(slice_ids)
        self._meet_hosts(self._now(), [slice_id for slice_id in slice_ids if slice_id in self._slices])
        self.step()

    async def close(self) -> None:
        """Does nothing: no resource is open, and work goes on."""

    # -- the world --------------------------------------------------------------------------------------------------

    def submit(self, job: Job) -> None:
        """Add a job with a new id; it arrives at its time, or now if that has passed."""
        insort(self._coming, (job.arrives, job.id, job), lo=self._arrived)
        self._due = min(self._due, job.arrives)

    def step(self) -> None:
        """Process everything that is due: nodes leave, tasks end, jobs arrive, waiting work starts."""
        now = self._now()
        # Nodes first: if the clock jumped over both ends, work counts as killed rather than as done. Otherwise a long
        # step could hide a kill.
        self._meet_hosts(now)
        if self._due <= now:
            self._let_pass(now)
        if self._room_changed:
            if self._waiting:
                self._start()
            self._room_changed = False  # tasks that have just started free no capacity

    def _let_pass(self, now: float) -> None:
        """Process ends of tasks, outages and arrivals."""
        for run in self._runs.over(now):
            self._idle_since[run.node] = run.ends
            self._touch(run.node)
            self._end(run)
        for node in self._outages.turned(now):
            self._touch(node)
        while self._next_arrival <= now:
            _, _, job = self._coming[self._arrived]
            self._arrived += 1
            self._jobs[job.id] = job
            self._waiting[job.id] = replace(job.demand, since=job.arrives)
            self._demands = None
            self._room_changed = True
        self._due = min(
            self._runs.first_end,
            self._outages.next_turn,
            self._next_arrival,
        )

    @property
    def _next_arrival(self) -> float:
        return self._coming[self._arrived][0] if self._arrived < len(self._coming) else inf

    def next_event(self) -> float | None:
        """Return the next time at which something changes without input; None: never."""
        now = self._now()
        instants = [self._runs.next_end(), self._next_arrival, self._outages.next_turn, *self._cordons.instants()]
        first = min([at for at in instants if at > now], default=inf)
        return first if first < inf else None

    def is_as_seen(self) -> bool:
        """Whether only the usage of busy nodes changed since the last observation, without a new acknowledgement. A
        plan that depends on waiting demand, idle nodes and acknowledgements would then be the same. The end of a cordon
        does not count: the controller ordered it.
        """
        if self._queue() != self._seen_waiting:
            return False
        tasks = self._runs.tasks
        for name, had_work in self._touched.items():
            if had_work is not (tasks(name) > 0):
                return False
        return all(one in self._seen_acks for one in self._cordons.acks(self._now(), self.running_on))

    def calm(self) -> None:
        """Stop all faults; their effects stay."""
        self._fault_set = FaultSet.of((), self._fault_set.chance, self._fault_set.struck)
        for node in self._outages.end_all():
            self._touch(node)

    def running_on(self, slice_id: str) -> int:
        return self._runs.tasks_on_slice(slice_id)

    @property
    def is_busy(self) -> bool:
        """Whether any task runs."""
        return self._runs.count > 0

    @property
    def running(self) -> int:
        """Number of running tasks."""
        return self._runs.count

    @property
    def runs(self) -> tuple[TaskRun, ...]:
        """All runs."""
        return tuple(self._runs)

    @property
    def waiting(self) -> tuple[Demand, ...]:
        """All waiting demand: the truth, without faults."""
        return tuple(self._waiting.values())

    def gangs_that_changed(self) -> list[tuple[Job, int]]:
        """Return the gangs whose members started or ended since the last call, with the number of running members."""
        if not self._stirred:
            return []
        gangs = [job for name in self._stirred if (job := self._jobs[name]).demand.gang]
        self._stirred.clear()
        return [(job, sum(self._runs[key].count for key in self._runs.of_job(job.id))) for job in gangs]

    def idle_since(self, node: str) -> float | None:
        """Return since when a node is really idle; None: it is busy, or does not exist."""
        return None if self._runs.tasks(node) else self._idle_since.get(node)

    def land(self, slice_id: str, duration: float) -> None:
        """Start a task on a slice in spite of its cordon, as if it was in flight when the cordon arrived."""
        self._meet_hosts(self._now())
        for host in self._slices.get(slice_id, {}).values():
            now = self._now()
            name = f"landed-{slice_id}-{len(self._jobs)}"
            self._jobs[name] = Job(Demand(name, (Bundle((), 1),), since=now), now, duration)
            self._run(TaskRun(name, host.id, slice_id, (), 1, now, now + duration))
            return

    # -- hosts ------------------------------------------------------------------------------------------------------

    def _meet_hosts(self, now: float, forgotten: Iterable[str] = ()) -> None:
        """Process hosts that joined or left since the last call; hosts of forgotten slices count as gone."""
        changes = self._hosts.changes()
        if forgotten:
            changes = {**changes, **dict.fromkeys(forgotten, ())}
        if not changes:
            return
        left, joined = list[LiveHost](), list[LiveHost]()
        for slice_id, hosts in changes.items():
            known = self._slices.get(slice_id, {})
            there = {} if slice_id in self._forgotten else {host.id: host for host in hosts}
            left += [host for name, host in known.items() if name not in there]
            joined += [host for name, host in there.items() if known.get(name) != host]
        for host in left:
            self._leave(host)
        self._interrupt([key for host in left for key in self._runs.on_node(host.id)], "node gone")
        for host in joined:
            self._joined[host.id] = host
            self._slices.setdefault(host.slice_id, {})[host.id] = host
            self._idle_since.setdefault(host.id, now)
            self._outages.draw(host, self._fault_set, now)
            self._due = min(self._due, self._outages.next_turn)
            self._touch(host.id)

    def _leave(self, host: LiveHost) -> None:
        del self._joined[host.id]
        hosts = self._slices[host.slice_id]
        del hosts[host.id]
        if not hosts:
            del self._slices[host.slice_id]
        self._idle_since.pop(host.id, None)
        self._outages.forget(host.id)
        self._touch(host.id, host.slice_id)
        self._nodes.pop(host.id, None)

    def _touch(self, node: str, slice_id: str | None = None) -> None:
        """Mark a node as changed."""
        if node not in self._touched:
            known = self._nodes.get(node)
            self._touched[node] = None if known is None else known.tasks > 0
        self._stale[node] = None
        self._shown = None
        host = self._joined.get(node)
        self._stale_offers[slice_id or (host.slice_id if host else "")] = None
        self._room_changed = True

    def _view(self) -> tuple[WorkNode, ...]:
        """Return every visible node, the same objects as before where nothing changed."""
        if self._shown is None:
            now = self._now()
            for name in self._stale:
                if name in self._joined:
                    self._nodes[name] = self._node(name, now)
            self._stale.clear()
            nodes = self._nodes.values()
            plain = not self._fault_set.faults and not self._outages
            self._shown = tuple(nodes) if plain else self._outages.visible(nodes, self._fault_set, now)
        return self._shown

    def _node(self, name: str, now: float) -> WorkNode:
        host = self._joined[name]
        used, tasks = self._runs.usage(name)
        idle_since = None if tasks else self._idle_since[name]
        healthy = self._outages.on(name, now) != "unwell"
        return WorkNode(
            name,
            host.slice_id,
            used,
            tasks,
            idle_since,
            host.labels,
            healthy,
            host.present,
            classes=self._classes(name) if tasks else (),
        )

    # -- work -------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Start what fits, by the planner's rule, on slices that may take new work."""
        for name in self._stale_offers:
            self._laid_out.pop(name, None)
            self._offered.put(name, self._most_free(name))
        self._stale_offers.clear()
        queue, cordons = self._queue(), self._cordons
        slices = [self._lay_out(name) for name in self._offered.with_room(queue) if name not in cordons]
        if slices and any(map(has_rules, queue)):
            slices += self._counted_only({item.id for item in slices})
        if not slices:
            return
        for item in self._places.placed(slices, queue, self._now()):
            self._begin(item, self._joined[item.node].slice_id)

    def _counted_only(self, offered: set[str]) -> list[Slice]:
        """Return the slices that take no work now, but whose tasks count for the constraints of others."""
        found = []
        for slice_id in self._slices:
            if slice_id not in offered and (hosts := sorted(self._slices[slice_id].values(), key=_BY_ID)):
                nodes = tuple(
                    Node(host.id, healthy=False, labels=host.labels, classes=self._classes(host.id)) for host in hosts
                )
                found.append(Slice(slice_id, hosts[0].group, State.READY, nodes=nodes))
        return [item for item in found if item.group in self._groups]

    def _classes(self, node: str) -> tuple[tuple[str, int], ...]:
        """Return the number of tasks of each class on a node."""
        counts: dict[str, int] = {}
        for key in self._runs.on_node(node):
            run = self._runs[key]
            for name in rules_of(self._jobs[run.job].demand, run.kind).classes:
                counts[name] = counts.get(name, 0) + run.count
        return tuple(sorted(counts.items()))

    def _most_free(self, slice_id: str) -> Amounts | None:
        """Return the largest free amount of each resource on one node of a slice; None: no node can take work."""
        hosts = self._hosts_for_work(slice_id)
        group = self._groups.get(hosts[0].group) if hosts else None
        if group is None:
            return None
        used = [dict(self._runs.usage(host.id)[0]) for host in hosts]
        return tuple([(kind, amount - min([one.get(kind, 0) for one in used])) for kind, amount in group.resources])

    def _hosts_for_work(self, slice_id: str) -> list[LiveHost]:
        now, outages = self._now(), self._outages
        return [
            host
            for host in self._slices.get(slice_id, {}).values()
            if host.present is None and (not outages or outages.on(host.id, now) is None)
        ]

    def _lay_out(self, slice_id: str) -> Slice:
        """Return a slice with the nodes that can take work, the same object while nothing about it changes."""
        known = self._laid_out.get(slice_id)
        if known is None:
            hosts = sorted(self._hosts_for_work(slice_id), key=_BY_ID)
            usage = self._runs.usage
            nodes = tuple(
                [Node(host.id, *usage(host.id), labels=host.labels, classes=self._classes(host.id)) for host in hosts]
            )
            known = self._laid_out[slice_id] = Slice(slice_id, hosts[0].group, State.READY, nodes=nodes)
        return known

    def _begin(self, item: PlacedTasks, slice_id: str) -> None:
        job, now, fault_set = self._jobs[item.demand], self._now(), self._fault_set
        occasion = () if job.demand.gang else (item.node, self._runs.started)
        length = task_seconds(job, fault_set, now, occasion)
        waiting = self._waiting[job.id].bundles
        kind = one_of(item.bundle or next(one for one in waiting if one.needs == item.needs))
        self._run(TaskRun(job.id, item.node, slice_id, item.needs, item.count, now, now + length, kind))
        self._count(job.id, kind, -item.count)

    def _run(self, run: TaskRun) -> None:
        self._stirred[run.job] = None
        self._runs.add(run)
        self._due = min(self._due, run.ends)
        self._touch(run.node)

    def _count(self, name: str, kind: Bundle, more: int) -> None:
        """Change how many tasks of a job wait."""
        self._demands = None
        demand = recounted(self._jobs[name], self._waiting.get(name), kind, more)
        if demand is not None:
            self._waiting[name] = demand
        else:
            self._waiting.pop(name, None)
            self.all_started.setdefault(name, self._now())

    def _end(self, run: TaskRun) -> None:
        self._stirred[run.job] = None
        if run.job not in self._waiting and not self._runs.of_job(run.job):
            self.finished[run.job] = run.ends

    def _interrupt(self, keys: Iterable[int], how: str) -> None:
        """Interrupt work; it waits again. A gang that lost a member starts over."""
        ended = set(keys)
        if not ended:
            return
        now = self._now()
        gangs = sorted({self._runs[key].job for key in ended if self._jobs[self._runs[key].job].demand.gang})
        beside = {key for job in gangs for key in self._runs.of_job(job)} - ended
        for key in sorted(ended | beside):
            run = self._runs.pop(key)
            self._stirred[run.job] = None
            self.interrupted.append(Interrupted(run, now, how if key in ended else "its gang was interrupted"))
            if run.node in self._joined:
                self._idle_since[run.node] = now
            self._touch(run.node)
            self._count(run.job, run.kind or Bundle(run.needs), run.count)


_BY_ID = attrgetter("id")
