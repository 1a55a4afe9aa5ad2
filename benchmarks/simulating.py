"""Measures the simulator on real months and busy weeks, in CPU seconds of one core.

- Philly: jobs of Microsoft's cluster, on machines with 8 GPUs that boot in 4 minutes and are released after 5 idle
  minutes. The production loop makes a pass for every event; passes that would only see the usage of busy machines, or
  a machine that is about to end, are left out.
- A week of 1,000 nodes: a job every ten minutes, of up to 100 equal tasks of one to twelve hours in four shapes, so
  that about a thousand machines have work.

A Python that was built with profile-guided optimisation, such as Debian's, takes about four fifths of the time of one
without. On a shared machine the same run may take 50 % longer.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from windlass.config.set_option import overridden
from windlass.control.settings import Settings
from windlass.core.model.snapshot import Bundle, Demand, amounts
from windlass.sim.trace.reader import Trace, read_trace
from windlass.sim.trace.run import run_trace
from windlass.sim.workload.jobs import Job

from . import shared_data
from .fresh import measured_afresh
from .table import Table, number
from .targets import Check, below

NAME = "simulating"
TITLE = "The simulator"
PHILLY = "trace_philly.csv.gz"
ALL_JOBS = 111_549
INPUTS: dict[str, dict[str, int]] = {
    "quick": {"jobs": 300, "hours": 6},
    "default": {"jobs": ALL_JOBS, "hours": 168},
}
SECONDS, MEGABYTES, WEEK_SECONDS = 60, 500, 20

MACHINES = """
providers: {cloud: {type: simulated}}
workload: {type: simulated}
groups:
  gpu8:
    resources: {cpu: 96, memory: 1152Gi, gpu: 8}
    max: 2000
    price: 32.77
    boot_seconds: 240
    scale_down: {idle_timeout: 5m}
"""
SHAPES = ({"cpu": 96_000}, {"cpu": 48_000}, {"cpu": 24_000}, {"cpu": 12_000, "gpu": 4_000})


def measure(which: str = "default", say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    inputs, rows = INPUTS.get(which, INPUTS["default"]), []
    reason = shared_data.missing((PHILLY,))
    if reason:
        say(f"Philly skipped: {reason}")
    else:
        rows.append({"what": "Philly", **measured_afresh(NAME, "philly", jobs=inputs["jobs"])})
    rows.append({"what": "1,000 nodes", **measured_afresh(NAME, "busy", hours=inputs["hours"])})
    for row in rows:
        say(f"{row['what']}: {row['jobs']:,} jobs in {row['seconds']:.0f} s")
    return {"name": NAME, "rows": rows, "checks": checks(rows)}


def philly(jobs: int) -> dict[str, Any]:
    return _run(read_trace(shared_data.directory() / PHILLY, jobs))


def busy(hours: int) -> dict[str, Any]:
    dice, jobs = random.Random(1), []
    for minute in range(0, hours * 60, 10):
        tasks, length = dice.randint(1, 100), dice.uniform(1, 12) * 3600
        demand = Demand(f"job-{minute:05}", (Bundle(amounts(dice.choice(SHAPES)), tasks),))
        jobs.append(Job(demand, minute * 60.0, length))
    return _run(Trace(tuple(jobs), 0))


def _run(trace: Trace) -> dict[str, Any]:
    settings: Settings = overridden(MACHINES, path="machines").settings
    began = time.process_time()
    gauge, found = run_trace(settings, trace)
    return {
        "jobs": found.jobs,
        "finished": found.finished,
        "broken": len(found.breaches) + found.killed_by_us,
        "days": found.hours / 24,
        "passes": found.passes,
        "launches": found.launches,
        "nodes": max(sum(sample.capacity.values()) for sample in gauge.samples),
        "seconds": time.process_time() - began,
    }


def checks(rows: list[dict[str, Any]]) -> list[Check]:
    found = []
    for row in rows:
        if row["what"] == "Philly" and row["jobs"] == ALL_JOBS:
            found.append(below("the whole Philly trace", row["seconds"], SECONDS, "s", 0))
            found.append(below("the whole Philly trace, peak memory", row["peak_mb"], MEGABYTES, "MB", 0))
        if row["what"] != "Philly" and row["days"] >= 7:
            found.append(below("a week of 1,000 nodes", row["seconds"], WEEK_SECONDS, "s", 0))
        unfinished = row["jobs"] - row["finished"] + row["broken"]
        found.append(below(f"{row['what']}: jobs not finished, promises broken", unfinished, 1, "", 0))
    return found


def tables(result: dict[str, Any]) -> list[Table]:
    cells = tuple(
        (
            row["what"],
            number(row["jobs"]),
            f"{row['days']:,.1f}",
            number(row["nodes"]),
            number(row["launches"]),
            number(row["passes"]),
            f"{row['seconds']:,.0f} s",
            f"{1000 * row['seconds'] / max(1, row['passes']):.1f} ms",
            f"{row['peak_mb']:,.0f} MB",
        )
        for row in result["rows"]
    )
    columns = ("trace", "jobs", "days", "most nodes", "launches", "passes", "CPU time", "a pass", "peak memory")
    return [Table("Traces through the production loop", columns, cells)]
