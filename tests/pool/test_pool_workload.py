"""The pool passes the suite that every workload must pass, on the in-process engine."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from windlass.core.model.snapshot import Group
from windlass.pool.scaling.workload import PoolWorkload
from windlass.pool.scheduler.tasks import Kind, ScheduledTask
from windlass.pool.transport.serialization import pack_arguments, pack_function
from windlass.testing.fake_engine import FakeEngine
from windlass.testing.workload_conformance import WorkloadConformance
from windlass.workloads.protocol import Workload, WorkloadError

from .worlds import same


class Nobody:
    def on_began(self): ...
    def on_ended(self, result): ...
    def on_failed(self, error): ...
    def on_value(self, blob): ...


class HoldingEngine(FakeEngine):
    """Calls run until they are released."""

    def __init__(self) -> None:
        super().__init__()
        self.running: list[str] = []

    def run(self, call):
        self.hold(call.id)
        self.running.append(call.id)
        super().run(call)


class PoolStage:
    workload: Workload

    def __init__(self) -> None:
        self.engine = HoldingEngine()
        self.pool = self.workload = PoolWorkload(self.engine, [Group("g", (("slots", 1000),), 10)])
        self._numbers = count(1)
        self._kind = Kind("task", pack_function(same), (("slots", 1000),))
        self._started = False

    async def _start(self) -> None:
        if not self._started:
            self._started = True
            await self.pool.start()

    async def join_slice(self, slice_id: str) -> None:
        await self._start()
        self.engine.arrive(self.workload.join(slice_id, "g", 0))
        await self.pass_time()

    async def submit(self, tasks: int) -> None:
        await self._start()
        new = [
            ScheduledTask(next(self._numbers), self._kind, pack_arguments((1,)), Nobody(), 0.0) for _ in range(tasks)
        ]
        self.pool.task_book.submit(new)
        await self.pass_time()

    async def finish(self) -> None:
        for call in self.engine.running:
            self.engine.release(call)
        self.engine.running.clear()
        await self.pass_time()

    async def land(self, slice_id: str) -> bool:
        return False  # the book itself places, so nothing is ever on its way that it does not know

    async def pass_time(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def break_off(self) -> None:
        if self._started:
            await self.engine.close()


class TestPoolWorkload(WorkloadConformance):
    patience = 5.0

    def stage(self) -> PoolStage:
        return PoolStage()


def test_a_node_of_a_group_that_is_not_there_cannot_join():
    async def whole() -> None:
        with pytest.raises(WorkloadError, match="the pool has no group other"):
            PoolStage().workload.join("w-1", "other", 0)

    asyncio.run(whole())
