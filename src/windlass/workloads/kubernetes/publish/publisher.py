"""The publisher writes decisions to the API objects, and only what differs from the mirror."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from windlass.core.model.lifecycle import State
from windlass.core.model.reasons import Code, Reason, plural
from windlass.kubernetes_api.api import Api, ApiError, patched
from windlass.kubernetes_api.names import FINALIZER, MARKED, ORPHANED
from windlass.kubernetes_api.objects import (
    KubeNode,
    NodeClaim,
    NodeProvisioner,
    NodeTaint,
    Versioned,
    is_true,
    rfc3339,
    unix,
)
from windlass.workloads.kubernetes.fence import describe
from windlass.workloads.kubernetes.mirror import CLAIMS, NODES, PROVISIONERS
from windlass.workloads.kubernetes.taints import OURS, drop_finalizer, marked, write_taints
from windlass.workloads.kubernetes.translate.demand import WaitingPods
from windlass.workloads.kubernetes.translate.nodes import MirroredNode
from windlass.workloads.kubernetes.translate.pods import MirroredPod
from windlass.workloads.kubernetes.workload import KnownProvisioner, KubernetesWorkload
from windlass.workloads.protocol import DecidedSlice, DecisionReport

from .decision_events import DecisionEvents
from .events import EventRecorder, Subject, with_pods
from .requests import RequestStatuses
from .status import GroupNumbers, blocked_by, condition, merged, numbers_of, provisioner_status
from .work_queue import WorkQueue

LEAVING: Final = frozenset({State.CORDONED, State.DRAINING, State.TERMINATING})
UNCLAIMED: Final = 600.0
"""Seconds after which a claim without record and node is removed: longer than any launch takes."""
EVICTION_RETRY: Final = 5.0
"""Seconds after which an eviction that a disruption budget refused is tried again."""


class DecisionPublisher:
    """Writes the decisions about one workload."""

    def __init__(
        self,
        workload: KubernetesWorkload,
        *,
        may_write: Callable[[], bool] = lambda: True,
        epoch: Callable[[], int] = lambda: 0,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``may_write``: whether this controller leads. ``epoch``: its fencing epoch."""
        self._workload, self._api, self._mirror = workload, workload.api, workload.mirror
        self._epoch, self._now = epoch, now
        self.queue = WorkQueue(may_write)
        self.events = EventRecorder(self._api, self.queue, now)
        self._decision_events = DecisionEvents(self.events, self._mirror)
        self._requests = RequestStatuses(workload, self.queue, now)
        self._decided: dict[str, dict[str, Any]] = {}
        """The last decision about each provisioner."""

    def on_decision(self, decision: DecisionReport, waiting: WaitingPods) -> None:
        self._note_decisions(decision)
        self._decision_events.send(decision, waiting)
        by_group: dict[str, list[DecidedSlice]] = {}
        for one in decision.slices.values():
            by_group.setdefault(one.group, []).append(one)
            for node in self._mirror.nodes_of(one.id).values():
                self._show_marks(node, one)
            self._show_claim(one)
        for name, known in self._workload.provisioners.items():
            self._show_provisioner(name, known, by_group.get(name, []), decision)
        self._collect_claims(decision)
        self._requests.show(decision, waiting)

    async def close(self) -> None:
        await self.queue.close()

    @property
    def queued(self) -> int:
        """How many writes are queued, failed ones included."""
        return len(self.queue)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _show_marks(self, node: MirroredNode, decided: DecidedSlice) -> None:
        """Queue the soft taint and the finalizer of a node. The hard taint is the fence's, until the slice is READY
        again.
        """
        if decided.id in self._workload.fences.standing or decided.state in LEAVING:
            return
        wanted: dict[str, NodeTaint] = {}
        if decided.marked_until is not None:
            wanted[MARKED] = marked(decided.marked_until)
        there = {one.key: (one.value, one.effect) for one in node.taints if one.key in OURS}
        held = FINALIZER in node.finalizers or node.deleted
        if there != {key: (one.value, one.effect) for key, one in wanted.items()} or not held:
            self.queue.put(f"node {node.name}", lambda: self._write_node(node.name, decided.id))

    async def _write_node(self, name: str, slice_id: str) -> None:
        """Write what is wanted now, which may differ from what was wanted when the write was queued."""
        decision = self._workload.decision
        decided = decision.slices.get(slice_id) if decision is not None else None
        if decided is None or slice_id in self._workload.fences.standing or decided.state in LEAVING:
            return
        wanted = {} if decided.marked_until is None else {MARKED: marked(decided.marked_until)}
        written = await write_taints(self._api, name, wanted)
        if written is not None:
            self._mirror.nodes.learn(written)

    # -- claims --------------------------------------------------------------------------------------------------------

    def _show_claim(self, decided: DecidedSlice) -> None:
        claim = self._mirror.claims.store.get(decided.id)
        if claim is None:
            return
        wanted: dict[str, tuple[bool, str, str]] = {}
        nodes = list(self._mirror.nodes_of(decided.id).values())
        if decided.state not in (State.QUEUED, State.REQUESTING):
            wanted["Launched"] = (True, "Launched", "the provider shows the machine")
        if nodes:
            wanted["Registered"] = (True, "Registered", f"the node {nodes[0].name} is there")
            lacking = next((text for node in nodes if (text := self._workload.lacking(node))), "")
            if not lacking:
                wanted["Initialized"] = (True, "Initialized", "Ready, with everything that its template promises")
            elif not is_true(claim.status.conditions, "Initialized"):
                wanted["Initialized"] = (False, "Waiting", f"the node {lacking}")
        fence = self._workload.fences.standing.get(decided.id)
        is_fenced = fence is not None and fence.tainted and decided.state in LEAVING
        certificate = fence.certificate if fence is not None else None
        is_drained = is_fenced and certificate is not None and certificate.running == 0
        ends = {
            "Fenced": (is_fenced, "Fenced" if is_fenced else "InUse", decided.reason.why[:200] if is_fenced else ""),
            "Drained": (is_drained, "Drained" if is_drained else "InUse", "no pods are left" if is_drained else ""),
        }
        known = {one.type for one in claim.status.conditions or ()}
        wanted |= {kind: one for kind, one in ends.items() if one[0] or kind in known}
        if nodes and claim.status.node_name != nodes[0].name:
            wanted["Registered"] = (True, "Registered", f"the node {nodes[0].name} is there")
        conditions = merged(claim.status.conditions, wanted, self._now())
        stale_name = bool(nodes) and claim.status.node_name != nodes[0].name
        if conditions is not None or stale_name:
            status: dict[str, Any] = {}
            if nodes:
                status |= {"nodeName": nodes[0].name, "providerID": nodes[0].provider_id}
            if is_drained and certificate is not None:
                status["certificate"] = {
                    "epoch": self._epoch() or certificate.epoch,
                    "time": rfc3339(certificate.at),
                    "resourceVersion": certificate.version,
                }
            self.queue.put(f"claim {decided.id}", lambda: self._write_claim(decided.id, wanted, status))

    async def _write_claim(
        self, name: str, wanted: Mapping[str, tuple[bool, str, str]], more: Mapping[str, Any]
    ) -> None:
        def change(current: NodeClaim) -> dict[str, Any] | None:
            status: dict[str, Any] = dict(more)
            conditions = merged(current.status.conditions, wanted, self._now())
            if conditions is not None:
                status["conditions"] = conditions
            return {"status": status} if status else None

        written = await patched(self._api, f"{CLAIMS}/{name}", NodeClaim, change, subresource="/status")
        if written is not None:
            self._mirror.claims.learn(written)

    def _collect_claims(self, decision: DecisionReport) -> None:
        """Remove claims of machines that were never launched: no record, no node, and older than any launch.

        A controller leaves them behind if it is killed between writing the claim and calling the provider, and its
        journal is lost. A launched machine would be in its provider's list and have a record by now.
        """
        if decision.plan is None:
            return
        for name, claim in self._mirror.claims.store.items():
            made = unix(claim.metadata.creation_timestamp) or decision.now
            is_late = decision.now - made >= UNCLAIMED or claim.metadata.deletion_timestamp is not None
            if is_late and name not in decision.slices and not self._mirror.nodes_of(name):
                self.queue.put(f"claim {name}", partial(remove_claim, self._api, name))

    async def remove(self, slice_id: str, *, gone: bool) -> None:
        """Remove the Node objects of a slice whose machine is dead or gone; if it is gone, its claim as well."""
        for node in list(self._mirror.nodes_of(slice_id).values()):
            if ORPHANED in node.annotations:
                continue
            await drop_finalizer(self._api, f"{NODES}/{node.name}")
            await self._api.delete(f"{NODES}/{node.name}", uid=node.uid)
        if not gone or slice_id not in self._mirror.claims.store:
            return
        ended = {"Terminated": (True, "Terminated", "the provider no longer lists the machine")}
        try:
            await self._write_claim(slice_id, ended, {})
        except ApiError as error:
            if not error.is_missing:
                raise
        await remove_claim(self._api, slice_id)

    # -- provisioners --------------------------------------------------------------------------------------------------

    def _show_provisioner(
        self, name: str, known: KnownProvisioner, slices: list[DecidedSlice], decision: DecisionReport
    ) -> None:
        provisioner = known.object
        if provisioner.metadata.deletion_timestamp is not None:
            self._show_deletion(name, known, slices)
            return
        if FINALIZER not in (provisioner.metadata.finalizers or ()):
            self.queue.put(f"finalizer {name}", lambda: self._hold(f"{PROVISIONERS}/{name}"))
        if known.group is None:
            mistakes = "; ".join(known.mistakes)
            self._put_status(known, slices, decision, (False, "Invalid", mistakes), (True, "Invalid", mistakes))
            return
        ready = (True, "Reconciled", "its settings are valid")
        if known.mistakes:
            now = "no machine is bought or released" if known.held else "the last valid settings stay in force"
            ready = (False, "Invalid", f"{now}: {'; '.join(known.mistakes)}")
        elif provisioner.spec.paused:
            ready = (True, "Paused", "no machine is bought or released")
        waits = blocked_by(name, decision.plan)
        blocked = (False, "NothingWaits", "no pod waits that it could take")
        if known.held:
            blocked = (True, *ready[1:])
        elif waits is not None:
            blocked = (True, str(waits.code), with_pods(waits.why))
            about = Subject("NodeProvisioner", name, uid=provisioner.metadata.uid)
            self.events.send(about, "Blocked", waits, only_if_new=True)
        self._put_status(known, slices, decision, ready, blocked)

    def _put_status(
        self,
        known: KnownProvisioner,
        slices: list[DecidedSlice],
        decision: DecisionReport,
        ready: tuple[bool, str, str],
        blocked: tuple[bool, str, str],
    ) -> None:
        name = known.object.metadata.name
        group = known.group.group if known.group is not None else None
        if group is None:
            return self._put_invalid(known, ready, blocked)
        placed = {one.on for one in decision.plan.placements} if decision.plan is not None else set[str]()
        in_use = frozenset(one.id for one in slices if one.id in placed or self._workload.is_used(one.id, known.gpu))
        numbers = numbers_of(group, slices, in_use, decision.plan)
        status = provisioner_status(known.object, numbers, ready, blocked, self._decided.get(name), self._now())
        if status != _comparable(known.object.status):
            self.queue.put(f"status {name}", lambda: self._write_status(name, status))
        return None

    def _put_invalid(
        self, known: KnownProvisioner, ready: tuple[bool, str, str], blocked: tuple[bool, str, str]
    ) -> None:
        name, now = known.object.metadata.name, self._now()
        nothing = GroupNumbers(0, 0, 0, 0, 0, None)
        status = provisioner_status(known.object, nothing, ready, blocked, None, now)
        if status != _comparable(known.object.status):
            self.queue.put(f"status {name}", lambda: self._write_status(name, status))

    async def _write_status(self, name: str, status: Mapping[str, Any]) -> None:
        body = {"status": {"nextDeadline": None, **status}}
        try:
            written = await self._api.patch(f"{PROVISIONERS}/{name}/status", body)
        except ApiError as error:
            if not error.is_missing:
                raise
            return
        self._mirror.provisioners.learn(self._api.decode(written, NodeProvisioner))

    async def _hold(self, path: str) -> None:
        def change(current: Versioned) -> dict[str, Any] | None:
            held = current.metadata.finalizers or ()
            if FINALIZER in held or current.metadata.deletion_timestamp is not None:
                return None
            return {"metadata": {"finalizers": [*held, FINALIZER]}}

        await patched(self._api, path, Versioned, change)

    def _show_deletion(self, name: str, known: KnownProvisioner, slices: list[DecidedSlice]) -> None:
        """Remove the finalizer of a deleted provisioner when nothing of it is left; until then report what is left."""
        nodes = [one for one in self._mirror.nodes.store.values() if one.provisioner == name]
        if known.object.spec.deletion_policy == "Orphan":
            for node in nodes:
                if ORPHANED not in node.annotations:
                    self.queue.put(f"orphan {node.name}", partial(self._orphan, node))
            nodes = [one for one in nodes if ORPHANED not in one.annotations]
        claims = [one for one in self._mirror.claims.store.values() if one.spec.provisioner == name]
        if not nodes and not slices and not claims:
            self.queue.put(f"finalizer {name}", lambda: drop_finalizer(self._api, f"{PROVISIONERS}/{name}"))
            return
        pods = [pod for node in nodes for pod in self._mirror.counted_on(node.name)]
        holds = f"{plural(len(nodes), 'node')} and {plural(len(claims), 'machine')} are left"
        if pods:
            holds += f"; pods still run: {describe(pods)}"
        before = (known.object.status or {}).get("conditions") or ()
        now = self._now()
        conditions = [
            condition("Ready", False, "Deleting", "it was deleted", before, now),
            condition("Blocked", True, "Draining", holds, before, now),
        ]
        if conditions != list(before):
            status = {**(_comparable(known.object.status) or {}), "conditions": conditions}
            self.queue.put(f"status {name}", lambda: self._write_status(name, status))

    async def _orphan(self, node: MirroredNode) -> None:
        """Orphan a node and its machine: remove our finalizer, our taints and the claim."""

        def change(current: KubeNode) -> dict[str, Any]:
            taints = [one for one in current.spec.taints or () if one.key not in OURS]
            held = [one for one in current.metadata.finalizers or () if one != FINALIZER]
            return {
                "metadata": {"annotations": {ORPHANED: rfc3339(self._now())}, "finalizers": held},
                "spec": {"taints": [msgspec.to_builtins(one) for one in taints]},
            }

        await patched(self._api, f"{NODES}/{node.name}", KubeNode, change)
        await remove_claim(self._api, node.claim)

    def _note_decisions(self, decision: DecisionReport) -> None:
        """Keep the last decision about each provisioner for its status."""
        plan = decision.plan
        if plan is None:
            return
        found: dict[str, tuple[str, Reason]] = {}
        for launch in plan.launches:
            found[launch.group] = (f"buy {launch.count}", launch.reason)
        for verb, changes in (("release", plan.drain), ("mark", plan.mark), ("unmark", plan.unmark)):
            counts: dict[str, tuple[int, Reason]] = {}
            for change in changes:
                one = decision.slices.get(change.slice)
                if one is not None:
                    counts[one.group] = (counts.get(one.group, (0, change.reason))[0] + 1, change.reason)
            for group, (count, reason) in counts.items():
                found.setdefault(group, (f"{verb} {count}", reason))
        for group, (what, reason) in found.items():
            message = with_pods(f"{what}: {reason.why}")
            self._decided[group] = {"time": rfc3339(decision.now), "code": str(reason.code), "message": message}

    # -- evictions -----------------------------------------------------------------------------------------------------

    async def evict(self, slice_id: str, pods: Iterable[MirroredPod]) -> None:
        """Evict pods from a slice that must be released, as their disruption budgets allow."""
        for pod in pods:
            if not pod.ending:
                self.queue.put(f"evict {pod.key}", partial(self._evict, slice_id, pod))

    async def _evict(self, slice_id: str, pod: MirroredPod) -> None:
        decision = self._workload.decision
        decided = decision.slices.get(slice_id) if decision is not None else None
        if decided is None or decided.state != State.DRAINING or not decided.must_go:
            return  # the slice is no longer being drained
        known = self._mirror.nodes.store.get(pod.node)
        node = Subject("Node", pod.node, uid=known.uid if known is not None else "")
        if pod.protected:
            self.events.send(node, "ScaleDownBlocked", f"{Code.PROTECTED}: {pod.key} must not be disrupted")
            raise ApiError(0, f"{pod.key} must not be disrupted", retry_after=EVICTION_RETRY)
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        try:
            await self._api.create(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/eviction", body)
        except ApiError as error:
            if error.status == 429:
                self.events.send(node, "ScaleDownBlocked", f"{Code.DRAINING}: {pod.key}: {error}")
                raise ApiError(429, str(error), retry_after=EVICTION_RETRY) from error
            if error.status not in (404, 409):
                raise


async def remove_claim(api: Api, name: str) -> None:
    """Delete a claim and its finalizer."""
    await drop_finalizer(api, f"{CLAIMS}/{name}")
    await api.delete(f"{CLAIMS}/{name}")


def _comparable(status: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return dict(status) if status is not None else None
