"""A pool on virtual time: the production controller, the in-process engine, machines that boot in virtual seconds."""

from __future__ import annotations

import asyncio
import pickle
import platform
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from windlass.core.model.lifecycle import State
from windlass.journal import open_journal
from windlass.pool.client.api import Compute, GangTask, Task, compute_of
from windlass.pool.client.futures import Ranks, TaskFuture
from windlass.pool.client.submission import Preparer
from windlass.pool.engines.protocol import Call
from windlass.pool.options import PoolShape, shaped
from windlass.pool.runtime import PoolRuntime
from windlass.pool.scheduler.tasks import ScheduledTask as BookTask
from windlass.providers.protocol import ClusterIdentity, Host, Instance, LaunchOrder, Offering
from windlass.sim.run.virtual_loop import run_virtually
from windlass.testing.fake_engine import FakeEngine
from windlass.workloads.protocol import Join


class Machines:
    """Sells machines that come up after ``boot`` seconds and run what they are told to."""

    def __init__(self, engine: FakeEngine, boot: float = 5.0) -> None:
        self.engine, self.boot = engine, boot
        self.instances: dict[str, Instance] = {}
        self.bought: list[str] = []
        self.ended: list[str] = []
        self.mute = False
        """New machines come up and never run anything."""
        self.failing: tuple[str, str] | None = None
        """New machines come up, and their setup fails in this phase, for this reason."""

    async def launch(self, order: LaunchOrder, epoch: int) -> None:
        if order.slice_id in self.bought:
            return
        self.bought.append(order.slice_id)
        hosts = tuple(Host(f"{order.slice_id}/{number}") for number, _ in enumerate(order.hosts))
        self.instances[order.slice_id] = Instance(order.slice_id, order.group, "pending", hosts)
        asyncio.get_running_loop().call_later(self.boot, self._up, order)

    def _up(self, order: LaunchOrder) -> None:
        if order.slice_id in self.instances:
            self.instances[order.slice_id] = replace(self.instances[order.slice_id], state="running")
            if self.failing is not None:
                phase, trouble = self.failing
                self.kill(order.slice_id)
                found = self.instances[order.slice_id]
                hosts = tuple(replace(host, failed_phase=phase) for host in found.hosts)
                self.instances[order.slice_id] = replace(found, hosts=hosts, trouble=trouble)
            for host in order.hosts if not self.mute and self.failing is None else ():
                self.engine.arrive(Join(host.command))

    async def terminate(self, slice_id: str, epoch: int) -> None:
        if slice_id in self.instances:
            self._lose(self.instances.pop(slice_id))
            self.ended.append(slice_id)

    def _lose(self, instance: Instance) -> None:
        for host in instance.hosts:
            self.engine.lose(host.id, "its machine is gone")

    def kill(self, slice_id: str) -> None:
        """As after kill -9: the machine is listed, its host is dead."""
        instance = self.instances[slice_id]
        hosts = tuple(replace(host, running=False) for host in instance.hosts)
        self.instances[slice_id] = replace(instance, hosts=hosts)
        self._lose(instance)

    def bind(self, cluster: ClusterIdentity) -> None:
        """Its account has one cluster."""

    async def list(self) -> Sequence[Instance]:
        return tuple(self.instances.values())

    async def offerings(self) -> Sequence[Offering]:
        return ()

    async def close(self) -> None:
        pass


class TimedEngine(FakeEngine):
    """Each item may take a time of its own, by its arguments."""

    item_took: Callable[[Any], float] | None = None

    def _item_seconds(self, call: Call, item: int) -> float:
        if self.item_took is None:
            return super()._item_seconds(call, item)
        ((argument,), _) = pickle.loads(call.blob)[2][item]
        return self.item_took(argument)


class World:
    """A pool that runs, and what a test does to it."""

    def __init__(
        self, nodes: Any, *, seconds: float = 10.0, boot: float = 5.0, python: str | None = None, **more: Any
    ) -> None:
        loop = asyncio.get_running_loop()
        self.seconds = seconds
        self.took: Callable[[Call], float] = lambda _: self.seconds
        known = platform.python_version() if python is None else python
        self.engine = TimedEngine(seconds=lambda call: self.took(call), python=known)
        self.machines = Machines(self.engine, boot)
        self._more = more
        self.shape = self.shaped(nodes)
        self.preparer = Preparer(self.shape)
        self.lines: list[str] = []
        self.said: list[tuple[str, str]] = []
        self.begun: list[tuple[str, float]] = []
        self.hub = PoolRuntime(
            self.shape,
            self.engine,
            self.machines,
            open_journal(":memory:"),
            now=loop.time,
            steady=loop.time,
            on_output=lambda task, _stream, line: self.said.append((task.label, line)),
        )
        self.sizes: list[tuple[float, int]] = []

    def shaped(self, nodes: Any) -> PoolShape:
        """A shape whose policy fits these machines: their list does not lag."""
        shape = shaped(self.machines, nodes, **self._more)
        policy = replace(shape.settings.policy, vanish_timeout=0.5, initializing_timeout=60.0)
        return replace(shape, settings=replace(shape.settings, policy=policy))

    def start(self, *tasks: Task | GangTask) -> list[TaskFuture]:
        """Futures of tasks that are submitted together."""
        made = []
        plain = [task for task in tasks if isinstance(task, Task)]
        futures = [TaskFuture(self._cancel) for _ in plain]
        for future, sent in zip(futures, self.hub.submit(self.preparer.prepare(plain), futures), strict=True):
            future.tasks = [sent]
        made += futures
        for task in tasks:
            if isinstance(task, GangTask):
                future = TaskFuture(self._cancel)
                ranks = Ranks(task.size, future.answer)
                tickets = [ranks.ticket(rank, future.on_began) for rank in range(task.size)]
                future.tasks = self.hub.submit_gang(self.preparer.prepare([task]), tickets, spread=task.spread)
                made.append(future)
        return made

    def _cancel(self, tasks: list[BookTask]) -> None:
        self.hub.cancel(tasks)

    @staticmethod
    def compute(function: Callable[..., Any]) -> Compute[..., Any]:
        return compute_of(function)

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> TaskFuture:
        return self.start(compute_of(function).options(**options)(*args))[0]

    def burst(self, count: int, **options: Any) -> list[TaskFuture]:
        made = compute_of(same).options(**options)
        return self.start(*[made(number) for number in range(count)])

    async def over(self, *futures: TaskFuture) -> list[Any]:
        """What came of them: values, or exceptions."""
        while not all(future.done() for future in futures):
            await asyncio.sleep(0.05)
        return [future.exception() or future.result() for future in futures]

    @property
    def states(self) -> list[State]:
        task_book = self.hub.service.controller.controller_state.fleet
        return sorted((record.state for record in task_book.slices.values()), key=list(State).index)

    @property
    def nodes(self) -> list[str]:
        """Nodes that have joined and take work, by number."""
        return [node.id for node in sorted(self.hub.task_book.open_nodes, key=lambda node: node.number)]

    async def until(self, wanted: Callable[[], object], within: float = 600.0) -> float:
        """The virtual seconds until something is so."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while not wanted():
            assert loop.time() - begun < within, f"not within {within:g} s; there is {self.states}"
            await asyncio.sleep(0.05)
        return loop.time() - begun


def same(value: Any) -> Any:
    return value


def pool(nodes: Any, journey: Callable[[World], Coroutine[Any, Any, None]], **more: Any) -> None:
    """Run a journey on a pool, in virtual time."""

    async def whole() -> None:
        world = World(nodes, **more)
        await world.hub.start()
        try:
            await journey(world)
        finally:
            await world.hub.close()
            world.hub.journal.close()

    run_virtually(whole(), start=1_000_000.0)
