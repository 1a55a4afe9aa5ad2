"""A Ray cluster in memory, on the clock of a test, where the controller can be killed before and after each call.

Machines come from the clouds of ``tests.control.worlds``; a running machine becomes a node after ``JOINING`` seconds.
Tasks wait at the head's raylet; the GCS pulls them once a second, so its counts are as old as those of a real head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.control.worlds import Crash, World
from windlass.control.controller import Controller
from windlass.control.settings import GroupSettings, Policy, Settings
from windlass.core.model.snapshot import Group, ScaleDown
from windlass.workloads.ray import wire_pb2 as wire
from windlass.workloads.ray.gcs import DRAINED_IDLE, DRAINED_PREEMPTED, IDLE_TERMINATION, Gcs
from windlass.workloads.ray.workload import RayWorkload

WORKER = Group("worker", (("cpu", 2000),), 4, scale_down=ScaleDown(idle_timeout=5))
SETTINGS = Settings((GroupSettings(WORKER, "cloud"),), policy=Policy(vanish_timeout=0))
CPUS = 2
JOINING = 2.0
"""Seconds from a running machine to a node that has joined."""
HEAD = "head:1"


@dataclass
class FakeNode:
    """One raylet."""

    slice_id: str
    running: list[str] = field(default_factory=list)
    idle_since: float = 0.0
    drain: tuple[int, str] | None = None
    dead: tuple[int, str] | None = None

    @property
    def id(self) -> bytes:
        return self.slice_id.encode()

    @property
    def status(self) -> int:
        if self.dead:
            return wire.NODE_DEAD
        if self.drain:
            return wire.NODE_DRAINING
        return wire.NODE_RUNNING if self.running else wire.NODE_IDLE


class FakeHead:
    """The GCS, the raylets and the tasks of one cluster. A task needs one CPU."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.nodes: dict[str, FakeNode] = {}
        self.waiting: list[str] = []
        self.placement_groups: list[tuple[str, int, int]] = []
        """Placement groups that wait and that nobody places: (strategy, bundles, CPUs of a bundle)."""
        self.finished: list[str] = []
        self.killed: list[str] = []
        """Tasks that ran on a node that was drained or ended under them."""
        self.lost: list[str] = []
        """Tasks whose machine died by itself; they wait again."""
        self.changing: list[tuple[str, str]] = []
        """Calls that change something: the method, and the holder of the controller that made it."""
        self.reported: list[int] = []
        self.deadlines: list[int] = []
        """Of drains with work on the node, in milliseconds; 0: none."""
        self.actors: list[wire.ActorTableData] = []
        self.on_drain: Callable[[FakeNode], None] = lambda _: None
        """Called before a node is drained; it may raise the error of the call."""
        self._seen_running: dict[str, float] = {}
        self._pulled: tuple[float, int] = (0.0, 0)

    @property
    def running(self) -> list[str]:
        return sorted(task for node in self.nodes.values() for task in node.running)

    def busy(self) -> list[str]:
        return sorted(name for name, node in self.nodes.items() if node.running and not node.dead)

    def step(self) -> None:
        """Let nodes join and die, and let tasks start."""
        now = self.world.time
        machines = self.world.instances
        for name, one in machines.items():
            since = self._seen_running.setdefault(name, now)
            if name not in self.nodes and now - since >= JOINING and all(host.running for host in one.hosts):
                self.nodes[name] = FakeNode(name, idle_since=now)
        for name, node in self.nodes.items():
            if node.dead:
                continue
            machine = machines.get(name)
            if machine is None or not all(host.running for host in machine.hosts):
                died = machine is not None
                (self.lost if died else self.killed).extend(node.running)
                self.waiting.extend(node.running)
                node.running.clear()
                if not died:
                    node.dead = (1, "the machine was ended")
            elif node.drain and not node.running:
                node.dead = node.drain
        for node in self.nodes.values():
            machine = machines.get(node.slice_id)
            up = machine is not None and all(host.running for host in machine.hosts)
            while up and self.waiting and not node.drain and not node.dead and len(node.running) < CPUS:
                node.running.append(self.waiting.pop(0))
        if now - self._pulled[0] >= 1:
            self._pulled = (now, len(self.waiting))

    def finish(self, *tasks: str) -> None:
        for node in self.nodes.values():
            for task in [one for one in node.running if not tasks or one in tasks]:
                node.running.remove(task)
                node.idle_since = self.world.time
                self.finished.append(task)

    # -- what the GCS answers -----------------------------------------------------------------------------------------

    def answer(self, path: str, request: Any, holder: str) -> Any:
        method = path.rpartition("/")[2]
        known: dict[str, Callable[[Any], Any]] = {
            "GetClusterId": lambda _: wire.GetClusterIdReply(cluster_id=b"c" * 28),
            "CheckAlive": lambda _: wire.CheckAliveReply(ray_version="2.60.0"),
            "GetClusterResourceState": lambda _: wire.GetClusterResourceStateReply(
                cluster_resource_state=self._state()
            ),
            "GetAllNodeInfo": lambda _: wire.GetAllNodeInfoReply(node_info_list=self._infos()),
            "GetAllActorInfo": lambda _: wire.GetAllActorInfoReply(actor_table_data=self.actors),
            "GetResourceLoad": lambda _: wire.GetResourceLoadReply(
                resources=wire.ResourcesData(resource_load_by_shape=self._load())
            ),
            "InternalKVGet": lambda _: wire.InternalKVGetReply(value=b"1"),
            "ReportAutoscalingState": self._reported,
            "ReportJobError": lambda _: wire.Empty(),
            "DrainNode": self._drain,
            "UnregisterNode": self._unregister,
        }
        if method in ("DrainNode", "UnregisterNode"):
            self.changing.append((method, holder))
        return known[method](request)

    def _state(self) -> wire.ClusterResourceState:
        state = wire.ClusterResourceState()
        for node in self.nodes.values():
            if not node.dead:
                state.node_states.append(
                    wire.NodeState(
                        node_id=node.id,
                        instance_id=f"{node.slice_id}/0",
                        ray_node_type_name=node.slice_id.partition("-")[0],
                        total_resources={"CPU": CPUS},
                        available_resources={"CPU": CPUS - len(node.running)},
                        status=node.status,  # type: ignore[arg-type]
                        idle_duration_ms=0 if node.running else int(1000 * (self.world.time - node.idle_since)),
                    )
                )
        state.node_states.append(
            wire.NodeState(node_id=b"head", total_resources={"node:__internal_head__": 1}, status=wire.NODE_IDLE)
        )
        if self._pulled[1]:
            one = state.pending_resource_requests.add(count=self._pulled[1])
            one.request.resources_bundle["CPU"] = 1
        for number, (strategy, bundles, cpus) in enumerate(self.placement_groups):
            gang = state.pending_gang_resource_requests.add(details=f"{number:036x}:{strategy}|PENDING")
            gang.requests.extend([wire.ResourceRequest(resources_bundle={"CPU": cpus})] * bundles)
        return state

    def _infos(self) -> list[wire.GcsNodeInfo]:
        host, _, port = HEAD.partition(":")
        found = [
            wire.GcsNodeInfo(node_id=b"head", is_head_node=True, node_manager_address=host, node_manager_port=int(port))
        ]
        for node in self.nodes.values():
            info = wire.GcsNodeInfo(
                node_id=node.id, state=int(node.dead is not None), instance_id=f"{node.slice_id}/0", temp_dir="/t"
            )
            if node.dead:
                info.death_info.reason, info.death_info.reason_message = node.dead
            found.append(info)
        return found

    def _load(self) -> wire.ResourceLoad:
        load = wire.ResourceLoad()
        if self.waiting:
            load.resource_demands.add(num_infeasible_requests_queued=len(self.waiting)).shape["CPU"] = 1
        return load

    def _reported(self, request: wire.ReportAutoscalingStateRequest) -> wire.Empty:
        self.reported.append(request.autoscaling_state.autoscaler_state_version)
        return wire.Empty()

    def _drain(self, request: wire.DrainNodeRequest) -> wire.DrainNodeReply:
        node = self.nodes[request.node_id.decode()]
        self.on_drain(node)
        idle = request.reason == IDLE_TERMINATION
        if idle and node.running and not node.drain:
            return wire.DrainNodeReply(is_accepted=False, rejection_reason_message="no longer idle")
        if not idle:
            self.deadlines.append(request.deadline_timestamp_ms)
        if node.drain is None:
            node.drain = (DRAINED_IDLE if idle else DRAINED_PREEMPTED, request.reason_message)
        return wire.DrainNodeReply(is_accepted=True)

    def _unregister(self, request: wire.UnregisterNodeRequest) -> wire.Empty:
        node = self.nodes[request.node_id.decode()]
        if node.dead is None:
            self.killed.extend(node.running)
            node.running.clear()
            node.dead = (request.node_death_info.reason, request.node_death_info.reason_message)
        return wire.Empty()


class FakeGcs(Gcs):
    """The client of one controller. It dies with it."""

    def __init__(self, head: FakeHead, point: Callable[[str], None], holder: str) -> None:
        super().__init__("head:6379")
        self._head, self._point, self._holder = head, point, holder
        self.dead = False

    async def call(self, target: str, path: str, request: Any, reply: Any, *, guarded: bool = False) -> Any:
        name = path.rpartition("/")[2]
        if self.dead:
            raise Crash("the controller of this client was killed")
        self._point(name)
        answer = self._head.answer(path, request, self._holder)
        self._point(f"{name} done")
        return answer


class RayWorld(World):
    """A world whose workload is a Ray cluster; every controller has a workload object of its own."""

    def __init__(self, settings: Settings = SETTINGS) -> None:
        super().__init__(settings=settings)
        self.head = FakeHead(self)
        self._clients: dict[str, FakeGcs] = {}

    def controller(self, holder: str = "one", **more: Any) -> Controller:
        self.let_die(holder)
        client = self._clients[holder] = FakeGcs(self.head, self.point, holder)
        groups = [one.group for one in self.settings.groups]
        self.work = RayWorkload("head:6379", groups, now=lambda: self.time, gcs=client)  # type: ignore[assignment]
        return super().controller(holder, **more)

    def let_die(self, holder: str) -> None:
        """End the calls of a controller that was killed."""
        if holder in self._clients:
            self._clients[holder].dead = True

    def step(self) -> None:
        self.head.step()
