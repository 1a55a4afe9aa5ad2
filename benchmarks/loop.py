"""Measures the time of one pass with many slices, and the time from new demand to the provider's launch call.

- A pass in seconds of wall time: observe the simulated cloud and workload, apply observations, plan, decide, write to
  a SQLite journal on disk, and start the calls. The cluster is always busy: jobs of one slice each arrive and end, so
  that each slice gets a new job about every ten minutes, and one second passes between two passes. The time of the
  simulation itself is included.
- From demand to call: a real controller with the queue workload, without machines and pending work. The time from the
  submission of a task to the provider's launch call. Everything in between is real: the SQLite queue, the wake-up, the
  plan, the commit to disk.

Other autoscalers, by their documented defaults: Ray's loop runs every 5 s, Cluster Autoscaler scans every 10 s,
Karpenter gathers pods for 1 to 10 s.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from windlass.control.controller import Controller
from windlass.control.service import Service
from windlass.control.settings import BackOff, GroupSettings, Leadership, Policy, Settings
from windlass.core.model.snapshot import Bundle, Demand, Group, ScaleDown, amounts
from windlass.journal import open_journal
from windlass.providers.protocol import ClusterIdentity, Instance, InsufficientCapacity, LaunchOrder, Offering
from windlass.sim.cloud.machines import MachineKind
from windlass.sim.cloud.provider import SimulatedProvider
from windlass.sim.workload.jobs import Job
from windlass.sim.workload.workload import SimulatedWorkload
from windlass.workloads.queue.store import Queue
from windlass.workloads.queue.workload import QueueWorkload

from .fresh import measured_afresh
from .table import Table, number
from .targets import Check, below

NAME = "loop"
TITLE = "The loop"
SIZES = {"quick": ((1_000, 150),), "default": ((1_000, 600), (10_000, 150))}
LIMITS = {1_000: (0.1, 200), 10_000: (1.0, None)}
"""By number of slices: the 99th percentile of a pass, and the memory in megabytes."""
SECONDS_A_JOB = 600.0
CLUSTER = 10
"""Samples that one cluster gives: what an earlier one asked for still waits, and a cluster full of that is not idle."""
SAMPLES = {"quick": 20, "default": 100}


def measure(which: str = "default", say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    rows = []
    for slices, passes in SIZES.get(which, SIZES["default"]):
        found = measured_afresh("loop", "passes_of", slices=slices, passes=passes)
        rows.append({"slices": slices, "passes": passes, **found})
        say(f"{slices:,} slices: p99 {found['p99'] * 1000:.0f} ms")
    latency = measured_afresh("loop", "latency_of", samples=SAMPLES.get(which, SAMPLES["default"]))
    say(f"demand to call: p95 {latency['p95'] * 1000:.1f} ms")
    return {"name": NAME, "rows": rows, "latency": latency, "checks": checks(rows, latency)}


def checks(rows: list[dict[str, Any]], latency: dict[str, Any]) -> list[Check]:
    found = []
    for row in rows:
        longest, memory = LIMITS[row["slices"]]
        found.append(below(f"{row['slices']:,} slices: p99 of a pass", 1000 * row["p99"], 1000 * longest, "ms", 0))
        if memory is not None:
            found.append(below(f"{row['slices']:,} slices: peak memory", row["peak_mb"], memory, "MB", 0))
    found.append(below("from demand to the provider's call: p95", 1000 * latency["p95"], 50, "ms", 1))
    return found


def tables(result: dict[str, Any]) -> list[Table]:
    rows = tuple(
        (
            number(row["slices"]),
            number(row["passes"]),
            f"{row['p50'] * 1000:.0f} ms",
            f"{row['p99'] * 1000:.0f} ms",
            f"{row['longest'] * 1000:.0f} ms",
            f"{row['entries']:.0f}",
            f"{row['peak_mb']:.0f} MB",
        )
        for row in result["rows"]
    )
    latency = result["latency"]
    waits = tuple(
        (who, took)
        for who, took in (
            ("Windlass, p50", f"{latency['p50'] * 1000:.1f} ms"),
            ("Windlass, p95", f"{latency['p95'] * 1000:.1f} ms"),
            ("Windlass, longest", f"{latency['longest'] * 1000:.1f} ms"),
            ("Ray (documented)", "up to 5 s"),
            ("Karpenter (documented)", "1 to 10 s"),
            ("Cluster Autoscaler (documented)", "up to 10 s"),
        )
    )
    columns = ("slices", "passes", "p50", "p99", "longest", "entries a pass", "peak memory")
    return [
        Table("One pass of a busy cluster", columns, rows),
        Table(f"From demand to the provider's call, {latency['samples']} samples", ("who", "time"), waits),
    ]


# -- one pass ------------------------------------------------------------------------------------------------------


def passes_of(slices: int, passes: int) -> dict[str, Any]:
    """Run in a separate process."""
    with tempfile.TemporaryDirectory() as home:
        return asyncio.run(_passes(slices, passes, Path(home)))


async def _passes(slices: int, passes: int, home: Path) -> dict[str, Any]:
    clock = _Clock()
    groups = [
        Group(
            f"kind-{size}",
            amounts({"cpu": 16_000 * size, "memory": 64 * size << 30}),
            max=slices,
            price=size * 10**9,
            scale_down=ScaleDown(idle_timeout=60),
        )
        for size in (1, 2, 3, 4)
    ]
    cloud = SimulatedProvider(
        [MachineKind(Offering(one.name, one.resources, 1, one.price), boot=30, join=5, spread=0.2) for one in groups],
        now=clock,
        seed=1,
    )
    warm_up = 60
    jobs = list(_jobs(groups, slices, warm_up + passes))
    work = SimulatedWorkload(groups, cloud.live_hosts, now=clock, jobs=jobs, seed=1)
    policy = Policy(launch_rate=10**6, launch_concurrency=10**4, observe_timeout=10**6)
    settings = Settings(tuple(GroupSettings(one, "cloud") for one in groups), policy=policy)
    times, entries = [], 0
    with open_journal(home / "journal.db") as journal:
        controller = Controller(settings, {"cloud": cloud}, work, journal, now=clock)
        controller.start()
        for number_of in range(warm_up + passes):
            clock.time += 1
            work.step()
            began = time.perf_counter()
            done = await controller.tick()
            if number_of >= warm_up:
                times.append(time.perf_counter() - began)
                entries += len(done.entries)
            await controller.actuator.settle()
        held = len(controller.controller_state.fleet.slices)
    return {**_percentiles(times), "entries": entries / passes, "held": held}


class _Clock:
    time = 1_000.0

    def __call__(self) -> float:
        return self.time


def _jobs(groups: Sequence[Group], slices: int, seconds: int) -> list[Job]:
    """Yield a full load of jobs, and a new job for each one that ends."""
    dice = random.Random(1)
    arrivals = [1_000.0] * slices
    arrivals += [1_000.0 + index * SECONDS_A_JOB / slices for index in range(int(seconds * slices / SECONDS_A_JOB))]
    return [
        Job(
            Demand(f"job-{index}", (Bundle(amounts({"cpu": dict(dice.choice(groups).resources)["cpu"]})),)),
            arrives,
            SECONDS_A_JOB,
            0.5,
        )
        for index, arrives in enumerate(arrivals)
    ]


def _percentiles(times: Sequence[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        "p50": ordered[len(ordered) // 2],
        "p95": ordered[int(len(ordered) * 0.95)],
        "p99": ordered[int(len(ordered) * 0.99)],
        "longest": ordered[-1],
    }


# -- from demand to call -------------------------------------------------------------------------------------------


class _SoldOut:
    """A provider that refuses everything and records the times of the calls."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[float] = asyncio.Queue()

    async def launch(self, order: LaunchOrder, epoch: int) -> None:  # noqa: ARG002
        self.asked.put_nowait(time.perf_counter())
        raise InsufficientCapacity("sold out")

    async def terminate(self, slice_id: str, epoch: int) -> None: ...

    def bind(self, cluster: ClusterIdentity) -> None:
        """Its account has one cluster."""

    async def list(self) -> Sequence[Instance]:
        return ()

    async def offerings(self) -> Sequence[Offering]:
        return ()

    async def close(self) -> None: ...


def latency_of(samples: int) -> dict[str, Any]:
    """Run in a separate process."""
    chance, times = random.Random(1), list[float]()
    while len(times) < samples:
        with tempfile.TemporaryDirectory() as home:
            times += asyncio.run(_latencies(CLUSTER, Path(home), chance))
    return {**_percentiles(times), "samples": len(times)}


async def _latencies(samples: int, home: Path, chance: random.Random) -> list[float]:
    """Each sample asks for a kind of its own, so that no refusal of an earlier one is in its way."""
    kinds = [amounts({"cpu": 2_000, f"only-{index}": 1_000}) for index in range(samples)]
    groups = [Group(f"kind-{index}", kind, max=1) for index, kind in enumerate(kinds)]
    provider, work = _SoldOut(), QueueWorkload(home / "queue", groups)
    times = []
    with open_journal(home / "journal.db") as journal:
        service = Service(
            Settings(
                tuple(GroupSettings(one, "seller") for one in groups),
                policy=Policy(backoff=BackOff(pause=86_400)),  # else the probes of earlier samples are in the way
            ),
            {"seller": provider},
            work,
            journal,
            leadership=Leadership("benchmark"),
            retention=3600,
            now=time.time,
            steady=time.monotonic,
        )
        running = asyncio.create_task(service.run())
        queue = Queue(home / "queue")
        for index in range(samples):
            # What followed from the last sample is over. The pause is random, so that samples do not keep step with the
            # pass that renews the lease every 5 s: within the minimum interval after it, demand waits.
            await asyncio.sleep(chance.uniform(1.0, 2.0))
            began = time.perf_counter()
            queue.submit(f"job-{index}", ["true"], amounts({"cpu": 1_000, f"only-{index}": 1_000}), 1, 0)
            times.append(await provider.asked.get() - began)
        queue.close()
        service.stop()
        await running
    await work.close()
    return times
