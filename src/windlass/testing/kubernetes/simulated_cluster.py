"""This module simulates a Kubernetes cluster on virtual time: a day of pods in a minute, with the production
controller.

The API server keeps its objects in the process. A small scheduler binds pods, late and from a view that is some
milliseconds old, as a real one does; a kubelet runs them and ends them when their time is over. The controller,
workload, provider and publisher are the production code. Faults are drawn from a seed. Invariants are checked at every
change of an object: a node that is deleted while a pod runs on it is a violation, whatever the cause.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2s
from typing import Any, Final

import msgspec

from windlass.control.controller import Controller
from windlass.control.settings import Leadership, Policy, Settings
from windlass.journal import Journal
from windlass.journal.memory import MemoryJournal
from windlass.kubernetes_api.api import Api, ApiError, Response
from windlass.providers.kwok.provider import KwokProvider
from windlass.providers.node_claims import NodeClaimProvider
from windlass.sim.run.virtual_loop import run_virtually
from windlass.workloads.kubernetes.publish.publisher import DecisionPublisher
from windlass.workloads.kubernetes.workload import KubernetesWorkload

from .fake_server import FakeApiServer, Object

PROVISIONERS: Final = "/apis/windlass.dev/v1alpha1/nodeprovisioners"
PODS: Final = "/api/v1/namespaces/default/pods"
GPU: Final = "nvidia.com/gpu"
GPUS: Final = 8
UNSCHEDULABLE: Final = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
STORM: Final = Response(
    409, b'{"kind":"Status","code":409,"reason":"Conflict","message":"the object has been modified"}'
)
BUSY: Final = Response(429, b'{"kind":"Status","code":429,"message":"busy","details":{"retryAfterSeconds":1}}')
LEAST_PAUSE: Final = 2.0
"""Seconds between two passes of the controller."""
RESYNC: Final = 60.0
FAULTS: Final = ("conflicts", "busy", "stall", "break", "compact", "away", "kill", "kill and lose journal", "skew")


@dataclass(frozen=True, slots=True)
class SimulatedPod:
    """A pod with its time of creation, GPUs and duration."""

    name: str
    at: float
    gpus: int
    seconds: float


def a_day(seed: int, pods: int = 600, day: float = 86400.0) -> list[SimulatedPod]:
    """Return the pods of one day: few at night, many at noon, sizes of 1 to 8 GPUs, minutes to hours."""
    chance = random.Random(seed)
    found: list[SimulatedPod] = []
    while len(found) < pods:
        at = chance.random() * day * 0.8
        if chance.random() < 1.0 - abs(at / (day * 0.4) - 1.0) * 0.9:
            gpus = chance.choice((1, 1, 2, 4, 8))
            found.append(SimulatedPod(f"p{len(found)}", at, gpus, chance.uniform(120, 7200)))
    return sorted(found, key=lambda one: one.at)


@dataclass
class ClusterReport:
    """The results of a simulation."""

    broken: list[str] = field(default_factory=list)
    """Violated invariants, each in a sentence."""
    finished: int = 0
    waited: list[float] = field(default_factory=list)
    """Seconds from each pod's creation to its binding."""
    late_bindings: int = 0
    """Bindings that were stored after the hard taint of their node."""
    passes: int = 0
    deaths: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    node_seconds: float = 0.0
    busy_seconds: float = 0.0
    most_nodes: int = 0
    left: list[str] = field(default_factory=list)
    """Nodes and claims that exist at the end."""
    changes: int = 0
    digest: str = ""
    """A hash of every change of every object, with its time. Two runs with the same digest were the same, write by
    write."""


class SimulatedCluster:
    """One cluster and its controller; ``run`` plays the pods to their end."""

    def __init__(
        self, seed: int, spec: Mapping[str, Any], faults: Iterable[tuple[float, str]] = (), **kwok: Any
    ) -> None:
        """``spec``: of the provisioner. ``faults``: when, and which of ``FAULTS``. ``kwok``: for the provider."""
        self._chance, self._faults, self._kwok = random.Random(seed), sorted(faults), kwok
        self.report = ClusterReport()
        template = {"resources": {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(GPUS)}}
        self._spec = {"provider": "kwok", "template": template, **spec}
        self._skew = 0.0
        self._changed = asyncio.Event()
        self._free: dict[str, int] = {}
        """GPUs that no pod has, by node."""
        self._born: dict[str, float] = {}
        self._bound: set[str] = set()
        self._created: dict[str, float] = {}
        self._dead = False
        self._digest = blake2s()
        self._journals = 0

    def run(self, pods: Iterable[SimulatedPod], until: float) -> ClusterReport:
        """Play some pods, until ``until`` seconds have passed."""
        random.seed(self._chance.random())
        return run_virtually(self._main(list(pods), until))

    async def _main(self, pods: list[SimulatedPod], until: float) -> ClusterReport:
        loop = asyncio.get_running_loop()
        self.start = loop.time()
        self.fake = FakeApiServer(loop.time)
        self.fake.on_change = self._check
        self.fake.put(PROVISIONERS, {"metadata": {"name": "gpu"}, "spec": self._spec})
        self._journal = self._new_journal()
        players = [self._submit(pods), self._schedule(), self._strike(), self._control(), self._bookmark()]
        tasks = [asyncio.create_task(one) for one in players]
        await asyncio.sleep(until)
        for task in tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                raise task.exception()  # type: ignore[misc]
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._count_left(loop.time())
        self.report.digest = self._digest.hexdigest()
        return self.report

    # -- the controller ------------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return asyncio.get_running_loop().time() + self._skew

    def _controller(self, journal: Journal) -> tuple[Controller, KubernetesWorkload, KwokProvider]:
        api = Api(self.fake)
        workload = KubernetesWorkload(
            api, ["kwok"], settle=5.0, now=self._now, publisher=lambda one: DecisionPublisher(one, now=self._now)
        )
        kwok = KwokProvider(api, now=self._now, **self._kwok)
        provider = NodeClaimProvider(
            kwok, "kwok", api, still_used=workload.still_used, is_orphaned=workload.is_orphaned
        )
        controller = Controller(
            Settings((), policy=Policy()),
            {"kwok": provider},
            workload,
            journal,
            now=self._now,
            steady=asyncio.get_running_loop().time,
            leadership=Leadership(holder="simulated", lease=1e12),
        )
        return controller, workload, kwok

    def _new_journal(self) -> Journal:
        """Return an empty journal, whose cluster id differs from that of the last one as in production."""
        found = MemoryJournal(hashed=False)
        self._journals += 1
        found.cluster_id = f"{self._journals:010x}"
        return found

    async def _control(self) -> None:
        while True:
            controller, workload, kwok = self._controller(self._journal)
            controller.start()
            self._dead = False
            try:
                while not self._dead:
                    await controller.tick()
                    self.report.passes += 1
                    await asyncio.sleep(LEAST_PAUSE)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(RESYNC):
                            await workload.changed()
            finally:
                with suppress(Exception):
                    await controller.stop()
                await kwok.close()
                await workload.close()
            self.report.deaths += 1
            await asyncio.sleep(self._chance.uniform(1, 60))
            self.fake.on_write = lambda _method, _path: None

    # -- users, scheduler, kubelet -------------------------------------------------------------------------------------

    async def _submit(self, pods: list[SimulatedPod]) -> None:
        loop = asyncio.get_running_loop()
        for one in pods:
            await asyncio.sleep(max(0.0, self.start + one.at - loop.time()))
            self._created[one.name] = loop.time()
            notes = {"seconds": str(one.seconds)}
            container = {"name": "c", "resources": {"requests": {"cpu": "1", GPU: str(one.gpus)}}}
            self.fake.put(
                PODS,
                {
                    "metadata": {
                        "name": one.name,
                        "namespace": "default",
                        "annotations": notes,
                    },
                    "spec": {"containers": [container]},
                    "status": {"phase": "Pending"},
                },
            )
            self._changed.set()

    async def _bookmark(self) -> None:
        """Send a bookmark to the watches every minute, as API servers do."""
        while True:
            await asyncio.sleep(60)
            if not self.fake.down:
                self.fake.bookmark()

    async def _schedule(self) -> None:
        """Bind pods. Some milliseconds pass between reading the nodes and storing the binding."""
        while True:
            self._changed.clear()
            view = {node["metadata"]["name"]: node for node in self._stored("nodes")}
            await asyncio.sleep(self._chance.uniform(0.005, 0.5))
            room = {name: self._room(node) for name, node in view.items()}
            for pod in [one for one in self._stored("pods") if not one["spec"].get("nodeName")]:
                need = _gpus(pod)
                fitting = [(soft, name) for name, (free, soft) in room.items() if free >= need]
                path = f"{PODS}/{pod['metadata']['name']}"
                if not fitting:
                    if not (pod.get("status") or {}).get("conditions"):
                        self.fake.change(path, lambda one: one["status"].update(conditions=[UNSCHEDULABLE]))
                    continue
                name = min(fitting)[1]
                if name not in self._free:
                    continue  # the node is gone meanwhile: the binding is refused
                room[name] = (room[name][0] - need, room[name][1])
                self._bind(path, name)
            if self._changed.is_set():
                continue
            await self._changed.wait()

    def _stored(self, plural: str) -> list[Object]:
        return list(self.fake.objects.get(f"core/{plural}", {}).values())

    def _room(self, node: Object) -> tuple[int, bool]:
        """Return the free GPUs of a node as the scheduler sees it, and whether it is only taken if there is no
        other.
        """
        status, taints = node.get("status") or {}, node["spec"].get("taints") or ()
        ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or ())
        hard = any(one["effect"] != "PreferNoSchedule" for one in taints)
        offered = min(int((status.get("allocatable") or {}).get(GPU, "0")), self._free.get(node["metadata"]["name"], 0))
        return (offered if ready and not hard and "deletionTimestamp" not in node["metadata"] else 0), bool(taints)

    def _bind(self, path: str, name: str) -> None:
        now = asyncio.get_running_loop().time()

        def change(one: Object) -> None:
            one["spec"]["nodeName"] = name
            one["status"] = {"phase": "Running", "conditions": []}

        taints = (self.fake.get(f"/api/v1/nodes/{name}") or {"spec": {}})["spec"].get("taints") or ()
        self.report.late_bindings += any(one["effect"] == "NoSchedule" for one in taints)
        pod = self.fake.change(path, change)
        seconds = float(pod["metadata"]["annotations"]["seconds"])
        asyncio.get_running_loop().call_later(seconds, self._finish, path)
        self.report.waited.append(now - self._created[pod["metadata"]["name"]])

    def _finish(self, path: str) -> None:
        if self.fake.get(path) is not None:
            self.fake.remove(path)
            self.report.finished += 1

    # -- faults --------------------------------------------------------------------------------------------------------

    async def _strike(self) -> None:
        loop = asyncio.get_running_loop()
        for at, kind in self._faults:
            await asyncio.sleep(max(0.0, self.start + at - loop.time()))
            self.report.faults[kind] = self.report.faults.get(kind, 0) + 1
            await self._fault(kind)

    async def _fault(self, kind: str) -> None:
        writes: Callable[[str, str], bool] = lambda method, _path: method in ("PATCH", "PUT")  # noqa: E731
        match kind:
            case "conflicts":
                self.fake.fail_next(writes, STORM, 25)
            case "busy":
                self.fake.fail_next(lambda _method, _path: True, BUSY, 25)
            case "stall":
                self.fake.stall_watches()
            case "break":
                self.fake.break_watches()
            case "compact":
                self.fake.break_watches()
                self.fake.compact()
            case "away":
                self.fake.down = True
                self.fake.break_watches()
                await asyncio.sleep(self._chance.uniform(1, 120))
                self.fake.down = False
            case "skew":
                self._skew = self._chance.uniform(-300, 300)
            case "kill" | "kill and lose journal":
                left = [self._chance.randrange(6)]

                def die(method: str, path: str) -> None:
                    left[0] -= 1
                    if left[0] < 0:
                        self._dead = True
                        raise ApiError(0, f"killed before {method} {path}")

                self.fake.on_write = die
                if kind != "kill":
                    self._journal = self._new_journal()
            case _:
                raise ValueError(f"the fault {kind!r} is not known; known are {', '.join(FAULTS)}")

    # -- invariants ----------------------------------------------------------------------------------------------------

    def _check(self, event: str, kind: str, item: Object) -> None:
        """Update the free GPUs of each node, and record violated invariants."""
        now = asyncio.get_running_loop().time() - self.start
        name = item["metadata"]["name"]
        self.report.changes += 1
        self._digest.update(msgspec.json.encode((now, event, kind, item), order="sorted"))
        if kind == "core/nodes":
            if event == "DELETED":
                on_it = [one["metadata"]["name"] for one in self._stored("pods") if one["spec"].get("nodeName") == name]
                if on_it:
                    self.report.broken.append(f"at {now:.0f} s the node {name} was erased under {', '.join(on_it)}")
                self._free.pop(name, None)
                self.report.node_seconds += now - self._born.pop(name, now)
            elif name not in self._free:
                self._free[name] = GPUS
                self._born[name] = now
                self.report.most_nodes = max(self.report.most_nodes, len(self._free))
                if len(self._free) > self._spec["maxNodes"]:
                    self.report.broken.append(f"at {now:.0f} s there are {len(self._free)} nodes")
        elif kind == "core/pods":
            on = item["spec"].get("nodeName")
            if event == "DELETED" and on in self._free:
                self._free[on] += _gpus(item)
                self.report.busy_seconds += float(item["metadata"]["annotations"]["seconds"]) * _gpus(item) / GPUS
            elif event == "MODIFIED" and on in self._free and name not in self._bound:
                self._bound.add(name)
                self._free[on] -= _gpus(item)
                if self._free[on] < 0:
                    self.report.broken.append(f"at {now:.0f} s the node {on} is overbooked")
        if kind in ("core/nodes", "core/pods"):
            self._changed.set()

    def _count_left(self, now: float) -> None:
        for born in self._born.values():
            self.report.node_seconds += now - self.start - born
        self.report.left = [one["metadata"]["name"] for one in (*self._stored("nodes"), *self.fake.all("nodeclaims"))]


def _gpus(pod: Object) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["requests"][GPU])
