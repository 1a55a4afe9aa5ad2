"""A small world for the loop: clouds and a workload in memory, on a clock that only tests move.

Every place where a controller can be killed (before and after each journal write and each outside call) is a *point*.
What the world really has (``Cloud.bought``, ``Work.killed``) is kept apart from what a controller believes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from windlass.control.controller import Controller, Pass
from windlass.control.settings import GroupSettings, Leadership, Policy, Settings
from windlass.core.model.lifecycle import State
from windlass.core.model.snapshot import Amounts, Bundle, Demand, Group, ScaleDown
from windlass.journal import Journal, open_journal
from windlass.providers.protocol import ClusterIdentity, Host, Instance, LaunchOrder, Offering, StaleEpoch
from windlass.workloads.protocol import Acknowledgement, Join, WorkloadView, WorkNode

GPU = Group("gpu", (("gpu", 8000),), 4, scale_down=ScaleDown(idle_timeout=60))
TASK: Amounts = (("gpu", 8000),)

QUICK = Policy(vanish_timeout=0)
"""The cloud of this world shows what it has at once, so what is missing is gone."""


class Cloud:
    """Sells at once, shows it at once, ends at once, unless a test says otherwise. Every purchase is remembered."""

    def __init__(self, point: Callable[[str], None]) -> None:
        self.instances: dict[str, Instance] = {}
        self.bought: list[str] = []
        self.ended: list[str] = []
        self.died: list[str] = []
        self.calls: list[tuple[str, str, int]] = []
        """What was asked, of which slice, under which epoch."""
        self.epoch = 0
        self.stale = 0
        """Calls that were refused because a newer controller had called."""
        self.failing: Exception | None = None
        self.refusing: Callable[[LaunchOrder], Exception | None] = lambda _: None
        self.hanging: asyncio.Event | None = None
        """Launches wait for it."""
        self.listing: Callable[[], Any] | None = None
        """What the list answers instead of the truth."""
        self.booting = False
        """New ones stay ``pending``."""
        self.most_at_once = 0
        self._point = point

    def _check(self, what: str, slice_id: str, epoch: int) -> None:
        self.calls.append((what, slice_id, epoch))
        if epoch < self.epoch:
            self.stale += 1
            raise StaleEpoch(f"epoch {epoch} is older than {self.epoch}")
        self.epoch = epoch
        if self.failing is not None:
            raise self.failing

    async def launch(self, order: LaunchOrder, epoch: int) -> None:
        self._point("launch")
        if self.hanging is not None:
            await self.hanging.wait()
        self._check("launch", order.slice_id, epoch)
        refusal = self.refusing(order)
        if refusal is not None:
            raise refusal
        if order.slice_id not in self.bought:  # an id buys once, for ever
            self.bought.append(order.slice_id)
            hosts = tuple(Host(f"{order.slice_id}/{index}") for index, _ in enumerate(order.hosts))
            state = "pending" if self.booting else "running"
            self.instances[order.slice_id] = Instance(order.slice_id, order.group, state, hosts)  # type: ignore[arg-type]
            self.most_at_once = max(self.most_at_once, len(self.instances))
        self._point("launched")

    async def terminate(self, slice_id: str, epoch: int) -> None:
        self._point("terminate")
        self._check("terminate", slice_id, epoch)
        if self.instances.pop(slice_id, None):
            self.ended.append(slice_id)
        self._point("terminated")

    def bind(self, cluster: ClusterIdentity) -> None:
        """Its account has one cluster."""

    async def list(self) -> Sequence[Instance]:
        self._point("list")
        if self.failing is not None:
            raise self.failing
        answer = tuple(self.instances.values())
        if self.listing is not None:
            answer = self.listing()
            if asyncio.iscoroutine(answer):
                answer = await answer
        self._point("listed")
        return answer

    async def offerings(self) -> Sequence[Offering]:
        return ()

    async def close(self) -> None:
        pass

    # -- what happens to machines -------------------------------------------------------------------------------------

    def boot(self) -> None:
        self.booting = False
        self.instances = {name: replace(one, state="running") for name, one in self.instances.items()}

    def kill(self, slice_id: str, host: int = 0) -> None:
        """A host dies; its slice is still listed, with a dead host."""
        self.died.append(slice_id)
        hosts = list(self.instances[slice_id].hosts)
        hosts[host] = replace(hosts[host], running=False)
        self.instances[slice_id] = replace(self.instances[slice_id], hosts=tuple(hosts))

    def announce(self, slice_id: str, preempted_at: float | None) -> None:
        """The provider says when it takes a slice away."""
        self.instances[slice_id] = replace(self.instances[slice_id], preempted_at=preempted_at)


class Work:
    """Jobs of one slice each: they wait, run on a joined slice that is not cordoned, and end when the test says so."""

    def __init__(self, clouds: Mapping[str, Cloud], groups: Callable[[], Mapping[str, Group]], world: World) -> None:
        self.clouds, self.groups, self.world = clouds, groups, world
        self.waiting: list[str] = []
        self.needs: dict[str, Amounts] = {}
        """What a job needs, if it is not a whole GPU node."""
        self.running: dict[str, str] = {}
        self.cordons: dict[str, int] = {}
        self.idle_since: dict[str, float] = {}
        self.finished: list[str] = []
        self.killed: list[str] = []
        """Jobs whose slice we ended under them."""
        self.lost: list[str] = []
        """Jobs whose slice died; they wait again."""
        self.evicted: list[str] = []
        self.sick: set[str] = set()
        """Nodes that show as unhealthy."""
        self.hidden: set[str] = set()
        """Nodes that do not show."""
        self.deaf = False
        """It acknowledges nothing."""
        self.looking: Callable[[WorkloadView], Any] | None = None
        """What a look answers, made from the truth."""
        self.news = asyncio.Event()
        self.calls: list[tuple[str, str, int]] = []
        self._voided: dict[str, int] = {}

    def _alive(self) -> dict[str, Instance]:
        return {
            name: one
            for cloud in self.clouds.values()
            for name, one in cloud.instances.items()
            if one.state == "running"
        }

    def step(self) -> None:
        """Work moves on: lost slices lose their work, free ones take what waits."""
        alive, died = self._alive(), {name for cloud in self.clouds.values() for name in cloud.died}
        for slice_id in [one for one in self.running if one not in alive or one in died]:
            job = self.running.pop(slice_id)
            if slice_id in died:
                self.lost.append(job)
                self.waiting.insert(0, job)
            else:
                self.killed.append(job)
        for slice_id in sorted(alive):
            self.idle_since.setdefault(slice_id, self.world.time)
            if slice_id not in self.running and slice_id not in self.cordons and slice_id not in died:
                self._take(slice_id, alive[slice_id])

    def _take(self, slice_id: str, instance: Instance) -> None:
        group = self.groups().get(instance.group)
        if group is None or any(node in self.hidden for node in self._nodes_of(instance)):
            return
        has = {name for name, _ in group.resources}
        for job in self.waiting:
            if all(name in has for name, _ in self.needs.get(job, TASK)):
                self.waiting.remove(job)
                self.running[slice_id] = job
                return

    def finish(self, *jobs: str) -> None:
        """These come to their end; without any, all that run."""
        for slice_id, job in sorted(self.running.items()):
            if not jobs or job in jobs:
                self.finished.append(job)
                self.idle_since[slice_id] = self.world.time
                del self.running[slice_id]

    @staticmethod
    def _nodes_of(instance: Instance) -> list[str]:
        return [f"{instance.slice_id}/{index}" for index, host in enumerate(instance.hosts) if host.running]

    def view(self) -> WorkloadView:
        nodes = []
        for name, instance in sorted(self._alive().items()):
            job = self.running.get(name)
            idle = None if job else self.idle_since.get(name, self.world.time)
            used = self.needs.get(job, TASK) if job else ()
            nodes += [
                WorkNode(node, name, used, int(job is not None), idle, healthy=node not in self.sick)
                for node in self._nodes_of(instance)
                if node not in self.hidden
            ]
        words = [
            Acknowledgement(name, fence, int(name in self.running)) for name, fence in sorted(self.cordons.items())
        ]
        demands = tuple(Demand(job, (Bundle(self.needs.get(job, TASK)),)) for job in self.waiting)
        return WorkloadView(demands, (), tuple(nodes), () if self.deaf else tuple(words))

    # -- the contract -------------------------------------------------------------------------------------------------

    async def observe(self) -> WorkloadView:
        self.world.point("observe")
        self.news.clear()
        answer = self.view()
        if self.looking is not None:
            answer = self.looking(answer)
            if asyncio.iscoroutine(answer):
                answer = await answer
        self.world.point("observed")
        return answer

    async def changed(self) -> None:
        await self.news.wait()

    def join(self, slice_id: str, group: str, host: int) -> Join:
        return Join(("join", slice_id, group, str(host)))

    def _called(self, what: str, slice_id: str, epoch: int) -> None:
        self.world.point(what)
        self.calls.append((what, slice_id, epoch))

    async def cordon(self, slice_id: str, epoch: int) -> None:
        self._called("cordon", slice_id, epoch)
        if epoch > self._voided.get(slice_id, 0):
            self.cordons[slice_id] = max(epoch, self.cordons.get(slice_id, 0))
        self.world.point("cordoned")

    async def uncordon(self, slice_id: str, epoch: int) -> None:
        self._called("uncordon", slice_id, epoch)
        self._voided[slice_id] = max(epoch, self._voided.get(slice_id, 0))
        if self.cordons.get(slice_id, 0) <= epoch:
            self.cordons.pop(slice_id, None)
        self.world.point("uncordoned")

    async def drain(self, slice_id: str, epoch: int, *, evict: bool = False) -> None:
        self._called("evict" if evict else "drain", slice_id, epoch)
        if evict and slice_id in self.running:
            job = self.running.pop(slice_id)
            self.evicted.append(job)
            self.waiting.append(job)
        self.world.point("drained")

    async def forget(self, slice_ids: Sequence[str]) -> None:
        self._called("forget", slice_ids[0], 0)
        for name in slice_ids:
            self.cordons.pop(name, None)
        self.world.point("forgotten")

    async def close(self) -> None:
        pass


class World:
    """The clouds, the work, the clock and the journal; controllers come and go."""

    def __init__(self, path: Path | None = None, settings: Settings | None = None) -> None:
        """``path``: where the journal is; None: in memory, where it outlives its controllers all the same."""
        self.path, self.time, self.ahead = path, 1000.0, 0.0
        self.calls: list[str] = []
        self.crash_at: Collection[int] = ()
        """Numbers of the points at which the controller dies."""
        self.dead = False
        self.settings = settings or Settings((GroupSettings(GPU, "cloud"),), policy=QUICK)
        self.clouds = {name: Cloud(self.point) for name in sorted({one.provider for one in self.settings.groups})}
        self.work = Work(
            self.clouds, lambda: {n: configured.group for n, configured in self.settings.by_name.items()}, self
        )
        self._kept = open_journal(":memory:") if path is None else None

    @property
    def cloud(self) -> Cloud:
        [cloud] = self.clouds.values()
        return cloud

    @property
    def instances(self) -> dict[str, Instance]:
        """Everything that there really is."""
        return {name: one for cloud in self.clouds.values() for name, one in cloud.instances.items()}

    @property
    def bought(self) -> list[str]:
        return [name for cloud in self.clouds.values() for name in cloud.bought]

    def point(self, name: str) -> None:
        """A place where the controller may die."""
        self.calls.append(name)
        if self.dead or len(self.calls) in self.crash_at:
            self.dead = True  # and whatever else it had under way dies with it
            raise Crash(name)

    def journal(self) -> Journal:
        return self._kept or open_journal(str(self.path))

    def controller(self, holder: str = "one", **more: Any) -> Controller:
        """A new one that leads."""
        controller = Controller(
            self.settings,
            self.clouds,
            self.work,
            Watched(self.journal(), self.point),
            now=lambda: self.time,
            steady=lambda: self.time + self.ahead,
            leadership=Leadership(holder),
            **more,
        )
        controller.start()
        return controller

    async def tick(self, controller: Controller, seconds: float = 1.0) -> Pass:
        """Time goes on, work goes on, the loop makes one pass and its calls come back."""
        self.time += seconds
        self.step()
        try:
            tick = await controller.tick()
        finally:
            if all(cloud.hanging is None for cloud in self.clouds.values()):
                await controller.actuator.settle()
            else:
                for _ in range(5):  # what does not hang comes back
                    await asyncio.sleep(0)
            died, self.dead = self.dead, False
        if died:
            raise Crash("in an outside call")
        return tick

    def step(self) -> None:
        """Work goes on."""
        self.work.step()

    async def ticks(self, controller: Controller, times: int, seconds: float = 1.0) -> None:
        for _ in range(times):
            await self.tick(controller, seconds)


class Survivor:
    """A controller that is started again on the same journal whenever it is killed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.deaths = 0
        asyncio.get_running_loop().set_exception_handler(_quiet_about_crashes)
        self.controller = self._start()

    def _start(self) -> Controller:
        while True:
            try:
                return self.world.controller()
            except Crash:
                self.deaths += 1
                self.world.dead = False

    async def tick(self, seconds: float = 1.0) -> None:
        try:
            await self.world.tick(self.controller, seconds)
        except Crash:
            self.deaths += 1
            self.controller = self._start()

    async def until(self, wanted: Callable[[], object], seconds: float = 1.0, ticks: int = 60) -> None:
        """Tick until it is as wanted, at most ``ticks`` times after the last death: idle clocks start again then."""
        left, deaths = ticks, self.deaths
        while not wanted():
            if self.deaths != deaths:
                left, deaths = ticks, self.deaths
            assert left, f"not settled after {ticks} ticks: {self.controller.controller_state.fleet.slices}"
            left -= 1
            await self.tick(seconds)

    def in_state(self, *states: State) -> list[str]:
        slices = self.controller.controller_state.fleet.slices.values()
        return sorted(record.id for record in slices if record.state in states)


class Crash(BaseException):
    """The controller dies here, as if killed."""


def _quiet_about_crashes(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Nobody asks after the tasks of a controller that is dead."""
    if not isinstance(context.get("exception"), Crash):
        loop.default_exception_handler(context)


class Watched:
    """A journal with a place to die before and after every write."""

    def __init__(self, journal: Journal, point: Callable[[str], None]) -> None:
        self._journal, self._point = journal, point

    def _between(self, name: str, *args: Any, **more: Any) -> Any:
        self._point(name)
        result = getattr(self._journal, name)(*args, **more)
        self._point(f"{name} done")
        return result

    def append(self, *args: Any, **more: Any) -> Any:
        return self._between("append", *args, **more)

    def save_state(self, *args: Any, **more: Any) -> Any:
        return self._between("save_state", *args, **more)

    def acquire(self, *args: Any, **more: Any) -> Any:
        return self._between("acquire", *args, **more)

    def renew(self, *args: Any, **more: Any) -> Any:
        return self._between("renew", *args, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)
