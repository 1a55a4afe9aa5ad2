"""A small world for the loop: a cloud and a workload in memory, on a clock that only tests move."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from windlass.control.loop import Controller, Pass
from windlass.control.policy import Leadership, Policy, Settings, SoldGroup
from windlass.core.snapshot import Bundle, Demand, Group, ScaleDown
from windlass.journal import open_journal
from windlass.providers.protocol import Host, Instance, LaunchOrder, Offering, ProviderError, StaleEpoch
from windlass.workloads.protocol import Acknowledgement, Join, WorkloadView, WorkNode

GPU = Group("gpu", (("gpu", 8000),), 4, scale_down=ScaleDown(idle_timeout=60))
TASK = (("gpu", 8000),)


class Cloud:
    """Sells at once, shows it at once, ends at once. Every purchase is remembered."""

    def __init__(self, before_call: Callable[[str], None]) -> None:
        self.instances: dict[str, Instance] = {}
        self.bought: list[str] = []
        self.ended: list[str] = []
        self.epoch = 0
        self.failing: ProviderError | None = None
        self.hanging: asyncio.Event | None = None
        self._before_call = before_call

    def _check(self, epoch: int) -> None:
        if epoch < self.epoch:
            raise StaleEpoch(f"epoch {epoch} is older than {self.epoch}")
        self.epoch = epoch

    async def launch(self, order: LaunchOrder, epoch: int) -> None:
        self._before_call("launch")
        if self.hanging is not None:
            await self.hanging.wait()
        self._check(epoch)
        if self.failing is not None:
            raise self.failing
        if order.slice_id not in self.instances and order.slice_id not in self.ended:
            self.bought.append(order.slice_id)
            hosts = tuple(Host(f"{order.slice_id}/{index}") for index, _ in enumerate(order.hosts))
            self.instances[order.slice_id] = Instance(order.slice_id, order.group, "running", hosts)
        self._before_call("launched")

    async def terminate(self, slice_id: str, epoch: int) -> None:
        self._before_call("terminate")
        self._check(epoch)
        if self.instances.pop(slice_id, None):
            self.ended.append(slice_id)
        self._before_call("terminated")

    async def list(self) -> Sequence[Instance]:
        if self.failing is not None:
            raise self.failing
        return tuple(self.instances.values())

    async def offerings(self) -> Sequence[Offering]:
        return ()

    async def close(self) -> None:
        pass


class Work:
    """Jobs of one slice each: they wait, run on a joined slice that is not cordoned, and end when the test says so."""

    def __init__(self, cloud: Cloud, now: Callable[[], float]) -> None:
        self.cloud, self.now = cloud, now
        self.waiting: list[str] = []
        self.running: dict[str, str] = {}
        self.cordons: dict[str, int] = {}
        self.idle_since: dict[str, float] = {}
        self.finished: list[str] = []
        self.killed: list[str] = []

    def step(self) -> None:
        """Work moves on: lost slices lose their work, free ones take what waits."""
        for slice_id in [one for one in self.running if one not in self.cloud.instances]:
            self.killed.append(self.running.pop(slice_id))
        for slice_id in sorted(self.cloud.instances):
            self.idle_since.setdefault(slice_id, self.now())
            if self.waiting and slice_id not in self.running and slice_id not in self.cordons:
                self.running[slice_id] = self.waiting.pop(0)

    def finish(self) -> None:
        for slice_id, job in sorted(self.running.items()):
            self.finished.append(job)
            self.idle_since[slice_id] = self.now()
        self.running.clear()

    async def observe(self) -> WorkloadView:
        nodes = [
            WorkNode(
                f"{name}/0",
                name,
                TASK if name in self.running else (),
                int(name in self.running),
                None if name in self.running else self.idle_since.get(name, self.now()),
            )
            for name in sorted(self.cloud.instances)
        ]
        words = [
            Acknowledgement(name, fence, int(name in self.running)) for name, fence in sorted(self.cordons.items())
        ]
        demands = tuple(Demand(job, (Bundle(TASK),)) for job in self.waiting)
        return WorkloadView(demands, (), tuple(nodes), tuple(words))

    async def changed(self) -> None:
        await asyncio.Event().wait()

    def join(self, slice_id: str, group: str, host: int) -> Join:
        return Join(("join", slice_id, group, str(host)))

    async def cordon(self, slice_id: str, epoch: int) -> None:
        self.cloud._before_call("cordon")
        self.cordons[slice_id] = max(epoch, self.cordons.get(slice_id, 0))

    async def uncordon(self, slice_id: str, epoch: int) -> None:
        if self.cordons.get(slice_id, 0) <= epoch:
            self.cordons.pop(slice_id, None)

    async def drain(self, slice_id: str, epoch: int, *, evict: bool = False) -> None:
        pass

    async def forget(self, slice_ids: Sequence[str]) -> None:
        pass

    async def close(self) -> None:
        pass


class World:
    """The cloud, the work, the clock and the journal; controllers come and go."""

    def __init__(self, path: Path) -> None:
        self.path, self.time = path, 1000.0
        self.calls: list[str] = []
        self.crash_at: int | None = None
        self.dead = False
        self.cloud = Cloud(self.point)
        self.work = Work(self.cloud, lambda: self.time)
        self.settings = Settings((SoldGroup(GPU, "cloud"),), policy=Policy(vanish_timeout=0))

    def point(self, name: str) -> None:
        """A place where the controller may die."""
        self.calls.append(name)
        if self.dead or (self.crash_at is not None and len(self.calls) == self.crash_at):
            self.dead = True  # and whatever else it had under way dies with it
            raise Crash(name)

    def controller(self, holder: str = "one") -> Controller:
        journal = Watched(open_journal(str(self.path)), self.point)
        controller = Controller(
            self.settings,
            {"cloud": self.cloud},
            self.work,
            journal,  # type: ignore[arg-type]
            now=lambda: self.time,
            leadership=Leadership(holder),
        )
        controller.start()
        return controller

    async def tick(self, controller: Controller, seconds: float = 1.0) -> Pass:
        """Time goes on, work goes on, the loop makes one pass and its calls come back."""
        self.time += seconds
        self.work.step()
        try:
            tick = await controller.tick()
        finally:
            await controller.actuator.settle()
            died, self.dead = self.dead, False
        if died:
            raise Crash("in an outside call")
        return tick


class Crash(BaseException):
    """The controller dies here, as if killed."""


class Watched:
    """A journal with a place to die before and after every write."""

    def __init__(self, journal: object, point: Callable[[str], None]) -> None:
        self._journal, self._point = journal, point

    def append(self, *args: object, **more: object) -> object:
        self._point("append")
        result = self._journal.append(*args, **more)  # type: ignore[attr-defined]
        self._point("appended")
        return result

    def __getattr__(self, name: str) -> object:
        return getattr(self._journal, name)
