"""KubernetesWorkload implements the workload contract for a Kubernetes cluster.

An observation is read from the mirror, without a call. It is unknown while a reflector is not synced. Nodes with the
label of a provisioner are the hosts of slices, unschedulable pods are demand, NodeProvisioners are groups. The fence
implements cordon, uncordon and the acknowledgement. The publisher writes the controller's decisions to the API objects.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from windlass.core.model.reasons import plural
from windlass.core.model.snapshot import Amounts, amounts
from windlass.kubernetes_api.api import Api, ApiError
from windlass.kubernetes_api.names import CLAIM, NODE_NAME, PROVISIONER
from windlass.kubernetes_api.objects import NodeProvisioner
from windlass.workloads.protocol import (
    Acknowledgement,
    DecisionReport,
    Diagnosis,
    Join,
    WorkloadError,
    WorkloadGroup,
    WorkloadView,
    WorkNode,
)

from .devices.planning import DevicePlanning
from .fence import SETTLE, NodeFences, describe
from .health import HealthServer, metrics
from .lease import LeaseElection
from .mirror import ClusterMirror
from .repair import NodeRepairs
from .requests.buffers import CapacityBuffers
from .requests.provisioning import ProvisioningRequests
from .translate.constraints import ConstraintTable, PodRules
from .translate.demand import DemandMaker, WaitingPods
from .translate.nodes import MirroredNode, keeps_away, lacks
from .translate.pods import MirroredPod
from .translate.provisioners import allowed_to_leave, group_of, held_group, mistakes_in

SYNCING: Final = 8.0
"""Seconds that the first observation waits for the mirror; a later one does not wait."""


class Publisher(Protocol):
    """Writes decisions to API objects."""

    def on_decision(self, decision: DecisionReport, waiting: WaitingPods) -> None: ...

    async def remove(self, slice_id: str, *, gone: bool) -> None: ...

    async def evict(self, slice_id: str, pods: Iterable[MirroredPod]) -> None: ...

    async def close(self) -> None: ...

    @property
    def queued(self) -> int: ...


@dataclass(frozen=True, slots=True)
class KnownProvisioner:
    """A NodeProvisioner, the group that was made of it, and the mistakes in it."""

    object: NodeProvisioner
    group: WorkloadGroup | None
    mistakes: tuple[str, ...] = ()
    gpu: str | None = None
    """The planner's name of the resource that counts as use; None: any pod counts."""
    held: bool = False
    """It has mistakes and no earlier valid settings are known: nothing of it is bought or released."""


class KubernetesWorkload:
    """The workload of one cluster."""

    def __init__(
        self,
        api: Api,
        providers: Iterable[str] = (),
        *,
        publisher: Callable[[KubernetesWorkload], Publisher] | None = None,
        wrap: Callable[[KubernetesWorkload, str, Any], Any] = lambda _workload, _name, provider: provider,
        settle: float = SETTLE,
        election: LeaseElection | None = None,
        health: HealthServer | None = None,
        read_only: bool = False,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """``providers``: the names that provisioners may refer to. ``read_only``: nothing is written anywhere."""
        self.api, self._now, self._look_only = api, now, read_only
        self.election, self.health, self._wrap = election, health, wrap
        self._news = asyncio.Event()
        self.use_providers(providers)
        self.mirror = ClusterMirror(api, self._news.set, now)
        self.fences = NodeFences(api, self.mirror, self._news.set, now, settle=settle, sleep=sleep)
        self._demand = DemandMaker()
        self.devices = DevicePlanning(self.mirror, self.mirror.pod_counts)
        self._repairs = NodeRepairs()
        self.buffers = CapacityBuffers(api, lambda: self.mirror.buffers.store, now)
        self.room_requests = ProvisioningRequests(lambda: self.mirror.room_requests.store, now)
        self.waiting = WaitingPods((), {}, {})
        self.provisioners: dict[str, KnownProvisioner] = {}
        self._valid: dict[str, NodeProvisioner] = {}
        """Each provisioner with its last valid settings."""
        self._groups: dict[str, tuple[Any, WorkloadGroup, str | None]] = {}
        """For each provisioner what its group was made of, the group, and the resource that counts as use."""
        self.decision: DecisionReport | None = None
        self._nodes: dict[str, tuple[Any, WorkNode]] = {}
        self._was_synced = False
        self.publisher = publisher(self) if publisher is not None and not read_only else None
        if health is not None:
            health.paths = {"/healthz": self._healthy, "/readyz": self._ready, "/metrics": self._metrics}

    # -- the contract --------------------------------------------------------------------------------------------------

    async def observe(self) -> WorkloadView:
        self.mirror.start()
        await self._synced()
        if self.election is not None and (why := self.election.why_not_renewed()):
            # Reads may still work, as with an etcd without space. No decision could be carried out.
            raise WorkloadError(f"the Lease cannot be renewed: {why}")
        await self.buffers.refresh()
        self._news.clear()
        waiting = self._waiting_pods()
        mistakes = self._validate()
        self.devices.observe(waiting, self._valid, self.mirror.nodes.store)
        self.provisioners = self._known_provisioners(mistakes)
        constraints = self._constraints(waiting)
        self.waiting = self._demand.waiting(
            waiting, self._gang_size, self._gang_running, partial(self._rules, constraints), self.devices
        )
        self.devices.forget(one.id for one in self.waiting.demands)
        return WorkloadView(
            demands=self.waiting.demands,
            nodes=tuple(self._with_classes(one, constraints) for one in self._work_nodes()),
            acknowledged=tuple(self._acknowledged()),
            groups=tuple(one.group for one in self.provisioners.values() if one.group is not None),
        )

    async def changed(self) -> None:
        await self._news.wait()

    def join(self, slice_id: str, group: str, host: int) -> Join:  # noqa: ARG002
        """Return the environment for a machine's kubelet: the labels and taints by which its node is recognised.

        ``WorkloadError`` before the first observation: a controller that was killed during a launch repeats it at once,
        and a machine without the labels, taints and resources of its template is useless.
        """
        valid = self._valid.get(group)
        if valid is None:
            raise WorkloadError(f"the NodeProvisioner {group} is not known yet, or its settings are not valid")
        template = valid.spec.template
        labels = {**(template.labels or {}), PROVISIONER: group, CLAIM: slice_id}
        taints = (*(template.taints or ()), *(template.startup_taints or ()))
        environment = {
            "WINDLASS_NODE_NAME": slice_id,
            "WINDLASS_NODE_LABELS": ",".join(f"{key}={value}" for key, value in sorted(labels.items())),
            "WINDLASS_NODE_TAINTS": ",".join(f"{one.key}={one.value}:{one.effect}" for one in taints),
            "WINDLASS_NODE_ANNOTATIONS": json.dumps(template.annotations or {}, sort_keys=True),
            "WINDLASS_NODE_RESOURCES": json.dumps(template.resources or {}, sort_keys=True),
        }
        if template.devices:
            environment["WINDLASS_NODE_DEVICES"] = msgspec.json.encode(template.devices).decode()
        return Join((), environment)

    async def cordon(self, slice_id: str, epoch: int) -> None:
        await self._call(self.fences.raise_fence(slice_id, epoch))

    async def uncordon(self, slice_id: str, epoch: int) -> None:
        await self._call(self.fences.take_down(slice_id, epoch))

    async def drain(self, slice_id: str, epoch: int, *, evict: bool = False) -> None:  # noqa: ARG002
        """Let running pods finish, or evict them if the slice must be released."""
        if self.publisher is not None and (evict or self._is_evicted(slice_id)):
            pods = [pod for node in self.mirror.nodes_of(slice_id) for pod in self.mirror.counted_on(node)]
            await self._call(self.publisher.evict(slice_id, pods))

    async def forget(self, slice_ids: Sequence[str]) -> None:
        for slice_id in slice_ids:
            decided = self.decision.slices if self.decision is not None else {}
            if self.publisher is not None:
                await self._call(self.publisher.remove(slice_id, gone=slice_id not in decided))
            await self.fences.forget(slice_id)

    async def close(self) -> None:
        await self.fences.close()
        if self.health is not None:
            await self.health.close()
        if self.publisher is not None:
            await self.publisher.close()
        await self.mirror.close()
        await self.api.close()

    async def diagnose(self) -> Sequence[Diagnosis]:
        """Check the NodeProvisioners of the cluster."""
        self.mirror.start()
        await self._synced()
        known = self._validate()
        if not known:
            return [Diagnosis("there is no NodeProvisioner", "create one: docs/kubernetes.md shows how")]
        wrong = [
            Diagnosis(f"NodeProvisioner {name}: {mistake}", f"correct it: kubectl edit nodeprovisioner {name}")
            for name, mistakes in known.items()
            for mistake in mistakes
        ]
        return wrong or [Diagnosis(f"{plural(len(known), 'NodeProvisioner')}, without mistakes")]

    def use_providers(self, names: Iterable[str]) -> None:
        """Learn the names that provisioners may refer to."""
        self._providers = tuple(sorted(names))
        self._news.set()

    def wrap_provider(self, name: str, provider: Any) -> Any:
        """Wrap a provider so that each of its machines gets a NodeClaim."""
        return self._wrap(self, name, provider)

    def on_decision(self, decision: DecisionReport) -> None:
        """Keep the decision and publish it."""
        self.decision = decision
        if decision.plan is not None:
            waiting = [one.demand for one in decision.plan.waiting]
            self.devices.on_plan(waiting)
            self._demand.on_plan(waiting)
        if self.publisher is not None:
            self.publisher.on_decision(decision, self.waiting)

    # -- observing -----------------------------------------------------------------------------------------------------

    async def _synced(self) -> None:
        """Wait up to ``SYNCING`` seconds for the first lists; ``WorkloadError`` while one of them is not known."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + (0.0 if self._was_synced else SYNCING)
        while (error := self.mirror.error) and clock() < deadline:
            await asyncio.sleep(0.02)
        if error:
            raise WorkloadError(error)
        self._was_synced = True

    async def _call(self, call: Awaitable[None]) -> None:
        if self._look_only or (self.election is not None and not self.election.is_held()):
            if asyncio.iscoroutine(call):
                call.close()
            raise WorkloadError("this controller is read-only" if self._look_only else "the lease has expired")
        try:
            await call
        except ApiError as error:
            raise WorkloadError(str(error)) from error

    def _waiting_pods(self) -> list[MirroredPod]:
        """Return the unschedulable pods, and the placeholders of requests for room."""
        templates = self.mirror.pod_templates.store
        waiting = list(self.mirror.waiting.values())
        if self.mirror.buffers.store:
            waiting += self.buffers.placeholders(templates)
        if self.mirror.room_requests.store or self.room_requests.open:
            placeholders = self.room_requests.placeholders(templates, self.mirror.consumers.values())
            waiting = [pod for pod in waiting if not self.room_requests.withholds(pod)] + placeholders
        return waiting

    def _rules(self, constraints: ConstraintTable, pod: MirroredPod) -> PodRules:
        rules, where = constraints.rules(pod), self.room_requests.where(pod)
        return replace(rules, where=(*rules.where, *where)) if where else rules

    def _constraints(self, waiting: Sequence[MirroredPod]) -> ConstraintTable:
        """Return the constraints between waiting and running pods; empty if there are none."""
        running = (pod for pods in self.mirror.on_node.values() for pod in pods.values())
        return ConstraintTable.of(
            waiting,
            running if waiting else (),
            self.mirror.nodes.store,
            self.mirror.namespaces.store,
        )

    def _with_classes(self, node: WorkNode, constraints: ConstraintTable) -> WorkNode:
        held = constraints.held(self.mirror.on_node.get(node.id, {}).values())
        return replace(node, classes=held) if held else node

    def _gang_size(self, pod: MirroredPod) -> int | None:
        size = self.room_requests.size(pod)
        return self.mirror.gang_size(pod) if size is None else size

    def _gang_running(self, pod: MirroredPod) -> int:
        return self.mirror.gang_running(pod) if self.room_requests.size(pod) is None else 0

    # -- provisioners --------------------------------------------------------------------------------------------------

    def _validate(self) -> dict[str, tuple[str, ...]]:
        """Return the mistakes in each provisioner. One without mistakes becomes the last valid one of its name."""
        found: dict[str, tuple[str, ...]] = {}
        for name, provisioner in sorted(self.mirror.provisioners.store.items()):
            found[name] = (*mistakes_in(provisioner), *self._provider_mistakes(provisioner))
            if not found[name]:
                self._valid[name] = provisioner
        self._valid = {name: one for name, one in self._valid.items() if name in found}
        return found

    def _known_provisioners(self, mistakes: Mapping[str, tuple[str, ...]]) -> dict[str, KnownProvisioner]:
        daemons = tuple(one for _, one in sorted(self.mirror.daemons.store.items()))
        found = {}
        sizes: dict[str, int] = {}
        for node in self.mirror.nodes.store.values():
            if node.provisioner:
                sizes[node.provisioner] = sizes.get(node.provisioner, 0) + 1
        claimed = {claim.spec.provisioner for claim in self.mirror.claims.store.values()}
        for name, provisioner in sorted(self.mirror.provisioners.store.items()):
            group: WorkloadGroup | None = None
            gpu, held = None, False
            if (valid := self._valid.get(name)) is not None and not self._provider_mistakes(valid):
                # After an invalid change the last valid settings stay in force, and no node is released for it.
                group, gpu = self._group(valid, daemons, sizes.get(name, 0))
            elif held := name in sizes or name in claimed:
                group = WorkloadGroup(held_group(provisioner), provisioner.spec.provider)
            if provisioner.metadata.deletion_timestamp is not None:
                # A deleted provisioner is no longer a group, so the controller drains its slices. With the policy
                # Orphan it stays a frozen group until its nodes are orphaned: they must not be drained.
                if group is not None and provisioner.spec.deletion_policy == "Orphan":
                    group = replace(group, group=replace(group.group, frozen=True, min=0, spare=0))
                else:
                    group = None
            found[name] = KnownProvisioner(provisioner, group, mistakes[name], gpu, held)
        self._groups = {name: one for name, one in self._groups.items() if name in found}
        return found

    def _provider_mistakes(self, provisioner: NodeProvisioner) -> list[str]:
        name = provisioner.spec.provider
        if name in self._providers or (not name and len(self._providers) == 1):
            return []
        known = ", ".join(self._providers) or "none"
        return [f"spec.provider: there is no provider {name!r} in the controller's configuration; there are: {known}"]

    def _group(
        self, provisioner: NodeProvisioner, daemons: tuple[Any, ...], nodes: int
    ) -> tuple[WorkloadGroup, str | None]:
        """The group of a valid provisioner, and the resource that counts as use."""
        name, spec = provisioner.metadata.name, provisioner.spec
        leaving = allowed_to_leave(spec.budgets or (), nodes, self._now())
        protected = frozenset(
            claim
            for claim, hosts in self.mirror.claim_nodes.items()
            if any(one.protected for one in hosts.values() if one.provisioner == name)
        )
        room = self.devices.room(name)
        key = (provisioner.metadata.generation, provisioner.metadata.uid, daemons, leaving, protected, amounts(room))
        known = self._groups.get(name)
        if known is None or known[0] != key:
            made = group_of(provisioner, daemons, room)
            group = replace(made.group, protected=protected)
            offered = WorkloadGroup(
                group,
                spec.provider or self._providers[0],
                made.settings,
                spec.actions_per_loop,
                leaving,
            )
            known = self._groups[name] = (key, offered, made.gpu)
        return known[1:]

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _work_nodes(self) -> Iterable[WorkNode]:
        fresh: dict[str, tuple[Any, WorkNode]] = {}
        repairs = self._repairs.choose(
            (node for hosts in self.mirror.claim_nodes.values() for node in hosts.values()),
            self._valid,
            self._now(),
        )
        for hosts in self.mirror.claim_nodes.values():
            for node in hosts.values():
                if not node.provisioner:
                    continue
                valid = self._valid.get(node.provisioner)
                pods = self.mirror.on_node.get(node.name, {})
                claim = self.mirror.claims.store.get(node.claim)
                deleted = claim is not None and claim.metadata.deletion_timestamp is not None
                reserved = self.devices.reserved(node.name, pods.values())
                state = (valid and valid.metadata.generation, deleted, reserved, repairs.get(node.name))
                key = (node, tuple(pods.values()), state, id(self.devices.columns))
                before = self._nodes.get(node.name)
                if before is not None and before[0] == key:
                    fresh[node.name] = before
                else:
                    fresh[node.name] = (key, self._work_node(node, pods.values(), valid, deleted, len(reserved)))
        self._nodes = fresh
        return [one for _, one in fresh.values()]

    def _work_node(
        self,
        node: MirroredNode,
        pods: Iterable[MirroredPod],
        provisioner: NodeProvisioner | None,
        deleted: bool,
        reserved: int,
    ) -> WorkNode:
        """``reserved``: claims on the node's devices that are reserved for other consumers than its pods."""
        counted = [pod for pod in pods if pod.counts]
        used = self._used(counted)
        if devices := self.devices.used(node, dict(used)):
            used = amounts({**dict(used), **devices})
        if keeps_away(node, provisioner):
            # Another owner has tainted or cordoned it: it offers no room, and we must not release it.
            used = amounts({**dict(used), "pods": max(dict(used).get("pods", 0), node.allocatable.get("pods", 0))})
        leaving = ""
        if node.deleted:
            leaving = "its Node object was deleted"
        elif deleted:
            leaving = "its NodeClaim was deleted"
        return WorkNode(
            id=node.name,
            slice_id=node.claim,
            used=used,
            tasks=len(counted) + reserved,
            idle_since=None if counted or reserved else self.mirror.idle_since.get(node.name, node.since),
            labels={**node.labels, NODE_NAME: node.name},
            healthy=not self._lacks(node, provisioner),
            marked_until=node.marked_until,
            leaving=leaving,
            repair=self._repairs.chosen.get(node.name, ""),
        )

    def _lacks(self, node: MirroredNode, provisioner: NodeProvisioner | None) -> str:
        return lacks(node, provisioner) or self.devices.lacks(node, provisioner)

    def _used(self, pods: Iterable[MirroredPod]) -> Amounts:
        total: dict[str, int] = {}
        for pod in pods:
            for name, amount in pod.shape.needs:
                total[name] = total.get(name, 0) + amount
        return amounts(total)

    def _acknowledged(self) -> list[Acknowledgement]:
        return self.fences.acknowledgements()

    def _is_evicted(self, slice_id: str) -> bool:
        """Whether pods of a slice are evicted: an operator or a repair drains it, or its provisioner was deleted."""
        decided = self.decision.slices.get(slice_id) if self.decision is not None else None
        if decided is None:
            return False
        if decided.must_go and decided.reason.code in ("MANUAL", "GROUP_REMOVED"):
            return True
        return decided.must_go and any(node in self._repairs.chosen for node in self.mirror.nodes_of(slice_id))

    # -- probes --------------------------------------------------------------------------------------------------------

    def _is_leading(self) -> bool:
        return self.election is None or self.election.is_held()

    def _healthy(self) -> tuple[int, str]:
        ended = self.mirror.ended
        return (503, f"{ended}\n") if ended else (200, "ok\n")

    def _ready(self) -> tuple[int, str]:
        """The readiness probe: a standby is always ready, a leader only while its mirror is synced."""
        if not self._is_leading():
            return 200, "standing by\n"
        error = self.mirror.error
        return (503, f"{error}\n") if error else (200, "ok\n")

    def _metrics(self) -> tuple[int, str]:
        queued = self.publisher.queued if self.publisher is not None else 0
        return 200, metrics(self.mirror, self.decision, self._is_leading() and not self._look_only, queued)

    # -- for the publisher and the claims ------------------------------------------------------------------------------

    def lacking(self, node: MirroredNode) -> str:
        """Return what a node still lacks of what its provisioner promises, as text; empty if nothing."""
        return self._lacks(node, self._valid.get(node.provisioner))

    def is_used(self, slice_id: str, resource: str | None) -> bool:
        """Whether pods or claims use a resource on a slice's nodes; None: whether anything runs there."""
        shown = [self._nodes[node][1] for node in self.mirror.nodes_of(slice_id) if node in self._nodes]
        if resource is None:
            return any(one.tasks for one in shown)
        return any(dict(one.used).get(resource) for one in shown)

    async def still_used(self, slice_id: str) -> str:
        """Return the pods or claims on a slice's nodes now, as text; empty if there are none, or if no node is
        Ready.
        """
        if not any(node.ready for node in self.mirror.nodes_of(slice_id).values()):
            return ""
        pods, claims, version = await self.fences.live_use(slice_id)
        if claims:
            return f"claims are reserved there at version {version}: {', '.join(claims[:3])}"
        return f"pods run there at version {version}: {describe(pods)}" if pods else ""

    def is_orphaned(self, slice_id: str) -> bool:
        """Whether a slice's node was orphaned when its provisioner was deleted."""
        return slice_id in self.mirror.orphaned
