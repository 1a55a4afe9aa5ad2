"""A Dask scheduler with real workers, and tasks that run until a test lets them end."""

from __future__ import annotations

import asyncio
import os
import subprocess
from contextlib import suppress
from pathlib import Path

from distributed import Client, Future, Scheduler
from distributed.security import Security

from windlass.core.model.snapshot import Group, amounts
from windlass.testing.eventually import a_moment, eventually
from windlass.workloads.dask_cluster.workload import DaskWorkload

ONE = Group("g", amounts({"cpu": 1000}), max=9)
TWO = Group("two", amounts({"cpu": 2000, "gpu": 1000}), max=9)


def gated(gate: str):
    """A task that leaves a mark each time it starts, and ends when somebody writes into its pipe."""

    def task(gate=gate):
        with Path(gate + ".starts").open("a", encoding="utf-8") as marks:
            marks.write("x")
        Path(gate).read_text(encoding="utf-8")
        return gate

    return task


class DaskStage:
    """The scheduler is in this process, workers are processes of their own."""

    def __init__(self, directory: Path, security: Security | None = None) -> None:
        self.directory, self.security = directory, security
        protocol = "tcp" if security is None else "tls"
        self.scheduler = Scheduler(
            host="127.0.0.1", protocol=protocol, security=security, dashboard=False, dashboard_address="127.0.0.1:0"
        )
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.futures: dict[Path, Future] = {}

    async def start(self) -> DaskStage:
        await self.scheduler
        self.workload = DaskWorkload(self.scheduler.address, (ONE, TWO))
        self.client = await Client(
            self.scheduler.address, asynchronous=True, set_as_default=False, security=self.security
        )
        return self

    async def join_slice(self, slice_id, group="g"):
        join = self.workload.join(slice_id, group, 0)
        environment = {**os.environ, **join.environment}
        log = (self.directory / f"{slice_id}.log").open("wb")
        self.processes[slice_id] = subprocess.Popen(join.command, env=environment, stderr=log, start_new_session=True)
        log.close()

    async def joined(self, *slice_ids, group="g"):
        for slice_id in slice_ids:
            await self.join_slice(slice_id, group)
        await eventually(self.workload.observe, lambda view: {one.slice_id for one in view.nodes} >= set(slice_ids))

    async def submit(self, tasks, **options):
        for _ in range(tasks):
            gate = self.directory / f"gate-{len(self.futures)}"
            os.mkfifo(gate)
            self.futures[gate] = self.client.submit(gated(str(gate)), key=f"gated-{gate}", pure=False, **options)

    def starts(self):
        """How often each task has started."""
        marks = [Path(f"{gate}.starts") for gate in self.futures]
        return [len(mark.read_text(encoding="utf-8")) if mark.exists() else 0 for mark in marks]

    async def started(self, *times):
        """Wait until so many tasks have started, each so often."""

        async def starts():
            return sorted(times for times in self.starts() if times)

        await eventually(starts, lambda seen: seen == sorted(times))

    async def finish(self, tasks=None):
        """Every task that is shown as running ends, or so many one after the other, once it is there to be told."""
        if tasks is None:
            tasks = sum(node.tasks for node in (await self.workload.observe()).nodes)
        for _ in range(tasks):
            gate, *_ = await eventually(self._at_their_gates)
            await self.tell(gate)
            await self.futures[gate]
            self.futures[gate].release()  # a result that nobody wants any more holds no node

    async def _at_their_gates(self):
        return [
            gate
            for gate, future in self.futures.items()
            if future.status == "pending" and Path(f"{gate}.starts").exists()
        ]

    async def tell(self, gate):
        """A task may end, once it is there to hear it."""

        async def output():
            with suppress(OSError):
                os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
                return True
            return False

        await eventually(output)

    async def land(self, slice_id):
        return False  # the worker itself starts nothing behind the fence

    async def pass_time(self):
        await a_moment()

    async def break_off(self):
        await self.client.close()
        await self.workload.close()
        for process in self.processes.values():
            process.kill()
            await asyncio.to_thread(process.wait, 10)
        await self.scheduler.close()
