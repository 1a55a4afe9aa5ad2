"""``RayWorkload`` connects the controller to a Ray cluster.

An observation reads the GCS (resources, demand, nodes, actors) and the head's raylet, and folds the answers onto the
state of the last observation. A background task polls both every ``poll`` seconds and wakes the controller when
something has changed since then. The state of a head that does not answer is unknown, not empty. A head that was
restarted without its storage is another cluster: nodes of the old one are lost, and the new one is served from then on.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from windlass.core.model.lifecycle import State
from windlass.core.model.plan import Plan
from windlass.core.model.snapshot import Group
from windlass.workloads.protocol import DecisionReport, Diagnosis, Join, WorkloadError, WorkloadView, WorkNode

from . import wire_pb2 as wire
from .credentials import RayCredentials
from .demand import fingerprint, groups_of, load_of, shapes_of
from .fences import RayFences, message
from .gcs import (
    IDLE_TERMINATION,
    PREEMPTION,
    V2_KEY,
    V2_NAMESPACE,
    Gcs,
    GcsError,
    OtherCluster,
    again_if_unreached,
    refuses_connections,
)
from .join import RayJoining
from .nodes import PULL, RayNode, RayNodes, fold_nodes, slice_of
from .program import check_program
from .report import ReportState, autoscaling_state, driver_lines, loosened
from .view import RayView, shown
from .waiting import LastWaited, PendingWork, fold_groups, fold_waiting, with_placed_bundles

POLL: Final = 0.2
SILENT: Final = 15.0
REPORT: Final = 5.0
"""Seconds between two reports when nothing changes."""
CHECK: Final = 0.5
"""Seconds between two checks that raylets on the head's machine accept connections."""
CAREFUL: Final = 60.0
"""Seconds after a failed start during which the hosts of one machine start one at a time."""
LOST: Final = "its cluster is gone: the head has been restarted"
NO_LONGER_IDLE: Final = "the raylet is no longer idle"
ALIVE: Final = 0
"""The state of a living node in the GCS's list of nodes."""


class NotPulledYet(WorkloadError):
    """The counts of a first observation are uncertain; they are known a second later."""

    brief = True


class RayWorkload:
    """Runs the tasks and actors of the Ray cluster whose GCS listens at ``HOST:PORT``."""

    final_fences = True
    """A raylet cannot undo a drain that it has accepted."""
    answers_promptly = True
    """A call takes milliseconds: while a head does not answer, nothing is released because of its last answer."""

    def __init__(
        self,
        address: str,
        groups: Iterable[Group] = (),
        *,
        token: str = "",
        token_file: str | None = None,
        tls: Mapping[str, str | None] | None = None,
        ray: str = "ray",
        start: Sequence[str] = (),
        poll: float = POLL,
        silent: float = SILENT,
        here: Iterable[str] | None = None,
        names: Callable[[], Mapping[str, str]] = dict,
        read_only: bool = False,
        now: Callable[[], float] = time.time,
        gcs: Gcs | None = None,
    ) -> None:
        """``token_file``: the file from which ``token`` was read. ``here``: groups whose hosts run on the head's
        machine; None: all groups. ``names``: ``SLICE/HOST`` by instance id, for nodes that start Ray on their own.
        ``read_only``: write nothing to the GCS. ``gcs``: the client; None: a new one."""
        self._gcs = gcs or Gcs(address, token=token, tls=tls)
        self._look_only, self._now, self._poll, self._silent = read_only, now, poll, silent
        self._names = names
        self._here = None if here is None else frozenset(here)
        self._has_token = bool(token)
        self._drain_limit: float | None = None
        self._credentials = RayCredentials(token, token_file, tls)
        self._joining = RayJoining(address, ray, tuple(start), tempfile.gettempdir())
        self._groups: dict[str, Group] = {}
        self._nodes, self._waiting, self._fences = RayNodes(), PendingWork(), RayFences()
        self._shown = RayView()
        self._since: dict[str, float] = {}
        self._waited: Mapping[str, LastWaited] = {}
        self._loose: set[str] = set()
        """Placement groups whose preferred placement is impossible."""
        self._lost: dict[str, WorkNode] = {}
        """Slices of a cluster that is gone, with one node each."""
        self._refused: dict[str, float] = {}
        """When the drain of a slice was last refused: its idle time starts again then."""
        self._ready: dict[str, float] = {}
        """Since when slices were READY in the first decision that had READY slices: when nodes joined that this process
        found at its first observation."""
        self._version, self._own_directories = "", False
        self._failing_since: float | None = None
        self._seen: object = None
        self._change, self._observed = asyncio.Event(), asyncio.Event()
        self._decided, self._reported = asyncio.Event(), ReportState()
        self._plan: Plan | None = None
        self._constraints: Sequence[wire.ClusterResourceConstraint] = ()
        self._state_version = 0
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.regroup(groups)

    def regroup(self, groups: Iterable[Group]) -> None:
        """Replace the groups for hosts that join from now on; nodes that have joined do not change."""
        self._groups = {group.name: group for group in groups}

    def run_here(self, groups: Iterable[str]) -> None:
        """Set the groups whose hosts run on the head's own machine."""
        self._here = frozenset(groups)

    def limit_drains(self, seconds: float | None) -> None:
        """Set after how many seconds work on a drained slice is evicted; None: never."""
        self._drain_limit = seconds

    def expect_slices(self, slice_ids: Collection[str]) -> None:
        """Set the slices of a controller that starts: some may have ended after their drain while none ran."""
        self._fences.own(slice_ids, self._nodes)

    @property
    def version(self) -> str:
        """The Ray version of the head; empty before the first answer."""
        return self._version

    @property
    def starts_per_machine(self) -> int:
        """How many hosts may start at the same time on one machine. Ray 2.48 ignores ``--temp-dir`` of workers, so two
        that start together can take each other's socket: one at a time. ``ray start`` gives up after 30 s on a machine
        that is too busy: for ``CAREFUL`` seconds after a failed start also one at a time."""
        failed = any(self._now() - one.failed < CAREFUL for one in self._reported.failures)
        return 2 * (os.cpu_count() or 1) if self._own_directories and not failed else 1

    @property
    def gcs(self) -> Gcs:
        return self._gcs

    # -- the contract -------------------------------------------------------------------------------------------------

    async def observe(self) -> WorkloadView:
        self._change.clear()
        began = self._now()
        try:
            try:
                view = await self._read_cluster()
            except OtherCluster:
                self._start_over()
                view = await self._read_cluster()
        except GcsError as error:
            self._failing_since = began if self._failing_since is None else self._failing_since
            tolerated = error.silent and not self._look_only
            error.brief = tolerated and self._now() - self._failing_since < self._silent
            raise
        finally:
            self._observed.set()
        self._failing_since = None
        return view

    async def changed(self) -> None:
        if "listen" not in self._tasks:
            self._tasks["listen"] = asyncio.create_task(self._listen())
        await self._change.wait()

    def join(self, slice_id: str, group: str, host: int) -> Join:
        known = self._groups.get(group)
        if known is None:
            raise WorkloadError(
                f"host {host} of slice {slice_id} cannot join: there is no group {group}; "
                f"there are {', '.join(sorted(self._groups)) or 'none'}"
            )
        local = self._here is None or group in self._here
        credentials = self._credentials.environment(self._joining.token_file(slice_id, host) if local else None)
        return self._joining.join(known, slice_id, host, local=local, environment=credentials)

    async def cordon(self, slice_id: str, epoch: int) -> None:
        if self._fences.raise_to(slice_id, epoch):
            await again_if_unreached(lambda: self._drain_idle(slice_id, epoch))

    async def _drain_idle(self, slice_id: str, epoch: int) -> None:
        """Drain a slice on which nothing runs; it is refused if something does."""
        # The actor table is read again: the GCS may have bound an actor to a node that its raylet reports as idle.
        state, actors = await asyncio.gather(self._gcs.resource_state(), self._gcs.actors())
        if not self._fences.stands(slice_id, epoch):
            return
        self._rename(state, ())
        nodes = fold_nodes(self._nodes, state, (), actors, self._groups, self._now()).of(slice_id)
        going = [node for node in nodes if node.draining or self._fences.is_drained(slice_id, node.id)]
        for node in going:
            self._fences.drained(slice_id, node.id)
        for node in sorted((one for one in nodes if one not in going), key=lambda one: one.instance):
            if not going and node.busy:
                self._refuse(slice_id, epoch, _what_runs(node))
                return
            # A slice that has lost one host is useless: its other hosts end when their work has ended.
            reason = PREEMPTION if going else IDLE_TERMINATION
            reply = await self._gcs.drain(node.id, reason, message(slice_id, epoch))
            if not reply.is_accepted:
                self._refuse(slice_id, epoch, NO_LONGER_IDLE)
                return
            self._fences.drained(slice_id, node.id)
            going.append(node)
        self._fences.completed(slice_id, epoch)
        self._change.set()

    def _refuse(self, slice_id: str, epoch: int, why: str) -> None:
        self._fences.refuse(slice_id, epoch, why)
        self._refused[slice_id] = self._now()
        self._change.set()

    async def uncordon(self, slice_id: str, epoch: int) -> None:
        self._fences.lower(slice_id, epoch)

    async def drain(self, slice_id: str, epoch: int, *, evict: bool = False) -> None:
        """Drain a slice with work on it. Without ``evict`` the work goes on, and the raylet ends after it."""
        if self._fences.insist(slice_id, epoch):
            await again_if_unreached(lambda: self._drain_busy(slice_id, epoch, evict=evict))

    async def _drain_busy(self, slice_id: str, epoch: int, *, evict: bool) -> None:
        for info in await self._alive(slice_id):
            if evict:
                await self._gcs.unregister(info.node_id, message(slice_id, epoch))
            elif not self._fences.is_drained(slice_id, info.node_id):
                # Ray does not enforce the deadline; Train, Data and Serve read it.
                deadline = 0 if self._drain_limit is None else int(1000 * (self._now() + self._drain_limit))
                await self._gcs.drain(info.node_id, PREEMPTION, message(slice_id, epoch), deadline)
            self._fences.drained(slice_id, info.node_id)
        self._fences.completed(slice_id, epoch)
        self._change.set()

    async def forget(self, slice_ids: Sequence[str]) -> None:
        gone = frozenset(slice_ids)
        for info in await self._gcs.nodes():
            slice_id = self._slice_of(info)
            if info.state == ALIVE and slice_id in gone:
                await self._gcs.unregister(info.node_id, f"the machine of {slice_id} is gone")
        self._fences.forget(gone)
        for slice_id in gone:
            self._lost.pop(slice_id, None)
            self._refused.pop(slice_id, None)
            await asyncio.to_thread(self._remove_files, slice_id)
        self._change.set()

    async def close(self) -> None:
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._gcs.close()

    def on_decision(self, decision: DecisionReport) -> None:
        """Report to the GCS and to drivers, in the background."""
        if self._look_only:
            return
        if not self._ready:
            ready = [one for one in decision.slices.values() if one.state == State.READY]
            self._ready = {one.id: one.since for one in ready}
        if self._fences.own(decision.slices, self._nodes):
            self._change.set()
        before = (self._reported.coming, self._reported.failures, _waits(self._plan))
        self._reported = self._reported.after(decision)
        self._plan = self._loosened(decision.plan) or self._plan
        if "report" not in self._tasks:
            self._tasks["report"] = asyncio.create_task(self._report())
        if before != (self._reported.coming, self._reported.failures, _waits(self._plan)):
            self._decided.set()

    def _loosened(self, plan: Plan | None) -> Plan | None:
        """Return the plan without placement groups that wait only for their preferred placement: the next observation
        requests them without the preference."""
        loose = frozenset() if plan is None else loosened(plan, self._shown.preferring)
        if plan is None or not loose:
            return plan
        self._loose |= loose
        self._change.set()
        return replace(plan, waiting=tuple(item for item in plan.waiting if item.demand not in loose))

    async def diagnose(self) -> Sequence[Diagnosis]:
        """Check that the head answers and accepts the token, and that the program for workers has its version."""
        version = await self._gcs.version()
        token = "with a token" if self._has_token else "without a token"
        found = [
            Diagnosis(f"the head at {self._gcs.address} is Ray {version}, cluster {self._gcs.cluster_id}, {token}")
        ]
        return [*found, await asyncio.to_thread(check_program, self._joining.ray, version)]

    # -- observing ----------------------------------------------------------------------------------------------------

    async def _read_cluster(self) -> WorkloadView:
        if not self._version:
            await self._read_version()
        head = self._nodes.head
        state, infos, actors, load = await asyncio.gather(
            self._gcs.resource_state(), self._gcs.nodes(), self._gcs.actors(), self._load(head.raylet if head else "")
        )
        now = self._now()
        self._rename(state, infos)
        self._nodes = fold_nodes(self._nodes, state, infos, actors, self._groups, now, self._refused, self._ready)
        if head is None and self._nodes.head is not None:
            # First observation: count tasks that the GCS has not pulled yet; launches for them may be in flight.
            load = await self._load(self._nodes.head.raylet)
        self._own_directories = any(info.temp_dir for info in infos)
        at_head = None if load is None else load_of(load)
        self._waiting = fold_waiting(self._waiting, shapes_of(state), at_head, self._nodes, now)
        groups = groups_of(state)
        self._waited = fold_groups(self._waited, groups, now)
        gangs = {one.details for one in state.pending_gang_resource_requests}
        self._since = {name: self._since.get(name, now) for name in gangs}
        since = {f"pg:{details.partition(':')[0]}": at for details, at in self._since.items()}
        self._loose &= since.keys()
        self._loose |= {
            name
            for name, one in groups.items()
            if one.preferred is not None and not one.can_be_preferred(self._groups.values())
        }
        # A single observation cannot try the preferred placement first.
        loose = since.keys() if self._look_only else self._loose
        nodes = with_placed_bundles(self._nodes, self._waited, now)
        self._shown = shown(state, nodes, self._waiting, since, self._version, now, loose)
        self._seen = fingerprint(state, load)
        self._constraints = list(state.cluster_resource_constraints)
        self._state_version = state.cluster_resource_state_version
        if not self._look_only:
            await self._end_late_ones()
            if self._waiting.uncertain:
                # A controller that has just started would cancel machines, or buy them twice.
                asyncio.get_running_loop().call_later(PULL, self._change.set)
                raise NotPulledYet("the GCS has not shown yet whether waiting tasks already run")
        return WorkloadView(
            demands=self._shown.demands,
            requests=self._shown.requests,
            nodes=(*self._shown.nodes, *self._lost.values()),
            acknowledged=self._fences.acknowledged(self._nodes),
        )

    def _rename(self, state: wire.ClusterResourceState, infos: Sequence[wire.GcsNodeInfo]) -> None:
        """Replace the instance ids of nodes that start Ray on their own by the names of their slices and hosts."""
        names = self._names()
        for node in (*state.node_states, *infos) if names else ():
            if node.instance_id in names:
                node.instance_id = names[node.instance_id]
                # Ours whatever its node type: a KubeRay worker group may have another name than the group here.
                node.ClearField("ray_node_type_name" if isinstance(node, wire.NodeState) else "node_type_name")

    async def _read_version(self) -> None:
        """Read the version of the head, and make ``ray status`` show the reports of Windlass."""
        self._version = await self._gcs.version()
        if not self._look_only and await self._gcs.get(V2_NAMESPACE, V2_KEY) != b"1":
            await self._gcs.put(V2_NAMESPACE, V2_KEY, b"1")

    async def _load(self, raylet: str) -> wire.ResourceLoad | None:
        """Return what waits at the head's raylet; None: its address is unknown, or it did not answer."""
        with suppress(GcsError):
            return await self._gcs.load(raylet) if raylet else None
        return None

    async def _end_late_ones(self) -> None:
        """Drain nodes that joined after their slice was cordoned."""
        for slice_id, epoch, node_id in self._fences.late(self._nodes):
            with suppress(GcsError):
                await self._gcs.drain(node_id, PREEMPTION, message(slice_id, epoch))
                self._fences.drained(slice_id, node_id)

    def _start_over(self) -> None:
        """Mark slices of the old cluster as lost and forget the rest: another cluster answers at the address."""
        for node in self._nodes.bought():
            self._lost[node.slice_id] = replace(node.work_node(), healthy=False, tasks=0, used=(), lost=LOST)
        self._gcs.forget_cluster()
        self._nodes, self._waiting, self._version = RayNodes(), PendingWork(), ""
        self._fences.clear()

    async def _listen(self) -> None:
        """Wake the controller when the cluster differs from the last observation, and when the head stops or resumes
        answering."""
        answers, checked = True, 0.0
        while True:
            await asyncio.sleep(self._poll)
            head = self._nodes.head
            if time.monotonic() - checked >= CHECK:
                checked = time.monotonic()
                if await self._report_killed_raylets():
                    self._change.set()
            try:
                state, load = await asyncio.gather(
                    self._gcs.resource_state(), self._load(head.raylet if head is not None else "")
                )
            except GcsError:
                if answers:
                    self._change.set()
                answers = False
                continue
            if not answers or fingerprint(state, load) != self._seen:
                answers = True
                self._observed.clear()
                self._change.set()
                await self._observed.wait()

    async def _report_killed_raylets(self) -> bool:
        """Tell the GCS which raylets on this machine were killed, and return whether there are any. A killed raylet
        refuses connections while the GCS still lists it as alive, for 14 s. One that was drained ends on its own."""
        if self._look_only or (self._here is not None and not self._here):
            return False  # no group has hosts on this machine
        here = self._gcs.address.rpartition(":")[0]
        nodes = [
            node
            for node in self._nodes.bought()
            if node.raylet.rpartition(":")[0] == here and not node.draining
            if not self._fences.is_drained(node.slice_id, node.id)
        ]
        refused = await asyncio.gather(*(refuses_connections(node.raylet) for node in nodes))
        killed = [node for node, refuses in zip(nodes, refused, strict=True) if refuses]
        for node in killed:
            if not self._fences.is_drained(node.slice_id, node.id):  # it was not drained meanwhile
                with suppress(GcsError):
                    await self._gcs.unregister(node.id, f"the raylet of {node.slice_id} was killed")
        return bool(killed)

    # -- reporting ----------------------------------------------------------------------------------------------------

    async def _report(self) -> None:
        """Report to the GCS on every change, and every ``REPORT`` seconds in case the head has lost the last report."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(REPORT):
                    await self._decided.wait()
            self._decided.clear()
            plan = self._plan
            if plan is None:
                continue
            # The GCS drops a report with a lower version; milliseconds since the epoch also grow over restarts.
            version = max(int(1000 * time.time()), self._reported.version + 1)
            self._reported = replace(self._reported, version=version)
            state = autoscaling_state(
                plan,
                self._reported,
                self._shown.messages,
                self._constraints,
                self._nodes,
                self._state_version,
                version,
            )
            with suppress(GcsError):
                await self._gcs.report(state)
                reported, lines = driver_lines(plan, self._reported)
                for line in lines:
                    await self._gcs.print_in_drivers(line)
                self._reported = replace(self._reported, lines=reported.lines)

    # -- nodes of one slice -------------------------------------------------------------------------------------------

    def _slice_of(self, info: wire.GcsNodeInfo) -> str:
        name = self._names().get(info.instance_id, "")
        return slice_of(name or info.instance_id, "" if name else info.node_type_name, frozenset(self._groups))

    async def _alive(self, slice_id: str) -> list[wire.GcsNodeInfo]:
        return [one for one in await self._gcs.nodes() if one.state == ALIVE and self._slice_of(one) == slice_id]

    def _remove_files(self, slice_id: str) -> None:
        """Remove the temporary directories and the token files of a slice's workers on this machine."""
        for host in range(max([group.hosts for group in self._groups.values()], default=1)):
            shutil.rmtree(self._joining.temp_dir(slice_id, host), ignore_errors=True)
            with suppress(OSError):
                self._joining.token_file(slice_id, host).unlink()


def _what_runs(node: RayNode) -> str:
    return f"{NO_LONGER_IDLE}: {node.holds}" if node.holds else NO_LONGER_IDLE


def _waits(plan: Plan | None) -> object:
    """Return the part of what waits whose change is reported at once."""
    return None if plan is None else [(item.demand, item.count, item.reason.code) for item in plan.waiting]
