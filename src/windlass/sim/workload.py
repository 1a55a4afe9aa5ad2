"""The simulated workload: jobs arrive, run on the hosts that have joined, and end, behind the fence of the contract.

It sees hosts as a real one does, by their agents (``hosts``), never by the cloud's list. Work that loses its node waits
again from the start; that it was lost is kept in ``interrupted``, which is what "never kills running work" is checked
against.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from windlass.core.lifecycle import State
from windlass.core.snapshot import Amounts, Bundle, Demand, Group, Node, Slice, amounts
from windlass.workloads.protocol import Acknowledgement, Join, WorkloadError, WorkloadView, WorkNode

from .chance import Chance
from .faults import Fault, Storm
from .jobs import Interrupted, Job, Run
from .machines import LiveHost
from .placing import Placed, placed


@dataclass(frozen=True, slots=True)
class Cordon:
    """No new work on a slice, and from when on the workload says so."""

    epoch: int
    acknowledged_from: float


class SimulatedWorkload:
    """Runs work that does not exist."""

    def __init__(
        self,
        groups: Iterable[Group],
        hosts: Callable[[], Sequence[LiveHost]],
        *,
        now: Callable[[], float],
        jobs: Iterable[Job] = (),
        requests: Iterable[Demand] = (),
        seed: int | str = 0,
        faults: Iterable[Fault] = (),
    ) -> None:
        """``hosts``: the hosts that have joined, such as ``SimulatedProvider.live_hosts``."""
        self._groups = {group.name: group for group in groups}
        self._hosts = hosts
        self._now = now
        self._storm = Storm.of(faults, Chance(seed))
        self._coming = sorted(jobs, key=lambda job: (job.arrives, job.id))
        self._jobs: dict[str, Job] = {}
        self._waiting: dict[str, Demand] = {}
        self._runs: dict[int, Run] = {}
        self._started = 0
        self._idle_since: dict[str, float] = {}
        self._cordons: dict[str, Cordon] = {}
        self._seen: dict[str, int] = {}
        self._voided: dict[str, int] = {}
        self._forgotten: set[str] = set()
        self._looks = 0
        self.requests = tuple(requests)
        self.finished: dict[str, float] = {}
        """When the last task of each job ended."""
        self.interrupted: list[Interrupted] = []

    def regroup(self, groups: Iterable[Group]) -> None:
        """From now on hosts are of these groups."""
        self._groups = {group.name: group for group in groups}

    # -- the contract -----------------------------------------------------------------------------------------------

    async def observe(self) -> WorkloadView:
        self.step()
        self._looks += 1
        if self._storm.strikes("observe-fails", self._now(), self._looks):
            raise WorkloadError("the workload cannot be asked just now")
        return WorkloadView(
            demands=tuple(demand for _, demand in sorted(self._waiting.items())),
            requests=self.requests,
            nodes=self._nodes(),
            acknowledged=tuple(
                Acknowledgement(slice_id, cordon.epoch, self.running_on(slice_id))
                for slice_id, cordon in sorted(self._cordons.items())
                if cordon.acknowledged_from <= self._now()
            ),
        )

    async def changed(self) -> None:
        await asyncio.Event().wait()  # what changes here changes with the clock alone: ``next_event`` tells

    def join(self, slice_id: str, group: str, host: int) -> Join:
        return Join(("simulated-agent", f"{slice_id}/{host}"), {"SIMULATED_GROUP": group})

    async def cordon(self, slice_id: str, epoch: int) -> None:
        if epoch <= max(self._seen.get(slice_id, -1), self._voided.get(slice_id, -1)):
            return
        self.step()
        self._seen[slice_id] = epoch
        late = self._storm.strikes("ack-late", self._now(), slice_id, epoch)
        self._cordons[slice_id] = Cordon(epoch, self._now() + (late.seconds if late else 0))
        if lands := self._storm.strikes("work-lands", self._now(), slice_id, epoch):
            self.land(slice_id, lands.seconds)

    async def uncordon(self, slice_id: str, epoch: int) -> None:
        self._voided[slice_id] = max(epoch, self._voided.get(slice_id, -1))
        cordon = self._cordons.get(slice_id)
        if cordon is not None and cordon.epoch <= epoch:
            del self._cordons[slice_id]
        self.step()

    async def drain(self, slice_id: str, epoch: int, *, evict: bool = False) -> None:
        self.step()
        cordon = self._cordons.get(slice_id)
        if evict and cordon is not None and cordon.epoch == epoch:
            self._interrupt({key for key, run in self._runs.items() if run.slice_id == slice_id}, "evicted")

    async def forget(self, slice_ids: Sequence[str]) -> None:
        self._forgotten.update(slice_ids)
        for known in (self._cordons, self._seen, self._voided):
            for slice_id in slice_ids:
                known.pop(slice_id, None)
        self.step()

    async def close(self) -> None:
        """Nothing is open; work goes on."""

    # -- the world --------------------------------------------------------------------------------------------------

    def submit(self, job: Job) -> None:
        """One more job, under an id of its own; it arrives at its time, or now if that has passed."""
        self._coming.append(job)
        self._coming.sort(key=lambda one: (one.arrives, one.id))

    def step(self) -> None:
        """Make happen what is due by now: nodes go, tasks end, jobs arrive, waiting work starts."""
        now = self._now()
        there = {host.id for host in self._joined()}
        # Nodes first: if the clock jumped over both ends, work counts as killed rather than as done. A kill that hides
        # behind a long step would make the one promise that counts look kept.
        self._interrupt({key for key, run in self._runs.items() if run.node not in there}, "node gone")
        self._idle_since = {node: self._idle_since.get(node, now) for node in sorted(there)}
        for key, run in sorted(self._runs.items(), key=lambda item: (item[1].ends, item[0])):
            if run.ends > now:
                break
            del self._runs[key]
            self._idle_since[run.node] = run.ends
            self._end(run)
        while self._coming and self._coming[0].arrives <= now:
            job = self._coming.pop(0)
            self._jobs[job.id] = job
            self._waiting[job.id] = replace(job.demand, since=job.arrives)
        if self._waiting:
            self._start()

    def next_event(self) -> float | None:
        """The next instant at which something changes by itself; None: never again."""
        now = self._now()
        instants = (
            *(run.ends for run in self._runs.values()),
            *(job.arrives for job in self._coming[:1]),
            *(cordon.acknowledged_from for cordon in self._cordons.values()),
        )
        return min((at for at in instants if at > now), default=None)

    def running_on(self, slice_id: str) -> int:
        return sum(run.count for run in self._runs.values() if run.slice_id == slice_id)

    @property
    def runs(self) -> tuple[Run, ...]:
        """Everything that runs."""
        return tuple(self._runs.values())

    def land(self, slice_id: str, duration: float) -> None:
        """A task starts on a slice whatever the cordon says: it was on its way when the cordon came."""
        hosts = [host for host in self._joined() if host.slice_id == slice_id]
        if hosts:
            now = self._now()
            name = f"landed-{slice_id}-{len(self._jobs)}"
            self._jobs[name] = Job(Demand(name, (Bundle((), 1),), since=now), now, duration)
            self._run(Run(name, hosts[0].id, slice_id, (), 1, now, now + duration))

    # -- inside -----------------------------------------------------------------------------------------------------

    def _joined(self) -> list[LiveHost]:
        return [host for host in self._hosts() if host.slice_id not in self._forgotten]

    def _usage(self) -> dict[str, tuple[Amounts, int]]:
        """What is used on each busy node, and by how many tasks."""
        used: dict[str, dict[str, int]] = {}
        tasks: dict[str, int] = {}
        for run in self._runs.values():
            tasks[run.node] = tasks.get(run.node, 0) + run.count
            here = used.setdefault(run.node, {})
            for name, amount in run.needs:
                here[name] = here.get(name, 0) + amount * run.count
        return {node: (amounts(used[node]), count) for node, count in tasks.items()}

    def _nodes(self) -> tuple[WorkNode, ...]:
        usage, found = self._usage(), []
        for host in self._joined():
            used, tasks = usage.get(host.id, ((), 0))
            idle_since = None if tasks else self._idle_since[host.id]
            found.append(
                WorkNode(host.id, host.slice_id, used, tasks, idle_since, labels=host.labels, present=host.present)
            )
        return tuple(found)

    def _start(self) -> None:
        """Start what fits, by the planner's rule, on slices that may take new work."""
        hosts: dict[str, list[LiveHost]] = {}
        for host in self._joined():
            if host.group in self._groups and host.slice_id not in self._cordons and host.present is None:
                hosts.setdefault(host.slice_id, []).append(host)
        usage = self._usage()
        slices = [
            Slice(
                slice_id,
                of[0].group,
                State.READY,
                nodes=tuple(Node(host.id, *usage.get(host.id, ((), 0)), labels=host.labels) for host in of),
            )
            for slice_id, of in sorted(hosts.items())
        ]
        where = {host.id: slice_id for slice_id, of in hosts.items() for host in of}
        demands = [demand for _, demand in sorted(self._waiting.items())]
        for item in placed(self._groups.values(), slices, demands, self._now()):
            self._begin(item, where[item.node])

    def _begin(self, item: Placed, slice_id: str) -> None:
        job, now = self._jobs[item.demand], self._now()
        occasion = () if job.demand.gang else (item.node, self._started)
        ends = now + self._storm.chance.around(job.duration, job.spread, "task", job.id, now, *occasion)
        self._run(Run(job.id, item.node, slice_id, item.needs, item.count, now, ends))
        self._count(job.id, item.needs, -item.count)

    def _run(self, run: Run) -> None:
        self._started += 1
        self._runs[self._started] = run

    def _count(self, name: str, needs: Amounts, more: int) -> None:
        """Change how many tasks of a job wait."""
        demand = self._waiting.get(name) or replace(self._jobs[name].demand, bundles=(), since=self._jobs[name].arrives)
        counts: dict[Amounts, int] = {}
        for bundle in (*demand.bundles, Bundle(needs, more)):
            counts[bundle.needs] = counts.get(bundle.needs, 0) + bundle.count
        bundles = tuple(Bundle(kind, count) for kind, count in counts.items() if count)
        if bundles:
            self._waiting[name] = replace(demand, bundles=bundles)
        else:
            self._waiting.pop(name, None)

    def _end(self, run: Run) -> None:
        if run.job not in self._waiting and not any(other.job == run.job for other in self._runs.values()):
            self.finished[run.job] = run.ends

    def _interrupt(self, keys: set[int], how: str) -> None:
        """End work before its time; it waits again. A gang that lost a member starts all over."""
        if not keys:
            return
        now = self._now()
        gangs = {self._runs[key].job for key in keys if self._jobs[self._runs[key].job].demand.gang}
        beside = {key for key, run in self._runs.items() if run.job in gangs} - keys
        for key in sorted(keys | beside):
            run = self._runs.pop(key)
            self.interrupted.append(Interrupted(run, now, how if key in keys else "its gang was interrupted"))
            self._idle_since[run.node] = now
            self._count(run.job, run.needs, run.count)
