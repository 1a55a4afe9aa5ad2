"""``RayWorkload`` is the autoscaler of a real Ray cluster.

An observation reads the GCS (resources and demand, nodes, actors) and the head's raylet, and folds it onto what was
known. A background task polls both every ``poll`` seconds and wakes the controller when something has changed since the
last look. A head that gives no answer is unknown, never empty. A head that was restarted without its storage is another
cluster: what had joined the old one is lost, and the new one is served from then on.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from windlass.core.model.lifecycle import State
from windlass.core.model.plan import Plan
from windlass.core.model.snapshot import Group
from windlass.workloads.protocol import DecisionReport, Diagnosis, Join, WorkloadError, WorkloadView, WorkNode

from . import wire_pb2 as wire
from .bundles import LastWaited, fold_groups, with_placed_bundles
from .credentials import RayCredentials
from .demand import groups_of, load_of, shapes_of
from .fences import RayFences, message
from .gcs import IDLE_TERMINATION, PREEMPTION, V2_KEY, V2_NAMESPACE, Gcs, GcsError, OtherCluster
from .join import RayJoining
from .nodes import RayNode, RayNodes, fold_nodes, slice_of
from .report import ReportState, autoscaling_state, driver_lines, loosened
from .view import RayView, shown
from .waiting import PendingWork, fold_waiting

POLL: Final = 0.2
SILENT: Final = 15.0
REPORT: Final = 5.0
"""Seconds between two reports when nothing changes."""
CHECK: Final = 0.5
"""Seconds between two checks whether raylets on the head's machine still listen."""
CAREFUL: Final = 60.0
"""Seconds after a failed start in which hosts on one machine start one at a time."""
LOST: Final = "its cluster is gone: the head has been restarted"
NO_LONGER_IDLE: Final = "the raylet is no longer idle"
ALIVE: Final = 0
"""State of a node in the GCS's list."""


class RayWorkload:
    """Runs the tasks and actors of the Ray cluster whose GCS is at ``HOST:PORT``."""

    final_fences = True
    """A drain that a raylet has accepted cannot be taken back."""

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
        look_only: bool = False,
        now: Callable[[], float] = time.time,
        gcs: Gcs | None = None,
    ) -> None:
        """``token_file``: where ``token`` was read. ``here``: groups whose machines are the head's own;
        None: all are. ``names``: ``SLICE/HOST`` by the instance id of nodes that start Ray on their own.
        ``look_only``: nothing is written to the GCS. ``gcs``: the client; a new one unless it is given."""
        self._gcs = gcs or Gcs(address, token=token, tls=tls)
        self._look_only, self._now, self._poll, self._silent = look_only, now, poll, silent
        self._names = names
        self._here = None if here is None else frozenset(here)
        self._has_token = bool(token)
        self._credentials = RayCredentials(token, token_file, tls)
        self._joining = RayJoining(address, ray, tuple(start), tempfile.gettempdir())
        self._groups: dict[str, Group] = {}
        self._nodes, self._waiting, self._fences = RayNodes(), PendingWork(), RayFences()
        self._shown = RayView()
        self._since: dict[str, float] = {}
        self._waited: Mapping[str, LastWaited] = {}
        self._loose: set[str] = set()
        """Placement groups that cannot lie as they prefer."""
        self._lost: dict[str, WorkNode] = {}
        """Slices that had joined a cluster that is gone, with one of their nodes each."""
        self._refused: dict[str, float] = {}
        """When a slice was last refused to be drained: its idle clock starts again then."""
        self._ready: dict[str, float] = {}
        """Since when slices are READY, by the first decision: hosts that joined before we started are among them."""
        self._version, self._own_directories = "", False
        self._failing_since: float | None = None
        self._seen: object = None
        self._news, self._looked = asyncio.Event(), asyncio.Event()
        self._decided, self._reported = asyncio.Event(), ReportState()
        self._plan: Plan | None = None
        self._constraints: Sequence[wire.ClusterResourceConstraint] = ()
        self._state_version = 0
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.regroup(groups)

    def regroup(self, groups: Iterable[Group]) -> None:
        """Let hosts join as nodes of these groups from now on; nodes that have joined stay as they are."""
        self._groups = {group.name: group for group in groups}

    def run_here(self, groups: Iterable[str]) -> None:
        """Set the groups whose hosts run on the head's own machine."""
        self._here = frozenset(groups)

    @property
    def version(self) -> str:
        """Of the head; empty before the first answer."""
        return self._version

    @property
    def starts_per_machine(self) -> int:
        """How many hosts may start at once on one machine. Without directories of their own (Ray 2.48) two that start
        at once take each other's socket. On a machine that is too busy `ray start` gives up after 30 s: for a while
        after a start has failed, hosts start one at a time."""
        failed = any(self._now() - one.failed < CAREFUL for one in self._reported.failures)
        return 2 * (os.cpu_count() or 1) if self._own_directories and not failed else 1

    @property
    def gcs(self) -> Gcs:
        return self._gcs

    # -- the contract -------------------------------------------------------------------------------------------------

    async def observe(self) -> WorkloadView:
        self._news.clear()
        try:
            try:
                view = await self._look()
            except OtherCluster:
                self._start_over()
                view = await self._look()
        except GcsError as error:
            now = self._now()
            self._failing_since = now if self._failing_since is None else self._failing_since
            tolerated = error.silent and not self._look_only
            error.brief = tolerated and now - self._failing_since < self._silent
            raise
        finally:
            self._looked.set()
        self._failing_since = None
        return view

    async def changed(self) -> None:
        if "listen" not in self._tasks:
            self._tasks["listen"] = asyncio.create_task(self._listen())
        await self._news.wait()

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
        if not self._fences.raise_to(slice_id, epoch):
            return
        # The actor table is read again: an actor may have been bound to a node that the raylet still calls idle.
        state, actors = await asyncio.gather(self._gcs.resource_state(), self._gcs.actors())
        self._rename(state, ())
        nodes = fold_nodes(self._nodes, state, (), actors, self._groups, self._now()).of(slice_id)
        going = [node for node in nodes if node.draining or self._fences.is_drained(slice_id, node.id)]
        for node in going:
            self._fences.drained(slice_id, node.id)
        for node in sorted((one for one in nodes if one not in going), key=lambda one: one.instance):
            if not going and node.busy:
                self._refuse(slice_id, epoch, _what_runs(node))
                return
            # A slice of which one host is gone already is of no use: the others end when their work has ended.
            reason = PREEMPTION if going else IDLE_TERMINATION
            reply = await self._gcs.drain(node.id, reason, message(slice_id, epoch))
            if not reply.is_accepted:
                self._refuse(slice_id, epoch, NO_LONGER_IDLE)
                return
            self._fences.drained(slice_id, node.id)
            going.append(node)
        self._news.set()

    def _refuse(self, slice_id: str, epoch: int, why: str) -> None:
        self._fences.refuse(slice_id, epoch, why)
        self._refused[slice_id] = self._now()
        self._news.set()

    async def uncordon(self, slice_id: str, epoch: int) -> None:
        self._fences.lower(slice_id, epoch)

    async def drain(self, slice_id: str, epoch: int, *, evict: bool = False) -> None:
        """Without ``evict`` work goes on, and the raylet ends when there is none left."""
        if not self._fences.insist(slice_id, epoch):
            return
        for info in await self._alive(slice_id):
            if evict:
                await self._gcs.unregister(info.node_id, message(slice_id, epoch))
            elif not self._fences.is_drained(slice_id, info.node_id):
                await self._gcs.drain(info.node_id, PREEMPTION, message(slice_id, epoch))
            self._fences.drained(slice_id, info.node_id)
        self._news.set()

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
        self._news.set()

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
        before = (self._reported.coming, self._reported.failures, _waits(self._plan))
        self._reported = self._reported.after(decision)
        self._plan = self._loosened(decision.plan) or self._plan
        if "report" not in self._tasks:
            self._tasks["report"] = asyncio.create_task(self._report())
        if before != (self._reported.coming, self._reported.failures, _waits(self._plan)):
            self._decided.set()

    def _loosened(self, plan: Plan | None) -> Plan | None:
        """Return the plan without placement groups that wait only because of what they prefer: they are requested
        again without the preference."""
        loose = frozenset() if plan is None else loosened(plan, self._shown.preferring)
        if plan is None or not loose:
            return plan
        self._loose |= loose
        self._news.set()
        return replace(plan, waiting=tuple(item for item in plan.waiting if item.demand not in loose))

    async def diagnose(self) -> Sequence[Diagnosis]:
        """Whether the head answers and lets us in, and whether workers can be started for it."""
        version = await self._gcs.version()
        token = "with a token" if self._has_token else "without a token"
        found = [
            Diagnosis(f"the head at {self._gcs.address} is Ray {version}, cluster {self._gcs.cluster_id}, {token}")
        ]
        return [*found, await asyncio.to_thread(_program, self._joining.ray, version)]

    # -- looking ------------------------------------------------------------------------------------------------------

    async def _look(self) -> WorkloadView:
        if not self._version:
            await self._introduce()
        head = self._nodes.head
        state, infos, actors, load = await asyncio.gather(
            self._gcs.resource_state(), self._gcs.nodes(), self._gcs.actors(), self._load(head.raylet if head else "")
        )
        now = self._now()
        self._rename(state, infos)
        self._nodes = fold_nodes(self._nodes, state, infos, actors, self._groups, now, self._refused, self._ready)
        if head is None and self._nodes.head is not None:
            # The first look: what the GCS has not pulled yet waits all the same, and launches for it are under way.
            load = await self._load(self._nodes.head.raylet)
        self._own_directories = any(info.temp_dir for info in infos)
        at_head = None if load is None else load_of(load)
        self._waiting = fold_waiting(self._waiting, shapes_of(state), at_head, self._nodes, now)
        self._waited = fold_groups(self._waited, groups_of(state), now)
        gangs = {one.details for one in state.pending_gang_resource_requests}
        self._since = {name: self._since.get(name, now) for name in gangs}
        since = {f"pg:{details.partition(':')[0]}": at for details, at in self._since.items()}
        self._loose &= since.keys()
        # One observation alone cannot try the preferred way first.
        loose = since.keys() if self._look_only else self._loose
        nodes = with_placed_bundles(self._nodes, self._waited, now)
        self._shown = shown(state, nodes, self._waiting, since, self._version, now, loose)
        self._seen = _fingerprint(state, load)
        self._constraints = list(state.cluster_resource_constraints)
        self._state_version = state.cluster_resource_state_version
        if not self._look_only:
            await self._end_late_ones()
        return WorkloadView(
            demands=self._shown.demands,
            requests=self._shown.requests,
            nodes=(*self._shown.nodes, *self._lost.values()),
            acknowledged=self._fences.acknowledged(self._nodes),
        )

    def _rename(self, state: wire.ClusterResourceState, infos: Sequence[wire.GcsNodeInfo]) -> None:
        """Give nodes that have started Ray on their own the names by which providers know them."""
        names = self._names()
        for node in (*state.node_states, *infos) if names else ():
            if node.instance_id in names:
                node.instance_id = names[node.instance_id]
                # It is ours whatever its type is: a worker group of KubeRay may have another name than its group.
                node.ClearField("ray_node_type_name" if isinstance(node, wire.NodeState) else "node_type_name")

    async def _introduce(self) -> None:
        """Read the version of the head, and make ``ray status`` show what we report."""
        self._version = await self._gcs.version()
        if not self._look_only and await self._gcs.get(V2_NAMESPACE, V2_KEY) != b"1":
            await self._gcs.put(V2_NAMESPACE, V2_KEY, b"1")

    async def _load(self, raylet: str) -> wire.ResourceLoad | None:
        """Return what waits at the head's raylet; None: its address is not known, or it gave no answer."""
        with suppress(GcsError):
            return await self._gcs.load(raylet) if raylet else None
        return None

    async def _end_late_ones(self) -> None:
        """Drain hosts that joined after their slice was given up."""
        for slice_id, epoch, node_id in self._fences.late(self._nodes):
            with suppress(GcsError):
                await self._gcs.drain(node_id, PREEMPTION, message(slice_id, epoch))
                self._fences.drained(slice_id, node_id)

    def _start_over(self) -> None:
        """Forget the old cluster: another one answers at the address."""
        for node in self._nodes.bought():
            self._lost[node.slice_id] = replace(node.work_node(), healthy=False, tasks=0, used=(), lost=LOST)
        self._gcs.forget_cluster()
        self._nodes, self._waiting, self._version = RayNodes(), PendingWork(), ""
        self._fences.clear()

    async def _listen(self) -> None:
        """Wake the controller when the head shows something else than at the last observation, and when it stops or
        begins to answer."""
        answers, checked = True, 0.0
        while True:
            await asyncio.sleep(self._poll)
            head = self._nodes.head
            if time.monotonic() - checked >= CHECK:
                checked = time.monotonic()
                if await self._lost_raylet():
                    self._news.set()
            try:
                state, load = await asyncio.gather(
                    self._gcs.resource_state(), self._load(head.raylet if head is not None else "")
                )
            except GcsError:
                if answers:
                    self._news.set()
                answers = False
                continue
            if not answers or _fingerprint(state, load) != self._seen:
                answers = True
                self._looked.clear()
                self._news.set()
                await self._looked.wait()

    async def _lost_raylet(self) -> bool:
        """Return whether a raylet on the head's machine refuses connections although the GCS counts it as alive: it was
        killed. Its provider knows more, so a pass is due; the GCS alone would notice 14 s later."""
        if self._here is not None and not self._here:
            return False  # no group has machines here
        here = self._gcs.address.rpartition(":")[0]
        raylets = [node.raylet for node in self._nodes.bought() if node.raylet.rpartition(":")[0] == here]
        return any(await asyncio.gather(*map(_refuses, raylets)))

    # -- reporting ----------------------------------------------------------------------------------------------------

    async def _report(self) -> None:
        """Report on every change, and every few seconds to a head that may have forgotten."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(REPORT):
                    await self._decided.wait()
            self._decided.clear()
            plan = self._plan
            if plan is None:
                continue
            # Milliseconds since the epoch grow over restarts; the GCS drops a report with a lower version.
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
                    await self._gcs.tell_drivers(line)
                self._reported = replace(self._reported, lines=reported.lines)

    # -- nodes of one slice -------------------------------------------------------------------------------------------

    def _slice_of(self, info: wire.GcsNodeInfo) -> str:
        name = self._names().get(info.instance_id, "")
        return slice_of(name or info.instance_id, "" if name else info.node_type_name, frozenset(self._groups))

    async def _alive(self, slice_id: str) -> list[wire.GcsNodeInfo]:
        return [one for one in await self._gcs.nodes() if one.state == ALIVE and self._slice_of(one) == slice_id]

    def _remove_files(self, slice_id: str) -> None:
        """Remove the temporary directories of workers on this machine, and the files with their token."""
        for host in range(max([group.hosts for group in self._groups.values()], default=1)):
            shutil.rmtree(self._joining.temp_dir(slice_id, host), ignore_errors=True)
            with suppress(OSError):
                self._joining.token_file(slice_id, host).unlink()


def _program(ray: str, version: str) -> Diagnosis:
    """Check that the program that starts workers exists and has the version of the head."""
    path = shutil.which(ray)
    if path is None:
        return Diagnosis(f"there is no program {ray!r} here", "install ray, or name the program in workload.ray")
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Diagnosis(f"{path} --version failed: {error}", "check workload.ray")
    ours = done.stdout.strip().rpartition(" ")[2]
    if ours != version:
        remedy = f"install ray=={version} for the workers, or name such a program in workload.ray"
        return Diagnosis(f"{path} is Ray {ours or 'of an unknown version'}, and the head is {version}", remedy)
    return Diagnosis(f"workers are started by {path}, Ray {ours}")


async def _refuses(address: str) -> bool:
    """Return whether nothing listens at an address of this machine."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(1):
            _, writer = await asyncio.open_connection(host, int(port))
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return False


def _what_runs(node: RayNode) -> str:
    return f"{NO_LONGER_IDLE}: {node.holds}" if node.holds else NO_LONGER_IDLE


def _fingerprint(state: wire.ClusterResourceState, load: wire.ResourceLoad | None) -> object:
    """Return what must have changed for a new look to show anything else. Clocks are not in it."""
    return (
        sorted((one.id, one.count) for one in shapes_of(state).values()),
        None if load is None else sorted((one.id, one.count) for one in load_of(load).values()),
        sorted(_bytes(one) for one in state.pending_gang_resource_requests),
        [_bytes(one) for one in state.cluster_resource_constraints],
        sorted((one.node_id, one.status, sorted(one.available_resources.items())) for one in state.node_states),
    )


def _waits(plan: Plan | None) -> object:
    """Return what waits, as far as it is reported at once."""
    return None if plan is None else [(item.demand, item.count, item.reason.code) for item in plan.waiting]


def _bytes(one: Any) -> bytes:
    return bytes(one.SerializeToString(deterministic=True))
